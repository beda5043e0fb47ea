//! What certificates call their holders. Pure.

use rustls::pki_types::CertificateDer;
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

/// Whether it has one of the names that are allowed.
pub(super) fn has_name(certificate: &CertificateDer<'_>, allowed: &[String]) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return false;
    };
    names_of(&parsed)
        .iter()
        .any(|name| allowed.iter().any(|allowed| allowed == name))
}

/// What a certificate calls its holder: the common name, if it has just one, and DNS names. All are compared as they are
/// written: a certificate for `*.example.com` has that very name and no other.
pub(super) fn names_of<'a>(certificate: &'a X509Certificate<'_>) -> Vec<&'a str> {
    let mut common = certificate.subject().iter_common_name();
    let common = match (common.next(), common.next()) {
        (Some(only), None) => only.as_str().ok(),
        _ => None,
    };
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let dns = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        });
    common.into_iter().chain(dns).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rstest::rstest;

    use super::*;

    fn certificate(common: &[&str], dns: &[&str]) -> CertificateDer<'static> {
        let dns: Vec<_> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in common {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .clone()
    }

    #[rstest]
    #[case::common_name(&["api"], &[], true)]
    #[case::dns_name(&["other"], &["x.example.com", "api"], true)]
    #[case::neither(&["other"], &["x.example.com"], false)]
    #[case::none(&[], &[], false)]
    #[case::part_of_it(&["api-server"], &["api.example.com"], false)]
    #[case::a_wildcard(&["*"], &["*.example.com"], false)]
    #[case::in_capitals(&["API"], &[], false)]
    fn a_name_is_the_common_name_or_a_dns_name_as_it_is_written(
        #[case] common: &[&str],
        #[case] dns: &[&str],
        #[case] allowed: bool,
    ) {
        let names = ["api".to_owned(), "www.example.com".to_owned()];
        assert_eq!(has_name(&certificate(common, dns), &names), allowed);
    }

    #[test]
    fn what_is_no_certificate_has_no_name() {
        assert!(!has_name(&CertificateDer::from(vec![0x30, 0]), &[String::new()]));
    }
}
