//! Tables for `plan`, and whole rotations played through without a cluster.

use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::tls::{
    leaf::{LeafStep, Trust, Why, plan_leaf},
    lifetime::earlier,
};

const DAY: i64 = 24 * 3600;
const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(90 * DAY as u64),
    leaf: Duration::from_secs(7 * DAY as u64),
    backdate: Duration::ZERO,
    settle: Duration::from_secs(10),
};

fn t(second: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + second).unwrap()
}

fn ca(made: Timestamp) -> Ca {
    Ca::generate(&LIFETIMES, made).unwrap()
}

/// A Secret whose CA was made at the beginning of time.
fn secret() -> SecretContent {
    Change::Create.apply(&SecretContent::default(), Some(&ca(t(0))), &[], &LIFETIMES, t(0))
}

fn staged(at: Timestamp) -> SecretContent {
    Change::Stage(Cause::Requested("x".into())).apply(&secret(), Some(&ca(at)), &[], &LIFETIMES, at)
}

fn confirmed(at: Timestamp) -> SecretContent {
    Change::Confirm.apply(&staged(at), None, &[], &LIFETIMES, at)
}

fn promoted(at: Timestamp) -> SecretContent {
    Change::Promote.apply(
        &confirmed(earlier(at, LIFETIMES.settle)),
        None,
        &[],
        &LIFETIMES,
        at,
    )
}

fn with(mut secret: SecretContent, entry: &str, value: &[u8]) -> SecretContent {
    secret.data.insert(entry.into(), value.to_vec());
    secret
}

fn annotated(mut secret: SecretContent, name: &str, value: &str) -> SecretContent {
    secret.annotations.insert(name.into(), value.into());
    secret
}

fn bundle(secret: &SecretContent) -> String {
    Authority::parse(secret).unwrap().bundle()
}

/// What the configurations carry.
#[derive(Debug, Clone, Copy)]
enum Carry {
    Wanted,
    Nothing,
    NoConfiguration,
    Unknown,
}

fn published(secret: &SecretContent, carry: Carry) -> Option<Published> {
    let wanted = Authority::parse(secret)
        .map(|authority| authority.bundle())
        .unwrap_or_default();
    match carry {
        Carry::Wanted => Some(Published {
            bundles: vec![wanted.into(); 2],
        }),
        Carry::Nothing => Some(Published {
            bundles: vec![wanted.into(), Vec::new()],
        }),
        Carry::NoConfiguration => Some(Published::default()),
        Carry::Unknown => None,
    }
}

/// A step without its details.
#[derive(Debug, PartialEq, Eq)]
enum Is {
    Create,
    Replace,
    Stage,
    Confirm,
    Promote,
    Tidy,
    Publish,
    Rest(Timestamp),
}

fn kind(step: &Step) -> Is {
    match step {
        Step::Write(Change::Create) => Is::Create,
        Step::Write(Change::Replace(_)) => Is::Replace,
        Step::Write(Change::Stage(_)) => Is::Stage,
        Step::Write(Change::Confirm) => Is::Confirm,
        Step::Write(Change::Promote) => Is::Promote,
        Step::Write(Change::Tidy) => Is::Tidy,
        Step::Publish(_) => Is::Publish,
        Step::Rest { until } => Is::Rest(*until),
    }
}

const END: Timestamp = Timestamp::MAX;
const LEADER: Role = Role::Leader;
const FOLLOWER: Role = Role::Follower;

#[rstest]
#[case::at_rest(secret(), Carry::Wanted, LEADER, t(1), Is::Rest(t(60 * DAY)))]
#[case::a_follower_waits_for_changes_only(secret(), Carry::Wanted, FOLLOWER, t(1), Is::Rest(END))]
#[case::no_configuration_yet(secret(), Carry::NoConfiguration, LEADER, t(1), Is::Rest(t(60 * DAY)))]
#[case::configurations_not_known_yet(secret(), Carry::Unknown, LEADER, t(1), Is::Rest(t(60 * DAY)))]
#[case::a_wiped_bundle(secret(), Carry::Nothing, LEADER, t(1), Is::Publish)]
#[case::a_wiped_bundle_for_a_follower(secret(), Carry::Nothing, FOLLOWER, t(1), Is::Publish)]
#[case::emptied(SecretContent::default(), Carry::Wanted, LEADER, t(1), Is::Replace)]
#[case::emptied_for_a_follower(SecretContent::default(), Carry::Wanted, FOLLOWER, t(1), Is::Replace)]
#[case::garbage(
    with(secret(), CA_CERTIFICATE, b"garbage"),
    Carry::Wanted,
    FOLLOWER,
    t(1),
    Is::Replace
)]
#[case::just_before_two_thirds(secret(), Carry::Wanted, LEADER, t(60 * DAY - 1), Is::Rest(t(60 * DAY)))]
#[case::at_two_thirds(secret(), Carry::Wanted, LEADER, t(60 * DAY), Is::Stage)]
#[case::at_two_thirds_for_a_follower(secret(), Carry::Wanted, FOLLOWER, t(60 * DAY), Is::Rest(END))]
#[case::expired(secret(), Carry::Wanted, LEADER, t(91 * DAY), Is::Replace)]
#[case::expired_for_a_follower(secret(), Carry::Wanted, FOLLOWER, t(91 * DAY), Is::Rest(END))]
#[case::expired_but_staged(staged(t(80 * DAY)), Carry::Nothing, LEADER, t(91 * DAY), Is::Promote)]
#[case::expired_and_staged_for_long(staged(t(0)), Carry::Wanted, LEADER, t(91 * DAY), Is::Replace)]
#[case::of_the_future(secret(), Carry::Wanted, LEADER, t(-1), Is::Stage)]
#[case::of_the_future_for_a_follower(secret(), Carry::Wanted, FOLLOWER, t(-1), Is::Rest(END))]
#[case::of_the_future_and_unpublished(secret(), Carry::Nothing, LEADER, t(-1), Is::Publish)]
#[case::staged_in_the_future(staged(t(500)), Carry::Wanted, LEADER, t(11), Is::Stage)]
#[case::staged_in_the_future_for_a_follower(staged(t(500)), Carry::Wanted, FOLLOWER, t(11), Is::Rest(END))]
#[case::settled_in_the_future(annotated(staged(t(500)), NEXT_PUBLISHED_AT, &t(1).to_string()), Carry::Wanted, LEADER, t(11), Is::Stage)]
#[case::expired_and_staged_in_the_future(staged(t(200 * DAY)), Carry::Wanted, LEADER, t(91 * DAY), Is::Replace)]
#[case::asked_for(annotated(secret(), ROTATE, "1"), Carry::Wanted, LEADER, t(1), Is::Stage)]
#[case::asked_for_a_follower(
    annotated(secret(), ROTATE, "1"),
    Carry::Wanted,
    FOLLOWER,
    t(1),
    Is::Rest(END)
)]
#[case::asked_for_but_unpublished(
    annotated(secret(), ROTATE, "1"),
    Carry::Nothing,
    LEADER,
    t(1),
    Is::Publish
)]
#[case::staged_and_unpublished(staged(t(1)), Carry::Nothing, LEADER, t(2), Is::Publish)]
#[case::staged_and_published(staged(t(1)), Carry::Wanted, LEADER, t(2), Is::Confirm)]
#[case::staged_and_nobody_calls(staged(t(1)), Carry::NoConfiguration, LEADER, t(2), Is::Confirm)]
#[case::staged_and_not_known(staged(t(1)), Carry::Unknown, LEADER, t(2), Is::Rest(END))]
#[case::staged_for_a_follower(staged(t(1)), Carry::Wanted, FOLLOWER, t(2), Is::Rest(END))]
#[case::settling(confirmed(t(1)), Carry::Wanted, LEADER, t(10), Is::Rest(t(11)))]
#[case::settled(confirmed(t(1)), Carry::Wanted, LEADER, t(11), Is::Promote)]
#[case::settled_for_a_follower(confirmed(t(1)), Carry::Wanted, FOLLOWER, t(11), Is::Rest(END))]
#[case::settled_but_wiped(confirmed(t(1)), Carry::Nothing, LEADER, t(11), Is::Publish)]
#[case::settled_but_not_known(confirmed(t(1)), Carry::Unknown, LEADER, t(11), Is::Rest(END))]
#[case::confirmed_by_a_clock_ahead(
    annotated(staged(t(1)), NEXT_PUBLISHED_AT, &t(500).to_string()),
    Carry::Wanted,
    LEADER,
    t(11),
    Is::Confirm
)]
#[case::confirmed_by_nonsense(
    annotated(staged(t(1)), NEXT_PUBLISHED_AT, "soon"),
    Carry::Wanted,
    LEADER,
    t(2),
    Is::Confirm
)]
#[case::a_staged_one_that_grew_old(staged(t(0)), Carry::Wanted, LEADER, t(60 * DAY), Is::Tidy)]
#[case::a_broken_staged_one(
    with(staged(t(1)), NEXT_KEY, b"garbage"),
    Carry::Wanted,
    LEADER,
    t(2),
    Is::Tidy
)]
#[case::broken_previous_ones(
    with(secret(), PREVIOUS_CERTIFICATES, b"garbage"),
    Carry::Wanted,
    LEADER,
    t(2),
    Is::Tidy
)]
#[case::broken_previous_ones_for_a_follower(
    with(secret(), PREVIOUS_CERTIFICATES, b"garbage"),
    Carry::Wanted,
    FOLLOWER,
    t(2),
    Is::Rest(END)
)]
#[case::the_old_one_stays(promoted(t(20)), Carry::Wanted, LEADER, t(21), Is::Rest(t(20 + 7 * DAY)))]
#[case::the_old_ones_last_second(promoted(t(20)), Carry::Wanted, LEADER, t(20 + 7 * DAY), Is::Rest(t(20 + 7 * DAY)))]
#[case::the_old_one_goes(promoted(t(20)), Carry::Wanted, LEADER, t(21 + 7 * DAY), Is::Tidy)]
fn the_next_step_follows_from_secret_and_configurations(
    #[case] secret: SecretContent,
    #[case] carry: Carry,
    #[case] role: Role,
    #[case] now: Timestamp,
    #[case] wanted: Is,
) {
    let published = published(&secret, carry);
    let step = plan(Some(&secret), published.as_ref(), role, &LIFETIMES, now);
    assert_eq!(kind(&step), wanted);
}

#[rstest]
#[case::leader(LEADER)]
#[case::follower(FOLLOWER)]
fn without_a_secret_any_replica_makes_one(#[case] role: Role) {
    assert_eq!(kind(&plan(None, None, role, &LIFETIMES, t(0))), Is::Create);
}

#[test]
fn a_change_leads_to_rest_and_never_asks_for_itself_again() {
    for secret in [
        with(staged(t(1)), NEXT_KEY, b"garbage"),
        with(secret(), PREVIOUS_CERTIFICATES, b"garbage"),
        staged(t(-61 * DAY)),
        promoted(t(-8 * DAY)),
    ] {
        let after = Change::Tidy.apply(&secret, None, &[], &LIFETIMES, t(1));
        let published = published(&after, Carry::Wanted);
        let step = plan(Some(&after), published.as_ref(), LEADER, &LIFETIMES, t(1));
        assert!(matches!(step, Step::Rest { .. }), "{step:?}");
    }
}

#[test]
fn a_lost_secret_keeps_the_cas_in_use_trusted_and_forgets_expired_ones() {
    let before = promoted(t(20));
    let remembered = Authority::parse(&before).unwrap().in_use();
    let made = ca(t(30));
    let content = SecretContent::default();
    let after = Change::Create.apply(&content, Some(&made), &remembered, &LIFETIMES, t(30));
    assert_eq!(bundle(&after), bundle(&before) + &made.certificate_pem());
    let late = Change::Create.apply(
        &content,
        Some(&ca(t(91 * DAY))),
        &remembered,
        &LIFETIMES,
        t(91 * DAY),
    );
    assert_eq!(Authority::parse(&late).unwrap().previous.len(), 0);
    assert!(!late.annotations.contains_key(PREVIOUS_UNTIL));
}

#[test]
fn a_request_is_acknowledged_once_its_ca_is_written() {
    let asked = annotated(secret(), ROTATE, "today");
    let cause = Cause::Requested("today".into());
    let after = Change::Stage(cause).apply(&asked, Some(&ca(t(1))), &[], &LIFETIMES, t(1));
    assert_eq!(after.annotations.get(ROTATED).map(String::as_str), Some("today"));
    assert_eq!(Authority::parse(&after).unwrap().requested, None);
}

#[test]
fn what_is_not_flocks_own_stays_in_the_secret() {
    let foreign = annotated(with(secret(), "notes.txt", b"mine"), "example.com/a", "b");
    for change in [
        Change::Confirm,
        Change::Promote,
        Change::Tidy,
        Change::Replace(Cause::Requested("x".into())),
    ] {
        let after = change.apply(&foreign, Some(&ca(t(1))), &[], &LIFETIMES, t(1));
        assert_eq!(
            after.data.get("notes.txt").map(Vec::as_slice),
            Some(&b"mine"[..]),
            "{change:?}"
        );
        assert_eq!(
            after.annotations.get("example.com/a").map(String::as_str),
            Some("b"),
            "{change:?}"
        );
    }
}

/// A replica that leads and the API server, played through second by second.
struct Play {
    secret: Option<SecretContent>,
    configurations: Published,
    /// What API servers believed, each second: they may lag.
    history: Vec<Published>,
    trust: Trust,
    leaf: Option<crate::tls::issue::Leaf>,
    remembered: Vec<Retired>,
}

impl Play {
    fn new() -> Self {
        Self {
            secret: Some(secret()),
            configurations: Published {
                bundles: vec![Vec::new(); 2],
            },
            history: Vec::new(),
            trust: Trust::default(),
            leaf: None,
            remembered: Vec::new(),
        }
    }

    fn second(&mut self, now: Timestamp) {
        self.second_of(LEADER, now);
    }

    fn second_of(&mut self, role: Role, now: Timestamp) {
        for _ in 0..8 {
            self.trust.observe(Some(&self.configurations), now);
            if let Some(authority) = self
                .secret
                .as_ref()
                .and_then(|secret| Authority::parse(secret).ok())
            {
                self.remembered = authority.in_use();
                let step = plan_leaf(self.leaf.as_ref(), &authority, &self.trust, &LIFETIMES, now);
                if matches!(step, LeafStep::Sign(_)) {
                    self.leaf = Some(authority.current.sign_leaf(&[], &LIFETIMES, now).unwrap());
                }
            }
            match plan(
                self.secret.as_ref(),
                Some(&self.configurations),
                role,
                &LIFETIMES,
                now,
            ) {
                Step::Rest { .. } => break,
                Step::Publish(bundle) => self.configurations.bundles.fill(bundle.into()),
                Step::Write(change) => {
                    let made = change.needs_a_ca().then(|| ca(now));
                    let before = self.secret.take().unwrap_or_default();
                    let after = change.apply(&before, made.as_ref(), &self.remembered, &LIFETIMES, now);
                    self.secret = Some(after);
                }
            }
        }
        self.history.push(self.configurations.clone());
    }

    /// Whether API servers that lag by up to `lag` seconds accept the leaf that is served now.
    fn is_accepted(&self, lag: usize) -> bool {
        let issuer = &self.leaf.as_ref().unwrap().issuer;
        self.history
            .iter()
            .rev()
            .take(lag + 1)
            .flat_map(|published| &published.bundles)
            .all(|bundle| pem::certificates(bundle).is_ok_and(|certificates| certificates.contains(issuer)))
    }
}

#[test]
fn every_leaf_is_accepted_through_rotations_even_by_api_servers_that_lag() {
    let mut play = Play::new();
    let mut issuers = std::collections::HashSet::new();
    for second in 0..400 {
        if second > 20 && second % 50 == 21 {
            let secret = play.secret.take().unwrap();
            play.secret = Some(annotated(secret, ROTATE, &second.to_string()));
        }
        play.second(t(second));
        issuers.insert(play.leaf.as_ref().unwrap().issuer.clone());
        if second > 9 {
            assert!(play.is_accepted(9), "at second {second}");
        }
    }
    assert_eq!(issuers.len(), 9, "one at first and one for each request");
    let authority = Authority::parse(play.secret.as_ref().unwrap()).unwrap();
    assert_eq!(authority.previous.len(), 8);
}

#[rstest]
#[case::deleted(None)]
#[case::emptied(Some(SecretContent::default()))]
#[case::garbage(Some(with(secret(), CA_KEY, b"garbage")))]
fn every_leaf_is_accepted_though_the_secret_is_lost(#[case] lost: Option<SecretContent>) {
    let mut play = Play::new();
    for second in 0..30 {
        play.second(t(second));
    }
    let before = play.leaf.as_ref().unwrap().issuer.clone();
    play.secret = lost;
    for second in 30..60 {
        play.second(t(second));
        assert!(play.is_accepted(9), "at second {second}");
    }
    assert_ne!(
        play.leaf.as_ref().unwrap().issuer,
        before,
        "the new CA is in service in the end"
    );
}

#[rstest]
#[case::by_less_than_a_leaf_lives(5 * DAY)]
#[case::until_the_ca_is_due(70 * DAY)]
#[case::until_the_ca_has_ended(100 * DAY)]
#[case::by_years(1000 * DAY)]
fn after_a_clock_that_was_ahead_is_set_right_the_leaf_is_valid_and_accepted(#[case] ahead: i64) {
    let mut play = Play::new();
    for second in 0..30 {
        play.second(t(second));
    }
    for second in 30..90 {
        play.second(t(ahead + second));
    }
    for second in 90..120 {
        play.second(t(second));
    }
    let leaf = play.leaf.as_ref().unwrap();
    assert!(leaf.validity.holds(t(120)), "{:?}", leaf.validity);
    assert!(play.is_accepted(9));
    let authority = Authority::parse(play.secret.as_ref().unwrap()).unwrap();
    assert!(authority.current.validity().holds(t(120)));
    assert!(authority.next.is_none(), "it is over");
    // And what is of the future does not stay longer than other CAs that sign no more.
    for second in 0..3 {
        play.second(t(8 * DAY + second));
    }
    let authority = Authority::parse(play.secret.as_ref().unwrap()).unwrap();
    assert_eq!(authority.previous.len(), 0);
}

/// Another replica, with a clock of its own, that looks at the same Secret and configurations.
fn watching(leader: &Play) -> Play {
    Play {
        secret: leader.secret.clone(),
        configurations: leader.configurations.clone(),
        history: leader.history.clone(),
        trust: Trust::default(),
        leaf: None,
        remembered: Vec::new(),
    }
}

#[rstest]
#[case::ahead(70 * DAY)]
#[case::behind(-70 * DAY)]
#[case::behind_by_more_than_a_life(-1000 * DAY)]
fn a_wrong_clock_of_the_leader_costs_the_others_no_leaf(#[case] by: i64) {
    let mut leader = Play::new();
    for second in 0..30 {
        leader.second(t(second));
    }
    let mut other = watching(&leader);
    for second in 30..200 {
        leader.second(t(if second < 90 { by + second } else { second }));
        other.secret.clone_from(&leader.secret);
        other.configurations.clone_from(&leader.configurations);
        other.second_of(FOLLOWER, t(second));
        let leaf = other.leaf.as_ref().unwrap();
        assert!(
            leaf.validity.holds(t(second)),
            "{:?} at second {second}",
            leaf.validity
        );
        assert!(other.is_accepted(9), "at second {second}");
    }
    let current = Authority::parse(leader.secret.as_ref().unwrap()).unwrap().current;
    assert_eq!(other.leaf.unwrap().issuer, *current.certificate());
}

#[test]
fn a_year_passes_with_renewals_only_when_they_are_due() {
    let mut play = Play::new();
    let (mut issuers, mut leaves) = (std::collections::HashSet::new(), std::collections::HashSet::new());
    for hour in 0..365 * 24 {
        play.second(t(hour * 3600));
        let leaf = play.leaf.as_ref().unwrap();
        assert!(!leaf.validity.has_expired(t(hour * 3600)), "hour {hour}");
        assert!(play.is_accepted(0), "hour {hour}");
        issuers.insert(leaf.issuer.clone());
        leaves.insert(leaf.serial.clone());
    }
    // One at the beginning, one after every 60 days.
    assert_eq!(issuers.len(), 7);
    // A leaf lives 7 days and is renewed after 4 and two thirds, or with its CA.
    assert!((79..=86).contains(&leaves.len()), "{}", leaves.len());
}

#[test]
fn a_leaf_that_ends_with_its_ca_is_not_signed_again_and_again() {
    let authority = Authority::parse(&secret()).unwrap();
    let mut trust = Trust::default();
    trust.observe(Some(&Published::default()), t(0));
    let leaf = authority.current.sign_leaf(&[], &LIFETIMES, t(89 * DAY)).unwrap();
    assert_eq!(leaf.validity.not_after, t(90 * DAY));
    let step = plan_leaf(Some(&leaf), &authority, &trust, &LIFETIMES, t(90 * DAY - 1));
    assert_eq!(step, LeafStep::Keep { until: END });
}

#[rstest]
#[case::none_yet(None, true, 0, LeafStep::Sign(Why::First))]
#[case::fresh(Some(0), true, 0, LeafStep::Keep { until: t(403_200) })]
#[case::due(Some(0), true, 403_200, LeafStep::Sign(Why::Renewal(Reason::Due { since: t(403_200) })))]
#[case::early(Some(5 * DAY), false, 0, LeafStep::Sign(Why::Renewal(Reason::Early { not_before: t(5 * DAY) })))]
#[case::early_as_its_ca_is(Some(0), true, -5, LeafStep::Keep { until: t(0) })]
#[case::expired(Some(0), false, 8 * DAY, LeafStep::Sign(Why::Renewal(Reason::Expired { not_after: t(7 * DAY) })))]
fn a_leaf_of_the_current_ca_is_renewed_whatever_is_published(
    #[case] made: Option<i64>,
    #[case] observed: bool,
    #[case] now: i64,
    #[case] wanted: LeafStep,
) {
    let authority = Authority::parse(&secret()).unwrap();
    let mut trust = Trust::default();
    if observed {
        trust.observe(
            Some(&Published {
                bundles: vec![Vec::new()],
            }),
            t(now),
        );
    }
    let leaf = made.map(|made| authority.current.sign_leaf(&[], &LIFETIMES, t(made)).unwrap());
    assert_eq!(
        plan_leaf(leaf.as_ref(), &authority, &trust, &LIFETIMES, t(now)),
        wanted
    );
}

#[derive(Debug, Clone, Copy)]
enum Cas {
    Both,
    Old,
    New,
    None,
}

#[rstest]
#[case::both_are_and_it_has_settled(Some(Cas::Both), 10, LeafStep::Sign(Why::NewCa))]
#[case::both_are_and_it_has_not(Some(Cas::Both), 9, LeafStep::Keep { until: t(10) })]
#[case::the_old_one_still(Some(Cas::Old), 60, LeafStep::Keep { until: t(7 * DAY) })]
#[case::only_the_new_one(Some(Cas::New), 0, LeafStep::Sign(Why::Distrusted))]
#[case::neither(Some(Cas::None), 60, LeafStep::Keep { until: t(7 * DAY) })]
#[case::not_known(None, 60, LeafStep::Keep { until: t(7 * DAY) })]
fn a_leaf_of_another_ca_is_replaced_when_the_new_ca_is_trusted(
    #[case] carried: Option<Cas>,
    #[case] now: i64,
    #[case] wanted: LeafStep,
) {
    let (old, authority) = (ca(t(0)), Authority::parse(&secret()).unwrap());
    let (old_pem, new_pem) = (old.certificate_pem(), authority.current.certificate_pem());
    let mut trust = Trust::default();
    let bundle = carried.map(|cas| match cas {
        Cas::Both => old_pem + &new_pem,
        Cas::Old => old_pem,
        Cas::New => new_pem,
        Cas::None => String::new(),
    });
    for second in [0, now] {
        let published = bundle.as_ref().map(|bundle| Published {
            bundles: vec![bundle.clone().into(); 2],
        });
        trust.observe(published.as_ref(), t(second));
    }
    let leaf = old.sign_leaf(&[], &LIFETIMES, t(0)).unwrap();
    assert_eq!(
        plan_leaf(Some(&leaf), &authority, &trust, &LIFETIMES, t(now)),
        wanted
    );
}

#[test]
fn a_ca_counts_as_published_only_where_every_webhook_carries_it() {
    let ca = ca(t(0));
    let pem = ca.certificate_pem().into_bytes();
    let mut trust = Trust::default();
    assert!(!trust.accepts(ca.certificate()), "nothing is known");
    trust.observe(
        Some(&Published {
            bundles: vec![pem.clone(), Vec::new()],
        }),
        t(0),
    );
    assert!(!trust.accepts(ca.certificate()));
    trust.observe(
        Some(&Published {
            bundles: vec![pem.clone(), pem],
        }),
        t(1),
    );
    assert!(trust.accepts(ca.certificate()));
    trust.observe(Some(&Published::default()), t(2));
    assert!(trust.accepts(ca.certificate()), "nobody calls");
}
