//! Any bytes as the Secret of the CA, or as PEM: no panic and no unbounded work, and a bundle that is read again.
#![no_main]

use std::collections::BTreeMap;

use flock::tls::authority::{Authority, SecretContent};
use flock::tls::pem;
use libfuzzer_sys::fuzz_target;

const ENTRIES: [&str; 5] = ["ca.crt", "ca.key", "next.crt", "next.key", "previous.crt"];

fuzz_target!(|data: &[u8]| {
    let _ = pem::certificates(data);
    let _ = pem::p256_key(data);
    // NUL parts the entries.
    let data: BTreeMap<_, _> =
        ENTRIES.iter().zip(data.split(|byte| *byte == 0)).map(|(name, part)| ((*name).into(), part.to_vec())).collect();
    let secret = SecretContent { data, annotations: BTreeMap::new() };
    if let Ok(authority) = Authority::parse(&secret) {
        pem::certificates(authority.bundle().as_bytes()).expect("a bundle is read again");
    }
});
