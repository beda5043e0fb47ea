//! Of what is around the members: namespaces and governing Services.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{PortFacts, flock_of};
use crate::identity::{FlockKey, keys};
use crate::place::Record;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// Its uid, which is part of every member's directory.
    pub uid: String,
    /// The Pod Security level that it enforces, if it says so itself.
    pub enforce: Option<String>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl From<&ObjectMeta> for NamespaceFacts {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            enforce: meta
                .labels
                .as_ref()
                .and_then(|l| l.get("pod-security.kubernetes.io/enforce"))
                .cloned(),
            terminating: meta.deletion_timestamp.is_some(),
        }
    }
}

impl From<&Namespace> for NamespaceFacts {
    fn from(namespace: &Namespace) -> Self {
        Self::from(&namespace.metadata)
    }
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it is headless.
    pub headless: bool,
    /// The flock that Flock made it for; `None` for a user's own.
    pub made_for: Option<FlockKey>,
    /// Whether not-ready pods are published.
    pub publishes_not_ready: bool,
    /// The flock that its selector selects, if it selects one and nothing else.
    pub selects: Option<String>,
    /// Its ports.
    pub ports: Vec<PortFacts>,
    /// The record of places, as it stands there.
    pub places: Option<Arc<str>>,
    /// The same, read; `None` where there is none or it cannot be read.
    pub record: Option<Arc<Record>>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl ServiceFacts {
    /// The facts of a Service.
    pub fn read(service: &Service) -> Option<Self> {
        let meta = &service.metadata;
        let spec = service.spec.as_ref();
        let labels = meta.labels.as_ref();
        let ours = labels
            .and_then(|l| l.get(keys::MANAGED_BY))
            .is_some_and(|by| by == keys::MANAGER);
        let mut ports: Vec<_> = spec
            .and_then(|s| s.ports.as_ref())
            .into_iter()
            .flatten()
            .map(|port| PortFacts {
                name: port.name.clone(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port: port.port,
            })
            .collect();
        ports.sort();
        let places = meta.annotations.as_ref().and_then(|a| a.get(keys::PLACES));
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            headless: spec.and_then(|s| s.cluster_ip.as_deref()) == Some("None"),
            made_for: if ours { flock_of(meta, labels) } else { None },
            publishes_not_ready: spec.and_then(|s| s.publish_not_ready_addresses).unwrap_or(false),
            selects: spec.and_then(|s| s.selector.as_ref()).and_then(|selector| {
                (selector.len() == 1)
                    .then(|| selector.get(keys::NAME).cloned())
                    .flatten()
            }),
            ports,
            places: places.map(|text| text.as_str().into()),
            record: places.and_then(|text| Record::parse(text).ok()).map(Arc::new),
            terminating: meta.deletion_timestamp.is_some(),
        })
    }
}
