//! The loop in which each worker accepts connections, and the drain at its end.
//!
//! What the workers share is in `shared`; which connection has a place, in `admission`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::admin::AdminService;
use crate::admission::{Admission, ConnectionPermit};
use crate::connection::{self, Worker};
use crate::count::ServerCounters;
use crate::handshake::Handshakes;
use crate::listen::{BACKLOG, Backoff, is_passing};
use crate::rpc::RpcService;
use crate::service::HttpService;
use crate::shared::ServerShared;
use crate::tls::Tls;
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
}

impl Server {
    /// Takes settings that have no [`Settings::problems`]. Its clients speak plain HTTP.
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
    pub async fn serve_admin<A: AdminHandler>(
        self: &Arc<Self>,
        listener: Listener,
        admin: Arc<A>,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        self.run(listener.start()?, AdminService::new(admin), shutdown).await
    }

    async fn run<E: HttpService>(
        self: &Arc<Self>,
        listener: TcpListener,
        service: E,
        shutdown: &Shutdown,
    ) -> io::Result<Drained> {
        let worker = Arc::new(Worker::new(Arc::clone(&self.shared), service, shutdown.worker()));
        let connections = TaskTracker::new();
        self.accept(&listener, &worker, &connections).await;
        drop(listener);

        connections.close();
        let open = connections.len();
        let ended = tokio::time::timeout(self.shared.settings.drain_timeout, connections.wait())
            .await
            .is_ok();
        let dropped = if ended { 0 } else { connections.len() };
        if !ended {
            self.shared.note_cut();
            worker.service.note_cut();
        }
        worker.drain.cut.cancel();
        connections.wait().await;
        Ok(Drained { finished: open - dropped, dropped })
    }

    async fn accept<E: HttpService>(
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
                    ServerCounters::add(&self.shared.counters.accept_failures);
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

    fn admit<E: HttpService>(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
    ) {
        ServerCounters::add(&self.shared.counters.accepted);
        let refusal = match self.admission.admit(peer) {
            Ok(permit) => return self.spawn(stream, worker, connections, permit),
            Err(refusal) => refusal,
        };
        // To wait in the accept queue would look like a dead server; 503 sends a
        // balancer to the next one.
        self.shared.counters.refuse(refusal);
        self.shared.tell(peer, refusal.status().as_u16(), refusal.word());
        if self.handshakes.is_some() {
            // To say so would take a handshake, which is the dearest part of a connection.
            return;
        }
        if let Ok(permit) = Arc::clone(&self.turning_away).try_acquire_owned() {
            let body = self.shared.refusals.of(refusal);
            tokio::spawn(async move {
                connection::turn_away(stream, refusal.status(), &body).await;
                drop(permit);
            });
        }
    }

    fn spawn<E: HttpService>(
        self: &Arc<Self>,
        stream: TcpStream,
        worker: &Arc<Worker<E>>,
        connections: &TaskTracker,
        permit: ConnectionPermit,
    ) {
        let worker = Arc::clone(worker);
        match &self.handshakes {
            None => connections.spawn(connection::run(stream, None, worker, permit)),
            Some(handshakes) => {
                let handshakes = Arc::clone(handshakes);
                connections.spawn(connection::run_tls(stream, handshakes, worker, permit))
            }
        };
    }
}
