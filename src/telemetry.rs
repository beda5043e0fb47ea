//! Logs: one line for each decision and each write, plain or JSON.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::args::LogFormat;

/// Sends log lines to standard error.
pub fn init(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(filter)?)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Plain => builder.with_ansi(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
