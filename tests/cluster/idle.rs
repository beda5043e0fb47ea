//! A connection that an API server has kept for as long as it keeps any, and calls over once more.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flock::tls::pem;
use flock::view::Source;
use flock_lab::audit::Mark;
use serde_json::json;

use crate::client::{Peer, trusting};
use crate::harness::Test;
use crate::world::World;

pub const TESTS: &[Test] = &[(
    "a_connection_that_was_idle_for_longer_than_api_servers_keep_one_still_answers",
    idle,
)];

/// API servers close connections themselves that were idle for 90 s (`IdleConnTimeout` of client-go's transports).
const IDLE: Duration = Duration::from_secs(95);

fn idle(world: &World) {
    let args = [
        "get",
        "secret",
        "flock-ca",
        "-n",
        "flock-system",
        "-o=jsonpath={.data.ca\\.crt}",
    ];
    let ca = STANDARD
        .decode(world.lab.kubectl(&args).expect("the CA"))
        .expect("base64");
    let trust = trusting(&pem::certificates(&ca).expect("certificates"));
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": "CREATE", "namespace": "default", "name": "plain",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "userInfo": {},
            "object": { "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "plain" }, "spec": { "containers": [] } },
        },
    })
    .to_string();
    let mark = Mark::now(&world.lab.audit_log().expect("the log's path")).expect("the audit log");
    let answers = world.lab.block_on(async {
        let mut peers = Vec::new();
        for replica in 0..world.flock.len() {
            let mut peer = Peer::connect(world.flock.webhook_address(replica), &trust)
                .await
                .expect("a connection");
            let answer = peer.post("/mutate", review.as_bytes()).await.expect("an answer");
            assert_eq!((answer.status, answer.closes), (200, false));
            peers.push(peer);
        }
        tokio::time::sleep(IDLE).await;
        let mut answers = Vec::new();
        for peer in &mut peers {
            answers.push(
                peer.post("/mutate", review.as_bytes())
                    .await
                    .map(|answer| answer.status),
            );
        }
        answers
    });
    for answer in answers {
        assert_eq!(answer.expect("the connection is open"), 200);
    }
    // Nothing happened to most of what is watched meanwhile, and not every kind has bookmarks, but each watch has begun
    // anew: a dead one would be noticed. What is beyond 65 s is for a busy machine, and less than the connection was idle.
    for replica in 0..world.flock.len() {
        let (_, metrics) = world.flock.admin(replica, "/metrics").expect("metrics");
        let ages: Vec<f64> = metrics
            .lines()
            .filter(|line| line.starts_with("flock_cache_age_seconds{"))
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .expect("a value")
                    .parse()
                    .expect("a number")
            })
            .collect();
        assert_eq!(ages.len(), Source::ALL.len(), "{metrics}");
        assert!(ages.iter().all(|age| *age < 85.0), "{ages:?}");
    }
    // Those of the certificates too, of which no age is told.
    let ended = mark
        .since("system:serviceaccount:flock-system:flock", |request| {
            request.verb == "watch"
        })
        .expect("the audit log");
    let resources: BTreeSet<_> = ended.iter().map(|request| request.resource.as_str()).collect();
    let watched = [
        "mutatingwebhookconfigurations",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "replicasets",
        "replicationcontrollers",
        "secrets",
        "services",
        "validatingwebhookconfigurations",
    ];
    assert_eq!(resources, BTreeSet::from(watched));
}
