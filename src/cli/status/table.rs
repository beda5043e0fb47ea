//! A status as text.

use std::fmt;

use super::{Row, Status};

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
        let ready = self.rows.iter().filter(|row| row.state == "Ready").count();
        let wanted = self
            .rows
            .iter()
            .filter(|row| !matches!(row.state, "Unused" | "Released"))
            .count();
        let (flock, namespace) = (&self.key.flock, &self.key.namespace);
        writeln!(
            f,
            "Flock {flock} in namespace {namespace}: {ready} of {wanted} members are Ready"
        )?;
        let rows: Vec<_> = std::iter::once(HEADS.map(str::to_owned))
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        let width = |column: usize| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<_> = (0..HEADS.len()).map(width).collect();
        for row in &rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        for note in &self.notes {
            writeln!(f, "! {note}")?;
        }
        Ok(())
    }
}
