//! Several replicas, one CA; and nothing is written when nothing is to be done.

use std::time::Duration;

use flock::tls::pem;

use super::{
    callers::{Callers, call},
    replica::{LIFETIMES, Replica},
    scene::{Scene, eventually, run},
};

#[test]
fn replicas_that_start_together_agree_on_one_ca() {
    run(async {
        let scene = Scene::new("agreement").await;
        let mut replicas = Vec::new();
        for leads in [true, false, false, false] {
            replicas.push(Replica::start(&scene, leads, LIFETIMES).await);
        }
        scene.configure(replicas[1].address, replicas[2].address).await;
        for replica in &mut replicas {
            replica.trusted().await;
        }
        let ca = scene.entry("ca.crt").await;
        assert_eq!(pem::certificates(&ca).unwrap().len(), 1);
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == ca)
        })
        .await;
        assert_eq!(scene.entry("previous.crt").await, b"", "there was never another");
        // Two of them are asked, and neither is the leader.
        Callers::start(&scene).await.assert_none_failed_after(10).await;
    });
}

#[test]
fn configurations_that_come_later_are_found() {
    run(async {
        let scene = Scene::new("install-order").await;
        let mut replica = Replica::start(&scene, true, LIFETIMES).await;
        assert!(
            replica.trusted().await.trusted,
            "nobody calls, so nobody distrusts"
        );
        scene.configure(replica.address, replica.address).await;
        let ca = scene.entry("ca.crt").await;
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == ca)
        })
        .await;
        eventually("a call", async || call(&scene).await.is_ok()).await;
    });
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    run(async {
        let scene = Scene::new("silence").await;
        let mut replicas = [
            Replica::start(&scene, true, LIFETIMES).await,
            Replica::start(&scene, false, LIFETIMES).await,
        ];
        scene.configure(replicas[0].address, replicas[1].address).await;
        for replica in &mut replicas {
            replica.trusted().await;
        }
        Callers::start(&scene).await.assert_none_failed_after(10).await;
        let before = scene.versions().await;
        // Also when the leader changes, and when another replica comes.
        replicas[0].leader.send_replace(false);
        replicas[1].leader.send_replace(true);
        let mut third = Replica::start(&scene, false, LIFETIMES).await;
        third.trusted().await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(scene.versions().await, before);
    });
}
