//! Updates that leave members' data behind: allowed, since all of it stays where it is, but not in silence.

use crate::identity::{Settings, keys};

use super::{RawWorkload, Subject};

/// Adds what changes for the members of `old`.
pub(super) fn of(subject: Subject<'_>, old: &RawWorkload<'_>, warnings: &mut Vec<String>) {
    let (Some(new), Some(old)) = (subject.workload.template(), old.template()) else {
        return;
    };
    let (Some(now), Some(before)) = (new.label(keys::NAME), old.label(keys::NAME)) else {
        return;
    };
    if now != before {
        warnings.push(format!(
            "label {} changes from {before} to {now}: its pods become members of another flock, with nodes and data \
             of their own; those of {before} stay as they are",
            keys::NAME
        ));
        return;
    }
    let read = |template: &super::RawPod<'_>| Settings::parse(|name| template.annotation(name)).ok();
    let (Some(settings), Some(earlier)) = (read(new), read(old)) else {
        return;
    };
    let mut kept = false;
    for volume in &earlier.volumes {
        if settings.volumes.contains(volume) {
            kept = true;
        } else {
            warnings.push(format!(
                "annotation {} no longer names {volume}: members start without its data, which stays where it is",
                keys::VOLUMES
            ));
        }
    }
    if kept && settings.storage != earlier.storage {
        let [before, now] =
            [old, new].map(|template| template.annotation(keys::STORAGE).unwrap_or("hostPath"));
        warnings.push(format!(
            "annotation {} changes from {before} to {now}: members start on new, empty volumes, and their data \
             stays where it is; copy it first",
            keys::STORAGE
        ));
    }
}
