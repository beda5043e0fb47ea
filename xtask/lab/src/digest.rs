//! SHA-256, as the lower-case hexadecimal text that stamps and images use.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
