//! A lab with fake nodes, from its start to its end.

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use flock_lab::{FakeNode, Lab, Options, Signal};
use serde_json::json;

use common::{eventually, pods, ready_pods, replica_set, start};

const PAUSE: &str = "registry.k8s.io/pause:3.10";

fn member(image: &str) -> serde_json::Value {
    json!({"hostname": "first", "subdomain": "member", "containers": [{"name": "main", "image": image}]})
}

#[test]
fn a_lab_runs_pods_names_them_in_dns_and_leaves_nothing() {
    let lab = start();
    lab.apply(&replica_set("member", 3, &json!({}), &member(PAUSE)))
        .unwrap();
    let ready = eventually("three ready pods", || {
        Some(ready_pods(&lab, "member")).filter(|pods| pods.len() == 3)
    });

    let mut addresses: Vec<IpAddr> = ready.iter().map(|pod| pod.ip).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(
        addresses.len(),
        3,
        "every pod has an address of its own: {ready:?}"
    );
    eventually("the names in DNS", || {
        let found = lab.dns_lookup_a("member.default.svc.cluster.local").ok()?;
        (found == addresses).then_some(())
    });
    let names = lab.dns_lookup_ptr(addresses[0]).unwrap();
    assert_eq!(names, ["first.member.default.svc.cluster.local"]);
    assert!(
        lab.dns_lookup_a("nobody.default.svc.cluster.local")
            .unwrap()
            .is_empty()
    );

    lab.restart("kube-apiserver").unwrap();
    assert!(lab.kubectl(&["get", "nodes"]).unwrap().contains("node-2"));

    let scheduler = lab.component_process("kube-scheduler").unwrap();
    lab.stop("kwok").unwrap();
    scheduler.signal(Signal::SIGKILL).unwrap();
    assert!(scheduler.wait_end(Duration::from_secs(10)));
    lab.revive().unwrap();
    assert!(lab.component_process("kube-scheduler").unwrap().is_alive());
    assert!(
        lab.component_names().unwrap().contains(&("kwok".into(), false)),
        "what was stopped stays so"
    );
    lab.start_component("kwok").unwrap();

    let sleeper = lab
        .spawn("sleeper", "/bin/sleep".as_ref(), &["1000"], &BTreeMap::new())
        .unwrap();
    let mut processes = vec![sleeper.id()];
    processes.extend(
        lab.component_names()
            .unwrap()
            .iter()
            .map(|(name, _)| lab.component_process(name).unwrap()),
    );
    assert!(processes.len() >= 7 && processes.iter().all(|process| process.is_alive()));
    let dir = lab.dir().unwrap().to_owned();
    lab.down().unwrap();
    assert!(
        processes.iter().all(|process| !process.is_alive()),
        "a process is left"
    );
    assert!(!dir.exists(), "state is left in {}", dir.display());
}

#[test]
fn annotations_steer_pods_and_nodes_fail_and_come_back() {
    let lab = start();
    let annotations = json!({"lab.flock.dev/ready-after": "1500ms", "lab.flock.dev/stop-after": "3s"});
    let applied = Instant::now();
    lab.apply(&replica_set("slow", 1, &annotations, &member(PAUSE)))
        .unwrap();
    eventually("the slow pod", || ready_pods(&lab, "slow").pop());
    assert!(applied.elapsed() >= Duration::from_millis(1500));
    let deleted = Instant::now();
    lab.kubectl(&["delete", "replicaset", "slow", "--wait=false"])
        .unwrap();
    eventually("the end of the slow pod", || {
        pods(&lab, "slow").is_empty().then_some(())
    });
    assert!(deleted.elapsed() >= Duration::from_secs(3));

    lab.apply(&replica_set(
        "broken",
        1,
        &json!({}),
        &member("registry.k8s.io/pause:broken"),
    ))
    .unwrap();
    eventually("the pod with the broken image", || {
        let status = pods(&lab, "broken").pop()?.status?;
        let waiting = status.container_statuses?.pop()?.state?.waiting?;
        (status.phase? == "Pending" && waiting.reason? == "ImagePullBackOff").then_some(())
    });

    lab.apply(&replica_set("member", 3, &json!({}), &member(PAUSE)))
        .unwrap();
    let ready = eventually("three ready pods", || {
        Some(ready_pods(&lab, "member")).filter(|pods| pods.len() == 3)
    });
    let node = &ready[0].node;
    lab.fail_fake_node(node).unwrap();
    eventually("the failed node's pod to be unready", || {
        (ready_pods(&lab, "member").len() < 3).then_some(())
    });
    lab.recover_fake_node(node).unwrap();
    lab.wait_nodes_ready().unwrap();

    let machine = |name: &str| {
        let path = "jsonpath={.status.nodeInfo.machineID}";
        lab.kubectl(&["get", "node", name, "-o", path]).unwrap()
    };
    let before = machine("node-0");
    lab.delete_fake_node("node-0").unwrap();
    lab.add_fake_node(&FakeNode {
        machine_id: Some("another".to_owned()),
        ..FakeNode::new("node-0", "zone-0")
    })
    .unwrap();
    lab.wait_nodes_ready().unwrap();
    assert_ne!(machine("node-0"), before);
    assert_eq!(machine("node-0"), "another");
}

#[test]
fn a_lab_can_be_joined_and_its_name_is_taken_while_it_runs() {
    let lab = start();
    let name = lab.name().to_owned();
    let refused = Lab::start(Options::fake(1).named(&name)).unwrap_err().to_string();
    assert!(refused.contains("another --name"), "{refused}");

    let attached = Lab::attach(&name).unwrap();
    attached.restart("kube-scheduler").unwrap();
    assert!(
        attached
            .kubectl(&["get", "--raw=/readyz"])
            .unwrap()
            .contains("ok")
    );
    let outside = Lab::existing(lab.kubeconfig()).unwrap_err().to_string();
    assert!(outside.contains("can't be reached"), "{outside}");
    drop(attached);
    assert!(
        lab.component_process("etcd").unwrap().is_alive(),
        "leaving a lab does not end it"
    );

    drop(lab);
    let gone = Lab::attach(&name).unwrap_err().to_string();
    assert!(gone.contains("no lab"), "{gone}");
}

/// The name of the lab that [`holds_a_lab_until_it_is_killed`] starts.
const HELD: &str = "FLOCK_LAB_TEST_HELD";

/// No test, but the process that the next one kills.
#[test]
#[ignore = "started by another test"]
fn holds_a_lab_until_it_is_killed() {
    let Ok(name) = std::env::var(HELD) else { return };
    let _lab = Lab::start(Options::fake(1).named(name)).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_lab_ends_with_the_process_that_is_killed_and_the_next_one_starts() {
    let name = format!("held-{}", std::process::id());
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_lab_until_it_is_killed", "--ignored"])
        .env(HELD, &name)
        .spawn()
        .unwrap();
    let attached = eventually("the held lab", || {
        let lab = Lab::attach(&name).ok()?;
        lab.component_process("kwok").is_ok().then_some(lab)
    });
    let processes: Vec<_> = attached
        .component_names()
        .unwrap()
        .iter()
        .map(|(name, _)| attached.component_process(name).unwrap())
        .collect();
    holder.kill().unwrap();
    holder.wait().unwrap();
    eventually("the end of all", || {
        processes.iter().all(|process| !process.is_alive()).then_some(())
    });
    drop(attached);
    // Whoever starts another lab just now may be clearing this one away.
    let again = eventually("the name", || {
        Lab::start(Options::fake(1).named(name.clone())).ok()
    });
    again.down().unwrap();
}
