//! What a subcommand leaves behind: text on standard output and error, and why it failed.

use std::io::{IsTerminal as _, Write as _};

use wellhead_analyze::gate::GateOutcome;

use crate::config::ProblemReport;

/// Why a command could not be done, in words for the person at the terminal.
pub(crate) enum CommandError {
    /// What was asked cannot work.
    Config(String),
    /// The system did not give what was needed.
    System(String),
    /// Something does not work, and the lines that say so are already printed.
    Unwell,
    /// The comparison found a difference, and its text is already printed.
    Differs,
    /// The run does not come to what was asked of it, and the lines that say so are already
    /// printed.
    Unmet(GateOutcome),
}

impl CommandError {
    pub(crate) fn system(error: impl std::fmt::Display) -> Self {
        Self::System(error.to_string())
    }

    /// What the person reads, if it is not printed yet.
    #[cfg(test)]
    pub(crate) fn text(self) -> String {
        match self {
            Self::Config(text) | Self::System(text) => text,
            Self::Unwell | Self::Differs | Self::Unmet(_) => "already printed".to_owned(),
        }
    }
}

/// Prints what the command was asked for on standard output. A closed pipe is no error.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
}

/// Prints everything else on standard error. A closed pipe is no error.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
}

/// A variable of the environment, if it is text.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The problems of a config for standard error.
pub(crate) fn rendered(report: &ProblemReport) -> String {
    report.render(std::io::stderr().is_terminal())
}
