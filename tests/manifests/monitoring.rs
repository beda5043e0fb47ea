//! Alerts and dashboard speak of metrics that a replica exposes, with the labels that they have there, and every metric
//! is documented.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flock::run::Metrics;
use flock::tls::LeafStatus;
use flock::view::SharedView;
use serde_json::Value;

use crate::files::{documents, text};

type Labels = BTreeMap<String, String>;
/// A label's name, what stands between it and the value, and the value.
type Matcher = (String, String, String);

/// One metric as it is exposed.
#[derive(Debug, Default)]
struct Exposed {
    kind: String,
    samples: Vec<Labels>,
}

impl Exposed {
    fn labels(&self) -> BTreeSet<&str> {
        self.samples.iter().flatten().map(|(name, _)| &**name).collect()
    }

    fn has(&self, label: &str, value: &str) -> bool {
        self.samples
            .iter()
            .any(|sample| sample.get(label).is_some_and(|has| has == value))
    }
}

/// What a replica exposes when it starts.
fn at_start() -> Metrics {
    Metrics::new(SharedView::default(), Arc::default())
}

/// The same, once it has seen all that it does not know at its start.
fn at_work() -> Metrics {
    let metrics = at_start();
    metrics.reconcile.waiting("NoPlace", 1);
    metrics.certificates.configured("mutating", true);
    metrics.certificates.observe(&LeafStatus {
        not_after: jiff::Timestamp::MAX,
        ca_not_after: Some(jiff::Timestamp::MAX),
        serial: "01".into(),
        trusted: true,
    });
    metrics
}

/// By the names that queries use: counters end in `_total`, and of a histogram it is the name without its suffix.
fn exposed(metrics: &Metrics) -> BTreeMap<String, Exposed> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics.registry).unwrap();
    let mut all = BTreeMap::<String, Exposed>::new();
    let mut current = (String::new(), String::new());
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            current = (name.to_owned(), kind.to_owned());
        }
        if line.starts_with('#') {
            continue;
        }
        let (family, kind) = &current;
        let name = if kind == "counter" {
            format!("{family}_total")
        } else {
            family.clone()
        };
        let labels = line
            .split_once('{')
            .map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
        let metric = all.entry(name).or_default();
        metric.kind.clone_from(kind);
        metric.samples.push(
            matchers(labels)
                .into_iter()
                .map(|(name, _, value)| (name, value))
                .collect(),
        );
    }
    all
}

/// What is separated by commas: `name="value"`.
fn matchers(text: &str) -> Vec<Matcher> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((matcher, after)) = rest.split_once('"') {
        let (value, after) = after.split_once('"').unwrap();
        let name: String = matcher
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let operator = matcher[name.len()..].to_owned();
        found.push((name, operator, value.to_owned()));
        rest = after.trim_start_matches(',').trim_start();
    }
    found
}

/// The metrics of Flock in a text, each with the matchers of its labels.
fn selectors(text: &str) -> Vec<(String, Vec<Matcher>)> {
    let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("flock_")
        .filter(|(at, _)| !text[..*at].ends_with(name))
        .map(|(at, _)| {
            let metric: String = text[at..].chars().take_while(|c| name(*c)).collect();
            let rest = &text[at + metric.len()..];
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let labels = labels.map_or(Vec::new(), |(labels, _)| matchers(labels));
            (metric.trim_end_matches("_bucket").to_owned(), labels)
        })
        .collect()
}

/// The alerts' names.
fn alerts() -> Vec<Value> {
    let rules = documents("deploy/monitoring/rules.yaml").remove(0).value;
    rules["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

/// Every query of the alerts and the dashboard, with what its result is named by.
fn queries() -> Vec<(String, String)> {
    let of_alerts = alerts().into_iter().map(|alert| {
        let summary = alert["annotations"]["summary"]
            .as_str()
            .unwrap()
            .replace("$labels.", "");
        (alert["expr"].as_str().unwrap().to_owned(), summary)
    });
    let dashboard: Value = serde_json::from_str(&text("deploy/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().clone();
    let targets = panels
        .into_iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap().clone());
    let of_panels = targets.map(|target| {
        let text = |key: &str| target[key].as_str().unwrap().to_owned();
        (text("expr"), text("legendFormat"))
    });
    of_alerts.chain(of_panels).collect()
}

/// Those of a text in double braces, and those that a query sums by.
fn named_labels(query: &str, legend: &str) -> BTreeSet<String> {
    let between = |text: &str, open: &str, close: char| -> Vec<String> {
        text.split(open)
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(close)?.0.to_owned()))
            .collect()
    };
    let summed = between(query, " by (", ')');
    let summed = summed.iter().flat_map(|labels| labels.split(','));
    let shown = between(legend, "{{", '}');
    summed
        .chain(shown.iter().map(String::as_str))
        .map(|label| label.trim().to_owned())
        .collect()
}

#[test]
fn every_metric_and_label_that_is_watched_is_exposed() {
    let exposed = exposed(&at_work());
    for (query, legend) in queries() {
        let mut known = BTreeSet::from(["le", "pod"]);
        for (name, labels) in selectors(&query) {
            let metric = exposed.get(&name).unwrap_or_else(|| panic!("{name} in {query}"));
            known.extend(metric.labels());
            for (label, operator, values) in labels {
                for value in values.split('|') {
                    assert!(metric.has(&label, value), "{label}{operator}{value} in {query}");
                }
            }
        }
        if query.contains("flock_") {
            for label in named_labels(&query, &legend) {
                assert!(known.contains(&*label), "{label} in {query} and {legend}");
            }
        }
    }
}

/// Prometheus sees no increase in a counter that begins with something else than 0.
#[test]
fn every_counter_that_is_watched_begins_at_zero() {
    let exposed = exposed(&at_start());
    for (query, _) in queries() {
        for (name, _) in selectors(&query)
            .iter()
            .filter(|(name, _)| name.ends_with("_total"))
        {
            assert!(exposed.contains_key(name), "{name} in {query}");
        }
    }
}

#[test]
fn every_metric_is_documented_with_its_labels_and_nothing_else_is() {
    let metrics = at_work();
    let mut documented = BTreeMap::new();
    for row in text("docs/operations.md").lines() {
        let Some(row) = row.strip_prefix("| `flock_") else {
            continue;
        };
        let (metric, rest) = row.split_once('`').unwrap();
        let (name, labels) = metric
            .trim_end_matches('}')
            .split_once('{')
            .unwrap_or((metric, ""));
        let labels: BTreeSet<_> = labels
            .split(',')
            .filter(|label| !label.is_empty())
            .map(str::to_owned)
            .collect();
        let kind = rest.split('|').nth(1).unwrap().trim().to_owned();
        documented.insert(format!("flock_{name}"), (kind, labels));
    }
    let exposed: BTreeMap<_, _> = exposed(&metrics)
        .into_iter()
        .map(|(name, metric)| {
            let labels = metric.labels().into_iter().filter(|label| *label != "le");
            let labels: BTreeSet<_> = labels.map(str::to_owned).collect();
            (name, (metric.kind, labels))
        })
        .collect();
    assert_eq!(exposed, documented);
    // A family without a sample is not exposed: one that is not seen at work either would be missed above.
    let registry = format!("{:?}", metrics.registry);
    let registered: Vec<_> = registry.split("Descriptor { name: \"").skip(1).collect();
    assert!(registered.len() > 15, "{registry}");
    for name in registered {
        let name = format!("flock_{}", name.split_once('"').unwrap().0);
        assert!(
            exposed.keys().any(|exposed| exposed.starts_with(&name)),
            "{name} is registered and never seen here"
        );
    }
}

#[test]
fn every_alert_is_documented() {
    let operations = text("docs/operations.md");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(operations.contains(&format!("| {name} |")), "{name}");
    }
}

#[test]
fn every_alert_says_what_it_means_and_what_to_do() {
    for alert in alerts() {
        let annotations = &alert["annotations"];
        assert!(
            annotations["summary"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{alert}"
        );
        assert!(
            annotations["description"]
                .as_str()
                .is_some_and(|text| text.len() > 40),
            "{alert}"
        );
        assert!(
            ["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()),
            "{alert}"
        );
    }
}

#[test]
fn the_dashboard_has_panels_that_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&text("deploy/monitoring/dashboard.json")).unwrap();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{}", panel["title"]);
            }
        }
        assert!(
            panel["targets"]
                .as_array()
                .is_some_and(|targets| !targets.is_empty())
        );
    }
}
