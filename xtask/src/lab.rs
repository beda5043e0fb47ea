//! `cargo xtask lab`: clusters that go on after the command, for a person to work with.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use flock_lab::{DEFAULT_KUBERNETES, Lab, Nodes, Options};

/// The name of a lab when none is given.
const DEFAULT_NAME: &str = "lab";

/// What `cargo xtask lab` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Builds what is missing, starts a lab and leaves it running.
    Up(Up),
    /// Ends a lab and removes what it kept on disk.
    Down {
        /// The lab's name.
        #[arg(long, default_value = DEFAULT_NAME, conflicts_with = "all")]
        name: String,
        /// Ends every lab that was brought up, and removes the state that failed ones kept.
        #[arg(long)]
        all: bool,
    },
    /// Lists the labs of this machine and their components.
    Status,
    /// Runs kubectl in a lab, as its administrator.
    Kubectl {
        #[command(flatten)]
        which: Which,
        /// What kubectl is to do.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Opens a shell in a lab: its network, its programs on PATH, KUBECONFIG set.
    Shell {
        #[command(flatten)]
        which: Which,
    },
}

/// The lab to bring up.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// The lab's name; several can run at once.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// How many nodes it has.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Fake nodes instead of real ones: kwok plays their kubelets, and no container runs.
    #[arg(long)]
    fake: bool,
    /// The version of Kubernetes.
    #[arg(long, default_value = DEFAULT_KUBERNETES)]
    kubernetes: String,
}

/// The cluster that a command works with.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The lab's name.
    #[arg(long, default_value = DEFAULT_NAME)]
    name: String,
    /// Uses the cluster of this kubeconfig instead of a lab.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Which {
    fn open(&self) -> Result<Lab> {
        match &self.kubeconfig {
            Some(kubeconfig) => Lab::existing(kubeconfig),
            None => Lab::attach(&self.name),
        }
    }
}

/// Options of a lab with `count` nodes: real ones, or fake ones where they were asked for or real ones are not
/// possible; the latter is said.
pub(crate) fn options(count: usize, fake: bool) -> Options {
    if fake {
        return Options::fake(count);
    }
    match flock_lab::real_nodes_possible() {
        Ok(()) => Options::real(count),
        Err(reason) => {
            say(&format!("Nodes are fake ones, because {reason:#}"));
            Options::fake(count)
        }
    }
}

/// Runs one of the commands.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(up) => up.run().map(|()| ExitCode::SUCCESS),
        Command::Down { name, all } => down(&name, all).map(|()| ExitCode::SUCCESS),
        Command::Status => status().map(|()| ExitCode::SUCCESS),
        Command::Kubectl { which, args } => {
            let mut kubectl = which.open()?.command("kubectl")?;
            let status = kubectl
                .args(args)
                .status()
                .context("kubectl could not be started")?;
            Ok(exit_code(status))
        }
        Command::Shell { which } => {
            let shell = env::var_os("SHELL").unwrap_or_else(|| "bash".into());
            say(&format!("This shell is in lab {}; `exit` leaves it", which.name));
            let status = which
                .open()?
                .command(&shell)?
                .status()
                .context("the shell could not be started")?;
            Ok(exit_code(status))
        }
    }
}

impl Up {
    fn run(self) -> Result<()> {
        let mut options = options(self.nodes, self.fake).named(&self.name);
        options.kubernetes = self.kubernetes;
        options.lifeline = false;
        let kind = if matches!(options.nodes, Nodes::Fake { .. }) {
            "fake"
        } else {
            "real"
        };
        Lab::start(options)?;
        say(&format!(
            "{} {kind} nodes. Try `cargo xtask lab kubectl{name} get nodes`; `cargo xtask lab down{name}` ends it",
            self.nodes,
            name = if self.name == DEFAULT_NAME {
                String::new()
            } else {
                format!(" --name {}", self.name)
            },
        ));
        Ok(())
    }
}

fn down(name: &str, all: bool) -> Result<()> {
    if !all {
        if !flock_lab::remove(name)? {
            say(&format!("There is no lab {name}"));
        }
        return Ok(());
    }
    let mut left = Vec::new();
    for lab in flock_lab::list()? {
        if let Err(error) = flock_lab::remove(&lab.name) {
            left.push(format!("{error:#}"));
        }
    }
    if left.is_empty() {
        Ok(())
    } else {
        bail!(left.join("; "))
    }
}

fn status() -> Result<()> {
    let labs = flock_lab::list()?;
    if labs.is_empty() {
        return print("No lab runs; `cargo xtask lab up` starts one");
    }
    for lab in labs {
        if !lab.alive {
            print(&format!(
                "{}: ended; its logs are in {}",
                lab.name,
                lab.dir.join("logs").display()
            ))?;
            continue;
        }
        let owner = lab
            .owner
            .map_or_else(String::new, |owner| format!(", ends with process {}", owner.pid));
        let kind = if lab.real { "real" } else { "fake" };
        print(&format!(
            "{}: Kubernetes {}, {} {kind} nodes{owner}",
            lab.name,
            lab.kubernetes,
            lab.nodes.len()
        ))?;
        for (component, alive) in Lab::attach(&lab.name)?.component_names()? {
            print(&format!(
                "  {component}: {}",
                if alive { "runs" } else { "ended" }
            ))?;
        }
    }
    Ok(())
}

/// The program's own exit code, or the one that shells use for a program that a signal ended.
fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}

fn print(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("standard output is closed")
}

/// Tells the person at the terminal, apart from what a command prints.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Tells why a command failed.
pub(crate) fn complain(error: &anyhow::Error) {
    say(&format!("error: {error:#}"));
}
