//! The content of the CA's Secret: what its entries mean, and what is wrong with them. Pure.
//!
//! | entry | what it holds |
//! |---|---|
//! | `ca.crt`, `ca.key` | the CA that signs leaves |
//! | `next.crt`, `next.key` | the CA that will; it is being published |
//! | `previous.crt` | CAs that signed leaves which may still be in use |
//!
//! The published caBundle is a function of these entries alone, without a clock, so that replicas cannot disagree.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::{
    issue::Ca,
    lifetime::Validity,
    pem::{self, Fault},
};

/// Entry: certificate of the CA that signs leaves.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// Entry: key of the CA that signs leaves.
pub const CA_KEY: &str = "ca.key";
/// Entry: certificate of the CA that comes next.
pub const NEXT_CERTIFICATE: &str = "next.crt";
/// Entry: key of the CA that comes next.
pub const NEXT_KEY: &str = "next.key";
/// Entry: certificates of CAs that sign no more.
pub const PREVIOUS_CERTIFICATES: &str = "previous.crt";

/// Annotation: any new value asks for a new CA.
pub const ROTATE: &str = "flock.dev/rotate";
/// Annotation, written by Flock: the value of [`ROTATE`] that it acted on.
pub const ROTATED: &str = "flock.dev/rotated";
/// Annotation, written by Flock: since when the next CA is published.
pub const NEXT_PUBLISHED_AT: &str = "flock.dev/next-published-at";
/// Annotation, written by Flock: when no leaf of the previous CAs can be valid any more.
pub const PREVIOUS_UNTIL: &str = "flock.dev/previous-until";

/// How many previous CAs are kept. Each rotation takes at least the settling time, so a replica whose CA was
/// dropped from so many has been out of touch through as many rotations within one life of a leaf.
pub const MAX_PREVIOUS: usize = 8;

/// What Flock looks at in the Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    /// The entries.
    pub data: BTreeMap<String, Vec<u8>>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

/// An entry that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entry {entry} cannot be used: {fault}")]
pub struct Broken {
    /// Which entry.
    pub entry: &'static str,
    /// What is wrong with it.
    pub fault: Fault,
}

/// The certificate of a CA that signs no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// The period in which it is valid.
    pub validity: Validity,
}

/// The Secret, understood.
#[derive(Debug)]
pub struct Authority {
    /// The CA that signs leaves.
    pub current: Ca,
    /// The CA that will.
    pub next: Option<Ca>,
    /// CAs that did, oldest first.
    pub previous: Vec<Retired>,
    /// Entries other than the current CA's that cannot be used; they are removed.
    pub defects: Vec<Broken>,
    /// Since when the next CA is known to be published.
    pub next_published_at: Option<Timestamp>,
    /// When the previous ones may be dropped.
    pub previous_until: Option<Timestamp>,
    /// The rotation that was asked for and has not begun.
    pub requested: Option<String>,
}

impl Authority {
    /// Reads the Secret. Only a defect of the current CA is an error.
    pub fn parse(secret: &SecretContent) -> Result<Self, Broken> {
        let entry = |name| secret.data.get(name).map(Vec::as_slice);
        let current = pair(CA_CERTIFICATE, entry(CA_CERTIFICATE), CA_KEY, entry(CA_KEY))?;
        let mut defects = Vec::new();
        let next = match (entry(NEXT_CERTIFICATE), entry(NEXT_KEY)) {
            (None, None) => None,
            (certificate, key) => pair(NEXT_CERTIFICATE, certificate, NEXT_KEY, key)
                .map_err(|broken| defects.push(broken))
                .ok(),
        };
        let previous = match entry(PREVIOUS_CERTIFICATES).map(retired) {
            None => Vec::new(),
            Some(Ok(previous)) => previous,
            Some(Err(fault)) => {
                defects.push(Broken {
                    entry: PREVIOUS_CERTIFICATES,
                    fault,
                });
                Vec::new()
            }
        };
        let annotation = |name| secret.annotations.get(name);
        let time = |name| annotation(name).and_then(|text| text.parse().ok());
        Ok(Self {
            current,
            next,
            previous,
            defects,
            next_published_at: time(NEXT_PUBLISHED_AT),
            previous_until: time(PREVIOUS_UNTIL),
            requested: annotation(ROTATE)
                .filter(|value| Some(*value) != annotation(ROTATED))
                .cloned(),
        })
    }

    /// The caBundle that has to be published: every CA whose leaves are or will be served.
    pub fn bundle(&self) -> String {
        let mut certificates: Vec<_> = self.previous.iter().map(|retired| &retired.certificate).collect();
        certificates.extend(
            [Some(&self.current), self.next.as_ref()]
                .into_iter()
                .flatten()
                .map(Ca::certificate),
        );
        pem::encode_certificates(certificates)
    }

    /// The CAs that leaves in use may come from: those to go on trusting when the Secret is lost.
    pub fn in_use(&self) -> Vec<Retired> {
        let mut in_use = self.previous.clone();
        in_use.push(Retired {
            certificate: self.current.certificate().clone(),
            validity: *self.current.validity(),
        });
        in_use
    }
}

fn pair(
    certificate_entry: &'static str,
    certificate: Option<&[u8]>,
    key_entry: &'static str,
    key: Option<&[u8]>,
) -> Result<Ca, Broken> {
    Ca::from_pem(certificate.unwrap_or_default(), key.unwrap_or_default()).map_err(|fault| {
        let of_the_key = match fault {
            Fault::WrongKeyType | Fault::KeyMismatch => true,
            Fault::Empty | Fault::TooLarge | Fault::NotPem => {
                certificate.is_some_and(|text| pem::one_certificate(text).is_ok())
            }
            Fault::TooMany | Fault::NotX509 | Fault::NotACa | Fault::NotForServers | Fault::ForeignName => {
                false
            }
        };
        Broken {
            entry: if of_the_key { key_entry } else { certificate_entry },
            fault,
        }
    })
}

fn retired(text: &[u8]) -> Result<Vec<Retired>, Fault> {
    pem::certificates(text)?
        .into_iter()
        .map(|certificate| {
            let facts = pem::facts(&certificate)?;
            if facts.is_ca {
                Ok(Retired {
                    certificate,
                    validity: facts.validity,
                })
            } else {
                Err(Fault::NotACa)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
        ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    };
    use rstest::rstest;

    use super::*;
    use crate::tls::{
        issue::ServerName,
        lifetime::Lifetimes,
        pem::{MAX_BYTES, encode_certificates},
    };

    fn ca() -> Ca {
        Ca::generate(
            &Lifetimes::default(),
            Timestamp::from_second(1_900_000_000).unwrap(),
        )
        .unwrap()
    }

    fn content(entries: &[(&str, Vec<u8>)]) -> SecretContent {
        let data = entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        SecretContent {
            data,
            annotations: BTreeMap::new(),
        }
    }

    fn good() -> SecretContent {
        let ca = ca();
        content(&[
            (CA_CERTIFICATE, ca.certificate_pem().into()),
            (CA_KEY, ca.key_pem().into()),
        ])
    }

    fn p384() -> Vec<u8> {
        rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)
            .unwrap()
            .serialize_pem()
            .into()
    }

    fn leaf() -> Vec<u8> {
        let names = ServerName::of_service("flock", "flock-system");
        let leaf = ca()
            .sign_leaf(&names, &Lifetimes::default(), Timestamp::UNIX_EPOCH)
            .unwrap();
        encode_certificates([&leaf.certified.cert[0]]).into()
    }

    #[rstest]
    #[case::no_certificate(CA_CERTIFICATE, None, CA_CERTIFICATE, Fault::Empty)]
    #[case::an_empty_certificate(CA_CERTIFICATE, Some(vec![]), CA_CERTIFICATE, Fault::Empty)]
    #[case::garbage(CA_CERTIFICATE, Some(b"garbage".to_vec()), CA_CERTIFICATE, Fault::NotPem)]
    #[case::bytes_of_no_text(CA_CERTIFICATE, Some(vec![0xff; 100]), CA_CERTIFICATE, Fault::NotPem)]
    #[case::one_byte_too_many(CA_CERTIFICATE, Some(vec![b'-'; MAX_BYTES + 1]), CA_CERTIFICATE, Fault::TooLarge)]
    #[case::two_certificates(CA_CERTIFICATE, Some(ca().certificate_pem().repeat(2).into()), CA_CERTIFICATE, Fault::TooMany)]
    #[case::a_leaf(CA_CERTIFICATE, Some(leaf()), CA_CERTIFICATE, Fault::NotACa)]
    #[case::no_key(CA_KEY, None, CA_KEY, Fault::Empty)]
    #[case::a_garbage_key(CA_KEY, Some(b"garbage".to_vec()), CA_KEY, Fault::NotPem)]
    #[case::a_huge_key(CA_KEY, Some(vec![b'-'; 1 << 20]), CA_KEY, Fault::TooLarge)]
    #[case::a_key_of_another_kind(CA_KEY, Some(p384()), CA_KEY, Fault::WrongKeyType)]
    #[case::the_key_of_another(CA_KEY, Some(ca().key_pem().into()), CA_KEY, Fault::KeyMismatch)]
    fn a_current_ca_that_cannot_be_used_is_told_with_its_entry(
        #[case] changed: &str,
        #[case] value: Option<Vec<u8>>,
        #[case] entry: &'static str,
        #[case] fault: Fault,
    ) {
        let mut secret = good();
        match value {
            Some(value) => secret.data.insert(changed.to_owned(), value),
            None => secret.data.remove(changed),
        };
        assert_eq!(Authority::parse(&secret).unwrap_err(), Broken { entry, fault });
    }

    /// A CA as somebody else may have made it; in its encoding, some bytes become others.
    fn foreign(change: impl FnOnce(&mut CertificateParams), bytes: Option<(&[u8], &[u8])>) -> SecretContent {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let mut der = params.self_signed(&key).unwrap().der().to_vec();
        if let Some((from, to)) = bytes {
            assert_eq!(from.len(), to.len(), "lengths are encoded too");
            let found: Vec<_> = der
                .windows(from.len())
                .enumerate()
                .filter(|(_, window)| *window == from)
                .map(|(at, _)| at)
                .collect();
            assert_eq!(found.len(), 2, "issuer and subject");
            for at in found {
                der[at..at + to.len()].copy_from_slice(to);
            }
        }
        content(&[
            (CA_CERTIFICATE, encode_certificates([&der.into()]).into()),
            (CA_KEY, key.serialize_pem().into()),
        ])
    }

    fn named(names: &[(DnType, &str)]) -> DistinguishedName {
        let mut distinguished = DistinguishedName::new();
        for (kind, value) in names {
            distinguished.push(kind.clone(), *value);
        }
        distinguished
    }

    /// `DC=example,DC=com`: the second one's OID, which has an end of its own, gets that of the first.
    fn two_of_a_kind() -> SecretContent {
        let domain = |end| DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, end]);
        let oid = |end| [&b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01"[..], &[end]].concat();
        foreign(
            |params| params.distinguished_name = named(&[(domain(25), "example"), (domain(26), "com")]),
            Some((&oid(26), &oid(25))),
        )
    }

    /// `CN=a+CN=bcd` in place of `CN=abcdefghijklm`.
    fn two_in_one() -> SecretContent {
        let plain = [&b"\x30\x14\x06\x03\x55\x04\x03\x0c\x0d"[..], b"abcdefghijklm"].concat();
        let two = b"\x30\x08\x06\x03\x55\x04\x03\x0c\x01a\x30\x0a\x06\x03\x55\x04\x03\x0c\x03bcd";
        foreign(
            |params| params.distinguished_name = named(&[(DnType::CommonName, "abcdefghijklm")]),
            Some((&plain, two)),
        )
    }

    fn with_usage(usage: KeyUsagePurpose) -> SecretContent {
        foreign(|params| params.key_usages = vec![usage], None)
    }

    fn with_extended_usage(usage: ExtendedKeyUsagePurpose) -> SecretContent {
        foreign(|params| params.extended_key_usages = vec![usage], None)
    }

    fn constrained() -> SecretContent {
        let constraints = NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("example.com".into())],
            excluded_subtrees: Vec::new(),
        };
        foreign(|params| params.name_constraints = Some(constraints), None)
    }

    fn with_extension(critical: bool) -> SecretContent {
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(critical);
        foreign(|params| params.custom_extensions = vec![extension], None)
    }

    #[rstest]
    #[case::two_names_of_a_kind(two_of_a_kind(), Some(Fault::ForeignName))]
    #[case::two_names_in_one(two_in_one(), Some(Fault::ForeignName))]
    #[case::a_key_for_other_things(with_usage(KeyUsagePurpose::CrlSign), Some(Fault::NotForServers))]
    #[case::for_clients(
        with_extended_usage(ExtendedKeyUsagePurpose::ClientAuth),
        Some(Fault::NotForServers)
    )]
    #[case::for_some_names(constrained(), Some(Fault::NotForServers))]
    #[case::with_a_condition_that_nobody_knows(with_extension(true), Some(Fault::NotForServers))]
    #[case::with_a_remark_that_nobody_knows(with_extension(false), None)]
    #[case::without_usages(foreign(|_| {}, None), None)]
    #[case::for_servers(with_extended_usage(ExtendedKeyUsagePurpose::ServerAuth), None)]
    #[case::to_sign(with_usage(KeyUsagePurpose::KeyCertSign), None)]
    fn a_ca_of_somebody_else_is_taken_if_leaves_of_it_can_be_valid(
        #[case] secret: SecretContent,
        #[case] fault: Option<Fault>,
    ) {
        let wanted = fault.map(|fault| Broken {
            entry: CA_CERTIFICATE,
            fault,
        });
        let parsed = Authority::parse(&secret);
        assert_eq!(parsed.as_ref().err(), wanted.as_ref());
        if let Ok(authority) = parsed {
            let names = ServerName::of_service("flock", "flock-system");
            let leaf = authority
                .current
                .sign_leaf(&names, &Lifetimes::default(), Timestamp::UNIX_EPOCH)
                .unwrap();
            let issuer = pem::facts(&leaf.certified.cert[0]).unwrap().issuer;
            assert_eq!(
                issuer,
                pem::facts(authority.current.certificate()).unwrap().subject
            );
        }
    }

    #[test]
    fn a_defect_elsewhere_leaves_the_current_ca_in_use() {
        let mut secret = good();
        secret
            .data
            .insert(NEXT_CERTIFICATE.into(), ca().certificate_pem().into());
        secret
            .data
            .insert(PREVIOUS_CERTIFICATES.into(), b"garbage".to_vec());
        let authority = Authority::parse(&secret).unwrap();
        assert!(authority.next.is_none() && authority.previous.is_empty());
        assert_eq!(
            authority.defects,
            [
                Broken {
                    entry: NEXT_KEY,
                    fault: Fault::Empty
                },
                Broken {
                    entry: PREVIOUS_CERTIFICATES,
                    fault: Fault::NotPem
                },
            ]
        );
    }

    #[test]
    fn the_bundle_holds_previous_current_and_next_in_that_order() {
        let (current, next, first, second) = (ca(), ca(), ca(), ca());
        let previous = first.certificate_pem() + &second.certificate_pem();
        let secret = content(&[
            (CA_CERTIFICATE, current.certificate_pem().into()),
            (CA_KEY, current.key_pem().into()),
            (NEXT_CERTIFICATE, next.certificate_pem().into()),
            (NEXT_KEY, next.key_pem().into()),
            (PREVIOUS_CERTIFICATES, previous.clone().into()),
        ]);
        let authority = Authority::parse(&secret).unwrap();
        assert_eq!(
            authority.bundle(),
            previous + &current.certificate_pem() + &next.certificate_pem()
        );
        assert_eq!(authority.defects, []);
    }

    #[rstest]
    #[case::none(None, None, None)]
    #[case::new(Some("a"), None, Some("a"))]
    #[case::done(Some("a"), Some("a"), None)]
    #[case::another(Some("b"), Some("a"), Some("b"))]
    #[case::taken_back(None, Some("a"), None)]
    fn a_rotation_is_asked_for_by_a_new_value(
        #[case] rotate: Option<&str>,
        #[case] rotated: Option<&str>,
        #[case] requested: Option<&str>,
    ) {
        let mut secret = good();
        for (name, value) in [(ROTATE, rotate), (ROTATED, rotated)] {
            secret
                .annotations
                .extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        assert_eq!(Authority::parse(&secret).unwrap().requested.as_deref(), requested);
    }
}
