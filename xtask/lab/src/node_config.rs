//! The settings of a real node's programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::json;

use crate::lab::{Cluster, Lab};
use crate::pki::{Host, write_private};
use crate::real::{kubelet_name, socket};
use crate::service::Service;
use crate::{cgroup, image, net};

/// The settings of containerd and of its network plugins.
pub(crate) fn write_runtime_config(cluster: &Cluster, node: &str, dir: &Path, index: usize) -> Result<()> {
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
pub(crate) fn kubelet(lab: &Lab, cluster: &Cluster, node: &str, dir: &Path, index: usize) -> Result<Service> {
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
