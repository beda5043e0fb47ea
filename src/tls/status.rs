//! What others may know about the serving certificate.

use jiff::Timestamp;

/// The certificate that is served now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafStatus {
    /// When it expires.
    pub not_after: Timestamp,
    /// When the CA that signed it expires; `None` where that is another's business.
    pub ca_not_after: Option<Timestamp>,
    /// Its serial number, in hexadecimal.
    pub serial: String,
    /// Whether every webhook configuration that exists trusts it, as far as Flock sees to that.
    pub trusted: bool,
}
