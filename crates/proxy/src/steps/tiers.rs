//! Look-ups in the slow tiers behind the memory: [`crate::state::tiers`].
//!
//! One of the requests that share a call looks them up, after a miss in memory and before a call to an
//! upstream. What they return is stored in memory first and served from there, by what the newest
//! view says of its block. `wellhead_store` bounds the time of each look-up, so that a tier
//! that hangs, is full or is gone costs a moment now and then and no answer. Puts never wait.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use wellhead_cache::{Pin, Use, Validity, may_be_kept};
use wellhead_dispatch::now;
use wellhead_eth::{BlockHash, MethodRow};

use crate::request::context::RequestContext;
use crate::state::cache::ViewCanon;
use crate::state::chain::ServedChain;
use crate::state::tiers::BATCH_WAIT;
use crate::steps::cached::{self, CacheTicket, may_be_told};

/// Looks of one batch at a time.
const BATCH_PARALLEL: usize = 32;

/// The origin under which the slow tiers of this chain are asked, where there are any.
fn origin(chain: &ServedChain) -> Option<BlockHash> {
    chain.cache().filter(|cache| !cache.tiers().is_empty())?;
    chain.shares.as_ref()?.tier_guard.origin(&chain.pulse)
}

/// Whether there is a slow tier to ask for this chain.
pub(crate) fn are_there(request: &RequestContext<'_>) -> bool {
    origin(request.chain).is_some()
}

/// Whether a slow tier may have the answer.
pub(crate) fn may_have(
    request: &RequestContext<'_>,
    ticket: &CacheTicket,
    row: &MethodRow,
) -> bool {
    are_there(request) && ticket.pin != Pin::Head && may_be_kept(row, ticket.pin).is_ok()
}

/// Fetches what the items of a batch ask for into memory, side by side and within
/// [`crate::state::tiers::Tiers::batches_within`] for all of them.
pub(crate) async fn fetch_all(request: &RequestContext<'_>, ticket: Vec<CacheTicket>) {
    let all = async {
        let mut waiting = ticket.iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < BATCH_PARALLEL
                && let Some(ticket) = waiting.next()
            {
                running.push(fetch(request, ticket));
            }
            if running.next().await.is_none() {
                break;
            }
        }
    };
    let within = request.chain.cache().map_or(BATCH_WAIT, |it| it.tiers().batch_within);
    // What was not found in time is asked upstream.
    let _in_time = tokio::time::timeout(within, all).await;
}

/// The answer to a part of a search that is final, from memory or a slow tier.
pub(crate) async fn part(chain: &ServedChain, ticket: &CacheTicket) -> Option<Bytes> {
    let shares = chain.shares.as_ref()?;
    if let Some(kept) = cached::part_in_memory(shares, chain, ticket) {
        return Some(kept);
    }
    look(chain, ticket, None).await
}

/// The answer that a slow tier has and that is true by the newest view; it is in memory then.
/// Cancel-safe.
pub(crate) async fn fetch(request: &RequestContext<'_>, ticket: &CacheTicket) -> Option<Bytes> {
    look(request.chain, ticket, Some(request)).await
}

/// The answer that a slow tier has, if it may be told to this client, where it is for one.
async fn look(
    chain: &ServedChain,
    ticket: &CacheTicket,
    client: Option<&RequestContext<'_>>,
) -> Option<Bytes> {
    let (shares, cache) = (chain.shares.as_ref()?, chain.cache()?);
    let origin = origin(chain)?;
    let mut entry = cache.tiers().get(&ticket.key, &origin, ticket.required).await?;
    let at = now();
    chain.heads.look(|view| {
        let seen = client.map_or(ViewCanon::at(view, at), |request| request.canon(view, at));
        match entry.hold.under(&seen) {
            Use::Serve => {}
            Use::ServeForEver => entry.hold = Validity::Final,
            Use::Skip | Use::Drop => return None,
        }
        let is_true =
            !entry.is_over(cache.ms(at)) && shares.tier_guard.origin(&chain.pulse) == Some(origin);
        let is_told = client.is_none_or(|request| may_be_told(request, &entry.value, view));
        if !is_true || !is_told {
            return None;
        }
        cache.memory.adopt(&ticket.key, &entry);
        Some(entry.value.clone())
    })
}
