//! Whatever is done to the Secret or the configurations is mended in seconds, and no call fails meanwhile where the
//! damage itself does not make it fail.

use std::time::Instant;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    callers::{Callers, call},
    replica::{LIFETIMES, Replica},
    scene::{REPAIRED_WITHIN, Scene, eventually, run},
};

fn data(entry: &str, value: &[u8]) -> Value {
    json!({ "data": { entry: STANDARD.encode(value) } })
}

fn huge() -> Vec<u8> {
    b"-----BEGIN CERTIFICATE-----\n".repeat(32_000)
}

#[rstest]
#[case::deleted("deleted", None)]
#[case::emptied("emptied", Some(json!({ "data": null })))]
#[case::garbage("garbage", Some(data("ca.crt", b"garbage")))]
#[case::of_900_kilobytes("huge", Some(data("ca.crt", &huge())))]
#[case::a_broken_key(
    "key",
    Some(data("ca.key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
)]
fn a_lost_ca_is_replaced_and_no_call_fails(#[case] name: &'static str, #[case] damage: Option<Value>) {
    run(async move {
        let scene = Scene::new(&format!("lost-{name}")).await;
        let mut replicas = [
            Replica::start(&scene, true, LIFETIMES).await,
            Replica::start(&scene, false, LIFETIMES).await,
        ];
        scene.configure(replicas[0].address, replicas[1].address).await;
        for replica in &mut replicas {
            replica.trusted().await;
        }
        let callers = Callers::start(&scene).await;
        let before = scene.entry("ca.crt").await;
        let serials = replicas.each_ref().map(Replica::serial);
        let begun = Instant::now();
        match damage {
            Some(damage) => scene.patch_secret(damage).await,
            None => drop(
                scene
                    .secrets()
                    .delete("flock-ca", &DeleteParams::default())
                    .await
                    .unwrap(),
            ),
        }
        eventually("a new CA", async || {
            let now = scene.entry("ca.crt").await;
            now.len() < 1000 && now.starts_with(b"-----BEGIN") && now != before
        })
        .await;
        let new = scene.entry("ca.crt").await;
        // The old one goes on being trusted: its leaves are in use.
        let wanted = [before, new].concat();
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == wanted)
        })
        .await;
        let took = begun.elapsed();
        eprintln!("{name}: new CA published after {took:?}");
        assert!(took < REPAIRED_WITHIN, "{took:?}");
        for (replica, serial) in replicas.iter_mut().zip(serials) {
            eventually("a new leaf", async || replica.serial() != serial).await;
        }
        callers.assert_none_failed_after(5).await;
    });
}

#[test]
fn a_ca_that_is_deleted_while_no_replica_runs_is_not_trusted_any_more() {
    run(async {
        let scene = Scene::new("forgotten").await;
        let mut replica = Replica::start(&scene, true, LIFETIMES).await;
        scene.configure(replica.address, replica.address).await;
        replica.trusted().await;
        let leaked = scene.entry("ca.crt").await;
        drop(replica);
        let params = DeleteParams::default();
        scene.secrets().delete("flock-ca", &params).await.unwrap();
        let mut replicas = [
            Replica::start(&scene, true, LIFETIMES).await,
            Replica::start(&scene, false, LIFETIMES).await,
        ];
        for replica in &mut replicas {
            replica.trusted().await;
        }
        let new = scene.entry("ca.crt").await;
        assert_ne!(new, leaked);
        assert_eq!(scene.entry("previous.crt").await, b"");
        assert!(scene.bundles().await.iter().all(|bundle| *bundle == new));
    });
}

#[rstest]
#[case::by_the_leader("wiped", true)]
#[case::by_a_follower_where_there_is_no_leader("wiped-no-leader", false)]
fn a_wiped_bundle_is_healed_and_what_others_added_stays(#[case] name: &'static str, #[case] leads: bool) {
    run(async move {
        let scene = Scene::new(name).await;
        let mut replica = Replica::start(&scene, leads, LIFETIMES).await;
        scene.configure(replica.address, replica.address).await;
        replica.trusted().await;
        let ca = scene.entry("ca.crt").await;
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == ca)
        })
        .await;

        // As AKS does it.
        let added = json!([
            { "key": "control-plane", "operator": "DoesNotExist" },
            { "key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"] },
        ]);
        let patch = json!([
            { "op": "add", "path": "/webhooks/0/namespaceSelector/matchExpressions", "value": added },
            { "op": "add", "path": "/metadata/labels", "value": { "example.com/added": "yes" } },
            { "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" },
        ]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        let begun = Instant::now();
        let params = PatchParams::default();
        scene
            .mutating()
            .patch(&scene.name, &params, &Patch::<()>::Json(patch.clone()))
            .await
            .unwrap();
        scene
            .validating()
            .patch(&scene.name, &params, &Patch::<()>::Json(patch))
            .await
            .unwrap();
        eventually("the bundle again", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == ca)
        })
        .await;
        let took = begun.elapsed();
        eprintln!("{name}: healed after {took:?}");
        assert!(took < REPAIRED_WITHIN, "{took:?}");
        eventually("a call", async || call(&scene).await.is_ok()).await;

        let healed = scene.mutating().get(&scene.name).await.unwrap();
        let selector = healed.webhooks.unwrap().remove(0).namespace_selector.unwrap();
        assert_eq!(serde_json::to_value(selector.match_expressions).unwrap(), added);
        assert_eq!(healed.metadata.labels.unwrap()["example.com/added"], "yes");
        let before = scene.versions().await;
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        assert_eq!(scene.versions().await, before, "nobody fights over it");
    });
}

#[test]
fn a_replica_that_comes_after_the_secret_was_lost_restores_trust() {
    run(async {
        let scene = Scene::new("lost-meanwhile").await;
        let mut first = Replica::start(&scene, true, LIFETIMES).await;
        scene.configure(first.address, first.address).await;
        first.trusted().await;
        let ca = scene.entry("ca.crt").await;
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == ca)
        })
        .await;
        drop(first);
        scene
            .secrets()
            .delete("flock-ca", &DeleteParams::default())
            .await
            .unwrap();
        let mut second = Replica::start(&scene, true, LIFETIMES).await;
        second.trusted().await;
        let new = scene.entry("ca.crt").await;
        assert_ne!(new, ca);
        assert_eq!(scene.bundles().await, [new.clone(), new]);
    });
}
