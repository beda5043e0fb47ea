//! Any bytes as a review: no panic, the uid comes back, and a patch applies and is whole at once.
#![no_main]

use flock::admission::{Answer, Context, End, Policy, RawPod, Reservations, Verdict, decide, parse, render};
use flock::view::{Flock, View};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn verdict(namespace: &str, text: &str) -> Option<Verdict> {
    let pod: RawPod<'_> = serde_json::from_str(text).ok()?;
    let context = Context {
        view: &View::default(),
        flock: &Flock::default(),
        reservations: &Reservations::default(),
        policy: &Policy { host_path_root: "/var/lib/flock".into() },
        end: End::Low,
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    Some(decide(namespace, &pod, &context))
}

fuzz_target!(|data: &[u8]| {
    let Ok(request) = parse(data) else { return };
    let Some(object) = request.object else { return };
    let Some(Verdict::Member { ops, .. }) = verdict(&request.namespace, object.get()) else { return };
    let Ok(mut pod) = serde_json::from_str::<Value>(object.get()) else { return };
    let patch: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(&ops).expect("operations are JSON")).expect("a patch");
    json_patch::patch(&mut pod, &patch).expect("the patch applies");
    match verdict(&request.namespace, &pod.to_string()) {
        Some(Verdict::Member { ops, .. }) => assert!(ops.is_empty(), "patched twice: {ops:?}"),
        other => panic!("a member is no member any more: {other:?}"),
    }
    let answer = render(&request.uid, &Answer::Allowed(ops), &[]);
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    assert_eq!(answer["response"]["uid"], *request.uid);
});
