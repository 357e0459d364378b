//! The state of the loop that follows one upstream: its parts, its settings, and what its steps
//! tell each other. The steps are in `identify`, `poll`, `feed` and beside them; `follow` puts
//! them in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_chain::Heads;
use wellhead_eth::BlockNumber;
use wellhead_transport::Transport;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::Upstream;

use crate::ask::{Asked, Asker};
use crate::budget::{Allowance, Turns};
use crate::checks::{Checks, Pace};
use crate::doubt::Doubt;
use crate::fall::Falls;
use crate::pulse::Pulse;
use crate::state::State;

/// While nobody asks turns come by this part slower than the settings say, so that an
/// hour never holds one more than it should.
const TURN_SLIDE: u32 = 32;

/// Follows one upstream. Run it with [`Watcher::run`]; dropping the future ends it.
#[derive(Debug)]
pub struct Watcher {
    pub(crate) asker: Asker,
    pub(crate) heads: Arc<Heads>,
    pub(crate) feed: Option<Arc<dyn FeedConnector>>,
    pub(crate) pace: Pace,
    pub(crate) checks: Checks,
    /// All upstreams of the chain, this one among them.
    pub(crate) chain: Vec<Arc<Upstream>>,
    /// While the feed tells heads, polling would only cost.
    pub(crate) feed_is_live: AtomicBool,
    /// The feed was on another chain; it is asked before the upstream is used again.
    pub(crate) feed_was_wrong: AtomicBool,
    pub(crate) state: Mutex<State>,
    /// It was verified, and has not been asked for its version since.
    pub(crate) version_is_due: AtomicBool,
    /// The newest block that a poll told; another one in the view came from elsewhere.
    pub(crate) polled: Mutex<Option<BlockNumber>>,
    /// A client's call came to this upstream after a quiet time.
    pub(crate) called: Arc<Notify>,
    /// Bytes of the last block that the feed told; zero before the first.
    pub(crate) push_bytes: AtomicUsize,
}

impl Watcher {
    /// A loop for `upstream`. It asks over `transport`, and listens to `feed` if there is
    /// one; with the default checks, unless told otherwise.
    pub fn new(
        upstream: Arc<Upstream>,
        transport: Arc<dyn Transport>,
        feed: Option<Arc<dyn FeedConnector>>,
        heads: Arc<Heads>,
        pulse: Arc<Pulse>,
        pace: Pace,
        asked: Arc<Asked>,
    ) -> Self {
        let idle = pace.idle.max(pace.poll_min);
        Self {
            chain: vec![Arc::clone(&upstream)],
            asker: Asker {
                upstream,
                transport,
                pulse,
                asked,
                falls: Falls::default(),
                doubt: Doubt::default(),
                allowance: Allowance::default(),
                turns: Turns::new(idle + idle / TURN_SLIDE),
                is_needed: AtomicBool::new(true),
            },
            heads,
            feed,
            pace,
            checks: Checks::default(),
            feed_is_live: AtomicBool::new(false),
            feed_was_wrong: AtomicBool::new(false),
            state: Mutex::default(),
            version_is_due: AtomicBool::new(false),
            polled: Mutex::new(None),
            called: Arc::default(),
            push_bytes: AtomicUsize::new(0),
        }
    }

    /// With these checks.
    #[must_use]
    pub fn checking(mut self, checks: Checks) -> Self {
        self.asker.allowance = Allowance::new(checks.credits_per_day);
        Self { checks, ..self }
    }

    /// One of these upstreams of its chain: while none of them is well it is probed more
    /// often.
    #[must_use]
    pub fn among(self, upstreams: &[Arc<Upstream>]) -> Self {
        Self { chain: upstreams.to_vec(), ..self }
    }

    pub(crate) fn feed_is_wrong(&self) -> bool {
        self.feed_was_wrong.load(Ordering::Relaxed)
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.asker.upstream
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.asker.pulse
    }
}
