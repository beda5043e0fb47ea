//! The policies that hold also without Flock, and their bindings.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};

use super::super::finding::{Finding, Verdict};
use super::super::seen::Seen;
use super::setup::Setup;

const CHECK: &str = "policies";

/// A policy and its binding.
#[derive(Debug)]
pub struct Guard {
    /// The name of both.
    pub name: String,
    /// The policy.
    pub policy: Seen<ValidatingAdmissionPolicy>,
    /// The binding.
    pub binding: Seen<ValidatingAdmissionPolicyBinding>,
}

/// Judges them: a finding for each that is not as it should be, or one for all.
pub fn judge(guards: &[Guard], setup: &Setup) -> Vec<Finding> {
    let mut findings: Vec<_> = guards.iter().flat_map(|guard| faults(guard, setup)).collect();
    // Who may not see one may see none of them.
    let mut refusals = 0;
    findings.retain(|finding| {
        refusals += usize::from(finding.verdict == Verdict::NotChecked);
        finding.verdict != Verdict::NotChecked || refusals == 1
    });
    if findings.is_empty() {
        let message = format!("all {} policies are there, bound, and compile", guards.len());
        return vec![Finding::ok(CHECK, message)];
    }
    findings
}

fn faults(guard: &Guard, setup: &Setup) -> Vec<Finding> {
    let name = &guard.name;
    let folder = if name == "flock-own-namespace" {
        "deploy"
    } else {
        "webhook-config"
    };
    let apply = format!("kubectl apply -k {folder}");
    let missing = |kind: &str| {
        let message = format!("{kind} {name} does not exist, so what it forbids is allowed: {apply}");
        Finding::broken(CHECK, message)
    };
    let mut findings = Vec::new();
    let what = format!("ValidatingAdmissionPolicy {name}");
    match guard
        .policy
        .or_finding(CHECK, &what, || missing("ValidatingAdmissionPolicy"))
    {
        Ok(policy) => findings.extend(policy_faults(name, policy, &apply, setup)),
        Err(finding) => findings.push(finding),
    }
    let what = format!("ValidatingAdmissionPolicyBinding {name}");
    match guard
        .binding
        .or_finding(CHECK, &what, || missing("ValidatingAdmissionPolicyBinding"))
    {
        Ok(binding) => findings.extend(binding_fault(name, binding, &apply)),
        Err(finding) => findings.push(finding),
    }
    findings
}

fn policy_faults(name: &str, policy: &ValidatingAdmissionPolicy, apply: &str, setup: &Setup) -> Vec<Finding> {
    let mut findings = Vec::new();
    let spec = policy.spec.clone().unwrap_or_default();
    if spec
        .failure_policy
        .as_deref()
        .is_some_and(|policy| policy != "Fail")
    {
        let message =
            format!("policy {name} lets pass what it cannot judge (failurePolicy is not Fail): {apply}");
        findings.push(Finding::warning(CHECK, message));
    }
    let expected = format!("'{}/'", setup.root);
    let root = spec
        .variables
        .iter()
        .flatten()
        .find(|variable| variable.name == "root");
    if let Some(root) = root.filter(|root| root.expression.trim() != expected) {
        let message = format!(
            "policy {name} guards {} and Flock's storage root is {}: set its variable root to {expected}, or the flag \
             --host-path-root of Deployment flock",
            root.expression.trim(),
            setup.root
        );
        findings.push(Finding::broken(CHECK, message));
    }
    let checked = policy
        .status
        .as_ref()
        .and_then(|status| status.type_checking.as_ref());
    let warnings = checked
        .iter()
        .flat_map(|checked| checked.expression_warnings.iter().flatten());
    findings.extend(warnings.map(|warning| {
        let message = format!(
            "policy {name} does not compile against this cluster at {}: {}",
            warning.field_ref, warning.warning
        );
        Finding::warning(CHECK, message)
    }));
    findings
}

fn binding_fault(name: &str, binding: &ValidatingAdmissionPolicyBinding, apply: &str) -> Option<Finding> {
    let spec = binding.spec.clone().unwrap_or_default();
    let denies = spec
        .validation_actions
        .iter()
        .flatten()
        .any(|action| action == "Deny");
    if denies && spec.policy_name.as_deref() == Some(name) {
        return None;
    }
    let message = format!("binding {name} does not let policy {name} deny anything: {apply}");
    Some(Finding::broken(CHECK, message))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn guard(policy: &Value, binding: &Value) -> Guard {
        let mut whole = json!({
            "metadata": { "name": "flock-members" },
            "spec": { "failurePolicy": "Fail", "variables": [{ "name": "root", "expression": "'/var/lib/flock/'" }] },
        });
        json_patch::merge(&mut whole, policy);
        let mut bound = json!({
            "metadata": { "name": "flock-members" },
            "spec": { "policyName": "flock-members", "validationActions": ["Deny"] },
        });
        json_patch::merge(&mut bound, binding);
        Guard {
            name: "flock-members".into(),
            policy: Seen::Found(serde_json::from_value(whole).unwrap()),
            binding: Seen::Found(serde_json::from_value(bound).unwrap()),
        }
    }

    #[rstest]
    #[case::good(json!({}), json!({}), Verdict::Ok, "are there")]
    #[case::ignores(json!({"spec": {"failurePolicy": "Ignore"}}), json!({}), Verdict::Warning, "failurePolicy")]
    #[case::audits(json!({}), json!({"spec": {"validationActions": ["Audit"]}}), Verdict::Broken, "deny")]
    #[case::of_another(json!({}), json!({"spec": {"policyName": "x"}}), Verdict::Broken, "deny")]
    #[case::another_root(
        json!({"spec": {"variables": [{"name": "root", "expression": "'/data/'"}]}}), json!({}), Verdict::Broken, "'/data/'"
    )]
    #[case::does_not_compile(
        json!({"status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.x", "warning": "undefined"}]}}}),
        json!({}), Verdict::Warning, "at spec.x: undefined"
    )]
    fn a_policy_denies_and_compiles(
        #[case] policy: Value,
        #[case] binding: Value,
        #[case] verdict: Verdict,
        #[case] says: &str,
    ) {
        let findings = judge(&[guard(&policy, &binding)], &Setup::of("flock-system", None));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].verdict, verdict);
        assert!(findings[0].message.contains(says), "{}", findings[0].message);
    }

    #[test]
    fn who_may_see_none_is_told_once() {
        let unseen = |name: &str| Guard {
            name: name.into(),
            policy: Seen::Refused("no".into()),
            binding: Seen::Refused("no".into()),
        };
        let findings = judge(&[unseen("a"), unseen("b")], &Setup::of("flock-system", None));
        assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::NotChecked));
    }

    #[test]
    fn a_policy_that_is_gone_is_told_with_the_folder_that_has_it() {
        for (name, folder) in [
            ("flock-own-namespace", "deploy"),
            ("flock-members", "webhook-config"),
        ] {
            let guard = Guard {
                name: name.into(),
                policy: Seen::Absent,
                ..guard(&json!({}), &json!({"spec": {"policyName": name}}))
            };
            let findings = judge(&[guard], &Setup::of("flock-system", None));
            assert_eq!(findings[0].verdict, Verdict::Broken);
            assert!(
                findings[0]
                    .message
                    .ends_with(&format!("kubectl apply -k {folder}"))
            );
        }
    }
}
