//! From a manifest's objects to the pods that would be stored. Pure, with the same decisions as the webhooks.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::{
    Context, End, Known, Op, Policy, RawPod, RawWorkload, Reservations, Subject, Verdict, decide, flock_key,
    judge,
};
use crate::identity::{OrdinalSet, Settings};
use crate::view::{NamespaceFacts, PodFacts, ServiceFacts, View, WorkloadFacts};

use super::InjectError;
use super::templates::{as_replica_set, from_template, put};

/// What a cluster would know and a file does not.
#[derive(Clone, Debug)]
pub struct Options {
    /// The one ordinal to show.
    pub ordinal: Option<u32>,
    /// The namespace of objects that name none.
    pub namespace: String,
    /// The uid of every namespace.
    pub namespace_uid: String,
    /// The webhook's configuration.
    pub policy: Policy,
}

/// What comes out.
#[derive(Debug, Default)]
pub struct Injected {
    /// The pods, in the order of the file and of their ordinals.
    pub pods: Vec<Value>,
    /// What those who apply it would be told.
    pub warnings: Vec<String>,
}

/// The pods of `objects` as they would be stored, but for the API server's own defaults.
pub fn pods(objects: &[Value], options: &Options) -> Result<Injected, InjectError> {
    let mut desk = Desk {
        view: View::default(),
        options,
        injected: Injected::default(),
    };
    for object in objects {
        desk.learn(object);
    }
    for object in objects {
        match object["kind"].as_str() {
            Some("Pod") => {
                let mut pod = object.clone();
                put(
                    &mut pod,
                    &["metadata", "namespace"],
                    json!(desk.namespace(object)),
                );
                desk.admit(&what(object), pod)?;
            }
            // Of other kinds nothing is known.
            _ if is_workload(object) => desk.workload(object)?,
            _ => {}
        }
    }
    if desk.injected.pods.is_empty() {
        Err(InjectError::NoMember)
    } else {
        Ok(desk.injected)
    }
}

/// A manifest being worked through: the view stands for the cluster that it would be applied to.
struct Desk<'a> {
    view: View,
    options: &'a Options,
    injected: Injected,
}

impl<'a> Desk<'a> {
    fn namespace<'o>(&self, object: &'o Value) -> &'o str
    where
        'a: 'o,
    {
        object["metadata"]["namespace"]
            .as_str()
            .unwrap_or(&self.options.namespace)
    }

    /// Takes in what decisions rest on. What cannot be read is said when its turn comes.
    fn learn(&mut self, object: &Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (name, namespace) = if kind == "Namespace" {
            (
                object["metadata"]["name"].as_str().unwrap_or_default(),
                Some(object),
            )
        } else {
            (self.namespace(object), None)
        };
        let enforce =
            namespace.and_then(|n| n["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str());
        if namespace.is_some() || self.view.namespace(name).is_none() {
            self.view.apply_namespace(NamespaceFacts {
                name: name.to_owned(),
                uid: self.options.namespace_uid.clone(),
                enforce: enforce.map(str::to_owned),
                terminating: false,
            });
        }
        let mut object = object.clone();
        put(&mut object, &["metadata", "namespace"], json!(name));
        match kind {
            "Service" => {
                let service = serde_json::from_value(object)
                    .ok()
                    .and_then(|service| ServiceFacts::read(&service));
                if let Some(service) = service {
                    self.view.apply_service(service);
                }
            }
            "Deployment" | "ReplicaSet" | "ReplicationController" => {
                let set = serde_json::from_value(as_replica_set(&object)).ok();
                if let Some((key, facts)) = set.and_then(|set| WorkloadFacts::read_replica_set(&set)) {
                    self.view.apply_workload(key, facts);
                }
            }
            _ => {}
        }
    }

    fn workload(&mut self, object: &Value) -> Result<(), InjectError> {
        let text = object.to_string();
        let shape = |error: serde_json::Error| InjectError::Shape {
            what: what(object),
            problem: error.to_string(),
        };
        let namespace = self.namespace(object);
        let workload: RawWorkload<'_> = serde_json::from_str(&text).map_err(shape)?;
        let subject = Subject {
            kind: &workload.kind,
            namespace,
            workload: &workload,
        };
        let known = Known {
            view: &self.view,
            policy: &self.options.policy,
        };
        let Some(judgement) = judge(subject, None, known) else {
            return Ok(());
        };
        if !judgement.denials.is_empty() {
            return Err(InjectError::Denied {
                what: what(object),
                faults: judgement.denials,
            });
        }
        let warnings = judgement
            .warnings
            .into_iter()
            .map(|warning| format!("{}: {warning}", what(object)));
        self.injected.warnings.extend(warnings);
        let Some(template) = workload.template() else {
            return Ok(());
        };
        // Both were read without fault in the judgement.
        let (Ok(Some(key)), Ok(settings)) = (
            flock_key(namespace, template),
            Settings::parse(|name| template.annotation(name)),
        ) else {
            return Ok(());
        };
        let allowed = workload.ordinals(&workload.kind, &settings.ordinals);
        for ordinal in self.wanted(object, &allowed)?.iter() {
            let name = format!("{}-{ordinal}", key.flock);
            let pod = from_template(object, namespace, &name);
            self.admit(&format!("pod {name} of {}", what(object)), pod)?;
        }
        Ok(())
    }

    fn wanted(&self, object: &Value, allowed: &OrdinalSet) -> Result<OrdinalSet, InjectError> {
        let Some(number) = self.options.ordinal else {
            return Ok(allowed.clone());
        };
        let found = crate::identity::Ordinal::new(number).filter(|ordinal| allowed.contains(*ordinal));
        let missing = || InjectError::NoOrdinal {
            what: what(object),
            ordinal: number,
            has: allowed.to_string(),
        };
        found
            .map(|ordinal| [ordinal].into_iter().collect())
            .ok_or_else(missing)
    }

    /// Decides about a pod and applies the patch to it.
    fn admit(&mut self, what: &str, mut pod: Value) -> Result<(), InjectError> {
        let text = pod.to_string();
        let shape = |problem: String| InjectError::Shape {
            what: what.to_owned(),
            problem,
        };
        let raw: RawPod<'_> = serde_json::from_str(&text).map_err(|error| shape(error.to_string()))?;
        let refused = |refusal| InjectError::Refused {
            what: what.to_owned(),
            refusal,
        };
        let namespace = pod["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let Some(key) = flock_key(&namespace, &raw).map_err(refused)? else {
            return Ok(());
        };
        let reservations = Reservations::default();
        let context = Context {
            view: &self.view,
            flock: self.view.flock(&key),
            reservations: &reservations,
            policy: &self.options.policy,
            end: End::Low,
            now: Timestamp::UNIX_EPOCH,
        };
        let ops = match decide(&namespace, &raw, &context) {
            Verdict::Member { ops, .. } => ops,
            Verdict::Refused(refusal) => return Err(refused(refusal)),
            Verdict::Untouched => return Ok(()),
            Verdict::Look(look) => return Err(shape(format!("a cluster must be asked: {look:?}"))),
        };
        apply(&mut pod, &ops).map_err(shape)?;
        if let Some((key, facts)) = serde_json::from_value(pod.clone())
            .ok()
            .and_then(|pod| PodFacts::read(&pod))
        {
            self.view.apply_pod(key, facts);
        }
        self.injected.pods.push(pod);
        Ok(())
    }
}

fn apply(pod: &mut Value, ops: &[Op]) -> Result<(), String> {
    let patch = serde_json::to_value(ops).and_then(serde_json::from_value::<json_patch::Patch>);
    let patch = patch.map_err(|error| error.to_string())?;
    json_patch::patch(pod, &patch).map_err(|error| error.to_string())
}

fn is_workload(object: &Value) -> bool {
    let group = object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .map(|(group, _)| group);
    matches!(
        (group, object["kind"].as_str()),
        (
            Some("apps"),
            Some("Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        ) | (None, Some("ReplicationController"))
            | (Some("batch"), Some("Job" | "CronJob"))
    )
}

fn what(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"]
        .as_str()
        .or(meta["generateName"].as_str())
        .unwrap_or("without a name");
    format!("{} {name}", object["kind"].as_str().unwrap_or("object"))
}
