//! HTTP listeners: framing, limits, compression, drain, and the admin listener.
//!
//! A [`Server`] holds what all workers share (settings, bounds, counters). Each
//! worker thread runs [`Server::serve`] on its own [`Listener`]; every request
//! becomes a [`Request`], is answered by the [`Handler`], and leaves with the
//! headers, the compression and the bounds that HTTP asks for. What a JSON-RPC
//! body means is not this crate's business: bodies are bytes.
//!
//! The way of one request: `listen` accepts, `tls` shakes hands if it is to, `connection` tells HTTP/1.1 (`h1`) from
//! HTTP/2 (hyper) and watches the clock, `rpc` asks `request` what the head wants,
//! the handler to answer and `answer` to word it. Whatever is refused on the way is
//! one row of `refusal`. `admin` serves metrics, health and the status page beside it.

mod admin;
mod answer;
mod backlog;
mod body;
mod compress;
mod connection;
mod cors;
mod count;
mod drain;
mod encoding;
mod h1;
mod handler;
mod handshake;
mod head;
mod host;
mod line;
mod link;
mod listen;
mod path;
mod peers;
mod refusal;
mod request;
mod rpc;
mod server;
mod settings;
mod share;
mod socket;
mod stream;
mod ticket;
mod tls;

pub use admin::{Admin, Health, Metrics};
pub use body::AnswerBody;
pub use count::{Counts, Protocol, STATUSES};
pub use drain::{Drained, Shutdown};
pub use handler::{Answer, Handler, Request};
pub use host::Hosts;
pub use listen::Listener;
pub use path::Path;
pub use refusal::Refusal;
pub use server::Server;
pub use settings::{Compression, Settings};
pub use tls::{HandshakeFailure, Renewed, Tls, TlsFile, TlsFiles, TlsProblem};
