//! What earlier versions of Flock have stored, and what this one makes of it. The files under `tests/fixtures/state/`
//! are the promise that an upgrade and a downgrade need nothing else: they are **never changed**. A version that stores
//! something in another form adds a file of its own, and goes on reading the old ones.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use flock::identity::{FlockKey, Ordinal};
use flock::place::{NodeFacts, Record};
use flock::reconcile::PlanConfig;
use flock::reconcile::plan::{Action, Memory, Observed, plan};
use flock::tls::authority::{Authority, SecretContent};
use flock::tls::pem;
use flock::view::{ClaimFacts, NamespaceFacts, PodFacts, ServiceFacts, View, VolumeFacts, WorkloadFacts};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::setup::Webhooks;

struct Stored(Vec<Value>);

impl Stored {
    fn by(version: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/state")
            .join(format!("{version}.yaml"));
        Self(serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap())
    }

    fn get(&self, kind: &str, name: &str) -> &Value {
        let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.0.iter().find(is).unwrap()
    }

    /// All of it, but for the objects that are `lost`.
    fn view(&self, view: &mut View, lost: impl Fn(&Value) -> bool) {
        for object in self.0.iter().filter(|object| !lost(object)) {
            drop(match object["kind"].as_str().unwrap() {
                "Namespace" => view.apply_namespace(NamespaceFacts::from(&typed::<Namespace>(object))),
                "Service" => view.apply_service(ServiceFacts::read(&typed(object)).unwrap()),
                "Node" => view.apply_node(NodeFacts::from(&typed::<Node>(object))),
                "ReplicaSet" => {
                    let (key, facts) = WorkloadFacts::read_replica_set(&typed(object)).unwrap();
                    view.apply_workload(key, facts)
                }
                "Pod" => {
                    let (key, facts) = PodFacts::read(&typed(object)).unwrap();
                    view.apply_pod(key, facts)
                }
                "PersistentVolumeClaim" => {
                    let facts = ClaimFacts::read(&typed(object)).unwrap();
                    view.storage_mut().apply_claim(facts)
                }
                "PersistentVolume" => {
                    let facts = VolumeFacts::read(&typed(object)).unwrap();
                    view.storage_mut().apply_volume(facts)
                }
                "Secret" => Vec::new(),
                other => panic!("nobody reads a {other}"),
            });
        }
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

fn key(flock: &str) -> FlockKey {
    FlockKey::parse("team-a", flock).unwrap()
}

fn actions(view: &View, flock: &str) -> Vec<Action> {
    let observed = Observed {
        key: &key(flock),
        view,
        budgets: &HashMap::new(),
        memory: &Memory::default(),
        config: &PlanConfig::default(),
        now: Timestamp::now(),
    };
    plan(&observed).actions
}

#[rstest]
#[case("0.1.0", "db", 2)]
#[case("0.1.0", "kv", 1)]
fn a_flock_that_an_earlier_version_has_made_is_as_it_should_be(
    #[case] version: &str,
    #[case] flock: &str,
    #[case] members: usize,
) {
    let stored = Stored::by(version);
    let mut view = View::default();
    stored.view(&mut view, |_| false);
    assert_eq!(view.flock(&key(flock)).members().len(), members);
    let planned = actions(&view, flock);
    assert!(planned.is_empty(), "{planned:#?}");
}

#[rstest]
#[case("0.1.0", "db")]
#[case("0.1.0", "kv")]
fn a_record_that_an_earlier_version_has_written_is_made_again_from_its_labels(
    #[case] version: &str,
    #[case] flock: &str,
) {
    let stored = Stored::by(version);
    let mut view = View::default();
    stored.view(&mut view, |object| object["kind"] == "Service");
    let planned = actions(&view, flock);
    let [
        Action::CreateService {
            record: Some(record), ..
        },
    ] = &planned[..]
    else {
        panic!("{planned:#?}");
    };
    let before = &stored.get("Service", flock)["metadata"]["annotations"]["flock.dev/places"];
    let before = Record::parse(before.as_str().unwrap()).unwrap();
    let places = |record: &Record| -> Vec<(Ordinal, Value)> {
        let place =
            |(ordinal, place): (Ordinal, &flock::place::Place)| (ordinal, json!([place.node, place.machine]));
        record.iter().map(place).collect()
    };
    assert_eq!(places(&Record::parse(record).unwrap()), places(&before));
}

#[rstest]
#[case("0.1.0", "db", 1)]
#[case("0.1.0", "kv", 0)]
#[tokio::test]
async fn a_member_of_an_earlier_version_comes_back_where_its_data_is(
    #[case] version: &str,
    #[case] flock: &str,
    #[case] ordinal: u32,
) {
    let stored = Stored::by(version);
    let name = format!("{flock}-{ordinal}");
    let webhooks = Webhooks::new();
    webhooks.view.update(|view| {
        stored.view(view, |object| {
            object["kind"] == "Pod" && object["metadata"]["name"] == name
        });
        Vec::new()
    });
    let set = stored.get("ReplicaSet", flock);
    let mut pod = set["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    let before = stored.get("Pod", &name);
    for field in ["generateName", "ownerReferences"] {
        pod["metadata"][field] = before["metadata"][field].clone();
    }
    let after = webhooks.create(&pod).await.applied(&pod);
    assert_eq!(after["metadata"]["name"], name);
    for field in [
        "hostname",
        "subdomain",
        "nodeSelector",
        "volumes",
        "schedulingGates",
    ] {
        assert_eq!(after["spec"][field], before["spec"][field], "{field}");
    }
    for field in ["labels", "annotations"] {
        let mut before = before["metadata"][field].clone();
        before
            .as_object_mut()
            .unwrap()
            .remove("topology.kubernetes.io/zone");
        assert_eq!(after["metadata"][field], before, "{field}");
    }
    assert_eq!(
        after["spec"]["containers"][0]["env"],
        before["spec"]["containers"][0]["env"]
    );
}

#[rstest]
#[case("0.1.0")]
fn a_rotation_that_an_earlier_version_has_begun_is_understood(#[case] version: &str) {
    let stored = Stored::by(version);
    let secret: Secret = typed(stored.get("Secret", "flock-ca"));
    let data: BTreeMap<_, _> = secret
        .data
        .unwrap()
        .into_iter()
        .map(|(name, value)| (name, value.0))
        .collect();
    let bundle = ["previous.crt", "ca.crt", "next.crt"].map(|entry| pem::certificates(&data[entry]).unwrap());
    let content = SecretContent {
        data,
        annotations: secret.metadata.annotations.unwrap(),
    };
    let authority = Authority::parse(&content).unwrap();
    assert!(authority.next.is_some() && authority.next_published_at.is_some());
    assert!(authority.previous_until.is_some());
    assert_eq!(authority.previous.len(), 1);
    let all = pem::certificates(authority.bundle().as_bytes()).unwrap();
    assert_eq!(all, bundle.concat());
}
