//! What the checks found, and how it is shown.

use std::fmt;

use crate::cli::columns::columns;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be seen, with the rights of whoever asks.
    NotChecked,
    /// It works, and somebody should look at it.
    Warning,
    /// It does not work.
    Broken,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotChecked => "not checked",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, in a word or two.
    pub check: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// A sentence that names the object, the cause and the way out.
    pub message: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, message: impl Into<String>) -> Self {
        // Sentences of others may have several lines, and a table has one for each.
        let message = message.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            check,
            verdict,
            message,
        }
    }

    /// It is as it should be.
    pub fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, message)
    }

    /// It could not be seen.
    pub fn not_checked(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Verdict::NotChecked, message)
    }

    /// Somebody should look at it.
    pub fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, message)
    }

    /// It does not work.
    pub fn broken(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, Verdict::Broken, message)
    }
}

/// Everything that was found.
#[derive(Debug)]
pub struct Report {
    /// Flock's namespace.
    pub namespace: String,
    /// In the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            Verdict::Broken,
            Verdict::Warning,
            Verdict::NotChecked,
            Verdict::Ok,
        ]
        .map(|verdict| format!("{} {}", self.count(verdict), verdict.word()));
        writeln!(f, "Flock in namespace {}: {}", self.namespace, counts.join(", "))?;
        let heads = ["RESULT", "CHECK", "FINDING"].map(str::to_owned);
        let rows = self.findings.iter().map(|finding| {
            [
                finding.verdict.word().to_owned(),
                finding.check.to_owned(),
                finding.message.clone(),
            ]
        });
        let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
        f.write_str(&columns(&rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_one_line_and_the_first_line_counts_them() {
        let report = Report {
            namespace: "flock-system".into(),
            findings: vec![
                Finding::ok("API server", "fine"),
                Finding::broken("caBundle", "two\n  lines"),
            ],
        };
        let expected = "Flock in namespace flock-system: 1 broken, 0 warning, 0 not checked, 1 ok\n\
                        RESULT  CHECK       FINDING\n\
                        ok      API server  fine\n\
                        broken  caBundle    two lines\n";
        assert_eq!(report.to_string(), expected);
    }
}
