//! The only outgoing sockets: HTTP/1.1, HTTP/2 and WebSocket clients.
//!
//! [`HttpTransport`] and [`WsTransport`] implement `transport::Transport` and [`WsClient`]
//! `transport::feed::FeedConnector`. They move bytes and keep connections; what
//! the bytes mean, which upstream is called and how often is decided elsewhere (`upstream`,
//! `route`, `dispatch`). From outside in: `http` one exchange, `pool` which
//! connection it takes, `caps` what their ends taught, `connect` how one comes to be, `tunnel` the
//! way through a forward proxy, `h1` (over the crate `http1`) and `h2` what happens on it, `body` how the answer
//! becomes bytes, `incoming` how a long one is read on demand, `journal` what is noted of all
//! that for measurements. `carrier` is the other way:
//! plain calls over a few WebSocket connections, many at a time. `fetch` gets single documents
//! by the parts of both.

mod body;
mod caps;
mod carrier;
mod connect;
mod credential;
mod detect;
mod dial;
mod endpoint;
mod endpoint_error;
mod fetch;
mod frame;
mod h1;
mod h2;
mod head;
mod hpack;
mod http;
mod huffman;
mod identity;
mod incoming;
mod inflate;
mod inspect;
mod journal;
mod mux;
mod outgoing;
mod pool;
mod protocol;
mod settings;
mod stats;
mod tunnel;
mod waiters;
mod ws;

pub use crate::caps::{LearntCaps, Lesson};
pub use crate::carrier::WsTransport;
pub use crate::detect::LearntProtocol;
pub use crate::dial::{FixedAddress, Lookup, Resolver, TlsClient, TlsSetupError, TrustedRoots};
pub use crate::endpoint::{Auth, Endpoint, EndpointError, HttpVersion};
pub use crate::fetch::{DocumentFetcher, FetchError, FetchLimits, FetchedDocument};
pub use crate::http::{HttpTransport, TransportResources};
pub use crate::identity::{ClientIdentity, IdentityError};
pub use crate::inspect::{
    CertificateFault, EndpointReport, InspectError, PeerClock, ShownCertificate, inspect,
};
pub use crate::journal::{ExchangeTimeline, Journal, JournalEntry, JournalEvent, SetUp};
pub use crate::mux::STREAM_WINDOW;
pub use crate::protocol::{CloseReason, Protocol};
pub use crate::settings::ClientSettings;
pub use crate::stats::ConnectionStats;
pub use crate::tunnel::ForwardProxy;
pub use crate::ws::{FeedSettings, WsClient, WsConnection};

/// What the fuzzer calls.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Drives an HTTP/2 connection by a script of what arrives and what is asked for.
    ///
    /// # Panics
    ///
    /// When something does not hold that must.
    pub fn h2(script: &[u8]) {
        crate::mux::fuzzing::h2(script);
    }
}
