//! Whether Flock answers: what came back of pods that were created with `dry run`, so that nothing was stored.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::finding::Finding;
use super::setup::Setup;
use crate::identity::{FlockKey, keys};

const ADMISSION: &str = "admission";
const WORKLOADS: &str = "apply-time advice";

/// The flock of the probes. Should there be one of this name, the probe gets its next ordinal, and nothing happens.
const FLOCK: &str = "flock-doctor";
/// Where a probe that is stored by nobody says that it is one.
const COMPONENT: &str = "doctor";

/// What the API server answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T> {
    /// It would store this.
    Admitted(T),
    /// It refuses, with this code and these words.
    Refused(u16, String),
}

/// What came back.
#[derive(Debug)]
pub struct Probe {
    /// Where.
    pub namespace: String,
    /// Of a pod without the label.
    pub plain: Answer<Pod>,
    /// How long that took, best of some.
    pub plain_time: Duration,
    /// Of pods with the label.
    pub members: Vec<Answer<Pod>>,
    /// How long they took, best of some.
    pub member_time: Duration,
    /// Of a ReplicaSet whose annotations cannot be read.
    pub workload: Answer<()>,
}

/// A pod that every Pod Security level lets pass.
pub fn pod(member: bool) -> Value {
    let mut labels = json!({ "app.kubernetes.io/component": COMPONENT });
    if member {
        labels[keys::NAME] = FLOCK.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "generateName": format!("{FLOCK}-"), "labels": labels },
        "spec": {
            "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "probe", "image": "registry.k8s.io/pause:3.10",
                "resources": {
                    "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "10m", "memory": "16Mi" },
                },
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

/// A ReplicaSet that the webhook for workloads must deny.
pub fn workload() -> Value {
    let mut template = pod(true);
    template["metadata"] = json!({
        "labels": { "app.kubernetes.io/component": COMPONENT, keys::NAME: FLOCK },
        "annotations": { keys::ORDINALS: "none" },
    });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": { "generateName": format!("{FLOCK}-") },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": { "app.kubernetes.io/component": COMPONENT } },
            "template": { "metadata": template["metadata"], "spec": template["spec"] },
        },
    })
}

/// Judges the answers.
pub fn judge(probe: &Probe, setup: &Setup) -> Vec<Finding> {
    vec![admission(probe, setup), advice(&probe.workload, &probe.namespace)]
}

fn admission(probe: &Probe, setup: &Setup) -> Finding {
    let namespace = &probe.namespace;
    let elsewhere = "name another by --probe-namespace";
    if let Answer::Refused(_, why) = &probe.plain {
        let message = format!(
            "a pod without any label would be refused in namespace {namespace} too ({why}); {elsewhere}"
        );
        return Finding::not_checked(ADMISSION, message);
    }
    if *namespace == "kube-system" || *namespace == setup.namespace {
        let message = format!("namespace {namespace} has no members: {elsewhere}");
        return Finding::not_checked(ADMISSION, message);
    }
    let fault = probe
        .members
        .iter()
        .find_map(|answer| fault(answer, setup, namespace));
    if let Some(message) = fault {
        return Finding::broken(ADMISSION, message);
    }
    let names: Vec<_> = probe.members.iter().filter_map(named).collect();
    let Some(name) = names.first() else {
        return Finding::not_checked(ADMISSION, "no pod was tried");
    };
    let message = format!(
        "a labelled pod in namespace {namespace} would be named {name}; the API server took {} for it, and {} for one \
         without the label (dry run, best of {})",
        milliseconds(probe.member_time),
        milliseconds(probe.plain_time),
        probe.members.len()
    );
    Finding::ok(ADMISSION, message)
}

fn fault(answer: &Answer<Pod>, setup: &Setup, namespace: &str) -> Option<String> {
    let (code, why) = match answer {
        Answer::Admitted(_) if named(answer).is_some() => return None,
        Answer::Admitted(_) => {
            return Some(format!(
                "a labelled pod in namespace {namespace} would start without an ordinal: neither Flock's webhook nor the \
                 policy flock-members sees it; kubectl apply -k webhook-config, and see the findings about both"
            ));
        }
        Answer::Refused(code, why) => (code, why),
    };
    let uncalled = why.contains("failed calling webhook \"members.flock.dev\"");
    // What a peer says that ends a handshake; Flock's own certificate is judged by the API server, in other words.
    Some(if uncalled && why.contains("remote error: tls: ") {
        format!(
            "Flock runs with --client-ca and does not let the API server in ({why}): see the files of the API server's \
             --admission-control-config-file, and \"Authenticated callers\" in docs/operations.md"
        )
    } else if uncalled {
        format!(
            "the API server cannot call Flock ({why}): see the findings about Deployment, endpoints and caBundle; if \
             those are well, the way from the control plane to port 8443 of the pods in {} (NetworkPolicy, firewall)",
            setup.namespace
        )
    } else if why.contains("flock-members") {
        format!(
            "the API server does not call Flock for a labelled pod in namespace {namespace}, and the policy flock-members \
             refuses it: kubectl apply -k webhook-config, and see its selectors"
        )
    } else {
        format!(
            "a labelled pod would be refused in namespace {namespace}, and one without the label not ({code}: {why}): who \
             says so is named there"
        )
    })
}

/// The name of a pod with all of its identity.
fn named(answer: &Answer<Pod>) -> Option<String> {
    let Answer::Admitted(pod) = answer else {
        return None;
    };
    let name = pod.metadata.name.clone()?;
    let label = pod.metadata.labels.as_ref()?.get(keys::ORDINAL)?;
    let key = FlockKey::parse("any", FLOCK).ok()?;
    let same = key.ordinal_of(&name)?.to_string() == *label;
    let spec = pod.spec.as_ref()?;
    (same && spec.hostname.as_ref() == Some(&name)).then_some(name)
}

fn advice(answer: &Answer<()>, namespace: &str) -> Finding {
    match answer {
        Answer::Refused(_, why) if why.contains("workloads.flock.dev") => Finding::ok(
            WORKLOADS,
            "who applies a workload with an annotation that cannot be read is told at once",
        ),
        Answer::Refused(_, why) => Finding::not_checked(
            WORKLOADS,
            format!("a ReplicaSet would be refused in namespace {namespace}: {why}"),
        ),
        Answer::Admitted(()) => Finding::warning(
            WORKLOADS,
            format!(
                "a workload in namespace {namespace} with an annotation that cannot be read would be stored without a word: \
                 the API server does not reach webhook workloads.flock.dev; kubectl apply -k webhook-config"
            ),
        ),
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn admitted(change: &Value) -> Answer<Pod> {
        let mut object = pod(true);
        json_patch::merge(&mut object, change);
        Answer::Admitted(serde_json::from_value(object).unwrap())
    }

    fn member() -> Answer<Pod> {
        admitted(&json!({
            "metadata": { "name": "flock-doctor-0", "labels": { "flock.dev/ordinal": "0" } },
            "spec": { "hostname": "flock-doctor-0" },
        }))
    }

    fn judged(namespace: &str, plain: Answer<Pod>, member: Answer<Pod>) -> Finding {
        let probe = Probe {
            namespace: namespace.into(),
            plain,
            plain_time: Duration::from_micros(2900),
            members: vec![self::member(), member],
            member_time: Duration::from_micros(4100),
            workload: Answer::Admitted(()),
        };
        judge(&probe, &Setup::of("flock-system", None)).remove(0)
    }

    fn plain() -> Answer<Pod> {
        admitted(&json!({}))
    }

    #[test]
    fn a_pod_with_its_identity_is_told_with_the_time_it_took() {
        let finding = judged("default", plain(), member());
        assert_eq!(finding.verdict, Verdict::Ok);
        let message = finding.message;
        assert!(
            message.contains("flock-doctor-0; the API server took 4.1 ms for it, and 2.9 ms"),
            "{message}"
        );
    }

    #[rstest]
    #[case::no_identity(admitted(&json!({"metadata": {"name": "flock-doctor-x7k2p"}})), "without an ordinal")]
    #[case::half_an_identity(
        admitted(&json!({"metadata": {"name": "flock-doctor-0", "labels": {"flock.dev/ordinal": "1"}}})),
        "without an ordinal"
    )]
    #[case::away(
        Answer::Refused(500, "failed calling webhook \"members.flock.dev\": connection refused".into()),
        "cannot call Flock (failed calling webhook \"members.flock.dev\": connection refused)"
    )]
    #[case::not_let_in(
        Answer::Refused(500, "failed calling webhook \"members.flock.dev\": remote error: tls: certificate required".into()),
        "does not let the API server in"
    )]
    #[case::not_called(
        Answer::Refused(422, "ValidatingAdmissionPolicy 'flock-members' with binding 'flock-members' denied request".into()),
        "does not call Flock"
    )]
    #[case::flocks_own_no(
        Answer::Refused(403, "admission webhook \"members.flock.dev\" denied the request: because".into()), "because"
    )]
    fn one_pod_that_fares_badly_is_enough(#[case] answer: Answer<Pod>, #[case] says: &str) {
        let finding = judged("default", plain(), answer);
        assert_eq!(finding.verdict, Verdict::Broken);
        assert!(finding.message.contains(says), "{finding:?}");
    }

    #[test]
    fn where_nobody_may_create_pods_nothing_is_known() {
        let forbidden = || Answer::Refused(403, "pods is forbidden".into());
        assert_eq!(
            judged("default", forbidden(), forbidden()).verdict,
            Verdict::NotChecked
        );
        for namespace in ["kube-system", "flock-system"] {
            let finding = judged(namespace, plain(), plain());
            assert_eq!(finding.verdict, Verdict::NotChecked);
            assert!(finding.message.contains("--probe-namespace"));
        }
    }

    #[rstest]
    #[case(Answer::Refused(400, "admission webhook \"workloads.flock.dev\" denied the request: x".into()), Verdict::Ok)]
    #[case(Answer::Refused(403, "replicasets.apps is forbidden".into()), Verdict::NotChecked)]
    #[case(Answer::Admitted(()), Verdict::Warning)]
    fn a_bad_workload_must_be_denied(#[case] answer: Answer<()>, #[case] verdict: Verdict) {
        assert_eq!(advice(&answer, "default").verdict, verdict);
    }
}
