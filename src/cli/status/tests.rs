use super::*;
use crate::view::fixtures::{key, node, now, pod, revision, service, set, view};

#[test]
fn every_ordinal_is_shown_with_its_place_and_what_it_waits_for() {
    let mut view = view(
        vec![set("rs", 4)],
        vec![pod(0, "rs"), pod(1, "rs").waiting(), pod(2, "rs").going()],
    );
    view.apply_service(service(
        r#"{"0":{"machine":"machine-of-node-0","node":"node-0"},"1":{"machine":"m","node":"node-1"},"7":{"machine":"machine-of-node-0","node":"node-0","released":true}}"#,
    ));
    view.apply_node(node("node-0", &[0]));
    view.apply_node(node("node-2", &[2]));
    let text = status(&view, &key(), now()).to_string();
    let table: Vec<_> = text.lines().take_while(|line| !line.starts_with('!')).collect();
    let expected = [
        "Flock db in namespace default: 1 of 4 members are Ready",
        "ORDINAL  POD   STATE        REVISION  NODE               STORAGE",
        "0        db-0  Ready        rs        node-0             -",
        "1        db-1  Gated        rs        node-1 (gone)      -",
        "2        db-2  Terminating  rs        node-2             -",
        "3        -     Missing      -         -                  -",
        "7        -     Released     -         node-0 (no label)  -",
    ];
    assert_eq!(table, expected, "{text}");
    assert!(text.contains("flock release db 1 --namespace default"), "{text}");
}

#[test]
fn an_old_revision_is_told_from_the_newest() {
    let old = revision("db-old", 1, 0, 1);
    let new = revision("db-new", 2, 1, 1);
    let view = view(vec![old, new], vec![pod(0, "db-old")]);
    let status = status(&view, &key(), now());
    assert_eq!(
        status.rows[0].revision.as_deref(),
        Some("db-old (old, newest is db-new)")
    );
}
