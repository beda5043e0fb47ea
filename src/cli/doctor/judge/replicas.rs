//! Flock's own replicas: the Deployment, its pods, the Service's endpoints, the Lease.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::super::finding::Finding;
use super::super::seen::Seen;
use super::setup::Setup;

const DEPLOYMENT: &str = "Deployment";
const IMAGE: &str = "image";
const ENDPOINTS: &str = "endpoints";
const LEASE: &str = "Lease";

/// A renewal of the Lease that lies so far ahead is told by a clock that is wrong.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// What was seen of them.
#[derive(Debug)]
pub struct Replicas {
    /// The Deployment.
    pub deployment: Seen<Deployment>,
    /// The pods that it selects.
    pub pods: Seen<Vec<Pod>>,
    /// The slices of the Service.
    pub slices: Seen<Vec<EndpointSlice>>,
    /// The Lease.
    pub lease: Seen<Lease>,
}

/// Judges them.
pub fn judge(replicas: &Replicas, setup: &Setup, now: Timestamp) -> Vec<Finding> {
    let deployment = deployment(&replicas.deployment, setup);
    let endpoints = endpoints(&replicas.slices, setup);
    let image = image(&replicas.pods, setup);
    [deployment, image, endpoints, lease(&replicas.lease, setup, now)].into()
}

fn deployment(seen: &Seen<Deployment>, setup: &Setup) -> Finding {
    let namespace = &setup.namespace;
    let absent = || {
        let message = format!(
            "Deployment flock does not exist in namespace {namespace}: kubectl apply -k deploy, or name Flock's own \
             namespace by --namespace"
        );
        Finding::broken(DEPLOYMENT, message)
    };
    let deployment = match seen.or_finding(DEPLOYMENT, "Deployment flock", absent) {
        Ok(deployment) => deployment,
        Err(finding) => return finding,
    };
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let available = status.available_replicas.unwrap_or(0);
    let updated = status.updated_replicas.unwrap_or(0);
    let look = format!("kubectl -n {namespace} get pods, and the log of one that is not Ready");
    if available == 0 {
        let message =
            format!("no replica of Deployment flock is available, so labelled pods are refused: see {look}");
        return Finding::broken(DEPLOYMENT, message);
    }
    if available < wanted {
        let message =
            format!("{available} of {wanted} replicas of Deployment flock are available: see {look}");
        return Finding::warning(DEPLOYMENT, message);
    }
    if status.observed_generation < deployment.metadata.generation || updated < wanted {
        let message = format!(
            "Deployment flock is not rolled out: wait for kubectl -n {namespace} rollout status deployment/flock"
        );
        return Finding::warning(DEPLOYMENT, message);
    }
    if wanted < 2 {
        let message = "Deployment flock has one replica, and labelled pods are refused while that one restarts: scale it to 2";
        return Finding::warning(DEPLOYMENT, message);
    }
    Finding::ok(
        DEPLOYMENT,
        format!("{available} of {wanted} replicas are available"),
    )
}

/// Whether all replicas run the same program: the same name of the image, and the same image behind the name.
fn image(seen: &Seen<Vec<Pod>>, setup: &Setup) -> Finding {
    let none = || {
        Finding::broken(
            IMAGE,
            format!("Flock has no pod in namespace {}", setup.namespace),
        )
    };
    let pods = match seen.or_finding(IMAGE, "the pods of Deployment flock", none) {
        Ok(pods) if pods.is_empty() => return none(),
        Ok(pods) => pods,
        Err(finding) => return finding,
    };
    let staying = || {
        pods.iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
    };
    let names: BTreeSet<_> = staying()
        .flat_map(|pod| pod.spec.iter().flat_map(|spec| &spec.containers))
        .filter_map(|container| container.image.clone())
        .collect();
    let ids: BTreeSet<_> = staying()
        .flat_map(|pod| pod.status.iter().flat_map(|status| &status.container_statuses))
        .flatten()
        .map(|container| container.image_id.clone())
        .filter(|id| !id.is_empty())
        .collect();
    let list = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(" and ");
    if names.len() > 1 {
        let message = format!(
            "the replicas run {}: wait for the end of the rollout, or undo it",
            list(names)
        );
        return Finding::warning(IMAGE, message);
    }
    if ids.len() > 1 {
        let message = format!(
            "{} is not the same image on all nodes ({}): give each build a tag of its own",
            list(names),
            list(ids)
        );
        return Finding::warning(IMAGE, message);
    }
    Finding::ok(IMAGE, format!("all replicas run {}", list(names)))
}

fn endpoints(seen: &Seen<Vec<EndpointSlice>>, setup: &Setup) -> Finding {
    let service = &setup.service;
    let none = || {
        let message = format!(
            "Service {service} in namespace {} has no ready endpoint, so the API server reaches no replica: no pod with \
             its selector's labels is Ready",
            setup.namespace
        );
        Finding::broken(ENDPOINTS, message)
    };
    let what = format!("the EndpointSlices of Service {service}");
    let slices = match seen.or_finding(ENDPOINTS, &what, none) {
        Ok(slices) => slices,
        Err(finding) => return finding,
    };
    // A Service of two address families has each replica twice.
    let ready = |family: &str| {
        slices
            .iter()
            .filter(|slice| slice.address_type == family)
            .flat_map(|slice| &slice.endpoints)
            .filter(|endpoint| {
                let ready = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|conditions| conditions.ready);
                ready.unwrap_or(true)
            })
            .count()
    };
    match ["IPv4", "IPv6"].map(ready).into_iter().max() {
        None | Some(0) => none(),
        Some(1) => {
            let message = format!(
                "Service {service} has one ready endpoint: labelled pods are refused once that is gone too"
            );
            Finding::warning(ENDPOINTS, message)
        }
        Some(count) => Finding::ok(
            ENDPOINTS,
            format!("Service {service} has {count} ready endpoints"),
        ),
    }
}

fn lease(seen: &Seen<Lease>, setup: &Setup, now: Timestamp) -> Finding {
    const NOBODY: &str = "nobody places members or hands ordinals over";
    let logs = format!(
        "see the logs of the replicas: kubectl -n {} logs -l app.kubernetes.io/component=webhook",
        setup.namespace
    );
    let absent = || Finding::broken(LEASE, format!("Lease flock does not exist, so {NOBODY}: {logs}"));
    let lease = match seen.or_finding(LEASE, "Lease flock", absent) {
        Ok(lease) => lease,
        Err(finding) => return finding,
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let (Some(holder), Some(renewed)) = (holder, spec.renew_time) else {
        return Finding::broken(LEASE, format!("nobody holds Lease flock, so {NOBODY}: {logs}"));
    };
    let age = now.duration_since(renewed.0);
    let life = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
    let seconds = age.abs().as_secs();
    if -age > AHEAD {
        let message = format!(
            "{holder} renewed Lease flock {seconds} s from now: the clock of its node is wrong, set it there"
        );
        return Finding::warning(LEASE, message);
    }
    let told = format!("{holder} renewed Lease flock {seconds} s ago");
    if age > life * 2 {
        return Finding::broken(LEASE, format!("{told} and not since, so {NOBODY}: {logs}"));
    }
    if age > life {
        let message = format!("{told}: another replica should lead by now, look again in some seconds");
        return Finding::warning(LEASE, message);
    }
    Finding::ok(LEASE, told)
}

#[cfg(test)]
mod tests;
