//! The frames of a body as one.

use bytes::{Bytes, BytesMut};

use super::bodies::SMALL;

/// Frames of a body, copied only if there is more than one.
pub(super) struct Joined {
    first: Bytes,
    rest: BytesMut,
    /// How long the whole is said to be. Room for it is taken at once, so that growing does not take twice as much;
    /// as long as nothing is written there, it is no memory.
    expected: usize,
}

impl Joined {
    pub(super) fn expecting(expected: usize) -> Self {
        Self {
            first: Bytes::new(),
            rest: BytesMut::new(),
            expected,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    pub(super) fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        let length = self.len() + data.len();
        let room = if length > SMALL {
            self.expected
        } else {
            self.expected.min(SMALL)
        };
        if self.rest.capacity() < length {
            self.rest.reserve(room.max(length) - self.rest.len());
        }
        self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        self.rest.extend_from_slice(&data);
    }

    pub(super) fn finish(self) -> Bytes {
        if self.rest.is_empty() {
            self.first
        } else {
            self.rest.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(0, &[], "")]
    #[case::one_frame(3, &["abc"], "abc")]
    #[case::several(7, &["abc", "", "de", "fg"], "abcdefg")]
    #[case::an_empty_one_first(1, &["", "a"], "a")]
    #[case::of_unknown_length(0, &["abc", "de"], "abcde")]
    #[case::longer_than_announced(1, &["abc", "de"], "abcde")]
    fn frames_are_joined_in_their_order(
        #[case] expected: usize,
        #[case] frames: &[&'static str],
        #[case] whole: &str,
    ) {
        let mut joined = Joined::expecting(expected);
        for frame in frames {
            joined.push(Bytes::from_static(frame.as_bytes()));
        }
        assert_eq!(joined.len(), whole.len());
        assert_eq!(joined.finish(), whole);
    }

    #[test]
    fn a_body_of_announced_length_takes_no_more_than_that() {
        let mut joined = Joined::expecting(1_000_000);
        for _ in 0..100 {
            joined.push(Bytes::from(vec![b' '; 10_000]));
        }
        assert_eq!(joined.rest.capacity(), 1_000_000);
    }
}
