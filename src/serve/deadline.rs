//! How long a request may take, by what its caller says. Pure.

use std::time::Duration;

/// The part of the caller's time that is left for the way back.
const MARGIN: u32 = 10;
const MAX_MARGIN: Duration = Duration::from_millis(500);

/// The time for one request: the `timeout` that the API server puts into the query, minus a margin, and never more
/// than `most`.
pub(super) fn for_query(query: Option<&str>, most: Duration) -> Duration {
    let timeout = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(parse);
    timeout.map_or(most, |timeout| {
        timeout
            .saturating_sub((timeout / MARGIN).min(MAX_MARGIN))
            .min(most)
    })
}

/// Reads a duration as Go writes it (`1m30s`, `2.5s`, `500ms`).
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (digits, tail) = rest.split_at(number);
        let unit = tail
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += digits.parse::<f64>().ok()? * unit;
        rest = tail;
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|timeout| !timeout.is_zero())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::seconds("10s", Some(10_000))]
    #[case::a_fraction("2.5s", Some(2_500))]
    #[case::parts("1m30s", Some(90_000))]
    #[case::milliseconds("500ms", Some(500))]
    #[case::parts_of_hours("1h0m0s", Some(3_600_000))]
    #[case::nothing("", None)]
    #[case::zero("0s", None)]
    #[case::no_unit("10", None)]
    #[case::no_number("s", None)]
    #[case::another_unit("10d", None)]
    #[case::two_points("1.2.3s", None)]
    #[case::negative("-1s", None)]
    #[case::too_long("99999999999999999999999999h", None)]
    fn durations_are_read_as_go_writes_them(#[case] text: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(parse(text), milliseconds.map(Duration::from_millis));
    }

    #[rstest]
    #[case::of_the_api_server(Some("timeout=3s"), 2_700)]
    #[case::among_others(Some("a=b&timeout=1s&c"), 900)]
    #[case::with_the_largest_margin(Some("timeout=8s"), 7_500)]
    #[case::at_most(Some("timeout=30s"), 10_000)]
    #[case::unreadable(Some("timeout=soon"), 10_000)]
    #[case::absent(None, 10_000)]
    fn the_deadline_is_the_callers_minus_a_margin(#[case] query: Option<&str>, #[case] milliseconds: u64) {
        assert_eq!(
            for_query(query, Duration::from_secs(10)),
            Duration::from_millis(milliseconds)
        );
    }
}
