//! The command line. Each flag of `serve` is an environment variable too, so that manifests need no shell.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::cli::doctor::DoctorArgs;
use crate::cli::inject::InjectArgs;
use crate::cli::release::ReleaseArgs;
use crate::cli::status::StatusArgs;
use crate::prepare::PrepareArgs;
use crate::storage::storage_root;

/// Makes plain ReplicaSets and Deployments stateful.
#[derive(Debug, Parser)]
#[command(name = "flock", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the command line of this process. Installed as `kubectl-flock` it is a plugin, and calls itself so.
    pub fn read() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        Self::from_arg_matches(&Self::named(&called).get_matches()).unwrap_or_else(|error| error.exit())
    }

    fn named(called: &OsStr) -> clap::Command {
        let plugin = Path::new(called)
            .file_stem()
            .is_some_and(|name| name == "kubectl-flock");
        let command = Self::command();
        if plugin {
            command.name("kubectl flock").bin_name("kubectl flock")
        } else {
            command
        }
    }
}

/// What `flock` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the webhook on every replica, and the reconciler on the one that leads.
    Serve(ServeArgs),
    /// Show the pods of a manifest as they would be stored, without a cluster.
    Inject(InjectArgs),
    /// Prepare a member's directories on this node. Flock's helper pods run this; it is of no use by hand.
    #[command(hide = true)]
    Prepare(PrepareArgs),
    /// Show every member of a flock: its node, its state, and what it waits for.
    Status(StatusArgs),
    /// Give a member's place free, so that it starts anew elsewhere, without its data.
    Release(ReleaseArgs),
    /// Check an installation, and say of each thing that is wrong what to do about it.
    Doctor(DoctorArgs),
}

/// How to reach the cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Use this kubeconfig; without it the one of kubectl (KUBECONFIG, which may name several files), or, in a pod,
    /// its ServiceAccount.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
}

/// `flock serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// How to reach the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Where the webhook listens (TLS); `[::]` is every address of IPv6 and IPv4.
    #[arg(long, env = "FLOCK_WEBHOOK_ADDRESS", default_value = "[::]:8443")]
    pub webhook_address: SocketAddr,
    /// Where /livez, /readyz and /metrics are (plain HTTP).
    #[arg(long, env = "FLOCK_ADMIN_ADDRESS", default_value = "[::]:8080")]
    pub admin_address: SocketAddr,
    /// The namespace that Flock runs in: of its Secret, Lease and Service.
    #[arg(long, env = "POD_NAMESPACE", default_value = "flock-system")]
    pub namespace: String,
    /// This replica's name, unique among them.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// The Service that the API server calls.
    #[arg(long, env = "FLOCK_SERVICE_NAME", default_value = "flock")]
    pub service_name: String,
    /// For development: the URL that the API server calls instead of the Service; the certificate names its host.
    #[arg(long, env = "FLOCK_WEBHOOK_URL")]
    pub webhook_url: Option<String>,
    /// The directory of every node that members' directories are beneath.
    #[arg(long, env = "FLOCK_HOST_PATH_ROOT", default_value = "/var/lib/flock", value_parser = storage_root)]
    pub host_path_root: PathBuf,
    /// The image of the helper pods that prepare members' directories; without it, that of Flock's own pod.
    #[arg(long, env = "FLOCK_HELPER_IMAGE")]
    pub helper_image: Option<String>,
    /// Where certificates come from.
    #[arg(long, env = "FLOCK_CERTIFICATES", value_enum, default_value_t = Certificates::SelfSigned)]
    pub certificates: Certificates,
    /// Where cert-manager's `tls.crt` and `tls.key` are mounted.
    #[arg(long, env = "FLOCK_CERTIFICATE_DIR", default_value = "/certificates")]
    pub certificate_dir: PathBuf,
    /// A file (PEM) with the CAs whose client certificates the webhook asks of its callers, read again when it changes;
    /// without it anybody may call.
    #[arg(long, env = "FLOCK_CLIENT_CA", value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// A name that may call, as the client certificate's common name or one of its DNS names; may be given several times
    /// (in the variable: separated by commas). Without one, all that the client CAs sign for may call.
    #[arg(
        long = "client-name",
        env = "FLOCK_CLIENT_NAMES",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new(),
        requires = "client_ca"
    )]
    pub client_names: Vec<String>,
    /// Seconds that a node must be proven gone before `flock.dev/on-node-loss: Reassign` acts.
    #[arg(long, env = "FLOCK_NODE_LOSS_GRACE", default_value_t = 300)]
    pub node_loss_grace: u32,
    /// Seconds to go on serving after SIGTERM, while Services forget this replica.
    #[arg(long, env = "FLOCK_PRE_DRAIN", default_value_t = 10)]
    pub pre_drain: u16,
    /// For tests: milliseconds that this replica's watches lag behind.
    #[arg(long, env = "FLOCK_TEST_WATCH_DELAY", default_value_t = 0, hide = true)]
    pub test_watch_delay: u64,
    /// For tests: seconds that a leaf lives; 0 is the usual week.
    #[arg(long, env = "FLOCK_TEST_LEAF_LIFE", default_value_t = 0, hide = true)]
    pub test_leaf_life: u32,
    /// For tests: seconds that a CA lives, with waits that fit to it; 0 is the usual year.
    #[arg(long, env = "FLOCK_TEST_CA_LIFE", default_value_t = 0, hide = true)]
    pub test_ca_life: u32,
    /// The form of log lines.
    #[arg(long, env = "FLOCK_LOG_FORMAT", value_enum, default_value_t = LogFormat::Plain)]
    pub log_format: LogFormat,
    /// Which log lines, such as `info,flock=debug`.
    #[arg(long, env = "FLOCK_LOG", default_value = "info")]
    pub log_filter: String,
}

/// Where certificates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Certificates {
    /// From a CA of Flock's own, in a Secret.
    SelfSigned,
    /// From cert-manager, as files.
    CertManager,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Plain,
    /// For machines: one JSON object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/usr/local/bin/flock", "Usage: flock status")]
    #[case("/home/me/.krew/bin/kubectl-flock", "Usage: kubectl flock status")]
    fn a_plugin_calls_itself_by_its_name(#[case] called: &str, #[case] usage: &str) {
        let help = Cli::named(OsStr::new(called)).try_get_matches_from(["flock", "status", "--help"]);
        let help = help.unwrap_err().to_string();
        assert!(help.contains(usage), "{help}");
    }

    #[rstest]
    #[case::with_names(&["--client-ca=/ca.crt", "--client-name=a,b", "--client-name=c"], Some(&["a", "b", "c"][..]))]
    #[case::without_names(&["--client-ca=/ca.crt"], Some(&[][..]))]
    #[case::names_without_a_ca(&["--client-name=a"], None)]
    #[case::an_empty_name(&["--client-ca=/ca.crt", "--client-name=a,"], None)]
    fn names_of_callers_need_their_ca(#[case] flags: &[&str], #[case] names: Option<&[&str]>) {
        let line = ["flock", "serve"].iter().chain(flags);
        let Ok(cli) = Cli::try_parse_from(line) else {
            assert_eq!(names, None);
            return;
        };
        let Command::Serve(args) = cli.command else {
            panic!("{cli:?}")
        };
        assert_eq!(
            Some(args.client_names),
            names.map(|names| names.iter().map(ToString::to_string).collect())
        );
    }

    #[rstest]
    #[case::serve(&["serve"])]
    #[case::inject(&["inject", "--file=-"])]
    #[case::release(&["release", "db"])]
    fn a_storage_root_that_cannot_be_is_refused_everywhere_and_told_why(#[case] command: &[&str]) {
        let line = |root: &str| {
            let root = format!("--host-path-root={root}");
            Cli::try_parse_from(["flock"].iter().chain(command).chain(&[root.as_str()]))
        };
        line("/data/flock").unwrap();
        for (root, says) in [
            ("/", "a directory of its own"),
            ("/data/../etc", "\"..\""),
            ("data", "a slash"),
        ] {
            let error = line(root).unwrap_err().to_string();
            assert!(
                error.contains("--host-path-root") && error.contains(says),
                "{error}"
            );
        }
    }

    #[test]
    fn the_webhook_and_the_admin_port_are_on_every_address_of_both_families() {
        let Command::Serve(args) = Cli::try_parse_from(["flock", "serve"]).unwrap().command else {
            panic!("it serves")
        };
        for address in [args.webhook_address, args.admin_address] {
            assert!(address.is_ipv6() && address.ip().is_unspecified(), "{address}");
        }
    }

    #[test]
    fn every_flag_of_the_server_is_in_the_reference_with_its_variable() {
        let reference = include_str!("../docs/reference.md");
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for flag in serve.get_arguments().filter(|flag| !flag.is_hide_set()) {
            let Some(name) = flag.get_long().filter(|name| *name != "help") else {
                continue;
            };
            let variable = flag
                .get_env()
                .map_or_else(String::new, |name| format!("`{}` ", name.display()));
            let row = format!("| `--{name}` | {variable}|");
            assert!(reference.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
