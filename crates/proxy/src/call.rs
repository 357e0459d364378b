//! One call, by its effect: read, broadcast and write go upstream, sticky goes
//! where its filter lives, local is answered here, subscribe is refused.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_cache::{Follow, Turn};
use wellhead_chain::View;
use wellhead_dispatch::{Ballot, Bounds, Failure, Job, Lane, Outcome, Served, Trail, now};
use wellhead_eth::{
    BlockNumber, BlockPoint, BlockRef, BlockTag, ChainId, CostClass, Effect, FilterShape, Finality,
    MethodRow, MethodTable, StickyRole, raw_transaction_hash,
};
use wellhead_jsonrpc::{Call, raw};
use wellhead_route::{Ask, NotServed, Plan, Roster, plan};
use wellhead_transport::Rest;
use wellhead_upstream::{Condition, Learnt, Payload, Slot, Upstream, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::by_hash::run_pinned;
use crate::chain::ServedChain;
use crate::doubt::{self, Settled};
use crate::floor::floor;
use crate::journey::Trip;
use crate::kept::{self, Asked, Found, Landed, Way};
use crate::metrics::CallOutcome;
use crate::pin::{Pin, highest, named, needed};
use crate::reply::Reply;
use crate::search::Range;
use crate::session::Newest;
use crate::tiers;
use crate::version::client_version;
use crate::{explain, search, sent, session, sticky, teach};

/// A call that arrives before any upstream was verified waits so long for one.
const START_WAIT: Duration = Duration::from_secs(5);
/// And only so long when each of those that were not verified yet has failed: they are down
/// rather than slow, and a client that hears so can do something else.
const DOWN_WAIT: Duration = Duration::from_secs(1);

/// A transaction that others do not find is looked for so long at the one that took it.
const LOOK_THERE: Duration = Duration::from_secs(1);

/// The method that asks which block is the newest.
pub(crate) const BLOCK_NUMBER: &str = "eth_blockNumber";

/// The method that asks for a transaction.
const TRANSACTION: &str = "eth_getTransactionByHash";

/// What a call became, and what to note of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) row: &'static MethodRow,
    pub(crate) reply: Reply,
    pub(crate) outcome: CallOutcome,
    pub(crate) slot: Option<Slot>,
    pub(crate) trail: Trail,
    pub(crate) noted: Noted,
    /// The HTTP status, if it was alone in its request.
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
}

impl Report {
    /// What was tried, in one line, the block that a tag stood for, what the cache said and
    /// who was left out.
    pub(crate) fn line(&self, roster: &Roster) -> String {
        let mut line = self.trail.line(roster);
        if let Some(block) = self.noted.block {
            let space = if line.is_empty() { "" } else { " " };
            // Writing to a String cannot fail.
            let _ = write!(line, "{space}block={}", block.0);
        }
        if let Some(aside) = &self.noted.aside {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{aside}");
        }
        line
    }
}

/// What is told of a call besides its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Noted {
    /// The block that was written in the place of a tag.
    pub(crate) block: Option<BlockNumber>,
    /// What the cache had, if it was asked.
    pub(crate) found: Option<Found>,
    /// See [`explain::aside`]; only where the client asked for the trail.
    pub(crate) aside: Option<Box<str>>,
}

/// When a call arrived, when it must be answered, and whether a large result may
/// reach the client while it still arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) received_at: Instant,
    /// When its turn came: with the request, or later in a batch.
    pub(crate) began: Instant,
    pub(crate) deadline: Instant,
    pub(crate) may_flow: bool,
}

/// Answers `call`.
pub(crate) async fn answer(trip: &Trip<'_>, call: &Call, terms: Terms) -> Report {
    let method = call.method();
    let row = MethodTable::standard().row(method);
    let mut noted = Noted::default();
    let said = say(trip, call, (row, method), terms, &mut noted).await;
    let report = move |reply, outcome, slot, trail| Report {
        noted,
        row,
        reply,
        outcome,
        slot,
        trail,
        status: 200,
        retry_after: None,
    };
    match said {
        Said::Result { result, rest: None, slot, trail, .. } => {
            report(Reply::Result(result), CallOutcome::Answered, slot, trail)
        }
        Said::Result { result, rest: Some(rest), slot, trail, .. } => {
            report(Reply::Flowing(result, rest), CallOutcome::Answered, slot, trail)
        }
        Said::Error { error, slot, trail } => {
            report(Reply::Error(error), CallOutcome::UpstreamError, Some(slot), trail)
        }
        Said::Refused { refusal, outcome, trail } => {
            let (status, retry_after) = (refusal.status, refusal.retry_after);
            let reply = Reply::Refused(refusal);
            Report { status, retry_after, ..report(reply, outcome, None, trail) }
        }
    }
}

/// What there is to say.
pub(crate) enum Said {
    Result {
        result: Bytes,
        rest: Option<Box<dyn Rest>>,
        slot: Option<Slot>,
        trail: Trail,
        /// See [`doubt::Settled`].
        is_doubtful: bool,
    },
    Error {
        error: Bytes,
        slot: Slot,
        trail: Trail,
    },
    Refused {
        refusal: Refusal,
        outcome: CallOutcome,
        trail: Trail,
    },
}

impl Said {
    fn local(result: String) -> Self {
        Self::whole(result.into(), None, Trail::default())
    }

    /// A result that is all there.
    fn result(result: Bytes, slot: Slot, trail: Trail) -> Self {
        Self::whole(result, Some(slot), trail)
    }

    /// The same, which need not be an upstream's.
    fn whole(result: Bytes, slot: Option<Slot>, trail: Trail) -> Self {
        Self::Result { result, rest: None, slot, trail, is_doubtful: false }
    }

    pub(crate) fn trail(&self) -> &Trail {
        let (Self::Result { trail, .. } | Self::Error { trail, .. } | Self::Refused { trail, .. }) =
            self;
        trail
    }

    pub(crate) fn trail_mut(&mut self) -> &mut Trail {
        let (Self::Result { trail, .. } | Self::Error { trail, .. } | Self::Refused { trail, .. }) =
            self;
        trail
    }

    fn refused(refusal: Refusal) -> Self {
        Self::Refused { refusal, outcome: CallOutcome::Refused, trail: Trail::default() }
    }
}

async fn say(
    trip: &Trip<'_>,
    call: &Call,
    (row, method): (&'static MethodRow, &str),
    terms: Terms,
    noted: &mut Noted,
) -> Said {
    let chain = trip.chain;
    let Terms { received_at, began, deadline, may_flow } = terms;
    let mut may_ask = eligible(trip, row, method);
    if let Err(NotServed::Dangerous(access)) = may_ask
        && chain.roster.allows_on_test_chains(access)
        && chain.pulse.chain_id().is_none()
    {
        // A test may begin with such a call. Boxed, as few calls should carry the state of it.
        Box::pin(chain_id(chain, deadline)).await;
        may_ask = eligible(trip, row, method);
    }
    let eligible = match may_ask {
        Ok(eligible) => eligible,
        Err(why) => return Said::refused(Refusal::not_served(why, method, trip.selected())),
    };
    let job = Job {
        row,
        method,
        params: call.params(),
        received_at,
        deadline,
        at_hash: None,
        null_is_final: false,
        is_there: false,
        // A filter's id is rewritten, and a write's answer is small.
        flows_to: (may_flow && row.effect == Effect::Read).then(|| trip.ctx.peer.ip().into()),
        ballot: None,
        progress: Some(trip.progress),
        is_first_paid: false,
        room: trip.room.as_ref(),
    };
    match row.effect {
        Effect::Local => local(chain, row, deadline).await,
        Effect::Subscribe => Said::refused(Refusal::needs_websocket(method)),
        // Boxed, as the state of an attempt is ten times that of everything before it
        // and would be moved about with each request, also with those answered here.
        Effect::Read | Effect::Write | Effect::Broadcast => {
            if row.name == BLOCK_NUMBER
                && let Some(number) = known_height(trip, call.params())
            {
                return Said::local(number);
            }
            let begun = match begin(trip, &job, eligible, began) {
                Begun { way: Way::Kept(result), pin, aside, .. } => {
                    (noted.block, noted.aside) = (pin.number(), aside);
                    return kept_said(trip, &job, &pin.block, result, noted);
                }
                begun => Box::new(begun),
            };
            Box::pin(upstream(trip, &job, began, begun, noted)).await
        }
        Effect::Sticky => Box::pin(sticky_call(trip, job, eligible, began)).await,
    }
}

/// Who may be asked by the settings and by what the client selects.
pub(crate) fn eligible(
    trip: &Trip<'_>,
    row: &MethodRow,
    method: &str,
) -> Result<UpstreamSet, NotServed> {
    match (row.effect, trip.eligible(row, method)) {
        // No upstream is asked, so none has to serve it; what is forbidden stays so.
        (
            Effect::Local | Effect::Subscribe,
            Err(NotServed::NoUpstream | NotServed::NotSelected),
        ) => Ok(UpstreamSet::default()),
        (_, eligible) => eligible,
    }
}

/// The number of the newest block for this client, while the view is fresh: what `latest`
/// means in the calls that follow, or more while nobody can be asked there. Parameters are for an upstream to refuse.
fn known_height(trip: &Trip<'_>, params: Option<&[u8]>) -> Option<String> {
    let is_plain = params
        .is_none_or(|params| params.iter().filter(|byte| !byte.is_ascii_whitespace()).eq(b"[]"));
    if !trip.chain.pins || !is_plain {
        return None;
    }
    let number = trip.look(|view| trip.newest(view).map(Newest::number))?;
    Some(format!("\"0x{:x}\"", number.0))
}

/// What an upstream said of its height, seen from what is agreed by now, and what this client
/// was shown: nobody hears of a height that is taken back with the next answer.
fn agreed_height(trip: &Trip<'_>, result: Bytes) -> Bytes {
    let chain = trip.chain;
    let Some(told) = raw::quantity(&result).filter(|_| chain.pins) else { return result };
    let agreed = chain.heads.look(|view| {
        let agreed = view.latest?.number;
        let shown =
            trip.chain.sessions.above(trip.ctx.peer.ip(), agreed, view, trip.ctx.received_at);
        let latest = shown.unwrap_or(agreed).0;
        (view.is_fresh(now()) || told < latest).then_some(latest)
    });
    match agreed.filter(|latest| *latest != told) {
        Some(latest) => format!("\"0x{latest:x}\"").into(),
        None => {
            session::show(trip, BlockNumber(told));
            result
        }
    }
}

async fn local(chain: &ServedChain, row: &MethodRow, deadline: Instant) -> Said {
    if row.name == "web3_clientVersion" {
        return Said::local(client_version(chain, deadline).await);
    }
    let Some(id) = chain_id(chain, deadline).await else {
        return Said::refused(Refusal::chain_id_unknown(&chain.roster));
    };
    match row.name {
        "net_version" => Said::local(format!("\"{}\"", id.network_id())),
        _ => Said::local(format!("\"0x{:x}\"", id.0)),
    }
}

/// The chain's id, waiting for the first upstream to tell it when it is not given.
async fn chain_id(chain: &ServedChain, deadline: Instant) -> Option<ChainId> {
    let began = now();
    let all = chain.roster.upstreams().iter().map(|upstream| upstream.slot()).collect();
    loop {
        // Made before the look, so that a verification in between is not missed.
        let verified = chain.pulse.verified();
        if let Some(id) = chain.pulse.chain_id() {
            return Some(id);
        }
        if !is_worth_waiting(chain, all, began, deadline, verified).await {
            return None;
        }
    }
}

/// What a call becomes on the one view that it sees.
struct Begun<'a> {
    pin: Pin,
    ask: Ask<'a>,
    way: Way,
    planned: Option<Planned>,
    aside: Option<Box<str>>,
}

/// Pins, looks for what is kept, and plans.
fn begin<'a>(trip: &Trip<'_>, job: &Job<'a>, eligible: UpstreamSet, began: Instant) -> Begun<'a> {
    trip.look(|view| {
        let pin = Pin::new(trip, job.row, job.params, eligible, view);
        let ask = ask(trip, (job.row, job.params), eligible, &pin.block, view);
        // Before the call is planned, and counted as one that waits for others.
        let call = (job.row, job.params);
        let aside = trip.ctx.want_trail.then(|| explain::aside(trip, call, (&ask, &pin), view));
        let way = kept::way(trip, job, &pin, view);
        let planned = match way {
            Way::Kept(_) | Way::Follow(..) => None,
            Way::Plain | Way::Ask(_) => {
                Some(plan_on(view, trip.chain, trip.lane, (&ask, &pin.block), began))
            }
        };
        Begun { pin, ask, way, planned, aside }
    })
}

/// An answer that was kept.
fn kept_said(
    trip: &Trip<'_>,
    job: &Job<'_>,
    block: &BlockRef,
    result: Bytes,
    noted: &mut Noted,
) -> Said {
    noted.found = Some(Found::Hit);
    let result = session::recall(trip, (job.row, job.params), block, None, result);
    Said::whole(result, None, Trail::default())
}

/// The usual way. What was begun stays in its box, so that the future is small.
async fn upstream(
    trip: &Trip<'_>,
    job: &Job<'_>,
    began: Instant,
    mut begun: Box<Begun<'_>>,
    noted: &mut Noted,
) -> Said {
    (noted.block, noted.aside) = (begun.pin.number(), begun.aside.take());
    if let Way::Ask(asked) = &begun.way
        && tiers::may_have(trip, asked, job.row)
        // Boxed, as few calls should carry the state of waiting.
        && let Some(result) = Box::pin(tiers::fetch(trip, asked)).await
    {
        if let Way::Ask(asked) = begun.way {
            asked.found(&result);
        }
        return kept_said(trip, job, &begun.pin.block, result, noted);
    }
    match begun.way {
        Way::Plain => {}
        Way::Ask(_) => noted.found = missed(trip),
        Way::Kept(result) => return kept_said(trip, job, &begun.pin.block, result, noted),
        Way::Follow(follow, asked) => {
            let subject = (&begun.ask, &begun.pin);
            let (said, found) = Box::pin(follow_on(trip, job, subject, follow, asked)).await;
            noted.found = found;
            return Box::pin(recalled(trip, job, &begun.pin.block, said)).await;
        }
    }
    let planned = begun.planned.take();
    let mut said = run_pinned(trip, job, (&begun.ask, &begun.pin), planned, began).await;
    if let Way::Ask(asked) = begun.way {
        asked.settle(trip.chain, told(job, &said), &said);
    }
    match recall(trip, job, &begun.pin.block, &mut said) {
        Some(taker) => Box::pin(look_there(trip, job, &begun.pin.block, taker, said)).await,
        None => said,
    }
}

/// What the client is told, by what it was shown and sent before; see [`crate::session`] and
/// [`crate::sent`]. Costs a comparison where tags are not pinned.
async fn recalled(trip: &Trip<'_>, job: &Job<'_>, block: &BlockRef, mut said: Said) -> Said {
    match recall(trip, job, block, &mut said) {
        Some(taker) => Box::pin(look_there(trip, job, block, taker, said)).await,
        None => said,
    }
}

/// The same, but for a transaction that the upstream does not have: returns which one took it.
fn recall(trip: &Trip<'_>, job: &Job<'_>, block: &BlockRef, said: &mut Said) -> Option<Slot> {
    let chain = trip.chain;
    let Said::Result { result, rest, slot, trail, .. } = said else { return None };
    if !chain.pins {
        return None;
    }
    if rest.is_some() {
        session::recall_flowing(trip, block);
        return None;
    }
    if job.row.effect == Effect::Broadcast {
        note_sent(chain, job, *slot, job.received_at + trail.lasted());
    }
    if job.row.name == TRANSACTION
        && raw::is_null(result)
        && let Some(taker) = taker(chain, job, *slot)
    {
        return Some(taker);
    }
    let call = (job.row, job.params);
    *result = session::recall(trip, call, block, *slot, std::mem::take(result));
    None
}

/// Remembers a transaction that an upstream took.
fn note_sent(chain: &ServedChain, job: &Job<'_>, slot: Option<Slot>, at: Instant) {
    let hash = job.params.and_then(raw_transaction_hash);
    if let (Some(hash), Some(slot)) = (hash, slot) {
        chain.sent.note(hash, job.params.and_then(sent::sender), slot, at);
    }
}

/// Who took the transaction that is asked for, when another said that it has none.
fn taker(chain: &ServedChain, job: &Job<'_>, asked: Option<Slot>) -> Option<Slot> {
    let hash = raw::string(raw::item(raw::trim(job.params?), 0)?)?.parse().ok()?;
    chain.sent.taken_by(&hash, now()).filter(|taker| Some(*taker) != asked)
}

/// Asks the one that took the transaction, if it is fit for it; without an answer from there
/// within a second, what was `said` stands.
async fn look_there(
    trip: &Trip<'_>,
    job: &Job<'_>,
    block: &BlockRef,
    taker: Slot,
    mut said: Said,
) -> Said {
    let (chain, lane) = (trip.chain, trip.lane);
    let began = now();
    let eligible = trip.eligible(job.row, job.method).unwrap_or_default();
    if began >= job.deadline || !eligible.contains(taker) {
        return said;
    }
    let ask = Ask::of(job.row, [taker].into_iter().collect());
    let plan = try_plan(chain, lane, (&ask, block), began).plan;
    if plan.fit() == 0 {
        return said;
    }
    let job = &Job { deadline: job.deadline.min(began + LOOK_THERE), ballot: None, ..*job };
    let found = wellhead_dispatch::run(job, &plan, &chain.roster, lane, &chain.bounds).await;
    let trail = said.trail_mut();
    trail.append(found.trail);
    match found.result {
        Ok(Served { class: VerdictClass::Answer, payload: Payload::Result(result), .. })
            if !raw::is_null(&result) =>
        {
            let result = session::recall(trip, (job.row, job.params), block, Some(taker), result);
            Said::result(result, taker, std::mem::take(trail))
        }
        Ok(_) | Err(_) => said,
    }
}

/// Waits for what comes of another's call, as long as the deadline lets it, or makes the
/// call when that one went away or cannot share its answer.
async fn follow_on(
    trip: &Trip<'_>,
    job: &Job<'_>,
    (ask, pin): (&Ask<'_>, &Pin),
    follow: Follow<Landed>,
    asked: Asked,
) -> (Said, Option<Found>) {
    let chain = trip.chain;
    let asked = match tokio::time::timeout_at(job.deadline.into(), follow).await {
        Ok(Turn::Landed(landed)) => return (landed.into_said(), Some(Found::Joined)),
        Err(_) => {
            let said = failed(chain, Failure::Deadline, Trail::default(), ask.eligible);
            return (said, Some(Found::Joined));
        }
        Ok(Turn::Lead(lead)) => asked.leading(lead),
        Ok(Turn::Alone) => asked,
    };
    let said = run_pinned(trip, job, (ask, pin), None, now()).await;
    asked.settle(chain, told(job, &said), &said);
    (said, missed(trip))
}

/// What is told of a call whose answer was not there, where answers are kept.
fn missed(trip: &Trip<'_>) -> Option<Found> {
    trip.chain.cache().map(|_| Found::Miss)
}

/// What the cache is told of a call beside its answer.
fn told<'a>(job: &Job<'a>, said: &Said) -> kept::Told<'a> {
    (job.row, job.params, job.received_at + said.trail().lasted())
}

/// Asks upstreams by the plan, or by one made now, within these bounds, and learns from what they
/// say. What was tried `before` is told with it.
pub(crate) async fn run(
    trip: &Trip<'_>,
    job: &Job<'_>,
    (ask, block): (&Ask<'_>, &BlockRef),
    planned: Option<Planned>,
    (bounds, before): (&Bounds, Trail),
    began: Instant,
) -> Said {
    let (chain, lane, eligible) = (trip.chain, trip.lane, ask.eligible);
    let range = Range::of(chain, job, block, ask.filter);
    let Planned { plan, null_is_final, is_there, ballot } = match planned {
        Some(planned) if planned.is_decided() => planned,
        // Boxed: it is rare, and few calls should carry the state of waiting.
        Some(_) | None => Box::pin(make_plan(chain, lane, (ask, block), job.deadline, began)).await,
    };
    // Where several must agree, so many have to accept the range.
    let needed = ballot.map_or(1, |ballot| ballot.quorum.agree);
    if let Some(range) = range
        && plan.fit() < needed
        && !plan.is_unoffered()
        && let Some(division) = search::widest(chain, job, ask, range, began)
    {
        return Box::pin(search::in_parts(trip, job, (ask, block), division, before)).await;
    }
    let job = &Job { null_is_final, is_there, ballot, ..*job };
    let outcome = wellhead_dispatch::run(job, &plan, &chain.roster, lane, bounds).await;
    search::learn(chain, ask, &outcome.trail);
    let Settled { outcome, is_doubtful, .. } = match doubt::is_search(job) {
        true => doubt::looked_into(trip, job, (ask, block), outcome).await,
        false => Settled::certain(outcome),
    };
    let Outcome { result, trail: own } = outcome;
    let mut trail = before;
    trail.append(own);
    if let Some(range) = range {
        if let Some(division) = search::after_refusal(job, &result, range) {
            return Box::pin(search::in_parts(trip, job, (ask, block), division, trail)).await;
        }
        if let Some(refusal) = search::filter_refused(chain, ask, &result) {
            return Said::Refused { refusal, outcome: CallOutcome::Refused, trail };
        }
    }
    let served = match result {
        Ok(served) => served,
        Err(failure) => {
            let said = failed(chain, failure, trail, eligible);
            return match job.row.effect {
                // Its answer may have been lost on the way.
                Effect::Broadcast => Box::pin(maybe_there(trip, job, said)).await,
                Effect::Read
                | Effect::Write
                | Effect::Subscribe
                | Effect::Sticky
                | Effect::Local => said,
            };
        }
    };
    let slot = served.slot;
    match (served.class, served.payload) {
        // It is in the pool, which is what the sender wanted: the hash is the answer.
        (VerdictClass::TransactionKnown, payload) => match (sent::known_hash(job), payload) {
            (Some(hash), _) => Said::result(hash.into(), slot, trail),
            (None, Payload::Error(error)) => Said::Error { error, slot, trail },
            (None, Payload::Result(result)) => Said::result(result, slot, trail),
            (None, Payload::None { .. }) => exhausted(chain, served.class, trail, eligible),
        },
        (VerdictClass::TransactionRejected, Payload::Error(error))
            if served.learnt == Some(Learnt::MaybeMined) =>
        {
            Box::pin(maybe_there(trip, job, Said::Error { error, slot, trail })).await
        }
        (_, Payload::Result(result)) => {
            let at = job.received_at + trail.lasted();
            teach::teach(chain, slot, job.row, block, &result, at);
            let result = match job.row.name {
                BLOCK_NUMBER => agreed_height(trip, result),
                _ => result,
            };
            Said::Result { result, rest: served.rest, slot: Some(slot), trail, is_doubtful }
        }
        (_, Payload::Error(error)) => Said::Error { error, slot, trail },
        (class, Payload::None { .. }) => exhausted(chain, class, trail, eligible),
    }
}

/// A raw transaction was refused because its nonce is used, which is also what is
/// said of one that was mined since: after a lost answer, or when the sender asks
/// twice. Or nobody answered, though somebody may have taken it. Whether the chain has it
/// decides; without an answer to that, what was `said` stands.
async fn maybe_there(trip: &Trip<'_>, job: &Job<'_>, mut said: Said) -> Said {
    let (chain, lane) = (trip.chain, trip.lane);
    let row = MethodTable::standard().row(TRANSACTION);
    let (Some(hash), Ok(eligible)) = (sent::known_hash(job), trip.eligible(row, row.name)) else {
        return said;
    };
    if now() >= job.deadline {
        return said;
    }
    let params = format!("[{hash}]");
    let look_up = Job { row, method: row.name, params: Some(params.as_bytes()), ..*job };
    let ask = Ask::of(row, eligible);
    let planned = make_plan(chain, lane, (&ask, &BlockRef::None), job.deadline, now()).await;
    let plan = planned.plan;
    let found = wellhead_dispatch::run(&look_up, &plan, &chain.roster, lane, &chain.bounds).await;
    let trail = said.trail_mut();
    trail.append(found.trail);
    match found.result {
        Ok(served) if served.class == VerdictClass::Answer => {
            Said::result(hash.into(), served.slot, std::mem::take(trail))
        }
        Ok(_) | Err(_) => said,
    }
}

pub(crate) fn failed(
    chain: &ServedChain,
    failure: Failure,
    trail: Trail,
    eligible: UpstreamSet,
) -> Said {
    let refusal = Refusal::failed(failure, &trail, &chain.roster, eligible);
    let outcome = CallOutcome::of(failure);
    Said::Refused { refusal, outcome, trail }
}

fn exhausted(
    chain: &ServedChain,
    class: VerdictClass,
    trail: Trail,
    eligible: UpstreamSet,
) -> Said {
    failed(chain, Failure::Exhausted { class, retry_after: None }, trail, eligible)
}

/// A plan, and what the view that it was made on says of the block that is asked for.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// See [`is_ahead`].
    null_is_final: bool,
    /// See [`is_there`].
    is_there: bool,
    /// How many must answer alike.
    pub(crate) ballot: Option<Ballot>,
}

impl Planned {
    /// Whether it says who is to be asked, or that nobody need be.
    fn is_decided(&self) -> bool {
        !self.plan.candidates().is_empty() || self.plan.is_unoffered()
    }
}

/// Plans on one view.
pub(crate) fn try_plan(
    chain: &ServedChain,
    lane: &Lane,
    subject: (&Ask<'_>, &BlockRef),
    now: Instant,
) -> Planned {
    chain.heads.look(|view| plan_on(view, chain, lane, subject, now))
}

fn plan_on(
    view: &View,
    chain: &ServedChain,
    lane: &Lane,
    (ask, block): (&Ask<'_>, &BlockRef),
    now: Instant,
) -> Planned {
    let plan = lane.with_rng(|rng| plan(ask, view, &chain.roster, now, rng));
    Planned {
        plan,
        null_is_final: is_ahead(block, view),
        is_there: is_there(block, view),
        ballot: chain.quorums.ballot(ask.row, block, view),
    }
}

/// The same. When nobody may be asked because nobody was verified yet, waits for it: a
/// call that comes with the start should not fail.
pub(crate) async fn make_plan(
    chain: &ServedChain,
    lane: &Lane,
    (ask, block): (&Ask<'_>, &BlockRef),
    deadline: Instant,
    mut now: Instant,
) -> Planned {
    let began = now;
    loop {
        // Made before the look, so that a verification in between is not missed.
        let verified = chain.pulse.verified();
        let planned = try_plan(chain, lane, (ask, block), now);
        if planned.is_decided() || !is_anybody_unverified(chain, ask.eligible) {
            return planned;
        }
        if !is_worth_waiting(chain, ask.eligible, began, deadline, verified).await {
            return planned;
        }
        now = wellhead_dispatch::now();
    }
}

/// Whether one of those who may be asked has yet to tell its chain.
fn is_anybody_unverified(chain: &ServedChain, eligible: UpstreamSet) -> bool {
    unverified(chain, eligible).next().is_some()
}

/// Waits for a verification, or for a while; false when the call waited long enough.
async fn is_worth_waiting(
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
    // In steps, as those who are still asked may turn out to be down meanwhile.
    let step = until.min(now + DOWN_WAIT);
    let _ = tokio::time::timeout_at(step.into(), verified).await;
    true
}

fn unverified(chain: &ServedChain, eligible: UpstreamSet) -> impl Iterator<Item = &Arc<Upstream>> {
    let is_one = move |upstream: &&Arc<Upstream>| {
        eligible.contains(upstream.slot()) && upstream.condition(now()) == Condition::Unverified
    };
    chain.roster.upstreams().iter().filter(is_one)
}

/// Whom a read in a batch may be sent to, and what it asks for.
pub(crate) fn batch_ask(
    trip: &Trip<'_>,
    call: &Call,
    row: &'static MethodRow,
    view: &View,
) -> Option<(Ask<'static>, Pin)> {
    // Answered here, if the view is fresh; or several are asked.
    if row.name == BLOCK_NUMBER || trip.chain.quorums.of(row).is_some() {
        return None;
    }
    let eligible = trip.eligible(row, call.method()).ok()?;
    let pin = Pin::new(trip, row, call.params(), eligible, view);
    Some((ask(trip, (row, call.params()), eligible, &pin.block, view), pin))
}

/// What a call about `block` asks of the plan. What has no height, a receipt or a pending
/// nonce, is asked of those who hold the newest block of this client.
pub(crate) fn ask<'a>(
    trip: &Trip<'_>,
    (row, params): (&'a MethodRow, Option<&[u8]>),
    eligible: UpstreamSet,
    block: &BlockRef,
    view: &View,
) -> Ask<'a> {
    let number = |point| match point {
        BlockPoint::Number(number) => Some(number),
        BlockPoint::Tag(_) => None,
    };
    let span = match block {
        BlockRef::Range { from: BlockPoint::Number(from), to: BlockPoint::Number(to) } => {
            to.0.saturating_sub(from.0).saturating_add(1)
        }
        BlockRef::Range { .. }
        | BlockRef::None
        | BlockRef::Number(_)
        | BlockRef::Tag(_)
        | BlockRef::Hash(_)
        | BlockRef::Unreadable => 0,
    };
    let oldest = block.oldest().and_then(number);
    let is_open = row.finality == Finality::Inclusion || *block == BlockRef::Tag(BlockTag::Pending);
    let newest =
        || (trip.chain.pins && is_open).then(|| trip.latest(row, eligible, view)).flatten();
    let needed = needed(block).or_else(|| named(row, block, view)).or_else(newest);
    let is_latest = *block == BlockRef::Tag(BlockTag::Latest);
    let needed = needed.or_else(|| is_latest.then(|| floor(trip, view)).flatten());
    let filter = match row.class {
        CostClass::Logs | CostClass::Trace => row.filter_shape(params),
        CostClass::Light
        | CostClass::State
        | CostClass::Block
        | CostClass::Call
        | CostClass::Write => FilterShape::default(),
    };
    Ask { row, eligible, needed, oldest, span, filter }
}

/// Whether the call asks for a block above all that is known. Nobody can have it, so
/// that null is the truth and need not be heard twice. Above the agreed head somebody may
/// have it already, and is asked.
pub(crate) fn is_ahead(block: &BlockRef, view: &View) -> bool {
    match (block, highest(view)) {
        (BlockRef::Number(number), Some(highest)) => *number > highest,
        _ => false,
    }
}

/// Whether the call asks for a block that somebody was seen to hold.
fn is_there(block: &BlockRef, view: &View) -> bool {
    match (block, highest(view)) {
        (BlockRef::Number(number), Some(highest)) => *number <= highest,
        _ => false,
    }
}

/// Filters: made anywhere, then asked where they live.
async fn sticky_call(trip: &Trip<'_>, job: Job<'_>, eligible: UpstreamSet, began: Instant) -> Said {
    let chain = trip.chain;
    match job.row.sticky {
        Some(StickyRole::Create) | None => {
            let begun = Box::new(begin(trip, &job, eligible, began));
            let said = upstream(trip, &job, began, begun, &mut Noted::default()).await;
            name_the_filter(chain, said, eligible)
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
            // The filter's id says where it lives, whatever is selected by now.
            let served = chain.eligible(job.row, job.method).unwrap_or_default();
            let only = [slot].into_iter().collect::<UpstreamSet>().and(served);
            // Nobody else can answer, so that there is nothing to wait for beyond the attempt.
            let own = chain.roster.upstream(slot).identity().attempt;
            let attempt = own.unwrap_or(chain.bounds.attempt);
            let deadline = job.deadline.min(began + attempt);
            let job = Job { params: Some(&params), deadline, ..job };
            let begun = Box::new(begin(trip, &job, only, began));
            upstream(trip, &job, began, begun, &mut Noted::default()).await
        }
    }
}

/// Puts the upstream's name into the id of a filter that it made.
fn name_the_filter(chain: &ServedChain, said: Said, eligible: UpstreamSet) -> Said {
    match said {
        Said::Result { result, slot: Some(slot), trail, .. } => {
            let id = &chain.roster.upstream(slot).identity().id;
            match sticky::hand_out(id, &result) {
                Some(named) => Said::result(named.into(), slot, trail),
                None => exhausted(chain, VerdictClass::Fault, trail, eligible),
            }
        }
        other => other,
    }
}
