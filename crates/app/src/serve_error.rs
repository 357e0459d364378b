//! Why serving could not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::assemble::AssembleError;
use crate::outlet::OutletError;
use crate::usage::UsageSetupError;

/// Why serving could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// An address could not be bound.
    #[error(
        "`{}` cannot listen on {}: {}{}",
        .0, .1, .2, if_in_use(.2, &format!("something else does: choose another with `--{}`", .0))
    )]
    Bind(&'static str, SocketAddr, io::Error),
    /// A socket that was given is not where the settings say.
    #[error("the service manager gave a socket at {at}, and `{what}` is {set}: set `{what}: {at}`")]
    GivenElsewhere {
        /// The setting.
        what: &'static str,
        /// Where the socket is.
        at: String,
        /// Where it should be.
        set: String,
    },
    /// The socket file of the admin listener could not be made.
    #[error(
        "`admin` cannot listen at `{}`: {}{}",
        .0.display(), .1, if_in_use(.1, "another wellhead does: choose another path with `--admin`")
    )]
    BindFile(PathBuf, io::Error),
    /// The parts could not be made.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Usage cannot be handed out as the settings say.
    #[error(transparent)]
    Usage(UsageSetupError),
    /// A process that takes over has no upstream yet for any of these chains.
    #[error("no upstream of {} could be verified in time", .0.join(", "))]
    NotReady(Vec<String>),
    /// Traces cannot be sent as the settings say.
    #[error("traces: {0}")]
    Traces(OutletError),
    /// A thread, a runtime or a signal handler could not be made.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

/// What to do where something else listens.
fn if_in_use(error: &io::Error, advice: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("; {advice}"),
        _ => String::new(),
    }
}
