//! Three processes, as an administrator runs them: whichever is asked, what is published trusts it.

use flock::tls::{pem, request_rotation};

use super::{
    client::{Peer, trusting},
    processes::Installed,
    scene::eventually,
};

const WEEK: u32 = 7 * 24 * 3600;

/// Connects to each of these replicas with each published bundle and nothing else, by the name that API servers use.
/// As theirs does, the check refuses a leaf without that name among its subject alternative names, or one that is a CA.
fn assert_trusted(installed: &Installed, replicas: &[usize]) {
    installed.lab.block_on(async {
        for bundle in installed.scene.bundles().await {
            let trust = trusting(&pem::certificates(&bundle).unwrap());
            for replica in replicas {
                let peer = Peer::connect(installed.flock.webhook_address(*replica), &trust).await;
                assert!(peer.is_ok(), "replica {replica}: {:?}", peer.err());
            }
        }
    });
}

fn assert_answered_200_times(installed: &Installed) {
    let call = installed.call();
    installed.lab.block_on(async {
        eventually("a first call", async || call().await.is_ok()).await;
        for _ in 0..200 {
            call().await.unwrap();
        }
    });
}

#[test]
fn every_replica_is_trusted_by_what_is_published_also_when_the_leader_has_died() {
    let installed = Installed::start(3, 52 * WEEK, WEEK);
    assert_trusted(&installed, &[0, 1, 2]);
    assert_answered_200_times(&installed);

    let leads = |replica: &usize| {
        let metric = installed.flock.metric(*replica, "flock_leader", "");
        metric.is_ok_and(|leads| leads > 0.5)
    };
    installed.eventually("a leader", || (0..3).any(|replica| leads(&replica)));
    let leader = (0..3).find(leads).expect("a leader");
    let others: Vec<usize> = (0..3).filter(|replica| *replica != leader).collect();
    installed.flock.kill(leader).unwrap();
    assert_trusted(&installed, &others);

    // What the next leader publishes holds for all of them too, with the one that comes back.
    installed.eventually("another leader", || others.iter().any(leads));
    let scene = &installed.scene;
    let leaves = others.iter().map(|replica| installed.leaves(*replica));
    let leaves: Vec<usize> = leaves.collect();
    installed
        .lab
        .block_on(request_rotation(
            scene.client.clone(),
            &scene.name,
            "flock-ca",
            "1",
        ))
        .unwrap();
    for (replica, before) in others.iter().zip(leaves) {
        installed.eventually("a leaf of the new CA", || installed.leaves(*replica) > before);
    }
    assert_trusted(&installed, &others);
    installed.flock.start(leader).unwrap();
    installed.flock.wait_ready(leader).unwrap();
    assert_trusted(&installed, &[0, 1, 2]);
    assert_answered_200_times(&installed);
}
