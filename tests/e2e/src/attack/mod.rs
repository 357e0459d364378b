//! Attacks on a running proxy, each with a well-behaved caller beside it.
//!
//! An [`Attack`] is what clients of [`ground::ATTACKER`] do to the proxy, or what its upstream
//! does to it. [`play()`] lets it last for a few seconds and tells what the [`caller`], the
//! kernel and the upstream saw. What has to hold is decided by [`Report::broken`]: the same for
//! `scripts/attack` and for the tests, but for times.
//!
//! Everything stays on the loopback and is bounded: an attack has at most 10,000 connections,
//! ends by itself, and holds no more than pieces of what it sends.

pub mod caller;
mod catalogue;
mod clients;
pub mod frame;
pub mod ground;
pub mod hostile;
mod http2;
mod play;
mod refusal;
mod target;
mod tls;
pub mod upstream;
mod upstream_http2;
mod watch;

use std::pin::Pin;
use std::sync::Arc;

pub use catalogue::ATTACKS;
pub use ground::{Ground, Scale};
pub use hostile::{Http2Fault, Mode};
pub use play::{Report, Subject, play};
pub use refusal::SECRETS;
pub use target::wellhead;
pub use upstream::Upstream;

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// What it is called on the command line and in reports.
    pub name: &'static str,
    /// What happens, in one line.
    pub about: &'static str,
    /// What the proxy stands before, and how clients reach it.
    pub place: Place,
    /// The attackers, and how they attack.
    pub by: By,
    /// Resident memory of wellhead at its most, in MiB, by the arithmetic in the [catalogue](ATTACKS).
    pub ceiling_mib: u64,
    /// Calls at the upstream for one request of the attack, where that is bounded.
    pub calls_per_call_max: Option<f64>,
    /// Whether other proxies can be attacked in this way.
    pub beside: bool,
}

/// What the proxy stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// One upstream that is well, HTTP/1.1 on both sides.
    Plain,
    /// As [`Place::Plain`]; in the short form the proxy takes 200 connections.
    FewConnections,
    /// One upstream; clients come over TLS.
    Tls,
    /// One upstream, with secrets in its URL and its headers.
    Secrets,
    /// The upstream that attacks and one that is well, over HTTP/1.1.
    Two,
    /// The upstream that attacks, over HTTP/2, and one that is well.
    TwoHttp2,
}

/// The attackers.
#[derive(Clone, Copy)]
pub enum By {
    /// Clients.
    Clients(Run),
    /// The upstream: from its verification on it does this.
    Upstream(Mode),
    /// Clients, while the upstream does this.
    Both(Mode, Run),
}

/// What clients do.
pub type Run = for<'a> fn(&'a Arc<Ground>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attack").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clients(_) => f.write_str("Clients"),
            Self::Upstream(mode) | Self::Both(mode, _) => write!(f, "{mode:?}"),
        }
    }
}

/// The attack of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}
