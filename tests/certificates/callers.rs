//! Users who go on creating objects that the webhooks are asked about.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::scene::{Scene, eventually};

/// Pause of a caller between two calls: several tests share two processors.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks the webhooks once.
pub type Call = Arc<dyn Fn() -> BoxFuture<'static, kube::Result<()>> + Send + Sync>;

pub struct Callers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

/// Asks the webhooks once.
pub async fn call(scene: &Scene) -> kube::Result<()> {
    let api: Api<ConfigMap> = scene.namespaced();
    let object = serde_json::from_value(json!({ "metadata": { "generateName": "asked-" } })).unwrap();
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&params, &object).await.map(drop)
}

impl Callers {
    /// Starts when the first call has succeeded.
    pub async fn start(scene: &Scene) -> Self {
        eventually("a first call", async || call(scene).await.is_ok()).await;
        let scene = scene.clone();
        let call: Call = Arc::new(move || {
            let scene = scene.clone();
            Box::pin(async move { call(&scene).await })
        });
        Self::start_at_once(&call, |_| false)
    }

    /// Starts now. Failures that are `excused` are not counted.
    pub fn start_at_once(call: &Call, excused: fn(&kube::Error) -> bool) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let caller = |_| {
            let (call, stop, done) = (call.clone(), stop.clone(), done.clone());
            tokio::spawn(async move {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match call().await {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) if excused(&error) => {}
                        Err(error) => failures.push(error.to_string()),
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                failures
            })
        };
        let tasks = (0..4).map(caller).collect();
        Self { stop, done, tasks }
    }

    /// Waits until some more calls were answered.
    pub async fn go_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        eventually("more calls", async || {
            self.done.load(Ordering::Relaxed) > before + 20
        })
        .await;
    }

    /// Lets so many rounds of calls pass, none of which may fail.
    pub async fn assert_none_failed_after(self, rounds: usize) {
        for _ in 0..rounds {
            self.go_on().await;
        }
        self.assert_none_failed().await;
    }

    /// Ends the calls, none of which may have failed.
    pub async fn assert_none_failed(self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = Vec::new();
        for task in self.tasks {
            failures.extend(task.await.unwrap());
        }
        let done = self.done.load(Ordering::Relaxed);
        eprintln!("{done} calls, {} of them failed", failures.len());
        assert!(
            failures.is_empty(),
            "{} of {done} calls failed, such as: {}",
            failures.len(),
            failures[0]
        );
        assert!(done > 100, "{done} calls are too few to say anything");
    }
}
