use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::cli::doctor::finding::Verdict;
use crate::tls::issue::Ca;
use crate::tls::lifetime::Lifetimes;

const DAY: i64 = 24 * 3600;

fn at(day: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + day * DAY).unwrap()
}

fn ca() -> Ca {
    Ca::generate(&Lifetimes::default(), at(0)).unwrap()
}

fn secret(text: &str) -> Seen<Secret> {
    Seen::Found(serde_json::from_value(json!({ "data": { "ca.crt": STANDARD.encode(text) } })).unwrap())
}

fn judged(bundle: &str, ca: &Seen<Secret>, day: i64) -> Finding {
    judged_of(&Setup::of("flock-system", None), bundle, ca, day)
}

fn judged_of(setup: &Setup, bundle: &str, ca: &Seen<Secret>, day: i64) -> Finding {
    let configuration = json!({ "webhooks": [{
        "name": "members.flock.dev", "clientConfig": { "caBundle": STANDARD.encode(bundle) },
    }] });
    let mut findings = judge(Kind::Mutating, &configuration, ca, setup, at(day));
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[rstest]
#[case::today(1, Verdict::Ok, "has the CA of secret/flock-ca")]
#[case::soon(355, Verdict::Warning, "was not renewed")]
#[case::late(400, Verdict::Broken, "valid now")]
#[case::early(-2, Verdict::Broken, "valid now")]
fn a_bundle_is_valid_now_and_for_some_time(#[case] day: i64, #[case] verdict: Verdict, #[case] says: &str) {
    let pem = ca().certificate_pem();
    let finding = judged(&pem, &secret(&pem), day);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.message.contains(says), "{finding:?}");
}

#[test]
fn one_of_several_certificates_is_the_ca_that_signs() {
    let (old, new) = (ca().certificate_pem(), ca().certificate_pem());
    let both = format!("{old}{new}");
    assert_eq!(judged(&both, &secret(&new), 1).verdict, Verdict::Ok);
    let finding = judged(&old, &secret(&new), 1);
    assert_eq!(finding.verdict, Verdict::Broken);
    assert!(finding.message.contains("has not the CA of secret/flock-ca"));
}

#[rstest]
#[case::empty("", "is empty")]
#[case::garbage("garbage", "not PEM")]
fn a_bundle_that_says_nothing_is_broken_with_or_without_the_secret(#[case] bundle: &str, #[case] says: &str) {
    for seen in [secret(&ca().certificate_pem()), Seen::Refused("no".into())] {
        let finding = judged(bundle, &seen, 1);
        assert_eq!(finding.verdict, Verdict::Broken);
        assert!(finding.message.contains(says), "{finding:?}");
    }
}

#[test]
fn a_secret_that_may_not_be_read_is_no_fault_and_one_without_a_ca_is() {
    let pem = ca().certificate_pem();
    assert_eq!(
        judged(&pem, &Seen::Refused("no".into()), 1).verdict,
        Verdict::NotChecked
    );
    assert_eq!(judged(&pem, &Seen::Absent, 1).verdict, Verdict::Broken);
    assert_eq!(judged(&pem, &secret("x"), 1).verdict, Verdict::Broken);
}

#[test]
fn with_cert_manager_the_leafs_own_secret_has_the_ca_and_nobody_else_makes_or_publishes_it() {
    let setup = Setup {
        leaf: Some("flock-serving".into()),
        ..Setup::of("flock-system", None)
    };
    let pem = ca().certificate_pem();
    for (bundle, seen, says) in [
        (&*pem, Seen::Absent, "secret/flock-serving does not exist"),
        ("", secret(&pem), "is empty"),
    ] {
        let finding = judged_of(&setup, bundle, &seen, 1);
        assert_eq!(finding.verdict, Verdict::Broken);
        assert!(finding.message.contains(says), "{finding:?}");
        assert!(finding.message.contains("cert-manager"), "{finding:?}");
        assert!(!finding.message.contains("replica"), "{finding:?}");
    }
}
