//! One test for each verdict, on real JSON, with the patch applied by an independent RFC 6902 implementation.

use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::{Hold, RawPod};
use crate::view::fixtures::{ORDINALS, key, node, now, pod, revision, set, view};
use crate::view::{PodFacts, View};

use super::*;

fn policy() -> Policy {
    Policy {
        host_path_root: "/var/lib/flock".into(),
    }
}

struct Case {
    view: View,
    reservations: Reservations,
    end: End,
}

impl Case {
    fn new(view: View) -> Self {
        Self {
            view,
            reservations: Reservations::default(),
            end: End::Low,
        }
    }

    fn decide(&self, pod: &Value) -> Verdict {
        let text = pod.to_string();
        let raw: RawPod<'_> = serde_json::from_str(&text).unwrap();
        let context = Context {
            view: &self.view,
            flock: self.view.flock(&key()),
            reservations: &self.reservations,
            policy: &policy(),
            end: self.end,
            now: now(),
        };
        decide("default", &raw, &context)
    }

    /// The pod as it would be stored.
    fn admit(&self, pod: &Value) -> Value {
        match self.decide(pod) {
            Verdict::Member { ops, .. } => apply(pod, &ops),
            other => panic!("not admitted: {other:?}"),
        }
    }

    fn refuse(&self, pod: &Value) -> String {
        match self.decide(pod) {
            Verdict::Refused(refusal) => refusal.to_string(),
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn apply(pod: &Value, ops: &[Op]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(ops).unwrap()).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

fn owned(owner: &str) -> Value {
    json!({
        "metadata": {
            "generateName": format!("{owner}-"),
            "labels": { "app": "db", "flock.dev/name": "db" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
                "uid": format!("uid-of-{owner}"), "controller": true,
            }],
        },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn bare() -> Value {
    json!({
        "metadata": { "generateName": "db-", "labels": { "flock.dev/name": "db" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[last.replace("~1", "/")] = value;
    pod
}

#[test]
fn a_replica_becomes_a_member_with_everything_that_carries_its_ordinal() {
    let case = Case::new(view(vec![set("rs", 3)], vec![pod(0, "rs")]));
    let stored = case.admit(&owned("rs"));
    assert_eq!(stored["metadata"]["name"], "db-1");
    assert_eq!(
        stored["metadata"]["labels"],
        json!({
            "app": "db", "flock.dev/name": "db", "flock.dev/ordinal": "1", "apps.kubernetes.io/pod-index": "1",
        })
    );
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({ "controller.kubernetes.io/pod-deletion-cost": "-1" })
    );
    let spec = &stored["spec"];
    assert_eq!(
        (&spec["hostname"], &spec["subdomain"]),
        (&json!("db-1"), &json!("db"))
    );
    let label = "db.default.flock.node-restriction.kubernetes.io/1";
    assert_eq!(spec["nodeSelector"], json!({ label: "" }));
    assert_eq!(
        spec["schedulingGates"],
        json!([{ "name": "flock.dev/placement" }])
    );
    assert_eq!(
        spec["containers"][0]["env"],
        json!([
            { "name": "FLOCK_NAME", "value": "db" }, { "name": "FLOCK_ORDINAL", "value": "1" },
            { "name": "FLOCK_SERVICE", "value": "db" }, { "name": "FLOCK_SEED", "value": "db-0.db" },
        ])
    );
}

#[test]
fn a_member_whose_place_is_known_is_not_gated() {
    let mut known = view(vec![set("rs", 1)], vec![]);
    known.apply_node(node("n1", &[0]));
    let stored = Case::new(known).admit(&owned("rs"));
    assert_eq!(stored["spec"]["schedulingGates"], Value::Null);
    assert!(stored["spec"]["nodeSelector"].is_object());
}

#[test]
fn a_member_whose_label_two_nodes_carry_is_gated() {
    let mut two = view(vec![set("rs", 1)], vec![]);
    two.apply_node(node("n1", &[0]));
    two.apply_node(node("n2", &[0]));
    assert!(Case::new(two).admit(&owned("rs"))["spec"]["schedulingGates"].is_array());
}

#[test]
fn the_leader_chooses_from_the_low_end_and_another_replica_from_the_high_end() {
    let mut case = Case::new(view(vec![set("rs", 5)], vec![pod(2, "rs")]));
    assert_eq!(case.admit(&owned("rs"))["metadata"]["name"], "db-0");
    case.end = End::High;
    assert_eq!(case.admit(&owned("rs"))["metadata"]["name"], "db-4");
}

#[test]
fn an_ordinal_that_was_just_given_away_is_not_given_again() {
    let mut case = Case::new(view(vec![set("rs", 2)], vec![]));
    case.reservations.reserve(&key(), Ordinal::ZERO, now());
    assert_eq!(case.admit(&owned("rs"))["metadata"]["name"], "db-1");
}

#[test]
fn an_offer_that_no_pod_followed_is_looked_at_live_first() {
    let mut case = Case::new(view(vec![set("rs", 1)], vec![]));
    let before = now() - jiff::SignedDuration::from_secs(1);
    case.reservations.reserve(&key(), Ordinal::ZERO, before);
    assert_eq!(
        case.decide(&owned("rs")),
        Verdict::Look(Look::Name(Ordinal::ZERO))
    );
    case.reservations.looked(&key(), Ordinal::ZERO, true, now());
    assert_eq!(
        case.reservations.hold(&key(), Ordinal::ZERO, now()),
        Hold::Stranger
    );
    assert!(
        case.refuse(&owned("rs"))
            .contains("db-0 (a pod that is no member)")
    );
}

#[test]
fn the_desired_number_of_the_deployment_counts_during_a_rollout() {
    let case = Case::new(view(
        vec![revision("old", 1, 2, 3), revision("new", 2, 1, 3)],
        vec![pod(0, "old"), pod(1, "old")],
    ));
    assert_eq!(case.admit(&owned("new"))["metadata"]["name"], "db-2");
}

#[test]
fn an_old_revision_waits_while_the_newest_wants_a_pod() {
    let case = Case::new(view(
        vec![revision("old", 1, 2, 3), revision("new", 2, 1, 3)],
        vec![pod(0, "old")],
    ));
    assert!(
        case.refuse(&owned("old"))
            .contains("new is the newer revision and waits for an ordinal")
    );
    let served = Case::new(view(
        vec![revision("old", 1, 2, 3), revision("new", 2, 1, 3)],
        vec![pod(0, "old"), pod(2, "new")],
    ));
    assert_eq!(served.admit(&owned("old"))["metadata"]["name"], "db-1");
}

#[rstest]
#[case::ready(pod(0, "rs"), "db-0 (ready, of ReplicaSet rs)")]
#[case::terminating(pod(0, "rs").going(), "db-0 (terminating, of ReplicaSet rs)")]
#[case::over(pod(0, "rs").over("Evicted"), "db-0 (over, of ReplicaSet rs)")]
#[case::bare(pod(0, "rs").bare().unready(), "db-0 (not ready, a bare pod)")]
fn a_refusal_says_who_holds_the_ordinals(#[case] holder: PodFacts, #[case] said: &str) {
    let case = Case::new(view(vec![set("rs", 1)], vec![holder]));
    let message = case.refuse(&owned("rs"));
    assert!(message.contains(said), "{message}");
    assert!(
        message.contains("tried again as soon as one of them is gone"),
        "{message}"
    );
}

#[test]
fn a_bare_pod_that_ended_must_be_deleted_by_its_user() {
    let case = Case::new(view(
        vec![set("rs", 1)],
        vec![pod(0, "x").bare().over("Completed")],
    ));
    assert!(
        case.refuse(&owned("rs"))
            .contains("delete the pods that are not wanted")
    );
}

#[test]
fn more_replicas_than_ordinals_are_refused_with_the_numbers() {
    let few = set("rs", 3).annotated(&[(ORDINALS, "0,2")]);
    let case = Case::new(view(vec![few], vec![pod(0, "rs"), pod(2, "rs")]));
    let message = case.refuse(&owned("rs"));
    assert!(
        message.contains("3 replicas are wanted") && message.contains("has 2 ordinals"),
        "{message}"
    );
}

#[test]
fn reserved_gaps_are_not_given_away() {
    let gap = set("rs", 3).annotated(&[(ORDINALS, "0,2-")]);
    let case = Case::new(view(vec![gap], vec![pod(0, "rs"), pod(2, "rs")]));
    assert_eq!(case.admit(&owned("rs"))["metadata"]["name"], "db-3");
}

#[test]
fn an_owner_that_the_caches_lack_is_looked_up() {
    let case = Case::new(view(vec![], vec![]));
    let look = Look::Owner {
        kind: "ReplicaSet".into(),
        name: "rs".into(),
        uid: "uid-of-rs".into(),
    };
    assert_eq!(case.decide(&owned("rs")), Verdict::Look(look));
}

#[test]
fn a_bare_pod_gets_the_lowest_free_ordinal_of_its_own_set() {
    let case = Case::new(view(vec![], vec![pod(0, "x").bare()]));
    assert_eq!(case.admit(&bare())["metadata"]["name"], "db-1");
    let from_five = with(
        bare(),
        "/metadata/annotations",
        json!({ "flock.dev/ordinals": "5-" }),
    );
    assert_eq!(case.admit(&from_five)["metadata"]["name"], "db-5");
}

#[test]
fn a_name_that_is_set_is_never_changed() {
    let case = Case::new(view(vec![], vec![]));
    let named = with(bare(), "/metadata/name", json!("db-7"));
    let stored = case.admit(&named);
    assert_eq!(
        (&stored["metadata"]["name"], &stored["spec"]["hostname"]),
        (&json!("db-7"), &json!("db-7"))
    );
    let Verdict::Member { ops, chosen, .. } = case.decide(&named) else {
        panic!()
    };
    assert!(!chosen && ops.iter().all(|op| op.path() != "/metadata/name"));
}

#[rstest]
#[case::no_dash("etcd0", "members are named db-<ordinal>, such as db-0")]
#[case::zeros("db-007", "members are named db-<ordinal>")]
#[case::other("redis-master", "members are named db-<ordinal>")]
fn a_named_pod_that_is_no_member_is_refused(#[case] name: &str, #[case] said: &str) {
    let case = Case::new(view(vec![], vec![]));
    let message = case.refuse(&with(bare(), "/metadata/name", json!(name)));
    assert!(message.contains(said), "{message}");
}

fn of_kind(api_version: &str, kind: &str, name: &str) -> Value {
    let owner =
        json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": true }]);
    with(bare(), "/metadata/ownerReferences", owner)
}

#[rstest]
#[case::daemon_set("apps/v1", "DaemonSet", "pods of a DaemonSet cannot be members of flock db")]
#[case::job("batch/v1", "Job", "pods of a Job cannot be members")]
#[case::other_set(
    "apps/v1",
    "StatefulSet",
    "set the label flock.dev/name of its template to web"
)]
fn kinds_that_cannot_have_members_are_refused(#[case] api: &str, #[case] kind: &str, #[case] said: &str) {
    let message = Case::new(view(vec![], vec![])).refuse(&of_kind(api, kind, "web"));
    assert!(message.contains(said), "{message}");
}

#[test]
fn a_stateful_sets_pod_keeps_its_name_and_hosts_and_gets_pin_storage_and_environment() {
    let mut member = with(
        of_kind("apps/v1", "StatefulSet", "db"),
        "/metadata/name",
        json!("db-4"),
    );
    member["spec"]["hostname"] = json!("db-4");
    member["spec"]["subdomain"] = json!("governing");
    let stored = Case::new(view(vec![], vec![])).admit(&member);
    assert_eq!(stored["spec"]["subdomain"], "governing");
    assert_eq!(stored["metadata"]["labels"]["flock.dev/ordinal"], "4");
    assert!(stored["spec"]["nodeSelector"].is_object());
    assert_eq!(stored["spec"]["containers"][0]["env"][2]["value"], "governing");
}

#[test]
fn a_mirror_pod_is_left_alone() {
    let mirror = with(
        bare(),
        "/metadata/annotations",
        json!({ "kubernetes.io/config.mirror": "0123" }),
    );
    let named = with(mirror, "/metadata/name", json!("db-n1"));
    let placed = with(named, "/spec/nodeName", json!("n1"));
    assert_eq!(
        Case::new(view(vec![], vec![])).decide(&placed),
        Verdict::Untouched
    );
}

#[rstest]
#[case::node_name("/spec/nodeName", json!("n1"), "spec.nodeName is set to n1")]
#[case::host_network("/spec/hostNetwork", json!(true), "the member's hostname would be the node's")]
#[case::hostname("/spec/hostname", json!("ring-1"), "spec.hostname is set to \"ring-1\", but a member's is db-0")]
#[case::subdomain("/spec/subdomain", json!("other"), "spec.subdomain is set to \"other\", but a member's is db")]
#[case::overridden("/spec/hostnameOverride", json!("x"), "spec.hostnameOverride is set to \"x\"")]
#[case::label("/metadata/labels/flock.dev~1ordinal", json!("9"), "label flock.dev/ordinal is \"9\"")]
#[case::bad_name("/metadata/labels/flock.dev~1name", json!("app-0.1.0"), "label flock.dev/name has the value \"app-0.1.0\"")]
#[case::upper("/metadata/labels/flock.dev~1name", json!("My_DB"), "cannot be a host's name")]
#[case::empty("/metadata/labels/flock.dev~1name", json!(""), "cannot be a host's name")]
#[case::dash("/metadata/labels/flock.dev~1name", json!("db-"), "neither first nor last a dash")]
#[case::digit("/metadata/labels/flock.dev~1name", json!("3scale"), "name one by the annotation flock.dev/service")]
#[case::annotation("/metadata/annotations", json!({ "flock.dev/pin": "x" }), "annotation flock.dev/pin: \"x\" is none of")]
#[case::no_volume("/metadata/annotations", json!({ "flock.dev/volumes": "data" }), "names the volume data, which the pod does not have")]
fn what_contradicts_membership_is_refused_with_the_fix(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] said: &str,
) {
    let message = Case::new(view(vec![], vec![])).refuse(&with(bare(), pointer, value));
    assert!(message.contains(said), "{message}");
}

fn with_volume(source: &Value) -> Value {
    let mut pod = with(
        bare(),
        "/metadata/annotations",
        json!({ "flock.dev/volumes": "data" }),
    );
    let mut volume = json!({ "name": "data" });
    volume
        .as_object_mut()
        .unwrap()
        .extend(source.as_object().unwrap().clone());
    pod["spec"]["volumes"] = json!([{ "name": "tmp", "emptyDir": {} }, volume]);
    pod
}

#[rstest]
#[case::empty_dir(json!({ "emptyDir": {} }))]
#[case::sized(json!({ "emptyDir": { "sizeLimit": "1Gi", "medium": "" } }))]
#[case::name_only(json!({}))]
fn a_named_empty_dir_becomes_the_members_own_directory(#[case] source: Value) {
    let stored = Case::new(view(vec![], vec![])).admit(&with_volume(&source));
    assert_eq!(
        stored["spec"]["volumes"],
        json!([
            { "name": "tmp", "emptyDir": {} },
            { "name": "data", "hostPath": {
                "path": "/var/lib/flock/default_ns-uid/db/0/data", "type": "DirectoryOrCreate",
            } },
        ])
    );
}

#[test]
fn a_claim_takes_the_place_of_a_named_empty_dir() {
    let mut pod = with_volume(&json!({ "emptyDir": {} }));
    pod["metadata"]["annotations"]["flock.dev/storage"] = json!("claim");
    let stored = Case::new(view(vec![], vec![])).admit(&pod);
    assert_eq!(
        stored["spec"]["volumes"][1]["persistentVolumeClaim"],
        json!({ "claimName": "data-db-0" })
    );
    assert_eq!(stored["spec"]["nodeSelector"], Value::Null);
}

#[rstest]
#[case::memory(json!({ "emptyDir": { "medium": "Memory" } }), "an emptyDir of medium Memory")]
#[case::config_map(json!({ "configMap": { "name": "c" } }), "of kind configMap")]
#[case::own_path(json!({ "hostPath": { "path": "/srv/own" } }), "of kind hostPath")]
#[case::another_members(json!({ "hostPath": { "path": "/var/lib/flock/default_ns-uid/db/1/data" } }), "of kind hostPath")]
fn other_volumes_cannot_become_durable(#[case] source: Value, #[case] said: &str) {
    let message = Case::new(view(vec![], vec![])).refuse(&with_volume(&source));
    assert!(message.contains(said), "{message}");
}

#[test]
fn a_windows_pod_gets_no_linux_directory() {
    let pod = with(
        with_volume(&json!({ "emptyDir": {} })),
        "/spec/os",
        json!({ "name": "windows" }),
    );
    assert!(
        Case::new(view(vec![], vec![]))
            .refuse(&pod)
            .contains("a Windows pod cannot have directories")
    );
}

#[test]
fn an_ordered_member_is_gated_until_all_lower_ones_are_ready() {
    let annotations = [(keys::START, "Ordered")];
    let pods = |zero: PodFacts| {
        let mut known = view(vec![set("rs", 2).annotated(&annotations)], vec![zero]);
        known.apply_node(node("n2", &[1]));
        known
    };
    let pod_one = with(
        owned("rs"),
        "/metadata/annotations",
        json!({ "flock.dev/start": "Ordered" }),
    );
    let waiting = Case::new(pods(pod(0, "rs").unready())).admit(&pod_one);
    assert!(waiting["spec"]["schedulingGates"].is_array());
    let ready = Case::new(pods(pod(0, "rs"))).admit(&pod_one);
    assert_eq!(ready["spec"]["schedulingGates"], Value::Null);
}

#[test]
fn what_the_user_set_stays() {
    let mut pod = owned("rs");
    pod["metadata"]["annotations"] =
        json!({ "a/b~c": "1", "controller.kubernetes.io/pod-deletion-cost": "7" });
    pod["spec"]["nodeSelector"] = json!({ "disk/type": "ssd" });
    pod["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    pod["spec"]["containers"][0]["env"] =
        json!([{ "name": "FLOCK_SEED", "value": "mine" }, { "name": "X", "value": "$(FLOCK_ORDINAL)" }]);
    let stored = Case::new(view(vec![set("rs", 1)], vec![])).admit(&pod);
    assert_eq!(stored["metadata"]["annotations"], pod["metadata"]["annotations"]);
    assert_eq!(stored["spec"]["nodeSelector"]["disk/type"], "ssd");
    assert_eq!(stored["spec"]["schedulingGates"][0]["name"], "example.com/wait");
    let names: Vec<_> = stored["spec"]["containers"][0]["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["FLOCK_NAME", "FLOCK_ORDINAL", "FLOCK_SERVICE", "FLOCK_SEED", "X"]
    );
}

/// A member whose place is known, of an image that runs as this user.
fn durable(annotations: &Value, security: &Value) -> Value {
    let mut pod = with_volume(&json!({ "emptyDir": {} }));
    pod["metadata"]["annotations"] = json!({ "flock.dev/volumes": "data" });
    json_patch::merge(&mut pod["metadata"]["annotations"], annotations);
    pod["spec"]["securityContext"] = security.clone();
    pod
}

fn placed() -> View {
    let mut known = view(vec![], vec![]);
    known.apply_node(node("node-0", &[0]));
    known
}

#[rstest]
#[case::root(json!({}), json!({}), false)]
#[case::user(json!({}), json!({ "runAsUser": 1000 }), true)]
#[case::non_root(json!({}), json!({ "runAsNonRoot": true }), true)]
#[case::group(json!({}), json!({ "fsGroup": 1000 }), true)]
#[case::owner(json!({ "flock.dev/volume-owner": "1:1" }), json!({}), true)]
#[case::guard(json!({ "flock.dev/data-guard": "true" }), json!({}), true)]
fn a_restart_waits_only_for_a_directory_that_must_be_prepared(
    #[case] annotations: Value,
    #[case] security: Value,
    #[case] waits: bool,
) {
    let stored = Case::new(placed()).admit(&durable(&annotations, &security));
    assert_eq!(stored["spec"]["schedulingGates"].is_array(), waits);
    let kind = if waits { "Directory" } else { "DirectoryOrCreate" };
    assert_eq!(stored["spec"]["volumes"][1]["hostPath"]["type"], kind);
}

#[test]
fn a_container_that_is_not_root_waits_as_well() {
    let mut pod = durable(&json!({}), &json!({}));
    pod["spec"]["initContainers"] = json!([{ "name": "i", "securityContext": { "runAsUser": 7 } }]);
    assert!(Case::new(placed()).admit(&pod)["spec"]["schedulingGates"].is_array());
}

#[rstest]
#[case::unknown(None, true, true)]
#[case::own(Some([Some("db"), Some("0"), Some("data")]), true, false)]
#[case::own_but_not_bound(Some([Some("db"), Some("0"), Some("data")]), false, true)]
#[case::without_labels(Some([None, None, None]), true, true)]
#[case::anothers(Some([Some("c"), Some("0"), Some("x")]), true, true)]
fn a_restart_waits_only_for_a_claim_that_is_not_known_to_be_its_own(
    #[case] labels: Option<[Option<&str>; 3]>,
    #[case] bound: bool,
    #[case] waits: bool,
) {
    let mut known = placed();
    if let Some(labels) = labels {
        let claim = json!({
            "metadata": { "namespace": "default", "name": "data-db-0", "labels": {} }, "spec": {},
            "status": { "phase": if bound { "Bound" } else { "Pending" } },
        });
        let mut facts = crate::view::ClaimFacts::read(&serde_json::from_value(claim).unwrap()).unwrap();
        facts.labels = labels.map(|label| label.map(str::to_owned));
        known.storage_mut().apply_claim(facts);
    }
    let case = Case::new(known);
    for storage in ["claim", "localVolume"] {
        let pod = durable(&json!({ "flock.dev/storage": storage }), &json!({}));
        let stored = case.admit(&pod);
        assert_eq!(stored["spec"]["schedulingGates"].is_array(), waits, "{storage}");
    }
}
