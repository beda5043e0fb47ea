//! Makes CAs and signs leaves: ECDSA P-256 only (an RSA signature costs fifteen times as much in every handshake).

use std::{fmt, net::IpAddr, time::Duration};

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};

use super::{
    lifetime::{Lifetimes, Validity},
    pem,
};

/// A certificate or a key could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The library that makes certificates refused.
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    /// rustls refused the signed key.
    #[error("failed to load the certificate just made")]
    Load(#[from] rustls::Error),
    /// The certificate cannot be read back.
    #[error("failed to read the certificate just made: {0}")]
    Read(pem::Fault),
}

/// A name that a leaf is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerName {
    /// A DNS name.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl ServerName {
    /// Reads an address (an IPv6 one with or without brackets, as in a URL) or else a DNS name.
    pub fn parse(text: &str) -> Self {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        bare.parse().map_or_else(|_| Self::Dns(text.to_owned()), Self::Ip)
    }

    /// The names under which API servers and people reach a Service.
    pub fn of_service(service: &str, namespace: &str) -> Vec<Self> {
        [".svc", "", ".svc.cluster.local"]
            .into_iter()
            .map(|suffix| Self::Dns(format!("{service}.{namespace}{suffix}")))
            .collect()
    }
}

/// A certificate authority with its key.
pub struct Ca {
    certificate: CertificateDer<'static>,
    validity: Validity,
    key: KeyPair,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl Ca {
    /// Makes a CA with a new key.
    pub fn generate(lifetimes: &Lifetimes, now: Timestamp) -> Result<Self, IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        // Verifiers look an issuer up by its name: each CA has its own, so that two in one bundle are told apart.
        let id = hexadecimal(&params.key_identifier(&key)[..]);
        params.distinguished_name = common_name(&format!("flock-ca {id}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let validity = Validity::of_ca(lifetimes, now);
        set_validity(&mut params, &validity);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            certificate,
            validity,
            key,
        })
    }

    /// Joins a certificate and its key, both as read from PEM; a `Fault` says what is wrong with them.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, pem::Fault> {
        let certificate = pem::one_certificate(certificate)?;
        let facts = pem::facts(&certificate)?;
        if !facts.is_ca {
            return Err(pem::Fault::NotACa);
        }
        let key = pem::p256_key(key)?;
        if facts.public_key != key.public_key_raw() {
            return Err(pem::Fault::KeyMismatch);
        }
        // What we made is right by itself; this is for what somebody else put in its place.
        if !facts.signs_servers {
            return Err(pem::Fault::NotForServers);
        }
        if !names_itself(&certificate, &facts.subject, &key) {
            return Err(pem::Fault::ForeignName);
        }
        Ok(Self {
            certificate,
            validity: facts.validity,
            key,
        })
    }

    /// The certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> String {
        pem::encode_certificates([&self.certificate])
    }

    /// The key as PEM (PKCS #8).
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The period in which it is valid.
    pub fn validity(&self) -> &Validity {
        &self.validity
    }

    /// Signs a leaf with a new key for these names.
    pub fn sign_leaf(
        &self,
        names: &[ServerName],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Leaf, IssueError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = names
            .iter()
            .map(|name| {
                Ok(match name {
                    ServerName::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
                    ServerName::Ip(address) => SanType::IpAddress(*address),
                })
            })
            .collect::<Result<_, rcgen::Error>>()?;
        params.distinguished_name = common_name("flock");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let mut serial = params.key_identifier(&key);
        serial.truncate(16);
        params.serial_number = Some(SerialNumber::from(serial));
        let validity = Validity::of_leaf(lifetimes, &self.validity, now);
        set_validity(&mut params, &validity);
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &self.key)?;
        let certificate = params.signed_by(&key, &issuer)?.der().clone();
        let facts = pem::facts(&certificate).map_err(IssueError::Read)?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing_key = rustls::crypto::ring::sign::any_ecdsa_type(&der)?;
        Ok(Leaf {
            certified: CertifiedKey::new(vec![certificate], signing_key).into(),
            validity,
            serial: facts.serial,
            issuer: self.certificate.clone(),
            ca_not_after: self.validity.not_after,
        })
    }
}

/// A serving certificate with its key, ready for handshakes. It is never written anywhere.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// What handshakes use.
    pub certified: std::sync::Arc<CertifiedKey>,
    /// The period in which it is valid.
    pub validity: Validity,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// The CA that signed it.
    pub issuer: CertificateDer<'static>,
    /// When that CA expires.
    pub ca_not_after: Timestamp,
}

/// Whether what the CA signs has the CA's subject as its issuer, by which verifiers find it. The library knows names with
/// one value of each kind (not `DC=example,DC=com`), and shows how it writes one only in what it signs.
fn names_itself(certificate: &CertificateDer<'_>, subject: &[u8], key: &KeyPair) -> bool {
    Issuer::from_ca_cert_der(certificate, key)
        .and_then(|issuer| CertificateParams::default().signed_by(key, &issuer))
        .is_ok_and(|signed| pem::facts(signed.der()).is_ok_and(|facts| facts.issuer == subject))
}

/// The first bytes of a key's identifier.
fn hexadecimal(identifier: &[u8]) -> String {
    identifier
        .iter()
        .take(8)
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_validity(params: &mut CertificateParams, validity: &Validity) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // A certificate of before 1970 is as expired as one of 1970.
    let at = |time: Timestamp| epoch + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
    params.not_before = at(validity.not_before);
    params.not_after = at(validity.not_after);
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_900_000_000).unwrap()
    }

    #[rstest]
    #[case::dns("host.example", ServerName::Dns("host.example".into()))]
    #[case::v4("10.0.0.1", ServerName::Ip("10.0.0.1".parse().unwrap()))]
    #[case::v6_of_a_url("[fd00::1]", ServerName::Ip("fd00::1".parse().unwrap()))]
    fn a_name_is_an_address_or_a_dns_name(#[case] text: &str, #[case] name: ServerName) {
        assert_eq!(ServerName::parse(text), name);
    }

    #[test]
    fn a_ca_is_the_same_after_a_round_trip_through_pem() {
        let ca = Ca::generate(&Lifetimes::default(), now()).unwrap();
        let read = Ca::from_pem(ca.certificate_pem().as_bytes(), ca.key_pem().as_bytes()).unwrap();
        assert_eq!(read.certificate(), ca.certificate());
        assert_eq!(read.validity(), ca.validity());
        assert_eq!(read.key_pem(), ca.key_pem());
    }

    #[test]
    fn a_leaf_serves_its_names_only_and_is_no_ca() {
        let ca = Ca::generate(&Lifetimes::default(), now()).unwrap();
        let mut names = ServerName::of_service("flock", "flock-system");
        names.push(ServerName::parse("127.0.0.1"));
        let leaf = ca.sign_leaf(&names, &Lifetimes::default(), now()).unwrap();
        let der = leaf.certified.end_entity_cert().unwrap();
        assert!(!pem::facts(der).unwrap().is_ca);
        let (_, parsed) = x509_parser::parse_x509_certificate(der).unwrap();
        let alternative = parsed.subject_alternative_name().unwrap().unwrap();
        let listed: Vec<_> = alternative
            .value
            .general_names
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(listed.len(), 4, "{listed:?}");
        for name in [
            "flock.flock-system.svc)",
            "flock.flock-system)",
            "flock.flock-system.svc.cluster.local)",
        ] {
            assert!(
                listed.iter().any(|listed| listed.ends_with(name)),
                "{name} in {listed:?}"
            );
        }
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        assert!(parsed.key_usage().unwrap().unwrap().value.digital_signature());
        assert!(!parsed.key_usage().unwrap().unwrap().value.key_cert_sign());
    }

    #[test]
    fn two_cas_have_different_names() {
        let subject = |ca: &Ca| {
            let (_, parsed) = x509_parser::parse_x509_certificate(ca.certificate()).unwrap();
            parsed.subject().to_string()
        };
        let first = Ca::generate(&Lifetimes::default(), now()).unwrap();
        let second = Ca::generate(&Lifetimes::default(), now()).unwrap();
        assert_ne!(subject(&first), subject(&second));
    }
}
