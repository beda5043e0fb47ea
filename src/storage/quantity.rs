//! Sizes as Kubernetes writes them (`k8s.io/apimachinery/pkg/api/resource/quantity.go`).

/// A quantity in whole bytes, rounded up; `None` for what is no size.
pub fn bytes(quantity: &str) -> Option<u128> {
    let end = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 18 {
        return None;
    }
    let factor: u128 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1000_u128.pow(2),
        "G" => 1000_u128.pow(3),
        "T" => 1000_u128.pow(4),
        "P" => 1000_u128.pow(5),
        "E" => 1000_u128.pow(6),
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        "m" => return scaled(whole, fraction, 1).map(|n| n.div_ceil(1000)),
        _ => 10_u128.checked_pow(
            suffix
                .strip_prefix(['e', 'E'])?
                .trim_start_matches('+')
                .parse()
                .ok()?,
        )?,
    };
    scaled(whole, fraction, factor)
}

fn scaled(whole: &str, fraction: &str, factor: u128) -> Option<u128> {
    let unit = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some(digits.checked_mul(factor)?.div_ceil(unit))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::bytes;

    #[rstest]
    #[case("0", Some(0))]
    #[case("1", Some(1))]
    #[case("10Gi", Some(10 << 30))]
    #[case("1.5Gi", Some(3 << 29))]
    #[case("1G", Some(1_000_000_000))]
    #[case("1e3", Some(1000))]
    #[case("1E3", Some(1000))]
    #[case("2E", Some(2_000_000_000_000_000_000))]
    #[case("1500m", Some(2))]
    #[case("0.5", Some(1))]
    #[case(".5k", Some(500))]
    #[case("", None)]
    #[case(".", None)]
    #[case("-1", None)]
    #[case("1Xi", None)]
    #[case("Gi", None)]
    #[case("99999999999999999999999999999999999999Ei", None)]
    fn a_quantity_is_read_as_the_api_server_reads_it(#[case] text: &str, #[case] expected: Option<u128>) {
        assert_eq!(bytes(text), expected);
    }
}
