//! Stopping without losing an answer.
//!
//! [`Shutdown::begin`] is heard by every worker: it serves what already waits in
//! the accept queue, stops listening, lets answers under way finish (HTTP/1.1
//! with `connection: close`, HTTP/2 after GOAWAY), and drops what is left when the
//! drain time is over. An idle connection of HTTP/1.1 is closed a moment later,
//! with its next answer if there is one: its client may have sent a request, and
//! could not tell whether it was read. When to begin (after
//! readiness was withdrawn for a while, say) is for `app` to decide.

use std::ops::AddAssign;

use tokio_util::sync::CancellationToken;

/// The handle that begins the drain. Clones are the same handle.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    begun: CancellationToken,
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

    /// Whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits until the drain begins.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// A worker's own view. Its connections register there and not at the
    /// handle, so that workers do not meet at one lock for each connection.
    pub(crate) fn worker(&self) -> Drain {
        let (idle_over, cut) = (CancellationToken::new(), CancellationToken::new());
        Drain { begun: self.begun.child_token(), idle_over, cut }
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
}
