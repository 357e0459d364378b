//! Why keys are not changed as asked. Quotes no secret.

/// Why keys are not changed as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyProblem {
    /// What was asked cannot be.
    #[error("{0}")]
    Wrong(String),
    /// There is no such key.
    #[error("{0}")]
    NotFound(String),
    /// The key, or the settings, do not allow it.
    #[error("{0}")]
    Conflict(String),
    /// What keeps the keys is away or refuses: the next attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The system did not give what was needed.
    #[error("{0}")]
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
            Self::Unavailable(_) => 503,
        }
    }
}
