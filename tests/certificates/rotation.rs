//! New CAs and new leaves under calls, by request and by age.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use flock::tls::{authority::MAX_PREVIOUS, lifetime::Lifetimes, pem, request_rotation};

use super::{
    callers::Callers,
    replica::{LIFETIMES, Replica},
    scene::{PATIENCE, Scene, eventually, run},
};

/// FLOCK_TEST_ROTATIONS makes it a soak test.
fn rounds() -> usize {
    std::env::var("FLOCK_TEST_ROTATIONS").map_or(5, |rounds| rounds.parse().unwrap())
}

#[test]
fn rotations_by_request_fail_no_call() {
    run(async {
        let scene = Scene::new("requested").await;
        let mut replicas = [
            Replica::start(&scene, true, LIFETIMES).await,
            Replica::start(&scene, false, LIFETIMES).await,
        ];
        scene.configure(replicas[0].address, replicas[1].address).await;
        for replica in &mut replicas {
            replica.trusted().await;
        }
        let callers = Callers::start(&scene).await;
        let mut cas = HashSet::from([scene.entry("ca.crt").await]);
        for round in 0..rounds() {
            let before = scene.entry("ca.crt").await;
            let serials = replicas.each_ref().map(Replica::serial);
            let begun = Instant::now();
            request_rotation(scene.client.clone(), &scene.name, "flock-ca", &round.to_string())
                .await
                .unwrap();
            eventually("another CA", async || scene.entry("ca.crt").await != before).await;
            let took = begun.elapsed();
            eprintln!("round {round}: rotated after {took:?}");
            assert!(took >= LIFETIMES.settle, "it has to settle: {took:?}");
            assert!(cas.insert(scene.entry("ca.crt").await));
            for (replica, serial) in replicas.iter().zip(serials) {
                eventually("another leaf", async || replica.serial() != serial).await;
            }
            callers.go_on().await;
            // The leader may change between any two.
            let leads = round % 2 == 1;
            replicas[0].leader.send_replace(leads);
            replicas[1].leader.send_replace(!leads);
        }
        callers.assert_none_failed_after(5).await;
        let previous = pem::certificates(&scene.entry("previous.crt").await).unwrap();
        assert_eq!(previous.len(), rounds().min(MAX_PREVIOUS));
        assert_eq!(scene.entry("next.crt").await, b"");
        assert!(
            scene
                .bundles()
                .await
                .iter()
                .all(|bundle| pem::certificates(bundle).unwrap().len() == previous.len() + 1)
        );
    });
}

#[test]
fn certificates_that_live_for_seconds_are_renewed_in_time() {
    run(async {
        let lifetimes = Lifetimes {
            ca: Duration::from_secs(36),
            leaf: Duration::from_secs(12),
            backdate: Duration::from_secs(1),
            settle: Duration::from_secs(2),
        };
        let scene = Scene::new("short-lived").await;
        let mut replica = Replica::start(&scene, true, lifetimes).await;
        scene.configure(replica.address, replica.address).await;
        replica.trusted().await;
        let callers = Callers::start(&scene).await;
        let (mut serials, mut cas) = (HashSet::new(), HashSet::new());
        let begun = Instant::now();
        while cas.len() < 3 || serials.len() < 6 {
            assert!(
                begun.elapsed() < 2 * PATIENCE,
                "{} CAs, {} leaves",
                cas.len(),
                serials.len()
            );
            serials.insert(replica.serial());
            cas.insert(scene.entry("ca.crt").await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        callers.assert_none_failed().await;
        // What has expired is not kept.
        let kept = pem::certificates(&scene.entry("previous.crt").await).unwrap();
        assert!(kept.len() <= 2, "{}", kept.len());
    });
}
