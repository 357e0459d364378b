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

/// Libraries whose finer levels print headers, and with them keys. Held at these levels
/// whatever the settings say. h2 warns of each connection that it ends for a flood, as often as
/// clients please: the listener counts those, and tells of one a minute.
const HELD: &str = "h2=error,hyper=warn,rustls=warn,tokio_tungstenite=warn,tungstenite=warn";

/// Lines of the target `audit` name each change and its author. They are written whatever the general level is; the
/// settings can still name the target.
const AUDIT: &str = "audit=info";

fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(format!("{AUDIT},{level},{HELD}")).map_err(|error| error.to_string())
}

/// Starts logging to standard error. The first call wins; later ones do nothing.
///
/// `level` is a `tracing` filter such as `info` or `wellhead_watch=debug`.
/// Returns the parser's words when it is not one.
pub fn start(level: &str, format: Format) -> Result<(), String> {
    let filter = filter(level)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_held_whatever_the_settings_say() {
        for level in ["info", "trace", "h2=trace,hyper=debug"] {
            let filter = filter(level).expect("a filter").to_string();
            for held in HELD.split(',') {
                assert!(filter.split(',').any(|directive| directive == held), "{level}: {filter}");
            }
            assert!(!filter.contains("h2=trace"), "{filter}");
        }
        assert!(filter("info,=").is_err());
    }

    #[test]
    fn audit_lines_are_written_unless_the_settings_name_them() {
        for (level, expected) in [
            ("off", "audit=info"),
            ("warn", "audit=info"),
            ("info,audit=off", "audit=off"),
            ("audit=debug,error", "audit=debug"),
        ] {
            let filter = filter(level).expect("a filter").to_string();
            let found: Vec<_> = filter.split(',').filter(|it| it.starts_with("audit")).collect();
            assert_eq!(found, [expected], "{level}: {filter}");
        }
    }
}
