//! What can be turned on a simulated upstream while it runs.

use std::time::Duration;

use alloy_primitives::B256;
use rand::Rng;

use crate::rpc::{Facts, HashMeans, History};

/// How an exchange goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection at all.
    Down,
    /// Accepts the request and never answers.
    Hang,
    /// The connection breaks before a byte of the answer.
    Reset,
    /// The connection breaks in the middle of the answer.
    Truncated,
    /// This HTTP status with a line of text.
    Status(u16),
    /// HTTP 429, with `Retry-After` in whole seconds when given.
    TooMany {
        /// When to come back.
        retry_after: Option<Duration>,
    },
    /// HTTP 200 whose JSON-RPC error says that the rate limit is exceeded.
    TooManyIn200,
    /// HTTP 200 with geth's internal error.
    Internal,
    /// A proxy's HTML error page with this status.
    Html(u16),
}

/// How long answers take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyDial {
    /// At least.
    pub base: Duration,
    /// Up to so much more, evenly spread.
    pub jitter: Duration,
    /// Of the answers, this many percent are slow.
    pub tail_percent: f64,
    /// How much slower those are.
    pub tail: Duration,
}

impl LatencyDial {
    /// No delay at all.
    pub const NONE: Self = Self::even(Duration::ZERO, Duration::ZERO);

    /// Without a slow tail.
    pub const fn even(base: Duration, jitter: Duration) -> Self {
        Self { base, jitter, tail_percent: 0.0, tail: Duration::ZERO }
    }

    /// One delay.
    pub fn sample(&self, rng: &mut impl Rng) -> Duration {
        let mut delay = self.base + self.jitter.mul_f64(rng.random::<f64>());
        if rng.random::<f64>() * 100.0 < self.tail_percent {
            delay += self.tail;
        }
        delay
    }
}

/// Everything about one upstream that is not the chain itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Dials {
    /// What it is and how much it keeps.
    pub facts: Facts,
    /// How long it takes.
    pub latency: LatencyDial,
    /// Blocks behind the canonical head.
    pub lag_blocks: u64,
    /// Stands at this block, whatever happens; beats `lag_blocks`.
    pub stuck_at: Option<B256>,
    /// Every exchange goes wrong so.
    pub fault: Option<Fault>,
    /// Of the exchanges, this many percent go wrong by chance.
    pub error_percent: f64,
    /// How those go wrong: one of these, by chance.
    pub errors: Vec<Fault>,
}

impl Dials {
    /// A healthy archive node of this chain that answers at once.
    pub fn healthy(chain_id: u64) -> Self {
        Self {
            facts: Facts {
                client_version: "Geth/v1.16.5-stable-simulated/linux-amd64/go1.25.1".to_owned(),
                chain_id,
                syncing: false,
                history: History::default(),
                log_range_max: None,
                log_results_max: 10_000,
                heights_only: false,
                hash_means: HashMeans::default(),
                unsupported: Vec::new(),
                hides_logs: false,
            },
            latency: LatencyDial::NONE,
            lag_blocks: 0,
            stuck_at: None,
            fault: None,
            error_percent: 0.0,
            errors: vec![Fault::Status(502), Fault::Internal, Fault::Reset],
        }
    }
}
