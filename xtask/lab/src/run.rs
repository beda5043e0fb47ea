//! Programs in a lab: kubectl, and whatever a test starts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::host;
use crate::lab::{Lab, path_variable};
use crate::process::Process;
use crate::service::log_path;

/// How long kubectl may take, in minutes: what waits without an end would let a test stand still without a word.
const KUBECTL_MINUTES: u32 = 5;

/// What `timeout` of the coreutils exits with when it has ended a program.
const TIMED_OUT: i32 = 124;

impl Lab {
    /// A command that runs `program` inside of the lab, with the administrator's KUBECONFIG and the lab's
    /// programs on PATH. It keeps the terminal and the working folder.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let Some(cluster) = &self.cluster else {
            let mut command = Command::new(program);
            command.env("KUBECONFIG", &self.kubeconfig);
            return Ok(command);
        };
        let nsenter = host::find_program("nsenter").context("nsenter is missing: install util-linux")?;
        let mut command = Command::new(nsenter);
        command
            .arg(format!("--target={}", cluster.sandbox.init().pid))
            .args(["--mount", "--net", "--pid"])
            .arg(format!("--wd={}", std::env::current_dir()?.display()))
            .arg("--")
            .arg(program)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", path_variable(&cluster.components)?);
        Ok(command)
    }

    /// Runs kubectl as the administrator and returns what it prints. It is ended after five minutes.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        let mut command = self.command("timeout")?;
        command
            .arg(format!("{KUBECTL_MINUTES}m"))
            .arg("kubectl")
            .args(args);
        let output = command.stdin(Stdio::null()).output();
        let output = output.context("kubectl could not be started")?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        let ended = (output.status.code() == Some(TIMED_OUT))
            .then(|| format!("it was ended after {KUBECTL_MINUTES} minutes. "));
        bail!(
            "kubectl {} failed: {}{}",
            args.join(" "),
            ended.unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr).trim()
        )
    }

    /// Applies a manifest as the administrator.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let mut file = tempfile::NamedTempFile::new().context("no temporary file could be made")?;
        std::io::Write::write_all(&mut file, manifest.as_bytes())
            .context("a temporary file can't be written")?;
        self.kubectl(&[OsStr::new("apply"), "-f".as_ref(), file.path().as_os_str()])
            .map(drop)
    }

    /// Starts `program` inside of the lab, under `name`, with its output in a log file of the lab. Its
    /// environment is this process's own plus `env`, KUBECONFIG and PATH.
    pub fn spawn(
        &self,
        name: &str,
        program: &Path,
        args: &[&str],
        env: &BTreeMap<String, String>,
    ) -> Result<Process> {
        let cluster = self.cluster()?;
        let log = log_path(&cluster.run, name);
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("{} can't be written", log.display()))?;
        let mut command = Command::new(program);
        command
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("PATH", path_variable(&cluster.components)?)
            .envs(env)
            .current_dir(&cluster.run)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("a log file can't be shared")?)
            .stderr(output);
        Process::started(name, cluster.sandbox.spawn(command, None)?, log)
    }
}
