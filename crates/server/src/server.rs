//! What all workers share, and the loop in which each of them accepts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::admin::Pages;
use crate::connection::{self, Endpoint, Seat, Worker};
use crate::cors::Cors;
use crate::count::Counters;
use crate::head::Head;
use crate::line::LineLimit;
use crate::link::Link;
use crate::listen::{BACKLOG, Backoff, is_passing};
use crate::peers::{Peer, Peers};
use crate::refusal::Bodies;
use crate::rpc::Rpc;
use crate::tls::Tls;
use crate::{Admin, Counts, Drained, Handler, Listener, Refusal, Settings, Shutdown};

/// Clients that are being told at one moment that there is no room. The
/// others are closed without a word.
const TURNING_AWAY_MAX: usize = 64;

/// This much of a name from outside is shown, and nothing but printable ASCII.
const NAME_CHARS_MAX: usize = 100;

fn shown(name: &[u8]) -> String {
    let printable = name.iter().filter(|byte| byte.is_ascii_graphic());
    printable.take(NAME_CHARS_MAX).map(|byte| char::from(*byte)).collect()
}

/// Settings, bounds and counters of one address, shared by its workers.
#[derive(Debug)]
pub struct Server {
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) cors: Cors,
    pub(crate) refusals: Bodies,
    pub(crate) compression_jobs: Semaphore,
    tls: Option<Arc<Tls>>,
    turning_away: Arc<Semaphore>,
    peers: Peers,
    lines: LineLimit,
    origin_hints: LineLimit,
    host_hints: LineLimit,
    flood_hints: LineLimit,
    hoarder_hints: LineLimit,
}

impl Server {
    /// Takes settings that have no [`Settings::problems`]. Its clients speak plain HTTP.
    pub fn new(settings: Settings) -> Arc<Self> {
        Self::with(settings, None)
    }

    /// As [`Self::new`]; with `tls` its clients speak that and nothing else.
    pub fn with(settings: Settings, tls: Option<Arc<Tls>>) -> Arc<Self> {
        Arc::new(Self {
            tls,
            cors: Cors::new(&settings.cors_origins),
            refusals: Bodies::new(&settings),
            compression_jobs: Semaphore::new(settings.compression.jobs_max),
            turning_away: Arc::new(Semaphore::new(TURNING_AWAY_MAX)),
            counters: Counters::default(),
            peers: Peers::default(),
            lines: LineLimit::of_lines(),
            origin_hints: LineLimit::of_hints(),
            host_hints: LineLimit::of_hints(),
            flood_hints: LineLimit::of_hints(),
            hoarder_hints: LineLimit::of_hints(),
            settings,
        })
    }

    /// What was counted so far, over all workers.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// Leaves the line of a request that no handler tells of, or counts it as left out.
    pub(crate) fn tell(&self, peer: SocketAddr, status: u16, reason: &'static str) {
        if !self.settings.log_requests {
            return;
        }
        if let Some(left_out) = self.lines.take(Instant::now()) {
            tracing::info!(target: "wellhead::request", %peer, status, reason, left_out, "request");
        }
    }

    /// Says which web page was refused, as the page itself is told nothing.
    pub(crate) fn hint_at_origin(&self, origin: Option<&[u8]>) {
        if let Some(left_out) = self.origin_hints.take(Instant::now()) {
            let origin = shown(origin.unwrap_or_default());
            tracing::warn!(
                origin,
                left_out,
                "a web page may not call from a browser: list its origin under `cors.origins`"
            );
        }
    }

    /// Says under which name a request was refused, as few clients show what they are answered,
    /// and which setting lists names.
    pub(crate) fn hint_at_host(&self, head: &Head<'_>, setting: &'static str) {
        if let Some(left_out) = self.host_hints.take(Instant::now()) {
            let authority = head.target.authority().map(str::as_bytes);
            let host = shown(head.headers.get("host").or(authority).unwrap_or_default());
            tracing::warn!(
                host,
                left_out,
                "a request by this name was refused: list the name under `{setting}`"
            );
        }
    }

    /// Says which client's connection was ended for a flood.
    pub(crate) fn hint_at_flood(&self, peer: SocketAddr) {
        if let Some(left_out) = self.flood_hints.take(Instant::now()) {
            tracing::warn!(
                %peer,
                left_out,
                "an HTTP/2 connection was ended: its client resets streams without end"
            );
        }
    }

    /// Says which client's connection was ended for what it did not take.
    pub(crate) fn hint_at_hoarder(&self, peer: SocketAddr) {
        if let Some(left_out) = self.hoarder_hints.take(Instant::now()) {
            tracing::warn!(
                %peer,
                left_out,
                "a connection was ended: its client lets many answers wait and takes none"
            );
        }
    }

    /// Serves JSON-RPC on `listener` until `shutdown` begins and the drain is
    /// over. One call for each worker, on that worker's runtime.
    ///
    /// Fails only when the listener cannot be registered with the runtime.
    pub async fn serve<H: Handler>(
        self: &Arc<Self>,
        listener: Listener,
        handler: Arc<H>,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        self.run(listener.start()?, Rpc::new(handler), shutdown).await
    }

    /// Serves metrics, health and the status page on `listener`; see [`Admin`].
    /// Meant for a server of its own, made with [`Settings::admin`].
    pub async fn serve_admin<A: Admin>(
        self: &Arc<Self>,
        listener: Listener,
        admin: Arc<A>,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        self.run(listener.start()?, Pages::new(admin), shutdown).await
    }

    async fn run<E: Endpoint>(
        self: &Arc<Self>,
        listener: TcpListener,
        endpoint: E,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        let worker = Arc::new(Worker::new(Arc::clone(self), endpoint, shutdown.worker()));
        let connections = TaskTracker::new();
        self.accept(&listener, &worker, &connections).await;
        drop(listener);

        connections.close();
        let open = connections.len();
        let ended =
            tokio::time::timeout(self.settings.drain_timeout, connections.wait()).await.is_ok();
        let dropped = if ended { 0 } else { connections.len() };
        worker.drain.cut.cancel();
        connections.wait().await;
        Ok(Drained { finished: open - dropped, dropped })
    }

    async fn accept<E: Endpoint>(
        self: &Arc<Self>,
        listener: &TcpListener,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        let mut backoff = Backoff::new();
        let mut begun = std::pin::pin!(worker.drain.begun.cancelled());
        loop {
            let accepted = tokio::select! {
                biased;
                () = begun.as_mut() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff.succeeded();
                    self.admit(stream, peer, worker, connections);
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    Counters::add(&self.counters.accept_failures);
                    if backoff.is_fresh() {
                        tracing::warn!(%error, "cannot accept connections; trying again");
                    }
                    let pause = backoff.failed();
                    tokio::select! {
                        biased;
                        () = begun.as_mut() => break,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
        // Clients in the queue believe that they are connected; closing the
        // socket would reset them. They are served one answer.
        tokio::task::yield_now().await;
        for _ in 0..BACKLOG {
            let Some(Ok((stream, peer))) = listener.accept().now_or_never() else { break };
            self.admit(stream, peer, worker, connections);
        }
    }

    fn admit<E: Endpoint>(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        Counters::add(&self.counters.accepted);
        let refusal = match Seat::take(self, peer) {
            Ok(seat) => return self.spawn(stream, worker, connections, seat),
            Err(refusal) => refusal,
        };
        // To wait in the accept queue would look like a dead server; 503 sends a
        // balancer to the next one.
        self.counters.refuse(refusal);
        self.tell(peer, refusal.status().as_u16(), refusal.word());
        if self.tls.is_some() {
            // To say so would take a handshake, which is the dearest part of a connection.
            return;
        }
        if let Ok(permit) = Arc::clone(&self.turning_away).try_acquire_owned() {
            let body = self.refusals.of(refusal);
            tokio::spawn(async move {
                connection::turn_away(stream, refusal.status(), &body).await;
                drop(permit);
            });
        }
    }

    fn spawn<E: Endpoint>(
        self: &Arc<Self>,
        stream: TcpStream,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
        seat: Seat,
    ) {
        let worker = Arc::clone(worker);
        match &self.tls {
            None => connections.spawn(connection::run(stream, None, worker, seat)),
            Some(tls) => {
                let tls = Arc::clone(tls);
                connections.spawn(connection::run_tls(stream, tls, worker, seat))
            }
        };
    }

    /// Takes the place of one more connection from `peer`; says which bound is reached when
    /// there is none.
    pub(crate) fn take_seat(self: &Arc<Self>, peer: SocketAddr) -> Result<Arc<Link>, Refusal> {
        let settings = &self.settings;
        let open_before = self.counters.connections_open.fetch_add(1, Relaxed);
        let refused = |refusal| {
            self.counters.connections_open.fetch_sub(1, Relaxed);
            Err(refusal)
        };
        let now = Instant::now();
        let link = |share| Arc::new(Link::new(Arc::clone(self), peer, share, now));
        let is_full = open_before >= settings.connections_max;
        let most = settings.connections_per_peer_max;
        if !settings.shares && most.is_none() {
            return if is_full { refused(Refusal::ConnectionsFull) } else { Ok(link(None)) };
        }
        let share = |share| link(Some(share).filter(|_| settings.shares));
        let entered = self.peers.enter(Peer::of(peer.ip()), most.unwrap_or(usize::MAX), share);
        let Some(link) = entered else { return refused(Refusal::PeerFull) };
        if is_full { self.squeeze_in(link, now) } else { Ok(link) }
    }

    /// Has `newcomer` stay in the place of another connection, if there is one that gives way.
    fn squeeze_in(&self, newcomer: Arc<Link>, now: Instant) -> Result<Arc<Link>, Refusal> {
        if self.settings.shares && self.make_room(&newcomer, now) {
            return Ok(newcomer);
        }
        // Another newcomer may have displaced this one by now, and has counted that.
        self.leave_seat(&newcomer);
        Err(Refusal::ConnectionsFull)
    }

    /// Has another connection end, so that `newcomer` may stay.
    fn make_room(&self, newcomer: &Arc<Link>, now: Instant) -> bool {
        let seats = self.settings.connections_max;
        let Some(displaced) = self.peers.displace(newcomer, seats, now) else { return false };
        self.counters.connections_open.fetch_sub(1, Relaxed);
        Counters::add(&self.counters.displaced);
        displaced.displace();
        true
    }

    /// Gives the place back, unless another connection has it already.
    pub(crate) fn leave_seat(&self, link: &Link) {
        if !link.leave_seat() {
            return;
        }
        if self.settings.shares || self.settings.connections_per_peer_max.is_some() {
            self.peers.leave(link);
        }
        self.counters.connections_open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_that_is_displaced_before_it_has_room_is_counted_once() {
        let server = Server::new(Settings { connections_max: 2, ..Settings::default() });
        let peer = |address: u8| SocketAddr::from(([10, 0, 0, address], 1));
        let open = || server.counters.connections_open.load(Relaxed);
        let now = Instant::now();
        // Entered, and the next moment another worker's newcomer takes its seat.
        let first = server.take_seat(peer(1)).expect("there is room");
        let own = server.take_seat(peer(1)).expect("there is room");
        let other = server.take_seat(peer(2)).expect("the first gives way");
        assert!(first.is_displaced());
        assert_eq!(open(), 2);
        let refused = server.squeeze_in(Arc::clone(&first), now).map(|_| ());
        assert_eq!(refused, Err(Refusal::ConnectionsFull));
        assert_eq!(open(), 2);
        server.leave_seat(&own);
        server.leave_seat(&other);
        assert_eq!(open(), 0);
    }
}
