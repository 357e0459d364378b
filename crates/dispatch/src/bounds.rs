//! What the settings allow a call: attempts, time, bytes, hedges, tiers.

use std::time::{Duration, Instant};

use wellhead_eth::CostClass;
use wellhead_upstream::Upstream;

use crate::attempt::AttemptDeadline;

/// Logs and traces may take this many times as long as a plain call.
pub(crate) const HEAVY_FACTOR: u32 = 4;

/// An upstream is blamed for silence when it had this share of its time (one half).
const BLAME_SHARE: u32 = 2;

/// How long a call waits for a hedge while nothing was measured of its class.
const UNMEASURED: Duration = Duration::from_millis(250);

/// A quarter of the least silence that is taken for a stall.
const BATCH_DELAY_MIN: Duration = Duration::from_millis(63);

/// How long and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Attempts per call, the first included; zero counts as one.
    pub attempts_max: usize,
    /// One attempt of a plain call, connection set-up included. Logs and traces get
    /// four times as long.
    pub attempt: Duration,
    /// A longer answer is passed on as it arrives, when the job allows it.
    pub whole_bytes_max: usize,
    /// No longer answer is ever held.
    pub answer_bytes_max: usize,
    /// The answers to one batch together are never longer.
    pub batch_bytes_max: usize,
    /// When a read gets a second attempt beside the first; `None`: never.
    pub hedging: Option<Hedging>,
    /// A raw transaction goes to at most this many fit upstreams at once.
    pub broadcast_max: usize,
    /// To which tiers, while the best of them is well.
    pub broadcast_tiers: TierScope,
    /// To which tiers calls may go that no failure asks for: hedges and second opinions.
    pub extra_tiers: TierScope,
}

/// Which tiers an upstream may be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierScope {
    /// The best that is well, or that the call was sent to: no dearer one.
    Best,
    /// Any.
    All,
}

impl Bounds {
    /// [`Bounds::whole_bytes_max`] by default.
    pub const WHOLE_BYTES_MAX: usize = 1 << 20;
    /// [`Bounds::answer_bytes_max`] by default.
    pub const ANSWER_BYTES_MAX: usize = 128 << 20;
    /// [`Bounds::batch_bytes_max`] by default: about what geth allows.
    pub const BATCH_BYTES_MAX: usize = 24 << 20;
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            attempts_max: 4,
            attempt: Duration::from_secs(5),
            whole_bytes_max: Self::WHOLE_BYTES_MAX,
            answer_bytes_max: Self::ANSWER_BYTES_MAX,
            batch_bytes_max: Self::BATCH_BYTES_MAX,
            hedging: Some(Hedging::default()),
            broadcast_max: 3,
            broadcast_tiers: TierScope::Best,
            extra_tiers: TierScope::Best,
        }
    }
}

impl Bounds {
    /// How long to wait for an attempt that begins now. `own` is the upstream's own
    /// setting, `latest` when the client must have an answer.
    pub(crate) fn time_limit(
        &self,
        own: Option<Duration>,
        class: CostClass,
        now: Instant,
        latest: Instant,
    ) -> AttemptDeadline<'static> {
        let attempt = own.unwrap_or(self.attempt);
        let time = if class.is_heavy() { attempt.saturating_mul(HEAVY_FACTOR) } else { attempt };
        // What overflows the clock is later than any deadline.
        let deadline = now.checked_add(time).map_or(latest, |end| end.min(latest));
        AttemptDeadline { deadline, blame_after: attempt / BLAME_SHARE, hedge_timer: None }
    }
}

/// When a second attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hedging {
    /// Never earlier: below this a hedge wins less than it costs.
    pub delay_min: Duration,
    /// Never later. Logs and traces get four times as long.
    pub delay_max: Duration,
}

impl Default for Hedging {
    fn default() -> Self {
        Self { delay_min: Duration::from_millis(20), delay_max: Duration::from_secs(1) }
    }
}

impl Hedging {
    /// How long an exchange of several calls may take before its upstream is checked for a
    /// stall.
    pub(crate) fn batch_delay(&self, upstream: &Upstream) -> Duration {
        let usual = upstream.slow_batch_after().unwrap_or(UNMEASURED);
        usual.min(self.delay_max).max(self.delay_min).max(BATCH_DELAY_MIN)
    }

    /// How long a call of `class` at `upstream` may take before it is hedged.
    pub(crate) fn delay(&self, upstream: &Upstream, class: CostClass) -> Duration {
        let heavy = if class.is_heavy() { HEAVY_FACTOR } else { 1 };
        let usual = upstream.slow_after(class).unwrap_or(UNMEASURED * heavy);
        // The lower bound wins when the settings cross.
        usual.min(self.delay_max.saturating_mul(heavy)).max(self.delay_min)
    }
}
