//! What an upstream is asked on our own behalf, and how often: the settings of a loop.

use std::time::Duration;

/// Whether an upstream is asked at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Its head is followed, and it is probed while it rests.
    #[default]
    On,
    /// It is asked at the start, while it rests, when it comes back, and while it seems to
    /// lag; not while it is well.
    Ephemeral,
    /// Never. It is taken to be on the chain that the settings name, and clients' calls
    /// find out how it is.
    Off,
}

/// One call of the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckKind {
    /// `eth_chainId`: whether it is on the chain.
    ChainId,
    /// `eth_getBlockByNumber` of `latest`: how far it is.
    Head,
    /// `eth_syncing`: whether it says itself that it is behind.
    Syncing,
    /// `net_peerCount`: whether it hears of new blocks at all.
    Peers,
    /// `web3_clientVersion`: which software it runs. Asked once a verification.
    Version,
}

/// Some of the [`CheckKind`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckSet(u8);

impl CheckSet {
    /// Whether this one is made.
    pub fn contains(self, check: CheckKind) -> bool {
        self.0 & (1 << check as u8) != 0
    }
}

impl Default for CheckSet {
    fn default() -> Self {
        [CheckKind::ChainId, CheckKind::Head, CheckKind::Syncing, CheckKind::Version]
            .into_iter()
            .collect()
    }
}

impl FromIterator<CheckKind> for CheckSet {
    fn from_iter<I: IntoIterator<Item = CheckKind>>(checks: I) -> Self {
        Self(checks.into_iter().fold(0, |set, check| set | 1 << check as u8))
    }
}

/// Whether new blocks are heard over a feed, where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeedUse {
    /// They are polled.
    Never,
    /// While the upstream is followed, and a pushed block costs no more than a polled one.
    #[default]
    ByPrice,
    /// While the upstream is followed, whatever it costs.
    Always,
}

/// What an upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// Whether at all.
    pub mode: Mode,
    /// Which calls.
    pub calls: CheckSet,
    /// Whether its feed of new blocks is listened to, where there is one.
    pub feed: FeedUse,
    /// All calls of a day together cost at most so much; then it is as if they were off
    /// until the next day, which is 24 hours after the first call of this one.
    pub credits_per_day: Option<u64>,
}

impl Checks {
    /// Whether a call of this kind is made while the upstream is well.
    pub(crate) fn follows_by(&self, check: CheckKind) -> bool {
        self.mode == Mode::On && self.calls.contains(check)
    }

    /// Whether a call of this kind is ever made.
    pub(crate) fn asks(&self, check: CheckKind) -> bool {
        self.mode != Mode::Off && self.calls.contains(check)
    }

    /// The call that finds out whether it is back, if one may: its chain id tells most,
    /// since what answers there now may be another node.
    pub(crate) fn probe(&self) -> Option<CheckKind> {
        let order = [CheckKind::ChainId, CheckKind::Head, CheckKind::Syncing, CheckKind::Peers];
        order.into_iter().find(|check| self.asks(*check))
    }
}

/// How often a loop asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollPace {
    /// Polls come no faster, however quick the chain.
    pub poll_min: Duration,
    /// Polls come no slower while clients ask, however slow the chain; where
    /// `poll_min` is longer, that holds.
    pub poll_max: Duration,
    /// The shortest interval of all own calls together while no client calls; never shorter than
    /// `poll_min`.
    pub idle: Duration,
}

impl Default for PollPace {
    fn default() -> Self {
        Self {
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(15),
            idle: Duration::from_secs(60),
        }
    }
}
