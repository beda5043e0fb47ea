//! The steady stream of creations: most are dry runs, which go through admission and store nothing; one in ten is
//! stored, as a pod that no node fits, and deleted again soon.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error};

use super::report::Report;

/// The namespace of the stream's pods.
pub(crate) const NAMESPACE: &str = "soak";
const STORED: u64 = 10;
const LIFE: Duration = Duration::from_secs(2);
/// As many at one time as an API server has seats for.
const AT_ONCE: usize = 64;

/// Runs until `over`.
pub(crate) async fn run(client: Client, rate: u32, report: Arc<Report>, over: Arc<AtomicBool>) {
    let api = Api::<Pod>::namespaced(client, NAMESPACE);
    let seats = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut number = 0_u64;
    while !over.load(Relaxed) {
        tick.tick().await;
        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
            break;
        };
        number += 1;
        let stored = number.is_multiple_of(STORED);
        let (api, report) = (api.clone(), Arc::clone(&report));
        tokio::spawn(async move {
            let created = create(&api, stored, &report).await;
            drop(seat);
            if let Some(name) = created.filter(|_| stored) {
                tokio::time::sleep(LIFE).await;
                delete(&api, &name).await;
            }
        });
    }
    let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
    let _ = seats.acquire_many(all).await;
}

async fn delete(api: &Api<Pod>, name: &str) {
    while let Err(error) = api.delete(name, &DeleteParams::default().grace_period(0)).await {
        if matches!(&error, Error::Api(status) if status.code == 404) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn create(api: &Api<Pod>, stored: bool, report: &Report) -> Option<String> {
    let params = PostParams {
        dry_run: !stored,
        ..PostParams::default()
    };
    let begun = Instant::now();
    match api.create(&params, &pod()).await {
        Ok(pod) => {
            report.admitted(begun.elapsed(), stored);
            pod.metadata.name
        }
        Err(Error::Api(status)) if status.code == 409 => {
            report.clashed();
            None
        }
        // 429 and 503 without the webhook's name are the API server's own, while it starts or ends.
        Err(Error::Api(status)) if status.message.contains("flock.dev") || status.code == 403 => {
            report.failed(begun, status.message.clone());
            None
        }
        Err(_) => {
            report.away();
            None
        }
    }
}

/// A member that no node fits: it has an identity and runs nowhere.
fn pod() -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {
            "generateName": "soak-",
            "labels": { "flock.dev/name": "soak" },
            "annotations": { "flock.dev/pin": "None" },
        },
        "spec": {
            "nodeSelector": { "soak.flock.dev/nowhere": "" },
            "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.10" }],
        },
    }))
    .unwrap_or_default()
}
