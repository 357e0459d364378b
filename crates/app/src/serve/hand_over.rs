//! Both ends of a hand-over, on the control thread: see [`crate::handover`].

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use wellhead_proxy::Readiness;
use wellhead_server::{Listener, SocketFileLease};

use super::{Running, ServingEnd};
use crate::admin_listener::AdminListener;
use crate::handover::{
    HandOverDesk, HandOverRequest, KeptSockets, Predecessor, Successor, VERIFIED_WITHIN,
};
use crate::serve_error::ServeError;
use crate::systemd;

/// How often upstreams are looked at that are not verified yet.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a process has of the one before it, and keeps for the one after it.
pub(super) struct Succession {
    pub(super) predecessor: Option<Predecessor>,
    /// Whether connections are accepted. Dropped, workers that accept nothing yet end.
    open: Option<watch::Sender<bool>>,
    kept: KeptSockets,
    /// The right to remove the socket file of the admin listener.
    lease: SocketFileLease,
    /// Where a hand-over is asked for, and where that comes out.
    pub(super) desk: HandOverDesk,
    pub(super) requests: mpsc::Receiver<HandOverRequest>,
    is_allowed: bool,
}

impl Succession {
    pub(super) fn new(
        predecessor: Option<Predecessor>,
        listeners: &[Listener],
        admin: Option<&AdminListener>,
    ) -> Result<Self, ServeError> {
        let system = |error| ServeError::System("a listening socket cannot be copied", error);
        let clients = listeners.iter().map(Listener::copy).collect::<io::Result<Vec<_>>>();
        let clients = clients.map_err(system)?;
        let (admin, lease) = admin.map(AdminListener::copy).transpose().map_err(system)?.unzip();
        let (desk, requests) = HandOverDesk::new();
        let (open, _) = watch::channel(predecessor.is_none());
        Ok(Self {
            predecessor,
            open: Some(open),
            kept: KeptSockets { clients, admin },
            lease: lease.unwrap_or_default(),
            desk,
            requests,
            is_allowed: false,
        })
    }

    /// Whether connections are accepted; an error when they will not be.
    pub(super) fn is_open(&self) -> watch::Receiver<bool> {
        // Until it ends it has a sender.
        self.open.as_ref().map_or_else(|| watch::channel(false).1, watch::Sender::subscribe)
    }

    /// This process accepts nothing more: the sockets close, unless a successor has them.
    pub(super) fn end(&mut self, end: &ServingEnd) {
        if let ServingEnd::HandedOver { .. } = end {
            self.lease.leave();
        }
        self.kept = KeptSockets::default();
        self.open = None;
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
    }
}

/// A hand-over whose successor is starting. Dropped, the successor is killed.
pub(super) struct BegunHandOver {
    request: HandOverRequest,
    successor: Successor,
}

impl Running {
    /// Lets a successor take the sockets over when it is asked for. Without it they stay.
    pub(crate) fn handing_over(self) -> Self {
        Self { succession: Succession { is_allowed: true, ..self.succession }, ..self }
    }

    /// Has the workers accept connections: at once, or, of a process that takes over, when its upstreams are verified.
    pub(super) async fn open(&self) -> Result<(), ServeError> {
        if self.succession.predecessor.is_some() {
            self.verified().await?;
        }
        if let Some(open) = &self.succession.open {
            open.send_replace(true);
        }
        Ok(())
    }

    /// Says that connections are accepted: to the predecessor, which tells the service manager of this process, or to
    /// the service manager.
    pub(super) fn tell_ready(&self) {
        match &self.succession.predecessor {
            Some(predecessor) => predecessor.tell_ready(),
            None => systemd::tell_ready(&self.proxy.load()),
        }
    }

    /// Waits until each chain has an upstream that can be asked; after a while it is enough that one has.
    async fn verified(&self) -> Result<(), ServeError> {
        let all = async {
            while !self.proxy.load().readiness().unserved.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        if tokio::time::timeout(VERIFIED_WITHIN, all).await.is_ok() {
            return Ok(());
        }
        let Readiness { is_ready, unserved } = self.proxy.load().readiness();
        if !is_ready {
            return Err(ServeError::NotReady(unserved));
        }
        tracing::warn!(
            chains = unserved.join(", "),
            "taking over with chains that no upstream serves"
        );
        Ok(())
    }

    /// Starts a successor, unless one is starting.
    pub(super) fn begin_hand_over(
        &self,
        request: HandOverRequest,
        begun: &mut Option<BegunHandOver>,
    ) {
        if !self.succession.is_allowed {
            return request.refuse("only `wellhead serve` hands its sockets over");
        }
        if std::process::id() == 1 {
            return request.refuse(
                "this is the first process of a container, which ends with it: replace the container",
            );
        }
        // What two processes have spent would wait for one file.
        if self.succession.predecessor.is_some()
            && self.state.as_ref().is_some_and(|state| !state.is_owner())
        {
            return request.refuse(
                "the process before this one has the `state` file still: try again when it has drained",
            );
        }
        if begun.is_some() {
            return request.refuse("another hand-over is under way");
        }
        match Successor::start(&self.succession.kept) {
            Ok(successor) => {
                tracing::info!(
                    pid = successor.pid(),
                    "a new process is starting, to take over the sockets"
                );
                *begun = Some(BegunHandOver { request, successor });
            }
            Err(error) => request.refuse(&format!("the new process cannot be started: {error}")),
        }
    }
}

/// What becomes of the hand-over that has begun; never, where none has.
pub(super) async fn outcome_of(begun: &mut Option<BegunHandOver>) -> Result<(), String> {
    match begun {
        Some(begun) => begun.successor.wait_ready().await,
        None => std::future::pending().await,
    }
}

impl BegunHandOver {
    /// Tells what became of it; returns the process that serves from now on, if there is one.
    pub(super) fn end(self, outcome: Result<(), String>) -> Option<u32> {
        let pid = self.successor.pid();
        match outcome {
            Ok(()) => {
                tracing::info!(pid, "the new process accepts connections: this one drains");
                self.request.tell(Ok(pid));
                Some(pid)
            }
            Err(why) => {
                // It is killed before that is told.
                drop(self.successor);
                self.request.refuse(&why);
                None
            }
        }
    }
}
