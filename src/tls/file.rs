//! Reads files that a kubelet mounts and swaps.

use std::{
    io::{self, Read},
    path::Path,
};

use super::pem;

/// Reads at most what certificates may have, and one byte that tells that there is more.
pub(super) async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?
            .take(pem::MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    reading.await.map_err(io::Error::other).and_then(|read| read)
}
