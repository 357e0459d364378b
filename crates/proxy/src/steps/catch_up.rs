//! The newest block that a client was told of elsewhere: by a replica that this one cannot hear, or before it
//! began.
//!
//! A client that goes from one wellhead to another says which block it knows (`x-wellhead-block`), and each answer
//! says which one it knows from then on. A wellhead to which that block is news asks its upstreams for it, for at
//! most [`WAIT`], before it reads what the client asks for: no newest block that it tells this client is older. See
//! [`crate::state::sessions`] for what that means. Requests that say the same block wait for one of them, and
//! a block that no upstream has costs five rounds of calls a second; at most twenty begin, whatever clients say.
//!
//! Not promised: a block that no upstream gives, as after a reorg. The answer then says a lower one, so that the
//! client's next request is not about a block that is gone.

use std::time::Duration;

use tokio::time::timeout;
use wellhead_chain::View;
use wellhead_dispatch::{Job, Trail, now};
use wellhead_eth::{BlockNumber, BlockRef, MethodTable};
use wellhead_route::PlanRequest;

use crate::blocks::{highest, highest_fit};
use crate::request::context::RequestContext;
use crate::request::pin::BlockAsk;
use crate::steps::ask_upstreams::{AttemptTerms, ask_upstreams};
use crate::steps::planning::{Planned, try_plan};

/// A request waits for the block this long.
const WAIT: Duration = Duration::from_secs(2);

/// One that waits for another, or for its turn, looks this often whether it has come.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// A block that is further above those of the upstreams is not looked for: two minutes have 480 blocks of 0.25 s.
const AHEAD_MAX: u64 = 1_024;

/// The method that asks for a block.
const BLOCK: &str = "eth_getBlockByNumber";

/// Has the client be told of no older block than the one that it knows. Asks upstreams where that block is news.
/// Must come before the request looks at its view; to be boxed, as few requests say such a block. Cancel-safe.
pub(crate) async fn catch_up(request: &mut RequestContext<'_>, known: BlockNumber) {
    if !request.chain.pins {
        return;
    }
    let mut missed = blocks_missed(request, known);
    if (1..=AHEAD_MAX).contains(&missed) {
        let _in_time = timeout(WAIT, learn(request, known)).await;
        request.renew_view();
        missed = blocks_missed(request, known);
    }
    request.show(known);
    request.known = Some(known).filter(|_| missed == 0);
}

/// The newest block that the client knows, now that it is answered; `None` where it did not say which one it knew.
/// Not below that one where an upstream has it, though the upstream that told of it may fail meanwhile.
pub(crate) fn known_block(request: &RequestContext<'_>) -> Option<u64> {
    request.ctx.known_block?;
    let told = request.chain.heads.look(|view| request.floor(view));
    told.max(request.known).map(|number| number.0)
}

/// How far the block is above the one that the client would be told of.
fn blocks_missed(request: &RequestContext<'_>, known: BlockNumber) -> u64 {
    request.chain.heads.look(|view| {
        // Nearly always. No client is told of less than what is agreed.
        if view.latest.is_some_and(|agreed| known <= agreed.number) {
            return 0;
        }
        known.0.saturating_sub(held(request, view).map_or(0, |held| held.0))
    })
}

/// The newest block of the upstreams that can be asked for it: one that has failed since it told of a block gives it
/// to no client. Where none can be asked, the newest block of all.
fn held(request: &RequestContext<'_>, view: &View) -> Option<BlockNumber> {
    let row = MethodTable::standard().row(BLOCK);
    let fit = request.eligible(row, BLOCK).ok().and_then(|eligible| {
        highest_fit(&PlanRequest::of(row, eligible), view, &request.chain.roster, now())
    });
    fit.or_else(|| highest(view))
}

/// Asks for the block, or waits for a request that does, until an upstream has it.
async fn learn(request: &RequestContext<'_>, known: BlockNumber) {
    let chain = request.chain;
    loop {
        // Made before the look, so that news in between is not missed.
        let head = chain.pulse.head();
        if blocks_missed(request, known) == 0 {
            return;
        }
        let Some(search) = chain.sessions.search_for(known.0, now()) else {
            let _either_way = timeout(LOOKS_EVERY, head).await;
            continue;
        };
        if !ask(request, known).await {
            return;
        }
        if blocks_missed(request, known) > 0 {
            search.note_missing(now());
        }
    }
}

/// Asks upstreams until one has the block, by which all learn of its head; false where none may be asked.
async fn ask(request: &RequestContext<'_>, known: BlockNumber) -> bool {
    let (chain, began) = (request.chain, now());
    let row = MethodTable::standard().row(BLOCK);
    let Ok(eligible) = request.eligible(row, BLOCK) else { return false };
    let params = format!("[\"{}\",false]", known.hex());
    let deadline = request.deadline().min(began + WAIT);
    let job = Job {
        params: Some(params.as_bytes()),
        progress: Some(request.progress),
        ..Job::new(row, BLOCK, request.ctx.received_at, deadline)
    };
    let (ask, block) = (PlanRequest::of(row, eligible), BlockRef::Number(known));
    let subject = BlockAsk { ask: &ask, block: &block };
    // A client was shown the block: an upstream that has none is behind.
    let planned =
        Planned { null_is_final: false, ..try_plan(chain, request.worker, subject, began) };
    let terms = AttemptTerms { bounds: &chain.bounds, before: Trail::default(), began };
    let _learnt_on_the_way = ask_upstreams(request, &job, subject, Some(planned), terms).await;
    true
}
