//! Control groups for the kubelets of real nodes, under both versions of the interface.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const ROOT: &str = "/sys/fs/cgroup";

/// Whether the machine has only the second version, in one hierarchy.
pub(crate) fn is_unified() -> bool {
    Path::new(ROOT).join("cgroup.controllers").is_file()
}

/// The hierarchies that pods use: one on a machine with version 2, else one for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let mut all = mounted();
    // Beside version 1, the one of version 2 has no controllers.
    all.retain(|hierarchy| !hierarchy.ends_with("unified"));
    all
}

/// All hierarchies, also those in which only runc makes groups.
fn mounted() -> Vec<PathBuf> {
    if is_unified() {
        return vec![PathBuf::from(ROOT)];
    }
    let Ok(entries) = fs::read_dir(ROOT) else {
        return Vec::new();
    };
    // Controllers that are mounted together are links to one folder.
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// The group of one lab, below the root of each hierarchy.
fn lab_group(lab: &str) -> String {
    format!("flock-lab-{lab}")
}

/// Makes the group that a node's kubelet takes as its root, and returns its name for the kubelet.
pub(crate) fn make_node(lab: &str, node: &str) -> Result<String> {
    let lab = lab_group(lab);
    for hierarchy in hierarchies() {
        let mut parent = hierarchy;
        for name in [lab.as_str(), node] {
            let group = parent.join(name);
            if is_unified() {
                delegate_controllers(&parent);
            }
            fs::create_dir_all(&group)
                .with_context(|| format!("control group {} can't be made", group.display()))?;
            inherit_cpuset(&parent, &group)?;
            parent = group;
        }
    }
    if is_unified() {
        let group = Path::new(ROOT).join(&lab).join(node);
        let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
        for needed in ["cpu", "memory", "pids"] {
            if !controllers
                .split_whitespace()
                .any(|controller| controller == needed)
            {
                bail!(
                    "control group {} has no {needed} controller, as in a container that may not hand it on",
                    group.display()
                );
            }
        }
    }
    Ok(format!("/{lab}/{node}"))
}

/// In version 2 a group hands on only the controllers that it is told to.
fn delegate_controllers(parent: &Path) {
    let available = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace() {
        // Not every one can be handed on, and the kubelet says which it misses.
        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// In version 1 a new group of the cpuset controller is empty, and no process fits in.
fn inherit_cpuset(parent: &Path, group: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), group.join(file));
        if is_unified() || !to.is_file() {
            continue;
        }
        fs::read_to_string(&from)
            .and_then(|value| fs::write(&to, value))
            .with_context(|| format!("{} can't be copied from {}", to.display(), from.display()))?;
    }
    Ok(())
}

/// The processes of a node's containers.
pub(crate) fn processes_of_node(lab: &str, node: &str) -> Vec<i32> {
    let mut processes = Vec::new();
    for hierarchy in hierarchies() {
        collect_processes(&hierarchy.join(lab_group(lab)).join(node), &mut processes);
    }
    processes.sort_unstable();
    processes.dedup();
    processes
}

fn collect_processes(group: &Path, found: &mut Vec<i32>) {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        collect_processes(&entry.path(), found);
    }
}

/// Removes the groups of a lab whose processes have ended.
pub(crate) fn remove_lab(lab: &str) {
    for hierarchy in mounted() {
        remove_tree(&hierarchy.join(lab_group(lab)));
    }
}

/// Control groups are removed folder by folder, from the leaves; their files go with them. A group that
/// somebody else put a process into stays: it harms nobody, and the next lab of the name takes it over.
fn remove_tree(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    {
        remove_tree(&entry.path());
    }
    let _ = fs::remove_dir(group);
}
