use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::cli::doctor::finding::Verdict;

fn setup() -> Setup {
    Setup::of("flock-system", None)
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

#[rstest]
#[case::good(2, 2, 2, 1, Verdict::Ok)]
#[case::none(2, 0, 2, 1, Verdict::Broken)]
#[case::half(2, 1, 2, 1, Verdict::Warning)]
#[case::rolls(2, 2, 1, 1, Verdict::Warning)]
#[case::changed(2, 2, 2, 2, Verdict::Warning)]
#[case::alone(1, 1, 1, 1, Verdict::Warning)]
fn a_deployment_needs_two_replicas_of_one_revision(
    #[case] wanted: i32,
    #[case] available: i32,
    #[case] updated: i32,
    #[case] generation: i64,
    #[case] verdict: Verdict,
) {
    let object = serde_json::from_value(json!({
        "metadata": { "generation": generation },
        "spec": { "replicas": wanted, "selector": {}, "template": {} },
        "status": { "observedGeneration": 1, "availableReplicas": available, "updatedReplicas": updated },
    }))
    .unwrap();
    let finding = deployment(&Seen::Found(object), &setup());
    assert_eq!(finding.verdict, verdict, "{}", finding.message);
}

#[test]
fn a_missing_deployment_is_told_with_the_way_to_install_it() {
    let finding = deployment(&Seen::Absent, &setup());
    assert_eq!(finding.verdict, Verdict::Broken);
    assert!(finding.message.contains("kubectl apply -k deploy"));
    let finding = deployment(&Seen::Refused("no".into()), &setup());
    assert_eq!(finding.verdict, Verdict::NotChecked);
}

fn pod(image: &str, id: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {},
        "spec": { "containers": [{ "name": "flock", "image": image }] },
        "status": { "containerStatuses": [{ "name": "flock", "image": image, "imageID": id, "ready": true, "restartCount": 0 }] },
    }))
    .unwrap()
}

#[rstest]
#[case::same(&[("flock:1", "a"), ("flock:1", "a")], Verdict::Ok, "flock:1")]
#[case::not_pulled(&[("flock:1", ""), ("flock:1", "a")], Verdict::Ok, "flock:1")]
#[case::two_versions(&[("flock:1", "a"), ("flock:2", "b")], Verdict::Warning, "flock:1 and flock:2")]
#[case::a_tag_that_moved(&[("flock:dev", "a"), ("flock:dev", "b")], Verdict::Warning, "(a and b)")]
#[case::none(&[], Verdict::Broken, "no pod")]
fn replicas_run_one_image(#[case] pods: &[(&str, &str)], #[case] verdict: Verdict, #[case] says: &str) {
    let pods = pods.iter().map(|(image, id)| pod(image, id)).collect();
    let finding = image(&Seen::Found(pods), &setup());
    assert_eq!(finding.verdict, verdict, "{}", finding.message);
    assert!(finding.message.contains(says), "{}", finding.message);
}

#[rstest]
#[case(&[], Verdict::Broken)]
#[case(&[("IPv4", Some(false))], Verdict::Broken)]
#[case(&[("IPv4", Some(true)), ("IPv4", Some(false))], Verdict::Warning)]
#[case(&[("IPv4", None), ("IPv4", Some(true))], Verdict::Ok)]
#[case::one_replica_with_two_addresses(&[("IPv4", Some(true)), ("IPv6", Some(true))], Verdict::Warning)]
fn endpoints_are_counted_by_family(#[case] all: &[(&str, Option<bool>)], #[case] verdict: Verdict) {
    let slices = all
        .iter()
        .map(|(family, ready)| {
            serde_json::from_value(json!({
                "metadata": {}, "addressType": family,
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": ready } }],
            }))
            .unwrap()
        })
        .collect();
    let finding = endpoints(&Seen::Found(slices), &setup());
    assert_eq!(finding.verdict, verdict, "{}", finding.message);
}

#[rstest]
#[case::fresh("flock-0", 3, Verdict::Ok)]
#[case::taken_over_soon("flock-0", 20, Verdict::Warning)]
#[case::dead("flock-0", 40, Verdict::Broken)]
#[case::given_back("", 1, Verdict::Broken)]
#[case::from_the_future("flock-0", -30, Verdict::Warning)]
fn a_lease_is_held_and_renewed(#[case] holder: &str, #[case] age: i64, #[case] verdict: Verdict) {
    let object = serde_json::from_value(json!({ "metadata": {}, "spec": {
        "holderIdentity": holder, "leaseDurationSeconds": 15,
        "renewTime": (now() - SignedDuration::from_secs(age)).to_string(),
    } }))
    .unwrap();
    let finding = lease(&Seen::Found(object), &setup(), now());
    assert_eq!(finding.verdict, verdict, "{}", finding.message);
}
