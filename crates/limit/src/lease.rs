//! A limit that several replicas share, as one replica sees it.
//!
//! One bucket in a common store belongs to all replicas. Each takes tokens out of it in
//! advance, a *lease*, and spends them by itself: a call costs a few atomic operations and no
//! look at the store. The store's side is a script of `store`; what carries the messages
//! between the two is not known here.
//!
//! ```text
//! take ── tokens leased ────────────────────────────── admitted
//!      ├─ the store said that there are none ───────── refused until the next ask
//!      ├─ not asked yet, or the answer is under way ── on credit, within CREDIT
//!      ├─ beyond the credit ────────────────────────── unanswered: at most ANSWER_WITHIN, then
//!      └─ the store is silent, or away ─────────────── WhenAway: this replica's share, …
//! ```
//!
//! # Rules
//!
//! - It asks when it has at most half of what it wants, which is what the demand of late takes in
//!   [`STOCK`], and [`LEAST_CALLS`] calls more. Of a key with less than a call in [`LIFE`] each
//!   call goes on credit and is paid for by an ask: a lease would be given back as a whole.
//! - After less than half of what was wanted it does not ask again for [`GAP`], less by the part
//!   that was granted, or until the store has what the next call costs; calls are refused
//!   meanwhile. So a key under attack costs the store at most `2/GAP` asks a second and replica.
//! - A token is not spent later than [`LIFE`] after it was asked for. What is left is given back
//!   with the next ask, or by an ask of its own when it is more than a part of [`LINGER`].
//! - The store's bucket holds the burst, or what comes back in [`DEPTH`] if that is more: tokens
//!   would be lost between two asks otherwise.
//!
//! # Bounds
//!
//! A token leaves the store before it is spent, and is spent within [`LIFE`]; at most what comes
//! back in [`LINGER`] is neither spent nor given back. Beyond tokens there is the credit of all
//! replicas together, what comes back in [`CREDIT`], and at least one call each. With the rate `R`,
//! the burst `B` and `L` = [`LEASE`] = `LIFE + LINGER + DEPTH + CREDIT` any stretch of `W` admits
//! at most `R·(W + L) + B`, and one call more for each replica where the credit is less than that.
//! In the long run it is `R` exactly: what was taken on credit is paid with the tokens of later
//! leases.
//!
//! Not within that bound: a store that forgets, or whose clock steps ahead, adds a full bucket each
//! time; what a replica admits alone, while the store is away or silent, comes on top of what it had
//! leased; corrections after the call ([`LeasedBucket::charge`]) are paid later. A call dearer than
//! the burst passes as in [`crate::Bucket`].

#[cfg(test)]
#[path = "../tests/support/book.rs"]
mod book;
mod bucket;
mod cap;
mod demand;
mod gate;
mod limit;
mod pool;
mod side;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
mod window;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use bucket::{BucketTerms, LeasedBucket};
pub use cap::{CAP_LIFE, CapTerms, LeasedCap, PageAsk};
pub use gate::{GATE_LIFE, GateAsk, LeasedGate};
pub use limit::LeasedLimit;
pub use window::{LeasedWindow, WindowAsk, WindowGrant, WindowTerms};

/// `L`, by which a window of calls is longer for several replicas than for one.
pub const LEASE: Duration = Duration::from_millis(500);

/// How long a leased token can be spent, from the moment it was asked for.
pub const LIFE: Duration = Duration::from_millis(200);

/// Tokens past their time that all replicas together keep back for their next asks: what comes back
/// in this. A replica that has more than its part gives them back at once.
pub const LINGER: Duration = Duration::from_millis(100);

/// The store's bucket holds at least what comes back in this: more than [`GAP`] and a slow answer.
pub const DEPTH: Duration = Duration::from_millis(150);

/// On credit all replicas together take at most what comes back in this.
pub const CREDIT: Duration = Duration::from_millis(50);

/// How long a lease is meant to last.
pub const STOCK: Duration = Duration::from_millis(160);

/// The pause between asks while the store has less than is wanted.
pub const GAP: Duration = Duration::from_millis(100);

/// The least lease, in calls of the mean price. With less, a quiet key has none left while it
/// asks for more.
pub const LEAST_CALLS: u64 = 4;

/// How long a call beyond the credit waits for the store's word: for the control loop's turn, and
/// an answer that is as late as may be. A store that takes longer is silent, and the replica goes
/// by its own share.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(26);

/// Credits are counted in thousandths: a call may cost a tenth of one.
pub(crate) const MILLI: f64 = 1_000.0;

/// Why a call got no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseShortage {
    /// There are none, as the store said, or as the share of this replica has it. Worth
    /// another try after this.
    Refused(Duration),
    /// The store has not said: an ask is under way. It is worth waiting for the answer, this
    /// long at most; what is taken then is decided either way.
    Unanswered(Duration),
}

impl LeaseShortage {
    /// How long until another try is worth it.
    pub fn retry_after(self) -> Duration {
        match self {
            Self::Refused(wait) | Self::Unanswered(wait) => wait,
        }
    }
}

/// What holds while the store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenAway {
    /// This replica's share: the rate, the burst and the rest of the cap, divided by the
    /// replicas known last.
    #[default]
    Share,
    /// No limit.
    Open,
    /// Every call is refused.
    Closed,
}

/// What to ask the store for, in thousandths of a credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseAsk {
    /// As many as these.
    pub want: u64,
    /// Less is of no use: what is owed, or else what the next call costs. At most what a full
    /// bucket holds.
    pub need: u64,
    /// Tokens of earlier leases that were not spent.
    pub back: u64,
}

/// What the store gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseGrant {
    /// Thousandths of a credit.
    pub granted: u64,
    /// If less was granted than wanted: how long until there is what was needed.
    pub wait: Duration,
}

/// Rings when a limit wants the attention of the control plane. At most once until it was asked.
#[derive(Default)]
pub(crate) struct Bell(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Bell {
    /// The first one set stays.
    pub(crate) fn set(&self, ring: impl Fn() + Send + Sync + 'static) {
        let _first_stays = self.0.set(Box::new(ring));
    }

    pub(crate) fn ring(&self) {
        if let Some(ring) = self.0.get() {
            ring();
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.0.get().is_some()).finish()
    }
}

/// What one limit let through without the store, because it was away or silent.
#[derive(Debug, Default)]
pub(crate) struct AloneCount {
    amount: AtomicU64,
    /// Calls of all limits of the process. A sum over the limits that are left would fall with each
    /// that is dropped.
    calls: OnceLock<Arc<AtomicU64>>,
}

impl AloneCount {
    /// The first one set stays.
    pub(crate) fn set_calls(&self, calls: Arc<AtomicU64>) {
        let _first_stays = self.calls.set(calls);
    }

    /// One call more.
    pub(crate) fn add(&self, amount: u64) {
        self.amount.fetch_add(amount, Relaxed);
        if let Some(calls) = self.calls.get() {
            calls.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn amount(&self) -> u64 {
        self.amount.load(Relaxed)
    }
}

/// Credits in thousandths; what is no number costs nothing.
pub(crate) fn milli(credits: f64) -> u64 {
    (credits * MILLI).round() as u64
}
