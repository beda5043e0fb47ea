//! The images that pods of a lab with real nodes can use without a registry.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Image;
use crate::components::Components;
use crate::host;

/// The image that holds a pod's namespaces. It has the usual name, so that manifests can use it as well.
pub const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10";
/// A shell and the usual small programs.
pub const BUSYBOX_IMAGE: &str = "lab.flock.dev/busybox:1";
/// etcd and etcdctl, and a shell to start them from.
pub const ETCD_IMAGE: &str = "lab.flock.dev/etcd:3.6";

/// Waits, reaps, and ends when it is asked to, as the usual pause program does.
const PAUSE: &str = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done";

/// A file system with busybox and what programs expect of a system.
fn base(name: &str) -> Result<Image> {
    host::install_missing(host::IMAGE_TOOLS)?;
    let busybox = host::find_program("busybox").context("busybox is missing: install busybox-static")?;
    let mut image = Image::new(name);
    for dir in ["bin", "etc", "usr", "usr/bin", "var", "proc", "sys", "dev"] {
        image = image.dir(dir, 0o755);
    }
    image = image
        .dir("tmp", 0o1777)
        .dir("root", 0o700)
        .text(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
        )
        .text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
        .program("bin/busybox", &busybox);
    for applet in applets(&busybox)? {
        image = image.symlink(&format!("bin/{applet}"), "busybox");
    }
    Ok(image)
}

/// The programs that busybox can be.
fn applets(busybox: &PathBuf) -> Result<Vec<String>> {
    let output = Command::new(busybox)
        .arg("--list")
        .output()
        .context("busybox could not be started")?;
    let list = String::from_utf8_lossy(&output.stdout);
    let applets: Vec<String> = list
        .lines()
        .filter(|name| *name != "busybox")
        .map(str::to_owned)
        .collect();
    if applets.is_empty() {
        bail!("{} lists no programs: install busybox-static", busybox.display());
    }
    Ok(applets)
}

/// The image [`PAUSE_IMAGE`].
pub fn pause() -> Result<Image> {
    Ok(base(PAUSE_IMAGE)?.entrypoint(["/bin/sh", "-c", PAUSE]))
}

/// The image [`BUSYBOX_IMAGE`]; it waits when the pod names no command.
pub fn busybox() -> Result<Image> {
    Ok(base(BUSYBOX_IMAGE)?.entrypoint(["/bin/sh", "-c", PAUSE]))
}

/// The image [`ETCD_IMAGE`], with the etcd that the lab itself runs on.
pub fn etcd(components: &Components) -> Result<Image> {
    let (etcd, etcdctl) = (
        components.ensure_program("etcd")?,
        components.ensure_program("etcdctl")?,
    );
    Ok(base(ETCD_IMAGE)?
        .program("bin/etcd", etcd)
        .program("bin/etcdctl", etcdctl)
        .entrypoint(["/bin/etcd"]))
}
