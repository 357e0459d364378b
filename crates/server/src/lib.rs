//! HTTP listeners: framing, limits, compression, drain, and the admin listener.
//!
//! A [`Server`] stands for one address. Each worker thread runs [`Server::serve`] on its own
//! [`Listener`]; every request becomes an [`HttpRequest`], is answered by the [`Handler`], and leaves
//! with the headers, the compression and the bounds that HTTP asks for. What a JSON-RPC body means
//! is not this crate's business: bodies are bytes.
//!
//! A module imports only from the storeys below its own:
//!
//! | storey | modules |
//! |---|---|
//! | the address | `server` accepts and drains |
//! | connections | `admission` gives each a place; `proxied` hears of its client from a proxy in front; `handshake` is for TLS; `connection` tells HTTP/1.1 (`h1`) from HTTP/2 (hyper) and watches the clock; `end` counts how it ended |
//! | requests | `service` is what `rpc` (JSON-RPC) and `admin` (metrics, health, the status page) have in common; `request` reads, `answer` words, `compress` squeezes |
//! | one connection | `link`: its pace; `linger`: its end; `ticket`: the place of a request; `backlog`: answers on their way; `socket`, `stream`, `frames`: its bytes; `peers`: all of them by address |
//! | one listener | `shared`: settings, counters, log limits |
//! | values | `settings`, `count`, `refusal` (one row for each), `head`, `headers`, `path`, `host`, `cors`, `encoding`, `tls`, `certificate`, and the like |

mod admin;
mod admission;
mod answer;
mod backlog;
mod body;
mod certificate;
mod compress;
mod connection;
mod cors;
mod count;
mod drain;
mod encoding;
mod end;
mod frames;
mod h1;
mod handler;
mod handshake;
mod head;
mod headers;
mod host;
mod line;
mod linger;
mod link;
mod listen;
mod local;
mod path;
mod peers;
mod protocol;
mod proxied;
mod read_buffer;
mod refusal;
mod request;
mod rpc;
mod server;
mod service;
mod settings;
mod share;
mod shared;
mod socket;
mod stream;
mod ticket;
mod tls;
mod websocket;
mod ws_end;

pub use admin::{
    AdminAccess, AdminAction, AdminActor, AdminAnswer, AdminCall, AdminCertificate, AdminHandler,
    AdminPlace, AdminReply, AdminRequest, AdminRole, AdminRoles, AdminToken, Health, Metrics,
    UsageReport, ask_admin,
};
pub use body::AnswerBody;
pub use certificate::{CertificateSummary, ClientName};
pub use count::{STATUSES, ServerCounts};
pub use drain::{Drained, Shutdown};
pub use handler::{
    ClientHead, ClientSession, Handler, HeldUntilSent, HttpAnswer, HttpRequest, Identified,
    OnQueued, SessionClose, SessionEvent, SessionHead,
};
pub use host::Hosts;
pub use listen::Listener;
pub use local::{LocalListener, SocketFileLease};
pub use path::RequestPath;
pub use protocol::ClientProtocol;
pub use proxied::{ProxyFailure, ProxyMode, ProxyProtocol};
pub use refusal::HttpRefusal;
pub use server::Server;
pub use settings::{Compression, Settings};
pub use tls::{
    AcmeFailure, AcmeIssue, AcmeOrders, AcmeSettings, ClientFiles, FileEnd, HandshakeFailure,
    Renewed, Tls, TlsFile, TlsFiles, TlsProblem,
};
pub use ws_end::WsEnd;
