//! A status as text.

use std::fmt;

use super::{Row, Status};
use crate::cli::columns::columns;

const HEADS: [&str; 6] = ["ORDINAL", "POD", "STATE", "REVISION", "NODE", "STORAGE"];

impl Row {
    fn cells(&self) -> [String; 6] {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        [
            self.ordinal.to_string(),
            or_dash(&self.pod),
            self.state.to_owned(),
            or_dash(&self.revision),
            or_dash(&self.node),
            or_dash(&self.storage),
        ]
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ready, wanted) = (self.ready(), self.wanted());
        let (flock, namespace) = (&self.key.flock, &self.key.namespace);
        writeln!(
            f,
            "Flock {flock} in namespace {namespace}: {ready} of {wanted} members are Ready"
        )?;
        let rows: Vec<_> = std::iter::once(HEADS.map(str::to_owned))
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        f.write_str(&columns(&rows))?;
        for note in &self.notes {
            writeln!(f, "! {note}")?;
        }
        Ok(())
    }
}
