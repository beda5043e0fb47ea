use std::path::Path;

use crate::identity::Ordinal;
use crate::identity::keys::VOLUMES;
use crate::place::Record;
use crate::view::View;
use crate::view::fixtures::{key, node, pod, service, set, view};

use super::plan::{Refused, marked, releases};

fn ordinal(number: u32) -> Ordinal {
    Ordinal::new(number).unwrap()
}

/// Ordinal 0 runs, 1 waits for a node that is gone, 2 has only a label.
fn cluster() -> View {
    let volumes = [(VOLUMES, "data")];
    let set = set("rs", 2).annotated(&volumes);
    let mut view = view(
        vec![set],
        vec![
            pod(0, "rs").annotated(&volumes),
            pod(1, "rs").annotated(&volumes).waiting(),
        ],
    );
    view.apply_service(service(
        r#"{"0":{"machine":"machine-of-node-0","node":"node-0"},"1":{"machine":"m","node":"node-1"}}"#,
    ));
    view.apply_node(node("node-0", &[0]));
    view.apply_node(node("node-2", &[2]));
    view
}

fn of(view: &View, number: Option<u32>) -> Result<Vec<super::Release>, Refused> {
    releases(view, &key(), number.map(ordinal), Path::new("/var/lib/flock"))
}

#[test]
fn one_that_is_bound_is_refused_also_while_it_ends() {
    let mut view = cluster();
    for _ in 0..2 {
        let error = of(&view, Some(0)).unwrap_err();
        assert_eq!(
            error,
            Refused::Runs {
                pod: "db-0".into(),
                node: "node-0".into()
            }
        );
        view.apply_pod(key(), pod(0, "rs").going());
    }
    view.apply_pod(key(), pod(0, "rs").over("Evicted"));
    assert!(of(&view, Some(0)).is_err());
}

#[test]
fn one_that_waits_is_told_with_what_stays_behind() {
    let releases = of(&cluster(), Some(1)).unwrap();
    assert_eq!(
        releases[0].describe(&key()),
        "db-1 leaves node node-1; its data stays behind there, in /var/lib/flock/default_ns-uid/db/1/data"
    );
}

#[test]
fn without_an_ordinal_it_is_all_that_do_not_run() {
    let all = of(&cluster(), None).unwrap();
    assert_eq!(
        all.iter()
            .map(|release| release.ordinal.get())
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(all[1].labelled, [("node-2".into(), "uid-of-node-2".into())]);
}

#[test]
fn what_has_no_place_is_told() {
    assert_eq!(
        of(&cluster(), Some(9)).unwrap_err().to_string().split(':').next(),
        Some("db-9 has no place")
    );
    let empty = view(vec![], vec![]);
    assert!(matches!(of(&empty, None), Err(Refused::Nothing(..))));
}

#[test]
fn the_record_keeps_the_others_and_marks_these() {
    let view = cluster();
    let service = view.record_service(&key()).unwrap();
    let record = marked(service, &of(&view, None).unwrap()).unwrap();
    let released = |record: &Record| [0, 1, 2].map(|number| record.get(ordinal(number)).unwrap().released);
    assert_eq!(released(&record), [false, true, true]);
}

#[test]
fn a_record_that_cannot_be_read_is_not_overwritten() {
    let view = cluster();
    let mut service = service("{");
    service.record = None;
    assert!(marked(&service, &of(&view, Some(1)).unwrap()).is_err());
}
