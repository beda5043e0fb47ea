//! Where members live: first places, and labels and records that somebody changes.

use flock_lab::recording::name;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::harness::Test;
use crate::objects::{annotated, members, with, workload};
use crate::pool::Pool;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "places::members_go_only_where_their_template_can_run",
        template_decides,
    ),
    (
        "places::more_replicas_than_nodes_wait_told_and_untouched_until_a_node_comes",
        more_replicas,
    ),
    ("places::members_may_share_the_only_node", shared),
    ("places::members_without_a_pin_leave_no_trace_on_nodes", unpinned),
    (
        "places::nodes_by_hand_are_taken_or_what_is_wrong_is_told",
        by_hand,
    ),
    (
        "places::a_virgin_moves_on_from_a_node_without_room_and_waits_where_none_has",
        no_room,
    ),
    (
        "places::a_virgin_moves_on_from_a_node_whose_port_is_taken",
        port_taken,
    ),
    ("places::a_member_that_ran_waits_for_its_node", permanent),
    ("places::node_names_are_no_hostnames", node_names),
    ("places::a_windows_node_is_nobodys_place", windows),
    (
        "places::each_first_place_costs_one_patch_and_a_restart_none",
        costs,
    ),
    (
        "places::a_label_taken_off_comes_back_and_one_set_twice_goes_again",
        labels_by_hand,
    ),
    ("places::a_label_moved_by_hand_moves_the_member", moved_by_hand),
    ("places::a_label_that_means_nothing_is_told_of", garbage),
    (
        "places::an_edited_record_is_put_right_and_nothing_moves",
        edited_record,
    ),
    (
        "places::a_deleted_service_comes_back_with_its_record",
        deleted_service,
    ),
    ("places::a_users_own_service_stays_byte_for_byte", own_service),
    (
        "places::a_namespace_that_is_gone_leaves_no_label_and_comes_back_clean",
        namespace,
    ),
    ("places::a_kubelet_can_take_no_ordinal", kubelet),
];

fn template_decides(world: &World) {
    let pool = Pool::new(world, "fit", &["n1"]);
    let scene = &pool.scene;
    let zone_b = "b";
    pool.register(&pool.node("n2"), zone_b, |_| {});
    pool.register(&pool.node("n3"), zone_b, |node| {
        node.taints.push(("k".into(), "v".into(), "NoSchedule".into()));
    });
    pool.register(&pool.node("cp"), zone_b, |node| {
        node.taints.push((
            "node-role.kubernetes.io/control-plane".into(),
            String::new(),
            "NoSchedule".into(),
        ));
    });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone_b] },
        ] }],
    } } });
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "db" } },
    }]);
    let spec = json!({ "affinity": affinity, "topologySpreadConstraints": spread });
    let set = with(
        workload("ReplicaSet", "db", 5),
        &json!({ "spec": { "template": { "spec": spec } } }),
    );
    let set = pool.workload(set);
    scene.apply(&set);
    // The first of the allowed ordinals, whichever replica of Flock gave it.
    let first = scene.eventually("the one that fits", || {
        scene
            .pods()
            .into_iter()
            .find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    });
    let first = name(&first);
    assert_eq!(pool.home(&first), "n2");
    let others: Vec<_> = members(0..5).into_iter().filter(|pod| *pod != first).collect();
    scene.eventually_event("db", &format!("no node for {}: 0/", others.join(", ")));
    assert_eq!(scene.recording.count_created(), 5, "the gated ones wait");
    // Tolerating the taint lets n3 join, and moves nobody.
    let tolerations = json!([
        set["spec"]["template"]["spec"]["tolerations"][0],
        { "key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule" },
    ]);
    scene.apply(&with(
        set,
        &json!({ "spec": { "template": { "spec": { "tolerations": tolerations } } } }),
    ));
    scene.run(&["delete", "pod", &others[0], "--wait=false"]);
    scene.eventually("one more on n3", || {
        let nodes: Vec<_> = scene
            .pods()
            .iter()
            .filter_map(|pod| pod.spec.clone()?.node_name)
            .collect();
        (nodes.len() == 2 && nodes.contains(&pool.node("n3"))).then_some(())
    });
    assert_eq!(pool.home(&first), "n2");
}

/// The members that wait behind their gate.
fn gated(pool: &Pool<'_>) -> Vec<String> {
    let gated = |pod: &Pod| {
        pod.spec
            .as_ref()
            .is_some_and(|spec| spec.scheduling_gates.is_some())
    };
    pool.scene
        .pods()
        .iter()
        .filter(|pod| gated(pod))
        .map(name)
        .collect()
}

fn more_replicas(world: &World) {
    let pool = Pool::new(world, "more", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 4)));
    let bound = || {
        let pods = scene.pods();
        pods.iter()
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
            .count()
    };
    let waiting = scene.eventually("two members that run and two that wait", || {
        let waiting = gated(&pool);
        (waiting.len() == 2 && bound() == 2).then_some(waiting)
    });
    scene.eventually_event("db", &format!("no node for {}: 0/", waiting.join(", ")));
    // The leader shows them to the alert.
    let shown = || -> f64 {
        let of = |replica| {
            world
                .flock
                .metric(replica, "flock_waits", "NoPlace")
                .unwrap_or_default()
        };
        (0..world.flock.len()).map(of).sum()
    };
    scene.eventually("a metric of members that wait", || (shown() >= 2.0).then_some(()));
    pool.quiet();
    pool.add("c", |_| {});
    let last = scene.eventually("one member that waits", || {
        let waiting = gated(&pool);
        (waiting.len() == 1 && bound() == 3).then(|| waiting[0].clone())
    });
    scene.eventually_event("db", &format!("no node for {last}: 0/"));
    let placed = waiting.iter().find(|pod| **pod != last).unwrap();
    scene.eventually("the new node's member", || scene.pod(placed)?.spec?.node_name);
    assert_eq!(pool.home(placed), "c");
}

fn shared(world: &World) {
    let pool = Pool::new(world, "share", &["only"]);
    let set = annotated(
        workload("ReplicaSet", "db", 3),
        &json!({ "flock.dev/pin": "Shared" }),
    );
    pool.scene.apply(&pool.workload(set));
    pool.scene.eventually_ready(&members(0..3));
    for ordinal in 0..3 {
        assert_eq!(pool.carriers(ordinal), ["only"]);
    }
}

fn unpinned(world: &World) {
    let pool = Pool::new(world, "none", &["only"]);
    let set = annotated(
        workload("ReplicaSet", "db", 2),
        &json!({ "flock.dev/pin": "None" }),
    );
    pool.scene.apply(&pool.workload(set));
    pool.scene.eventually_ready(&members(0..2));
    pool.quiet();
    assert_eq!(pool.node_writes(), 0);
    assert_eq!(pool.record(), json!(null));
}

fn by_hand(world: &World) {
    let pool = Pool::new(world, "hand", &["a", "b"]);
    let scene = &pool.scene;
    let nodes = format!("{},{},{}", pool.node("b"), pool.node("missing"), pool.node("a"));
    let set = annotated(
        workload("ReplicaSet", "db", 3),
        &json!({ "flock.dev/nodes": nodes }),
    );
    pool.set_label("a", 9);
    scene.apply(&pool.workload(set));
    scene.eventually_event(
        "db",
        "missing\", which does not exist; correct its name or add the node",
    );
    scene.eventually_event("db", "which carries db-9; choose another node");
    scene.eventually("db-0's node", || scene.pod("db-0")?.spec?.node_name);
    assert_eq!(pool.home("db-0"), "b");
    pool.add("missing", |_| {});
    scene.eventually("db-1 on the node that came", || {
        scene.pod("db-1")?.spec?.node_name
    });
    assert_eq!(pool.home("db-1"), "missing");
    // The other ordinal's label was an administrator's; the record keeps what it stood for until it is released.
    pool.take_label("a", 9);
    let mut record = pool.record();
    record["9"]["released"] = json!(true);
    pool.edit_record(Some(&record.to_string()));
    scene.eventually("db-2 on a", || scene.pod("db-2")?.spec?.node_name);
    assert_eq!(pool.home("db-2"), "a");
}

/// A workload whose members want a whole processor.
fn hungry(replicas: u32) -> serde_json::Value {
    let container = json!({
        "name": "c", "image": "registry.k8s.io/pause:3.9", "resources": { "requests": { "cpu": "1" } },
    });
    with(
        workload("ReplicaSet", "db", replicas),
        &json!({ "spec": { "template": { "spec": { "containers": [container] } } } }),
    )
}

fn no_room(world: &World) {
    let pool = Pool::new(world, "room", &[]);
    let scene = &pool.scene;
    for small in ["a", "b"] {
        pool.register(&pool.node(small), "same", |node| node.cpu = "100m".into());
    }
    scene.apply(&pool.workload(hungry(1)));
    scene.eventually_event("db", "the scheduler could not place it on any of those that do");
    let writes = pool.node_writes();
    assert_eq!(writes, 3, "a, then b with a's label taken off");
    pool.quiet();
    pool.register(&pool.node("z"), "same", |_| {});
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), "z");
    assert_eq!(pool.carriers(0), ["z"]);
}

fn port_taken(world: &World) {
    let pool = Pool::new(world, "port", &["a", "b"]);
    let scene = &pool.scene;
    let port = json!([{ "containerPort": 7000, "hostPort": 7000 }]);
    let container = json!([{ "name": "c", "image": "registry.k8s.io/pause:3.9", "ports": port }]);
    let set = with(
        workload("ReplicaSet", "db", 1),
        &json!({ "spec": { "template": { "spec": { "containers": container } } } }),
    );
    let set = pool.workload(set);
    let mut other = set["spec"]["template"].clone();
    other["apiVersion"] = json!("v1");
    other["kind"] = json!("Pod");
    other["metadata"] = json!({ "name": "other" });
    other["spec"]["nodeName"] = json!(pool.node("a"));
    scene.apply(&other);
    scene.apply(&set);
    scene.eventually("db-0 on b", || scene.pod("db-0")?.spec?.node_name);
    assert_eq!(pool.home("db-0"), "b");
    assert_eq!(pool.carriers(0), ["b"]);
}

fn permanent(world: &World) {
    let pool = Pool::new(world, "stay", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let home = pool.home("db-0");
    scene.run(&["cordon", &pool.node(&home)]);
    scene.delete_pods(&["db-0"]);
    scene.eventually_event(
        "db",
        "where its data is: cordoned; to let it start, uncordon it (kubectl uncordon)",
    );
    pool.quiet();
    assert_eq!(scene.pod("db-0").unwrap().spec.unwrap().node_name, None);
    scene.run(&["uncordon", &pool.node(&home)]);
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), home);
}

fn node_names(world: &World) {
    let pool = Pool::new(world, "names", &[]);
    let scene = &pool.scene;
    // Each has the other's name as its hostname, and the third has none.
    let (fqdn, other, bare) = (
        pool.node("ec2.internal"),
        pool.node("worker-b"),
        pool.node("bare"),
    );
    pool.register(&fqdn, "same", |node| {
        node.labels.push(("kubernetes.io/hostname".into(), other.clone()));
    });
    pool.register(&other, "same", |node| {
        node.labels.push(("kubernetes.io/hostname".into(), fqdn.clone()));
    });
    pool.register(&bare, "same", |_| {});
    scene.run(&["label", "node", &bare, "kubernetes.io/hostname-"]);
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 3)));
    scene.eventually_ready(&members(0..3));
    let homes: Vec<_> = members(0..3).iter().map(|pod| scene.node_of(pod)).collect();
    let mut sorted = homes.clone();
    sorted.sort();
    assert_eq!(sorted, [bare, fqdn, other]);
    scene.delete_pods(&members(0..3));
    scene.eventually_ready(&members(0..3));
    assert_eq!(
        members(0..3)
            .iter()
            .map(|pod| scene.node_of(pod))
            .collect::<Vec<_>>(),
        homes
    );
}

fn windows(world: &World) {
    let pool = Pool::new(world, "os", &[]);
    pool.add("a", |node| node.os = "windows".into());
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_event("db", "no node for db-0: 0/");
    pool.add("b", |_| {});
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), "b");
    assert_eq!(pool.node_writes(), 1);
}

fn costs(world: &World) {
    let names: Vec<_> = (0..20).map(|number| format!("n{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let pool = Pool::new(world, "costs", &names);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 20)));
    scene.eventually_ready(&members(0..20));
    pool.quiet();
    assert_eq!(pool.node_writes(), 20, "one patch for each first place");
    let records = pool.service_writes();
    assert!(records <= 20, "{records}");
    println!("20 first places: 20 node patches, {records} writes of the Service");
    scene.delete_pods(&["db-3", "db-7", "db-19"]);
    scene.eventually_ready(&members(0..20));
    pool.quiet();
    assert_eq!(pool.node_writes(), 20, "none for a restart");
    assert_eq!(pool.service_writes(), records, "none for a restart");
}

fn labels_by_hand(world: &World) {
    let pool = Pool::new(world, "label", &["a", "b", "c"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let home = pool.home("db-0");
    pool.take_label(&home, 0);
    scene.eventually_event("db", "else it comes back");
    scene.eventually("the label again", || {
        (pool.carriers(0) == [home.clone()]).then_some(())
    });
    // A second one: nothing starts while both are there, and both are named.
    let other = ["a", "b", "c"].into_iter().find(|name| *name != home).unwrap();
    pool.set_label(other, 0);
    let (first, second) = (pool.node(other), pool.node(&home));
    scene.eventually_event(
        "db",
        &format!("nodes {first} and {second} both carry the label of db-0"),
    );
    scene.delete_pods(&["db-0"]);
    let gates = scene.eventually("db-0", || scene.pod("db-0")?.spec?.scheduling_gates);
    assert_eq!(gates[0].name, "flock.dev/placement");
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), home);
    assert_eq!(pool.carriers(0), [home]);
}

fn moved_by_hand(world: &World) {
    let mut pool = Pool::new(world, "move", &["a", "b"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let home = pool.home("db-0");
    let other = if home == "a" { "b" } else { "a" };
    // While it runs, it is told what will happen.
    pool.take_label(&home, 0);
    pool.set_label(other, 0);
    scene.eventually_event("db", "once its pod is gone, it starts on");
    assert_eq!(pool.record()["0"]["node"], json!(pool.node(&home)));
    scene.delete_pods(&["db-0"]);
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), other);
    scene.eventually("the record to follow", || {
        (pool.record()["0"]["node"] == json!(pool.node(other))).then_some(())
    });
    scene.eventually_event("db", "by its label; its data is not moved with it");
}

fn garbage(world: &World) {
    let pool = Pool::new(world, "garbage", &["a"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let node = pool.node("a");
    let label = pool.label(0).replace("/0", "/seven");
    scene.run(&["label", "node", &node, &format!("{label}=")]);
    let told = || {
        let selector = format!("involvedObject.name={node}");
        let events = world
            .lab
            .kubectl(&["get", "events", "-A", "--field-selector", &selector])
            .unwrap();
        events.contains("names no ordinal of flock").then_some(())
    };
    scene.eventually("an event of the node", told);
    pool.quiet();
    assert_eq!(pool.carriers(0), ["a"]);
}

fn edited_record(world: &World) {
    let pool = Pool::new(world, "edit", &["a", "b", "c"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 2)));
    scene.eventually_ready(&members(0..2));
    pool.quiet();
    let (record, writes) = (pool.record(), pool.node_writes());
    let nodes = |record: &serde_json::Value| ["0", "1"].map(|ordinal| record[ordinal]["node"].clone());
    let twice = json!({ "0": record["0"], "1": record["0"] }).to_string();
    let elsewhere = json!({ "0": { "node": pool.node("c"), "for": "x" }, "1": record["1"] }).to_string();
    for text in [
        Some("{"),
        Some("[]"),
        Some(r#"{"x":1}"#),
        Some(&*twice),
        Some(&*elsewhere),
        Some("{}"),
        None,
    ] {
        pool.edit_record(text);
        scene.eventually(&format!("the record after {text:?}"), || {
            let service = scene.get("service/db");
            let now = service["metadata"]["annotations"]["flock.dev/places"]
                .as_str()?
                .to_owned();
            let now: serde_json::Value = serde_json::from_str(&now).ok()?;
            (nodes(&now) == nodes(&record)).then_some(())
        });
    }
    scene.eventually_event("db", "Annotation flock.dev/places was edited");
    scene.eventually_event("db", "is no record of places");
    assert_eq!(pool.node_writes(), writes);
    scene.delete_pods(&members(0..2));
    scene.eventually_ready(&members(0..2));
}

fn deleted_service(world: &World) {
    let pool = Pool::new(world, "svc", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 2)));
    scene.eventually_ready(&members(0..2));
    pool.quiet();
    // The node of one is away: only the record tells of it.
    let home = pool.home("db-1");
    pool.delete(&home);
    pool.collect("db-1");
    scene.eventually_event("db", "which is gone: it waits");
    let record = pool.record();
    scene.run(&["delete", "service", "db"]);
    scene.eventually("the Service", || scene.kubectl(&["get", "service", "db"]).ok());
    assert_eq!(pool.record(), record);
    pool.add(&home, |_| {});
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), home);
}

fn own_service(world: &World) {
    let pool = Pool::new(world, "own", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "db", "annotations": { "mine": "yes" } },
        "spec": { "clusterIP": "None", "selector": { "app": "db" }, "ports": [{ "name": "x", "port": 4321 }] },
    }));
    let before = scene.run(&["get", "service", "db", "-o", "yaml"]);
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 2)));
    scene.eventually_ready(&members(0..2));
    pool.quiet();
    assert_eq!(scene.run(&["get", "service", "db", "-o", "yaml"]), before);
    let beside = scene.get("service/db-places");
    let record = beside["metadata"]["annotations"]["flock.dev/places"]
        .as_str()
        .unwrap();
    assert!(record.contains(&scene.node_of("db-1")), "{record}");
    assert_eq!(beside["spec"]["selector"], json!(null));
    assert_eq!(beside["spec"]["clusterIP"], json!("None"));
}

fn namespace(world: &World) {
    let mut pool = Pool::new(world, "gone", &["a", "b"]);
    // The member of the second namespace is another one, of the same name.
    pool.scene.may_move = true;
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 2)));
    scene.eventually_ready(&members(0..2));
    world
        .lab
        .kubectl(&["delete", "namespace", &scene.namespace, "--timeout=180s"])
        .unwrap();
    scene.eventually("no label", || {
        (0..2)
            .all(|ordinal| pool.carriers(ordinal).is_empty())
            .then_some(())
    });
    // The namespace of the same name is another one: its members may live elsewhere.
    world
        .lab
        .kubectl(&["create", "namespace", &scene.namespace])
        .unwrap();
    let set = annotated(
        workload("ReplicaSet", "db", 1),
        &json!({ "flock.dev/nodes": pool.node("b") }),
    );
    scene.apply(&pool.workload(set));
    scene.eventually("db-0", || scene.pod("db-0")?.spec?.node_name);
    assert_eq!(pool.home("db-0"), "b");
    assert_eq!(pool.record().as_object().unwrap().len(), 1);
}

fn kubelet(world: &World) {
    let pool = Pool::new(world, "kubelet", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let home = pool.home("db-0");
    let other = if home == "a" { "b" } else { "a" };
    let as_kubelet = |short: &str, args: &[&str]| {
        let user = format!("system:node:{}", pool.node(short));
        let kubeconfig = world.lab.kubeconfig_for(&user, &["system:nodes"]).unwrap();
        let flag = format!("--kubeconfig={}", kubeconfig.display());
        let all: Vec<_> = [flag.as_str()].into_iter().chain(args.iter().copied()).collect();
        world.lab.kubectl(&all).map_err(|error| format!("{error:#}"))
    };
    let (label, stranger, owner) = (pool.label(0), pool.node(other), pool.node(&home));
    let refused = [
        // It takes the ordinal, changes or drops its own, or another node's.
        as_kubelet(other, &["label", "node", &stranger, &format!("{label}=")]),
        as_kubelet(
            &home,
            &["label", "--overwrite", "node", &owner, &format!("{label}=x")],
        ),
        as_kubelet(&home, &["label", "node", &owner, &format!("{label}-")]),
        as_kubelet(other, &["label", "node", &owner, &format!("{label}-")]),
        // It may not delete its Node to register again with the label either.
        as_kubelet(other, &["delete", "node", &stranger]),
    ];
    for answer in refused {
        let message = answer.expect_err("a kubelet may not do this");
        assert!(
            message.contains("orbidden") || message.contains("not allowed"),
            "{message}"
        );
    }
    // Nor register with it where its Node is gone.
    pool.delete(other);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": stranger, "labels": { label.as_str(): "" } },
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, node.to_string().as_bytes()).unwrap();
    let path = file.path().display().to_string();
    let message = as_kubelet(other, &["create", "-f", &path]).expect_err("a kubelet may not do this");
    assert!(
        message.contains("is not allowed to set the following labels"),
        "{message}"
    );
    assert_eq!(pool.carriers(0), [home]);
}
