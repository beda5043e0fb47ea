//! What the API server's audit log says of who did what.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// A request that the API server has answered.
#[derive(Clone, Debug)]
pub struct Request {
    /// `get`, `create`, `patch`, …
    pub verb: String,
    /// Who sent it.
    pub user: String,
    /// The resource, with its subresource: `pods`, `pods/eviction`, …
    pub resource: String,
    /// The object's namespace; empty for one without.
    pub namespace: String,
    /// The object's name, where the request had it.
    pub name: String,
    /// The HTTP status code of the answer.
    pub code: u64,
    /// The answer's reason, such as `AlreadyExists`, where it was a refusal.
    pub reason: String,
}

impl Request {
    fn read(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        if event["stage"] != "ResponseComplete" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let mut resource = text(&object["resource"]);
        if let Some(sub) = object["subresource"].as_str() {
            resource = format!("{resource}/{sub}");
        }
        Some(Self {
            verb: text(&event["verb"]),
            user: text(&event["user"]["username"]),
            resource,
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            reason: text(&event["responseStatus"]["reason"]),
        })
    }

    /// Whether it asks for a change.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }
}

/// A place in the log, to read on from.
#[derive(Clone, Debug)]
pub struct Mark {
    path: PathBuf,
    offset: u64,
}

impl Mark {
    /// The log's end as it is now.
    pub fn now(path: &Path) -> Result<Self> {
        let offset = path
            .metadata()
            .with_context(|| format!("{} can't be read", path.display()))?
            .len();
        Ok(Self {
            path: path.to_owned(),
            offset,
        })
    }

    /// The `interesting` requests since, of those whose line contains `needle`: the log is long.
    pub fn since(&self, needle: &str, interesting: impl Fn(&Request) -> bool) -> Result<Vec<Request>> {
        let mut file =
            File::open(&self.path).with_context(|| format!("{} can't be read", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut requests = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            if line.contains(needle) {
                requests.extend(Request::read(&line).filter(&interesting));
            }
        }
        Ok(requests)
    }
}
