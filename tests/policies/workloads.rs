//! Which workloads the validating webhook is called for. There is no Flock here, so with failurePolicy Fail a call
//! shows as an error, and so would a condition that errs.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{As, client, dry_run, expect, merge, run};
use crate::files::object;

const CALLED: Option<&str> = Some("failed calling webhook \"workloads.flock.dev\"");

async fn workloads(api_version: &str, kind: &str) -> Api<DynamicObject> {
    let mut webhook: ValidatingWebhookConfiguration = object("ValidatingWebhookConfiguration", "flock");
    webhook.webhooks.as_mut().unwrap()[0].failure_policy = Some("Fail".into());
    let client = client(As::Admin).await;
    let params = PatchParams::apply("test").force();
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    webhooks
        .patch("flock", &params, &Patch::Apply(&webhook_with_type(&webhook)))
        .await
        .unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::default_namespaced_with(client, &resource)
}

fn webhook_with_type(webhook: &ValidatingWebhookConfiguration) -> Value {
    serde_json::to_value(webhook).unwrap()
}

fn template(labelled: bool, restart_policy: &str) -> Value {
    let mut labels = json!({"app": "w"});
    if labelled {
        labels["flock.dev/name"] = "w".into();
    }
    json!({
        "metadata": {"labels": labels},
        "spec": {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "pause"}]},
    })
}

fn workload(api_version: &str, kind: &str, labelled: bool, owner: Option<&str>) -> DynamicObject {
    let selector = json!({"matchLabels": {"app": "w"}});
    let spec = match kind {
        "CronJob" => {
            json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template(labelled, "Never")}}})
        }
        "Job" => json!({"template": template(labelled, "Never")}),
        "ReplicationController" => json!({"replicas": 0, "template": template(labelled, "Always")}),
        "DaemonSet" => json!({"selector": selector, "template": template(labelled, "Always")}),
        _ => json!({"replicas": 0, "selector": selector, "template": template(labelled, "Always")}),
    };
    let owners = owner.map(
        |kind| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": true}]),
    );
    // The workload's own label is no reason for a call.
    let labels = json!({"flock.dev/name": "w"});
    let metadata =
        json!({"name": format!("w-{}", kind.to_lowercase()), "labels": labels, "ownerReferences": owners});
    serde_json::from_value(
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}),
    )
    .unwrap()
}

#[rstest]
fn a_workload_is_judged_if_its_template_is_labelled(
    #[values(
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("v1", "ReplicationController"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob")
    )]
    kind: (&str, &str),
) {
    run(async {
        let api = workloads(kind.0, kind.1).await;
        let labelled = workload(kind.0, kind.1, true, None);
        expect(CALLED, || async { api.create(&dry_run(), &labelled).await }).await;
        let plain = workload(kind.0, kind.1, false, None);
        expect(None, || async { api.create(&dry_run(), &plain).await }).await;
    });
}

#[rstest]
#[case::deployment("ReplicaSet", "apps/v1", "Deployment", None)]
#[case::cron_job("Job", "batch/v1", "CronJob", None)]
#[case::another_controller("ReplicaSet", "apps/v1", "Rollout", CALLED)]
fn a_workload_made_by_one_that_was_judged_is_not_judged_again(
    #[case] kind: &str,
    #[case] api_version: &str,
    #[case] owner: &str,
    #[case] expected: Option<&str>,
) {
    run(async {
        let api = workloads(api_version, kind).await;
        // Only once a call is seen, not being called means something.
        let judged = workload(api_version, kind, true, None);
        expect(CALLED, || async { api.create(&dry_run(), &judged).await }).await;
        let made = workload(api_version, kind, true, Some(owner));
        expect(expected, || async { api.create(&dry_run(), &made).await }).await;
    });
}

#[test]
fn an_update_is_judged_if_it_changes_the_spec_of_a_workload_that_stays() {
    run(async {
        let api = workloads("apps/v1", "Deployment").await;
        let mut deployment = workload("apps/v1", "Deployment", false, None);
        deployment.metadata.name = Some("updated".into());
        deployment.metadata.finalizers = Some(vec!["example.com/keep".into()]);
        api.create(&PostParams::default(), &deployment).await.unwrap();
        let join = json!({"spec": {"template": {"metadata": {"labels": {"flock.dev/name": "w"}}}}});
        merge(&api, "updated", &join, CALLED).await;
        merge(
            &api,
            "updated",
            &json!({"metadata": {"annotations": {"a": "b"}}}),
            None,
        )
        .await;
        merge(&api, "updated", &json!({"spec": {"paused": true}}), None).await;
    });
}
