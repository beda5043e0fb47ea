//! What Flock's account may do, and at which priority the API server listens to it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use rstest::rstest;

use crate::files::{object, text};

fn cluster_rules() -> Vec<PolicyRule> {
    object::<ClusterRole>("ClusterRole", "flock").rules.unwrap()
}

fn own_rules() -> Vec<PolicyRule> {
    object::<Role>("Role", "flock").rules.unwrap()
}

/// The verbs on a resource that hold for objects of any name.
fn verbs(rules: &[PolicyRule], resource: &str, named: bool) -> Vec<String> {
    let mut verbs: Vec<_> = rules
        .iter()
        .filter(|rule| rule.resources.iter().flatten().any(|r| r == resource))
        .filter(|rule| {
            rule.resource_names
                .as_ref()
                .is_some_and(|names| !names.is_empty())
                == named
        })
        .flat_map(|rule| rule.verbs.clone())
        .collect();
    verbs.sort();
    verbs
}

#[test]
fn no_rule_has_a_wildcard() {
    for rule in cluster_rules().iter().chain(&own_rules()) {
        let lists = [
            &rule.api_groups,
            &rule.resources,
            &rule.resource_names,
            &rule.non_resource_urls,
        ];
        assert!(
            lists
                .into_iter()
                .flatten()
                .flatten()
                .chain(&rule.verbs)
                .all(|value| !value.contains('*')),
            "{rule:?}"
        );
    }
}

#[test]
fn no_rule_lets_flock_raise_its_own_rights() {
    let powerful = [
        "roles",
        "clusterroles",
        "rolebindings",
        "clusterrolebindings",
        "serviceaccounts",
        "serviceaccounts/token",
        "pods/exec",
        "pods/ephemeralcontainers",
        "nodes/proxy",
        "certificatesigningrequests",
        "configmaps",
    ];
    for rule in cluster_rules().iter().chain(&own_rules()) {
        assert!(
            rule.resources
                .iter()
                .flatten()
                .all(|r| !powerful.contains(&r.as_str())),
            "{rule:?}"
        );
        assert!(
            rule.verbs
                .iter()
                .all(|v| !["escalate", "bind", "impersonate", "deletecollection"].contains(&v.as_str()))
        );
    }
}

#[rstest]
#[case("pods", &["delete", "get", "list", "patch", "watch"])]
#[case("pods/eviction", &["create"])]
#[case("replicasets", &["get", "list", "patch", "watch"])]
#[case("replicationcontrollers", &["get", "list", "patch", "watch"])]
#[case("deployments", &["get"])]
#[case("statefulsets", &["get"])]
#[case("nodes", &["get", "list", "patch", "watch"])]
#[case("services", &["create", "delete", "get", "list", "patch", "watch"])]
#[case("namespaces", &["get", "list", "watch"])]
#[case("events", &["create", "patch"])]
#[case("persistentvolumeclaims", &["create", "get", "list", "patch", "watch"])]
#[case("persistentvolumes", &["create", "get", "list", "patch", "watch"])]
#[case("storageclasses", &["list"])]
#[case("csidrivers", &["list"])]
#[case::no_secret_of_the_cluster("secrets", &[])]
#[case::no_webhook_of_others("mutatingwebhookconfigurations", &[])]
#[case::no_webhook_of_others("validatingwebhookconfigurations", &[])]
fn the_cluster_role_grants_these_verbs_and_no_others(#[case] resource: &str, #[case] expected: &[&str]) {
    assert_eq!(verbs(&cluster_rules(), resource, false), expected);
}

#[test]
fn the_cluster_role_grants_nothing_beyond_the_table_above() {
    let mut resources: Vec<_> = cluster_rules()
        .iter()
        .flat_map(|rule| rule.resources.clone().unwrap())
        .collect();
    resources.sort();
    resources.dedup();
    assert_eq!(resources.len(), 16, "{resources:?}");
}

#[rstest]
#[case("mutatingwebhookconfigurations")]
#[case("validatingwebhookconfigurations")]
fn only_the_configuration_named_flock_can_be_seen_or_changed(#[case] resource: &str) {
    assert_eq!(
        verbs(&cluster_rules(), resource, true),
        ["get", "list", "patch", "watch"]
    );
    let rules = cluster_rules();
    let rule = rules
        .iter()
        .find(|rule| rule.resources.iter().flatten().any(|r| r == resource))
        .unwrap();
    assert_eq!(rule.resource_names.as_deref(), Some(&["flock".to_owned()][..]));
}

#[test]
fn only_the_secret_of_the_ca_can_be_read() {
    let rules = own_rules();
    assert_eq!(
        verbs(&rules, "secrets", true),
        ["get", "list", "patch", "update", "watch"]
    );
    assert_eq!(verbs(&rules, "secrets", false), ["create"]);
    let named = rules
        .iter()
        .find(|rule| {
            rule.resource_names
                .iter()
                .flatten()
                .any(|name| name == "flock-ca")
        })
        .unwrap();
    assert_eq!(named.resource_names.as_ref().unwrap().len(), 1);
}

#[test]
fn only_the_lease_named_flock_can_be_held() {
    let rules = own_rules();
    assert_eq!(verbs(&rules, "leases", true), ["get", "update"]);
    assert_eq!(verbs(&rules, "leases", false), ["create"]);
}

#[test]
fn pods_are_made_in_flocks_own_namespace_only() {
    assert!(!verbs(&cluster_rules(), "pods", false).contains(&"create".to_owned()));
    assert!(verbs(&own_rules(), "pods", false).contains(&"create".to_owned()));
}

#[test]
fn data_is_never_deleted() {
    for resource in [
        "persistentvolumes",
        "persistentvolumeclaims",
        "secrets",
        "nodes",
        "namespaces",
    ] {
        for rules in [cluster_rules(), own_rules()] {
            assert!(
                !verbs(&rules, resource, false).contains(&"delete".to_owned()),
                "{resource}"
            );
        }
    }
}

#[rstest]
#[case("deploy/rbac.yaml")]
#[case("certs/role.yaml")]
fn every_rule_says_what_it_is_for(#[case] file: &str) {
    let text = text(file);
    let lines: Vec<_> = text.lines().collect();
    for (number, pair) in lines.windows(2).enumerate() {
        // Two rules may share one reason: then the second follows the first's verbs without a comment.
        if pair[1].starts_with("  - apiGroups:") {
            let follows = pair[0].starts_with("    verbs:");
            assert!(
                pair[0].trim_start().starts_with('#') || follows,
                "{file}:{}: {}",
                number + 2,
                pair[1]
            );
        }
    }
}

#[test]
fn the_roles_are_bound_to_flocks_account_alone() {
    let account = [Subject {
        kind: "ServiceAccount".into(),
        name: "flock".into(),
        namespace: Some("flock-system".into()),
        ..Subject::default()
    }];
    let cluster: ClusterRoleBinding = object("ClusterRoleBinding", "flock");
    let own: RoleBinding = object("RoleBinding", "flock");
    assert_eq!(
        (cluster.role_ref.kind.as_str(), cluster.role_ref.name.as_str()),
        ("ClusterRole", "flock")
    );
    assert_eq!(
        (own.role_ref.kind.as_str(), own.role_ref.name.as_str()),
        ("Role", "flock")
    );
    assert_eq!(cluster.subjects.as_deref(), Some(&account[..]));
    assert_eq!(own.subjects.as_deref(), Some(&account[..]));
    assert_eq!(own.metadata.namespace.as_deref(), Some("flock-system"));
}

#[test]
fn the_account_hands_its_token_to_nobody_who_does_not_ask() {
    let account: ServiceAccount = object("ServiceAccount", "flock");
    assert_eq!(account.automount_service_account_token, Some(false));
}

#[test]
fn the_lease_and_the_reconciler_come_before_tenants() {
    let levels: BTreeMap<_, _> = ["flock", "flock-leader-election"]
        .into_iter()
        .map(|name| {
            let spec = object::<FlowSchema>("FlowSchema", name).spec.unwrap();
            let rule = &spec.rules.as_ref().unwrap()[0];
            let account = rule.subjects[0].service_account.as_ref().unwrap();
            assert_eq!(
                (
                    rule.subjects.len(),
                    account.name.as_str(),
                    account.namespace.as_str()
                ),
                (1, "flock", "flock-system")
            );
            (
                name,
                (
                    spec.priority_level_configuration.name,
                    spec.matching_precedence.unwrap(),
                ),
            )
        })
        .collect();
    assert_eq!(levels["flock-leader-election"].0, "leader-election");
    assert_eq!(levels["flock"].0, "workload-high");
    // The lower number is asked first; 9000 is `service-accounts`, which would take everything.
    assert!(levels["flock-leader-election"].1 < levels["flock"].1 && levels["flock"].1 < 9000);
}
