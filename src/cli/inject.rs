//! `flock inject`: the pods of a manifest as the webhook would have them stored, without any cluster.

mod pods;
mod templates;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;
use thiserror::Error;

use crate::admission::{Fault, Policy, Refusal};
use crate::storage::storage_root;

pub use pods::{Injected, Options, pods};

/// `flock inject`.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// Pods and workloads, as YAML or JSON; `-` is the standard input. Namespaces and Services in it are taken into
    /// account.
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Only the pod with this ordinal; without it, every pod that a workload has.
    #[arg(long, value_name = "NUMBER")]
    pub ordinal: Option<u32>,
    /// The namespace of objects that name none.
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// The namespace's uid, which only a cluster knows; it is part of members' directories.
    #[arg(long, default_value = "NAMESPACE-UID")]
    pub namespace_uid: String,
    /// The directory of every node that members' directories are beneath.
    #[arg(long, env = "FLOCK_HOST_PATH_ROOT", default_value = "/var/lib/flock", value_parser = storage_root)]
    pub host_path_root: PathBuf,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Documents.
    Yaml,
    /// One object a line.
    Json,
}

/// Why there are no pods to show.
#[derive(Debug, Error)]
pub enum InjectError {
    /// The file cannot be read.
    #[error("{file} cannot be read")]
    Read {
        /// The file.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is neither YAML nor JSON.
    #[error("{file} is neither YAML nor JSON: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// Where and why.
        problem: String,
    },
    /// An object has another shape than its kind.
    #[error("{what} cannot be read: {problem}")]
    Shape {
        /// The object.
        what: String,
        /// Where and why.
        problem: String,
    },
    /// A workload would be denied.
    #[error("{what} would be denied: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Denied {
        /// The object.
        what: String,
        /// All reasons.
        faults: Vec<Fault>,
    },
    /// A pod would be refused.
    #[error("{what} would be refused: {refusal}")]
    Refused {
        /// The object.
        what: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The ordinal is none of the workload's.
    #[error("{what} has no ordinal {ordinal}: it has {has}; give one of them by --ordinal")]
    NoOrdinal {
        /// The object.
        what: String,
        /// What was asked for.
        ordinal: u32,
        /// What there is.
        has: String,
    },
    /// Nothing in the file is Flock's business.
    #[error(
        "no pod and no workload in it has the label {} on its template, so Flock would change nothing",
        crate::identity::keys::NAME
    )]
    NoMember,
    /// The output cannot be written.
    #[error("the pods cannot be written")]
    Write(#[from] std::io::Error),
}

/// Reads, patches, prints.
pub fn run(args: &InjectArgs) -> Result<(), InjectError> {
    let name = if args.file == Path::new("-") {
        "the standard input".into()
    } else {
        args.file.display().to_string()
    };
    let text = read(&args.file).map_err(|source| InjectError::Read {
        file: name.clone(),
        source,
    })?;
    let objects = documents(&text).map_err(|problem| InjectError::Syntax { file: name, problem })?;
    let options = Options {
        ordinal: args.ordinal,
        namespace: args.namespace.clone(),
        namespace_uid: args.namespace_uid.clone(),
        policy: Policy {
            host_path_root: args.host_path_root.clone(),
        },
    };
    let injected = pods(&objects, &options)?;
    let mut errors = std::io::stderr().lock();
    for warning in &injected.warnings {
        writeln!(errors, "Warning: {warning}")?;
    }
    let mut out = std::io::stdout().lock();
    for pod in &injected.pods {
        match args.output {
            Output::Json => writeln!(out, "{pod}")?,
            Output::Yaml => write!(out, "---\n{}", yaml(pod))?,
        }
    }
    Ok(())
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

/// The documents of a manifest, read as kubectl reads them (YAML 1.1), those of Lists one by one.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let all: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    let items = |object: Value| match object {
        Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
            match list.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        Value::Null => Vec::new(),
        other => vec![other],
    };
    Ok(all.into_iter().flat_map(items).collect())
}

/// An object as YAML. Should that fail, JSON, which is YAML too.
pub fn yaml(object: &Value) -> String {
    let options = serde_saphyr::ser_options! { yaml_12: false };
    let mut text =
        serde_saphyr::to_string_with_options(object, options).unwrap_or_else(|_| object.to_string());
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
