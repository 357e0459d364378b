//! Where a connection comes from when a proxy in front says it: the PROXY protocol, before TLS and
//! before anything else.
//!
//! Only peers that are trusted may say so. Until a connection has told its client's address it holds
//! one of few places of its own, because no address can be charged for it; then it is admitted as the
//! connection of that client, whose address everything else goes by. What a header looks like is
//! known by `access`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use wellhead_access::{PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, ProxyTrust};

/// Connections of trusted proxies of which the header is not there yet. A proxy sends it with its
/// first packet. At the bound a further one is closed.
pub(crate) const ANNOUNCING_MAX: usize = 1024;

/// Whether connections begin with a header of the PROXY protocol (version 1 or 2).
#[derive(Debug, Clone, Default)]
pub struct ProxyProtocol {
    /// What a connection has to begin with.
    pub mode: ProxyMode,
    /// The proxies whose headers are believed.
    pub trusted: Arc<ProxyTrust>,
}

/// What a connection has to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProxyMode {
    /// A request: a header would be none.
    #[default]
    Off,
    /// Connections of trusted proxies may begin with a header. That of another peer is taken as the
    /// first bytes of a request.
    Accept,
    /// Only connections of trusted proxies that begin with a header are served.
    Require,
}

/// How a connection says where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerSource {
    /// By its socket.
    Socket,
    /// By a header, if there is one.
    MaybeHeader,
    /// By a header.
    Header,
    /// Not at all: it is not one of the proxies.
    Refused,
}

impl ProxyProtocol {
    pub(crate) fn source(&self, peer: IpAddr) -> PeerSource {
        // No look-up where there is nothing to trust.
        let is_trusted = || self.trusted.trusts(peer);
        match self.mode {
            ProxyMode::Off => PeerSource::Socket,
            ProxyMode::Accept if is_trusted() => PeerSource::MaybeHeader,
            ProxyMode::Accept => PeerSource::Socket,
            ProxyMode::Require if is_trusted() => PeerSource::Header,
            ProxyMode::Require => PeerSource::Refused,
        }
    }
}

/// Why a connection that has to say where it comes from was closed. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum ProxyFailure {
    /// The header was not there in time.
    Slow,
    /// The peer closed first; also proxies that only check whether the port is open.
    Left,
    /// It began with something else, and a header is required.
    Missing,
    /// It began as a header does and was none.
    Malformed,
    /// A header is required, and the peer is not one of the trusted proxies.
    Untrusted,
    /// Too many had not said it.
    Full,
}

wellhead_word::words!(ProxyFailure);

/// What the beginning of a connection said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The client; `None` where it is the peer of the socket.
    pub(crate) client: Option<SocketAddr>,
    /// Bytes that were read and belong to what follows: fewer than a header's signature.
    pub(crate) unread: Vec<u8>,
}

/// Reads the header, and not a byte more.
pub(crate) async fn read_announced(
    stream: &mut TcpStream,
    is_required: bool,
) -> Result<Announced, ProxyFailure> {
    let mut bytes = [0; PROXY_HEADER_BYTES_MAX];
    let mut filled = 0;
    while filled < bytes.len() {
        // Looked at before they are read: what follows the header is for others, TLS among them.
        let more = stream.peek(&mut bytes[filled..]).await.map_err(|_| ProxyFailure::Left)?;
        if more == 0 {
            return Err(ProxyFailure::Left);
        }
        let (own, client) = match ProxyHeader::parse(&bytes[..filled + more]) {
            Ok(header) => (header.len - filled, Some(header.source)),
            // All are its own if it is one, and if not, so few that they can be carried on.
            Err(ProxyHeaderError::Incomplete) => (more, None),
            Err(ProxyHeaderError::Missing) if is_required => return Err(ProxyFailure::Missing),
            Err(ProxyHeaderError::Missing) => {
                return Ok(Announced { client: None, unread: bytes[..filled].to_vec() });
            }
            Err(ProxyHeaderError::Malformed | ProxyHeaderError::TooLong) => {
                return Err(ProxyFailure::Malformed);
            }
        };
        let own = &mut bytes[filled..filled + own];
        filled += stream.read_exact(own).await.map_err(|_| ProxyFailure::Left)?;
        if let Some(client) = client {
            return Ok(Announced { client, unread: Vec::new() });
        }
    }
    Err(ProxyFailure::Malformed)
}
