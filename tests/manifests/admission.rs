//! The webhook configurations and the policies.

use flock::identity::{DnsLabel, FlockKey, NODE_LABEL_DOMAIN, Ordinal, keys};
use flock::storage::{DirectoryOwner, Helper, HelperConfig, HelperImage};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicySpec, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use rstest::rstest;
use serde_json::Value;

use crate::files::{object, resources, text};

fn members() -> MutatingWebhook {
    let mut webhooks = object::<MutatingWebhookConfiguration>("MutatingWebhookConfiguration", "flock")
        .webhooks
        .unwrap();
    assert_eq!(webhooks.len(), 1);
    webhooks.remove(0)
}

fn workloads() -> ValidatingWebhook {
    let mut webhooks = object::<ValidatingWebhookConfiguration>("ValidatingWebhookConfiguration", "flock")
        .webhooks
        .unwrap();
    assert_eq!(webhooks.len(), 1);
    webhooks.remove(0)
}

fn policy(name: &str) -> ValidatingAdmissionPolicySpec {
    object::<ValidatingAdmissionPolicy>("ValidatingAdmissionPolicy", name)
        .spec
        .unwrap()
}

fn selector(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
    let requirement = LabelSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: (!values.is_empty()).then(|| values.iter().map(ToString::to_string).collect()),
    };
    LabelSelector {
        match_expressions: Some(vec![requirement]),
        match_labels: None,
    }
}

/// All namespaces but those that Flock must not stand in the way of, by the label that nobody can choose.
fn others() -> LabelSelector {
    selector(
        "kubernetes.io/metadata.name",
        "NotIn",
        &["kube-system", "flock-system"],
    )
}

fn labelled() -> LabelSelector {
    selector(keys::NAME, "Exists", &[])
}

fn calls_the_service(config: &WebhookClientConfig, path: &str) {
    let service = config.service.as_ref().unwrap();
    assert_eq!(
        (service.name.as_str(), service.namespace.as_str()),
        ("flock", "flock-system")
    );
    assert_eq!((service.path.as_deref(), service.port), (Some(path), Some(443)));
    assert_eq!(config.url, None);
    // Flock writes it; a manifest with one would take it away at each `kubectl apply`.
    assert_eq!(config.ca_bundle, None);
}

fn rule(rule: &RuleWithOperations) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
    fn strs(list: Option<&Vec<String>>) -> Vec<&str> {
        list.into_iter().flatten().map(String::as_str).collect()
    }
    assert_eq!(strs(rule.api_versions.as_ref()), ["v1"]);
    assert_eq!(rule.scope.as_deref(), Some("Namespaced"));
    (
        strs(rule.api_groups.as_ref()),
        strs(rule.resources.as_ref()),
        strs(rule.operations.as_ref()),
    )
}

#[test]
fn labelled_pods_are_sent_at_creation_and_nothing_else_is() {
    let webhook = members();
    assert_eq!(webhook.name, "members.flock.dev");
    let rules = webhook.rules.unwrap();
    assert_eq!(
        rules.iter().map(rule).collect::<Vec<_>>(),
        [(vec![""], vec!["pods"], vec!["CREATE"])]
    );
    assert_eq!(webhook.object_selector, Some(labelled()));
    assert_eq!(webhook.namespace_selector, Some(others()));
    assert_eq!(webhook.match_policy.as_deref(), Some("Equivalent"));
    assert_eq!(webhook.match_conditions, None);
}

#[test]
fn a_member_does_not_start_without_flock() {
    let webhook = members();
    assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(webhook.side_effects, "None");
    assert_eq!(webhook.reinvocation_policy.as_deref(), Some("IfNeeded"));
    assert!(webhook.timeout_seconds.unwrap() <= 3);
    assert_eq!(webhook.admission_review_versions, ["v1"]);
    calls_the_service(&webhook.client_config, "/mutate");
}

#[test]
fn workloads_are_judged_when_applied_but_never_held_by_a_dead_flock() {
    let webhook = workloads();
    assert_eq!(webhook.name, "workloads.flock.dev");
    let rules = webhook.rules.unwrap();
    let both = || vec!["CREATE", "UPDATE"];
    let expected = [
        (
            vec!["apps"],
            vec!["deployments", "replicasets", "statefulsets", "daemonsets"],
            both(),
        ),
        (vec![""], vec!["replicationcontrollers"], both()),
        (vec!["batch"], vec!["jobs", "cronjobs"], both()),
    ];
    assert_eq!(rules.iter().map(rule).collect::<Vec<_>>(), expected);
    assert_eq!(webhook.namespace_selector, Some(others()));
    assert_eq!(
        webhook.object_selector, None,
        "the workload's own labels decide nothing"
    );
    assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
    assert_eq!(webhook.match_policy.as_deref(), Some("Equivalent"));
    assert_eq!(webhook.side_effects, "None");
    assert!(webhook.timeout_seconds.unwrap() <= 3);
    calls_the_service(&webhook.client_config, "/validate");
}

#[test]
fn no_condition_of_the_workloads_webhook_can_err() {
    let conditions = workloads().match_conditions.unwrap();
    assert!(!conditions.is_empty());
    for condition in conditions {
        // An access to a field that may be absent errs unless it is optional.
        for path in [
            "object.spec",
            "object.metadata",
            "oldObject.spec",
            ".template.",
            ".labels[",
        ] {
            assert!(
                !condition.expression.contains(path)
                    || path == ".labels[" && condition.expression.contains(".?labels[?"),
                "{}: {}",
                condition.name,
                condition.expression
            );
        }
    }
}

#[rstest]
#[case("flock-members")]
#[case("flock-member-labels")]
#[case("flock-member-bindings")]
#[case("flock-host-paths")]
#[case("flock-own-nodes")]
#[case("flock-own-workloads")]
#[case("flock-own-pods")]
#[case("flock-own-services")]
#[case("flock-own-volumes")]
#[case("flock-own-claims")]
#[case("flock-own-namespace")]
fn a_policy_is_bound_and_denies_with_a_sentence(#[case] name: &str) {
    let spec = policy(name);
    assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
    let validations = spec.validations.unwrap();
    assert!(!validations.is_empty());
    for validation in validations {
        assert!(
            validation.message.is_some() || validation.message_expression.is_some(),
            "{}",
            validation.expression
        );
    }
    let binding: ValidatingAdmissionPolicyBinding = object("ValidatingAdmissionPolicyBinding", name);
    let binding = binding.spec.unwrap();
    assert_eq!(binding.policy_name.as_deref(), Some(name));
    assert_eq!(
        binding.validation_actions.as_deref(),
        Some(&["Deny".to_owned()][..])
    );
    assert_eq!(
        binding.match_resources, None,
        "what it holds for stands in one place, the policy"
    );
}

#[test]
fn no_policy_is_missing_in_the_table_above() {
    let all = resources("deploy").into_iter().chain(resources("webhook-config"));
    assert_eq!(
        all.filter(|document| document.kind() == "ValidatingAdmissionPolicy")
            .count(),
        11
    );
}

#[rstest]
#[case("flock-members", Some(labelled()))]
#[case("flock-member-labels", Some(labelled()))]
#[case("flock-member-bindings", None)]
#[case("flock-host-paths", None)]
fn policies_on_pods_spare_the_same_namespaces_as_the_webhook(
    #[case] name: &str,
    #[case] of_pods: Option<LabelSelector>,
) {
    let matches = policy(name).match_constraints.unwrap();
    assert_eq!(matches.namespace_selector, Some(others()));
    assert_eq!(matches.object_selector, of_pods);
}

#[rstest]
#[case("flock-own-nodes")]
#[case("flock-own-workloads")]
#[case("flock-own-pods")]
#[case("flock-own-services")]
#[case("flock-own-volumes")]
#[case("flock-own-claims")]
fn policies_on_flocks_own_account_hold_in_every_namespace(#[case] name: &str) {
    let spec = policy(name);
    let matches = spec.match_constraints.unwrap();
    assert_eq!(
        (matches.namespace_selector, matches.object_selector),
        (None, None)
    );
    let conditions = spec.match_conditions.unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(
        conditions[0].expression,
        "request.userInfo.username == 'system:serviceaccount:flock-system:flock'"
    );
}

#[rstest]
#[case("flock-members")]
#[case("flock-host-paths")]
fn only_a_kubelet_has_mirror_pods(#[case] name: &str) {
    let conditions = policy(name).match_conditions.unwrap();
    let condition = conditions
        .iter()
        .find(|condition| condition.name == "not-a-mirror-pod")
        .unwrap();
    assert!(condition.expression.contains(keys::MIRROR));
    assert!(
        condition
            .expression
            .contains("'system:nodes' in request.userInfo.?groups")
    );
}

#[test]
fn the_policies_speak_the_vocabulary_of_the_code() {
    let members = text("webhook-config/members.yaml");
    assert!(
        members.contains(&format!("'{}'", keys::NAME)) && members.contains(&format!("'{}'", keys::ORDINAL))
    );
    let own = text("webhook-config/own-account.yaml");
    assert!(own.contains(&NODE_LABEL_DOMAIN.replace('.', "[.]")));
    assert!(own.contains(&format!("'{}'", keys::WOKEN_AT)));
    for key in [
        keys::GATE,
        keys::MANAGED_BY,
        keys::NAME,
        keys::NAMESPACE,
        keys::ORDINAL,
        keys::PLACES,
        keys::PREPARED_ON,
        keys::VOLUME,
    ] {
        assert!(own.contains(&format!("'{key}'")), "{key}");
    }
}

#[test]
fn the_policies_take_the_helper_as_the_code_makes_it() {
    let shape = text("deploy/namespace-policy.yaml");
    let member = FlockKey::parse("default", "db").unwrap();
    let helper = Helper {
        member_uid: "11111111-2222-3333-4444-555555555555".into(),
        namespace_uid: "66666666-7777-8888-9999-000000000000".into(),
        ordinal: Ordinal::ZERO,
        node: "node-1".into(),
        volumes: vec![DnsLabel::parse("data").unwrap()],
        owner: DirectoryOwner {
            uid: Some(1000),
            gid: Some(1000),
            fs_group: Some(2000),
        },
        ran: true,
        data_lost: true,
    };
    let config = HelperConfig {
        namespace: "flock-system".into(),
        root: "/var/lib/flock".into(),
    };
    let container = helper
        .pod(&member, &config, &HelperImage::public("flock:dev"))
        .unwrap()
        .spec
        .unwrap()
        .containers
        .remove(0);
    for argument in container.args.as_ref().unwrap() {
        let word = argument.split('=').next().unwrap().trim_start_matches('-');
        assert!(shape.contains(word), "{argument}");
    }
    let Ok(Value::Object(fields)) = serde_json::to_value(&container) else {
        panic!("{container:?}")
    };
    for field in fields.keys() {
        assert!(shape.contains(&format!("'{field}'")), "{field}");
    }
}

#[test]
fn the_storage_root_is_the_same_in_every_policy() {
    for name in ["flock-host-paths", "flock-own-volumes", "flock-own-namespace"] {
        let variables = policy(name).variables.unwrap();
        let root = variables.iter().find(|variable| variable.name == "root").unwrap();
        assert_eq!(root.expression, "'/var/lib/flock/'", "{name}");
    }
}
