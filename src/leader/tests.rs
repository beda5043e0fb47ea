//! Replicas that compete, with an API server that knows one Lease, in time that passes as soon as all wait for it.

use std::task::{Context, Poll};

use axum::http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use rstest::rstest;
use serde_json::json;
use tokio::time::{advance, sleep};
use tower_service::Service;

use k8s_openapi::api::coordination::v1::LeaseSpec;

use super::*;

/// How an API server treats requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Answers,
    IsSilent,
    /// Does what it is asked for and does not say so.
    ForgetsToAnswer,
    Fails(u16),
}

/// What all replicas see.
#[derive(Default)]
struct Cluster {
    lease: Option<Lease>,
    version: u64,
    looks: usize,
    writes: usize,
}

/// One replica's way to the API server.
#[derive(Clone)]
struct Link {
    cluster: Arc<Mutex<Cluster>>,
    looks: Arc<Mutex<Mood>>,
    writes: Arc<Mutex<Mood>>,
}

impl Link {
    fn to(cluster: &Arc<Mutex<Cluster>>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            looks: Arc::new(Mutex::new(Mood::Answers)),
            writes: Arc::new(Mutex::new(Mood::Answers)),
        }
    }

    fn is(&self, looks: Mood, writes: Mood) {
        *self.looks.lock() = looks;
        *self.writes.lock() = writes;
    }

    fn compete(&self, identity: &str) -> Leadership {
        self.compete_when(identity, std::future::ready(()))
    }

    fn compete_when(&self, identity: &str, able: impl Future<Output = ()> + Send + 'static) -> Leadership {
        let client = Client::new(self.clone(), "flock");
        Leadership::compete(client, "flock", "flock", identity, able)
    }
}

fn status(code: u16) -> (u16, String) {
    let reason = if code == 404 { "NotFound" } else { "" };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
    });
    (code, body.to_string())
}

impl Cluster {
    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, String) {
        if method == Method::GET {
            self.looks += 1;
        } else {
            self.writes += 1;
            let wanted: Lease = serde_json::from_slice(body).unwrap();
            let there = self
                .lease
                .as_ref()
                .map(|lease| lease.metadata.resource_version.clone());
            match (method.as_str(), there) {
                ("PUT", Some(version)) if version == wanted.metadata.resource_version => {}
                ("POST", None) => {}
                ("PUT", None) => return status(404),
                _ => return status(409),
            }
            self.put(wanted);
        }
        match &self.lease {
            Some(lease) => (200, serde_json::to_string(lease).unwrap()),
            None => status(404),
        }
    }

    fn put(&mut self, mut lease: Lease) {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease);
    }

    fn spec(&self) -> LeaseSpec {
        self.lease
            .clone()
            .and_then(|lease| lease.spec)
            .unwrap_or_default()
    }

    fn holder(&self) -> Option<String> {
        self.spec().holder_identity
    }
}

impl Service<Request<Body>> for Link {
    type Response = Response<Full<bytes::Bytes>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mood = if request.method() == Method::GET {
            *self.looks.lock()
        } else {
            *self.writes.lock()
        };
        let cluster = Arc::clone(&self.cluster);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (code, text) = match mood {
                Mood::Answers => cluster.lock().answer(&parts.method, &body),
                Mood::ForgetsToAnswer => {
                    cluster.lock().answer(&parts.method, &body);
                    std::future::pending().await
                }
                Mood::IsSilent => std::future::pending().await,
                Mood::Fails(code) => status(code),
            };
            let code = StatusCode::from_u16(code).unwrap();
            Ok(Response::builder().status(code).body(Full::from(text)).unwrap())
        })
    }
}

/// Waits for the lead of `one`, and sees to it that `other` does not lead at the same time; how long it took.
async fn takes_over(one: &Lead, other: &Lead) -> Duration {
    let begin = Instant::now();
    while !one.is_certain() {
        assert!(begin.elapsed() < Duration::from_secs(120), "nobody leads");
        sleep(Duration::from_millis(10)).await;
        assert!(!(one.is_certain() && other.is_certain()), "two lead");
    }
    begin.elapsed()
}

/// Asserts that `one` leads all the time.
async fn stays(one: &Lead, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        assert!(one.is_certain(), "it does not lead after {:?}", begin.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
}

/// Asserts that `one` does not lead at any time.
async fn never(one: &Lead, time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        assert!(!one.is_certain(), "it leads after {:?}", begin.elapsed());
        sleep(Duration::from_millis(10)).await;
    }
}

struct Two {
    cluster: Arc<Mutex<Cluster>>,
    link: Link,
    first: Leadership,
    second: Leadership,
}

/// Two replicas, of which the first leads.
async fn two() -> Two {
    let cluster = Arc::default();
    let link = Link::to(&cluster);
    let first = link.compete("first");
    assert!(timeout(ANSWER, first.lead().begins()).await.unwrap());
    let second = Link::to(&cluster).compete("second");
    stays(&first.lead(), Duration::from_secs(60)).await;
    assert!(!second.lead().is_certain());
    Two {
        cluster,
        link,
        first,
        second,
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_renews_while_the_others_only_look() {
    let two = two().await;
    let begin = two.cluster.lock().writes;
    stays(&two.first.lead(), Duration::from_secs(100)).await;
    let writes = two.cluster.lock().writes - begin;
    assert!((19..=21).contains(&writes), "{writes} writes in 100 s");
    assert_eq!(two.cluster.lock().spec().lease_transitions, Some(1));
    assert!(!*two.second.leads().borrow());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let two = two().await;
    let first = two.first.lead();
    two.first.release().await;
    let took = takes_over(&two.second.lead(), &first).await;
    assert!(took <= Duration::from_millis(1100), "{took:?}");
    stays(&two.second.lead(), Duration::from_secs(60)).await;
    assert_eq!(two.cluster.lock().spec().lease_transitions, Some(2));
    two.second.release().await;
    assert_eq!(two.cluster.lock().holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_have_the_lease_gives_nothing_back() {
    let two = two().await;
    two.second.release().await;
    stays(&two.first.lead(), Duration::from_secs(60)).await;
    assert_eq!(two.cluster.lock().spec().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leaders_lease_is_taken_when_it_is_over() {
    let two = two().await;
    let first = two.first.lead();
    two.first.task.abort();
    let took = takes_over(&two.second.lead(), &first).await;
    assert!(took < Duration::from_secs(17), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_anew_under_its_old_name_leads_at_once() {
    let two = two().await;
    two.first.task.abort();
    let again = two.link.compete("first");
    let took = takes_over(&again.lead(), &two.second.lead()).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[rstest]
#[case::silence(Mood::IsSilent, Mood::IsSilent)]
#[case::silence_after_writes(Mood::Answers, Mood::IsSilent)]
#[case::lost_answers(Mood::ForgetsToAnswer, Mood::IsSilent)]
#[case::errors(Mood::Fails(500), Mood::Fails(500))]
#[case::errors_of_writes(Mood::Answers, Mood::Fails(500))]
#[case::refusals(Mood::Fails(403), Mood::Fails(403))]
#[case::too_many(Mood::Fails(429), Mood::Fails(429))]
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_lost_before_another_takes_it(
    #[case] looks: Mood,
    #[case] writes: Mood,
) {
    let two = two().await;
    let (first, second) = (two.first.lead(), two.second.lead());
    two.link.is(looks, writes);
    let took = takes_over(&second, &first).await;
    assert!(took < Duration::from_secs(17), "{took:?}");
    assert!(!*two.first.leads().borrow());
    two.link.is(Mood::Answers, Mood::Answers);
    stays(&second, Duration::from_secs(60)).await;
    never(&first, Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_costs_no_lead() {
    let two = two().await;
    for mood in [Mood::Fails(503), Mood::IsSilent, Mood::ForgetsToAnswer] {
        two.link.is(mood, mood);
        stays(&two.first.lead(), Duration::from_secs(5)).await;
        two.link.is(Mood::Answers, Mood::Answers);
        stays(&two.first.lead(), Duration::from_secs(20)).await;
    }
    assert_eq!(two.cluster.lock().spec().lease_transitions, Some(1));
}

#[rstest]
#[case::silence(Mood::IsSilent)]
#[case::errors(Mood::Fails(500))]
#[tokio::test(start_paused = true)]
async fn after_a_pause_only_a_renewal_makes_a_leader_again(#[case] writes: Mood) {
    let two = two().await;
    let first = two.first.lead();
    two.second.task.abort();
    two.link.is(Mood::Answers, writes);
    // Short enough for the Lease to hold still.
    advance(Duration::from_secs(6)).await;
    assert!(!first.is_certain());
    never(&first, Duration::from_secs(60)).await;
    two.link.is(Mood::Answers, Mood::Answers);
    sleep(ANSWER + BEAT).await;
    stays(&first, Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_through_the_loss_of_its_lease_does_not_lead_again() {
    let two = two().await;
    let first = two.first.lead();
    two.second.task.abort();
    {
        let mut cluster = two.cluster.lock();
        let mut lease = cluster.lease.clone().unwrap();
        lease.spec.get_or_insert_default().holder_identity = Some("third".into());
        cluster.put(lease);
    }
    two.link.is(Mood::Answers, Mood::Fails(500));
    advance(Duration::from_secs(20)).await;
    never(&first, Duration::from_secs(60)).await;
    // It has to see for itself that the third does not renew it.
    two.link.is(Mood::Answers, Mood::Answers);
    never(&first, HOLDS).await;
    sleep(BEAT * 3).await;
    assert!(first.is_certain());
    assert_eq!(two.cluster.lock().holder().as_deref(), Some("first"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deletes_is_made_anew_by_its_holder() {
    let two = two().await;
    for _ in 0..3 {
        two.cluster.lock().lease = None;
        stays(&two.first.lead(), Duration::from_secs(30)).await;
        assert_eq!(two.cluster.lock().holder().as_deref(), Some("first"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leaders_lease_that_somebody_deletes_is_made_anew_by_another() {
    let two = two().await;
    let first = two.first.lead();
    two.first.task.abort();
    two.cluster.lock().lease = None;
    let took = takes_over(&two.second.lead(), &first).await;
    assert!(took < Duration::from_secs(17), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_that_start_at_once_one_leads() {
    let cluster = Arc::default();
    let all: Vec<_> = (0..5)
        .map(|replica| Link::to(&cluster).compete(&format!("flock-{replica}")))
        .collect();
    sleep(BEAT * 3).await;
    let count = all.iter().filter(|replica| replica.lead().is_certain()).count();
    assert_eq!(count, 1);
}

#[rstest]
#[case::on_time(1, 1, true)]
#[case::stopped(10, 10, false)]
#[case::a_machine_whose_timers_stood_still(0, 10, false)]
#[case::a_clock_that_was_set_back(1, -3600, true)]
#[case::stopped_and_set_back(10, -3600, false)]
fn a_lead_is_certain_while_it_was_looked_at_a_moment_ago_by_either_clock(
    #[case] timer: u64,
    #[case] wall: i64,
    #[case] certain: bool,
) {
    let last = Moment::now();
    let now = Moment {
        timer: last.timer + Duration::from_secs(timer),
        wall: last.wall + SignedDuration::from_secs(wall),
    };
    let confirmed = Some(last);
    let proof = Proof {
        beat: last,
        confirmed,
    };
    assert_eq!(proof.holds(now), certain);
}

#[rstest]
#[case::renewed(0, 13, true)]
#[case::renewed_too_long_ago(0, 14, false)]
#[case::renewed_too_long_ago_by_a_machine_whose_timers_stood_still(14, 0, false)]
fn a_lead_is_certain_while_a_renewal_holds_however_often_it_was_looked_at(
    #[case] wall: i64,
    #[case] timer: u64,
    #[case] certain: bool,
) {
    let asked = Moment::now();
    let now = Moment {
        timer: asked.timer + Duration::from_secs(timer),
        wall: asked.wall + SignedDuration::from_secs(wall),
    };
    let confirmed = Some(asked);
    let proof = Proof { beat: now, confirmed };
    assert_eq!(proof.holds(now), certain);
}

#[tokio::test]
async fn a_lead_that_was_not_looked_at_for_long_is_none_until_it_is() {
    let (_sender, leads) = watch::channel(true);
    let now = Moment::now();
    let old = Moment {
        wall: now.wall - SignedDuration::from_secs(20),
        ..now
    };
    let confirmed = Some(old);
    let proof = Arc::new(Mutex::new(Proof { beat: old, confirmed }));
    let mut lead = Lead {
        leads,
        proof: Some(Arc::clone(&proof)),
    };
    assert!(!lead.is_certain());
    assert!(timeout(BEAT, lead.begins()).await.is_err());
    let beat = Moment::now();
    let confirmed = Some(beat);
    *proof.lock() = Proof { beat, confirmed };
    assert!(lead.begins().await && lead.is_certain());
}

/// What it cannot list, it cannot reconcile: it must not keep one from it that can.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_able_to_lead_leaves_the_lease_alone() {
    let cluster = Arc::<Mutex<Cluster>>::default();
    let able = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&able);
    let one = Link::to(&cluster).compete_when("one", async move { waits.notified().await });
    never(&one.lead(), Duration::from_secs(60)).await;
    let asked = {
        let cluster = cluster.lock();
        cluster.writes + cluster.looks
    };
    assert_eq!(asked, 0);
    able.notify_one();
    assert!(timeout(ANSWER, one.lead().begins()).await.unwrap());
    one.release().await;
    let never_able = Link::to(&cluster).compete_when("two", std::future::pending());
    never_able.release().await;
    assert_eq!(cluster.lock().holder(), None);
}

#[rstest]
#[case::errors(Mood::Fails(500))]
#[case::silence(Mood::IsSilent)]
#[tokio::test(start_paused = true)]
async fn who_was_overtaken_does_not_lead_though_it_cannot_see_by_whom(#[case] looks: Mood) {
    let two = two().await;
    two.link.is(looks, Mood::Answers);
    {
        let mut cluster = two.cluster.lock();
        let mut lease = cluster.lease.clone().unwrap();
        lease.spec.as_mut().unwrap().holder_identity = Some("somebody".into());
        cluster.put(lease);
    }
    let begin = Instant::now();
    while two.first.lead().is_certain() {
        // The next renewal and the look after it.
        assert!(begin.elapsed() <= RENEW + ANSWER + BEAT, "it leads on");
        sleep(Duration::from_millis(10)).await;
    }
}
