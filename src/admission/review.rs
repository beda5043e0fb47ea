//! The AdmissionReview: what is read of a request, and the response as bytes.
//! Source of the format: `k8s.io/api/admission/v1/types.go`; of what the API server accepts back:
//! `k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use super::json::{self, Object, Text};
use super::patch::Op;
use crate::identity::shortened;

/// Why a body is no review. The answer is HTTP 400: no uid is known to answer to.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// Not JSON, or a field of the wrong type.
    #[error("the body is not an AdmissionReview of admission.k8s.io/v1: {0}")]
    NotAReview(#[from] serde_json::Error),
    /// A version that nobody registered this webhook for.
    #[error("the body is a {kind} of {version}; this webhook reads AdmissionReview of admission.k8s.io/v1")]
    OtherKind {
        /// Its kind.
        kind: String,
        /// Its apiVersion.
        version: String,
    },
    /// No request in it.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
    /// A name or uid in it that nothing has.
    #[error("the request's {0} is longer than {LONGEST_NAME} bytes, which Flock takes for no object's")]
    LongName(&'static str),
}

/// The longest name that a request may have of anything: an object's has at most 253 characters, a uid 36.
const LONGEST_NAME: usize = 253;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReview<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    request: Option<Object<Request<'a>>>,
}

/// The request of a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// What the response must repeat.
    #[serde(borrow, default)]
    pub uid: Text<'a>,
    /// The resource, as this webhook was registered for it.
    #[serde(borrow, default)]
    pub resource: Resource<'a>,
    /// The kind, as this webhook was registered for it.
    #[serde(borrow, default)]
    pub kind: Kind<'a>,
    /// `status`, `ephemeralcontainers` and the like; empty for the object itself.
    #[serde(borrow, default)]
    pub sub_resource: Text<'a>,
    /// `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    #[serde(borrow, default)]
    pub operation: Text<'a>,
    /// The one source of the namespace: the object's own field may be empty or lie.
    #[serde(borrow, default)]
    pub namespace: Text<'a>,
    /// The object's name, if it is known.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// The object, unread.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object before an update, unread.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
}

/// A group-version-resource.
#[derive(Debug, Default, Deserialize)]
pub struct Resource<'a> {
    /// The group, empty for the core.
    #[serde(borrow, default)]
    pub group: Text<'a>,
    /// The plural name.
    #[serde(borrow, default)]
    pub resource: Text<'a>,
}

/// A group-version-kind.
#[derive(Debug, Default, Deserialize)]
pub struct Kind<'a> {
    /// The kind.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
}

/// Reads a body.
pub fn parse(body: &[u8]) -> Result<Request<'_>, ReviewError> {
    json::check_texts(body)?;
    let Object(review) = serde_json::from_slice::<Object<RawReview<'_>>>(body)?;
    if &*review.kind != "AdmissionReview" || &*review.api_version != "admission.k8s.io/v1" {
        return Err(ReviewError::OtherKind {
            kind: review.kind.to_string(),
            version: review.api_version.to_string(),
        });
    }
    let request = review
        .request
        .map(|Object(request)| request)
        .filter(|request| !request.uid.is_empty())
        .ok_or(ReviewError::NoRequest)?;
    // They are logged, and the uid is sent back.
    for (what, name) in [
        ("uid", &request.uid),
        ("namespace", &request.namespace),
        ("name", &request.name),
        ("kind", &request.kind.kind),
    ] {
        if name.len() > LONGEST_NAME {
            return Err(ReviewError::LongName(what));
        }
    }
    Ok(request)
}

/// What is answered.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Allowed, with these operations (none: as it is).
    Allowed(Vec<Op>),
    /// Refused: HTTP status code and sentence for the user.
    Refused {
        /// The status code that the client of the API server sees.
        code: u16,
        /// The status reason, such as `Conflict`.
        reason: &'static str,
        /// The sentence.
        message: String,
    },
}

/// The longest sentence of a refusal, in characters. All that Flock says itself is shorter, but it repeats what others
/// wrote.
const LONGEST_MESSAGE: usize = 4_096;

impl Answer {
    /// A refusal with this status code, status reason and sentence.
    pub fn refused(code: u16, reason: &'static str, message: &str) -> Self {
        Self::Refused {
            code,
            reason,
            message: shortened(message, LONGEST_MESSAGE),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RenderedReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    reason: &'a str,
    message: &'a str,
}

/// The API server cuts a longer warning (`k8s.io/apiserver/pkg/endpoints/filters/warning.go`).
const WARNING_LENGTH: usize = 256;

/// A warning of at most as many characters as are passed on, on one line.
fn on_one_line(warning: &str) -> String {
    shortened(warning, WARNING_LENGTH).replace(char::is_control, " ")
}

/// Writes the response to a request.
pub fn render(uid: &str, answer: &Answer, warnings: &[String]) -> Vec<u8> {
    let warnings = warnings.iter().map(|warning| on_one_line(warning)).collect();
    let mut response = Response {
        uid,
        allowed: true,
        status: None,
        patch: None,
        patch_type: None,
        warnings,
    };
    match answer {
        Answer::Allowed(ops) if ops.is_empty() => {}
        Answer::Allowed(ops) => {
            // Serialising strings and maps with string keys cannot fail.
            response.patch = serde_json::to_vec(ops).ok().map(|json| STANDARD.encode(json));
            response.patch_type = Some("JSONPatch");
        }
        Answer::Refused {
            code,
            reason,
            message,
        } => {
            response.allowed = false;
            response.status = Some(Status {
                code: *code,
                reason,
                message,
            });
        }
    }
    let review = RenderedReview {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response,
    };
    serde_json::to_vec(&review).unwrap_or_default()
}
