//! What Flock's account must be allowed to do, by the manifests' own rules.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};

use super::super::finding::Finding;
use super::super::manifests::Manifests;
use super::super::seen::Seen;
use super::setup::Setup;

const CHECK: &str = "rights";
/// So many are named.
const NAMED: usize = 5;

/// Everything that the roles of the manifests allow, one by one.
pub fn wanted(manifests: &Manifests, setup: &Setup) -> Vec<ResourceAttributes> {
    let cluster = manifests.all::<ClusterRole>("ClusterRole");
    let own = manifests.all::<Role>("Role");
    let everywhere = cluster.into_iter().filter_map(|role| Some((role.rules?, None)));
    let here = own
        .into_iter()
        .filter_map(|role| Some((role.rules?, Some(setup.namespace.as_str()))));
    everywhere
        .chain(here)
        .flat_map(|(rules, namespace)| rules.into_iter().flat_map(move |rule| of_rule(&rule, namespace)))
        .collect()
}

fn of_rule(rule: &PolicyRule, namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let anything = vec![String::new()];
    let names = rule
        .resource_names
        .as_ref()
        .filter(|names| !names.is_empty())
        .unwrap_or(&anything);
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            for name in names {
                all.extend(rule.verbs.iter().map(|verb| ResourceAttributes {
                    group: Some(group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource: Some(subresource.to_owned()).filter(|text| !text.is_empty()),
                    name: Some(name.clone()).filter(|text| !text.is_empty()),
                    namespace: namespace.map(str::to_owned),
                    verb: Some(verb.clone()),
                    ..ResourceAttributes::default()
                }));
            }
        }
    }
    all
}

/// The question whether Flock's account may do something.
pub fn question(right: &ResourceAttributes, setup: &Setup) -> SubjectAccessReview {
    let namespace = &setup.namespace;
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{}", setup.account)),
            groups: Some(vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ]),
            resource_attributes: Some(right.clone()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Judges the answers.
pub fn judge(answers: &[(ResourceAttributes, Seen<bool>)], setup: &Setup) -> Vec<Finding> {
    let account = format!(
        "ServiceAccount {} in namespace {}",
        setup.account, setup.namespace
    );
    let what = format!("what {account} may do");
    let unseen = answers.iter().find_map(|(_, seen)| {
        seen.or_finding(CHECK, &what, || Finding::not_checked(CHECK, &*what))
            .err()
    });
    if let Some(finding) = unseen {
        return vec![finding];
    }
    let denied: Vec<_> = answers
        .iter()
        .filter(|(_, seen)| seen.found() == Some(&false))
        .map(|(right, _)| words(right))
        .collect();
    if denied.is_empty() {
        let message = format!("{account} may do all {} things that Flock does", answers.len());
        return vec![Finding::ok(CHECK, message)];
    }
    let more = match denied.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = denied.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    let folder = if setup.leaf.is_some() { "certs" } else { "deploy" };
    let message = format!(
        "{account} may not {named}{more}: kubectl apply -k {folder}, whose ClusterRole, Role and bindings named flock \
         allow it"
    );
    vec![Finding::broken(CHECK, message)]
}

/// `patch nodes`, `get secrets/flock-ca in namespace flock-system` and the like.
fn words(right: &ResourceAttributes) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let mut words = format!("{} {}", text(&right.verb), text(&right.resource));
    for part in [&right.subresource, &right.name].into_iter().flatten() {
        words.push('/');
        words.push_str(part);
    }
    if let Some(group) = right.group.as_ref().filter(|group| !group.is_empty()) {
        words.push_str(" of ");
        words.push_str(group);
    }
    if let Some(namespace) = &right.namespace {
        words.push_str(" in namespace ");
        words.push_str(namespace);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn all() -> Vec<String> {
        let manifests = Manifests::read("flock-system", false).unwrap();
        let rights = wanted(&manifests, &Setup::of("flock-system", None));
        rights.iter().map(words).collect()
    }

    #[test]
    fn every_verb_of_every_rule_is_asked_for_by_itself() {
        let all = all();
        for right in [
            "patch nodes",
            "create pods/eviction",
            "create events of events.k8s.io",
            "create pods in namespace flock-system",
            "patch mutatingwebhookconfigurations/flock of admissionregistration.k8s.io",
            "get secrets/flock-ca in namespace flock-system",
            "create leases of coordination.k8s.io in namespace flock-system",
        ] {
            assert!(all.iter().any(|has| has == right), "{right} is not in {all:?}");
        }
        assert!(!all.iter().any(|right| right.contains("delete persistentvolumes")));
    }

    #[test]
    fn what_is_denied_is_named_and_a_refusal_to_tell_is_no_fault() {
        let setup = Setup::of("flock-system", None);
        let manifests = Manifests::read("flock-system", false).unwrap();
        let answers = |seen: &dyn Fn(&str) -> Seen<bool>| -> Vec<_> {
            wanted(&manifests, &setup)
                .into_iter()
                .map(|right| {
                    let seen = seen(&words(&right));
                    (right, seen)
                })
                .collect()
        };
        let one = judge(&answers(&|right| Seen::Found(right != "patch nodes")), &setup);
        assert_eq!(one[0].verdict, Verdict::Broken);
        assert!(
            one[0]
                .message
                .contains("may not patch nodes: kubectl apply -k deploy")
        );
        let none = judge(&answers(&|_| Seen::Found(false)), &setup);
        assert!(none[0].message.contains("more: kubectl"), "{}", none[0].message);
        assert_eq!(
            judge(&answers(&|_| Seen::Found(true)), &setup)[0].verdict,
            Verdict::Ok
        );
        let refused = judge(&answers(&|_| Seen::Refused("no".into())), &setup);
        assert_eq!(refused[0].verdict, Verdict::NotChecked);
    }

    #[test]
    fn the_question_is_about_flocks_account() {
        let setup = Setup::of("elsewhere", None);
        let question = question(&ResourceAttributes::default(), &setup);
        assert_eq!(
            question.spec.user.as_deref(),
            Some("system:serviceaccount:elsewhere:flock")
        );
        assert!(
            question
                .spec
                .groups
                .unwrap()
                .contains(&"system:serviceaccounts:elsewhere".into())
        );
    }
}
