//! Why keys are not changed as asked. Quotes no secret.

use std::fmt;

/// Why keys are not changed as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyProblem {
    /// What was asked cannot be.
    Wrong(String),
    /// There is no such key.
    NotFound(String),
    /// The key, or the settings, do not allow it.
    Conflict(String),
    /// The system did not give what was needed.
    System(String),
}

impl KeyProblem {
    /// All of these problems as one.
    pub(crate) fn wrong(problems: &[String]) -> Self {
        Self::Wrong(problems.join("\n"))
    }

    /// The HTTP status of an answer that tells it.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Wrong(_) => 400,
            Self::NotFound(_) => 404,
            Self::Conflict(_) => 409,
            Self::System(_) => 500,
        }
    }
}

impl fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Wrong(text) | Self::NotFound(text) | Self::Conflict(text) | Self::System(text)) =
            self;
        f.write_str(text)
    }
}
