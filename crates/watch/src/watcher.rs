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
use wellhead_upstream::{Upstream, UpstreamList};

use crate::ask::{Asker, CheckCounts};
use crate::budget::{DailyAllowance, Turns};
use crate::checks::{Checks, PollPace};
use crate::doubt::ChainDoubt;
use crate::peers::LoopPeers;
use crate::pulse::Pulse;
use crate::state::{Falls, State};

/// While no client calls, turns are longer than the settings say by this part, so that an hour
/// never has one turn too many.
const TURN_SLIDE: u32 = 32;

/// Follows one upstream. Run it with [`Watcher::run`]; dropping the future ends it.
#[derive(Debug)]
pub struct Watcher {
    pub(crate) asker: Asker,
    pub(crate) heads: Arc<Heads>,
    pub(crate) feed: Option<Arc<dyn FeedConnector>>,
    pub(crate) pace: PollPace,
    pub(crate) checks: Checks,
    /// All upstreams of the chain, this one among them.
    pub(crate) chain: Arc<UpstreamList>,
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
    /// The loops of other replicas, where there are some.
    pub(crate) peers: Option<LoopPeers>,
}

/// What a loop works with.
#[derive(Debug)]
pub struct WatcherParts {
    /// The upstream that it follows.
    pub upstream: Arc<Upstream>,
    /// Over which it asks.
    pub transport: Arc<dyn Transport>,
    /// The feed that it listens to, if there is one.
    pub feed: Option<Arc<dyn FeedConnector>>,
    /// Where the heads that it learns go.
    pub heads: Arc<Heads>,
    /// What it shares with requests.
    pub pulse: Arc<Pulse>,
    /// Where its calls are counted.
    pub counts: Arc<CheckCounts>,
}

impl Watcher {
    /// A loop with these parts, at this pace; with the default checks, unless told otherwise.
    pub fn new(parts: WatcherParts, pace: PollPace) -> Self {
        let WatcherParts { upstream, transport, feed, heads, pulse, counts } = parts;
        let idle = pace.idle.max(pace.poll_min);
        let id = upstream.identity().id.as_str();
        let peers = pulse.peers().map(|peers| LoopPeers::new(peers, id));
        Self {
            chain: UpstreamList::of(std::slice::from_ref(&upstream)),
            asker: Asker {
                upstream,
                transport,
                pulse,
                counts,
                falls: Falls::default(),
                doubt: ChainDoubt::default(),
                allowance: DailyAllowance::default(),
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
            peers,
        }
    }

    /// With these checks.
    #[must_use]
    pub fn checking(mut self, checks: Checks) -> Self {
        self.asker.allowance = DailyAllowance::new(checks.credits_per_day);
        Self { checks, ..self }
    }

    /// One of these upstreams of its chain: while none of them is well it is probed more
    /// often.
    #[must_use]
    pub fn among(self, upstreams: Arc<UpstreamList>) -> Self {
        Self { chain: upstreams, ..self }
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
