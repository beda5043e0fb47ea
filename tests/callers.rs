//! Flock with `--client-ca`, called by a real API server that is set up as `examples/client-ca` has it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says by panicking that something is not as it should be"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use flock_lab::{Flock, Lab, Options};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

const REPLICAS: usize = 2;
/// Where the example keeps the API server's files.
const EXAMPLE: &str = "/etc/kubernetes/pki/flock";
/// The name that the example allows.
const NAME: &str = "kube-apiserver-flock-client";
/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A CA of API servers.
struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A client certificate and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// The cluster that all tests share, one after the other.
struct Cluster {
    lab: Arc<Lab>,
    flock: Flock,
    files: PathBuf,
    /// How many times the client CAs were changed.
    changes: usize,
}

impl Cluster {
    fn take() -> MutexGuard<'static, Self> {
        static CLUSTER: OnceLock<Mutex<Cluster>> = OnceLock::new();
        let cluster = CLUSTER.get_or_init(|| Mutex::new(Self::start()));
        cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap().keep();
        let text = fs::read_to_string(root.join("examples/client-ca/api-server/admission.yaml")).unwrap();
        let here = files.display().to_string();
        fs::write(files.join("admission.yaml"), text.replace(EXAMPLE, &here)).unwrap();
        write_kubeconfig(&files, "flock.flock-system.svc");
        mount(&files, 0, &Ca::new().pem);
        let options = Options {
            raised_limits: true,
            ..Options::fake(6)
        };
        let flag = format!("--admission-control-config-file={here}/admission.yaml");
        let options = Flock::options(options).arg("kube-apiserver", flag);
        let lab = Arc::new(Lab::start(options).expect("the lab starts"));
        let client_ca = format!("--client-ca={here}/client-ca/ca.crt");
        let client_name = format!("--client-name={NAME}");
        let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
        // The API server has nothing to show yet: Flock becomes ready all the same.
        let flock = Flock::install(&lab, root, binary, REPLICAS, &[&client_ca, &client_name])
            .expect("Flock installs");
        Self {
            lab,
            flock,
            files,
            changes: 0,
        }
    }

    /// Flock trusts these CAs from now on, without a restart.
    fn trust(&mut self, cas: &[&Ca]) {
        self.changes += 1;
        let text: String = cas.iter().map(|ca| ca.pem.as_str()).collect();
        mount(&self.files, self.changes, &text);
        for replica in 0..REPLICAS {
            eventually("the replica has read the CAs", || {
                let log = self.flock.log(replica);
                log.matches("client certificates of these CAs are let in").count() == self.changes
            });
        }
    }

    /// Restarts the API server with a pair for the webhooks of this service.
    fn show(&self, (certificate, key): &(String, String), service: &str) {
        fs::write(self.files.join("client.crt"), certificate).unwrap();
        fs::write(self.files.join("client.key"), key).unwrap();
        write_kubeconfig(&self.files, service);
        // At once: in order it would first see all watches to their end.
        self.lab.kill("kube-apiserver").expect("the API server ends");
        let started = self.lab.start_component("kube-apiserver");
        started.expect("the API server starts");
    }

    /// Creates a pod as if, and says what the API server says.
    fn create(&self, labels: &serde_json::Value) -> Result<String, String> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "generateName": "db-", "namespace": "default", "labels": labels },
            "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
        });
        let path = self.files.join("pod.json");
        fs::write(&path, pod.to_string()).unwrap();
        let path = path.display().to_string();
        let args = [
            "create",
            "--dry-run=server",
            "-o=jsonpath={.metadata.name}",
            "-f",
            &path,
        ];
        self.lab.kubectl(&args).map_err(|error| format!("{error:#}"))
    }

    fn create_member(&self) -> Result<String, String> {
        self.create(&json!({ "flock.dev/name": "db" }))
    }

    fn await_members(&self, names: &str) {
        let args = [
            "get",
            "pods",
            "-l",
            "app=db",
            "-o=jsonpath={.items[*].metadata.name}",
        ];
        eventually(&format!("there are {names}"), || {
            self.lab.kubectl(&args).is_ok_and(|text| text == names)
        });
    }

    /// How many connections the replicas have refused for their certificate.
    fn refused(&self) -> f64 {
        let of = |replica| {
            let reason = "reason=\"client_certificate\"";
            let metric = "flock_server_connections_dropped_total";
            self.flock.metric(replica, metric, reason).expect("a metric")
        };
        (0..REPLICAS).map(of).sum()
    }
}

fn write_kubeconfig(files: &Path, service: &str) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/client-ca/api-server/kubeconfig.yaml");
    let text = fs::read_to_string(example).unwrap();
    assert!(text.contains("flock.flock-system.svc"));
    let text = text
        .replace(EXAMPLE, &files.display().to_string())
        .replace("flock.flock-system.svc", service);
    fs::write(files.join("kubeconfig.yaml"), text).unwrap();
}

/// Writes a generation of the CAs and swaps the link to it, as the kubelet does.
fn mount(files: &Path, generation: usize, text: &str) {
    let directory = files.join("client-ca");
    fs::create_dir_all(directory.join(format!("..{generation}"))).unwrap();
    fs::write(directory.join(format!("..{generation}/ca.crt")), text).unwrap();
    symlink(format!("..{generation}"), directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    let _ = symlink("..data/ca.crt", directory.join("ca.crt"));
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never comes that {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_api_server_with_a_certificate_is_let_in_and_its_ca_is_replaced_without_a_restart_of_flock() {
    let mut cluster = Cluster::take();
    let (old, new) = (Ca::new(), Ca::new());
    cluster.trust(&[&old]);
    cluster.show(&old.sign(NAME), "flock.flock-system.svc");
    let before = cluster.refused();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "db", "namespace": "default" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db", "flock.dev/name": "db" } },
                "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
            },
        },
    });
    cluster.lab.apply(&deployment.to_string()).expect("a Deployment");
    cluster.await_members("db-0 db-1 db-2");
    cluster.trust(&[&old, &new]);
    cluster
        .create_member()
        .expect("in a rotation the old certificate is good");
    cluster.show(&new.sign(NAME), "flock.flock-system.svc");
    cluster.trust(&[&new]);
    let scale = ["scale", "deployment/db", "--replicas=5"];
    cluster.lab.kubectl(&scale).expect("it is scaled");
    cluster.await_members("db-0 db-1 db-2 db-3 db-4");
    assert!((cluster.refused() - before).abs() < 0.5, "nobody was refused");
    for replica in 0..REPLICAS {
        cluster.flock.wait_ready(replica).expect("it is ready");
    }
}

#[test]
fn an_api_server_that_is_not_let_in_says_why() {
    let mut cluster = Cluster::take();
    let (ca, other) = (Ca::new(), Ca::new());
    cluster.trust(&[&ca]);
    let service = "flock.flock-system.svc";
    let cases = [
        (
            ca.sign(NAME),
            "another.example.svc",
            "tls: certificate required",
            "without a client certificate",
        ),
        (
            other.sign(NAME),
            service,
            "tls: unknown certificate authority",
            "UnknownIssuer",
        ),
        (
            ca.sign("system:node:node-0"),
            service,
            "tls: access denied",
            "system:node:node-0",
        ),
    ];
    for (pair, service, says, logged) in cases {
        cluster.show(&pair, service);
        let before = cluster.refused();
        let failure = "failed calling webhook \"members.flock.dev\"";
        // Go's client now and then tells that it has closed the connection, and not the alert that it did so for.
        let begin = Instant::now();
        loop {
            let error = cluster.create_member().expect_err("it is refused");
            assert!(error.contains(failure), "{error}");
            if error.contains(says) {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{error}");
        }
        // Once the connection is closed, a moment after the alert.
        eventually("it is counted", || cluster.refused() > before);
        eventually("it is logged", || {
            (0..REPLICAS).any(|replica| {
                let log = cluster.flock.log(replica);
                log.lines()
                    .any(|line| line.contains("refused a caller") && line.contains(logged))
            })
        });
        cluster.create(&json!({})).expect("other pods are not affected");
    }
    cluster.show(&ca.sign(NAME), service);
    let name = cluster.create_member().expect("it is let in again");
    assert!(
        name.starts_with("db-") && name.len() == 4,
        "{name} has an ordinal"
    );
}
