use std::collections::HashMap;

use rstest::rstest;

use super::super::{Memory, PlanConfig};
use super::*;
use crate::identity::keys;
use crate::place::{Place, Record};
use crate::storage::Exit;
use crate::view::fixtures::{key, node, now, pod, service, set, view};
use crate::view::{ClassFacts, View, VolumeFacts};

const GUARDED: &[(&str, &str)] = &[(keys::VOLUMES, "data"), (keys::DATA_GUARD, "true")];
const LOCAL: &[(&str, &str)] = &[(keys::VOLUMES, "data"), (keys::STORAGE, "localVolume")];
const CLAIM: &[(&str, &str)] = &[(keys::VOLUMES, "data"), (keys::STORAGE, "claim")];
const PATH: &str = "/var/lib/flock/default_ns-uid/db/0/data";

/// A flock of one member that waits behind its gate, with its place on `node-0`.
fn waiting(annotations: &[(&str, &str)]) -> View {
    let mut view = view(
        vec![set("rs", 1).annotated(annotations)],
        vec![pod(0, "rs").waiting().annotated(annotations)],
    );
    view.apply_node(node("node-0", &[0]));
    view.apply_service(service("{}"));
    view
}

fn record(chosen_for: Option<&str>) -> Record {
    let mut place = Place::new("node-0".into(), Some("machine-of-node-0".into()));
    place.chosen_for = chosen_for.map(str::to_owned);
    [(Ordinal::ZERO, place)].into_iter().collect()
}

struct Planned {
    plan: Plan,
    ready: bool,
}

impl Planned {
    fn actions(&self) -> Vec<StorageAction> {
        let storage = |action: &Action| match action {
            Action::Storage(action) => Some(action.clone()),
            _ => None,
        };
        self.plan.actions.iter().filter_map(storage).collect()
    }

    fn names(&self) -> Vec<&'static str> {
        self.actions().iter().map(StorageAction::name).collect()
    }

    fn says(&self, text: &str) -> bool {
        self.plan
            .notes
            .iter()
            .any(|note| note.warning && note.message.contains(text))
    }
}

fn planned(view: &View, record: Record) -> Planned {
    planned_at(view, record, 0)
}

fn planned_at(view: &View, record: Record, seconds: i64) -> Planned {
    let (budgets, config) = (HashMap::new(), PlanConfig::default());
    let memory = Memory {
        record: Some(record),
        ..Memory::default()
    };
    let (key, now) = (key(), now() + SignedDuration::from_secs(seconds));
    let observed = Observed {
        key: &key,
        view,
        budgets: &budgets,
        memory: &memory,
        config: &config,
        now,
    };
    let mut made = Plan {
        memory: memory.clone(),
        ..Plan::default()
    };
    dismiss(&observed, &mut made);
    let ready = plan(&observed, &BTreeSet::from([Ordinal::ZERO]), &mut made);
    Planned {
        plan: made,
        ready: ready.contains(&Ordinal::ZERO),
    }
}

fn helper(state: HelperState) -> HelperFacts {
    HelperFacts {
        name: "prepare-uid-of-db-0-rs".into(),
        uid: "uid-of-helper".into(),
        resource_version: "1".into(),
        key: key(),
        ordinal: Ordinal::ZERO,
        member_uid: "uid-of-db-0-rs".into(),
        node: "node-0".into(),
        state,
        created: Some(now()),
        data_lost: false,
        terminating: false,
    }
}

fn failed(exit: Exit) -> HelperState {
    HelperState::Failed {
        code: Some(exit.code().into()),
        message: "no data".into(),
        at: Some(now()),
    }
}

fn claim(labels: [Option<&str>; 3]) -> ClaimFacts {
    ClaimFacts {
        namespace: "default".into(),
        name: "data-db-0".into(),
        uid: "uid-of-claim".into(),
        resource_version: "1".into(),
        labels: labels.map(|label| label.map(str::to_owned)),
        made_by_flock: true,
        request: Some("1Gi".into()),
        class: Some("fast".into()),
        volume: Some("pv".into()),
        bound: true,
        lost: false,
        terminating: false,
    }
}

const OWN: [Option<&str>; 3] = [Some("db"), Some("0"), Some("data")];

fn local_volume(path: &str, uid: Option<&str>) -> VolumeFacts {
    VolumeFacts {
        name: "default.db.0.data".into(),
        uid: "uid-of-volume".into(),
        resource_version: "1".into(),
        labels: [
            Some("db".into()),
            Some("0".into()),
            Some("data".into()),
            Some("default".into()),
        ],
        made_by_flock: true,
        path: Some(path.into()),
        prepared_on: Some("node-0".into()),
        claim: Some(("default".into(), "data-db-0".into(), uid.map(str::to_owned))),
        released: false,
        class: String::new(),
        capacity: Some("1Gi".into()),
        access_modes: vec!["ReadWriteOnce".into()],
        terminating: false,
    }
}

fn class(name: &str) -> ClassFacts {
    ClassFacts {
        name: name.into(),
        expandable: false,
        single_pod: false,
        binds_late: true,
        default: false,
    }
}

/// Live looks at every name that a plan asks for found nothing.
fn nothing_found(view: &mut View) {
    let storage = view.storage_mut();
    storage.looked_up_claim("default", "data-db-0", None);
    storage.looked_up_volume("default.db.0.data", None);
    storage.looked_up_volume("default.db.0.data.ns-uid", None);
    storage.set_classes(vec![
        class("slow"),
        ClassFacts {
            default: true,
            ..class("fast")
        },
    ]);
}

#[test]
fn a_root_image_without_guard_needs_no_preparation() {
    let planned = planned(&waiting(&[(keys::VOLUMES, "data")]), record(None));
    assert!(planned.ready && planned.plan.actions.is_empty());
}

#[rstest]
#[case::its_place_was_chosen_for_it(Some("uid-of-db-0-rs"), false)]
#[case::another_pod_ran_there(Some("another"), true)]
#[case::the_label_alone_tells_nothing(None, false)]
fn a_helper_is_told_whether_there_must_be_data(#[case] chosen_for: Option<&str>, #[case] ran: bool) {
    let planned = planned(&waiting(GUARDED), record(chosen_for));
    assert!(!planned.ready);
    let actions = planned.actions();
    let [StorageAction::CreateHelper(helper)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (helper.node.as_str(), helper.ran, helper.data_lost),
        ("node-0", ran, false)
    );
}

#[rstest]
#[case::busy(HelperState::Busy(None), 0, false, &[])]
#[case::done(HelperState::Done, 0, true, &[])]
#[case::failed(failed(Exit::Blank), 1, false, &[])]
#[case::tried_again(failed(Exit::Failed), 21, false, &["delete_helper"])]
fn the_gate_opens_once_the_helper_is_done(
    #[case] state: HelperState,
    #[case] seconds: i64,
    #[case] ready: bool,
    #[case] actions: &[&str],
) {
    let mut view = waiting(GUARDED);
    view.storage_mut().apply_helper(helper(state));
    let planned = planned_at(&view, record(None), seconds);
    assert_eq!((planned.ready, planned.names()), (ready, actions.to_vec()));
}

#[test]
fn a_member_without_its_data_is_held_and_told_how_to_go_on() {
    let mut view = waiting(GUARDED);
    view.storage_mut().apply_helper(helper(failed(Exit::Blank)));
    let planned = planned(&view, record(None));
    for says in [
        "no data",
        "flock release db 0 --data-lost --namespace default",
        "kubectl annotate pod db-0 -n default flock.dev/data-lost=uid-of-db-0-rs",
    ] {
        assert!(planned.says(says), "{says}: {:?}", planned.plan.notes);
    }
    assert!(planned.plan.again.is_some(), "it is looked at again");
    let subjects: BTreeSet<_> = planned
        .plan
        .notes
        .iter()
        .map(|note| note.subject.clone())
        .collect();
    assert_eq!(subjects.len(), 2, "pod and owner");
}

#[test]
fn the_users_word_that_the_data_is_lost_starts_another_helper_at_once() {
    let mut view = waiting(GUARDED);
    let mut told = pod(0, "rs").waiting().annotated(GUARDED);
    told.data_lost = true;
    view.apply_pod(key(), told);
    view.storage_mut().apply_helper(helper(failed(Exit::Blank)));
    assert_eq!(planned(&view, record(None)).names(), ["delete_helper"]);
    view.storage_mut().delete_helper(&helper(HelperState::Done));
    let actions = planned(&view, record(None)).actions();
    assert!(matches!(&actions[..], [StorageAction::CreateHelper(helper)] if helper.data_lost));
}

#[test]
fn a_helper_for_another_node_is_done_anew() {
    let mut view = waiting(GUARDED);
    view.storage_mut().apply_helper(HelperFacts {
        node: "node-9".into(),
        ..helper(HelperState::Done)
    });
    assert_eq!(planned(&view, record(None)).names(), ["delete_helper"]);
}

#[test]
fn helpers_go_with_their_members_and_once_these_are_bound() {
    for bound in [false, true] {
        let mut view = waiting(GUARDED);
        let mut member = pod(0, "rs").annotated(GUARDED);
        member.uid = if bound { member.uid } else { "another".into() };
        view.apply_pod(key(), member);
        view.storage_mut().apply_helper(helper(HelperState::Done));
        assert_eq!(planned(&view, record(None)).names(), ["delete_helper"]);
    }
}

#[test]
fn a_local_volume_is_made_once_its_directory_is() {
    let mut view = waiting(LOCAL);
    nothing_found(&mut view);
    assert_eq!(planned(&view, record(None)).names(), ["create_helper"]);
    view.storage_mut().apply_helper(helper(HelperState::Done));
    let planned = planned(&view, record(None));
    let actions = planned.actions();
    let [
        StorageAction::CreateVolume(volume),
        StorageAction::CreateClaim(claim),
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (volume.name.as_str(), volume.path.as_str()),
        ("default.db.0.data", PATH)
    );
    assert_eq!(claim.volume_name.as_deref(), Some("default.db.0.data"));
    assert_eq!((claim.class.as_deref(), claim.size.as_str()), (Some(""), "1Gi"));
    assert!(!planned.ready, "the claim is not bound yet");
}

fn bound_claim() -> ClaimFacts {
    ClaimFacts {
        volume: Some("default.db.0.data".into()),
        class: Some(String::new()),
        ..claim(OWN)
    }
}

#[test]
fn a_local_volume_that_is_bound_needs_nothing() {
    let mut view = waiting(LOCAL);
    view.storage_mut().apply_claim(bound_claim());
    view.storage_mut()
        .apply_volume(local_volume(PATH, Some("uid-of-claim")));
    let planned = planned(&view, record(None));
    assert!(
        planned.ready && planned.plan.actions.is_empty(),
        "{:?}",
        planned.plan.actions
    );
}

#[test]
fn a_local_volume_follows_its_member_to_another_node() {
    let mut view = waiting(LOCAL);
    view.storage_mut().apply_claim(bound_claim());
    let moved = VolumeFacts {
        prepared_on: Some("node-9".into()),
        ..local_volume(PATH, Some("uid-of-claim"))
    };
    view.storage_mut().apply_volume(moved);
    assert_eq!(planned(&view, record(None)).names(), ["create_helper"]);
    view.storage_mut().apply_helper(helper(HelperState::Done));
    assert_eq!(planned(&view, record(None)).names(), ["mark_volume"]);
}

#[test]
fn a_claim_that_was_deleted_is_made_anew_and_gets_its_volume_back() {
    let mut view = waiting(LOCAL);
    nothing_found(&mut view);
    view.storage_mut()
        .apply_volume(local_volume(PATH, Some("uid-of-an-older-claim")));
    assert_eq!(
        planned(&view, record(None)).names(),
        ["rebind_volume", "create_claim"]
    );
}

#[test]
fn the_volume_of_an_earlier_namespace_of_the_same_name_is_not_touched() {
    let mut view = waiting(LOCAL);
    nothing_found(&mut view);
    view.storage_mut()
        .apply_volume(local_volume("/var/lib/flock/default_older/db/0/data", Some("x")));
    view.storage_mut().apply_helper(helper(HelperState::Done));
    let actions = planned(&view, record(None)).actions();
    let [
        StorageAction::CreateVolume(volume),
        StorageAction::CreateClaim(claim),
    ] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(volume.name, "default.db.0.data.ns-uid");
    assert_eq!(claim.volume_name.as_ref(), Some(&volume.name));
}

#[rstest]
#[case::own(OWN, true)]
#[case::taken_over([None, None, None], true)]
#[case::anothers([Some("c"), Some("0"), Some("x-db")], false)]
fn a_claim_of_the_right_name_is_used_if_its_labels_agree(
    #[case] labels: [Option<&str>; 3],
    #[case] ready: bool,
) {
    let mut view = waiting(CLAIM);
    view.storage_mut()
        .looked_up_claim("default", "data-db-0", Some(claim(labels)));
    let planned = planned(&view, record(None));
    assert_eq!(planned.ready, ready);
    assert!(planned.plan.actions.is_empty(), "nobody's claim is changed");
    assert_eq!(planned.says("as its labels say"), !ready);
}

#[test]
fn two_members_do_not_take_over_one_claim() {
    // Volume `data-a` of flock `db` and volume `data` of flock `a-db`.
    let mut view = waiting(&[(keys::VOLUMES, "data-a"), (keys::STORAGE, "claim")]);
    let unlabelled = ClaimFacts {
        name: "data-a-db-0".into(),
        ..claim([None, None, None])
    };
    view.storage_mut()
        .looked_up_claim("default", "data-a-db-0", Some(unlabelled));
    assert!(planned(&view, record(None)).ready);
    let other = crate::identity::FlockKey::parse("default", "a-db").unwrap();
    let mut neighbour = pod(0, "rs").waiting().annotated(CLAIM);
    neighbour.name = "a-db-0".into();
    view.apply_pod(other, neighbour);
    let planned = planned(&view, record(None));
    assert!(
        !planned.ready && planned.says("volume data of a-db-0 would use it too"),
        "{:?}",
        planned.plan.notes
    );
}

#[rstest]
#[case::default_class(CLAIM, Some("(default)"), true)]
#[case::named_class(&[(keys::VOLUMES, "data"), (keys::STORAGE, "claim"), (keys::STORAGE_CLASS, "slow")], Some("slow"), true)]
#[case::unknown_class(&[(keys::VOLUMES, "data"), (keys::STORAGE, "claim"), (keys::STORAGE_CLASS, "none")], None, false)]
fn a_claim_is_made_of_its_class(
    #[case] annotations: &[(&str, &str)],
    #[case] expected: Option<&str>,
    #[case] ready: bool,
) {
    let mut view = waiting(annotations);
    nothing_found(&mut view);
    let planned = planned(&view, record(None));
    let made = planned.actions().into_iter().find_map(|action| match action {
        StorageAction::CreateClaim(claim) => Some(claim.class.unwrap_or_else(|| "(default)".into())),
        _ => None,
    });
    assert_eq!((made.as_deref(), planned.ready), (expected, ready));
    assert_eq!(planned.says("there is no StorageClass none"), !ready);
    // Told on the pod and on its owner, and yet one member waits.
    let waiting = planned.plan.waiting.get("NoStorage").map_or(0, BTreeSet::len);
    assert_eq!(waiting, usize::from(!ready));
}

#[rstest]
#[case::csi(true, "ReadWriteOncePod")]
#[case::built_in(false, "ReadWriteOnce")]
fn a_claim_is_one_pods_where_the_class_can_do_it(#[case] single_pod: bool, #[case] mode: &str) {
    let mut view = waiting(CLAIM);
    nothing_found(&mut view);
    view.storage_mut().set_classes(vec![ClassFacts {
        default: true,
        single_pod,
        ..class("fast")
    }]);
    let actions = planned(&view, record(None)).actions();
    assert!(matches!(&actions[..], [StorageAction::CreateClaim(claim)] if claim.access_mode == mode));
}

#[rstest]
#[case::by_labels(["db", "0"], None, None, true)]
#[case::bound_beforehand(["db", "0"], None, Some(("default", "data-db-0")), true)]
#[case::for_another_claim(["db", "0"], None, Some(("default", "data-db-1")), false)]
#[case::of_this_namespace(["db", "0"], Some("default"), None, true)]
#[case::of_another_namespace(["db", "0"], Some("other"), None, false)]
#[case::of_another_ordinal(["db", "1"], None, None, false)]
fn a_volume_that_was_provided_is_adopted(
    #[case] labels: [&str; 2],
    #[case] namespace: Option<&str>,
    #[case] claim: Option<(&str, &str)>,
    #[case] adopted: bool,
) {
    let mut view = waiting(CLAIM);
    nothing_found(&mut view);
    let [flock, ordinal] = labels.map(|label| Some(label.to_owned()));
    view.storage_mut().apply_volume(VolumeFacts {
        name: "disk-7".into(),
        labels: [flock, ordinal, None, namespace.map(str::to_owned)],
        made_by_flock: false,
        claim: claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned(), None)),
        class: "manual".into(),
        capacity: Some("7Gi".into()),
        ..local_volume("/disk/7", None)
    });
    let actions = planned(&view, record(None)).actions();
    let [StorageAction::CreateClaim(made)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(made.volume_name.as_deref(), adopted.then_some("disk-7"));
    if adopted {
        assert_eq!(
            (made.class.as_deref(), made.size.as_str()),
            (Some("manual"), "7Gi")
        );
    }
}

#[rstest]
#[case::grows("2Gi", true, &["grow_claim"], false)]
#[case::same("1024Mi", true, &[], false)]
#[case::never_shrinks("1Mi", true, &[], false)]
#[case::class_cannot("2Gi", false, &[], true)]
fn claims_grow_with_the_size_limit(
    #[case] size: &str,
    #[case] expandable: bool,
    #[case] actions: &[&str],
    #[case] told: bool,
) {
    let mut owner = set("rs", 1).annotated(CLAIM);
    let mut template = (*owner.template).clone();
    template.needs.sizes.insert("data".into(), size.into());
    owner.template = template.into();
    let mut view = view(vec![owner], vec![pod(0, "rs").annotated(CLAIM)]);
    view.storage_mut().apply_claim(claim(OWN));
    view.storage_mut().set_classes(vec![ClassFacts {
        expandable,
        ..class("fast")
    }]);
    let planned = planned(&view, record(None));
    assert_eq!(
        (planned.names(), planned.says("allowVolumeExpansion")),
        (actions.to_vec(), told)
    );
}
