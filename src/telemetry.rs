//! Logs, plain or JSON: at `info` one line for each member admitted, each refusal and each write. Pods and workloads
//! that are let pass as they came are told at `debug`, and so are workloads that only got a warning: their users have
//! read it. What anybody can cause who reaches the port, and is no decision, passes a [`Sparse`].

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::args::LogFormat;

/// Sends log lines to standard error.
pub fn init(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Plain => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Lets some lines pass at once and then one in a time, and counts the others: for what strangers can cause as often as
/// they like.
#[derive(Debug)]
pub struct Sparse {
    at_once: u32,
    every: Duration,
    state: Mutex<SparseState>,
}

#[derive(Debug, Default)]
struct SparseState {
    /// When as many may pass at once again as at first.
    rested: Option<Instant>,
    left_out: u64,
}

impl Default for Sparse {
    /// Ten lines at once, and then one in ten seconds.
    fn default() -> Self {
        Self::new(10, Duration::from_secs(10))
    }
}

impl Sparse {
    /// So many lines at once, and one more after each such time.
    pub fn new(at_once: u32, every: Duration) -> Self {
        Self {
            at_once,
            every,
            state: Mutex::default(),
        }
    }

    /// Whether a line passes now; if so, how many were left out before it.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let state = &mut *self.state.lock();
        let rested = state.rested.map_or(now, |rested| rested.max(now));
        if rested.duration_since(now) > self.every * self.at_once.saturating_sub(1) {
            state.left_out += 1;
            return None;
        }
        state.rested = Some(rested + self.every);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one(1, [Some(0), None, None, Some(2), None, Some(1)])]
    #[case::two(2, [Some(0), Some(0), None, Some(1), None, Some(1)])]
    #[case::many(9, [Some(0); 6])]
    fn of_many_lines_some_pass_and_tell_how_many_did_not(
        #[case] at_once: u32,
        #[case] expected: [Option<u64>; 6],
    ) {
        let sparse = Sparse::new(at_once, Duration::from_secs(10));
        let begin = Instant::now();
        let at = |second| sparse.pass(begin + Duration::from_secs(second));
        assert_eq!([0, 1, 9, 10, 11, 30].map(at), expected);
    }
}
