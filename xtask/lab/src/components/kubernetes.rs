//! Kubernetes itself. The pinned version has its `go.mod` in this crate; for another one it is written from
//! the published module's own, which lists the staging modules of that version.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Pins, Program, Set, pins, program};

/// The version that the project tests against.
pub const DEFAULT_VERSION: &str = "1.36.3";

/// What every lab runs.
pub(super) const CONTROL_PLANE: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
];
/// What a lab with real nodes runs besides.
pub(super) const NODE: &[&str] = &["kubelet", "kube-proxy"];

const PROGRAMS: &[Program] = &[
    program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 200),
    program(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        60,
    ),
    program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 10),
    program("kubectl", "k8s.io/kubernetes/cmd/kubectl", 20),
    program("kubelet", "k8s.io/kubernetes/cmd/kubelet", 30),
    program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy", 10),
];

/// Reads `1.36.3` or `v1.36.3`.
pub(super) fn check_version(version: &str) -> Result<String> {
    let plain = version.trim_start_matches('v');
    let parts: Vec<Option<u32>> = plain.split('.').map(|part| part.parse().ok()).collect();
    if let [Some(1), Some(minor), Some(_)] = parts[..]
        && minor >= 33
    {
        return Ok(plain.to_owned());
    }
    bail!(
        "{version:?} is no version of Kubernetes that the lab can run: give one like {DEFAULT_VERSION}, 1.33.0 or later"
    )
}

/// The set for `version`, which [`check_version`] has read.
pub(super) fn set(version: &str) -> Set {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let base = "k8s.io/component-base/version";
    let ldflags = format!(
        "-X {base}.gitVersion=v{version} -X {base}.gitMajor=1 -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion=v{version}"
    );
    let pins = if version == DEFAULT_VERSION {
        pins!("kubernetes")
    } else {
        None
    };
    Set {
        ldflags,
        ..super::set("kubernetes", version, pins, PROGRAMS)
    }
}

/// Writes `go.mod` and `go.sum` for `version` into `source`.
pub(super) fn write_pins(go: &Path, source: &Path, version: &str) -> Result<()> {
    let output = Command::new(go)
        .args([
            "mod",
            "download",
            "-json",
            &format!("k8s.io/kubernetes@v{version}"),
        ])
        .env("GOWORK", "off")
        .current_dir(source)
        .output()
        .context("go could not be started")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let published = answer["GoMod"].as_str().with_context(|| {
        format!(
            "Kubernetes {version} could not be had from the Go module proxy ({}): give --kubernetes a version that it serves, such as {DEFAULT_VERSION}",
            answer["Error"].as_str().unwrap_or("it gave no reason")
        )
    })?;
    let published = fs::read_to_string(published).with_context(|| format!("{published} can't be read"))?;
    fs::write(source.join("go.mod"), go_mod(version, &published))
        .with_context(|| format!("{} can't be written", source.join("go.mod").display()))?;
    super::build::run_go(
        go,
        source,
        &["mod", "tidy"],
        "the modules of Kubernetes could not be resolved",
    )
}

/// The `go.mod` of a module whose tools are the programs of Kubernetes `version`; `published` is the
/// `go.mod` of `k8s.io/kubernetes` itself, which replaces its staging modules by folders of its own tree.
/// Outside of that tree they are modules with the version 0.MINOR.PATCH.
fn go_mod(version: &str, published: &str) -> String {
    let staging_version = version.replacen("1.", "v0.", 1);
    let go = published
        .lines()
        .find(|line| line.starts_with("go "))
        .unwrap_or("go 1.25.0");
    let mut text = format!(
        "module flock.dev/lab/kubernetes\n\n{go}\n\nrequire k8s.io/kubernetes v{version}\n\nreplace (\n"
    );
    for module in published.lines().filter_map(staging_module) {
        let _ = writeln!(text, "\t{module} => {module} {staging_version}");
    }
    text.push_str(")\n\ntool (\n");
    for program in PROGRAMS {
        let _ = writeln!(text, "\t{}", program.package);
    }
    text.push_str(")\n");
    text
}

/// The module of a line like `k8s.io/api => ./staging/src/k8s.io/api`.
fn staging_module(line: &str) -> Option<&str> {
    let (module, target) = line.trim().trim_start_matches("replace ").split_once(" => ")?;
    target.starts_with("./staging/").then_some(module.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_modules_become_modules_of_the_same_release() {
        let published = "module k8s.io/kubernetes\n\ngo 1.25.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\
            \texample.com/x => example.com/y v1.0.0\n)\n\nreplace k8s.io/kubelet => ./staging/src/k8s.io/kubelet\n";
        let text = go_mod("1.35.4", published);
        assert!(text.contains("\tk8s.io/api => k8s.io/api v0.35.4\n"), "{text}");
        assert!(
            text.contains("\tk8s.io/kubelet => k8s.io/kubelet v0.35.4\n"),
            "{text}"
        );
        assert!(
            text.contains("require k8s.io/kubernetes v1.35.4\n") && text.contains("\ngo 1.25.0\n"),
            "{text}"
        );
        assert!(!text.contains("example.com"), "{text}");
        assert!(
            text.contains("\tk8s.io/kubernetes/cmd/kube-apiserver\n"),
            "{text}"
        );
    }

    #[test]
    fn a_version_that_is_none_is_refused() {
        for version in ["latest", "1.36", "2.0.0", "1.32.9", "1.36.3-rc.1", ""] {
            assert!(check_version(version).is_err(), "{version}");
        }
        assert_eq!(check_version("v1.37.2").unwrap(), "1.37.2");
    }

    #[test]
    fn the_committed_pins_are_those_of_the_default_version() {
        let pins = set(DEFAULT_VERSION).pins.unwrap();
        assert!(
            pins.go_mod
                .contains(&format!("k8s.io/kubernetes v{DEFAULT_VERSION}"))
        );
    }
}
