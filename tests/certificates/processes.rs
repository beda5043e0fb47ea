//! Flock's own processes, with certificates that live for seconds, in a lab that one test does as it likes with.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flock_lab::{Flock, Lab, Options, Signal};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use serde_json::json;

use super::{
    callers::{Call, Callers},
    scene::{PATIENCE, Scene},
};

pub struct Installed {
    pub lab: Arc<Lab>,
    pub flock: Flock,
    pub scene: Scene,
}

impl Installed {
    /// Replicas whose CA and leaves live for so many seconds.
    pub fn start(replicas: usize, ca: u32, leaf: u32) -> Self {
        let lab = Arc::new(Lab::start(Flock::options(Options::fake(0))).expect("the lab starts"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
        let (ca, leaf) = (format!("--test-ca-life={ca}"), format!("--test-leaf-life={leaf}"));
        let args = [&ca, &leaf, "--log-filter=info,flock=debug"];
        let flock = Flock::install(&lab, root, binary, replicas, &args).expect("Flock installs");
        let scene = Scene {
            client: lab.block_on(lab.client()).unwrap(),
            name: "flock-system".into(),
            configuration: "flock".into(),
        };
        Self { lab, flock, scene }
    }

    /// Creates a pod that would be a member, in a dry run.
    pub fn call(&self) -> Call {
        let pods: Api<Pod> = Api::namespaced(self.scene.client.clone(), "default");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "generateName": "asked-", "labels": { "flock.dev/name": "asked" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
        }))
        .unwrap();
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        Arc::new(move || {
            let (pods, pod, params) = (pods.clone(), pod.clone(), params.clone());
            Box::pin(async move { pods.create(&params, &pod).await.map(drop) })
        })
    }

    /// Users who call from now on; failures that are `excused` are not counted.
    pub fn callers(&self, excused: fn(&kube::Error) -> bool) -> Callers {
        let call = self.call();
        self.lab
            .block_on(async move { Callers::start_at_once(&call, excused) })
    }

    /// When the `leaf` or the `ca` of a replica ends, in Unix time.
    pub fn end_of(&self, certificate: &str, replica: usize) -> Duration {
        let name = "flock_certificate_expiry_timestamp_seconds";
        let label = format!("certificate=\"{certificate}\"");
        let seconds = self.flock.metric(replica, name, &label).unwrap();
        assert!(seconds > 0.0, "no metric {name} of {certificate}");
        Duration::from_secs_f64(seconds)
    }

    /// Stops replicas where they are, as a machine does that is frozen, until this moment.
    pub fn pause_until(&self, replicas: &[usize], end: Duration) {
        for replica in replicas {
            self.flock.signal(*replica, Signal::SIGSTOP).unwrap();
        }
        sleep_until(end);
    }

    /// Lets replicas go on, with some calls under way. All must succeed, but those whose time was up before: they have
    /// waited for as long as the replicas slept, and the machine may be slow besides.
    pub fn wake(&self, replicas: &[usize]) {
        let call = self.call();
        let calls = self.lab.block_on(async {
            let calls: Vec<_> = (0..20).map(|_| tokio::spawn(call())).collect();
            // As long as it takes until they wait for the replicas.
            tokio::time::sleep(Duration::from_millis(500)).await;
            calls
        });
        for replica in replicas {
            self.flock.signal(*replica, Signal::SIGCONT).unwrap();
        }
        for answer in self.lab.block_on(futures::future::join_all(calls)) {
            let error = answer.unwrap().err().map(|error| error.to_string());
            let failed = error.filter(|error| !error.contains("deadline exceeded"));
            assert_eq!(failed, None);
        }
    }

    /// How many leaves a replica has served.
    pub fn leaves(&self, replica: usize) -> usize {
        let count = self
            .flock
            .metric(replica, "flock_certificate_leaves_total", "")
            .unwrap();
        format!("{count}").parse().unwrap()
    }

    /// Waits until it holds.
    pub fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            let logs = || self.flock.log(0) + &self.flock.log(1);
            assert!(begun.elapsed() < PATIENCE, "{what}: not in time\n{}", logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits for a moment, in Unix time.
pub fn sleep_until(moment: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = moment.checked_sub(now).expect("the moment has not come yet");
    std::thread::sleep(left);
}
