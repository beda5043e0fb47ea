//! What reviews cost that were made to cost memory. Alone in its process: the allocator counts for all threads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "admission/setup.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is shared with the other tests of admission"
)]
mod setup;

use flock_lab::junk::{LARGEST, reviews};
use peak_alloc::PeakAlloc;
use tokio::sync::Mutex;

use setup::Webhooks;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Tests measure one after the other.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What is kept of a review is what the next ones need, whoever sent it.
#[tokio::test]
async fn what_is_kept_of_reviews_is_bounded_whatever_they_say() {
    let _alone = ALONE.lock().await;
    let webhooks = Webhooks::new();
    let before = MEMORY.current_usage();
    let review = |number: usize, uid: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"{uid}","namespace":"default",
            "operation":"CREATE","kind":{{"version":"v1","kind":"Pod"}},"resource":{{"version":"v1","resource":"pods"}},
            "object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"generateName":"f{number}-","labels":{{"flock.dev/name":"f{number}"}}}},
            "spec":{{"containers":[]}}}}}}}}"#
        )
    };
    let long = "u".repeat(200 * 1024);
    for number in 0..50 {
        let answer = webhooks.post("/mutate", review(number, &long)).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    for number in 0..60_000 {
        let answer = webhooks.post("/mutate", review(number, "short")).await;
        assert!(answer.allowed(), "{}", answer.message());
    }
    let kept = MEMORY.current_usage() - before;
    assert!(kept <= 16 * 1024 * 1024, "{} KiB are kept", kept / 1024);
}

/// The container may have 128 MiB. One largest body at a time (`ServeOptions::body_memory`) may take as much again.
#[tokio::test]
async fn no_review_takes_more_memory_than_its_own_size_once_more() {
    let _alone = ALONE.lock().await;
    let webhooks = Webhooks::new();
    for path in ["/mutate", "/validate"] {
        for (what, body) in reviews() {
            let body = if path == "/validate" {
                as_workload(body)
            } else {
                body
            };
            let before = MEMORY.current_usage();
            MEMORY.reset_peak_usage();
            let answer = webhooks.post(path, body).await;
            let length = answer.body.to_string().len();
            assert!(
                length < 64 * 1024,
                "{path} of too many {what} is answered by {} KiB",
                length / 1024
            );
            let took = MEMORY.peak_usage() - before;
            assert!(
                answer.status.is_success() || answer.status.as_u16() == 400,
                "{what}: {}",
                answer.body
            );
            assert!(
                took <= LARGEST,
                "{path} of too many {what} took {} KiB",
                took / 1024
            );
        }
    }
}

/// The same pod as the template of a ReplicaSet.
fn as_workload(review: Vec<u8>) -> Vec<u8> {
    String::from_utf8(review)
        .unwrap()
        .replacen(
            r#""object":{"apiVersion":"v1","kind":"Pod","#,
            r#""object":{"spec":{"template":{"#,
            1,
        )
        .replacen(
            r#"{"version":"v1","kind":"Pod"}"#,
            r#"{"version":"v1","kind":"ReplicaSet"}"#,
            1,
        )
        .replace("}}}}", "}}}}}}")
        .into_bytes()
}
