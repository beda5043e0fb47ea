//! Reading manifests.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One document of a manifest.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) file: PathBuf,
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    pub(crate) fn api_version(&self) -> &str {
        self.value["apiVersion"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn typed<T: DeserializeOwned>(&self) -> T {
        serde_json::from_value(self.value.clone()).unwrap_or_else(|error| {
            panic!(
                "{}: {} {}: {error}",
                self.file.display(),
                self.kind(),
                self.name()
            )
        })
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of one file.
pub(crate) fn documents(path: impl AsRef<Path>) -> Vec<Document> {
    let file = path.as_ref().to_path_buf();
    let values: Vec<Value> = serde_saphyr::from_multiple(&text(&file))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    values
        .into_iter()
        .map(|value| Document {
            file: file.clone(),
            value,
        })
        .collect()
}

/// The YAML files right in a directory, by path.
pub(crate) fn yaml_files(directory: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(root().join(directory))
        .unwrap_or_else(|error| panic!("{directory}: {error}"))
        .map(|entry| Path::new(directory).join(entry.unwrap().file_name()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

/// Everything that a kustomization of this directory lists as `key`.
pub(crate) fn listed(directory: &str, key: &str) -> Vec<String> {
    let kustomization = documents(format!("{directory}/kustomization.yaml"))
        .remove(0)
        .value;
    kustomization[key]
        .as_array()
        .map(|list| {
            // Some patches stand in the kustomization itself.
            let files = list.iter().filter(|item| item["patch"].is_null());
            files
                .map(|item| item.as_str().or(item["path"].as_str()).unwrap().to_owned())
                .collect()
        })
        .unwrap_or_default()
}

/// The documents of every resource of a kustomization's own directory.
pub(crate) fn resources(directory: &str) -> Vec<Document> {
    listed(directory, "resources")
        .into_iter()
        .filter(|name| !name.starts_with(".."))
        .flat_map(|name| documents(format!("{directory}/{name}")))
        .collect()
}

/// The one object of a kind and name in `deploy` or `webhook-config`.
pub(crate) fn object<T: DeserializeOwned>(kind: &str, name: &str) -> T {
    let all = resources("deploy").into_iter().chain(resources("webhook-config"));
    let mut found: Vec<_> = all
        .filter(|document| document.kind() == kind && document.name() == name)
        .collect();
    assert_eq!(found.len(), 1, "{kind} {name} must stand in exactly one place");
    found.remove(0).typed()
}
