//! What the machine must have: root, a Linux kernel with namespaces, Go, and a few of the distribution's
//! programs. Whatever is missing ends in one sentence that says what to do.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::progress::say;

/// A program that comes from the distribution, and the Debian package that brings it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// Every lab needs these.
pub(crate) const BASE_TOOLS: &[Tool] = &[
    tool("bash", "bash"),
    tool("ip", "iproute2"),
    tool("mount", "mount"),
    tool("nsenter", "util-linux"),
];

/// kube-proxy needs these as well.
pub(crate) const PROXY_TOOLS: &[Tool] = &[tool("iptables", "iptables"), tool("conntrack", "conntrack")];

/// Real nodes need this as well.
pub(crate) const NODE_TOOLS: &[Tool] = &[tool("runc", "runc")];

/// An image with a shell in it needs this.
pub(crate) const IMAGE_TOOLS: &[Tool] = &[tool("busybox", "busybox-static")];

/// Finds `program` on PATH or in the folders for an administrator's programs, which PATH may lack.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Fails with a sentence unless this process is root, which namespaces and mounts take.
pub(crate) fn require_root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    bail!(
        "the lab makes network and mount namespaces, which takes root, and this process is not root: \
         run it as root, or use a cluster that exists with --kubeconfig FILE"
    )
}

/// Installs the packages of the `tools` that are missing, and says so.
pub(crate) fn install_missing(tools: &[Tool]) -> Result<()> {
    let missing: Vec<Tool> = tools
        .iter()
        .copied()
        .filter(|t| find_program(t.program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    let packages = packages.join(" ");
    let Some(apt) = find_program("apt-get") else {
        bail!(
            "{} is missing and this machine has no apt-get to install it with: \
             install {packages} (the names of Debian's packages) and try again",
            missing
                .iter()
                .map(|tool| tool.program)
                .collect::<Vec<_>>()
                .join(", ")
        )
    };
    require_root()?;
    say(format_args!("Installing {packages} from the distribution"));
    // The lists of a fresh machine or container are empty, and then an install fails with "unable to locate".
    apt_get(&apt, &["update"], &packages)?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(packages.split(' '));
    apt_get(&apt, &install, &packages)
}

fn apt_get(apt: &Path, args: &[&str], packages: &str) -> Result<()> {
    let output = Command::new(apt)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} could not be started", apt.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    bail!(
        "apt-get {} ended with {}: {}. Install {packages} by hand and try again",
        args.join(" "),
        output.status,
        stderr.trim().lines().last().unwrap_or("it said nothing")
    )
}

/// The Go compiler that the components are built with.
pub(crate) fn go() -> Result<PathBuf> {
    find_program("go").or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|go| go.is_file())).context(
        "the lab's components are built from Go modules and there is no go on PATH: install Go 1.26 or later, \
         or set FLOCK_LAB_DIR to a folder where they are built already",
    )
}
