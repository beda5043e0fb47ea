//! Building: one `go build` for each program, from a copy of its set's pins.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Program, Set, bin_dir, kubernetes};
use crate::progress::{human, say};
use crate::{digest, dirs, host};

/// How often a long build says that it is still at it.
const STILL_BUILDING: Duration = Duration::from_secs(30);

/// What is known of one built program.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    /// Digest of everything that the build depends on besides the Go compiler.
    stamp: String,
    /// How long the build took.
    seconds: f64,
}

/// What is known of the built programs of a set, by name; kept beside them.
type Records = BTreeMap<String, Record>;

fn records_path(dir: &Path, set: &Set) -> PathBuf {
    dir.join(set.name).join(&set.version).join("built.json")
}

fn read_records(dir: &Path, set: &Set) -> Records {
    // A file that can't be read costs a rebuild out of the Go cache, nothing else.
    fs::read(records_path(dir, set))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn stamp(set: &Set, program: &Program) -> String {
    let pins = set
        .pins
        .map(|pins| [pins.go_mod, pins.go_sum, pins.main_go.unwrap_or_default()].concat());
    let parts = [
        &set.version,
        &set.ldflags,
        set.tags,
        program.package,
        pins.as_deref().unwrap_or("generated"),
    ]
    .join("\n");
    digest::hex(parts.as_bytes())
}

/// The programs of `wanted` that are missing or were built from other pins.
fn missing(dir: &Path, wanted: &[(Set, &[&str])]) -> Vec<(Set, Program, Option<f64>)> {
    let mut found = Vec::new();
    for (set, names) in wanted {
        let records = read_records(dir, set);
        for program in set
            .programs
            .iter()
            .filter(|program| names.contains(&program.name))
        {
            if !is_built(dir, set, program) {
                let record = records.get(program.name);
                found.push((set.clone(), *program, record.map(|record| record.seconds)));
            }
        }
    }
    found
}

/// Whether a program is there, built from the pin of now.
fn is_built(dir: &Path, set: &Set, program: &Program) -> bool {
    let fresh = read_records(dir, set)
        .get(program.name)
        .is_some_and(|record| record.stamp == stamp(set, program));
    fresh && bin_dir(dir, set).join(program.name).is_file()
}

/// Builds the programs of `wanted` that are missing under `dir`.
pub(super) fn ensure(dir: &Path, wanted: &[(Set, &[&str])]) -> Result<()> {
    if missing(dir, wanted).is_empty() {
        return Ok(());
    }
    let missing = missing(dir, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(dir).with_context(|| format!("{} could not be made", dir.display()))?;
    let go = host::go()?;
    let started = Instant::now();
    for (number, (set, program, last)) in missing.iter().enumerate() {
        // A lock for each set: whoever needs another one does not wait for Kubernetes.
        let _lock = dirs::lock(&dir.join(format!(".lock-{}-{}", set.name, set.version)), || {
            say(format_args!(
                "Waiting for another process that builds {} {}",
                set.name, set.version
            ));
        })?;
        if is_built(dir, set, program) {
            // By the process that held the lock.
            continue;
        }
        let expectation = match last {
            Some(seconds) => format!("last time it took {}", human(Duration::from_secs_f64(*seconds))),
            None => format!(
                "about {} the first time on two cores",
                human(Duration::from_secs(program.seconds))
            ),
        };
        say(format_args!(
            "Building {} {} ({} of {}; {expectation})",
            program.name,
            set.version,
            number + 1,
            missing.len()
        ));
        build(&go, dir, set, program)?;
    }
    say(format_args!(
        "Built {} programs in {}",
        missing.len(),
        human(started.elapsed())
    ));
    Ok(())
}

/// Builds one program and records it.
fn build(go: &Path, dir: &Path, set: &Set, program: &Program) -> Result<()> {
    let started = Instant::now();
    let bin = bin_dir(dir, set);
    let source = dir.join(set.name).join(&set.version).join("source");
    for folder in [&bin, &source] {
        fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
    }
    write_source(go, set, &source)?;

    // The program appears under its name only when it is whole, so that a killed build leaves no half of one.
    let unfinished = bin.join(format!(".{}.unfinished", program.name));
    let ldflags = format!("-s -w {}", set.ldflags);
    let output = unfinished.to_string_lossy();
    let mut args = vec![
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-mod=readonly",
        "-ldflags",
        &ldflags,
    ];
    if !set.tags.is_empty() {
        args.extend(["-tags", set.tags]);
    }
    args.extend(["-o", &output, program.package]);
    run_go(
        go,
        &source,
        &args,
        &format!("{} {} could not be built", program.name, set.version),
    )?;
    let built = bin.join(program.name);
    fs::rename(&unfinished, &built).with_context(|| format!("{} can't be written", built.display()))?;

    let mut records = read_records(dir, set);
    let record = Record {
        stamp: stamp(set, program),
        seconds: started.elapsed().as_secs_f64(),
    };
    records.insert(program.name.to_owned(), record);
    let path = records_path(dir, set);
    fs::write(&path, serde_json::to_vec_pretty(&records)?)
        .with_context(|| format!("{} can't be written", path.display()))
}

/// Lays the set's pins into the folder that is built from.
fn write_source(go: &Path, set: &Set, source: &Path) -> Result<()> {
    let Some(pins) = set.pins else {
        // Written once for a version; the proxy never changes what a version is.
        if source.join("go.sum").is_file() {
            return Ok(());
        }
        say(format_args!(
            "Resolving the modules of Kubernetes {}",
            set.version
        ));
        return kubernetes::write_pins(go, source, &set.version);
    };
    let files = [
        ("go.mod", Some(pins.go_mod)),
        ("go.sum", Some(pins.go_sum)),
        ("main.go", pins.main_go),
    ];
    for (name, text) in files {
        if let Some(text) = text {
            let path = source.join(name);
            fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))?;
        }
    }
    Ok(())
}

/// The folder with the source of `module`, in the version that is pinned for `set`, which is built.
pub(super) fn module_dir(dir: &Path, set: &Set, module: &str) -> Result<PathBuf> {
    let source = dir.join(set.name).join(&set.version).join("source");
    // Not where the build had it from by all means: caches are emptied.
    let output = Command::new(host::go()?)
        .args(["mod", "download", "-json", module])
        .env("GOWORK", "off")
        .env_remove("GOFLAGS")
        .current_dir(&source)
        .output()
        .context("go could not be started")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    answer["Dir"].as_str().map(PathBuf::from).with_context(|| {
        format!(
            "the source of {module} could not be had from the Go module proxy: {}",
            answer["Error"].as_str().unwrap_or("it gave no reason")
        )
    })
}

/// Runs `go` in `source`; an error starts with `failure` and ends with what the compiler said last.
pub(super) fn run_go(go: &Path, source: &Path, args: &[&str], failure: &str) -> Result<()> {
    let log_path = source.join("go.log");
    let log = File::create(&log_path).with_context(|| format!("{} can't be written", log_path.display()))?;
    let started = Instant::now();
    let mut child = Command::new(go)
        .args(args)
        .current_dir(source)
        // Static programs: they also go into images that hold nothing else.
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} could not be started", go.display()))?;
    let mut next_word = STILL_BUILDING;
    let status = loop {
        if let Some(status) = child.try_wait().context("the Go compiler can't be waited for")? {
            break status;
        }
        if started.elapsed() >= next_word {
            say(format_args!("  … still at it after {}", human(started.elapsed())));
            next_word += STILL_BUILDING;
        }
        thread::sleep(Duration::from_millis(50));
    };
    if status.success() {
        return Ok(());
    }
    let log = fs::read_to_string(&log_path).unwrap_or_default();
    bail!(
        "{failure}: go {} says {:?}; all of it is in {}",
        args.first().unwrap_or(&""),
        log.trim().lines().last().unwrap_or("nothing"),
        log_path.display()
    )
}
