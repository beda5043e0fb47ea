use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::place::fixtures::ordinal;

fn place(node: &str) -> Place {
    Place::new(node.into(), Some("m".into()))
}

#[test]
fn a_record_is_sorted_by_number_and_without_spaces() {
    let record: Record = [(ordinal(10), place("b")), (ordinal(2), place("a"))]
        .into_iter()
        .collect();
    let text = r#"{"2":{"machine":"m","node":"a"},"10":{"machine":"m","node":"b"}}"#;
    assert_eq!(record.render().unwrap(), text);
    assert_eq!(Record::parse(text).unwrap(), record);
}

#[test]
fn what_is_not_known_is_left_out() {
    let mut record: Record = [(ordinal(0), Place::new("a".into(), None))].into_iter().collect();
    assert_eq!(record.render().unwrap(), r#"{"0":{"node":"a"}}"#);
    record.release(ordinal(0));
    assert_eq!(record.render().unwrap(), r#"{"0":{"node":"a","released":true}}"#);
    assert_eq!(Record::default().render().unwrap(), "{}");
}

#[test]
fn a_place_forgets_the_pod_that_it_was_chosen_for_once_that_ran() {
    let mut record = Record::parse(r#"{"0":{"node":"a","for":"u1"}}"#).unwrap();
    assert_eq!(record.get(ordinal(0)).unwrap().chosen_for.as_deref(), Some("u1"));
    record.settle(ordinal(0));
    assert_eq!(record.render().unwrap(), r#"{"0":{"node":"a"}}"#);
}

#[test]
fn a_field_of_a_later_version_is_no_error() {
    assert_eq!(
        Record::parse(r#"{"0":{"node":"a","later":[1]}}"#).unwrap().len(),
        1
    );
}

#[rstest]
#[case::empty("", "EOF")]
#[case::no_object("[]", "an object of ordinals")]
#[case::letters(r#"{"x":{"node":"a"}}"#, "\"x\" is not a number")]
#[case::leading_zero(r#"{"00":{"node":"a"}}"#, "\"00\" is not a number")]
#[case::too_high(r#"{"99999999":{"node":"a"}}"#, "above the highest ordinal")]
#[case::no_node(r#"{"0":{"machine":"m"}}"#, "missing field `node`")]
#[case::empty_node(r#"{"0":{"node":""}}"#, "\"\" is no node's name")]
#[case::path_as_node(r#"{"0":{"node":"../pods"}}"#, "is no node's name")]
#[case::empty_machine(r#"{"0":{"node":"a","machine":""}}"#, "machine's id is empty")]
#[case::twice(r#"{"0":{"node":"a"},"0":{"node":"b"}}"#, "ordinal 0 stands there twice")]
#[case::trailing("{}{}", "trailing")]
fn a_record_that_is_none_is_refused_with_the_reason(#[case] text: &str, #[case] reason: &str) {
    let error = Record::parse(text).unwrap_err();
    assert!(matches!(error, RecordError::Unreadable(_)));
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn deep_nesting_is_refused_without_harm() {
    let text = format!(r#"{{"0":{}"#, "[".repeat(100_000));
    assert!(Record::parse(&text).is_err());
}

#[test]
fn a_record_has_room_for_2700_members_and_refuses_more_than_fits() {
    let members = |count| -> Record {
        let place = || {
            Place::new(
                "node-0123.example.eu".into(),
                Some("0123456789abcdef0123456789abcdef".into()),
            )
        };
        (0..count).map(|n| (ordinal(n), place())).collect()
    };
    assert!(members(2_700).render().is_ok());
    let error = members(4_000).render().unwrap_err();
    assert!(
        error.to_string().contains("a Service has room for 245760"),
        "{error}"
    );
    assert!(matches!(
        Record::parse(&" ".repeat(MAX_BYTES + 1)),
        Err(RecordError::TooLong(_))
    ));
}

#[test]
fn nodes_named_twice_are_found() {
    let mut record: Record = [(0, "a"), (1, "b"), (2, "a")]
        .map(|(n, node)| (ordinal(n), place(node)))
        .into_iter()
        .collect();
    assert_eq!(
        record.duplicates(),
        BTreeMap::from([("a".into(), vec![ordinal(0), ordinal(2)])])
    );
    record.release(ordinal(2));
    assert!(record.duplicates().is_empty(), "a released ordinal holds no node");
}

proptest! {
    #[test]
    fn a_record_is_read_back_as_it_was(
        places in prop::collection::btree_map(
            0u32..2000,
            (
                "[a-z]{1,8}(\\.[a-z0-9]{1,4})?",
                prop::option::of("[0-9a-f]{1,32}"),
                prop::option::of("[0-9a-f-]{0,36}"),
                any::<bool>(),
            ),
            0..50,
        )
    ) {
        let record: Record = places
            .into_iter()
            .map(|(n, (node, machine, chosen_for, released))| {
                let place = Place { node: node.into(), machine: machine.map(Into::into), chosen_for, released };
                (ordinal(n), place)
            })
            .collect();
        let text = record.render().unwrap();
        let read = Record::parse(&text).unwrap();
        prop_assert_eq!(read.render().unwrap(), text);
        prop_assert_eq!(read, record);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        if let Ok(record) = Record::parse(&text) {
            prop_assert!(record.render().is_ok());
        }
    }
}
