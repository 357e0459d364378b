//! Tells subscribers to `syncing` whether a chain is followed.
//!
//! A loop of the control plane. It runs while there is such a subscription, and has the chain count as in
//! use meanwhile: heads of a chain that is not in use are old because upstreams are not asked for them.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wellhead_chain::View;
use wellhead_dispatch::now;
use wellhead_subscribe::{SyncProgress, SyncState};

use crate::state::chain::ServedChain;

/// The interval at which the view is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The view is old for this long, and for as long as it is usually fresh, before that is told: a poll that
/// is late by a moment, and the first one after a quiet time, are not news.
const STALE_MIN: Duration = Duration::from_secs(10);

/// Tells of changes for ever.
pub(crate) async fn follow(chain: &ServedChain) {
    loop {
        while !chain.streams.wants_syncing() {
            chain.streams.syncing_wanted().await;
        }
        let mut staleness = Staleness::default();
        while chain.streams.wants_syncing() {
            let now = now();
            chain.note_demand(now);
            chain.streams.note_syncing(chain.heads.look(|view| staleness.look(view, now)));
            sleep(LOOK_EVERY).await;
        }
        chain.note_demand(now());
    }
}

/// Since when the view is old.
#[derive(Debug, Default)]
struct Staleness {
    began: Option<StaleSince>,
}

#[derive(Debug, Clone, Copy)]
struct StaleSince {
    at: Instant,
    /// The newest agreed block then.
    block: u64,
}

impl Staleness {
    /// What a view says at this moment. Where the settings keep wellhead from following heads, no view is
    /// ever fresh, and nothing is said by that.
    fn look(&mut self, view: &View, now: Instant) -> SyncState {
        if view.is_fresh(now) || !view.is_followed() {
            self.began = None;
            return SyncState::Synced;
        }
        let number = |head: Option<wellhead_chain::UpstreamHead>| head.map_or(0, |it| it.number.0);
        let current = number(view.latest);
        let began = *self.began.get_or_insert(StaleSince { at: now, block: current });
        if now.saturating_duration_since(began.at) < STALE_MIN.max(view.fresh_for()) {
            return SyncState::Synced;
        }
        let highest = number(view.best).max(current);
        SyncState::Syncing(SyncProgress { starting: began.block, current, highest })
    }
}

#[cfg(test)]
mod tests {
    use wellhead_chain::{Heads, HeadsTerms, Observation, Source};
    use wellhead_eth::BlockNumber;
    use wellhead_upstream::{Slot, UpstreamSet};

    use super::*;

    fn number(heads: &Heads, number: u64, now: Instant) {
        heads.observe(Slot(0), Observation::of_number(BlockNumber(number)), Source::Word, now);
    }

    #[test]
    fn only_a_view_that_stays_old_is_syncing() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let heads = Heads::new(1, Some(Duration::from_secs(12)), None);
        let mut staleness = Staleness::default();
        let mut look = |heads: &Heads, seconds| staleness.look(&heads.view(), at(seconds));
        // Not a word yet: for as long as a view is fresh that is not news.
        assert_eq!(look(&heads, 0), SyncState::Synced);
        number(&heads, 7, at(1));
        assert_eq!(look(&heads, 1), SyncState::Synced);
        // Fresh for 36 s, and given as long again.
        assert_eq!(look(&heads, 40), SyncState::Synced);
        assert_eq!(look(&heads, 75), SyncState::Synced);
        let syncing = SyncProgress { starting: 7, current: 7, highest: 7 };
        assert_eq!(look(&heads, 76), SyncState::Syncing(syncing));
        assert_eq!(look(&heads, 500), SyncState::Syncing(syncing));
        number(&heads, 9, at(501));
        assert_eq!(look(&heads, 501), SyncState::Synced);
        assert_eq!(look(&heads, 540), SyncState::Synced);
    }

    #[test]
    fn a_chain_whose_heads_are_not_followed_says_nothing() {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let start = Instant::now();
        let heads = Heads::new(1, None, None);
        heads.change(&HeadsTerms::default(), UpstreamSet::NONE, start);
        let mut staleness = Staleness::default();
        for seconds in [0, 60, 600] {
            let at = start + Duration::from_secs(seconds);
            assert_eq!(staleness.look(&heads.view(), at), SyncState::Synced);
        }
    }
}
