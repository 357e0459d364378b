//! Log set-up: text for people, JSON for collectors.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Libraries whose finer levels print headers, and with them keys. Held at `warn`
/// whatever the settings say.
const HELD_AT_WARN: &str = "h2=warn,hyper=warn,rustls=warn,tokio_tungstenite=warn,tungstenite=warn";

/// Starts logging to standard error. The first call wins; later ones do nothing.
///
/// `level` is a `tracing` filter such as `info` or `wellhead_watch=debug`.
/// Returns the parser's words when it is not one.
pub fn start(level: &str, format: Format) -> Result<(), String> {
    let filter =
        EnvFilter::try_new(format!("{level},{HELD_AT_WARN}")).map_err(|error| error.to_string())?;
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match format {
        Format::Json => true,
        Format::Text => false,
        Format::Auto => !terminal,
    };
    let started = if json {
        builder.json().flatten_event(true).with_current_span(false).try_init()
    } else {
        builder.with_ansi(terminal).compact().try_init()
    };
    // Only tests start it twice; the first subscriber stays.
    let _ = started;
    Ok(())
}
