//! The cluster of all tests, and a namespace for each.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flock_lab::audit::Mark;
use flock_lab::recording::Recording;
use flock_lab::{Flock, Lab, Options};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::runtime::Runtime;

#[allow(unused_imports, reason = "not every suite uses it from here")]
pub use crate::objects::workload;
pub use crate::scene::Scene;

/// How long anything may take: generous, since the machine may be busy with other things, and a kubelet that the
/// Node authorizer refused a claim a moment too early tries again only a minute later.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The cluster, with Flock in it.
pub struct World {
    pub flock: Flock,
    pub lab: Arc<Lab>,
    pub client: Client,
    /// Its threads are in the lab's network.
    pub runtime: Runtime,
    namespaces: AtomicU32,
}

impl World {
    /// A cluster whose nodes kwok plays.
    pub fn fake() -> Self {
        let options = Options {
            raised_limits: true,
            ..Options::fake(12)
        };
        // Fields of pods that this program's types do not know are alpha in 1.34; on by default since 1.35.
        let newer = "--feature-gates=EnvFiles=true,ContainerRestartRules=true";
        Self::start(options.arg("kube-apiserver", newer))
    }

    /// A cluster of this kind, with Flock's replicas as processes beside it.
    pub fn start(options: Options) -> Self {
        let options = Flock::options(options);
        let lab = Arc::new(Lab::start(options).expect("the lab starts"));
        lab.enter().expect("this thread joins the lab's network");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
        let args = ["--node-loss-grace=2", "--log-filter=info,flock=debug"];
        let flock = Flock::install(&lab, root, binary, 2, &args).expect("Flock installs");
        let client = lab.block_on(lab.client()).expect("a client");
        let runtime = lab.runtime().expect("a runtime");
        Self {
            flock,
            lab,
            client,
            runtime,
            namespaces: AtomicU32::new(0),
        }
    }

    /// Keeps the logs of a run that failed.
    pub fn keep(&self) {
        self.lab.keep_state();
        let logs = self
            .lab
            .logs()
            .map_or_else(|error| error.to_string(), |path| path.display().to_string());
        eprintln!("the lab's logs are kept: {logs}");
    }

    /// A metric of a replica, summed over its labels.
    pub fn metric(&self, replica: usize, name: &str) -> f64 {
        self.flock.metric(replica, name, "").unwrap_or_default()
    }

    /// The replica that reconciles.
    pub fn leader(&self) -> usize {
        usize::from(self.metric(1, "flock_leader") > 0.5)
    }

    /// A namespace of its own for a test, recorded from its first pod on.
    pub fn namespace(&self, prefix: &str) -> Scene<'_> {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        self.lab.enter().expect("this thread joins the lab's network");
        let api = Api::<Namespace>::all(self.client.clone());
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        self.lab
            .block_on(async { api.create(&PostParams::default(), &object).await })
            .expect("a namespace");
        let recording = Recording::start(self.runtime.handle(), self.client.clone(), &name);
        let audit = Mark::now(&self.lab.audit_log().expect("the log's path")).expect("the audit log");
        Scene {
            world: self,
            namespace: name,
            recording,
            audit,
            may_move: false,
            without_flock: false,
        }
    }
}
