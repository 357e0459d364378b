//! A provider to measure: a truthful node behind the limits, moods and bills of a company.
//!
//! [`FakeProvider`] listens on a port of its own and speaks HTTP/1.1 and HTTP/2, by prior
//! knowledge or, with TLS, by ALPN. [`ProviderDials`] say where it stops: streams on a
//! connection, requests on a connection, time without a request, credits in buckets, a
//! pace that is kept in silence, requests at once, a barred account, slow bodies; and
//! what it knows: lag, history, methods, ranges, batches, lies. [`Preset`]s are whole
//! providers, [`ProviderDials::draw`] makes random ones, so that a measurement can be
//! checked blind.
//!
//! In order: a stream is welcomed or not, a barred account and a batch that is too large
//! are refused, a request takes its slot and then its credits or is refused, waits for a
//! slot and in the line, is answered by the node as the chain stands then, waits for the
//! latency, and goes out at the pace of bodies.
//!
//! What is deliberately not here: WebSocket, compression, chunked requests, faults of the
//! network ([`crate::fake`] has those). Every wait is a timer of tokio's, which counts
//! milliseconds: a latency or a place in the line may come up to 1 ms late, which does
//! not add up over a line.

mod count;
mod desk;
mod dial;
mod draw;
mod draw_wire;
mod http1;
mod http2;
mod knowledge;
mod lie;
pub mod meter;
mod preset;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::count::ProviderCounts;
pub use self::dial::{
    AtOnce, CreditBucket, Falsehood, LimitScope, ProviderDials, Refill, RefusalForm, STREAMS_MAX,
    Shaping, StreamCap, StreamWay,
};
pub use self::draw::DrawnDial;
pub use self::knowledge::Matter;
pub use self::preset::Preset;
pub use self::wire::ProviderTls;

use self::count::count;
use self::desk::Desk;
use self::wire::ProviderSocket;
use crate::listen::{CONNECTIONS_MAX, accept, listen};
use crate::node::SimNode;
use crate::world::World;

/// The listener's queue.
const BACKLOG: u32 = 4096;
/// For a handshake, and for the first bytes, which tell the protocol.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Free room before each read.
const READ_BYTES: usize = 16 * 1024;
/// How HTTP/2 begins, as far as no method does.
const PREFACE: &[u8; 3] = b"PRI";

/// A provider with a port of its own. Everything stops when it is dropped.
#[derive(Debug)]
pub struct FakeProvider {
    desk: Arc<Desk>,
    addr: SocketAddr,
    scheme: &'static str,
    _stop: DropGuard,
}

impl FakeProvider {
    /// Listens on a free port of 127.0.0.1, without TLS, and shows this world. Must be
    /// called inside a tokio runtime, as all of these.
    pub fn start(id: &str, world: Arc<World>, dials: ProviderDials) -> io::Result<Self> {
        Self::start_on(local(0), id, world, dials, None)
    }

    /// Starts with TLS. Clients check the name: the certificate must be for 127.0.0.1.
    pub fn start_tls(
        id: &str,
        world: Arc<World>,
        dials: ProviderDials,
        tls: ProviderTls,
    ) -> io::Result<Self> {
        Self::start_on(local(0), id, world, dials, Some(tls))
    }

    /// Listens on this address.
    pub fn start_on(
        addr: SocketAddr,
        id: &str,
        world: Arc<World>,
        dials: ProviderDials,
        tls: Option<ProviderTls>,
    ) -> io::Result<Self> {
        let listener = listen(addr, BACKLOG)?;
        let addr = listener.local_addr()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let desk = Arc::new(Desk::new(SimNode::new(id, world), dials));
        let stop = CancellationToken::new();
        tokio::spawn(run(listener, Arc::clone(&desk), tls, stop.clone()));
        Ok(Self { desk, addr, scheme, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://` or `https://`.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// The node that it shows: what it answers when nothing is in the way.
    pub fn node(&self) -> &Arc<SimNode> {
        self.desk.node()
    }

    /// The dials as they stand.
    pub fn dials(&self) -> ProviderDials {
        self.desk.read(ProviderDials::clone)
    }

    /// Turns dials. Buckets that are turned are full again, and a turned line begins
    /// anew; calls that wait already wait on.
    pub fn turn(&self, change: impl FnOnce(&mut ProviderDials)) {
        self.desk.turn(change);
    }

    /// What it did so far.
    pub fn counts(&self) -> ProviderCounts {
        self.desk.counts()
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Accepts until stopped.
async fn run(
    listener: TcpListener,
    desk: Arc<Desk>,
    tls: Option<ProviderTls>,
    stop: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (stream, permit) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accept(&listener, &room) => accepted,
        };
        count(&desk.counters.connections);
        let (desk, tls, stop) = (Arc::clone(&desk), tls.clone(), stop.clone());
        tokio::spawn(async move {
            let served = tokio::select! {
                () = stop.cancelled() => return,
                served = serve(stream, &desk, tls.as_ref()) => served,
            };
            if let Err(error) = served {
                tracing::debug!(%error, "connection to fake provider broke");
            }
            drop(permit);
        });
    }
}

async fn serve(stream: TcpStream, desk: &Desk, tls: Option<&ProviderTls>) -> io::Result<()> {
    let http2 = desk.read(|dials| dials.http2);
    let (wire, agreed) = match tls {
        Some(tls) => tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream, http2)).await??,
        None => {
            let mut wire = ProviderSocket::plain(stream);
            match begins_http2(&mut wire, desk).await? {
                Some(begins) => (wire, begins && http2),
                None => return Ok(()),
            }
        }
    };
    match agreed {
        true => Box::pin(http2::serve(wire, desk)).await.map_err(io::Error::other),
        false => Box::pin(http1::serve(wire, desk)).await,
    }
}

/// Whether the first bytes are those of HTTP/2; `None` when none came in time.
async fn begins_http2(wire: &mut ProviderSocket, desk: &Desk) -> io::Result<Option<bool>> {
    let mut front = BytesMut::new();
    let (mut turns, opened) = (desk.turns(), Instant::now());
    while front.len() < PREFACE.len() && PREFACE.starts_with(&front) {
        if !read_more(wire, &mut front, desk, &mut turns, opened).await? {
            return Ok(None);
        }
    }
    let begins = front.starts_with(PREFACE);
    wire.put_back(front.freeze());
    Ok(Some(begins))
}

/// Reads more of what a connection says; `false` when it is to be closed: the client has closed it, or it was
/// quiet for too long.
async fn read_more(
    wire: &mut ProviderSocket,
    into: &mut BytesMut,
    desk: &Desk,
    turns: &mut watch::Receiver<u64>,
    quiet_since: Instant,
) -> io::Result<bool> {
    into.reserve(READ_BYTES);
    loop {
        let idle_at = desk.read(|dials| dials.idle_close).map(|idle| quiet_since + idle);
        tokio::select! {
            biased;
            read = wire.read_buf(into) => return Ok(read? > 0),
            () = at(idle_at) => {
                count(&desk.counters.idle_closed);
                return Ok(false);
            }
            _ = turns.changed() => {}
        }
    }
}

/// Until then, if ever.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
