//! Real nodes: a kubelet and a container runtime for each, with mounts of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::node_config::{kubelet, write_runtime_config};
use crate::process::{Process, Signal};
use crate::service::{Service, log_path};
use crate::{ProcessId, cgroup, digest, host, image};

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
pub(crate) fn kubelet_name(node: &str) -> String {
    format!("kubelet-{node}")
}
/// The container runtime's socket; `/run` is the lab's own, and its path is short enough for a socket.
pub(crate) fn socket(node: &str) -> String {
    format!("/run/{node}/containerd.sock")
}

/// Whether this machine can run real nodes; the error says why it can't.
pub fn real_nodes_possible() -> Result<()> {
    host::require_root()?;
    host::install_missing(host::NODE_TOOLS)?;
    host::install_missing(host::PROXY_TOOLS)?;
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
    /// Makes real nodes and starts their programs.
    pub(crate) fn add_real_nodes(&self, count: usize) -> Result<()> {
        let images = stock_images(&self.cluster()?.run)?;
        (0..count).try_for_each(|index| self.add_real_node(index, &images))
    }

    /// Makes node `index` and starts its programs; it registers itself.
    fn add_real_node(&self, index: usize, images: &[PathBuf]) -> Result<()> {
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
        for image in images {
            self.import_on(&node, image)?;
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
            services.check(|_| true)?;
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

    /// Ends every process of a real node at once, containers included, as a power cut does. What its pods have
    /// written is still there at [`Lab::boot_node`].
    pub fn crash_node(&self, node: &str) -> Result<()> {
        let cluster = self.cluster()?;
        let holder = cluster.services.process_id(&mounts_name(node))?;
        // The kubelet first, which would start again what ends.
        for name in [kubelet_name(node), runtime_name(node)] {
            self.kill(&name)?;
        }
        let mounts =
            fs::read_link(format!("/proc/{}/ns/mnt", holder.pid)).context("the node's mounts are gone")?;
        // What the runtime started shares its mounts, or is in the kubelet's control group.
        let shares_mounts = |pid: &i32| {
            *pid != holder.pid
                && fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|link| link == mounts)
        };
        let mut processes = all_processes()?;
        processes.retain(shares_mounts);
        processes.extend(cgroup::processes_of_node(&self.name, node));
        let processes: Vec<_> = processes
            .into_iter()
            .filter_map(|pid| ProcessId::of(pid).ok())
            .collect();
        for process in &processes {
            process.signal(Signal::SIGKILL)?;
        }
        if processes.iter().all(|process| process.wait_end(RUNTIME_TIMEOUT)) {
            return Ok(());
        }
        bail!("a process of {node} did not end within {RUNTIME_TIMEOUT:?}")
    }

    /// Starts a crashed node's programs again.
    pub fn boot_node(&self, node: &str) -> Result<()> {
        self.start_component(&runtime_name(node))?;
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

/// The numbers of all processes of this machine.
fn all_processes() -> Result<Vec<i32>> {
    let entries = fs::read_dir("/proc").context("/proc can't be read")?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

fn node_dir(run: &Path, node: &str) -> PathBuf {
    run.join("nodes").join(node)
}

/// The archives that every node gets, made anew for each lab: it takes less time than to find out whether an
/// old one is still right.
fn stock_images(run: &Path) -> Result<Vec<PathBuf>> {
    [("pause", image::pause()?), ("busybox", image::busybox()?)]
        .into_iter()
        .map(|(name, image)| {
            let path = run.join("images").join(format!("{name}.tar"));
            image.write(&path)?;
            Ok(path)
        })
        .collect()
}
