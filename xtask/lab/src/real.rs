//! Real nodes: a kubelet and a container runtime for each, with mounts of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::image::{self, Image};
use crate::lab::{Cluster, Lab};
use crate::pki::{Host, write_private};
use crate::process::Process;
use crate::service::{Service, log_path};
use crate::{cgroup, digest, dirs, host, net};

/// How long a container runtime may take to start, and an image to be imported.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(60);
/// The kernel's log, which every kubelet reads to learn of memory shortages.
const KERNEL_LOG: &str = "/dev/kmsg";
/// What a lab with real nodes does to the kernel, in namespaces that end with the command.
const KERNEL_PROBE: &str = "ip link add lab-a type veth peer name lab-b && mount -t tmpfs tmpfs /run && \
     iptables -t nat -N LAB && iptables -t nat -A LAB -m comment --comment lab -m statistic --mode random \
     --probability 0.5 -j MARK --set-xmark 1";

/// The services of the node `node`.
fn mounts_name(node: &str) -> String {
    format!("mounts-{node}")
}
fn runtime_name(node: &str) -> String {
    format!("containerd-{node}")
}
fn kubelet_name(node: &str) -> String {
    format!("kubelet-{node}")
}
/// The container runtime's socket; `/run` is the lab's own, and its path is short enough for a socket.
fn socket(node: &str) -> String {
    format!("/run/{node}/containerd.sock")
}

/// Whether this machine can run real nodes; the error says why it can't.
pub fn real_nodes_possible() -> Result<()> {
    host::require_root()?;
    host::install_missing(host::NODE_TOOLS)?;
    fs::File::open(KERNEL_LOG)
        .with_context(|| format!("{KERNEL_LOG} can't be read, and a kubelet does not start without"))?;
    let group = format!("probe-{}", std::process::id());
    let made = cgroup::make_node(&group, "node");
    cgroup::remove_lab(&group);
    made.context("this machine lets nobody make control groups")?;
    let unshare = host::find_program("unshare").context("unshare is missing: install util-linux")?;
    let output = Command::new(unshare)
        .args(["--net", "--mount", "--", "sh", "-c", KERNEL_PROBE])
        .stdin(Stdio::null())
        .output()
        .context("unshare could not be started")?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    bail!(
        "this kernel lacks what pod networks need: {}",
        stderr.trim().lines().last().unwrap_or("no reason given")
    )
}

impl Lab {
    /// Makes node `index` and starts its programs; it registers itself.
    pub(crate) fn add_real_node(&self, index: usize) -> Result<()> {
        let cluster = self.cluster()?;
        let node = format!("node-{index}");
        let dir = node_dir(&cluster.run, &node);
        for folder in [
            "disk",
            "kubelet",
            "pods",
            "containerd",
            "cni",
            "manifests",
            "volume-plugins",
        ] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("{} could not be made", folder.display()))?;
        }
        // The same name in another lab is another machine.
        let machine_id = digest::hex(format!("{}/{node}", self.name).as_bytes())[..32].to_owned();
        let mut script = ["--mount", "--", "bash", "-c", include_str!("node.sh"), &node]
            .map(str::to_owned)
            .to_vec();
        script.extend([dir.display().to_string(), machine_id]);
        let unshare = host::find_program("unshare").context("unshare is missing: install util-linux")?;
        cluster
            .services
            .add(Service::new(mounts_name(&node), unshare, script))?;
        let log = log_path(&cluster.run, &mounts_name(&node));
        self.wait_for(&format!("the mounts of {node}"), || {
            fs::read_to_string(&log).is_ok_and(|text| text.lines().any(|line| line == "ready"))
        })?;

        write_runtime_config(cluster, &node, &dir, index)?;
        let args = vec![format!("--config={}", dir.join("containerd.toml").display())];
        self.add_in_node(
            &node,
            Service::new(
                runtime_name(&node),
                cluster.components.program("containerd"),
                args,
            ),
        )?;
        self.wait_runtime(&node)?;
        cluster
            .services
            .update_state(|state| state.nodes.push(node.clone()))?;
        for image in stock_images()? {
            self.import_on(&node, &image)?;
        }
        self.add_in_node(&node, kubelet(self, cluster, &node, &dir, index)?)
    }

    fn add_in_node(&self, node: &str, service: Service) -> Result<()> {
        self.cluster()?.services.add(Service {
            mounts_of: Some(mounts_name(node)),
            ..service
        })
    }

    /// Waits for something that is looked up on disk, not asked from the API server.
    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) -> Result<()> {
        let services = &self.cluster()?.services;
        let deadline = Instant::now() + RUNTIME_TIMEOUT;
        while !condition() {
            services.check()?;
            if Instant::now() >= deadline {
                bail!("{what} did not come up within {RUNTIME_TIMEOUT:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until the container runtime of `node` answers.
    pub(crate) fn wait_runtime(&self, node: &str) -> Result<()> {
        self.wait_for(&format!("the container runtime of {node}"), || {
            self.ctr(node, &["version"]).is_ok()
        })
    }

    /// Runs the container runtime's own client on a node.
    fn ctr(&self, node: &str, args: &[&str]) -> Result<()> {
        let cluster = self.cluster()?;
        let holder = cluster.services.process_id(&mounts_name(node))?;
        let log = log_path(&cluster.run, &format!("ctr-{node}"));
        let output = fs::File::create(&log).with_context(|| format!("{} can't be written", log.display()))?;
        let mut command = Command::new(cluster.components.program("ctr"));
        command
            .args(["--address", &socket(node), "--namespace", "k8s.io"])
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("a log file can't be shared")?)
            .stderr(output);
        let process = Process::started("ctr", cluster.sandbox.spawn(command, Some(holder))?, log)?;
        if process
            .wait(RUNTIME_TIMEOUT)?
            .is_some_and(|status| status.success())
        {
            return Ok(());
        }
        bail!(process.post_mortem())
    }

    fn import_on(&self, node: &str, archive: &Path) -> Result<()> {
        self.ctr(
            node,
            &["images", "import", "--local", &archive.display().to_string()],
        )
        .with_context(|| {
            format!(
                "image archive {} could not be imported on {node}",
                archive.display()
            )
        })
    }

    /// Imports an image archive on every real node; on fake ones every image is there already.
    pub fn import_image(&self, archive: &Path) -> Result<()> {
        if !self.has_real_nodes() {
            return Ok(());
        }
        let archive = archive
            .canonicalize()
            .with_context(|| format!("image archive {} can't be read", archive.display()))?;
        self.node_names()?
            .iter()
            .try_for_each(|node| self.import_on(node, &archive))
    }

    /// Stops the kubelet of a real node; its containers go on.
    pub fn stop_kubelet(&self, node: &str) -> Result<()> {
        self.stop(&kubelet_name(node))
    }

    /// Starts the kubelet of a real node again.
    pub fn start_kubelet(&self, node: &str) -> Result<()> {
        self.start_component(&kubelet_name(node))
    }

    /// The folder, on this machine, that a real node's pods see as `/var/lib/flock`.
    pub fn node_disk(&self, node: &str) -> Result<PathBuf> {
        let disk = node_dir(&self.cluster()?.run, node).join("disk");
        if !disk.is_dir() {
            bail!(
                "lab {} has no real node {node}, so there is no disk of it",
                self.name
            );
        }
        Ok(disk)
    }
}

fn node_dir(run: &Path, node: &str) -> PathBuf {
    run.join("nodes").join(node)
}

/// The archives that every node gets. They are made anew for each lab's start only when they are missing.
fn stock_images() -> Result<Vec<PathBuf>> {
    let dir = dirs::lab_dir()?.join("images");
    let stock: [(&str, fn() -> Result<Image>); 2] = [("pause", image::pause), ("busybox", image::busybox)];
    stock
        .into_iter()
        .map(|(name, make)| {
            let path = dir.join(format!("{name}.tar"));
            if !path.is_file() {
                make()?.write(&path)?;
            }
            Ok(path)
        })
        .collect()
}

/// The settings of containerd and of its network plugins.
fn write_runtime_config(cluster: &Cluster, node: &str, dir: &Path, index: usize) -> Result<()> {
    let network = json!({
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {
                // Not a bridge: every packet passes the lab's routing, so that a Service's address also leads
                // to a pod on the caller's own node, without a kernel module for bridges.
                "type": "ptp",
                "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": net::real_pod_cidr(index)}]],
                    "dataDir": dir.join("ipam"),
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "loopback"},
        ],
    });
    write_private(&dir.join("cni/10-lab.conflist"), &network.to_string())?;
    let root = dir.join("containerd");
    let snapshotter = if overlay_works(dir) { "overlayfs" } else { "native" };
    let config = format!(
        r#"version = 3
root = "{root}"
state = "/run/{node}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "{socket}"
[ttrpc]
address = "{socket}.ttrpc"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "{snapshotter}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
# A container in a confined machine may not lower its score.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{cni}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        root = root.display(),
        socket = socket(node),
        pause = image::PAUSE_IMAGE,
        plugins = cluster.components.cni_dir().display(),
        cni = dir.join("cni").display(),
    );
    write_private(&dir.join("containerd.toml"), &config)
}

/// Whether the file system that the lab is on can be part of an overlay; one that is itself an overlay can't.
fn overlay_works(dir: &Path) -> bool {
    let script = "cd \"$1\" && mkdir -p lower upper work merged && \
                  mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged";
    let probe = dir.join("overlay");
    let works = fs::create_dir_all(&probe).is_ok()
        && Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", script, "sh"])
            .arg(&probe)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    // A leftover costs nothing, and goes with the lab's folder.
    let _ = fs::remove_dir_all(&probe);
    works
}

/// The kubelet of a node.
fn kubelet(lab: &Lab, cluster: &Cluster, node: &str, dir: &Path, index: usize) -> Result<Service> {
    let user = format!("system:node:{node}");
    let ip = net::real_node_ip(index);
    let certificate = format!("kubelet-{node}");
    let hosts = [Host::Ip(ip), Host::Name(node.to_owned())];
    cluster
        .pki
        .issue(&certificate, &user, &["system:nodes"], &hosts)?;
    let resolver = dir.join("resolv.conf");
    write_private(&resolver, &format!("nameserver {}\n", net::DNS))?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ip,
        "port": 10250,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": cluster.pki.path("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": cluster.pki.path(&format!("{certificate}.crt")),
        "tlsPrivateKeyFile": cluster.pki.path(&format!("{certificate}.key")),
        "containerRuntimeEndpoint": format!("unix://{}", socket(node)),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::make_node(&lab.name, node)?,
        "cgroupsPerQOS": true,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [net::DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": resolver,
        "podLogsDir": dir.join("pods"),
        "volumePluginDir": dir.join("volume-plugins"),
        "staticPodPath": dir.join("manifests"),
        // Rules that all kubelets of the lab would share.
        "makeIPTablesUtilChains": false,
        // All nodes are on one disk: its filling up is not theirs to heal.
        "localStorageCapacityIsolation": false,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.inodesFree": "0%",
        },
        "nodeStatusUpdateFrequency": "5s",
    });
    let path = dir.join("kubelet.json");
    write_private(&path, &config.to_string())?;
    let mut args = vec![
        format!("--config={}", path.display()),
        format!(
            "--kubeconfig={}",
            cluster.pki.kubeconfig(&user, &["system:nodes"])?.display()
        ),
        format!("--hostname-override={node}"),
        format!("--node-ip={ip}"),
        format!("--root-dir={}", dir.join("kubelet").display()),
        format!(
            "--node-labels=topology.kubernetes.io/zone=zone-{},lab.flock.dev/node=real",
            index % 3
        ),
    ];
    args.extend(cluster.kubelet_args.iter().cloned());
    Ok(Service::new(
        kubelet_name(node),
        cluster.components.program("kubelet"),
        args,
    ))
}
