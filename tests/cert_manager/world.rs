//! A lab with cert-manager and Flock, for one test at a time.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flock::tls::pem;
use flock_lab::{Components, DEFAULT_KUBERNETES, Flock, Lab, Options, Process};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::{
    client::{Peer, trusting},
    kubelet,
    processes::Installed,
    scene::Scene,
};

pub const CONFIGURATIONS: [&str; 2] = [
    "mutatingwebhookconfiguration/flock",
    "validatingwebhookconfiguration/flock",
];
const NAMESPACE: &str = "flock-system";
const MODULE: &str = "github.com/cert-manager/cert-manager";

pub struct World {
    pub installed: Installed,
    /// What a replica said of its readiness before there was a certificate.
    pub readiness_without: (u16, String),
    program: PathBuf,
    _controller: Process,
    injector: Option<Process>,
}

/// The one of this process; who has it has it alone.
pub fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    let world = WORLD.get_or_init(|| Mutex::new(World::start()));
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn start() -> Self {
        let components = Components::new(DEFAULT_KUBERNETES).expect("the lab's folder");
        let program = components
            .ensure_program("cert-manager")
            .expect("cert-manager is built");
        let module = components.module_dir("cert-manager", MODULE).expect("its CRDs");
        let lab = Arc::new(Lab::start(Flock::options(Options::fake(0))).expect("the lab starts"));
        let directory = lab.dir().unwrap().join("certificates");
        fs::create_dir(&directory).unwrap();

        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
        let directory_flag = format!("--certificate-dir={}", directory.display());
        let args = [
            "--certificates=cert-manager",
            &directory_flag,
            "--log-filter=info,flock=debug",
        ];
        let flock = Flock::new(&lab, root, binary, 2, &args).expect("a kubeconfig");
        flock.install_server_of_certs().expect("Flock starts");
        let client = lab.block_on(lab.client()).unwrap();
        let scene = Scene {
            client: client.clone(),
            name: NAMESPACE.into(),
            configuration: "flock".into(),
        };
        let installed = Installed {
            lab: Arc::clone(&lab),
            flock,
            scene,
        };
        let readiness = || installed.flock.admin(0, "/readyz").unwrap_or_default();
        installed.eventually("all but a certificate", || {
            let (code, told) = readiness();
            code == 503 && !told.contains("caches")
        });
        let readiness_without = readiness();

        let crds = module.join("deploy/crds").display().to_string();
        let apply = ["apply", "--server-side", "-f"];
        lab.kubectl(&[&apply[..], &[&crds]].concat()).expect("the CRDs");
        lab.kubectl(&["wait", "--for=condition=Established", "crd", "--all"])
            .expect("the CRDs");
        lab.block_on(async {
            let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
            tokio::spawn(kubelet::mount(secrets, "flock-serving", directory));
        });
        let mut world = Self {
            _controller: run(&lab, &program, "controller", &[]),
            installed,
            readiness_without,
            program,
            injector: None,
        };
        world.inject(&[]);
        world.apply("-f", "certs/certificates.yaml");
        for replica in 0..world.flock().len() {
            world.flock().wait_ready(replica).expect("a certificate");
        }
        world.apply("-k", "certs/webhook-config");
        world.eventually("a call", || world.call().is_ok());
        world
    }

    fn apply(&self, flag: &str, path: &str) {
        self.flock().apply_files(flag, path).expect("what is applied");
    }

    /// Runs the injector with these feature gates, from now on.
    pub fn inject(&mut self, gates: &[&str]) {
        self.injector = None;
        self.injector = Some(run(self.lab(), &self.program, "cainjector", gates));
    }

    pub fn lab(&self) -> &Lab {
        &self.installed.lab
    }

    pub fn flock(&self) -> &Flock {
        &self.installed.flock
    }

    pub fn kubectl(&self, args: &[&str]) -> String {
        self.lab().kubectl(args).unwrap()
    }

    /// A file with an object.
    pub fn file(&self, object: &Value) -> String {
        let path = self.lab().dir().unwrap().join("object.json");
        fs::write(&path, object.to_string()).unwrap();
        path.display().to_string()
    }

    pub fn call(&self) -> kube::Result<()> {
        let call = self.installed.call();
        self.lab().block_on(async move { call().await })
    }

    /// Waits until it holds.
    pub fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        self.installed.eventually(what, holds);
    }

    /// Has a Certificate issued anew, as `cmctl renew` does.
    pub fn renew(&self, certificate: &str) {
        let condition = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
            "message": "Certificate re-issuance manually triggered", "lastTransitionTime": Timestamp::now(),
        });
        let patch: Patch<DynamicObject> = Patch::Json(
            serde_json::from_value(
                json!([{ "op": "add", "path": "/status/conditions/-", "value": condition }]),
            )
            .unwrap(),
        );
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.installed.scene.client.clone(), NAMESPACE, &kind);
        // Refused while cert-manager is at it from the time before.
        self.eventually("a renewal", || {
            let params = PatchParams::default();
            let patched = async { api.patch_status(certificate, &params, &patch).await };
            self.lab().block_on(patched).is_ok()
        });
    }

    fn certificate(&self, secret: &str, entry: &str) -> CertificateDer<'static> {
        let secrets = self.installed.scene.secrets();
        let found = self.lab().block_on(async { secrets.get(secret).await }).unwrap();
        let text = found.data.unwrap_or_default().remove(entry).unwrap_or_default();
        pem::one_certificate(&text.0).unwrap()
    }

    /// The CA of the leaf, which the injector publishes.
    pub fn ca(&self) -> CertificateDer<'static> {
        self.certificate("flock-serving", "ca.crt")
    }

    /// The CA that signs.
    pub fn issuer_ca(&self) -> CertificateDer<'static> {
        self.certificate("flock-issuer-ca", "tls.crt")
    }

    /// The caBundles of both configurations.
    pub fn bundles(&self) -> [Vec<CertificateDer<'static>>; 2] {
        let scene = &self.installed.scene;
        let texts = self.lab().block_on(scene.bundles());
        texts.map(|text| pem::certificates(&text).unwrap_or_default())
    }

    /// Overwrites the caBundles, as an administrator does it.
    pub fn set_bundles(&self, bundle: &str) {
        let value = STANDARD.encode(bundle);
        let patch = json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": value }]);
        for configuration in CONFIGURATIONS {
            self.kubectl(&["patch", configuration, "--type=json", "-p", &patch.to_string()]);
        }
    }

    /// The leaf that was issued last.
    pub fn leaf(&self) -> CertificateDer<'static> {
        self.certificate("flock-serving", "tls.crt")
    }

    /// Waits until all replicas serve what was issued last, and that is not what was served before.
    pub fn serve_another(&self, before: &CertificateDer<'static>) {
        self.eventually("another leaf of all replicas", || {
            let leaf = self.leaf();
            leaf != *before
                && (0..self.flock().len()).all(|replica| self.served(replica).as_ref() == Some(&leaf))
        });
    }

    /// What a replica shows to those who trust the CAs of now.
    fn served(&self, replica: usize) -> Option<CertificateDer<'static>> {
        let trust = trusting(self.bundles().iter().flatten());
        let address = self.flock().webhook_address(replica);
        let peer = self
            .lab()
            .block_on(async move { Peer::connect(address, &trust).await });
        match peer {
            Ok(peer) => Some(peer.certificate()),
            Err(error) => {
                let kind = error.kind();
                assert_ne!(
                    kind,
                    io::ErrorKind::ConnectionRefused,
                    "replica {replica} is gone"
                );
                None
            }
        }
    }
}

fn run(lab: &Lab, program: &Path, role: &str, gates: &[&str]) -> Process {
    let kubeconfig = lab.kubeconfig().display().to_string();
    let args = [&[role, &kubeconfig], gates].concat();
    lab.spawn(&format!("cert-manager-{role}"), program, &args, &BTreeMap::new())
        .expect("cert-manager starts")
}
