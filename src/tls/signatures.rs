//! The proof that a peer has the key of the certificate that it shows: as the crypto provider checks it, whatever else
//! a verifier asks of the certificate.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::CertificateDer,
};

use super::resolver::crypto_provider;

/// Checks the signatures of handshakes.
#[derive(Debug)]
pub struct Signatures(Arc<CryptoProvider>);

impl Default for Signatures {
    fn default() -> Self {
        Self(crypto_provider())
    }
}

impl Signatures {
    /// Of TLS 1.2.
    pub fn tls12(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    /// Of TLS 1.3.
    pub fn tls13(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    /// What it can check.
    pub fn schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
