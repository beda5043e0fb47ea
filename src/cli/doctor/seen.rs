//! What a look at an object brought. Whoever runs the doctor may see less than Flock does, and that is no fault of the
//! installation.

use super::finding::Finding;

/// An object, or why there is none to judge.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// Here it is.
    Found(T),
    /// There is none.
    Absent,
    /// Whoever asks may not see it; the API server's words.
    Refused(String),
    /// It could not be read for another reason.
    Failed(String),
}

impl<T> Seen<T> {
    /// From an answer of the API server.
    pub fn from_answer(answer: kube::Result<Option<T>>) -> Self {
        match answer {
            Ok(Some(object)) => Self::Found(object),
            Ok(None) => Self::Absent,
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                Self::Refused(status.message.clone())
            }
            Err(error) => Self::Failed(words(&error)),
        }
    }

    /// The object, if it was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(object) => Some(object),
            _ => None,
        }
    }

    /// Something of the object.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Found(object) => Seen::Found(of(object)),
            Self::Absent => Seen::Absent,
            Self::Refused(why) => Seen::Refused(why),
            Self::Failed(why) => Seen::Failed(why),
        }
    }

    /// The object, or the finding that takes the place of a judgement: `absent`, or that it could not be seen.
    pub fn or_finding(
        &self,
        check: &'static str,
        what: &str,
        absent: impl FnOnce() -> Finding,
    ) -> Result<&T, Finding> {
        match self {
            Self::Found(object) => Ok(object),
            Self::Absent => Err(absent()),
            Self::Refused(why) => Err(Finding::not_checked(
                check,
                format!("you may not see {what}: {why}"),
            )),
            Self::Failed(why) => Err(Finding::warning(check, format!("{what} cannot be read: {why}"))),
        }
    }
}

/// The API server's words where there are any: the client would add what only programs read.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn answer(code: u16) -> kube::Error {
        let status = kube::core::Status::failure("words", "Reason").with_code(code);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn a_refusal_is_told_from_a_failure() {
        let verdict = |code| {
            let seen = Seen::<()>::from_answer(Err(answer(code)));
            let absent = || Finding::broken("it", "is gone");
            seen.or_finding("it", "it", absent).unwrap_err().verdict
        };
        assert_eq!([403, 500].map(verdict), [Verdict::NotChecked, Verdict::Warning]);
        let absent = Seen::<()>::from_answer(Ok(None));
        let finding = absent.or_finding("it", "it", || Finding::broken("it", "is gone"));
        assert_eq!(finding.unwrap_err().verdict, Verdict::Broken);
    }
}
