//! Callers that have to show a certificate.

use std::sync::Arc;

use flock::{
    serve::{Readiness, ServeOptions, dial, self_check},
    tls::{ClientAuth, ClientVerifier, crypto_provider, issue::Ca},
};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rstest::rstest;
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::PrivatePkcs8KeyDer,
    version::{TLS12, TLS13},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::Peer,
    setup::{Server, eventually, new_ca, server_with},
};

/// The name of API servers' certificates.
const NAME: &str = "api-server";

fn any_of(ca: &Ca) -> Arc<ClientVerifier> {
    Arc::new(ClientVerifier::new(ca.certificate_pem().as_bytes(), Vec::new()).unwrap())
}

fn named_of(ca: &Ca) -> Arc<ClientVerifier> {
    let names = vec!["another".to_owned(), NAME.to_owned()];
    Arc::new(ClientVerifier::new(ca.certificate_pem().as_bytes(), names).unwrap())
}

pub async fn requiring(verifier: &Arc<ClientVerifier>) -> Server {
    server_with(
        ServeOptions::default(),
        ClientAuth::Required(Arc::clone(verifier)),
    )
    .await
}

/// A client certificate, which Flock itself never makes.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Calls once on a new connection; `Err` has what the server said to end it.
async fn call(
    server: &Server,
    version: &'static SupportedProtocolVersion,
    certificate: Option<(&Ca, &CertificateParams)>,
) -> Result<u16, String> {
    let mut roots = RootCertStore::empty();
    roots.add(server.ca.certificate().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some((ca, params)) => {
            let key = KeyPair::generate().unwrap();
            let ca_key = KeyPair::from_pem(&ca.key_pem()).unwrap();
            let issuer = Issuer::from_ca_cert_der(ca.certificate(), ca_key).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            let key = PrivatePkcs8KeyDer::from(key.serialize_der());
            config
                .with_client_auth_cert(vec![certificate.der().clone()], key.into())
                .unwrap()
        }
    };
    let answer = async {
        let mut peer = Peer::connect(server.address, &config.into()).await?;
        peer.post("/echo", b"{}").await
    };
    answer
        .await
        .map(|answer| answer.status)
        .map_err(|error| error.to_string())
}

pub async fn is_let_in(server: &Server, ca: &Ca) -> bool {
    call(server, &TLS13, Some((ca, &params(NAME)))).await == Ok(200)
}

fn refused(server: &Server) -> u64 {
    server.metric("server_connections_dropped_total{server=\"webhook\",reason=\"client_certificate\"} ")
}

fn nothing(_: &mut CertificateParams) {}

#[rstest]
#[case::right(nothing)]
#[case::with_the_name_as_a_dns_name(|params: &mut CertificateParams| {
    params.distinguished_name.push(DnType::CommonName, "someone");
    params.subject_alt_names = vec![rcgen::SanType::DnsName(NAME.try_into().unwrap())];
})]
#[case::for_servers_too(|params: &mut CertificateParams| {
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
})]
#[case::for_no_stated_purpose(|params: &mut CertificateParams| params.extended_key_usages.clear())]
#[tokio::test]
async fn a_caller_with_the_right_certificate_is_let_in(#[case] change: fn(&mut CertificateParams)) {
    let clients = new_ca();
    let server = requiring(&named_of(&clients)).await;
    let mut params = params(NAME);
    change(&mut params);
    for version in [&TLS12, &TLS13] {
        assert_eq!(
            call(&server, version, Some((&clients, &params))).await,
            Ok(200),
            "{version:?}"
        );
    }
    assert_eq!(refused(&server), 0);
}

#[rstest]
#[case::another_name(|params: &mut CertificateParams| {
    params.distinguished_name.push(DnType::CommonName, "system:node:node-0");
}, "AccessDenied")]
#[case::expired(|params: &mut CertificateParams| {
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
}, "CertificateExpired")]
#[case::not_valid_yet(|params: &mut CertificateParams| {
    params.not_before = rcgen::date_time_ymd(2150, 1, 1);
}, "CertificateExpired")]
#[case::a_servers(|params: &mut CertificateParams| {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
}, "UnsupportedCertificate")]
#[tokio::test]
async fn a_caller_with_a_wrong_certificate_is_told_what_is_wrong(
    #[case] change: fn(&mut CertificateParams),
    #[case] alert: &str,
) {
    let clients = new_ca();
    let server = requiring(&named_of(&clients)).await;
    let mut params = params(NAME);
    change(&mut params);
    for version in [&TLS12, &TLS13] {
        let answer = call(&server, version, Some((&clients, &params))).await;
        let error = answer.unwrap_err();
        assert!(error.contains(alert), "{version:?}: {error}");
    }
    eventually(|| refused(&server) == 2).await;
    assert!(is_let_in(&server, &clients).await, "others are let in");
}

#[rstest]
#[case::of_nobody(false, "CertificateRequired")]
#[case::of_another_ca(true, "UnknownCA")]
#[tokio::test]
async fn a_caller_without_a_certificate_of_the_cas_is_told_so(#[case] of_another: bool, #[case] alert: &str) {
    let (clients, other) = (new_ca(), new_ca());
    let server = requiring(&any_of(&clients)).await;
    let params = params(NAME);
    let certificate = of_another.then_some((&other, &params));
    for version in [&TLS12, &TLS13] {
        let error = call(&server, version, certificate).await.unwrap_err();
        assert!(error.contains(alert), "{version:?}: {error}");
    }
    eventually(|| refused(&server) == 2).await;
    assert!(is_let_in(&server, &clients).await);
}

/// A reset may overtake the alert that says why.
#[tokio::test]
async fn a_refused_caller_is_not_reset_while_it_sends() {
    let server = requiring(&any_of(&new_ca())).await;
    let mut socket = server.peer().await.into_socket();
    socket.write_all(&vec![b'x'; 100 * 1024]).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut alert = Vec::new();
    socket.read_to_end(&mut alert).await.unwrap();
    assert!(!alert.is_empty());
}

#[tokio::test]
async fn the_self_check_is_let_in_and_knows_who_is_not() {
    let verifier = named_of(&new_ca());
    let (server, others) = (requiring(&verifier).await, named_of(&new_ca()).own());
    let own = verifier.own();
    let readiness = Readiness::default();
    tokio::spawn(self_check(
        server.address,
        Arc::clone(&server.resolver),
        Some(Arc::clone(&own)),
        readiness.condition("port"),
        server.shutdown.clone(),
    ));
    eventually(|| readiness.is_ready()).await;
    dial(server.address, &server.resolver, Some(&own)).await.unwrap();
    assert_eq!(refused(&server), 0);
    let error = dial(server.address, &server.resolver, None)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("CertificateRequired"), "{error}");
    let error = dial(server.address, &server.resolver, Some(&others)).await;
    assert!(
        error.unwrap_err().to_string().contains("alert"),
        "another process's"
    );
    eventually(|| refused(&server) == 2).await;
}
