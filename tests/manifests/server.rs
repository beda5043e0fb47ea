//! The Deployment and what stands around it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Namespace, PodSpec, Probe, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;

use crate::files::object;

fn deployment() -> Deployment {
    object("Deployment", "flock")
}

fn pod() -> PodSpec {
    deployment().spec.unwrap().template.spec.unwrap()
}

fn container() -> Container {
    let mut containers = pod().containers;
    assert_eq!(containers.len(), 1);
    containers.remove(0)
}

fn selects_the_replicas(selector: &LabelSelector) -> bool {
    let labels = deployment()
        .spec
        .unwrap()
        .template
        .metadata
        .unwrap()
        .labels
        .unwrap();
    let wanted = selector.match_labels.clone().unwrap_or_default();
    !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[test]
fn two_replicas_run_and_an_upgrade_never_has_fewer() {
    let spec = deployment().spec.unwrap();
    assert_eq!(spec.replicas, Some(2));
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)));
    assert_eq!(rolling.max_surge, Some(IntOrString::Int(1)));
    assert!(selects_the_replicas(&spec.selector));
}

#[test]
fn replicas_prefer_nodes_and_zones_of_their_own_but_need_none() {
    let pod = pod();
    let anti = pod.affinity.unwrap().pod_anti_affinity.unwrap();
    assert_eq!(anti.required_during_scheduling_ignored_during_execution, None);
    let term = &anti.preferred_during_scheduling_ignored_during_execution.unwrap()[0].pod_affinity_term;
    assert_eq!(term.topology_key, "kubernetes.io/hostname");
    assert!(selects_the_replicas(term.label_selector.as_ref().unwrap()));
    let spread = &pod.topology_spread_constraints.unwrap()[0];
    assert_eq!(spread.topology_key, "topology.kubernetes.io/zone");
    assert_eq!(spread.when_unsatisfiable, "ScheduleAnyway");
    assert!(selects_the_replicas(spread.label_selector.as_ref().unwrap()));
}

#[test]
fn the_pod_passes_the_level_restricted() {
    let pod = pod();
    let context = pod.security_context.clone().unwrap();
    assert_eq!(context.run_as_non_root, Some(true));
    assert_eq!(context.run_as_user, Some(65532));
    assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
    assert_eq!((pod.host_network, pod.host_pid, pod.host_ipc), (None, None, None));
    assert_eq!(pod.volumes, None, "nothing of the host, and no key on disk");
    let context = container().security_context.unwrap();
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!(context.privileged, None);
    let capabilities = context.capabilities.unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(capabilities.add, None);
}

#[test]
fn the_namespace_is_judged_by_the_strictest_level() {
    let labels = object::<Namespace>("Namespace", "flock-system")
        .metadata
        .labels
        .unwrap();
    for mode in ["warn", "audit"] {
        assert_eq!(
            labels[&format!("pod-security.kubernetes.io/{mode}")],
            "restricted"
        );
    }
    // The helper's hostPath is what no level but this one allows; the policy flock-own-namespace stands in for it.
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "privileged");
}

#[test]
fn the_process_gets_what_the_binary_is_told_by() {
    let container = container();
    assert_eq!(container.args.as_deref(), Some(&["serve".to_owned()][..]));
    assert_eq!(container.command, None, "the image's own entrypoint");
    assert_eq!(container.image.as_deref(), Some("flock:dev"));
    assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
    let env = container.env.unwrap();
    for (name, path) in [
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_NAME", "metadata.name"),
    ] {
        let variable = env.iter().find(|variable| variable.name == name).unwrap();
        let field = variable.value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
        assert_eq!(field.field_path, path);
    }
    let pod = pod();
    assert_eq!(pod.service_account_name.as_deref(), Some("flock"));
    assert_eq!(pod.automount_service_account_token, Some(true));
    assert_eq!(pod.termination_grace_period_seconds, Some(30));
}

#[test]
fn the_priority_is_the_highest_that_is_not_a_system_class() {
    assert_eq!(pod().priority_class_name.as_deref(), Some("flock"));
    let class: PriorityClass = object("PriorityClass", "flock");
    assert_eq!(class.value, 1_000_000_000);
    assert_ne!(class.global_default, Some(true));
}

#[test]
fn the_service_leads_to_the_webhooks_port_and_stays_inside_of_the_cluster() {
    let spec = object::<Service>("Service", "flock").spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    let labels = LabelSelector {
        match_labels: spec.selector,
        ..LabelSelector::default()
    };
    assert!(selects_the_replicas(&labels));
    let ports = spec.ports.unwrap();
    assert_eq!(ports.len(), 1, "metrics are read from the pods");
    assert_eq!(ports[0].port, 443);
    assert_eq!(ports[0].target_port, Some(IntOrString::String("webhook".into())));
    let ports = container().ports.unwrap();
    let ports: Vec<_> = ports
        .iter()
        .map(|port| (port.name.as_deref().unwrap(), port.container_port))
        .collect();
    assert_eq!(ports, [("webhook", 8443), ("admin", 8080)]);
}

fn probed(probe: Option<Probe>) -> (String, IntOrString) {
    let get = probe.unwrap().http_get.unwrap();
    (get.path.unwrap(), get.port)
}

#[test]
fn the_probes_ask_the_admin_port() {
    let port = IntOrString::String("admin".into());
    assert_eq!(
        probed(container().readiness_probe),
        ("/readyz".into(), port.clone())
    );
    assert_eq!(probed(container().liveness_probe), ("/livez".into(), port));
}

#[test]
fn memory_is_bounded_and_cpu_is_not() {
    let resources = container().resources.unwrap();
    let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap());
    assert_eq!(
        (requests["cpu"].0.as_str(), requests["memory"].0.as_str()),
        ("100m", "32Mi")
    );
    assert_eq!(limits["memory"].0, "128Mi");
    assert!(!limits.contains_key("cpu"));
}

#[test]
fn one_replica_at_a_time_may_be_evicted_and_a_broken_one_always() {
    let spec = object::<PodDisruptionBudget>("PodDisruptionBudget", "flock")
        .spec
        .unwrap();
    assert_eq!(spec.max_unavailable, Some(IntOrString::Int(1)));
    assert_eq!(spec.unhealthy_pod_eviction_policy.as_deref(), Some("AlwaysAllow"));
    assert!(selects_the_replicas(&spec.selector.unwrap()));
}

#[test]
fn the_network_policy_lets_in_reviews_and_metrics_and_out_to_the_api_server() {
    let spec = object::<NetworkPolicy>("NetworkPolicy", "flock").spec.unwrap();
    assert!(selects_the_replicas(&spec.pod_selector.unwrap()));
    let ingress = spec.ingress.unwrap();
    let port = |rule: usize| ingress[rule].ports.as_ref().unwrap()[0].port.clone().unwrap();
    assert_eq!(ingress.len(), 2);
    assert_eq!(
        (port(0), ingress[0].from.is_none()),
        (IntOrString::String("webhook".into()), true)
    );
    assert_eq!(
        (port(1), ingress[1].from.is_some()),
        (IntOrString::String("admin".into()), true)
    );
    let egress = spec.egress.unwrap();
    assert_eq!(egress.len(), 1);
    let ports: Vec<_> = egress[0]
        .ports
        .iter()
        .flatten()
        .map(|port| port.port.clone().unwrap())
        .collect();
    assert_eq!(ports, [IntOrString::Int(443), IntOrString::Int(6443)]);
}

#[rstest]
#[case("Ingress")]
#[case("Egress")]
fn other_pods_of_the_namespace_have_no_network(#[case] direction: &str) {
    let spec = object::<NetworkPolicy>("NetworkPolicy", "deny-all").spec.unwrap();
    assert_eq!(spec.pod_selector, Some(LabelSelector::default()));
    assert!(spec.policy_types.unwrap().contains(&direction.to_owned()));
    assert_eq!((spec.ingress, spec.egress), (None, None));
}
