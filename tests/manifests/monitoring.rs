//! Alerts and dashboard speak of metrics that exist and are documented.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::files::{documents, root, text};

/// The names of Flock's metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("flock_")
        .filter(|(at, _)| !text[..*at].ends_with(name))
        .map(|(at, _)| text[at..].chars().take_while(|c| name(*c)).collect::<String>())
        .map(|metric| metric.trim_end_matches("_bucket").to_owned())
        .collect()
}

/// The alerts' names.
fn alerts() -> Vec<Value> {
    let rules = documents("deploy/monitoring/rules.yaml").remove(0).value;
    rules["spec"]["groups"][0]["rules"].as_array().unwrap().clone()
}

fn source(directory: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &source(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all += &fs::read_to_string(&path).unwrap();
        }
    }
    all
}

fn used() -> BTreeSet<String> {
    &metrics(&text("deploy/monitoring/rules.yaml")) | &metrics(&text("deploy/monitoring/dashboard.json"))
}

#[test]
fn every_metric_that_is_watched_is_registered() {
    let source = source(&root().join("src"));
    for metric in used() {
        // The registry adds prefix and suffixes.
        let name = metric.trim_start_matches("flock_").trim_end_matches("_total");
        let base = name.trim_end_matches("_seconds");
        assert!(
            source.contains(&format!("\"{name}\"")) || source.contains(&format!("\"{base}\"")),
            "{metric}"
        );
    }
}

#[test]
fn every_metric_that_is_watched_and_every_alert_is_documented() {
    let operations = text("docs/operations.md");
    for metric in used() {
        assert!(operations.contains(&format!("`{metric}")), "{metric}");
    }
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(operations.contains(name), "{name}");
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
