//! Which callers are let in: the check of their certificates, whose CAs may change while it serves.
//!
//! No session is ever resumed, so every connection passes here once; what stands is not cut when a CA is dropped.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use tracing::warn;

use super::{
    issue::IssueError,
    lifetime::Validity,
    names::{has_name, names_of},
    pem::{self, Fault},
    resolver::crypto_provider,
    signatures::Signatures,
};
use crate::telemetry::Sparse;

/// So much of a stranger's name is logged.
const LOGGED_CHARACTERS: usize = 200;

/// Lets in who shows a certificate of the CAs of the moment, with one of the names that are allowed, and this process
/// itself, which has to see that its port answers.
#[derive(Debug)]
pub struct ClientVerifier {
    trust: ArcSwap<Trust>,
    /// Common names and DNS names; none: any.
    names: Vec<String>,
    own: Arc<CertifiedKey>,
    signatures: Signatures,
    /// Anybody who reaches the port can cause them.
    refusals: Sparse,
}

/// The CAs of the file. Each has a verifier of its own, as rustls does not look at the validity of what it is told to trust,
/// while a CA may end at any handshake.
#[derive(Debug)]
struct Trust(Vec<Anchor>);

#[derive(Debug)]
struct Anchor {
    validity: Validity,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl Trust {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let clock = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let clock = Timestamp::from_second(clock).unwrap_or(Timestamp::MAX);
        let mut refusal = CertificateError::UnknownIssuer.into();
        for anchor in &self.0 {
            let verified = anchor
                .verifier
                .verify_client_cert(certificate, intermediates, now);
            match verified {
                Ok(verified) if !anchor.validity.has_expired(clock) => return Ok(verified),
                Ok(_) => refusal = CA_HAS_ENDED.into(),
                // It is of another CA, which may have the same name, such as another cluster's: with "error decrypting
                // message", which is what its caller would be told, nobody finds that.
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                )) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// The caller is told "expired certificate". Of its own certificate's end rustls tells with `ExpiredContext`.
const CA_HAS_ENDED: CertificateError = CertificateError::Expired;

impl ClientVerifier {
    /// The CAs of a PEM text, and the names of theirs that may call; all of them, where there are none.
    pub fn new(cas: &[u8], names: Vec<String>) -> Result<Self, ClientCaFault> {
        Ok(Self {
            trust: ArcSwap::from_pointee(trust(cas)?),
            names,
            own: own_certificate().map_err(ClientCaFault::Own)?.into(),
            signatures: Signatures::default(),
            refusals: Sparse::default(),
        })
    }

    /// From the next handshake on these CAs (PEM) count, and no others.
    pub fn trust(&self, cas: &[u8]) -> Result<(), ClientCaFault> {
        self.trust.store(Arc::new(trust(cas)?));
        Ok(())
    }

    /// The certificate by which this process is let in.
    pub fn own(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.own)
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.trust.load().verify(certificate, intermediates, now)?;
        if self.names.is_empty() || has_name(certificate, &self.names) {
            Ok(verified)
        } else {
            // Its caller is told "access denied".
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn log(&self, certificate: &CertificateDer<'_>, error: &rustls::Error) {
        let Some(left_out) = self.refusals.pass(Instant::now()) else {
            return;
        };
        let why = match error {
            rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                format!("none of its names may call, only {}", self.names.join(", "))
            }
            rustls::Error::InvalidCertificate(error) if *error == CA_HAS_ENDED => {
                "its CA has ended; callers need certificates of one that has not, and --client-ca that CA"
                    .into()
            }
            error => error.to_string(),
        };
        // All of it is what a stranger wrote: escaped, and not too much.
        let (subject, issuer, names) = x509_parser::parse_x509_certificate(certificate).map_or_else(
            |_| <_>::default(),
            |(_, parsed)| {
                let text = [
                    parsed.subject().to_string(),
                    parsed.issuer().to_string(),
                    names_of(&parsed).join(", "),
                ];
                let [subject, issuer, names] =
                    text.map(|text| text.chars().take(LOGGED_CHARACTERS).collect::<String>());
                (subject, issuer, names)
            },
        );
        warn!(
            subject,
            issuer, names, left_out, "refused a caller's certificate: {why}"
        );
    }
}

/// Why client CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaFault {
    /// They cannot be read, or are none.
    #[error(transparent)]
    Content(#[from] Fault),
    /// They make no verifier.
    #[error("they cannot be used to check certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// The process could not make a certificate for itself.
    #[error("this process could not make a certificate for its self-check")]
    Own(#[source] IssueError),
}

fn trust(cas: &[u8]) -> Result<Trust, ClientCaFault> {
    let anchors = pem::certificates(cas)?.into_iter().map(anchor);
    anchors.collect::<Result<_, _>>().map(Trust)
}

fn anchor(ca: CertificateDer<'static>) -> Result<Anchor, ClientCaFault> {
    let facts = pem::facts(&ca)?;
    // Somebody's own certificate in place of its CA's would let nobody in but that somebody's children.
    if !facts.is_ca {
        return Err(Fault::NotACa.into());
    }
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|_| Fault::NotX509)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), crypto_provider())
        .build()
        .map_err(ClientCaFault::Verifier)?;
    Ok(Anchor {
        validity: facts.validity,
        verifier,
    })
}

/// A certificate that nobody signed and nobody else has: it is known by its bytes.
fn own_certificate() -> Result<CertifiedKey, IssueError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate =
        CertificateParams::new(vec!["self-check.flock.invalid".to_owned()])?.self_signed(&key)?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing_key = rustls::crypto::ring::sign::any_ecdsa_type(&der)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signing_key))
}

impl ClientCertVerifier for ClientVerifier {
    /// None: a caller without a hint shows what it has, and is told what is wrong with it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // That it has the key as well, the handshake's signature proves, as with every other caller.
        if self.own.cert.first() == Some(certificate) {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = self.verify(certificate, intermediates, now);
        if let Err(error) = &verified {
            self.log(certificate, error);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.tls12(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.tls13(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa, Issuer};
    use rstest::rstest;

    use super::*;

    fn ca_params() -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    fn ca() -> String {
        let key = KeyPair::generate().unwrap();
        ca_params().self_signed(&key).unwrap().pem()
    }

    /// A certificate that is no CA.
    fn leaf() -> String {
        let key = KeyPair::generate().unwrap();
        CertificateParams::default().self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_ca_of_the_same_name_is_an_unknown_one() {
        let verifier = ClientVerifier::new(ca().as_bytes(), Vec::new()).unwrap();
        let another = Issuer::new(ca_params(), KeyPair::generate().unwrap());
        let certificate = CertificateParams::default().signed_by(&KeyPair::generate().unwrap(), &another);
        let result = verifier.verify_client_cert(certificate.unwrap().der(), &[], UnixTime::now());
        assert_eq!(result.unwrap_err(), CertificateError::UnknownIssuer.into());
    }

    /// A CA that ends with that year, and a certificate of it that does not end.
    fn ending_with(year: i32) -> (String, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = ca_params();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, format!("until {year}"));
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let pem = params.self_signed(&key).unwrap().pem();
        let certificate = CertificateParams::default()
            .signed_by(&KeyPair::generate().unwrap(), &Issuer::new(params, key))
            .unwrap();
        (pem, certificate.der().clone())
    }

    #[test]
    fn a_ca_lets_callers_in_until_it_ends() {
        let at = |year| {
            let seconds = rcgen::date_time_ymd(year, 6, 1).unix_timestamp();
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds.unsigned_abs()))
        };
        let ((short, of_short), (long, of_long)) = (ending_with(2030), ending_with(2040));
        let (_, of_none) = ending_with(2040);
        for cas in [short.clone() + &long, long + &short] {
            let verifier = ClientVerifier::new(cas.as_bytes(), Vec::new()).unwrap();
            let verify =
                |certificate, year| verifier.verify_client_cert(certificate, &[], at(year)).map(drop);
            assert_eq!(verify(&of_short, 2030), Ok(()));
            assert_eq!(verify(&of_short, 2031), Err(CA_HAS_ENDED.into()));
            assert_eq!(verify(&of_long, 2031), Ok(()));
            assert_eq!(
                verify(&of_none, 2031),
                Err(CertificateError::UnknownIssuer.into())
            );
        }
    }

    #[rstest]
    #[case::nothing(String::new(), "it is missing or empty")]
    #[case::garbage("garbage".to_owned(), "it is not PEM")]
    #[case::no_ca(leaf(), "is no CA")]
    #[case::one_of_two(ca() + &leaf(), "is no CA")]
    fn what_cannot_be_trusted_is_told_and_changes_nothing(#[case] text: String, #[case] says: &str) {
        let fault = ClientVerifier::new(text.as_bytes(), Vec::new()).unwrap_err();
        assert!(fault.to_string().contains(says), "{fault}");
        let verifier = ClientVerifier::new(ca().as_bytes(), Vec::new()).unwrap();
        let before = verifier.trust.load_full();
        assert!(verifier.trust(text.as_bytes()).is_err());
        assert!(Arc::ptr_eq(&before, &verifier.trust.load_full()));
        verifier.trust((ca() + &ca()).as_bytes()).unwrap();
        assert!(!Arc::ptr_eq(&before, &verifier.trust.load_full()));
    }
}
