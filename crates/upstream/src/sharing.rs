//! What replicas share of an upstream: its budget, and the pauses that it asked for.

use std::fmt;
use std::time::Duration;

use wellhead_limit::lease::LeasedLimit;

/// Shorter pauses are over before another replica would gain by hearing of them.
pub(crate) const PEER_PAUSE_MIN: Duration = Duration::from_secs(1);

/// What shares one upstream with other replicas.
pub trait UpstreamSharing: fmt::Debug + Send + Sync {
    /// Serves a bound of the budget from now on. `word` names it: `credits`, `calls`, `caps`, `in_flight`.
    /// While the store is away, each replica goes by its share.
    fn share(&self, word: &'static str, limit: LeasedLimit);

    /// Tells the others that the upstream named a pause, for all calls or for those of one method. Must not
    /// wait.
    fn tell_pause(&self, method: Option<&'static str>, pause: Duration);
}
