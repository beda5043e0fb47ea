//! When a member may be told that its data is lost: pure.

use thiserror::Error;

use crate::identity::{FlockKey, Ordinal, Storage};
use crate::storage::{DATA_MISSING, WAY_OUT};
use crate::view::PodFacts;

/// Why a member is not told.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotLost {
    /// It has no pod.
    #[error(
        "{0} has no pod, and its user's word holds for the start of one pod only: scale its workload up, and say it once \
         the pod waits"
    )]
    NoPod(String),
    /// Its pod goes.
    #[error("{0} is being deleted: say it of the pod that follows, if that one waits")]
    Goes(String),
    /// It has started.
    #[error("{0} does not wait for its data: it has been given to the scheduler")]
    Started(String),
    /// Nobody misses data.
    #[error(
        "nothing says that data of {pod} is missing: it has no event {DATA_MISSING}. What it waits for: flock status \
         {flock} --namespace {namespace}"
    )]
    NotMissing {
        /// The pod.
        pod: String,
        /// Its flock.
        flock: String,
        /// Its namespace.
        namespace: String,
    },
}

/// A pod that may start without the data that it had.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// Its name.
    pub(super) pod: String,
    /// Its uid, for which alone the word holds.
    pub(super) uid: String,
    /// What is missing, in Flock's words.
    pub(super) why: String,
    /// Whether it was told before.
    pub(super) told: bool,
}

/// Judges the pod of an ordinal; `events` are the messages of its events [`DATA_MISSING`], latest last.
pub(super) fn lost(
    key: &FlockKey,
    ordinal: Ordinal,
    pod: Option<&PodFacts>,
    events: &[String],
) -> Result<Lost, NotLost> {
    let name = format!("{}-{ordinal}", key.flock);
    let Some(pod) = pod.filter(|pod| pod.ordinal == Some(ordinal)) else {
        return Err(NotLost::NoPod(name));
    };
    if pod.terminating {
        return Err(NotLost::Goes(name));
    }
    // A local volume may be prepared anew for a pod that is on its node already.
    let local = pod.template.settings().storage == Storage::LocalVolume;
    if pod.ready_since.is_some() || !(pod.gated || local) {
        return Err(NotLost::Started(name));
    }
    let Some(event) = events.last() else {
        return Err(NotLost::NotMissing {
            pod: name,
            flock: key.flock.to_string(),
            namespace: key.namespace.to_string(),
        });
    };
    // The rest is the way out, which this is.
    let why = event.split_once(WAY_OUT).map_or(&**event, |(why, _)| why);
    Ok(Lost {
        pod: name,
        uid: pod.uid.clone(),
        why: why.to_owned(),
        told: pod.data_lost,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::view::fixtures::{key, pod};

    fn ordinal(number: u32) -> Ordinal {
        Ordinal::new(number).unwrap()
    }

    fn events() -> Vec<String> {
        vec![
            "db-0 is held on node a: it is missing. To give that data up and start without it: flock release"
                .into(),
        ]
    }

    fn judged(pod: Option<&PodFacts>, events: &[String]) -> Result<Lost, NotLost> {
        lost(&key(), ordinal(0), pod, events)
    }

    #[test]
    fn one_that_waits_for_its_data_is_told_by_its_uid() {
        let expected = Lost {
            pod: "db-0".into(),
            uid: "uid-of-db-0-rs".into(),
            why: "db-0 is held on node a: it is missing".into(),
            told: false,
        };
        assert_eq!(judged(Some(&pod(0, "rs").waiting()), &events()), Ok(expected));
        let mut told = pod(0, "rs").waiting();
        told.data_lost = true;
        assert!(judged(Some(&told), &events()).unwrap().told);
    }

    #[rstest]
    #[case::none(None, NotLost::NoPod("db-0".into()))]
    #[case::anothers(Some(pod(1, "rs").waiting()), NotLost::NoPod("db-0".into()))]
    #[case::going(Some(pod(0, "rs").waiting().going()), NotLost::Goes("db-0".into()))]
    #[case::runs(Some(pod(0, "rs")), NotLost::Started("db-0".into()))]
    #[case::starts(Some(pod(0, "rs").unready()), NotLost::Started("db-0".into()))]
    fn one_that_does_not_wait_is_not_told(#[case] pod: Option<PodFacts>, #[case] why: NotLost) {
        assert_eq!(judged(pod.as_ref(), &events()), Err(why));
    }

    #[test]
    fn one_whose_data_nobody_misses_is_not_told() {
        let error = judged(Some(&pod(0, "rs").waiting()), &[]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("flock status db --namespace default"), "{text}");
    }

    #[test]
    fn a_local_volume_is_missed_by_a_pod_on_its_node_as_well() {
        let bound = pod(0, "rs").unready().annotated(&[
            ("flock.dev/volumes", "data"),
            ("flock.dev/storage", "localVolume"),
        ]);
        assert!(judged(Some(&bound), &events()).is_ok());
    }
}
