//! Stopping without losing an answer.
//!
//! [`Shutdown::begin`] is heard by every worker: it serves what already waits in
//! the accept queue, stops listening, lets answers under way finish (HTTP/1.1
//! with `connection: close`, HTTP/2 after GOAWAY), and drops what is left when the
//! drain time is over. Idle connections are closed; after a hand-over those of
//! HTTP/1.1 a moment later, with their next answer if there is one: a client may have
//! sent a request, and could not tell whether it was read. When to begin (after
//! readiness was withdrawn for a while, say) is for `app` to decide.

use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio_util::sync::CancellationToken;

/// The handle that begins the drain. Clones are the same handle.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    begun: CancellationToken,
    is_handed_over: Arc<AtomicBool>,
}

/// How the connections of a worker ended once draining had begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Ended by themselves, every answer delivered.
    pub finished: usize,
    /// Dropped when the drain time was over.
    pub dropped: usize,
}

impl AddAssign for Drained {
    fn add_assign(&mut self, other: Self) {
        self.finished += other.finished;
        self.dropped += other.dropped;
    }
}

impl Shutdown {
    /// A handle whose drain has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain; a second call changes nothing.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Begins the drain of a process that has handed its listening sockets over: clients are served all the while,
    /// and idle connections have time for a last request.
    pub fn begin_handed_over(&self) {
        self.is_handed_over.store(true, Relaxed);
        self.begun.cancel();
    }

    /// Waits until the drain begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// A worker's own view. Its connections register there and not at the
    /// handle, so that workers do not meet at one lock for each connection.
    pub(crate) fn worker(&self) -> Drain {
        let (idle_over, cut) = (CancellationToken::new(), CancellationToken::new());
        let is_handed_over = Arc::clone(&self.is_handed_over);
        Drain { begun: self.begun.child_token(), idle_over, cut, is_handed_over }
    }
}

/// What the connections of one worker listen to.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) begun: CancellationToken,
    /// Connections that wait for a request since the drain began have had their time.
    pub(crate) idle_over: CancellationToken,
    /// The drain time is over.
    pub(crate) cut: CancellationToken,
    is_handed_over: Arc<AtomicBool>,
}

impl Drain {
    /// Whether another process listens on the sockets by now.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Relaxed)
    }
}
