//! Waiting for a condition.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long anything may take. Images are there, so what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `value` is there; the last error says why it is not.
pub(crate) fn until<T>(what: &str, value: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last = value();
        if let Ok(Some(value)) = last {
            return Ok(value);
        }
        if Instant::now() > deadline {
            let why = last
                .err()
                .map_or_else(String::new, |error| format!(": {error:#}"));
            bail!("{what} did not come about within {} s{why}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
