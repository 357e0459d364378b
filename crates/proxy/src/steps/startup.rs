//! Calls that come while the first upstreams are verified wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_dispatch::now;
use wellhead_eth::ChainId;
use wellhead_upstream::{Condition, Upstream, UpstreamSet};

use crate::state::chain::ServedChain;

/// A call that arrives before any upstream was verified waits this long for one.
const START_WAIT: Duration = Duration::from_secs(5);
/// And only this long when each of those that were not verified yet has failed: they are down
/// rather than slow, and a client that hears so can do something else.
const DOWN_WAIT: Duration = Duration::from_secs(1);

/// Whether one of the eligible upstreams is not verified yet.
pub(crate) fn is_any_unverified(chain: &ServedChain, eligible: UpstreamSet) -> bool {
    unverified(chain, eligible).next().is_some()
}

/// Waits for a verification, or for a while; `false` when the call waited long enough.
pub(crate) async fn wait(
    chain: &ServedChain,
    eligible: UpstreamSet,
    began: Instant,
    deadline: Instant,
    verified: impl Future<Output = ()>,
) -> bool {
    let are_down = unverified(chain, eligible).all(|upstream| upstream.last_problem().is_some());
    let until = deadline.min(began + if are_down { DOWN_WAIT } else { START_WAIT });
    let now = now();
    if now >= until {
        return false;
    }
    // In steps, because upstreams that are being verified may turn out to be down meanwhile.
    let step = until.min(now + DOWN_WAIT);
    let _ = tokio::time::timeout_at(step.into(), verified).await;
    true
}

/// The chain's id, waiting for the first upstream to tell it when it is not given.
pub(crate) async fn chain_id(chain: &ServedChain, deadline: Instant) -> Option<ChainId> {
    let began = now();
    let all = chain.roster.upstreams().iter().map(|upstream| upstream.slot()).collect();
    loop {
        // Made before the look, so that a verification in between is not missed.
        let verified = chain.pulse.verified();
        if let Some(id) = chain.pulse.chain_id() {
            return Some(id);
        }
        if !wait(chain, all, began, deadline, verified).await {
            return None;
        }
    }
}

fn unverified(chain: &ServedChain, eligible: UpstreamSet) -> impl Iterator<Item = &Arc<Upstream>> {
    let is_one = move |upstream: &&Arc<Upstream>| {
        eligible.contains(upstream.slot()) && upstream.condition(now()) == Condition::Unverified
    };
    chain.roster.upstreams().iter().filter(is_one)
}
