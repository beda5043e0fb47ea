//! The programs that a lab runs, built from pinned Go modules.
//!
//! Each set has a `go.mod` and `go.sum` of its own under `components/` in this crate, because the
//! requirements of the sets clash. A program is built once for each pin: a stamp beside it names the pin, and
//! how long the build took is kept to tell the next person what to expect.

mod build;
mod kubernetes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::dirs;

pub use kubernetes::DEFAULT_VERSION as DEFAULT_KUBERNETES;

/// One program of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The package to build; `.` is the set's own `main.go`.
    package: &'static str,
    /// What a cold build took on two cores, for the first time on a machine.
    seconds: u64,
}

/// A set of programs that share a `go.mod`.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// None: written for the version at run time.
    pins: Option<Pins>,
    /// Flags of the linker besides `-s -w`: the version stamps.
    ldflags: String,
    tags: &'static str,
    programs: &'static [Program],
}

/// The committed files of a set.
#[derive(Debug, Clone, Copy)]
struct Pins {
    go_mod: &'static str,
    go_sum: &'static str,
    main_go: Option<&'static str>,
}

macro_rules! pins {
    ($set:literal) => {
        Some(Pins {
            go_mod: include_str!(concat!("../../components/", $set, "/go.mod")),
            go_sum: include_str!(concat!("../../components/", $set, "/go.sum")),
            main_go: None,
        })
    };
}
use pins;

const fn program(name: &'static str, package: &'static str, seconds: u64) -> Program {
    Program {
        name,
        package,
        seconds,
    }
}

fn set(name: &'static str, version: &str, pins: Option<Pins>, programs: &'static [Program]) -> Set {
    Set {
        name,
        version: version.to_owned(),
        pins,
        ldflags: String::new(),
        tags: "",
        programs,
    }
}

fn etcd() -> Set {
    const PROGRAMS: &[Program] = &[
        program("etcd", ".", 30),
        program("etcdctl", "go.etcd.io/etcd/etcdctl/v3", 10),
    ];
    let pins = pins!("etcd").map(|pins: Pins| Pins {
        main_go: Some(include_str!("../../components/etcd/main.go")),
        ..pins
    });
    set("etcd", "v3.6.16", pins, PROGRAMS)
}

fn coredns() -> Set {
    const PROGRAMS: &[Program] = &[program("coredns", "github.com/coredns/coredns", 95)];
    set("coredns", "v1.14.0", pins!("coredns"), PROGRAMS)
}

fn kwok() -> Set {
    const PROGRAMS: &[Program] = &[program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 85)];
    set("kwok", "v0.7.0", pins!("kwok"), PROGRAMS)
}

fn containerd() -> Set {
    const PROGRAMS: &[Program] = &[
        program(
            "containerd",
            "github.com/containerd/containerd/v2/cmd/containerd",
            60,
        ),
        program(
            "containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            5,
        ),
        program("ctr", "github.com/containerd/containerd/v2/cmd/ctr", 10),
    ];
    let ldflags = "-X github.com/containerd/containerd/v2/version.Version=v2.2.9".to_owned();
    // Both need C headers to build, and the lab uses neither file system.
    let tags = "no_btrfs,no_zfs";
    Set {
        ldflags,
        tags,
        ..set("containerd", "v2.2.9", pins!("containerd"), PROGRAMS)
    }
}

fn cni_plugins() -> Set {
    const PROGRAMS: &[Program] = &[
        program(
            "ptp",
            "github.com/containernetworking/plugins/plugins/main/ptp",
            5,
        ),
        program(
            "host-local",
            "github.com/containernetworking/plugins/plugins/ipam/host-local",
            2,
        ),
        program(
            "loopback",
            "github.com/containernetworking/plugins/plugins/main/loopback",
            2,
        ),
    ];
    set("cni-plugins", "v1.9.1", pins!("cni-plugins"), PROGRAMS)
}

/// Not for a lab: it renders the project's chart, in a test.
fn helm() -> Set {
    const PROGRAMS: &[Program] = &[program("helm", "helm.sh/helm/v3/cmd/helm", 90)];
    set("helm", "v3.22.0", pins!("helm"), PROGRAMS)
}

/// A dynamic provisioner of volumes that are directories of nodes.
fn local_path_provisioner() -> Set {
    const PROGRAMS: &[Program] = &[program(
        "local-path-provisioner",
        "github.com/rancher/local-path-provisioner",
        60,
    )];
    set(
        "local-path-provisioner",
        "v0.0.30",
        pins!("local-path-provisioner"),
        PROGRAMS,
    )
}

/// Not for a lab: it issues certificates, in a test.
fn cert_manager() -> Set {
    const PROGRAMS: &[Program] = &[program("cert-manager", ".", 105)];
    let pins = pins!("cert-manager").map(|pins: Pins| Pins {
        main_go: Some(include_str!("../../components/cert-manager/main.go")),
        ..pins
    });
    set("cert-manager", "v1.21.2", pins, PROGRAMS)
}

/// The built programs of one version of Kubernetes and what goes with it.
#[derive(Debug, Clone)]
pub struct Components {
    kubernetes: String,
    dir: PathBuf,
}

impl Components {
    /// The components for Kubernetes `version`, such as `1.36.3`; nothing is built yet.
    pub fn new(version: &str) -> Result<Self> {
        let version = kubernetes::check_version(version)?;
        Ok(Self {
            kubernetes: version,
            dir: dirs::lab_dir()?.join("components"),
        })
    }

    /// Builds, unless they are there already, what a lab needs; `real` adds what real nodes need.
    pub fn ensure(&self, real: bool) -> Result<()> {
        let mut wanted = vec![
            (kubernetes::set(&self.kubernetes), kubernetes::CONTROL_PLANE),
            (etcd(), &["etcd"][..]),
            (coredns(), &["coredns"]),
        ];
        if real {
            wanted.push((kubernetes::set(&self.kubernetes), kubernetes::NODE));
            wanted.push((containerd(), &["containerd", "containerd-shim-runc-v2", "ctr"]));
            wanted.push((cni_plugins(), &["ptp", "host-local", "loopback"]));
        } else {
            wanted.push((kwok(), &["kwok"]));
        }
        build::ensure(&self.dir, &wanted)
    }

    /// Builds, unless it is there already, one program of any set, such as `etcdctl` or `kube-proxy`, and
    /// returns its path.
    pub fn ensure_program(&self, program: &'static str) -> Result<PathBuf> {
        if let Some(set) = self
            .sets()
            .into_iter()
            .find(|set| set.programs.iter().any(|p| p.name == program))
        {
            build::ensure(&self.dir, &[(set, &[program][..])])?;
        }
        Ok(self.program(program))
    }

    /// The folder with the source of `module`, in the version that `program` was built from: a project's own manifests
    /// are there.
    pub fn module_dir(&self, program: &str, module: &str) -> Result<PathBuf> {
        let sets = self.sets();
        let set = sets
            .iter()
            .find(|set| set.programs.iter().any(|p| p.name == program))
            .with_context(|| format!("{program} is no program of the lab's"))?;
        build::module_dir(&self.dir, set, module)
    }

    /// The path of a program, built or not.
    pub fn program(&self, program: &str) -> PathBuf {
        self.sets()
            .iter()
            .find(|set| set.programs.iter().any(|p| p.name == program))
            .map_or_else(
                || PathBuf::from(program),
                |set| bin_dir(&self.dir, set).join(program),
            )
    }

    /// The folders with programs, for PATH and for the container runtime's list of CNI plugins.
    pub fn bin_dirs(&self) -> Vec<PathBuf> {
        self.sets().iter().map(|set| bin_dir(&self.dir, set)).collect()
    }

    /// The folder of the CNI plugins.
    pub(crate) fn cni_dir(&self) -> PathBuf {
        bin_dir(&self.dir, &cni_plugins())
    }

    /// The version of Kubernetes, without a leading `v`.
    pub fn kubernetes(&self) -> &str {
        &self.kubernetes
    }

    fn sets(&self) -> [Set; 9] {
        [
            kubernetes::set(&self.kubernetes),
            etcd(),
            coredns(),
            kwok(),
            containerd(),
            cni_plugins(),
            helm(),
            local_path_provisioner(),
            cert_manager(),
        ]
    }
}

/// Where the programs of `set` are, under the components' folder `dir`.
fn bin_dir(dir: &Path, set: &Set) -> PathBuf {
    dir.join(set.name).join(&set.version).join("bin")
}
