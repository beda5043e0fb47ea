//! Real nodes.
use anyhow::{Result, bail};

use crate::lab::Lab;

/// Whether this machine can run real nodes; the error says why it can't.
pub fn real_nodes_possible() -> Result<()> {
    bail!("they are not written yet")
}

impl Lab {
    pub(crate) fn add_real_node(&self, _index: usize) -> Result<()> {
        bail!("not yet")
    }
}
