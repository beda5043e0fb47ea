//! What the lab says while it works: one line on standard error for each step, so that the output of a
//! command, such as kubectl's, stays clean.

use std::fmt::Arguments;
use std::io::Write;
use std::time::Duration;

/// Writes one line. A closed standard error is no reason to fail.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "lab: {line}");
}

/// A duration as a person says it: `2 min 49 s`, `12 s`, `0.4 s`.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_a_person_says_it() {
        assert_eq!(human(Duration::from_millis(420)), "0.4 s");
        assert_eq!(human(Duration::from_secs(12)), "12 s");
        assert_eq!(human(Duration::from_secs(169)), "2 min 49 s");
    }
}
