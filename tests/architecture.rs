//! What ARCHITECTURE.md says of the code, checked against the code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files that decide: they take the clock and the cluster's view as arguments.
const PURE: &[&str] = &[
    "identity",
    "place",
    "admission/checks.rs",
    "admission/choose.rs",
    "admission/decide.rs",
    "admission/patch.rs",
    "admission/refusal.rs",
    "admission/reservations.rs",
    "admission/workload.rs",
    "admission/workload",
    "cli/doctor/judge",
    "reconcile/plan",
    "storage",
    "tls/authority.rs",
    "tls/lifetime.rs",
    "tls/names.rs",
    "tls/rotation.rs",
];

/// What only a shell may name.
const IMPURE: &[&str] = &[
    "kube::Client",
    "Api<",
    "Api::",
    "tokio",
    "axum",
    "std::env",
    "std::fs",
    "Timestamp::now",
    "SystemTime::now",
    "Instant::now",
];

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    entries
        .flat_map(|entry| sources(&entry.unwrap().path()))
        .collect()
}

#[test]
fn decisions_name_no_client_no_runtime_and_no_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for file in PURE.iter().flat_map(|path| sources(&root.join(path))) {
        let is_test = file.to_string_lossy().contains("test") || file.ends_with("fixtures.rs");
        if is_test {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (number, line) in code.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let found = IMPURE.iter().find(|word| code.contains(**word));
            assert!(found.is_none(), "{}:{}: {line}", file.display(), number + 1);
        }
        checked += 1;
    }
    assert!(
        checked > 20,
        "only {checked} files were found: the list of pure ones is out of date"
    );
}

#[test]
fn architecture_and_readme_name_only_what_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let modules = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut count = 0;
    for module in modules.filter(|module| !module.starts_with("xtask")) {
        let (file, folder) = (
            root.join(format!("src/{module}.rs")),
            root.join(format!("src/{module}")),
        );
        assert!(file.is_file() || folder.is_dir(), "there is no module {module}");
        count += 1;
    }
    assert!(count > 7, "the code map was not found");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    for link in readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
    {
        assert!(
            root.join(link).exists(),
            "README.md links to {link}, which does not exist"
        );
    }
}
