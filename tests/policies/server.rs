//! The Deployment and what stands around it, taken by a real API server.

use std::time::{Duration, Instant};

use axum::http::Request;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::api::{Api, ListParams, PostParams, ResourceExt};
use kube::client::Body;
use rstest::rstest;
use serde_json::json;

use crate::cluster::{As, client, dry_run, from, run};
use crate::files::object;

#[test]
fn the_replicas_are_let_in_by_the_policy_of_their_own_namespace() {
    run(async {
        let deployments: Api<Deployment> = Api::namespaced(client(As::Admin).await, "flock-system");
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = deployments.get("flock").await.unwrap().status.unwrap_or_default();
            if status.ready_replicas == Some(2) {
                break;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn the_replicas_pass_the_pod_security_level_restricted() {
    run(async {
        let namespaces: Api<Namespace> = Api::all(client(As::Admin).await);
        let strict = json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        namespaces
            .create(&PostParams::default(), &from(strict))
            .await
            .unwrap();
        let template = object::<Deployment>("Deployment", "flock").spec.unwrap().template;
        let mut pod = Pod {
            metadata: template.metadata.unwrap(),
            spec: template.spec,
            ..Pod::default()
        };
        pod.metadata.name = Some("flock".into());
        // Its own account does not exist here, and Pod Security does not look at it.
        pod.spec.as_mut().unwrap().service_account_name = None;
        let pods: Api<Pod> = Api::namespaced(client(As::Admin).await, "strict");
        let deadline = Instant::now() + Duration::from_secs(60);
        // The namespace's default account comes a moment after the namespace.
        while let Err(error) = pods.create(&dry_run(), &pod).await {
            assert!(
                error.to_string().contains("serviceaccount") && Instant::now() < deadline,
                "{error}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn every_policy_compiles_without_a_warning() {
    run(async {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client(As::Admin).await);
        let deadline = Instant::now() + Duration::from_secs(60);
        for policy in policies.list(&ListParams::default()).await.unwrap() {
            let name = policy.name_any();
            let checked = loop {
                let status = policies.get(&name).await.unwrap().status;
                if let Some(checked) = status.and_then(|status| status.type_checking) {
                    break checked;
                }
                assert!(Instant::now() < deadline, "{name} was not checked");
                tokio::time::sleep(Duration::from_millis(100)).await;
            };
            let warnings = checked.expression_warnings.unwrap_or_default();
            assert!(warnings.is_empty(), "{name}: {warnings:#?}");
        }
    });
}

#[rstest]
#[case::lease(
    "flock-leader-election",
    "/apis/coordination.k8s.io/v1/namespaces/flock-system/leases/flock"
)]
#[case::pods("flock", "/api/v1/pods?limit=1")]
#[case::discovery("flock", "/version")]
fn requests_of_flock_are_put_before_those_of_tenants(#[case] schema: &str, #[case] path: &str) {
    run(async {
        let schemas: Api<FlowSchema> = Api::all(client(As::Admin).await);
        let uid = schemas.get(schema).await.unwrap().uid().unwrap();
        let flock = client(As::Flock).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = flock.send(request).await.unwrap();
            let matched = response
                .headers()
                .get("x-kubernetes-pf-flowschema-uid")
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if matched == uid {
                break;
            }
            // A schema takes effect a moment after it was made.
            assert!(
                Instant::now() < deadline,
                "{path} is classified by the schema of uid {matched}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}
