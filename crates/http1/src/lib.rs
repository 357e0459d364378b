//! HTTP/1.1 as bytes: heads, framing and chunks of both directions, without a socket.
//!
//! `net` reads answers with it and `server` requests; they move the bytes. Parsing a
//! line is httparse's business; what two readers could understand differently is
//! refused here, because what follows would be taken for another message.

pub mod answer;
mod chunked;
mod field;
pub mod request;

pub use chunked::{ChunkStep, Chunked};

/// The bytes are not HTTP/1; says why, without quoting them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedHttp(pub &'static str);
