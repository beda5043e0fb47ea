//! Where the lab keeps things: `target/lab`, or the folder that FLOCK_LAB_DIR names.
//!
//! ```text
//! components/<set>/<version>/   sources' pins, built programs, how long they took
//! images/                       images for real nodes
//! run/<name>/                   one lab: keys, kubeconfigs, logs, data of etcd, disks of nodes
//! run/<name>.lock               held while a lab of that name starts or runs
//! ```

use std::env;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The environment variable that moves `target/lab` elsewhere, so that a fresh clone finds built components.
pub const LAB_DIR_VARIABLE: &str = "FLOCK_LAB_DIR";

/// The lab's folder, absolute.
pub fn lab_dir() -> Result<PathBuf> {
    let dir = env::var_os(LAB_DIR_VARIABLE)
        .filter(|dir| !dir.is_empty())
        .map_or_else(
            || {
                let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
                workspace_dir().join(target).join("lab")
            },
            PathBuf::from,
        );
    fs::create_dir_all(&dir)
        .with_context(|| format!("the lab's folder {} could not be made", dir.display()))?;
    dir.canonicalize()
        .with_context(|| format!("the lab's folder {} can't be resolved", dir.display()))
}

/// The project's folder: that of the package which cargo runs, as a shared build may come from a clone that is gone.
pub fn workspace_dir() -> PathBuf {
    let package =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let workspace = package.ancestors().find(|dir| dir.join("Cargo.lock").exists());
    workspace.unwrap_or(&package).to_owned()
}

/// The folder that holds the state of every lab.
pub(crate) fn run_dir() -> Result<PathBuf> {
    let dir = lab_dir()?.join("run");
    fs::create_dir_all(&dir).with_context(|| format!("{} could not be made", dir.display()))?;
    Ok(dir)
}

/// Fails unless `name` can be a lab's name: it becomes part of paths, cgroups and node names.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 40
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        return Ok(());
    }
    bail!("a lab can't be named {name:?}: use at most 40 lower-case letters, digits and inner dashes")
}

/// Opens `path` for locking, without touching what it holds.
fn open_lock(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("the lock file {} could not be opened", path.display()))
}

/// Whether `path` still names the locked file: its last holder may have removed it in the meantime.
fn is_current(file: &File, path: &Path) -> bool {
    matches!((file.metadata(), fs::metadata(path)), (Ok(held), Ok(named)) if held.ino() == named.ino())
}

/// Takes the lock at `path`, waiting for it; `waiting` is called once when somebody else holds it.
pub(crate) fn lock(path: &Path, waiting: impl FnOnce()) -> Result<File> {
    if let Some(file) = try_lock(path)? {
        return Ok(file);
    }
    waiting();
    loop {
        let file = open_lock(path)?;
        file.lock()
            .with_context(|| format!("{} can't be locked", path.display()))?;
        if is_current(&file, path) {
            return Ok(file);
        }
    }
}

/// Takes the lock at `path` when nobody holds it.
pub(crate) fn try_lock(path: &Path) -> Result<Option<File>> {
    loop {
        let file = open_lock(path)?;
        match file.try_lock() {
            Ok(()) if is_current(&file, path) => return Ok(Some(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(error).context(format!("{} can't be locked", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_the_folder_is_refused() {
        for name in ["", "..", "a/b", "A", "-a", "a-", "a b", &"a".repeat(41)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("flock-demo-2").unwrap();
    }

    #[test]
    fn a_lock_is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path, || panic!("nobody holds it")).unwrap();
        assert!(try_lock(&path).unwrap().is_none());
        drop(held);
        assert!(try_lock(&path).unwrap().is_some());
    }
}
