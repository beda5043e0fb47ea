//! Flock itself in a lab with fake nodes: one process for each replica, behind the Service of its manifests, with
//! the rights of its ServiceAccount. Labs with real nodes install it as an administrator would, from `deploy/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::Lab;
use crate::options::Options;
use crate::process::{Process, Signal};

const ACCOUNT: &str = "system:serviceaccount:flock-system:flock";
const GROUPS: [&str; 3] = [
    "system:serviceaccounts",
    "system:serviceaccounts:flock-system",
    "system:authenticated",
];
/// Generous: on a machine that compiles at the same time, starting takes a second or two.
const START: Duration = Duration::from_secs(60);

/// Flock's replicas in a lab.
pub struct Flock {
    lab: Arc<Lab>,
    root: PathBuf,
    binary: PathBuf,
    kubeconfig: PathBuf,
    args: Vec<String>,
    /// What single replicas get besides.
    more_args: Vec<(usize, String)>,
    replicas: Vec<Mutex<Option<Process>>>,
}

impl Flock {
    /// The options that a lab needs so that the API server reaches replicas through their Service without a
    /// kube-proxy: it picks one of the Service's endpoints itself, at random.
    pub fn options(options: Options) -> Options {
        options.arg("kube-apiserver", "--enable-aggregator-routing=true")
    }

    /// Applies the manifests of the project at `root` and starts `replicas` of `binary`; `args` go to each.
    pub fn install(
        lab: &Arc<Lab>,
        root: &Path,
        binary: &Path,
        replicas: usize,
        args: &[&str],
    ) -> Result<Self> {
        let flock = Self::new(lab, root, binary, replicas, args)?;
        flock.reinstall()?;
        Ok(flock)
    }

    /// So many replicas of which nothing is applied or started yet; as for [`Self::install`].
    pub fn new(lab: &Arc<Lab>, root: &Path, binary: &Path, replicas: usize, args: &[&str]) -> Result<Self> {
        Ok(Self {
            lab: Arc::clone(lab),
            root: root.to_owned(),
            binary: binary.to_owned(),
            kubeconfig: lab.kubeconfig_for(ACCOUNT, &GROUPS)?,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            more_args: Vec::new(),
            replicas: (0..replicas).map(|_| Mutex::default()).collect(),
        })
    }

    /// Applies the manifests again and starts the replicas that do not run, as after an uninstallation.
    pub fn reinstall(&self) -> Result<()> {
        // As an administrator does it: the server first, then the configuration.
        self.apply_server()?;
        self.start_all()?;
        self.apply_files("-k", "webhook-config")?;
        for replica in 0..self.replicas.len() {
            self.wait_ready(replica)?;
        }
        Ok(())
    }

    /// Applies the server of `certs/`, for certificates of cert-manager, and starts it: replicas are ready once they have
    /// one.
    pub fn install_server_of_certs(&self) -> Result<()> {
        self.apply_server()?;
        self.apply_kinds("certs", &["ClusterRole", "Role"])?;
        self.start_all()
    }

    fn apply_server(&self) -> Result<()> {
        for file in [
            "deploy/namespace.yaml",
            "deploy/namespace-policy.yaml",
            "deploy/service-account.yaml",
            "deploy/rbac.yaml",
        ] {
            self.apply_files("-f", file)?;
        }
        self.lab
            .apply(&service(&self.lab, self.replicas.len()).to_string())
    }

    /// Applies one object of each of these kinds, of a kustomization in the project.
    pub fn apply_kinds(&self, directory: &str, kinds: &[&str]) -> Result<()> {
        let directory = self.root.join(directory);
        let rendered = self.lab.kubectl(&["kustomize".as_ref(), directory.as_os_str()])?;
        for kind in kinds {
            let says = format!("kind: {kind}");
            let mut all = rendered.split("\n---\n");
            let found = all.find(|object| object.lines().any(|line| line == says));
            let object = found.with_context(|| format!("{} has no {kind}", directory.display()))?;
            self.lab.apply(object)?;
        }
        Ok(())
    }

    fn start_all(&self) -> Result<()> {
        for replica in 0..self.replicas.len() {
            if self.slot(replica)?.is_none() {
                self.start(replica)?;
            }
        }
        Ok(())
    }

    /// Applies what is at `path` in the project: a file with `-f`, a kustomization with `-k`.
    pub fn apply_files(&self, flag: &str, path: &str) -> Result<()> {
        let path = self.root.join(path);
        // A test may have applied them before, by its own hand.
        let args = ["apply", "--server-side", "--force-conflicts", flag].map(AsRef::as_ref);
        self.lab
            .kubectl(&[&args[..], &[path.as_os_str()]].concat())
            .map(drop)
    }

    /// How many replicas there are, running or not.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Gives one replica an argument more, from its next start on.
    pub fn add_arg(&mut self, replica: usize, arg: &str) {
        self.more_args.push((replica, arg.to_owned()));
    }

    /// Starts a replica that does not run.
    pub fn start(&self, replica: usize) -> Result<()> {
        let ip = self.lab.host_ip();
        let webhook = format!("--webhook-address={ip}:{}", port(replica));
        let admin = format!("--admin-address={ip}:{}", admin_port(replica));
        let identity = format!("--identity=flock-{replica}");
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let mut args = vec![
            "serve",
            &webhook,
            &admin,
            &identity,
            &kubeconfig,
            "--namespace=flock-system",
            "--pre-drain=3",
        ];
        args.extend(self.args.iter().map(String::as_str));
        let own = self.more_args.iter().filter(|(of, _)| *of == replica);
        args.extend(own.map(|(_, arg)| arg.as_str()));
        let env = BTreeMap::from([("RUST_BACKTRACE".to_owned(), "1".to_owned())]);
        let process = self
            .lab
            .spawn(&format!("flock-{replica}"), &self.binary, &args, &env)?;
        *self.slot(replica)? = Some(process);
        Ok(())
    }

    /// Waits until a replica says that it is ready.
    pub fn wait_ready(&self, replica: usize) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let answer = self.admin(replica, "/readyz");
            match answer {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                Ok((code, body)) => bail!(
                    "flock-{replica} is not ready: {code} {body}\n{}",
                    self.log(replica)
                ),
                Err(error) => bail!(
                    "flock-{replica} does not answer: {error:#}\n{}",
                    self.log(replica)
                ),
            }
        }
    }

    /// Sends a signal to a replica.
    pub fn signal(&self, replica: usize, signal: Signal) -> Result<()> {
        self.slot(replica)?
            .as_ref()
            .context("the replica does not run")?
            .signal(signal)
    }

    /// Ends a replica by SIGTERM and waits for its end.
    pub fn stop(&self, replica: usize) -> Result<()> {
        if let Some(process) = self.slot(replica)?.take() {
            process.terminate(START)?;
        }
        Ok(())
    }

    /// Ends a replica by SIGKILL.
    pub fn kill(&self, replica: usize) -> Result<()> {
        if let Some(process) = self.slot(replica)?.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Replaces a replica by a new process, as an upgrade does: the Service leaves it out from when it is about to end
    /// until it is ready again.
    pub fn replace(&self, replica: usize) -> Result<()> {
        self.lab
            .apply(&endpoints(&self.lab, replica, false).to_string())?;
        self.stop(replica)?;
        self.start(replica)?;
        self.wait_ready(replica)?;
        self.lab.apply(&endpoints(&self.lab, replica, true).to_string())
    }

    /// Where a replica's webhook listens.
    pub fn webhook_address(&self, replica: usize) -> std::net::SocketAddr {
        std::net::SocketAddr::new(self.lab.host_ip(), port(replica))
    }

    /// The log of a replica so far.
    pub fn log(&self, replica: usize) -> String {
        let log = self
            .lab
            .logs()
            .map(|logs| logs.join(format!("flock-{replica}.log")));
        log.ok()
            .and_then(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default()
    }

    /// The value of a metric of a replica, summed over its labels that contain `label`.
    pub fn metric(&self, replica: usize, name: &str, label: &str) -> Result<f64> {
        let (_, text) = self.admin(replica, "/metrics")?;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
                && line.contains(label)
        });
        Ok(lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// GETs a path of a replica's admin address: status code and body.
    pub fn admin(&self, replica: usize, path: &str) -> Result<(u16, String)> {
        let address = std::net::SocketAddr::new(self.lab.host_ip(), admin_port(replica));
        let request = format!("GET {path} HTTP/1.1\r\nHost: flock\r\nConnection: close\r\n\r\n");
        let answer = self.lab.block_on(async move {
            let exchange = async {
                let mut stream = tokio::net::TcpStream::connect(address).await?;
                stream.write_all(request.as_bytes()).await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await?;
                Ok::<_, std::io::Error>(answer)
            };
            tokio::time::timeout(Duration::from_secs(5), exchange).await
        })??;
        let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((code.context("no HTTP answer")?, body.to_owned()))
    }

    fn slot(&self, replica: usize) -> Result<std::sync::MutexGuard<'_, Option<Process>>> {
        let slot = self
            .replicas
            .get(replica)
            .with_context(|| format!("there is no replica {replica}"))?;
        slot.lock()
            .map_err(|_| anyhow::anyhow!("a thread died that held replica {replica}"))
    }
}

fn port(replica: usize) -> u16 {
    18443 + u16::try_from(replica).unwrap_or(0)
}

fn admin_port(replica: usize) -> u16 {
    18080 + u16::try_from(replica).unwrap_or(0)
}

/// The Service of `deploy/`, whose endpoints are written by hand, since processes are no pods: a slice for each
/// replica, since their ports differ.
fn service(lab: &Lab, replicas: usize) -> serde_json::Value {
    let mut items = vec![json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "flock", "namespace": "flock-system" },
        "spec": { "ports": [{ "name": "webhook", "port": 443, "targetPort": 8443 }] },
    })];
    items.extend((0..replicas).map(|replica| endpoints(lab, replica, true)));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn endpoints(lab: &Lab, replica: usize, ready: bool) -> serde_json::Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("flock-{replica}"), "namespace": "flock-system",
            "labels": { "kubernetes.io/service-name": "flock" },
        },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [lab.host_ip().to_string()], "conditions": { "ready": ready } }],
        "ports": [{ "name": "webhook", "port": port(replica), "protocol": "TCP" }],
    })
}
