//! The governing Service: headless, publishing members that are not Ready yet, so that peers find each other
//! before any of them is.

use std::collections::BTreeSet;

use crate::identity::DnsLabel;
use crate::place::Record;
use crate::view::{PortFacts, ServiceFacts};

use super::{Action, Observed, Plan, Subject};

/// Most of a Service's name; a longer one is no DNS label.
const NAME_MAX: usize = 63;
/// So many names are tried for a Service beside a user's own.
const BESIDE: u32 = 10;

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    let namespace = observed.key.namespace.as_str();
    let flock = observed.flock();
    if flock.is_empty() && observed.view.places(observed.key).is_empty() {
        remove_all(observed, plan);
        return;
    }
    let names = flock.service_names(observed.key);
    let holder = record_holder(observed);
    let pinned = flock.is_pinned();
    let ports = ports(observed);
    for name in &names {
        if !DnsLabel::parse(name).is_ok_and(|label| label.is_service_name()) {
            continue;
        }
        match observed.view.service(namespace, name) {
            None => plan.actions.push(Action::CreateService {
                name: name.clone(),
                ports: ports.clone(),
                selects: true,
                record: (pinned && Some(name) == holder.as_ref()).then(|| first_record(observed)),
            }),
            Some(service) if service.made_for.as_ref() == Some(observed.key) => {
                let selects = service.selects.as_deref() == Some(observed.key.flock.as_str());
                if service.ports != ports || !service.publishes_not_ready || !selects {
                    plan.actions.push(Action::MendService {
                        name: name.clone(),
                        version: service.resource_version.clone(),
                        ports: ports.clone(),
                    });
                }
            }
            Some(service) => check_own(observed, service, plan),
        }
    }
    // Where the governing Service is the user's own, it stays as it is, and the record stands on one of ours.
    if let Some(holder) = holder.filter(|holder| pinned && !names.contains(holder))
        && observed.view.service(namespace, &holder).is_none()
    {
        plan.actions.push(Action::CreateService {
            name: holder,
            ports: Vec::new(),
            selects: false,
            record: Some(first_record(observed)),
        });
    }
}

/// The name of the Service that carries the record of places: where it stands already; else the governing one, or,
/// where that is the user's own, a headless one without a selector beside it.
pub(super) fn record_holder(observed: &Observed<'_>) -> Option<String> {
    let key = observed.key;
    if let Some(service) = observed.view.record_service(key) {
        return Some(service.name.clone());
    }
    let governing = observed.flock().service_names(key).into_iter().next()?;
    let free = |name: &String| {
        let held = observed.view.service(key.namespace.as_str(), name);
        held.is_none_or(|service| service.made_for.as_ref() == Some(key))
    };
    let beside = (0..BESIDE).map(|number| beside(&key.flock, number));
    std::iter::once(governing).chain(beside).find(free)
}

/// The name of a Service beside the user's own one: one of several, since these may be users' own as well.
fn beside(flock: &DnsLabel, number: u32) -> String {
    let number = if number == 0 {
        String::new()
    } else {
        format!("-{number}")
    };
    let suffix = format!("-places{number}");
    let flock = flock.as_str();
    // Only the Service's labels say whose it is, so a shortened name that two flocks want goes to the first.
    let room = NAME_MAX - suffix.len();
    format!("{}{suffix}", flock[..flock.len().min(room)].trim_end_matches('-'))
}

/// The record of a Service that is made now: what the leader remembers of one that was deleted, brought up to
/// date from the labels.
fn first_record(observed: &Observed<'_>) -> String {
    let record = observed.memory.record.clone().unwrap_or_default();
    let labels = observed.view.places(observed.key);
    let running = super::places::running(observed);
    let findings = crate::place::compare(observed.view.nodes(), labels, &record, &running);
    let record = crate::place::updated(&record, &findings);
    record
        .render()
        .unwrap_or_else(|_| Record::default().render().unwrap_or_else(|_| "{}".into()))
}

fn check_own(observed: &Observed<'_>, service: &ServiceFacts, plan: &mut Plan) {
    if service.headless {
        return;
    }
    for workload in observed
        .flock()
        .workloads()
        .values()
        .filter(|workload| !workload.terminating)
    {
        plan.warn(
            Subject::workload(workload),
            "ServiceNotHeadless",
            format!(
                "Service {0} exists and is not headless, so the members of flock {1} have no names in DNS; set \
                 its clusterIP to None, rename it, or name another one by the annotation flock.dev/service",
                service.name, observed.key.flock
            ),
        );
    }
}

fn remove_all(observed: &Observed<'_>, plan: &mut Plan) {
    for service in observed
        .view
        .services_of(observed.key)
        .filter(|service| !service.terminating)
    {
        // Entries of nodes that are gone may be the last trace of where data is.
        let remembers =
            service.places.is_some() && service.record.as_ref().is_none_or(|record| !record.is_empty());
        if !remembers {
            plan.actions.push(Action::DeleteService {
                name: service.name.clone(),
                uid: service.uid.clone(),
            });
        }
    }
}

/// The ports that the members' containers declare: each number and protocol once, under a name that is unique.
fn ports(observed: &Observed<'_>) -> Vec<PortFacts> {
    let flock = observed.flock();
    let newest = flock
        .workloads()
        .values()
        .filter(|w| flock.newest(w).uid == w.uid)
        .map(|w| &w.template);
    let bare = flock
        .pods()
        .values()
        .filter(|pod| pod.owner.is_none())
        .map(|pod| &pod.template);
    let declared: BTreeSet<_> = newest
        .chain(bare)
        .flat_map(|template| &template.ports)
        .map(|port| (port.port, port.protocol.clone(), port.name.clone()))
        .collect();
    let mut ports: Vec<PortFacts> = Vec::new();
    for (port, protocol, name) in declared {
        if ports
            .iter()
            .any(|other| other.port == port && other.protocol == protocol)
        {
            continue;
        }
        let generic = format!("{}-{port}", protocol.to_lowercase());
        let name = name.filter(|name| !ports.iter().any(|other| other.name.as_ref() == Some(name)));
        ports.push(PortFacts {
            name: Some(name.unwrap_or(generic)),
            protocol,
            port,
        });
    }
    ports.sort();
    ports
}
