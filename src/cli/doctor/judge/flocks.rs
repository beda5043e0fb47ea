//! The flocks: who waits and why, and what is left of flocks that are gone.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::super::finding::Finding;
use crate::cli::status::status;
use crate::identity::{FlockKey, Storage};
use crate::place::Record;
use crate::view::{Template, View};

const FLOCKS: &str = "flocks";
const RECORD: &str = "places";
const LABELS: &str = "node labels";
const SECURITY: &str = "Pod Security";

/// So many members of a flock are named.
const NAMED: usize = 3;

/// Judges all flocks of the view. `namespaces` are those that exist, if all of them are known.
pub fn judge(view: &View, namespaces: Option<&BTreeSet<String>>, now: Timestamp) -> Vec<Finding> {
    let keys: Vec<_> = view
        .flock_keys()
        .into_iter()
        .filter(|key| view.namespace(key.namespace.as_str()).is_some())
        .collect();
    let mut findings = flocks(view, &keys, now);
    findings.extend(keys.iter().flat_map(|key| records(view, key)));
    findings.extend(labels(view, namespaces));
    findings.extend(security(view, &keys));
    findings
}

fn flocks(view: &View, keys: &[FlockKey], now: Timestamp) -> Vec<Finding> {
    let (mut findings, mut members) = (Vec::new(), 0);
    for key in keys {
        let status = status(view, key, now);
        let (ready, wanted) = (status.ready(), status.wanted());
        members += wanted;
        let waiting: Vec<_> = status
            .rows
            .iter()
            .filter(|row| !matches!(row.state, "Ready" | "Unused" | "Released"))
            .map(|row| format!("{}-{} is {}", key.flock, row.ordinal, row.state))
            .collect();
        if waiting.is_empty() && status.notes.is_empty() {
            continue;
        }
        let more = match waiting.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more wait"),
        };
        let named = waiting.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        let why = status
            .notes
            .first()
            .map(|note| format!(" ({note})"))
            .unwrap_or_default();
        let (flock, namespace) = (&key.flock, &key.namespace);
        let message = format!(
            "{ready} of {wanted} members of {flock} in namespace {namespace} are Ready: {named}{more}{why}; see flock status \
             {flock} --namespace {namespace}"
        );
        findings.push(Finding::warning(FLOCKS, message));
    }
    if findings.is_empty() {
        let message = match keys.len() {
            0 => "there is none".to_owned(),
            count => format!("all {members} members of {count} flocks are Ready"),
        };
        findings.push(Finding::ok(FLOCKS, message));
    }
    findings
}

fn records(view: &View, key: &FlockKey) -> Vec<Finding> {
    let unreadable = view.services_of(key).filter_map(|service| {
        let text = service.places.as_deref()?;
        let error = Record::parse(text).err()?;
        let message = format!(
            "Service {} in namespace {}: {error}",
            service.name, service.namespace
        );
        Some(Finding::broken(RECORD, message))
    });
    unreadable.collect()
}

fn labels(view: &View, namespaces: Option<&BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut left = BTreeMap::<&FlockKey, Vec<&str>>::new();
    for node in view.nodes().values() {
        let gone = node
            .members
            .keys()
            .filter(|key| namespaces.is_some_and(|namespaces| !namespaces.contains(key.namespace.as_str())));
        for key in gone {
            left.entry(key).or_default().push(&node.name);
        }
    }
    findings.extend(left.into_iter().map(|(key, nodes)| {
        let message = format!(
            "labels of flock {} are left on {}, and its namespace {} does not exist: the leader takes them off, see its log",
            key.flock,
            nodes.join(", "),
            key.namespace
        );
        Finding::warning(LABELS, message)
    }));
    findings.extend(view.nodes_with_garbage().map(|node| {
        let message = format!(
            "node {} has labels in Flock's domain that mean nothing: {}; take them off",
            node.name,
            node.garbage_labels.join(", ")
        );
        Finding::warning(LABELS, message)
    }));
    findings
}

/// Members with directories of hosts in a namespace that came to forbid them.
fn security(view: &View, keys: &[FlockKey]) -> Vec<Finding> {
    let forbidden = keys.iter().filter_map(|key| {
        let level = view.namespace(key.namespace.as_str())?.enforce.as_deref()?;
        let on_hosts = |template: &Template| {
            let settings = template.settings();
            settings.storage == Storage::HostPath && !settings.volumes.is_empty()
        };
        let flock = view.flock(key);
        let workloads = flock.workloads().values().map(|workload| &workload.template);
        let pods = flock.pods().values().map(|pod| &pod.template);
        let hit = workloads.chain(pods).any(|template| on_hosts(template));
        (matches!(level, "baseline" | "restricted") && hit).then(|| {
            let message = format!(
                "namespace {} enforces Pod Security level {level}, which forbids the hostPath volumes of flock {}: what runs \
                 goes on, and no member starts again; flock.dev/storage: localVolume works there",
                key.namespace, key.flock
            );
            Finding::warning(SECURITY, message)
        })
    });
    forbidden.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;
    use crate::identity::keys::VOLUMES;
    use crate::view::NamespaceFacts;
    use crate::view::fixtures::{key, node, now, pod, service, set, view};

    fn all() -> BTreeSet<String> {
        ["default".to_owned()].into()
    }

    fn judged(view: &View) -> Vec<Finding> {
        judge(view, Some(&all()), now())
    }

    /// Two members, Ready on their nodes.
    fn healthy() -> View {
        let mut view = view(vec![set("rs", 2)], vec![pod(0, "rs"), pod(1, "rs")]);
        view.apply_service(service(
            r#"{"0":{"machine":"machine-of-node-0","node":"node-0"},"1":{"machine":"machine-of-node-1","node":"node-1"}}"#,
        ));
        for ordinal in 0..2 {
            view.apply_node(node(&format!("node-{ordinal}"), &[ordinal]));
        }
        view
    }

    #[test]
    fn all_is_well_in_one_line() {
        let findings = judged(&healthy());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(
            findings[0],
            Finding::ok(FLOCKS, "all 2 members of 1 flocks are Ready")
        );
    }

    #[test]
    fn who_waits_is_told_with_the_reason_and_the_command_that_shows_more() {
        let mut view = healthy();
        view.apply_pod(key(), pod(1, "rs").waiting());
        view.delete_node("node-1");
        let findings = judged(&view);
        assert_eq!(findings[0].verdict, Verdict::Warning);
        let message = &findings[0].message;
        assert!(
            message.contains("1 of 2 members of db in namespace default are Ready: db-1 is Gated ("),
            "{message}"
        );
        assert!(message.contains("flock release db 1"), "{message}");
        assert!(
            message.ends_with("see flock status db --namespace default"),
            "{message}"
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_is_broken() {
        let mut view = healthy();
        let mut unreadable = service("{");
        unreadable.resource_version = "2".into();
        view.apply_service(unreadable);
        let findings = judged(&view);
        let broken: Vec<_> = findings.iter().filter(|f| f.verdict == Verdict::Broken).collect();
        assert_eq!(broken.len(), 1, "{findings:?}");
        assert!(
            broken[0]
                .message
                .contains("Service db in namespace default: annotation flock.dev/places is no record")
        );
    }

    #[test]
    fn labels_of_a_namespace_that_is_gone_are_told_only_if_all_namespaces_are_known() {
        let view = healthy();
        let none = BTreeSet::new();
        let told = |namespaces| {
            let findings = judge(&view, namespaces, now());
            findings.iter().filter(|finding| finding.check == LABELS).count()
        };
        assert_eq!([Some(&none), Some(&all()), None].map(told), [1, 0, 0]);
    }

    #[test]
    fn directories_of_hosts_are_told_where_the_level_forbids_them() {
        let mut view = healthy();
        view.apply_workload(key(), set("dir", 0).annotated(&[(VOLUMES, "data")]));
        let told = |view: &View| {
            let findings = judged(view);
            findings
                .iter()
                .filter(|finding| finding.check == SECURITY)
                .count()
        };
        let mut levels = Vec::new();
        for level in ["privileged", "baseline"] {
            view.apply_namespace(NamespaceFacts {
                name: "default".into(),
                uid: "ns-uid".into(),
                enforce: Some(level.into()),
                terminating: false,
            });
            levels.push(told(&view));
        }
        assert_eq!(levels, [0, 1]);
    }
}
