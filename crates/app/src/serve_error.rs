//! Why serving could not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::assemble::AssembleError;
use crate::traces::TracesSetupError;
use crate::usage::UsageSetupError;

/// Why serving could not start.
#[derive(Debug)]
pub(crate) enum ServeError {
    /// An address could not be bound.
    Bind(&'static str, SocketAddr, io::Error),
    /// A socket that was given is not where the settings say.
    GivenElsewhere {
        /// The setting.
        what: &'static str,
        /// Where the socket is.
        at: String,
        /// Where it should be.
        set: String,
    },
    /// The socket file of the admin listener could not be made.
    BindFile(PathBuf, io::Error),
    /// The parts could not be made.
    Assemble(AssembleError),
    /// Usage cannot be handed out as the settings say.
    Usage(UsageSetupError),
    /// A process that takes over has no upstream yet for any of these chains.
    NotReady(Vec<String>),
    /// Traces cannot be sent as the settings say.
    Traces(TracesSetupError),
    /// A thread, a runtime or a signal handler could not be made.
    System(&'static str, io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bind(what, address, error) => {
                write!(f, "`{what}` cannot listen on {address}: {error}")?;
                if error.kind() == io::ErrorKind::AddrInUse {
                    write!(f, "; something else does: choose another with `--{what}`")?;
                }
                Ok(())
            }
            Self::BindFile(path, error) => {
                write!(f, "`admin` cannot listen at `{}`: {error}", path.display())?;
                if error.kind() == io::ErrorKind::AddrInUse {
                    write!(f, "; another wellhead does: choose another path with `--admin`")?;
                }
                Ok(())
            }
            Self::GivenElsewhere { what, at, set } => write!(
                f,
                "the service manager gave a socket at {at}, and `{what}` is {set}: set `{what}: {at}`"
            ),
            Self::NotReady(chains) => {
                write!(f, "no upstream of {} could be verified in time", chains.join(", "))
            }
            Self::Assemble(error) => error.fmt(f),
            Self::Usage(error) => error.fmt(f),
            Self::Traces(error) => error.fmt(f),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<AssembleError> for ServeError {
    fn from(error: AssembleError) -> Self {
        Self::Assemble(error)
    }
}
