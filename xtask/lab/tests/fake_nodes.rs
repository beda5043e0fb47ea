//! A lab with fake nodes, from its start to its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flock_lab::{Lab, Options};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

const MANIFEST: &str = r#"{
  "apiVersion": "v1", "kind": "List", "items": [
    {
      "apiVersion": "v1", "kind": "Service", "metadata": {"name": "member"},
      "spec": {"clusterIP": "None", "selector": {"app": "member"}, "ports": [{"port": 80}]}
    },
    {
      "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "member"},
      "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "member"}},
        "template": {
          "metadata": {"labels": {"app": "member"}},
          "spec": {"hostname": "first", "subdomain": "member", "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]}
        }
      }
    }
  ]
}"#;

/// Waits for `value` to be had.
fn eventually<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} took too long");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The pods of the test that run and are ready, as (name, address, node).
fn ready_pods(lab: &Lab) -> Vec<(String, String, String)> {
    let pods = lab.block_on(async {
        let pods: Api<Pod> = Api::default_namespaced(lab.client().await.unwrap());
        pods.list(&ListParams::default().labels("app=member"))
            .await
            .unwrap()
    });
    let ready = |pod: &Pod| {
        let status = pod.status.clone()?;
        let ready = status
            .conditions?
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        (status.phase? == "Running" && ready).then_some((
            pod.metadata.name.clone()?,
            status.pod_ip?,
            pod.spec.as_ref()?.node_name.clone()?,
        ))
    };
    pods.iter().filter_map(ready).collect()
}

#[test]
fn a_lab_runs_pods_names_them_in_dns_and_leaves_nothing() {
    let options = Options {
        node_monitor_grace: Some(Duration::from_secs(5)),
        ..Options::fake(3)
    };
    let lab = Lab::start(options).unwrap();
    lab.apply(MANIFEST).unwrap();
    let pods = eventually("three ready pods", || {
        Some(ready_pods(&lab)).filter(|pods| pods.len() == 3)
    });

    let mut addresses: Vec<std::net::IpAddr> = pods.iter().map(|pod| pod.1.parse().unwrap()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(
        addresses.len(),
        3,
        "every pod has an address of its own: {pods:?}"
    );
    eventually("the names in DNS", || {
        let found = lab.dns_lookup_a("member.default.svc.cluster.local").unwrap();
        (found == addresses).then_some(())
    });
    let names = lab.dns_lookup_ptr(addresses[0]).unwrap();
    assert_eq!(names, ["first.member.default.svc.cluster.local"]);
    assert!(
        lab.dns_lookup_a("nobody.default.svc.cluster.local")
            .unwrap()
            .is_empty()
    );

    let node = pods[0].2.clone();
    lab.fail_fake_node(&node).unwrap();
    eventually("the failed node's pod to be unready", || {
        (ready_pods(&lab).len() < 3).then_some(())
    });
    lab.recover_fake_node(&node).unwrap();
    lab.wait_nodes_ready().unwrap();

    lab.restart("kube-apiserver").unwrap();
    assert!(lab.kubectl(&["get", "nodes"]).unwrap().contains("node-2"));

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
