//! Reads certificates and keys that anybody may have written. Pure, and bounded before anything is parsed: PEM
//! readers of other languages were quadratic (CVE-2024-12401), and a Secret may hold 1 MiB.

use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, pem::PemObject};

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;

use super::lifetime::Validity;

/// The most bytes that are read as PEM. A P-256 CA has 0.6 KiB and a full bundle of them less than 8.
pub const MAX_BYTES: usize = 64 * 1024;
/// The most certificates that one entry may hold.
pub const MAX_CERTIFICATES: usize = 16;

/// What is wrong with a certificate or a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing is there.
    #[error("it is missing or empty")]
    Empty,
    /// More bytes than [`MAX_BYTES`].
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// More certificates than were asked for.
    #[error("it holds more certificates than it may")]
    TooMany,
    /// Not PEM, or PEM of something else.
    #[error("it is not PEM of the kind that belongs there")]
    NotPem,
    /// PEM, but no X.509 certificate inside.
    #[error("it is no X.509 certificate")]
    NotX509,
    /// A certificate that may not sign others.
    #[error("the certificate is no CA")]
    NotACa,
    /// A CA whose extensions keep verifiers from taking a serving certificate of it.
    #[error("the CA's extensions do not let it sign serving certificates of any name")]
    NotForServers,
    /// A CA whose subject would not be the same as the issuer in what it signs.
    #[error("the CA's subject cannot be written as it is as the issuer of what it signs")]
    ForeignName,
    /// A key that is not PKCS #8 ECDSA P-256.
    #[error("the key is not ECDSA P-256 in PKCS #8")]
    WrongKeyType,
    /// A key of another certificate.
    #[error("the key does not belong to the certificate")]
    KeyMismatch,
}

/// What a certificate says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The period in which it is valid.
    pub validity: Validity,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// Whether it may sign others.
    pub is_ca: bool,
    /// Whether verifiers take any serving certificate that it signs, if it is a CA.
    pub signs_servers: bool,
    /// Its subject, as it is encoded.
    pub subject: Vec<u8>,
    /// Its issuer, as it is encoded.
    pub issuer: Vec<u8>,
    /// The bits of its public key.
    pub public_key: Vec<u8>,
}

/// Reads all certificates of a PEM text.
pub fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Fault> {
    bounded(text)?;
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(text) {
        if found.len() == MAX_CERTIFICATES {
            return Err(Fault::TooMany);
        }
        found.push(certificate.map_err(|_| Fault::NotPem)?);
    }
    if found.is_empty() {
        Err(Fault::NotPem)
    } else {
        Ok(found)
    }
}

/// Reads a PEM text that holds exactly one certificate.
pub fn one_certificate(text: &[u8]) -> Result<CertificateDer<'static>, Fault> {
    let mut found = certificates(text)?.into_iter();
    match (found.next(), found.next()) {
        (Some(certificate), None) => Ok(certificate),
        (None, _) => Err(Fault::NotPem),
        (Some(_), Some(_)) => Err(Fault::TooMany),
    }
}

/// Reads a P-256 key.
pub fn p256_key(text: &[u8]) -> Result<KeyPair, Fault> {
    bounded(text)?;
    // A key in another encoding (SEC 1, PKCS #1) is a key that somebody else put there.
    let der =
        PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| match PrivateKey::from_pem_slice(text) {
            Ok(_) => Fault::WrongKeyType,
            Err(_) => Fault::NotPem,
        })?;
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256).map_err(|_| Fault::WrongKeyType)
}

type PrivateKey = rustls::pki_types::PrivateKeyDer<'static>;

/// What the certificate says about itself.
pub fn facts(certificate: &CertificateDer<'_>) -> Result<Facts, Fault> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| Fault::NotX509)?;
    if !rest.is_empty() {
        return Err(Fault::NotX509);
    }
    let time = |seconds| Timestamp::from_second(seconds).map_err(|_| Fault::NotX509);
    Ok(Facts {
        validity: Validity {
            not_before: time(parsed.validity().not_before.timestamp())?,
            not_after: time(parsed.validity().not_after.timestamp())?,
        },
        serial: parsed.raw_serial_as_string().replace(':', ""),
        is_ca: parsed.is_ca(),
        signs_servers: signs_servers(&parsed),
        subject: parsed.subject().as_raw().to_vec(),
        issuer: parsed.issuer().as_raw().to_vec(),
        public_key: parsed.public_key().subject_public_key.data.to_vec(),
    })
}

/// What Go's `crypto/x509` asks of the extensions of an issuer, be it a root or not, but for the constraints of names:
/// whether those let ours pass is not worth a second implementation.
fn signs_servers(certificate: &X509Certificate<'_>) -> bool {
    certificate
        .extensions()
        .iter()
        .all(|extension| match extension.parsed_extension() {
            ParsedExtension::KeyUsage(usage) => usage.key_cert_sign(),
            ParsedExtension::ExtendedKeyUsage(usage) => usage.any || usage.server_auth,
            ParsedExtension::BasicConstraints(_) => true,
            ParsedExtension::NameConstraints(_) | ParsedExtension::ParseError { .. } => false,
            _ => !extension.critical,
        })
}

/// Writes certificates as PEM, one after the other, always the same bytes for the same certificates.
pub fn encode_certificates<'a>(
    certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> String {
    certificates.into_iter().map(encode_certificate).collect()
}

fn encode_certificate(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 56);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII: every index is a boundary.
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn bounded(text: &[u8]) -> Result<(), Fault> {
    if text.is_empty() {
        Err(Fault::Empty)
    } else if text.len() > MAX_BYTES {
        Err(Fault::TooLarge)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;
    use rcgen::{PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
    use rstest::rstest;

    use super::*;
    use crate::tls::{issue::Ca, lifetime::Lifetimes};

    fn ca() -> Ca {
        Ca::generate(
            &Lifetimes::default(),
            Timestamp::from_second(1_900_000_000).unwrap(),
        )
        .unwrap()
    }

    #[rstest]
    #[case::empty(b"", Fault::Empty)]
    #[case::garbage(b"\xff\x00garbage", Fault::NotPem)]
    #[case::only_a_beginning(b"-----BEGIN CERTIFICATE-----\nAAAA", Fault::NotPem)]
    #[case::not_base64(b"-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", Fault::NotPem)]
    #[case::of_another_kind(b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", Fault::NotPem)]
    fn what_is_no_certificate_is_told(#[case] text: &[u8], #[case] fault: Fault) {
        assert_eq!(certificates(text), Err(fault));
    }

    #[test]
    fn a_mebibyte_is_refused_before_it_is_read() {
        let text = "-----BEGIN CERTIFICATE-----\n".repeat(1024 * 1024 / 28);
        let begun = Instant::now();
        assert_eq!(certificates(text.as_bytes()), Err(Fault::TooLarge));
        assert_eq!(p256_key(text.as_bytes()).err(), Some(Fault::TooLarge));
        assert!(begun.elapsed().as_millis() < 100);
    }

    #[test]
    fn the_worst_text_within_the_bound_takes_no_time() {
        let text = "-----BEGIN CERTIFICATE-----\n".repeat(MAX_BYTES / 28);
        let begun = Instant::now();
        assert!(certificates(text.as_bytes()).is_err());
        assert!(begun.elapsed().as_millis() < 500);
    }

    #[test]
    fn more_certificates_than_allowed_are_refused() {
        let ca = ca();
        let many = ca.certificate_pem().repeat(MAX_CERTIFICATES + 1);
        assert_eq!(certificates(many.as_bytes()), Err(Fault::TooMany));
        assert_eq!(
            one_certificate(ca.certificate_pem().repeat(2).as_bytes()),
            Err(Fault::TooMany)
        );
    }

    #[test]
    fn only_p256_keys_are_taken() {
        for algorithm in [&PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
            let pem = KeyPair::generate_for(algorithm).unwrap().serialize_pem();
            assert_eq!(
                p256_key(pem.as_bytes()).err(),
                Some(Fault::WrongKeyType),
                "{algorithm:?}"
            );
        }
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
        assert_eq!(p256_key(sec1.as_bytes()).err(), Some(Fault::WrongKeyType));
    }

    #[test]
    fn encoding_gives_what_was_read() {
        let ca = ca();
        let text = encode_certificates([ca.certificate(), ca.certificate()]);
        assert_eq!(
            certificates(text.as_bytes()).unwrap(),
            vec![ca.certificate().clone(); 2]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(text in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = certificates(&text);
            let _ = p256_key(&text);
            let _ = facts(&CertificateDer::from(text));
        }
    }
}
