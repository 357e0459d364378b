//! A simulated node behind real sockets: HTTP/1.1, h2c and WebSocket on one port.
//!
//! The faults of the dials become what they are on a network: no listener, a
//! reset, a body shorter than promised, silence. Everything stops when the
//! [`FakeUpstream`] is dropped. For the same node without sockets see
//! [`crate::wire`].

pub(crate) mod body;
mod feed;
mod http;
mod socket;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::http::HttpDesk;
use self::socket::FakeSocket;
use crate::listen::{ACCEPT_PAUSE, CONNECTIONS_MAX, accept, listen};
use crate::node::{Fault, SimNode};

/// The listener's queue.
const BACKLOG: u32 = 1024;
/// Streams on one HTTP/2 connection, as geth's default.
const H2_STREAMS_MAX: u32 = 250;

/// A node with a port of its own on 127.0.0.1.
#[derive(Debug)]
pub struct FakeUpstream {
    node: Arc<SimNode>,
    addr: SocketAddr,
    _stop: DropGuard,
}

impl FakeUpstream {
    /// Listens on a free port. Must be called inside a tokio runtime.
    pub fn start(node: Arc<SimNode>) -> io::Result<Self> {
        Self::start_on(node, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Listens on this address.
    pub fn start_on(node: Arc<SimNode>, addr: SocketAddr) -> io::Result<Self> {
        // Bound but never listening: it keeps the port ours while the upstream
        // is down, so that connecting is refused and no other process binds it.
        let place = TcpSocket::new_v4()?;
        place.set_reuseaddr(true)?;
        place.bind(addr)?;
        let addr = place.local_addr()?;
        let listener = match is_down(&node) {
            true => None,
            false => Some(listen(addr, BACKLOG)?),
        };
        let stop = CancellationToken::new();
        let shop = Shop { node: Arc::clone(&node), addr, stop: stop.clone(), _place: place };
        tokio::spawn(shop.run(listener));
        Ok(Self { node, addr, _stop: stop.drop_guard() })
    }

    /// The node behind the port.
    pub fn node(&self) -> &Arc<SimNode> {
        &self.node
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For HTTP and h2c.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// For WebSocket.
    pub fn ws_url(&self) -> String {
        format!("ws://{}", self.addr)
    }
}

fn is_down(node: &SimNode) -> bool {
    node.dials().fault == Some(Fault::Down)
}

/// The accept loop and what it needs.
struct Shop {
    node: Arc<SimNode>,
    addr: SocketAddr,
    stop: CancellationToken,
    _place: TcpSocket,
}

impl Shop {
    /// Opens and closes as the dials say, until stopped.
    async fn run(self, mut listener: Option<TcpListener>) {
        let mut turns = self.node.turns();
        while !self.stop.is_cancelled() {
            match listener.take() {
                Some(open) => self.serve_while_up(open, &mut turns).await,
                None => tokio::select! {
                    () = self.stop.cancelled() => return,
                    _ = turns.changed() => {}
                },
            }
            if !is_down(&self.node) && !self.stop.is_cancelled() {
                match listen(self.addr, BACKLOG) {
                    Ok(open) => listener = Some(open),
                    Err(error) => {
                        tracing::warn!(%error, addr = %self.addr, "fake upstream cannot listen");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        turns.mark_changed();
                    }
                }
            }
        }
    }

    async fn serve_while_up(
        &self,
        listener: TcpListener,
        turns: &mut tokio::sync::watch::Receiver<u64>,
    ) {
        let open = self.stop.child_token();
        // Going down breaks the connections too.
        let _close = open.clone().drop_guard();
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while !is_down(&self.node) {
            let (stream, permit) = tokio::select! {
                () = self.stop.cancelled() => return,
                _ = turns.changed() => continue,
                accepted = accept(&listener, &room) => accepted,
            };
            let connection = serve(stream, Arc::clone(&self.node), open.clone());
            tokio::spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }
}

async fn serve(stream: TcpStream, node: Arc<SimNode>, open: CancellationToken) {
    let reset = Arc::new(AtomicBool::new(false));
    let socket = FakeSocket::new(stream, Arc::clone(&reset));
    let desk = HttpDesk { node, reset, open: open.clone() };
    let service = service_fn(move |request| desk.clone().serve(request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(H2_STREAMS_MAX);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(socket), service);
    tokio::select! {
        () = open.cancelled() => {}
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "connection to fake upstream broke");
            }
        }
    }
}
