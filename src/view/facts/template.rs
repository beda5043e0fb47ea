//! What pods are made of.

use k8s_openapi::api::core::v1::PodSpec;

use crate::identity::{Settings, SettingsError};
use crate::place::Constraints;
use crate::storage::Needs;

/// A container port of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFacts {
    /// The port's name, if it has one.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
}

/// What a pod has from its template. Pods of one workload share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The annotations, read.
    pub settings: Result<Settings, SettingsError>,
    /// Where it can run.
    pub constraints: Constraints,
    /// The ports that its containers declare.
    pub ports: Vec<PortFacts>,
    /// What its volumes need.
    pub needs: Needs,
}

impl Template {
    /// The template's facts from annotations and spec.
    pub fn new(
        annotations: Option<&std::collections::BTreeMap<String, String>>,
        spec: Option<&PodSpec>,
    ) -> Self {
        let settings = Settings::parse(|key| annotations.and_then(|a| a.get(key)).map(String::as_str));
        let mut ports: Vec<_> = spec
            .into_iter()
            .flat_map(|spec| &spec.containers)
            .flat_map(|container| container.ports.iter().flatten())
            .map(|port| PortFacts {
                name: port.name.clone(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port: port.container_port,
            })
            .collect();
        ports.sort();
        ports.dedup();
        Self {
            settings,
            constraints: Constraints::from(spec.unwrap_or(&PodSpec::default())),
            ports,
            needs: spec.map(Needs::from).unwrap_or_default(),
        }
    }

    /// The settings, or the defaults where the annotations can't be read.
    pub fn settings(&self) -> Settings {
        self.settings.clone().unwrap_or_else(|_| Settings::defaults())
    }
}
