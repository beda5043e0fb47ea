//! Keys that nobody reads: misspelt ones, and right ones in the wrong place.

use crate::admission::json::Map;
use crate::identity::keys;

use super::Subject;

/// What all keys of Flock begin with.
const PREFIX: &str = "flock.dev/";
/// How many letters may be wrong in a key for another to be suggested.
const CLOSE: usize = 3;

/// What is wrong with the keys of a workload's metadata and of its template's.
pub(super) fn of(subject: Subject<'_>, warnings: &mut Vec<String>) {
    let Some(template) = subject.workload.template() else {
        return;
    };
    for key in ours(template.metadata.annotations.as_ref()) {
        if key == keys::NAME {
            warnings.push(format!("annotation {key} has no effect: it is a label"));
        } else if !keys::TEMPLATE_ANNOTATIONS.contains(&key) {
            let advice = nearest(key).map_or_else(String::new, |meant| format!("; is it {meant}?"));
            warnings.push(format!("Flock knows no annotation {key}{advice}"));
        }
    }
    for key in ours(template.metadata.labels.as_ref()) {
        if keys::TEMPLATE_ANNOTATIONS.contains(&key) {
            warnings.push(format!("label {key} has no effect: it is an annotation"));
        } else if !matches!(key, keys::NAME | keys::ORDINAL) {
            warnings.push(format!("Flock knows no label {key}"));
        }
    }
    let kind = subject.kind;
    for key in ours(subject.workload.metadata.annotations.as_ref()) {
        // One that stands in both places is right in one of them.
        if keys::TEMPLATE_ANNOTATIONS.contains(&key) && template.annotation(key).is_none() {
            warnings.push(format!(
                "annotation {key} has no effect on the {kind} itself; move it to spec.template.metadata"
            ));
        }
    }
}

fn ours<'a>(map: Option<&'a Map<'_>>) -> impl Iterator<Item = &'a str> {
    map.into_iter()
        .flatten()
        .map(|(key, _)| &**key)
        .filter(|key| key.starts_with(PREFIX))
}

/// The annotation that was probably meant.
fn nearest(key: &str) -> Option<&'static str> {
    let near = keys::TEMPLATE_ANNOTATIONS
        .into_iter()
        .map(|known| (distance(key, known), known))
        .min()?;
    (near.0 <= CLOSE).then_some(near.1)
}

/// How many letters to add, drop or change (Levenshtein). Letters' case counts as nothing.
fn distance(from: &str, to: &str) -> usize {
    let to = to.to_ascii_lowercase();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.to_ascii_lowercase().bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.bytes().enumerate() {
            let change = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}
