//! One call, by its effect: read, broadcast and write go upstream, sticky goes
//! where its filter lives, local is answered here, subscribe is refused.

use std::time::{Duration, Instant};

use wellhead_dispatch::{Failure, Job, Lane, Outcome, Trail, now};
use wellhead_eth::{
    BlockNumber, BlockPoint, BlockRef, Effect, MethodRow, MethodTable, StickyRole,
    raw_transaction_hash,
};
use wellhead_jsonrpc::{Call, write};
use wellhead_route::{Ask, Plan, plan};
use wellhead_upstream::{Condition, Payload, Slot, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::chain::ServedChain;
use crate::metrics::CallOutcome;
use crate::{sticky, teach};

/// A call that arrives before any upstream was verified waits so long for one.
const START_WAIT: Duration = Duration::from_secs(5);

/// What this proxy calls itself.
const CLIENT_VERSION: &str = concat!("\"wellhead/v", env!("CARGO_PKG_VERSION"), "\"");

/// What a call became: its reply was appended, and this is what to note of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) row: &'static MethodRow,
    pub(crate) outcome: CallOutcome,
    pub(crate) slot: Option<Slot>,
    pub(crate) trail: Trail,
    /// The HTTP status, if it was alone in its request.
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

/// Answers `call`, appending the reply to `out` under the client's own id.
pub(crate) async fn answer(
    chain: &ServedChain,
    lane: &Lane,
    call: &Call,
    received_at: Instant,
    deadline: Instant,
    out: &mut Vec<u8>,
) -> Report {
    let row = MethodTable::standard().row(call.method());
    let said = say(chain, lane, call, row, received_at, deadline).await;
    let report =
        |outcome, slot, trail| Report { row, outcome, slot, trail, status: 200, retry_after: None };
    match said {
        Said::Result { result, slot, trail } => {
            out.reserve(result.len() + 64);
            write::result(out, call.id(), &result);
            report(CallOutcome::Answered, slot, trail)
        }
        Said::Error { error, slot, trail } => {
            write::error_raw(out, call.id(), &error);
            report(CallOutcome::UpstreamError, Some(slot), trail)
        }
        Said::Refused { refusal, outcome, trail } => {
            refusal.write(out, call.id());
            let (status, retry_after) = (refusal.status, refusal.retry_after);
            Report { status, retry_after, ..report(outcome, None, trail) }
        }
    }
}

/// What there is to say.
enum Said {
    Result { result: bytes::Bytes, slot: Option<Slot>, trail: Trail },
    Error { error: bytes::Bytes, slot: Slot, trail: Trail },
    Refused { refusal: Refusal, outcome: CallOutcome, trail: Trail },
}

impl Said {
    fn local(result: String) -> Self {
        Self::Result { result: result.into(), slot: None, trail: Trail::default() }
    }

    fn refused(refusal: Refusal) -> Self {
        Self::Refused { refusal, outcome: CallOutcome::Refused, trail: Trail::default() }
    }
}

async fn say(
    chain: &ServedChain,
    lane: &Lane,
    call: &Call,
    row: &'static MethodRow,
    received_at: Instant,
    deadline: Instant,
) -> Said {
    let eligible = match chain.roster.eligible(row, call.method()) {
        Ok(eligible) => eligible,
        Err(why) => return Said::refused(Refusal::not_served(why, call.method())),
    };
    let job = Job { row, method: call.method(), params: call.params(), received_at, deadline };
    match row.effect {
        Effect::Local => local(chain, row, deadline).await,
        Effect::Subscribe => Said::refused(Refusal::needs_websocket(call.method())),
        Effect::Read | Effect::Write | Effect::Broadcast => {
            upstream(chain, lane, &job, eligible).await
        }
        Effect::Sticky => sticky_call(chain, lane, job, eligible).await,
    }
}

async fn local(chain: &ServedChain, row: &MethodRow, deadline: Instant) -> Said {
    if row.name == "web3_clientVersion" {
        return Said::local(CLIENT_VERSION.to_owned());
    }
    let id = match chain.pulse.chain_id() {
        Some(id) => id,
        None => {
            wait_for_verified(chain, deadline).await;
            match chain.pulse.chain_id() {
                Some(id) => id,
                None => return Said::refused(Refusal::chain_id_unknown()),
            }
        }
    };
    match row.name {
        "net_version" => Said::local(format!("\"{}\"", id.0)),
        _ => Said::local(format!("\"0x{:x}\"", id.0)),
    }
}

async fn wait_for_verified(chain: &ServedChain, deadline: Instant) {
    let until = deadline.min(now() + START_WAIT);
    // Running out of time is told by what is still unknown afterwards.
    let _ = tokio::time::timeout_at(until.into(), chain.pulse.verified()).await;
}

/// The usual way: plan on one pinned view, run, teach.
async fn upstream(chain: &ServedChain, lane: &Lane, job: &Job<'_>, eligible: UpstreamSet) -> Said {
    let block = job.row.block_ref(job.params);
    let ask = Ask { row: job.row, eligible, needed: needed(&block) };
    let plan = make_plan(chain, lane, &ask, job.deadline).await;
    let Outcome { result, trail } =
        wellhead_dispatch::run(job, &plan, &chain.roster, lane, &chain.bounds).await;
    let served = match result {
        Ok(served) => served,
        Err(failure) => return failed(chain, failure, trail),
    };
    let slot = served.slot;
    match (served.class, served.payload) {
        // It is in the pool, which is what the sender wanted: the hash is the answer.
        (VerdictClass::TransactionKnown, payload) => match (known_hash(job), payload) {
            (Some(hash), _) => Said::Result { result: hash.into(), slot: Some(slot), trail },
            (None, Payload::Error(error)) => Said::Error { error, slot, trail },
            (None, Payload::Result(result)) => Said::Result { result, slot: Some(slot), trail },
            (None, Payload::None { .. }) => exhausted(chain, served.class, trail),
        },
        (_, Payload::Result(result)) => {
            teach::teach(&chain.heads, slot, job.row, &block, &result, now());
            Said::Result { result, slot: Some(slot), trail }
        }
        (_, Payload::Error(error)) => Said::Error { error, slot, trail },
        (class, Payload::None { .. }) => exhausted(chain, class, trail),
    }
}

fn failed(chain: &ServedChain, failure: Failure, trail: Trail) -> Said {
    let refusal = Refusal::failed(failure, &trail, &chain.roster);
    Said::Refused { refusal, outcome: CallOutcome::Failed, trail }
}

fn exhausted(chain: &ServedChain, class: VerdictClass, trail: Trail) -> Said {
    failed(chain, Failure::Exhausted { class, retry_after: None }, trail)
}

/// The hash of the raw transaction that the call carries, as raw JSON.
fn known_hash(job: &Job<'_>) -> Option<String> {
    if job.row.effect != Effect::Broadcast {
        return None;
    }
    raw_transaction_hash(job.params?).map(|hash| format!("\"{hash}\""))
}

/// Plans on one view. When nobody may be asked because nobody was verified yet,
/// waits for the first: a call that comes with the start should not fail.
async fn make_plan(chain: &ServedChain, lane: &Lane, ask: &Ask<'_>, deadline: Instant) -> Plan {
    let draw = || {
        let view = chain.heads.view();
        lane.with_rng(|rng| plan(ask, &view, &chain.roster, now(), rng))
    };
    // Made before the first look, so that a verification in between is not missed.
    let verified = chain.pulse.verified();
    let first = draw();
    if !first.candidates().is_empty() || !anybody_unverified(chain) {
        return first;
    }
    let until = deadline.min(now() + START_WAIT);
    match tokio::time::timeout_at(until.into(), verified).await {
        Ok(()) => draw(),
        Err(_elapsed) => first,
    }
}

fn anybody_unverified(chain: &ServedChain) -> bool {
    let now = now();
    let unverified = |condition| condition == Condition::Unverified;
    chain.roster.upstreams().iter().any(|upstream| unverified(upstream.condition(now)))
}

/// The block that an upstream must hold to answer truthfully, when the call says
/// it by number. Tags are left to the upstream for now.
fn needed(block: &BlockRef) -> Option<BlockNumber> {
    match block {
        BlockRef::Number(number) => Some(*number),
        BlockRef::Range { to: BlockPoint::Number(number), .. } => Some(*number),
        BlockRef::Range { .. }
        | BlockRef::None
        | BlockRef::Tag(_)
        | BlockRef::Hash(_)
        | BlockRef::Unreadable => None,
    }
}

/// Filters: made anywhere, then asked where they live.
async fn sticky_call(
    chain: &ServedChain,
    lane: &Lane,
    job: Job<'_>,
    eligible: UpstreamSet,
) -> Said {
    match job.row.sticky {
        Some(StickyRole::Create) | None => {
            name_the_filter(chain, upstream(chain, lane, &job, eligible).await)
        }
        Some(StickyRole::Use | StickyRole::Drop) => {
            let Some(params) = job.params else {
                return Said::refused(Refusal::invalid_params(
                    "missing value for required argument 0",
                ));
            };
            let Some((slot, params)) = sticky::take_back(&chain.roster, params) else {
                return Said::refused(Refusal::filter_not_found());
            };
            let only = [slot].into_iter().collect::<UpstreamSet>().and(eligible);
            let job = Job { params: Some(&params), ..job };
            upstream(chain, lane, &job, only).await
        }
    }
}

/// Puts the upstream's name into the id of a filter that it made.
fn name_the_filter(chain: &ServedChain, said: Said) -> Said {
    match said {
        Said::Result { result, slot: Some(slot), trail } => {
            let id = &chain.roster.upstream(slot).identity().id;
            match sticky::hand_out(id, &result) {
                Some(named) => Said::Result { result: named.into(), slot: Some(slot), trail },
                None => exhausted(chain, VerdictClass::Fault, trail),
            }
        }
        other => other,
    }
}
