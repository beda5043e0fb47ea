//! What of a pod decides where it can run, as far as a node's own facts go.
//!
//! Resources, ports, spread and inter-pod affinity are left to the scheduler: they change from second to second, and
//! an ordinal that has never run moves on when the scheduler cannot place it.

use std::sync::Arc;

use k8s_openapi::api::core::v1;

use super::node::{NodeFacts, OS, Taint, in_domain};

/// The constraints of a pod. All members of a workload share one allocation once it is cloned; two pods with equal
/// constraints compare and hash as equal, whatever else differs between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Constraints(Arc<Inner>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Inner {
    tolerations: Box<[Toleration]>,
    node_selector: Box<[(Box<str>, Box<str>)]>,
    /// `None` allows every node; an empty list allows none.
    affinity: Option<Box<[Term]>>,
    os: Box<str>,
}

/// A toleration without its `tolerationSeconds`: how long a pod may stay does not decide whether it may come.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Toleration {
    key: Box<str>,
    operator: Box<str>,
    value: Box<str>,
    effect: Box<str>,
}

/// One of a node affinity's terms: all of its requirements must hold.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Term {
    expressions: Box<[(Box<str>, Requirement)]>,
    names: Box<[NameRequirement]>,
}

/// What is asked of one label.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Requirement {
    In(Box<[Box<str>]>),
    NotIn(Box<[Box<str>]>),
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
}

/// What is asked of `metadata.name`, the only field that node affinity can name.
#[derive(Debug, PartialEq, Eq, Hash)]
enum NameRequirement {
    Is(Box<str>),
    IsNot(Box<str>),
}

impl Constraints {
    /// Whether a taint is tolerated.
    pub fn tolerate(&self, taint: &Taint) -> bool {
        self.0
            .tolerations
            .iter()
            .any(|toleration| toleration.matches(taint))
    }

    /// Whether the node has the labels that the nodeSelector asks for.
    pub fn select(&self, node: &NodeFacts) -> bool {
        let mut wanted = self.0.node_selector.iter();
        wanted.all(|(key, value)| node.label(key) == Some(value))
    }

    /// Whether the required node affinity allows the node: one term is enough.
    pub fn attract(&self, node: &NodeFacts) -> bool {
        let terms = self.0.affinity.as_ref();
        terms.is_none_or(|terms| terms.iter().any(|term| term.matches(node)))
    }

    /// The operating system that the pod is for: `spec.os`, else the one that its nodeSelector asks for, else Linux,
    /// so that a pod which says nothing gets no directory on a Windows node.
    pub fn os(&self) -> &str {
        &self.0.os
    }
}

impl From<&v1::PodSpec> for Constraints {
    fn from(spec: &v1::PodSpec) -> Self {
        let mut tolerations: Vec<_> = spec.tolerations.iter().flatten().map(Toleration::from).collect();
        tolerations.sort_unstable();
        tolerations.dedup();
        // A member's own selector names its node label, which is what the choice is about.
        let selector = spec
            .node_selector
            .iter()
            .flatten()
            .filter(|(key, _)| !in_domain(key));
        let named_os = spec.os.as_ref().map(|os| os.name.as_str());
        let selected_os = || spec.node_selector.as_ref()?.get(OS).map(String::as_str);
        let affinity = spec.affinity.as_ref().and_then(|affinity| {
            affinity
                .node_affinity
                .as_ref()?
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        Self(Arc::new(Inner {
            tolerations: tolerations.into(),
            node_selector: selector.map(|(key, value)| (boxed(key), boxed(value))).collect(),
            affinity: affinity.map(|it| it.node_selector_terms.iter().filter_map(Term::read).collect()),
            os: named_os.or_else(selected_os).unwrap_or("linux").into(),
        }))
    }
}

impl From<&v1::Toleration> for Toleration {
    fn from(toleration: &v1::Toleration) -> Self {
        let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
        Self {
            key: text(&toleration.key),
            operator: text(&toleration.operator),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
        }
    }
}

impl Toleration {
    /// `Toleration.ToleratesTaint` in `k8s.io/api/core/v1/toleration.go`; `Lt` and `Gt` are KEP-5471's. Where that
    /// feature is off, the API server refuses pods with them.
    fn matches(&self, taint: &Taint) -> bool {
        let any_or = |mine: &str, theirs: &str| mine.is_empty() || mine == theirs;
        if !any_or(&self.effect, &taint.effect) || !any_or(&self.key, &taint.key) {
            return false;
        }
        let numbers = || Some((decimal(&taint.value)?, decimal(&self.value)?));
        match &*self.operator {
            "" | "Equal" => *self.value == taint.value,
            "Exists" => true,
            "Lt" => numbers().is_some_and(|(taint, limit)| taint < limit),
            "Gt" => numbers().is_some_and(|(taint, limit)| taint > limit),
            _ => false,
        }
    }
}

impl Term {
    /// `newNodeSelectorTerm` in `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`: an empty term matches
    /// nothing, and so does one with a requirement that cannot be read.
    fn read(term: &v1::NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        Some(Self {
            expressions: expressions
                .iter()
                .map(|it| Some((boxed(&it.key), Requirement::read(it)?)))
                .collect::<Option<_>>()?,
            names: fields.iter().map(NameRequirement::read).collect::<Option<_>>()?,
        })
    }

    fn matches(&self, node: &NodeFacts) -> bool {
        let mut expressions = self.expressions.iter();
        expressions.all(|(key, requirement)| requirement.matches(node.label(key)))
            && self
                .names
                .iter()
                .all(|requirement| requirement.matches(&node.name))
    }
}

impl Requirement {
    /// `NewRequirement` in `k8s.io/apimachinery/pkg/labels/selector.go`.
    fn read(requirement: &v1::NodeSelectorRequirement) -> Option<Self> {
        let values = requirement.values.as_deref().unwrap_or_default();
        let number = || match values {
            [one] => one.parse().ok(),
            _ => None,
        };
        let all = || values.iter().map(|value| boxed(value)).collect();
        match requirement.operator.as_str() {
            "In" if !values.is_empty() => Some(Self::In(all())),
            "NotIn" if !values.is_empty() => Some(Self::NotIn(all())),
            "Exists" if values.is_empty() => Some(Self::Exists),
            "DoesNotExist" if values.is_empty() => Some(Self::DoesNotExist),
            "Gt" => number().map(Self::Gt),
            "Lt" => number().map(Self::Lt),
            _ => None,
        }
    }

    /// `Requirement.Matches`, of the same file.
    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|value| value.parse::<i64>().ok());
        let among = |values: &[Box<str>]| label.is_some_and(|label| values.iter().any(|v| **v == *label));
        match self {
            Self::In(values) => among(values),
            Self::NotIn(values) => !among(values),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::Gt(limit) => number().is_some_and(|number| number > *limit),
            Self::Lt(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

impl NameRequirement {
    /// `nodeSelectorRequirementsAsFieldSelector` in the nodeaffinity package: exactly one value.
    fn read(requirement: &v1::NodeSelectorRequirement) -> Option<Self> {
        let [value] = requirement.values.as_deref()? else {
            return None;
        };
        match (requirement.key.as_str(), requirement.operator.as_str()) {
            ("metadata.name", "In") => Some(Self::Is(boxed(value))),
            ("metadata.name", "NotIn") => Some(Self::IsNot(boxed(value))),
            _ => None,
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Is(wanted) => **wanted == *name,
            Self::IsNot(unwanted) => **unwanted != *name,
        }
    }
}

fn boxed(text: &str) -> Box<str> {
    text.into()
}

/// A decimal integer in its only form, as `content.IsDecimalInteger` asks of tolerations: no plus, no leading zero.
fn decimal(text: &str) -> Option<i64> {
    text.parse()
        .ok()
        .filter(|number: &i64| number.to_string() == text)
}

#[cfg(test)]
mod tests;
