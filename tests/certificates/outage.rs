//! An API server that is killed in the middle of a rotation, or away for longer than a leaf is young.

use std::time::Duration;

use flock::tls::{pem, request_rotation};
use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    rbac::v1::{ClusterRole, PolicyRule},
};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{
    processes::{Installed, sleep_until},
    scene::{Scene, eventually},
};

/// What does not name a webhook is the API server's own end. One that starts knows of webhooks, and of Services by
/// another watch.
fn no_trust_involved(error: &kube::Error) -> bool {
    let text = error.to_string();
    !text.contains("webhook")
        || text.contains("service \"flock\" not found")
        || text.contains("no endpoints available")
}

/// How far a rotation is.
async fn stage(scene: &Scene) -> &'static str {
    // It is asked for while it starts.
    let Ok(Some(secret)) = scene.secrets().get_opt("flock-ca").await else {
        return "unknown";
    };
    let annotations = secret.metadata.annotations.unwrap_or_default();
    let next = secret.data.unwrap_or_default().contains_key("next.crt");
    match (next, annotations.contains_key("flock.dev/next-published-at")) {
        (false, _) => "none",
        (true, false) => "staged",
        (true, true) => "published",
    }
}

/// Takes from Flock, or gives back to it, the right to write caBundles. Without it a rotation stops at "staged", which
/// is over in milliseconds otherwise, and may be passed between two looks.
async fn let_publish(scene: &Scene, may: bool) {
    let roles: Api<ClusterRole> = Api::all(scene.client.clone());
    let mut role = roles.get("flock").await.unwrap();
    let writes_bundles = |rule: &&mut PolicyRule| {
        let mut resources = rule.resources.iter().flatten();
        resources.any(|resource| resource == "mutatingwebhookconfigurations")
    };
    let mut found = role.rules.iter_mut().flatten().filter(writes_bundles);
    let verbs = &mut found.next().expect("a rule for configurations").verbs;
    verbs.retain(|verb| verb != "patch");
    if may {
        verbs.push("patch".into());
    }
    assert!(found.next().is_none(), "two rules for configurations");
    roles
        .replace("flock", &PostParams::default(), &role)
        .await
        .unwrap();
    // The authorizer hears of it by a watch.
    let reviews: Api<SubjectAccessReview> = Api::all(scene.client.clone());
    for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let review = serde_json::from_value(json!({
            "spec": {
                "user": "system:serviceaccount:flock-system:flock",
                "resourceAttributes": {
                    "group": "admissionregistration.k8s.io", "resource": resource, "name": "flock", "verb": "patch",
                },
            },
        }))
        .unwrap();
        eventually("an authorizer that knows it", async || {
            let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
            answer.status.is_some_and(|status| status.allowed == may)
        })
        .await;
    }
}

#[test]
fn a_rotation_outlives_the_api_server_and_no_call_fails_for_want_of_trust() {
    let installed = Installed::start(2, 24 * 3600, 3600);
    let scene = &installed.scene;
    let call = installed.call();
    installed.lab.block_on(async {
        eventually("a first call", async || call().await.is_ok()).await;
    });
    let callers = installed.callers(no_trust_involved);
    for (round, at) in ["staged", "published", "none"].into_iter().enumerate() {
        let before = installed.lab.block_on(async {
            let before = scene.entry("ca.crt").await;
            if at == "staged" {
                let_publish(scene, false).await;
            }
            request_rotation(scene.client.clone(), &scene.name, "flock-ca", &round.to_string())
                .await
                .unwrap();
            eventually("the rotation", async || {
                let begun = at != "none" || scene.entry("ca.crt").await != before;
                begun && stage(scene).await == at
            })
            .await;
            before
        });
        installed.lab.kill("kube-apiserver").unwrap();
        installed.lab.start_component("kube-apiserver").unwrap();
        installed.lab.block_on(async {
            if at == "staged" {
                eventually("the same stage", async || stage(scene).await == at).await;
                let_publish(scene, true).await;
            }
            eventually("the end of the rotation", async || {
                stage(scene).await == "none" && scene.entry("ca.crt").await != before
            })
            .await;
            let wanted = [scene.entry("previous.crt").await, scene.entry("ca.crt").await].concat();
            assert_eq!(pem::certificates(&wanted).unwrap().len(), round + 2);
            eventually("the bundles", async || {
                scene.bundles().await.iter().all(|bundle| *bundle == wanted)
            })
            .await;
            callers.go_on().await;
        });
        for replica in [0, 1] {
            installed.eventually("another leaf", || installed.leaves(replica) >= round + 2);
        }
    }
    installed.lab.block_on(callers.assert_none_failed_after(5));
}

#[test]
fn leaves_are_renewed_while_the_api_server_is_away() {
    let installed = Installed::start(2, 3600, 8);
    let ends = || [0, 1].map(|replica| installed.end_of("leaf", replica));
    let before = ends();
    installed.lab.kill("kube-apiserver").unwrap();
    sleep_until(before.into_iter().max().unwrap() + Duration::from_secs(1));
    for (now, before) in ends().iter().zip(before) {
        assert!(*now > before, "a leaf was not renewed");
    }
    let callers = installed.callers(no_trust_involved);
    installed.lab.start_component("kube-apiserver").unwrap();
    let call = installed.call();
    installed.lab.block_on(async {
        eventually("a call", async || call().await.is_ok()).await;
        callers.assert_none_failed_after(5).await;
    });
}
