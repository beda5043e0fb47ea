//! A lab with real nodes: containers that run, on disks that differ.

mod common;

use std::fs;

use flock_lab::{Lab, Options, image};
use serde_json::json;

use common::{eventually, ready_pods, replica_set};

#[test]
fn real_nodes_run_containers_with_disks_of_their_own_and_leave_nothing() {
    if let Err(reason) = flock_lab::real_nodes_possible() {
        println!("skipped, because {reason:#}");
        return;
    }
    let lab = Lab::start(Options::real(2)).unwrap();
    let command = "hostname > /data/$(hostname); exec httpd -f -p 8080 -h /data";
    let spec = json!({
        "terminationGracePeriodSeconds": 1,
        "subdomain": "web",
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }],
        "containers": [{
            "name": "web", "image": image::BUSYBOX_IMAGE, "imagePullPolicy": "Never",
            "command": ["sh", "-c", command],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
        "volumes": [{"name": "data", "hostPath": {"path": "/var/lib/flock"}}],
    });
    lab.apply(&replica_set("web", 2, &json!({}), &spec)).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "balanced"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    lab.apply(&service.to_string()).unwrap();
    let ready = eventually("two ready pods", || {
        Some(ready_pods(&lab, "web")).filter(|pods| pods.len() == 2)
    });

    for pod in &ready {
        let disk = lab.node_disk(&pod.node).unwrap();
        let names: Vec<_> = fs::read_dir(&disk)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [pod.name.as_str()], "each node has a disk of its own");
        // CoreDNS hears of the endpoint by a watch.
        eventually("a name for the pod's address", || {
            lab.dns_lookup_ptr(pod.ip).ok().filter(|names| !names.is_empty())
        });
    }
    // Both pods answer under the Service's address, also the one that asks.
    for pod in &ready {
        let url = format!("http://balanced/{}", pod.name);
        eventually("an answer through the Service", || {
            lab.kubectl(&["exec", &ready[0].name, "--", "wget", "-qO-", &url])
                .ok()
                .filter(|text| text.trim() == pod.name)
        });
    }

    let crashed = &ready[1];
    lab.crash_node(&crashed.node).unwrap();
    lab.boot_node(&crashed.node).unwrap();
    eventually("the crashed pod to run again", || {
        let status = common::pods(&lab, "web")
            .into_iter()
            .find(|pod| pod.metadata.name.as_ref() == Some(&crashed.name))?
            .status?;
        let container = status.container_statuses?.pop()?;
        (container.ready && container.restart_count > 0).then_some(())
    });

    let processes: Vec<_> = lab
        .component_names()
        .unwrap()
        .iter()
        .map(|(name, _)| lab.component_process(name).unwrap())
        .collect();
    let (name, dir) = (lab.name().to_owned(), lab.dir().unwrap().to_owned());
    lab.down().unwrap();
    assert!(
        processes.iter().all(|process| !process.is_alive()),
        "a process is left"
    );
    assert!(!dir.exists(), "state is left in {}", dir.display());
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&name), "a mount is left");
}
