//! Frees what is kept for clients and became untrue or unused, off the path of requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use wellhead_cache::Canon as _;
use wellhead_chain::Reorg;
use wellhead_dispatch::now as clock;
use wellhead_eth::BlockNumber;

use crate::journey::Proxy;
use crate::state::cache::ViewCanon;

/// Frees answers that became untrue and filters that are no longer polled, off the path of requests:
/// nothing is served because it was late. One for all chains of a proxy.
#[derive(Debug)]
pub struct Sweeper {
    proxy: Arc<ArcSwap<Proxy>>,
    /// By chain: the reorgs heard of, and the finalized block.
    seen: HashMap<Arc<str>, (u64, Option<BlockNumber>)>,
}

impl Sweeper {
    /// How often to look: a block of the quickest chains is four times as quick, and a
    /// second's worth of orphaned answers is little.
    pub const EVERY: Duration = Duration::from_secs(1);

    /// Has seen nothing yet.
    pub fn new(proxy: Arc<ArcSwap<Proxy>>) -> Self {
        Self { proxy, seen: HashMap::new() }
    }

    /// Looks at each chain, and tidies where there was a reorg or a step of finality; reports the lines
    /// of requests that were left out of the log since the last time.
    pub fn sweep(&mut self) {
        let proxy = self.proxy.load();
        proxy.lines.report();
        self.seen.retain(|name, _| proxy.chains().iter().any(|chain| chain.name.name == *name));
        for chain in proxy.chains() {
            let seen = self.seen.entry(Arc::clone(&chain.name.name)).or_default();
            chain.filters.expire(clock());
            let (Some(shares), Some(id)) = (&chain.shares, chain.pulse.chain_id()) else {
                continue;
            };
            let Some(cache) = &shares.cache else { continue };
            let view = chain.heads.view();
            // What is not fresh is still what is believed.
            let canon = ViewCanon::believed(&view);
            let (reorgs, finalized) = *seen;
            let now = (view.reorgs().last(), canon.finalized());
            if now == *seen {
                continue;
            }
            *seen = now;
            let is_reset = |reorg: &Reorg| {
                finalized.is_some_and(|mark| {
                    reorg.to < mark || reorg.orphaned.iter().any(|(number, _)| *number <= mark)
                })
            };
            let memory = &cache.memory;
            let was_reset = match view.reorgs().since(reorgs) {
                Some(mut missed) => missed.any(is_reset),
                None => true,
            };
            if was_reset {
                tracing::warn!(
                    chain = %chain.name.name,
                    "final blocks were replaced: the cache was cleared"
                );
                memory.clear();
                shares.tier_guard.begin(&chain.pulse);
            } else {
                memory.settle(id, &canon);
            }
        }
    }
}
