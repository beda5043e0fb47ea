//! The JSON Patch (RFC 6902) that makes a pod a member. Pure: computed from the raw pod and the wanted identity.
//!
//! Every operation adds what is missing, so that patching a patched pod patches nothing (reinvocation); none
//! replaces an object or a list of the user's. The one `replace` is of a volume's entry that the user named.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::identity::{Ordinal, keys};

use super::pod::{RawContainer, RawPod};

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Op {
    #[serde(rename = "op")]
    kind: &'static str,
    path: String,
    value: Value,
}

impl Op {
    fn add(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            kind: "add",
            path: path.into(),
            value: value.into(),
        }
    }

    /// The JSON pointer that it acts on.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value, if it is a string.
    pub fn text(&self) -> Option<&str> {
        self.value.as_str()
    }
}

/// What a pod must have to be a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// The pod's name, and its hostname.
    pub name: String,
    /// The governing Service.
    pub service: String,
    /// Whether hostname and subdomain are Flock's to set (a StatefulSet sets its own).
    pub sets_host: bool,
    /// The label of its node, if it is pinned.
    pub node_label: Option<String>,
    /// Whether it waits behind the scheduling gate.
    pub gated: bool,
    /// The volumes that change: index in `spec.volumes` and the whole new entry.
    pub volumes: Vec<(usize, Value)>,
    /// The environment of every container, in order.
    pub env: Vec<(&'static str, String)>,
}

/// The operations that are still missing on `pod`.
pub fn patch(pod: &RawPod<'_>, want: &Membership) -> Vec<Op> {
    let mut ops = Vec::with_capacity(16);
    metadata(pod, want, &mut ops);
    let Some(spec) = &pod.spec else { return ops };
    if want.sets_host {
        if spec.hostname.is_empty() {
            ops.push(Op::add("/spec/hostname", want.name.as_str()));
        }
        if spec.subdomain.is_empty() {
            ops.push(Op::add("/spec/subdomain", want.service.as_str()));
        }
    }
    if let Some(label) = &want.node_label {
        let present = spec
            .node_selector
            .as_ref()
            .is_some_and(|map| map.contains_key(label.as_str()));
        if !present {
            add_to_map(
                "/spec/nodeSelector",
                spec.node_selector.is_some(),
                &[(label, String::new())],
                &mut ops,
            );
        }
    }
    if want.gated {
        match &spec.scheduling_gates {
            Some(gates) if gates.iter().any(|gate| &*gate.name == keys::GATE) => {}
            Some(_) => ops.push(Op::add("/spec/schedulingGates/-", json!({ "name": keys::GATE }))),
            None => ops.push(Op::add("/spec/schedulingGates", json!([{ "name": keys::GATE }]))),
        }
    }
    for (index, volume) in &want.volumes {
        ops.push(Op {
            kind: "replace",
            path: format!("/spec/volumes/{index}"),
            value: volume.clone(),
        });
    }
    environment(
        "/spec/initContainers",
        spec.init_containers.as_deref(),
        want,
        &mut ops,
    );
    environment("/spec/containers", spec.containers.as_deref(), want, &mut ops);
    ops
}

fn metadata(pod: &RawPod<'_>, want: &Membership, ops: &mut Vec<Op>) {
    if pod.metadata.name.is_empty() {
        ops.push(Op::add("/metadata/name", want.name.as_str()));
    }
    let ordinal = want.ordinal.to_string();
    let missing: Vec<_> = [keys::ORDINAL, keys::POD_INDEX]
        .into_iter()
        .filter(|key| pod.label(key).is_none())
        .map(|key| (key, ordinal.clone()))
        .collect();
    add_to_map("/metadata/labels", pod.metadata.labels.is_some(), &missing, ops);
    if pod.annotation(keys::DELETION_COST).is_none() {
        let cost = [(keys::DELETION_COST, want.ordinal.deletion_cost())];
        add_to_map(
            "/metadata/annotations",
            pod.metadata.annotations.is_some(),
            &cost,
            ops,
        );
    }
}

/// Adds entries to a map one by one where it exists, or the map with them where it does not.
fn add_to_map<K: AsRef<str>>(path: &str, exists: bool, entries: &[(K, String)], ops: &mut Vec<Op>) {
    if entries.is_empty() {
        return;
    }
    if exists {
        for (key, value) in entries {
            ops.push(Op::add(
                format!("{path}/{}", escape(key.as_ref())),
                value.as_str(),
            ));
        }
    } else {
        let map: BTreeMap<_, _> = entries.iter().map(|(key, value)| (key.as_ref(), value)).collect();
        ops.push(Op::add(path, json!(map)));
    }
}

/// Puts the variables first, so that `$(FLOCK_ORDINAL)` works in every later one and in args. A variable that
/// the user set stays as it is.
fn environment(path: &str, containers: Option<&[RawContainer]>, want: &Membership, ops: &mut Vec<Op>) {
    for (index, container) in containers.unwrap_or_default().iter().enumerate() {
        let set = container.env.as_ref();
        let missing = want
            .env
            .iter()
            .filter(|(name, _)| !set.is_some_and(|env| env.contains(name)))
            .map(|(name, value)| json!({ "name": name, "value": value }));
        if set.is_some() {
            // Each goes in front of the user's first, after the ones before it.
            for (position, variable) in missing.enumerate() {
                ops.push(Op::add(format!("{path}/{index}/env/{position}"), variable));
            }
        } else {
            let all: Vec<_> = missing.collect();
            if !all.is_empty() {
                ops.push(Op::add(format!("{path}/{index}/env"), all));
            }
        }
    }
}

/// A reference token of a JSON pointer (RFC 6901).
fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}
