//! Processes that stand still (a frozen machine, a debugger, SIGSTOP) while certificates fall due or end.

use std::time::{Duration, Instant};

use flock::tls::{pem, request_rotation};
use flock_lab::Signal;
use flock_lab::audit::{Mark, Request};

use super::{
    processes::{Installed, sleep_until},
    scene::eventually,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_replica_that_slept_through_the_end_of_its_leaf_fails_no_call_once_it_is_awake() {
    let installed = Installed::start(1, 3600, 6);
    for _ in 0..3 {
        let end = installed.end_of("leaf", 0);
        installed.pause_until(&[0], end + SECOND);
        installed.wake(&[0]);
        let callers = installed.callers(|_| false);
        installed.lab.block_on(callers.assert_none_failed_after(5));
        assert!(installed.end_of("leaf", 0) > end);
    }
}

#[test]
fn replicas_that_all_slept_when_the_ca_fell_due_renew_it_and_fail_no_call_once_they_are_awake() {
    let installed = Installed::start(2, 120, 15);
    let before = installed.lab.block_on(installed.scene.entry("ca.crt"));
    let end = installed.end_of("ca", 0);
    // Two thirds of its life are over 40 s before its end.
    sleep_until(end.checked_sub(43 * SECOND).unwrap());
    installed.pause_until(&[0, 1], end.checked_sub(38 * SECOND).unwrap());
    installed.wake(&[0, 1]);
    let callers = installed.callers(|_| false);
    installed.lab.block_on(async {
        eventually("another CA", async || {
            installed.scene.entry("ca.crt").await != before
        })
        .await;
        let both = [before, installed.scene.entry("ca.crt").await].concat();
        eventually("both in the bundles", async || {
            installed
                .scene
                .bundles()
                .await
                .iter()
                .all(|bundle| *bundle == both)
        })
        .await;
        callers.go_on().await;
    });
    for replica in [0, 1] {
        installed.eventually("a leaf of the new CA", || installed.end_of("ca", replica) > end);
    }
    installed.lab.block_on(callers.assert_none_failed_after(5));
}

#[test]
fn replicas_that_all_slept_through_the_end_of_the_ca_are_trusted_again_in_moments() {
    let installed = Installed::start(2, 24, 8);
    let end = installed.end_of("ca", 0);
    // Long enough for a new CA to be half used up too, and for the Lease to have ended.
    installed.pause_until(&[0, 1], end + SECOND);
    let begun = Instant::now();
    for replica in [0, 1] {
        installed.flock.signal(replica, Signal::SIGCONT).unwrap();
    }
    let call = installed.call();
    installed.lab.block_on(async {
        eventually("a call", async || call().await.is_ok()).await;
    });
    eprintln!("the first call succeeded {:.1?} after they woke", begun.elapsed());
    assert!(begun.elapsed() < 30 * SECOND, "{:?}", begun.elapsed());
    for replica in [0, 1] {
        installed.eventually("a leaf of the new CA", || installed.end_of("ca", replica) > end);
    }
    let callers = installed.callers(|_| false);
    installed.lab.block_on(callers.assert_none_failed_after(5));
    let bundles = installed.lab.block_on(installed.scene.bundles());
    assert!(
        bundles
            .iter()
            .all(|bundle| pem::certificates(bundle).unwrap().len() <= 2)
    );
}

#[test]
fn a_leader_that_slept_while_another_one_rotated_the_ca_undoes_nothing_of_it() {
    let installed = Installed::start(2, 24 * 3600, 3600);
    let scene = &installed.scene;
    let leads = |replica| {
        installed
            .flock
            .metric(replica, "flock_leader", "")
            .is_ok_and(|leads| leads > 0.5)
    };
    installed.eventually("a leader", || leads(0) || leads(1));
    let sleeper = usize::from(leads(1));
    installed.flock.signal(sleeper, Signal::SIGSTOP).unwrap();
    installed.eventually("another leader", || leads(1 - sleeper));
    for round in 0..2 {
        installed.lab.block_on(async {
            let before = scene.entry("ca.crt").await;
            request_rotation(scene.client.clone(), &scene.name, "flock-ca", &round.to_string())
                .await
                .unwrap();
            eventually("another CA", async || scene.entry("ca.crt").await != before).await;
        });
    }
    installed.eventually("the leaves of both", || installed.leaves(1 - sleeper) == 3);
    let before = installed.lab.block_on(scene.versions());
    let mark = Mark::now(&installed.lab.audit_log().unwrap()).unwrap();
    installed.wake(&[sleeper]);
    let callers = installed.callers(|_| false);
    installed.eventually("a leaf of the new CA", || installed.leaves(sleeper) == 2);
    installed.lab.block_on(callers.assert_none_failed_after(5));
    let ours = |request: &Request| {
        request.is_write()
            && request.user == "system:serviceaccount:flock-system:flock"
            && request.resource != "leases"
    };
    let writes = mark.since("flock-system", ours).unwrap();
    assert!(writes.is_empty(), "{writes:#?}");
    assert_eq!(installed.lab.block_on(scene.versions()), before);
}
