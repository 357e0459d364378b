//! The loop in which each worker accepts connections, and the drain at its end.
//!
//! What the workers share is in `shared`; which connection has a place, in `admission`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::admin::AdminService;
use crate::admission::{Admission, ConnectionPermit};
use crate::connection::{self, Worker, run, run_tls};
use crate::count::ServerCounters;
use crate::handshake::Handshakes;
use crate::link::PeerProof;
use crate::listen::{BACKLOG, Backoff, is_passing};
use crate::local::{LocalListener, SocketFile};
use crate::proxied::{ANNOUNCING_MAX, Announced, PeerSource, ProxyFailure};
use crate::rpc::RpcService;
use crate::service::HttpService;
use crate::shared::ServerShared;
use crate::socket::ClientStream;
use crate::tls::{HandshakeFailure, Tls};
use crate::{AdminHandler, Drained, Handler, Listener, ServerCounts, Settings, Shutdown};

/// Clients that are being told at one moment that there is no room. The
/// others are closed without a word.
const TURNING_AWAY_MAX: usize = 64;

/// One listener address: its workers accept here, and stop here.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerShared>,
    admission: Arc<Admission>,
    /// `None` where clients speak plain HTTP.
    handshakes: Option<Arc<Handshakes>>,
    turning_away: Arc<Semaphore>,
    /// Places of connections that have not said where they come from.
    announcing: Arc<Semaphore>,
}

impl Server {
    /// Its clients speak plain HTTP.
    pub fn new(settings: Settings) -> Arc<Self> {
        Self::with(settings, None)
    }

    /// As [`Self::new`]; with `tls` its clients speak that and nothing else.
    pub fn with(settings: Settings, tls: Option<Arc<Tls>>) -> Arc<Self> {
        let shared = Arc::new(ServerShared::new(settings));
        Arc::new(Self {
            admission: Arc::new(Admission::new(Arc::clone(&shared))),
            handshakes: tls.map(|tls| Arc::new(Handshakes::new(tls))),
            turning_away: Arc::new(Semaphore::new(TURNING_AWAY_MAX)),
            announcing: Arc::new(Semaphore::new(ANNOUNCING_MAX)),
            shared,
        })
    }

    /// What was counted so far, over all workers.
    pub fn counts(&self) -> ServerCounts {
        self.shared.counters.read()
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
        self.run(listener.start()?, RpcService::new(handler), shutdown).await
    }

    /// Serves metrics, health and the status page on `listener`; see [`AdminHandler`].
    /// Meant for a server of its own, made with [`Settings::admin`].
    pub async fn serve_admin(
        self: &Arc<Self>,
        listener: Listener,
        admin: Arc<dyn AdminHandler>,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        self.run(listener.start()?, AdminService::new(admin), shutdown).await
    }

    /// As [`Self::serve_admin`], for programs of this machine. The mode of the file decides
    /// which users may connect, and each connection may do everything. The file is removed when draining begins.
    pub async fn serve_admin_locally(
        self: &Arc<Self>,
        listener: LocalListener,
        admin: Arc<dyn AdminHandler>,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        self.run(listener.start()?, AdminService::new(admin), shutdown).await
    }

    async fn run<L: Door, E: HttpService>(
        self: &Arc<Self>,
        listener: L,
        service: E,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        let worker = Arc::new(Worker::new(Arc::clone(&self.shared), service, shutdown.worker()));
        let connections = TaskTracker::new();
        self.accept(&listener, &worker, &connections).await;
        drop(listener);

        connections.close();
        let open = connections.len();
        let drain_timeout = self.shared.settings.drain_timeout;
        let idle_time = match worker.drain.is_handed_over() {
            true => self.shared.settings.late_request_time.min(drain_timeout / 2),
            false => Duration::ZERO,
        };
        let ended = tokio::time::timeout(drain_timeout, async {
            let _some_are_open = tokio::time::timeout(idle_time, connections.wait()).await;
            worker.drain.idle_over.cancel();
            connections.wait().await;
        });
        let ended = ended.await.is_ok();
        let dropped = if ended { 0 } else { connections.len() };
        if !ended {
            self.shared.note_cut();
            worker.service.note_cut();
        }
        worker.drain.cut.cancel();
        connections.wait().await;
        Ok(Drained { finished: open - dropped, dropped })
    }

    async fn accept<L: Door, E: HttpService>(
        self: &Arc<Self>,
        listener: &L,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        let mut backoff = Backoff::new();
        let mut begun = std::pin::pin!(worker.drain.begun.cancelled());
        loop {
            let accepted = tokio::select! {
                biased;
                () = begun.as_mut() => break,
                accepted = listener.next() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff.succeeded();
                    L::admit(self, stream, peer, worker, connections);
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    ServerCounters::add(&self.shared.counters.accept_failures_total);
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
            let Some(Ok((stream, peer))) = listener.next().now_or_never() else { break };
            L::admit(self, stream, peer, worker, connections);
        }
    }

    /// Reads which client a proxy has connected, and gives the connection a place as that client's.
    async fn announced<E>(
        &self,
        mut stream: TcpStream,
        proxy: SocketAddr,
        is_required: bool,
        worker: &Worker<E>,
    ) -> Option<(TcpStream, Vec<u8>, ConnectionPermit)> {
        match connection::read_client(&mut stream, is_required, worker).await {
            Ok(Announced { client, unread }) => {
                let (stream, permit) = self.place(stream, client.unwrap_or(proxy))?;
                Some((stream, unread, permit))
            }
            Err(failure) => {
                self.fail(proxy, failure);
                None
            }
        }
    }

    async fn serve_announced<E: HttpService>(
        &self,
        stream: TcpStream,
        unread: Vec<u8>,
        worker: Arc<Worker<E>>,
        permit: ConnectionPermit,
    ) {
        match &self.handshakes {
            None => run(stream, None, unread, worker, permit).await,
            // No record of TLS begins as a header does.
            Some(_) if !unread.is_empty() => {
                self.shared.counters.fail_handshake(HandshakeFailure::NotTls);
            }
            Some(handshakes) => run_tls(stream, Arc::clone(handshakes), worker, permit).await,
        }
    }

    /// Counts a connection that is closed before its client is known.
    fn fail(&self, peer: SocketAddr, failure: ProxyFailure) {
        ServerCounters::add(&self.shared.counters.proxy_failed[failure as usize]);
        self.shared.hint_at_proxy(peer, failure);
    }

    /// Gives a connection a place; where there is none it is turned away.
    fn place<S: ClientStream>(&self, stream: S, peer: SocketAddr) -> Option<(S, ConnectionPermit)> {
        let refusal = match self.admission.admit(peer) {
            Ok(permit) => return Some((stream, permit)),
            Err(refusal) => refusal,
        };
        // To wait in the accept queue would look like a dead server; 503 sends a
        // balancer to the next one.
        self.shared.counters.refuse(refusal);
        self.shared.tell(peer, refusal.status().as_u16(), refusal.word());
        if self.handshakes.is_some() {
            // To say so would take a handshake, which is the dearest part of a connection.
            return None;
        }
        if let Ok(permit) = Arc::clone(&self.turning_away).try_acquire_owned() {
            let body = self.shared.refusals.of(refusal);
            tokio::spawn(async move {
                connection::turn_away(stream, refusal.status(), &body).await;
                drop(permit);
            });
        }
        None
    }
}

/// What connections come in at.
trait Door: Send + Sync {
    type Stream: Send;

    /// The next connection and its peer.
    async fn next(&self) -> io::Result<(Self::Stream, SocketAddr)>;

    /// Serves a connection that came in.
    fn admit<E: HttpService>(
        server: &Arc<Server>,
        stream: Self::Stream,
        peer: SocketAddr,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    );
}

impl Door for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }

    fn admit<E: HttpService>(
        server: &Arc<Server>,
        stream: TcpStream,
        peer: SocketAddr,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        ServerCounters::add(&server.shared.counters.accepted_total);
        match server.shared.settings.proxy_protocol.source(peer.ip()) {
            PeerSource::Socket => {
                if let Some((stream, permit)) = server.place(stream, peer) {
                    let worker = Arc::clone(worker);
                    match &server.handshakes {
                        None => connections.spawn(run(stream, None, Vec::new(), worker, permit)),
                        Some(handshakes) => {
                            let handshakes = Arc::clone(handshakes);
                            connections.spawn(run_tls(stream, handshakes, worker, permit))
                        }
                    };
                }
            }
            PeerSource::Refused => server.fail(peer, ProxyFailure::Untrusted),
            source @ (PeerSource::Header | PeerSource::MaybeHeader) => {
                let Ok(place) = Arc::clone(&server.announcing).try_acquire_owned() else {
                    return server.fail(peer, ProxyFailure::Full);
                };
                let (server, worker) = (Arc::clone(server), Arc::clone(worker));
                let is_required = source == PeerSource::Header;
                connections.spawn(async move {
                    // Boxed: its room is not wanted any more afterwards.
                    let announced = server.announced(stream, peer, is_required, &worker);
                    let announced = Box::pin(announced).await;
                    drop(place);
                    if let Some((stream, unread, permit)) = announced {
                        server.serve_announced(stream, unread, worker, permit).await;
                    }
                });
            }
        }
    }
}

/// Peers of a socket file have no address; they count as this one.
const LOCAL_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Door for (UnixListener, Option<SocketFile>) {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, _) = self.0.accept().await?;
        Ok((stream, LOCAL_PEER))
    }

    fn admit<E: HttpService>(
        server: &Arc<Server>,
        stream: UnixStream,
        peer: SocketAddr,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        ServerCounters::add(&server.shared.counters.accepted_total);
        let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
        if let Some((stream, permit)) = server.place(stream, peer) {
            permit.link().prove(PeerProof::LocalUser(user));
            let worker = Arc::clone(worker);
            connections.spawn(run(stream, None, Vec::new(), worker, permit));
        }
    }
}
