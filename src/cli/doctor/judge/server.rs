//! The API server: its version, its clock, and whether it keeps kubelets off Flock's labels.

use jiff::{SignedDuration, Timestamp};

use super::super::finding::Finding;

const VERSION: &str = "API server";
const CLOCK: &str = "clock";
const FENCE: &str = "NodeRestriction";

/// The oldest version that works, as (minor, patch). Before it a kubelet could have its Node deleted and register it
/// anew without the labels that it may not change (CVE-2025-5187).
const OLDEST: (u32, u32) = (33, 4);
/// So far clocks may be apart: the API server's is told in whole seconds, and an answer takes its time.
const APART: SignedDuration = SignedDuration::from_secs(5);

/// What an API server answers to a kubelet that wants to put a label of Flock's on its own node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// No.
    Holds,
    /// Yes.
    Open,
    /// That cannot be told, because of this.
    Unknown(String),
}

impl Fence {
    /// Reads the answer: a status code and the message that came with it.
    pub fn read(code: u16, message: &str) -> Self {
        match code {
            200 => Self::Open,
            403 if message.contains("is not allowed to modify labels") => Self::Holds,
            403 if message.contains("cannot impersonate") => {
                Self::Unknown(format!("it takes the right to speak for a kubelet: {message}"))
            }
            _ => Self::Unknown(message.to_owned()),
        }
    }
}

/// What is known of the API server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its version, such as `v1.34.2+k3s1`.
    pub version: String,
    /// Its time, if it told.
    pub time: Option<Timestamp>,
    /// The time here when it told.
    pub here: Timestamp,
    /// What kubelets may do.
    pub fence: Fence,
}

impl Server {
    /// How far its clock is ahead of this machine's, if they are apart at all.
    pub fn ahead(&self) -> SignedDuration {
        let ahead = self.time.map(|time| time.duration_since(self.here));
        ahead
            .filter(|ahead| ahead.abs() > APART)
            .unwrap_or(SignedDuration::ZERO)
    }
}

/// Judges it.
pub fn judge(server: &Server) -> Vec<Finding> {
    vec![version(&server.version), clock(server), fence(&server.fence)]
}

fn version(text: &str) -> Finding {
    const RANGE: &str = "Flock supports 1.33.4, or 1.34 and later";
    let Some((major, minor, patch)) = parse(text) else {
        return Finding::warning(VERSION, format!("its version {text:?} cannot be read; {RANGE}"));
    };
    if (major, minor) < (1, OLDEST.0) {
        let message = format!("{text} is too old: {RANGE}; upgrade the cluster");
        return Finding::broken(VERSION, message);
    }
    if (major, minor) == (1, OLDEST.0) && patch < OLDEST.1 {
        let message = format!(
            "{text} lets a kubelet rid its node of labels that it may not change (CVE-2025-5187); {RANGE}; upgrade the \
             cluster"
        );
        return Finding::warning(VERSION, message);
    }
    Finding::ok(VERSION, format!("{text} is supported"))
}

/// Major, minor and patch of `v1.34.2-gke.100` and the like.
fn parse(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let core = text.split(['-', '+']).next()?;
    let mut parts = core.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

fn clock(server: &Server) -> Finding {
    if server.time.is_none() {
        return Finding::not_checked(CLOCK, "the API server's answers have no date");
    }
    let ahead = server.ahead();
    if ahead.is_zero() {
        return Finding::ok(CLOCK, "this machine and the API server agree on the time");
    }
    let which = if ahead.is_negative() { "ahead of" } else { "behind" };
    let message = format!(
        "the clock of this machine is {} s {which} the API server's; set it. What follows is judged by the API server's",
        ahead.abs().as_secs()
    );
    Finding::warning(CLOCK, message)
}

fn fence(fence: &Fence) -> Finding {
    match fence {
        Fence::Holds => Finding::ok(
            FENCE,
            "kubelets cannot change the labels that say where members live",
        ),
        Fence::Open => Finding::broken(
            FENCE,
            "a kubelet may put Flock's labels on its own node, and so draw members and their data to it: start the API \
             server with --enable-admission-plugins=NodeRestriction",
        ),
        Fence::Unknown(why) => Finding::not_checked(
            FENCE,
            format!("whether kubelets may set Flock's labels is unknown: {why}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cli::doctor::finding::Verdict;

    #[rstest]
    #[case("v1.33.4", Verdict::Ok)]
    #[case("v1.34.0", Verdict::Ok)]
    #[case("v1.36.2+k3s1", Verdict::Ok)]
    #[case("v1.34.1-gke.1279000", Verdict::Ok)]
    #[case("v1.33.3", Verdict::Warning)]
    #[case("v1.32.9", Verdict::Broken)]
    #[case("new", Verdict::Warning)]
    #[case("v1.34", Verdict::Warning)]
    fn versions_are_supported_from_the_oldest_on(#[case] text: &str, #[case] verdict: Verdict) {
        let finding = version(text);
        assert_eq!(finding.verdict, verdict);
        assert!(finding.message.contains(text));
    }

    #[rstest]
    #[case(0, Verdict::Ok, 0)]
    #[case(4, Verdict::Ok, 0)]
    #[case(40, Verdict::Warning, 40)]
    #[case(-40, Verdict::Warning, -40)]
    fn a_clock_that_is_wrong_is_told_and_allowed_for(
        #[case] ahead: i64,
        #[case] verdict: Verdict,
        #[case] allowed: i64,
    ) {
        let here = Timestamp::from_second(1_700_000_000).unwrap();
        let server = Server {
            version: "v1.34.0".into(),
            time: Some(here + SignedDuration::from_secs(ahead)),
            here,
            fence: Fence::Holds,
        };
        assert_eq!(clock(&server).verdict, verdict, "{}", clock(&server).message);
        assert_eq!(server.ahead().as_secs(), allowed);
        let message = clock(&server).message;
        assert_eq!(message.contains("behind"), ahead > 5, "{message}");
    }

    #[rstest]
    #[case(200, "", Fence::Open)]
    #[case(
        403,
        "nodes \"a\" is forbidden: is not allowed to modify labels: x.flock.node-restriction.kubernetes.io/0",
        Fence::Holds
    )]
    fn a_kubelets_answer_is_read(#[case] code: u16, #[case] message: &str, #[case] expected: Fence) {
        assert_eq!(Fence::read(code, message), expected);
    }

    #[rstest]
    #[case(
        403,
        "users \"system:node:a\" is forbidden: User \"me\" cannot impersonate resource \"users\""
    )]
    #[case(
        403,
        "nodes \"a\" is forbidden: User \"system:node:a\" cannot patch resource \"nodes\""
    )]
    #[case(500, "a webhook of others")]
    fn an_answer_that_says_nothing_of_labels_proves_nothing(#[case] code: u16, #[case] message: &str) {
        let finding = fence(&Fence::read(code, message));
        assert_eq!(finding.verdict, Verdict::NotChecked);
        assert!(finding.message.contains(message));
    }
}
