//! Writes of a leader that rests on what is no longer so, as one does that was stopped for a while: the API server itself
//! has to refuse each of them.

use flock::identity::{FlockKey, Ordinal};
use flock::reconcile::plan::{Action, StorageAction, Why};
use flock::reconcile::{Apply, ApplyError, OwnImage};
use flock::storage::HelperConfig;
use flock::view::{SharedView, WorkloadKind};
use flock_lab::recording::is_ready;
use serde_json::{Value, json};

use crate::harness::Test;
use crate::world::World;

pub const TESTS: &[Test] = &[(
    "no_write_meets_another_object_that_has_the_name_by_now",
    other_objects,
)];

/// None of these has the flock's label, so that nobody but the test acts on them.
fn objects() -> Vec<Value> {
    let pod = |name: &str, gates: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": { "schedulingGates": gates, "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
        })
    };
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "rs" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "rs" } }, "template": {
            "metadata": { "labels": { "app": "rs" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] } } },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "svc" },
        "spec": { "clusterIP": "None", "selector": { "app": "rs" } },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } } },
    });
    vec![
        pod("runs", json!([])),
        pod("waits", json!([{ "name": "flock.dev/placement" }])),
        set,
        service,
        claim,
    ]
}

/// Every action that changes or removes what is there, for objects of these names with this uid and version.
fn actions(uid: &str, version: &str) -> Vec<Action> {
    let (uid, version) = (uid.to_owned(), version.to_owned());
    let (pod, name, node) = ("runs".to_owned(), "svc".to_owned(), "node-0".to_owned());
    let ordinal = Ordinal::ZERO;
    vec![
        Action::Evict {
            pod: pod.clone(),
            uid: uid.clone(),
            why: Why::HandOver,
        },
        Action::Delete {
            pod: pod.clone(),
            uid: uid.clone(),
            version: version.clone(),
            why: Why::HandOver,
        },
        Action::OpenGate {
            pod: "waits".into(),
            uid: uid.clone(),
        },
        Action::Wake {
            kind: WorkloadKind::ReplicaSet,
            name: "rs".into(),
            uid: uid.clone(),
        },
        Action::Label {
            node: node.clone(),
            uid: uid.clone(),
            ordinal,
        },
        Action::Unlabel {
            node,
            uid: uid.clone(),
            ordinal,
        },
        Action::DeleteService {
            name: name.clone(),
            uid: uid.clone(),
        },
        Action::MendService {
            name: name.clone(),
            version: version.clone(),
            ports: Vec::new(),
        },
        Action::WriteRecord {
            service: name,
            version: version.clone(),
            record: "{}".into(),
        },
        Action::Storage(StorageAction::DeleteHelper { name: pod, uid }),
        Action::Storage(StorageAction::GrowClaim {
            name: "claim".into(),
            version,
            size: "2Gi".into(),
        }),
    ]
}

fn other_objects(world: &World) {
    let scene = world.namespace("fenced");
    for object in objects() {
        scene.apply(&object);
    }
    scene.eventually("a pod that runs", || scene.pod("runs").filter(is_ready));
    // Of each what the writes are after. The rest goes on changing by itself.
    let kept = || -> Vec<Value> {
        let of = |object: &str| scene.get(object);
        let (runs, waits, set) = (of("pod/runs"), of("pod/waits"), of("rs/rs"));
        let (service, claim, node) = (of("service/svc"), of("pvc/claim"), of("node/node-0"));
        vec![
            json!([
                runs["metadata"]["uid"],
                runs["metadata"]["deletionTimestamp"],
                runs["status"]["conditions"]
            ]),
            waits["spec"]["schedulingGates"].clone(),
            set["metadata"]["annotations"].clone(),
            json!([
                service["metadata"]["uid"],
                service["metadata"]["annotations"],
                service["spec"]
            ]),
            claim["spec"].clone(),
            json!(
                node["metadata"]["labels"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .filter(|key| key.contains(&format!(".{}.", scene.namespace)))
                    .count()
            ),
        ]
    };
    let key = FlockKey::parse(&scene.namespace, "db").unwrap();
    let helper = HelperConfig {
        namespace: scene.namespace.clone(),
        root: "/var/lib/flock".into(),
    };
    let client = world.client.clone();
    let image = OwnImage::of_pod(client.clone(), &scene.namespace, "none", None, "flock:dev");
    let apply = Apply::new(client, SharedView::default(), helper, image);
    let run = |action: &Action| {
        world
            .lab
            .block_on(async { apply.run(&key, action).await.map_err(Box::new) })
    };
    let before = kept();
    for action in actions("00000000-0000-0000-0000-000000000000", "1") {
        let result = run(&action);
        let gone = matches!(&result, Ok(()) if matches!(action, Action::Storage(StorageAction::DeleteHelper { .. })));
        assert!(
            gone || matches!(
                result.as_ref().map_err(AsRef::as_ref),
                Err(ApplyError::Outdated(_))
            ),
            "{action:?}: {result:?}"
        );
        assert_eq!(kept(), before, "after {action:?}");
    }
    // The proof that it was the uid: with the right one the pod goes.
    let runs = scene.get("pod/runs");
    let text = |field: &str| runs["metadata"][field].as_str().unwrap().to_owned();
    let [evict, ..] = &actions(&text("uid"), &text("resourceVersion"))[..] else {
        unreachable!()
    };
    run(evict).unwrap();
    scene.eventually("an end of the pod", || scene.pod("runs").is_none().then_some(()));
}
