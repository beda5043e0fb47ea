//! Reviews in odd shapes: each gets an answer that the API server can read, or an HTTP error, and never a crash.

use std::time::Duration;

use axum::http::StatusCode;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use crate::setup::{Answer, Api, Webhooks, bare_pod, review};

const UID: &str = "7f0b2891-916f-4ed6-b7cd-27bff1815a8c";

/// What the API server demands of an answer (`VerifyAdmissionResponse`).
fn verify(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer.body["kind"], "AdmissionReview");
    assert_eq!(answer.response()["uid"], UID);
    assert!(answer.response()["allowed"].is_boolean());
    assert_eq!(
        answer.response().get("patch").is_some(),
        answer.response().get("patchType").is_some()
    );
    if !answer.allowed() {
        let code = answer.response()["status"]["code"].as_u64().unwrap();
        assert!(
            (400..500).contains(&code) && !answer.message().is_empty(),
            "{}",
            answer.body
        );
    }
}

#[tokio::test]
async fn a_pod_without_name_namespace_and_kind_in_itself_becomes_a_member() {
    let webhooks = Webhooks::new();
    let answer = webhooks.create(&bare_pod()).await;
    verify(&answer);
    assert_eq!(answer.applied(&bare_pod())["metadata"]["name"], "db-0");
    assert_eq!(webhooks.asked(), 0, "the normal path asks nobody");
}

#[tokio::test]
async fn the_namespace_is_the_requests_whatever_the_object_says() {
    let webhooks = Webhooks::new();
    let mut pod = bare_pod();
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["annotations"] = json!({ "flock.dev/volumes": "data" });
    pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    let answer = webhooks.create(&pod).await;
    verify(&answer);
    let stored = answer.applied(&pod);
    let path = "/var/lib/flock/team-a_uid-of-team-a/db/0/data";
    assert_eq!(stored["spec"]["volumes"][0]["hostPath"]["path"], path);
    assert!(
        !answer
            .patch()
            .map(|patch| serde_json::to_string(&patch).unwrap())
            .unwrap()
            .contains("default")
    );
}

#[rstest]
#[case::delete("DELETE", "", Value::Null)]
#[case::delete_with_object("DELETE", "", bare_pod())]
#[case::exec("CONNECT", "exec", json!({ "kind": "PodExecOptions", "apiVersion": "v1" }))]
#[case::update("UPDATE", "", bare_pod())]
#[case::status("UPDATE", "status", bare_pod())]
#[case::ephemeral("UPDATE", "ephemeralcontainers", bare_pod())]
#[case::binding("CREATE", "binding", json!({ "kind": "Binding", "metadata": { "labels": { "flock.dev/name": "db" } } }))]
#[tokio::test]
async fn only_creations_are_shaped(
    #[case] operation: &str,
    #[case] sub_resource: &str,
    #[case] object: Value,
) {
    let webhooks = Webhooks::new();
    let mut body = review(operation, &object);
    body["request"]["subResource"] = json!(sub_resource);
    body["request"]["oldObject"] = bare_pod();
    for path in ["/mutate", "/validate"] {
        let answer = webhooks.post(path, body.to_string()).await;
        verify(&answer);
        assert!(answer.allowed() && answer.patch().is_none());
    }
}

#[rstest]
#[case::labels_null(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": null }, "spec": null }), true)]
#[case::metadata_null(json!({ "metadata": null, "spec": {} }), true)]
#[case::empty(json!({}), true)]
#[case::member_without_spec(json!({ "metadata": { "labels": { "flock.dev/name": "db" } }, "spec": null }), true)]
#[case::null_containers(json!({ "metadata": { "labels": { "flock.dev/name": "db" } }, "spec": { "containers": null } }), true)]
#[case::label_null(json!({ "metadata": { "labels": { "flock.dev/name": null } }, "spec": {} }), false)]
#[case::label_number(json!({ "metadata": { "labels": { "flock.dev/name": 7 } }, "spec": {} }), false)]
#[case::containers_object(json!({ "metadata": { "labels": { "flock.dev/name": "db" } }, "spec": { "containers": {} } }), false)]
#[case::array(json!([]), false)]
#[case::text(json!("pod"), false)]
#[tokio::test]
async fn a_pod_in_an_odd_shape_is_answered_under_its_uid(#[case] pod: Value, #[case] allowed: bool) {
    let answer = Webhooks::new().create(&pod).await;
    verify(&answer);
    assert_eq!(answer.allowed(), allowed, "{}", answer.body);
}

#[rstest]
#[case::mirror("kubernetes.io/config.mirror")]
#[tokio::test]
async fn a_static_pods_mirror_is_left_alone_and_holds_no_ordinal(#[case] annotation: &str) {
    let webhooks = Webhooks::new();
    let mut pod = bare_pod();
    pod["metadata"]["name"] = json!("db-n1");
    pod["metadata"]["annotations"] = json!({ annotation: "0123abcd" });
    pod["spec"]["nodeName"] = json!("n1");
    let answer = webhooks.create(&pod).await;
    verify(&answer);
    assert!(answer.allowed() && answer.patch().is_none());
    assert_eq!(
        webhooks.create(&bare_pod()).await.applied(&bare_pod())["metadata"]["name"],
        "db-0"
    );
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[rstest]
#[case::empty(String::new())]
#[case::text("hello".into())]
#[case::cut("{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"x\"".into())]
#[case::array("[]".into())]
#[case::null("null".into())]
#[case::no_request(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" }).to_string())]
#[case::no_uid(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {} }).to_string())]
#[case::old_version(json!({ "apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": { "uid": "u" } }).to_string())]
#[case::other_kind(json!({ "apiVersion": "v1", "kind": "Pod" }).to_string())]
#[case::two_uids(review("CREATE", &bare_pod()).to_string().replacen("\"uid\"", "\"uid\":\"a\",\"uid\"", 1))]
#[case::deep(nested(1_000_000))]
#[case::deep_request(format!("{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{}}}", nested(1_000_000)))]
#[tokio::test]
async fn what_is_no_review_is_a_bad_request_and_the_next_one_is_served(#[case] body: String) {
    let webhooks = Webhooks::new();
    for path in ["/mutate", "/validate"] {
        assert_eq!(
            webhooks.post(path, body.clone()).await.status,
            StatusCode::BAD_REQUEST
        );
    }
    verify(&webhooks.create(&bare_pod()).await);
}

#[rstest]
#[case::bytes(vec![0xff, 0xfe, b'{', b'}'])]
#[case::latin_1(b"{\"kind\":\"\xe4\"}".to_vec())]
#[tokio::test]
async fn what_is_no_text_is_a_bad_request(#[case] body: Vec<u8>) {
    assert_eq!(
        Webhooks::new().post("/mutate", body).await.status,
        StatusCode::BAD_REQUEST
    );
}

/// In fields that Flock reads, unknown ones, and the sources of volumes.
#[rstest]
#[case("/spec/containers")]
#[case("/spec/nodeSelector")]
#[case("/spec/volumes/0/emptyDir")]
#[case("/spec/volumes/0/unknown")]
#[case("/spec/unknown")]
#[case("/metadata/labels")]
#[case("/unknown")]
#[tokio::test]
async fn a_pod_as_deep_as_the_sea_overflows_no_stack(#[case] pointer: &str) {
    let mut pod = bare_pod();
    pod["metadata"]["annotations"] = json!({ "flock.dev/volumes": "data" });
    pod["spec"]["volumes"] = json!([{ "name": "data" }]);
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[last] = json!("@deep@");
    let body = review("CREATE", &pod)
        .to_string()
        .replace("\"@deep@\"", &nested(1_000_000));
    let webhooks = Webhooks::new();
    verify(&webhooks.post("/mutate", body.clone()).await);
    verify(
        &webhooks
            .post("/validate", body.replace("\"Pod\"", "\"ReplicaSet\""))
            .await,
    );
}

#[tokio::test]
async fn a_dry_run_reserves_nothing() {
    let webhooks = Webhooks::new();
    let mut dry = review("CREATE", &bare_pod());
    dry["request"]["dryRun"] = json!(true);
    for _ in 0..5 {
        let answer = webhooks.post("/mutate", dry.to_string()).await;
        assert_eq!(answer.applied(&bare_pod())["metadata"]["name"], "db-0");
    }
    assert_eq!(
        webhooks.create(&bare_pod()).await.applied(&bare_pod())["metadata"]["name"],
        "db-0"
    );
    assert_eq!(
        webhooks.create(&bare_pod()).await.applied(&bare_pod())["metadata"]["name"],
        "db-1"
    );
}

fn replica() -> Value {
    let mut pod = bare_pod();
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": true }]);
    pod
}

fn replica_set(replicas: u32) -> Value {
    json!({
        "metadata": { "name": "rs", "uid": "u", "namespace": "team-a", "labels": { "flock.dev/name": "db" } },
        "spec": {
            "replicas": replicas, "selector": {},
            "template": { "metadata": { "labels": { "flock.dev/name": "db" } } },
        },
    })
}

/// Whoever reaches the port can cause looks, and they are made with Flock's rights and priority.
#[tokio::test]
async fn only_a_few_looks_are_under_way_at_one_time() {
    let api = Api::silent();
    let webhooks = Webhooks::with_api(api);
    let pod = |number: u32| {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("rs-{number}"),
            "uid": format!("unknown-{number}"), "controller": true }]);
        json!({ "metadata": { "generateName": "db-", "labels": { "flock.dev/name": "db" }, "ownerReferences": owner },
            "spec": { "containers": [] } })
    };
    let calls = (0..200).map(|number| {
        let (webhooks, pod) = (&webhooks, pod(number));
        async move { webhooks.create(&pod).await }
    });
    let answered = tokio::time::timeout(
        Duration::from_secs(3),
        futures::future::select_all(calls.map(Box::pin)),
    );
    assert!(answered.await.is_err(), "nobody answers");
    assert!((1..=4).contains(&webhooks.asked()), "{}", webhooks.asked());
}

/// A pod may say anything of its owner, and its name becomes a part of a path.
#[rstest]
#[case("?watch=true")]
#[case("../../../../v1/namespaces/team-a/secrets/s")]
#[case("a/status")]
#[case("")]
#[tokio::test]
async fn an_owner_whose_name_is_none_is_not_asked_for(#[case] name: &str) {
    let webhooks = Webhooks::new();
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "unknown", "controller": true }]);
    let answer = webhooks
        .create(&json!({ "metadata": { "generateName": "db-", "labels": { "flock.dev/name": "db" }, "ownerReferences": owner },
            "spec": { "containers": [] } }))
        .await;
    assert!(
        answer.message().contains("does not exist in namespace team-a"),
        "{}",
        answer.body
    );
    assert_eq!(webhooks.asked(), 0);
}

/// Whatever goes wrong where the API server is asked, no pod passes unseen: the failurePolicy decides.
#[rstest]
#[case::broken(StatusCode::INTERNAL_SERVER_ERROR, "{}")]
#[case::forbidden(
    StatusCode::FORBIDDEN,
    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"code\":403}"
)]
#[case::garbage(StatusCode::OK, "hello")]
#[case::other_object(StatusCode::OK, "{\"kind\":\"Pod\",\"spec\":7}")]
#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_lets_nobody_pass(#[case] status: StatusCode, #[case] body: &str) {
    let webhooks = Webhooks::with_api(Api::answers(status, body));
    let unknown_owner = webhooks.create(&replica()).await;
    assert_eq!(
        unknown_owner.status,
        StatusCode::INTERNAL_SERVER_ERROR,
        "{}",
        unknown_owner.body
    );
    assert!(
        unknown_owner
            .body
            .as_str()
            .unwrap()
            .contains("could not look up ReplicaSet rs")
    );
    webhooks.replica_set(replica_set(1));
    verify(&webhooks.create(&replica()).await);
    let held = webhooks.create(&replica()).await;
    assert_eq!(held.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", held.body);
    assert!(webhooks.asked() >= 2);
}

/// An API server that starts again calls us long before a kube-proxy sends us to it again.
#[rstest]
#[case::away(Api::answers(StatusCode::SERVICE_UNAVAILABLE, "{}"))]
#[case::silent(Api::silent())]
#[tokio::test]
async fn members_are_admitted_while_the_api_server_cannot_be_asked_who_has_a_name(#[case] api: Api) {
    let webhooks = Webhooks::with_api(api);
    webhooks.replica_set(replica_set(1));
    let (mut bare, mut owned) = (0, 0);
    // An offer that no pod followed is looked at; before that, it may be refused as just given away.
    while bare < 2 || owned < 2 {
        let asked = webhooks.asked();
        let answer = webhooks.create(&bare_pod()).await;
        verify(&answer);
        assert!(answer.allowed(), "{}", answer.message());
        bare += u32::from(webhooks.asked() > asked);
        let answer = tokio::time::timeout(Duration::from_secs(1), webhooks.create(&replica())).await;
        owned += u32::from(answer.is_ok_and(|answer| answer.status == StatusCode::OK && answer.allowed()));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn before_everything_was_listed_no_member_passes_and_everybody_else_does() {
    let webhooks = Webhooks::unsynced();
    let answer = webhooks.create(&bare_pod()).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        answer
            .body
            .as_str()
            .unwrap()
            .starts_with("Flock has not listed pods, replicasets")
    );
    let plain = webhooks
        .create(&json!({ "metadata": { "labels": { "app": "x" } }, "spec": {} }))
        .await;
    assert!(plain.allowed() && plain.patch().is_none());
    // What is wrong with a workload in itself needs no caches.
    let wrong = json!({ "kind": "DaemonSet", "spec": { "template": bare_pod() } });
    assert!(!webhooks.apply(&wrong).await.allowed());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_gone_is_a_refusal() {
    let answer = Webhooks::new().create(&replica()).await;
    verify(&answer);
    assert_eq!(answer.response()["status"]["code"], 409);
    assert!(
        answer
            .message()
            .contains("ReplicaSet rs with uid u does not exist in namespace team-a")
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_known_yet_is_an_error_and_not_another_directory() {
    let mut pod = bare_pod();
    pod["metadata"]["annotations"] = json!({ "flock.dev/volumes": "data" });
    pod["spec"]["volumes"] = json!([{ "name": "data" }]);
    let mut body = review("CREATE", &pod);
    body["request"]["namespace"] = json!("team-z");
    let answer = Webhooks::new().post("/mutate", body.to_string()).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        answer
            .body
            .as_str()
            .unwrap()
            .contains("does not know namespace team-z yet")
    );
}

/// A review of which one part is replaced by anything.
fn damaged() -> impl Strategy<Value = Value> {
    const POINTERS: [&str; 20] = [
        "/apiVersion",
        "/kind",
        "/request",
        "/request/kind",
        "/request/resource",
        "/request/operation",
        "/request/namespace",
        "/request/object",
        "/request/oldObject",
        "/request/dryRun",
        "/request/object/metadata",
        "/request/object/metadata/labels",
        "/request/object/metadata/annotations",
        "/request/object/metadata/ownerReferences",
        "/request/object/spec",
        "/request/object/spec/containers",
        "/request/object/spec/template",
        "/request/object/spec/volumes",
        "/request/object/spec/strategy",
        "/request/object/spec/replicas",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let anything = leaf.prop_recursive(4, 16, 4, |inner| {
        let keys = prop_oneof![
            "[a-z]{1,4}",
            Just("name".to_owned()),
            Just("metadata".to_owned()),
            Just("flock.dev/name".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..4).prop_map(|map| json!(map)),
        ]
    });
    (prop::sample::select(&POINTERS[..]), anything, any::<bool>()).prop_map(|(pointer, value, workload)| {
        let mut pod = bare_pod();
        pod["spec"]["template"] = bare_pod();
        let mut body = review("CREATE", &pod);
        if workload {
            body["request"]["kind"]["kind"] = json!("Deployment");
        }
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[last] = value;
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_gets_an_answer_under_its_own_uid_or_an_http_error(body in damaged()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        for path in ["/mutate", "/validate"] {
            let answer = runtime.block_on(async { Webhooks::new().post(path, body.to_string()).await });
            match answer.status {
                StatusCode::OK => verify(&answer),
                // A namespace that Flock does not know is nothing it can decide about.
                StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR => {}
                other => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn bytes_that_are_no_json_are_a_bad_request(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assume!(serde_json::from_slice::<Value>(&body).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async { Webhooks::new().post("/mutate", body).await });
        prop_assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
}

/// The server drops a review whose time is over, and its connection's with it; the caller has no decision.
#[tokio::test]
async fn a_review_that_ends_before_its_decision_is_counted() {
    let webhooks = Webhooks::with_api(Api::silent());
    // Its owner is not known, so it is looked up, which nobody answers.
    let pod = replica();
    let waiting = webhooks.create(&pod);
    assert!(
        tokio::time::timeout(Duration::from_secs(1), waiting)
            .await
            .is_err()
    );
    let metrics = webhooks.metrics();
    assert!(
        metrics.contains("flock_admission_requests_total{verdict=\"unanswered\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("flock_admission_duration_seconds_count 1"),
        "{metrics}"
    );
}
