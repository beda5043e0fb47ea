//! What others wrote, as it is repeated in sentences and log lines: never longer than a sentence.

use std::fmt;

/// So many characters of a text are repeated. A name has 253 at most, and what is wrong with a longer text shows in its
/// beginning.
const QUOTED: usize = 256;

/// A text of anyone's in quotation marks, with escapes and cut where it is long: Rust's own `{:?}` makes up to ten bytes
/// of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    /// Quotes a text.
    pub fn new(text: &str) -> Self {
        Self(format!("{:?}", shortened(text, QUOTED)))
    }
}

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text of at most `length` characters, the last of which is an ellipsis where some are left out.
pub fn shortened(text: &str, length: usize) -> String {
    let mut ends = text
        .char_indices()
        .map(|(index, _)| index)
        .skip(length.saturating_sub(1));
    match (ends.next(), ends.next()) {
        (Some(cut), Some(_)) => format!("{}…", &text[..cut]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::short("db", 3, "db")]
    #[case::just("däb", 3, "däb")]
    #[case::long("däbc", 3, "dä…")]
    #[case::empty("", 3, "")]
    fn a_text_is_cut_between_characters(#[case] text: &str, #[case] length: usize, #[case] cut: &str) {
        assert_eq!(shortened(text, length), cut);
    }

    #[test]
    fn a_quotation_is_short_whatever_is_quoted() {
        assert_eq!(Quoted::new("a\"b").to_string(), r#""a\"b""#);
        let long = Quoted::new(&"\u{7f}".repeat(7 << 20)).to_string();
        assert!(long.len() < 2_000, "{}", long.len());
    }
}
