//! The leases of connections, and what happens when a lease ends.
//!
//! Every connection is counted while it is open, by something that cannot be
//! forgotten: dropping it is what ends the count.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::{Bulky, Pool, State};
use crate::caps::Ending;
use crate::h1::H1Connection;
use crate::h2::{Fate, H2Connection, H2Observer};
use crate::protocol::{CloseReason, Protocol};
use crate::stats::ConnectionStats;

/// An HTTP/1.1 connection and its place among those that are open.
#[derive(Debug)]
pub(super) struct Pooled {
    pub(super) connection: Box<H1Connection>,
    pub(super) member: H1Member,
}

impl Pooled {
    /// Ends an idle connection under the pool's lock.
    pub(super) fn end_idle(self, open: &mut usize, reason: CloseReason) {
        self.member.count_out(reason);
        self.connection.note_end(reason);
        *open -= 1;
        self.connection.close();
    }

    /// Ends a connection in use; must be called without the pool's lock.
    pub(super) fn end(self, reason: CloseReason) {
        let Self { connection, mut member } = self;
        member.reason = reason;
        connection.note_end(reason);
        connection.close();
        drop(member);
    }
}

/// Counts one HTTP/1.1 connection while it is open.
#[derive(Debug)]
pub(super) struct H1Member {
    pool: Weak<Pool>,
    stats: Arc<ConnectionStats>,
    reason: CloseReason,
    counted_out: bool,
}

impl H1Member {
    /// Notes the end where the pool's lock is held; the pool's own count is its holder's.
    fn count_out(mut self, reason: CloseReason) {
        self.counted_out = true;
        self.stats.note_closed(Protocol::H1, reason);
    }
}

impl Drop for H1Member {
    fn drop(&mut self) {
        if self.counted_out {
            return;
        }
        self.stats.note_closed(Protocol::H1, self.reason);
        if let Some(pool) = self.pool.upgrade() {
            pool.h1_ended();
        }
    }
}

/// Counts one HTTP/2 connection while its task lives.
pub(super) struct H2Member {
    pool: Weak<Pool>,
    stats: Arc<ConnectionStats>,
    fate: Fate,
}

impl H2Observer for H2Member {
    fn changed(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.h2_changed();
        }
    }

    fn ended(&self, ending: &Ending, now: Instant) {
        self.stats.caps.ended(ending, now);
    }

    fn proven(&self, streams: usize, now: Instant) {
        self.stats.caps.proven(streams, now);
    }
}

impl Drop for H2Member {
    fn drop(&mut self) {
        self.stats.note_closed(Protocol::H2, self.fate.get());
        self.changed();
    }
}

impl Pool {
    /// Counts an HTTP/1.1 connection as open.
    pub(super) fn admit_h1(self: &Arc<Self>, state: &mut State) -> H1Member {
        self.stats.note_opened(Protocol::H1);
        state.h1_open += 1;
        let (pool, stats) = (Arc::downgrade(self), Arc::clone(&self.stats));
        H1Member { pool, stats, reason: CloseReason::Peer, counted_out: false }
    }

    /// Counts an HTTP/2 connection as open.
    pub(super) fn admit_h2(self: &Arc<Self>, fate: Fate) -> H2Member {
        self.stats.note_opened(Protocol::H2);
        H2Member { pool: Arc::downgrade(self), stats: Arc::clone(&self.stats), fate }
    }
}

/// An HTTP/1.1 connection for one exchange.
///
/// Dropped before it was used, it goes back; dropped during use, it is ended,
/// so that a late answer cannot reach another call.
#[derive(Debug)]
pub(crate) struct H1Lease {
    pool: Arc<Pool>,
    pub(super) pooled: Option<Pooled>,
    pub(super) bulky: Option<Bulky>,
    used: bool,
}

impl H1Lease {
    pub(super) fn new(pool: &Arc<Pool>, pooled: Pooled) -> Self {
        Self { pool: Arc::clone(pool), pooled: Some(pooled), bulky: None, used: false }
    }

    /// The connection, for use.
    pub(crate) fn connection(&mut self) -> &mut H1Connection {
        self.used = true;
        &mut self.pooled.as_mut().expect("taken only where the lease is consumed").connection
    }

    /// Whether all that was announced of the answer's body arrived with its head.
    pub(crate) fn has_arrived(&self) -> bool {
        self.pooled.as_ref().is_some_and(|pooled| pooled.connection.has_arrived())
    }

    /// Whether the answer under way is complete.
    pub(crate) fn is_end(&self) -> bool {
        self.pooled.as_ref().is_some_and(|pooled| pooled.connection.is_end())
    }

    /// Gives the connection back after a complete exchange, if it is fit for another.
    pub(crate) fn finish(mut self, now: Instant) {
        let Some(mut pooled) = self.pooled.take() else { return };
        match pooled.connection.unfit() {
            Some(reason) => pooled.end(reason),
            None => {
                pooled.connection.rest_until_next(now);
                self.pool.give_back(pooled, now);
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn discard(mut self, reason: CloseReason) {
        if let Some(pooled) = self.pooled.take() {
            pooled.end(reason);
        }
    }
}

impl Drop for H1Lease {
    fn drop(&mut self) {
        let Some(pooled) = self.pooled.take() else { return };
        if self.used {
            pooled.end(CloseReason::Abandoned);
        } else {
            self.pool.give_back(pooled, Instant::now());
        }
    }
}

/// A place on an HTTP/2 connection for one exchange, given back when dropped.
#[derive(Debug)]
pub(crate) struct H2Lease {
    pool: Arc<Pool>,
    connection: Arc<H2Connection>,
    pub(super) bulky: Option<Bulky>,
}

impl H2Lease {
    pub(super) fn new(pool: &Arc<Pool>, connection: &Arc<H2Connection>) -> Self {
        connection.enter();
        Self { pool: Arc::clone(pool), connection: Arc::clone(connection), bulky: None }
    }

    pub(crate) fn connection(&self) -> &Arc<H2Connection> {
        &self.connection
    }
}

impl Drop for H2Lease {
    fn drop(&mut self) {
        self.connection.leave();
        if !self.pool.queue_length.is_zero() {
            self.pool.h2_changed();
        }
    }
}
