//! Ordinals and sets of them (`flock.dev/ordinals`).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::quote::Quoted;

/// A member's index within its flock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(u32);

impl Ordinal {
    /// The highest ordinal: seven digits leave 55 of a hostname's 63 characters to the flock's name, and its
    /// negative is a valid pod-deletion-cost (an int32).
    pub const MAX: u32 = 9_999_999;

    /// The first of all.
    pub const ZERO: Self = Self(0);

    /// An ordinal, if it is not above [`Ordinal::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// The number itself.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The value of the pod-deletion-cost annotation: the highest ordinal goes first.
    pub fn deletion_cost(self) -> String {
        if self.0 == 0 {
            "0".into()
        } else {
            format!("-{}", self.0)
        }
    }
}

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a number or a list of ordinals could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OrdinalError {
    /// Not a plain decimal number (a sign, a leading zero, a letter).
    #[error("{0} is not a number such as 0 or 12")]
    NotANumber(Quoted),
    /// Above [`Ordinal::MAX`].
    #[error("{0} is above the highest ordinal, {max}", max = Ordinal::MAX)]
    TooHigh(Quoted),
    /// A range whose end is below its start.
    #[error("the range {0} ends before it starts")]
    Backwards(Quoted),
    /// An empty list or an empty element.
    #[error("an element of the list is empty")]
    Empty,
}

impl FromStr for Ordinal {
    type Err = OrdinalError;

    /// Only the canonical form is an ordinal: `01` or `+1` would give two names to one member.
    fn from_str(text: &str) -> Result<Self, OrdinalError> {
        let canonical = text == "0" || !text.starts_with('0');
        if text.is_empty() || !canonical || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(OrdinalError::NotANumber(Quoted::new(text)));
        }
        text.parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| OrdinalError::TooHigh(Quoted::new(text)))
    }
}

/// A set of ordinals as sorted, disjoint, inclusive ranges: `0,2-` takes two of them, however far it goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrdinalSet(Vec<(u32, u32)>);

impl Default for OrdinalSet {
    /// `0-`: all ordinals.
    fn default() -> Self {
        Self(vec![(0, Ordinal::MAX)])
    }
}

impl OrdinalSet {
    /// The empty set.
    pub fn empty() -> Self {
        Self(Vec::new())
    }

    /// The set of one ordinal.
    pub fn one(ordinal: Ordinal) -> Self {
        Self(vec![(ordinal.0, ordinal.0)])
    }

    /// Whether the set has no ordinal.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ordinals the set has.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(low, high)| (high - low) as usize + 1).sum()
    }

    /// The lowest ordinal.
    pub fn lowest(&self) -> Option<Ordinal> {
        self.0.first().map(|(low, _)| Ordinal(*low))
    }

    /// Whether `ordinal` is in the set.
    pub fn contains(&self, ordinal: Ordinal) -> bool {
        let after = self.0.partition_point(|(low, _)| *low <= ordinal.0);
        after > 0 && ordinal.0 <= self.0[after - 1].1
    }

    /// The lowest `count` ordinals of the set: what a workload of `count` replicas owns.
    #[must_use]
    pub fn first(&self, count: u32) -> Self {
        let mut left = count;
        let mut ranges = Vec::new();
        for &(low, high) in &self.0 {
            if left == 0 {
                break;
            }
            let end = high.min(low.saturating_add(left - 1));
            ranges.push((low, end));
            left -= end - low + 1;
        }
        Self(ranges)
    }

    /// All ordinals, ascending; also walks from the high end.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Ordinal> + '_ {
        self.0.iter().flat_map(|&(low, high)| (low..=high).map(Ordinal))
    }

    /// The ordinals of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::normalised(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Whether the two sets share an ordinal.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().any(|&(low, high)| {
            let ending_before = other.0.partition_point(|other| other.1 < low);
            other.0.get(ending_before).is_some_and(|next| next.0 <= high)
        })
    }

    fn normalised(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }
}

impl FromIterator<Ordinal> for OrdinalSet {
    fn from_iter<I: IntoIterator<Item = Ordinal>>(ordinals: I) -> Self {
        Self::normalised(ordinals.into_iter().map(|o| (o.0, o.0)).collect())
    }
}

impl FromStr for OrdinalSet {
    type Err = OrdinalError;

    fn from_str(text: &str) -> Result<Self, OrdinalError> {
        let mut ranges = Vec::new();
        for element in text.split(',').map(str::trim) {
            let range = match element.split_once('-') {
                None if element.is_empty() => return Err(OrdinalError::Empty),
                None => {
                    let ordinal = element.parse::<Ordinal>()?;
                    (ordinal.0, ordinal.0)
                }
                Some((low, "")) => (low.parse::<Ordinal>()?.0, Ordinal::MAX),
                Some((low, high)) => (low.parse::<Ordinal>()?.0, high.parse::<Ordinal>()?.0),
            };
            if range.1 < range.0 {
                return Err(OrdinalError::Backwards(Quoted::new(element)));
            }
            ranges.push(range);
        }
        Ok(Self::normalised(ranges))
    }
}

impl fmt::Display for OrdinalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, &(low, high)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match high {
                _ if high == low => write!(f, "{comma}{low}")?,
                Ordinal::MAX => write!(f, "{comma}{low}-")?,
                _ => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn set(text: &str) -> OrdinalSet {
        text.parse().unwrap()
    }

    #[rstest]
    #[case::single("2", "2")]
    #[case::range("0-4", "0-4")]
    #[case::open("3-", "3-")]
    #[case::list("0,2-", "0,2-")]
    #[case::merges_neighbours("3,1,2", "1-3")]
    #[case::merges_overlaps("5-9,0-6", "0-9")]
    #[case::spaces(" 1 , 3 ", "1,3")]
    fn a_list_of_ordinals_is_read(#[case] text: &str, #[case] canonical: &str) {
        assert_eq!(set(text).to_string(), canonical);
    }

    #[rstest]
    #[case::empty("", OrdinalError::Empty)]
    #[case::empty_element("1,,2", OrdinalError::Empty)]
    #[case::letter("a", OrdinalError::NotANumber(Quoted::new("a")))]
    #[case::leading_zero("01", OrdinalError::NotANumber(Quoted::new("01")))]
    #[case::sign("+1", OrdinalError::NotANumber(Quoted::new("+1")))]
    #[case::negative("-1", OrdinalError::NotANumber(Quoted::new("")))]
    #[case::backwards("4-2", OrdinalError::Backwards(Quoted::new("4-2")))]
    #[case::too_high("10000000", OrdinalError::TooHigh(Quoted::new("10000000")))]
    #[case::overflow(
        "99999999999999999999",
        OrdinalError::TooHigh(Quoted::new("99999999999999999999"))
    )]
    fn a_bad_list_of_ordinals_is_refused(#[case] text: &str, #[case] error: OrdinalError) {
        assert_eq!(text.parse::<OrdinalSet>(), Err(error));
    }

    #[rstest]
    #[case("0-", 3, "0-2")]
    #[case("0,2-", 3, "0,2-3")]
    #[case("1,5,9", 2, "1,5")]
    #[case("1,5,9", 7, "1,5,9")]
    #[case("4", 0, "none")]
    fn a_workload_owns_the_first_replicas_of_its_set(
        #[case] all: &str,
        #[case] replicas: u32,
        #[case] owned: &str,
    ) {
        assert_eq!(set(all).first(replicas).to_string(), owned);
    }

    proptest! {
        #[test]
        fn contains_iter_len_overlaps_and_display_agree(
            numbers in prop::collection::btree_set(0u32..200, 0..40),
            others in prop::collection::btree_set(0u32..200, 0..10),
        ) {
            let other: OrdinalSet = others.iter().filter_map(|n| Ordinal::new(*n)).collect();
            let set: OrdinalSet = numbers.iter().filter_map(|n| Ordinal::new(*n)).collect();
            prop_assert_eq!(set.iter().map(Ordinal::get).collect::<Vec<_>>(), numbers.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.len(), numbers.len());
            for n in 0..200 {
                prop_assert_eq!(set.contains(Ordinal(n)), numbers.contains(&n));
            }
            prop_assert_eq!(set.iter().any(|ordinal| other.contains(ordinal)), set.overlaps(&other));
            prop_assert_eq!(set.overlaps(&other), other.overlaps(&set));
            if !set.is_empty() {
                prop_assert_eq!(set.to_string().parse::<OrdinalSet>().unwrap(), set);
            }
        }
    }
}
