//! The composition root: the only place that knows every part.

mod certificates;
mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::SignedDuration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument, info, info_span};

use crate::admission::{Admission, Lookup, Policy, Reservations, routes};
use crate::args::{Cli, ClusterArgs, Command, ServeArgs};
use crate::leader::Leadership;
use crate::patience::{self, PATIENCE};
use crate::prepare::PrepareError;
use crate::reconcile::{Controller, OwnImage, PlanConfig};
use crate::serve::{Grace, Phase, Readiness, ServeMetrics, ServeOptions, Shutdown, shutdown};
use crate::storage::HelperConfig;
use crate::tls::{ClientAuth, LeafResolver, LeafStatus, server_config};
use crate::view::{self, SharedView};
use certificates::{certificates, client_auth, watch_certificate};

pub use metrics::Metrics;

/// The image of helpers where Flock does not run in a pod itself.
const DEFAULT_IMAGE: &str = "flock:dev";

/// Does what the command line says.
pub fn run(cli: Cli) -> Result<()> {
    // Before anything can choose another one: ring is what every part is built with.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        bail!("another cryptography provider was installed first");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command {
        Command::Serve(args) => {
            crate::telemetry::init(args.log_format, &args.log_filter).context("--log-filter")?;
            runtime.block_on(serve(args))
        }
        Command::Status(args) => {
            Ok(runtime.block_on(crate::cli::status::run(&args, &mut std::io::stdout().lock()))?)
        }
        Command::Release(args) => {
            Ok(runtime.block_on(crate::cli::release::run(&args, &mut std::io::stdout().lock()))?)
        }
        Command::Doctor(args) => {
            Ok(runtime.block_on(crate::cli::doctor::run(&args, &mut std::io::stdout().lock()))?)
        }
        Command::Inject(args) => Ok(crate::cli::inject::run(&args)?),
        Command::Prepare(args) => {
            crate::prepare::prepare(&args, jiff::Timestamp::now())?;
            Ok(())
        }
    }
}

/// The exit code for an error: a helper's tells the reconciler what is the matter.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<PrepareError>()
        .map_or(1, |error| error.exit().code())
}

/// A client for the cluster.
pub async fn client(args: &ClusterArgs) -> Result<Client> {
    let mut config = match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("kubeconfig {} cannot be read", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::infer()
            .await
            .context("no cluster: give --kubeconfig, or run in a pod")?,
    };
    // Whoever asks knows what a refusal means and when to ask again. Left to itself the client tries anything that
    // was answered with 429 up to 15 times, 10 s apart, and that is how a PodDisruptionBudget forbids an eviction:
    // one flock that must wait would hold up all others.
    config.default_retry = false;
    patience::client(config, PATIENCE).context("the client for the cluster cannot be made")
}

async fn serve(args: ServeArgs) -> Result<()> {
    let client = client(&args.cluster).await?;
    let identity = args
        .identity
        .clone()
        .unwrap_or_else(|| format!("flock-{}", std::process::id()));
    let (trigger, ending) = shutdown::channel();
    let signals = shutdown::signals().context("signals cannot be handled")?;
    let grace = Grace {
        unready: Duration::from_secs(args.pre_drain.into()),
        ..Grace::default()
    };
    tokio::spawn(trigger.on_signals(signals, grace));

    let mut parts = Parts::start(&args, client, &identity).await?;
    let webhook = crate::serve::bind(args.webhook_address).await?;
    let admin = crate::serve::bind(args.admin_address).await?;
    let (webhook_address, admin_address) = (webhook.local_addr()?, admin.local_addr()?);
    parts.watch_readiness(webhook_address, &ending);
    let admin_router = shutdown_router(&parts, &ending);
    let metrics = parts.serve_metrics.admin();
    parts.tasks.spawn(async move {
        // The admin port answers to the very end, so it takes no part in the webhook's shutdown.
        let (_never, open) = shutdown::channel();
        crate::serve::serve(admin, None, admin_router, ServeOptions::admin(), metrics, open).await;
    });
    info!(webhook = %webhook_address, admin = %admin_address, identity, "serving");
    let served = crate::serve::serve(
        webhook,
        Some(Arc::clone(&parts.tls)),
        parts.router.clone(),
        ServeOptions::default(),
        parts.serve_metrics.clone(),
        ending.clone(),
    );
    tokio::select! {
        cut = served => info!(cut, "served all there was"),
        ended = parts.tasks.join_next() => bail!("a part of Flock ended before its time: {ended:?}"),
    }
    // Only now, so that a rotation during a long drain is still followed.
    parts.leadership.release().await;
    Ok(())
}

fn shutdown_router(parts: &Parts, ending: &Shutdown) -> axum::Router {
    crate::serve::admin::router(
        parts.readiness.clone(),
        Arc::clone(&parts.registry),
        ending.clone(),
    )
}

/// The running parts of the process.
struct Parts {
    tasks: JoinSet<()>,
    leadership: Leadership,
    view: SharedView,
    router: axum::Router,
    tls: Arc<rustls::ServerConfig>,
    resolver: Arc<LeafResolver>,
    /// The certificate by which our own port knows us, where it asks for one.
    own_caller: Option<Arc<CertifiedKey>>,
    certificate: watch::Receiver<Option<LeafStatus>>,
    readiness: Readiness,
    registry: Arc<Registry>,
    serve_metrics: ServeMetrics,
}

impl Parts {
    async fn start(args: &ServeArgs, client: Client, identity: &str) -> Result<Self> {
        let view = SharedView::default();
        let reservations = Arc::new(Mutex::new(Reservations::default()));
        let metrics = Metrics::new(view.clone(), Arc::clone(&reservations));
        let mut tasks = JoinSet::new();
        let client_auth = client_auth(args, metrics.certificates.clone(), &mut tasks).await?;
        let own_caller = match &client_auth {
            ClientAuth::None => None,
            ClientAuth::Required(verifier) => Some(verifier.own()),
        };
        let listed = view.clone();
        let able = async move { listed.wait_until_synced().await };
        let leadership = Leadership::compete(client.clone(), &args.namespace, "flock", identity, able);
        let leads = leadership.leads();

        let settled = Arc::clone(&reservations);
        let watches = view::run(
            client.clone(),
            view.clone(),
            args.namespace.clone(),
            Arc::new(move |key, pod| {
                if let Some(ordinal) = pod.ordinal {
                    settled.lock().settle(key, ordinal);
                }
            }),
            Duration::from_millis(args.test_watch_delay),
        );
        tasks.spawn(watches.instrument(info_span!("watches")));
        let plan_config = PlanConfig {
            node_loss_grace: SignedDuration::from_secs(i64::from(args.node_loss_grace)),
            helper: helper_config(args),
        };
        let controller = Controller::new(
            client.clone(),
            view.clone(),
            identity,
            plan_config,
            helper_image(&client, args, identity),
            metrics.reconcile,
        );
        tasks.spawn(
            controller
                .run(leadership.lead())
                .instrument(info_span!("reconciler")),
        );
        let admission = Admission::new(
            view.clone(),
            reservations,
            Lookup::new(client.clone(), metrics.admission.lookups.clone()),
            Policy {
                host_path_root: args.host_path_root.clone(),
            },
            leads,
            metrics.admission,
        );
        let (resolver, certificate) =
            certificates(args, client, leadership.lead(), metrics.certificates, &mut tasks);
        Ok(Self {
            tls: Arc::new(server_config(Arc::clone(&resolver), client_auth).context("TLS")?),
            router: routes(Arc::new(admission)),
            registry: Arc::new(metrics.registry),
            tasks,
            leadership,
            view,
            resolver,
            own_caller,
            certificate,
            readiness: metrics.readiness,
            serve_metrics: metrics.serve,
        })
    }

    /// Ready is: the caches are complete, a certificate that the API server trusts is loaded, and our own port
    /// shows it.
    fn watch_readiness(&mut self, address: SocketAddr, ending: &Shutdown) {
        let caches = self.readiness.condition("caches");
        let view = self.view.clone();
        self.tasks.spawn(async move {
            view.wait_until_synced().await;
            caches.met();
            std::future::pending::<()>().await;
        });
        let trusted = self.readiness.condition("certificate");
        self.tasks.spawn(watch_certificate(
            self.certificate.clone(),
            Arc::clone(&self.resolver),
            trusted,
        ));
        let port = self.readiness.condition("port");
        let (resolver, own_end) = (Arc::clone(&self.resolver), ending.clone());
        let caller = self.own_caller.clone();
        self.tasks.spawn(async move {
            crate::serve::self_check(address, resolver, caller, port, own_end.clone()).await;
            own_end.reached(Phase::Aborted).await;
            std::future::pending::<()>().await;
        });
    }
}

fn helper_config(args: &ServeArgs) -> HelperConfig {
    HelperConfig {
        namespace: args.namespace.clone(),
        root: args.host_path_root.clone(),
    }
}

/// Helpers run what this replica runs, wherever that was pulled from.
fn helper_image(client: &Client, args: &ServeArgs, identity: &str) -> OwnImage {
    OwnImage::of_pod(
        client.clone(),
        &args.namespace,
        identity,
        args.helper_image.as_deref(),
        DEFAULT_IMAGE,
    )
}
