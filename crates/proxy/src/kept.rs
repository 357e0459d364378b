//! Answers kept and shared: the cache is asked before an upstream is, and told what came.
//!
//! What may be kept and for how long is decided in `wellhead_cache`. Here is what that
//! needs to know of the world: what a view says of blocks ([`Seen`]), which clock entries
//! end by, who waits for whose call, and when the control plane tidies up ([`Tidier`]).
//!
//! Not promised: that a chain whose final blocks are replaced, as when a development node
//! starts anew, is seen so at once. What was kept is forgotten when the view falls below
//! its finalized block.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
pub(crate) use wellhead_cache::Answer;
use wellhead_cache::{
    Ask, Assurance, Canon, Entry, FlightKey, FlightLimits, Flights, Follow, Joined, Key, Lead,
    Memory, MemoryStats, Pin, Point, Reason, Times, may_be_kept, rule,
};
use wellhead_chain::{Reorg, Tag, View};
use wellhead_dispatch::{Job, Trail, now};
use wellhead_eth::{BlockHash, BlockNumber, BlockRef, ChainId, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_upstream::{Slot, TryElsewhere};

use crate::answer::Refusal;
use crate::call::{BLOCK_NUMBER, Said};
use crate::chain::ServedChain;
use crate::floor::floor;
use crate::journey::{Proxy, Trip};
use crate::metrics::CallOutcome;
use crate::pin;
use crate::session::Newest;
use crate::tiers::{self, Distrust, Tiers};

/// What the settings say of kept answers.
#[derive(Debug, Clone, Copy)]
pub struct CacheSettings {
    /// Bytes of answers in memory, with their keys and all that goes with them.
    pub bytes: u64,
    /// For answers that change with the head; zero keeps none.
    pub head: Duration,
    /// For a `null` that says something true; zero keeps none.
    pub null: Duration,
    /// Whether states are asked for by the hash of their block, which lets them be kept.
    pub by_hash: ByHashMode,
}

/// Which upstreams are asked for a state by the hash of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByHashMode {
    /// Those that were found to honour one.
    #[default]
    Auto,
    /// All of them: they are known to.
    On,
    /// None.
    Off,
}

/// The answers that are kept, of all chains and for all workers.
#[derive(Debug)]
pub struct Cache {
    memory: Memory,
    settings: CacheSettings,
    /// The clock by which entries end: milliseconds since 1970 at a moment, counted on from
    /// there by the clock that requests have.
    since: (Instant, u64),
    tiers: Tiers,
}

impl Cache {
    /// Keeps nothing yet. `unix_ms` is the wall time at `now`; `seed` is a secret, so that
    /// nobody can choose calls that are slow to look up.
    pub fn new(settings: CacheSettings, now: Instant, unix_ms: u64, seed: u64) -> Self {
        let memory = Memory::new(settings.bytes, seed);
        Self { memory, settings, since: (now, unix_ms), tiers: Tiers::default() }
    }

    /// With these tiers behind the memory.
    #[must_use]
    pub fn before(self, tiers: Tiers) -> Self {
        Self { tiers, ..self }
    }

    /// What stands behind the memory.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// Takes over what a tier had.
    pub(crate) fn adopt(&self, key: &Key, entry: &Entry) {
        self.memory.adopt(key, entry);
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.settings.bytes
    }

    pub(crate) fn ms(&self, at: Instant) -> u64 {
        let (then, unix_ms) = self.since;
        let passed = at.saturating_duration_since(then).as_millis();
        unix_ms.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(crate) fn by_hash(&self) -> ByHashMode {
        self.settings.by_hash
    }

    fn times(&self) -> Times {
        Times { head: self.settings.head, null: self.settings.null }
    }
}

impl Proxy {
    /// The answers that are kept; all chains that keep any keep them in one place.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.chains().iter().find_map(|chain| Some(&**chain.cache()?))
    }
}

/// What one chain shares: the answers kept, and the calls under way.
#[derive(Debug)]
pub(crate) struct Shares {
    /// `None` where nothing is kept.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Of this chain alone: another may have the same id, and other upstreams. `None` where each
    /// goes alone.
    flights: Option<Flights<Landed>>,
    /// Whose answers in the slow tiers are left alone.
    pub(crate) distrust: Distrust,
}

impl Shares {
    /// `None` where neither is wanted. `seed` is that of the flights.
    pub(crate) fn new(cache: Option<Arc<Cache>>, seed: Option<u64>) -> Option<Self> {
        let is_wanted = cache.is_some() || seed.is_some();
        let flights = seed.map(|seed| Flights::new(FlightLimits::default(), seed));
        is_wanted.then(|| Self { cache, flights, distrust: Distrust::default() })
    }

    /// Counts a call that is not looked up.
    fn refused(&self, reason: Reason) {
        if let Some(cache) = &self.cache {
            cache.memory.refused(reason);
        }
    }
}

/// What a view says of blocks. While it is not fresh it says nothing of those that may have
/// been replaced since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    view: &'a View,
    is_fresh: bool,
}

impl<'a> Seen<'a> {
    pub(crate) fn at(view: &'a View, now: Instant) -> Self {
        Self { view, is_fresh: view.is_fresh(now) }
    }

    /// The same for a client. One that was shown more than is agreed may have been shown another
    /// branch: to it the view says nothing of what may be replaced.
    pub(crate) fn by(trip: &Trip<'_>, view: &'a View, now: Instant) -> Self {
        Self { view, is_fresh: view.is_fresh(now) && shown_more(trip, view).is_none() }
    }
}

impl Canon for Seen<'_> {
    fn head(&self) -> Option<BlockNumber> {
        self.view.latest.filter(|_| self.is_fresh).map(|head| head.number)
    }

    fn finalized(&self) -> Option<BlockNumber> {
        let (mark, latest) = (self.view.mark(Tag::Finalized)?.number, self.view.latest?.number);
        // Above the newest block it is a chain's that was there before a reset.
        (mark <= latest).then_some(mark)
    }

    fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let may_be_known = self.is_fresh || self.finalized().is_some_and(|mark| number <= mark);
        may_be_known.then(|| self.view.hash_at(number)).flatten()
    }

    fn number_of(&self, hash: &BlockHash) -> Option<BlockNumber> {
        self.view.height_of(hash)
    }
}

/// What the cache had to say to a call that it may answer, for the client to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was kept.
    Hit,
    /// It was not, and an upstream was asked.
    Miss,
    /// The same was under way for another client, and what came of it was the answer.
    Joined,
}

impl Found {
    pub(crate) const ALL: [Self; 3] = [Self::Hit, Self::Miss, Self::Joined];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Joined => "joined",
        }
    }
}

/// How a call is answered.
#[derive(Debug)]
pub(crate) enum Way {
    /// By an upstream, and nobody else hears of it.
    Plain,
    /// By this.
    Kept(Bytes),
    /// By an upstream.
    Ask(Asked),
    /// By what comes of the same call of another client.
    Follow(Follow<Landed>, Asked),
}

/// What a call means, to know its answer again.
#[derive(Debug)]
pub(crate) struct Asked {
    chain: ChainId,
    key: Key,
    pin: Pin,
    head: Option<BlockNumber>,
    /// What has to stand behind an answer that was kept.
    required: Assurance,
    /// Where others may wait for it.
    lead: Option<Lead<Landed>>,
}

/// What came of a call that others wait for.
#[derive(Debug, Clone)]
pub(crate) enum Landed {
    Result(Bytes, Option<Slot>),
    Error(Bytes, Slot),
    Refused(Arc<Refusal>, CallOutcome),
}

impl Landed {
    pub(crate) fn into_said(self) -> Said {
        let trail = Trail::default();
        match self {
            Self::Result(result, slot) => {
                Said::Result { result, rest: None, slot, trail, is_doubtful: false }
            }
            Self::Error(error, slot) => Said::Error { error, slot, trail },
            Self::Refused(refusal, outcome) => {
                Said::Refused { refusal: Refusal::clone(&refusal), outcome, trail }
            }
        }
    }
}

/// How `job` is answered, by the view that it was pinned on: from memory, together with
/// others, or alone. Costs a comparison where the method's answers are never kept.
pub(crate) fn way(trip: &Trip<'_>, job: &Job<'_>, pin: &pin::Pin, view: &View) -> Way {
    let Some(shares) = &trip.chain.shares else { return Way::Plain };
    let asked = depends_on(trip, job.row, pin, view)
        .and_then(|of| asked(trip, (job.row, job.params), of, view));
    let mut asked = match asked {
        Ok(asked) => asked,
        Err(reason) => {
            shares.refused(reason);
            return Way::Plain;
        }
    };
    if let Some(kept) = shares.get(trip, &asked, job.row, view) {
        return Way::Kept(kept);
    }
    // Whoever was shown more than is agreed waits for nobody who was not.
    let head = floor(trip, view).or(view.latest.map(|head| head.number));
    let Some(flights) = &shares.flights else { return Way::Ask(asked) };
    match flights.join(FlightKey { key: asked.key.clone(), head }) {
        Joined::Lead(lead) => {
            // The call before this one may have landed since the first look.
            if let Some(kept) = shares.get(trip, &asked, job.row, view) {
                lead.land(Landed::Result(kept.clone(), None));
                return Way::Kept(kept);
            }
            asked.lead = Some(lead);
            Way::Ask(asked)
        }
        Joined::Follow(follow) => Way::Follow(follow, asked),
        Joined::Alone => Way::Ask(asked),
    }
}

/// Looks for the answer to an item of a batch, which waits for nobody: `Err` with what is
/// told when the answer came, if anything. Boxed, as most items have nothing to tell.
pub(crate) fn look_up(
    trip: &Trip<'_>,
    call: (&MethodRow, Option<&[u8]>),
    pin: &pin::Pin,
    view: &View,
) -> Result<Bytes, Option<Box<Asked>>> {
    let shares = trip.chain.shares.as_ref().filter(|shares| shares.cache.is_some());
    let Some(shares) = shares else { return Err(None) };
    match sought(trip, call, pin, view) {
        Ok(asked) => shares.get(trip, &asked, call.0, view).ok_or_else(|| Some(Box::new(asked))),
        Err(reason) => {
            shares.refused(reason);
            Err(None)
        }
    }
}

/// What an item of a batch means that is not in memory and may be in a slow tier.
pub(crate) fn wanted(
    trip: &Trip<'_>,
    call: (&MethodRow, Option<&[u8]>),
    pin: &pin::Pin,
    view: &View,
) -> Option<Asked> {
    let asked = sought(trip, call, pin, view).ok()?;
    let is_in_memory = trip.chain.shares.as_ref()?.get(trip, &asked, call.0, view).is_some();
    (!is_in_memory && tiers::may_have(trip, &asked, call.0)).then_some(asked)
}

/// What the answer depends on, where it can be kept or shared. Needs no allocation.
fn depends_on(
    trip: &Trip<'_>,
    row: &MethodRow,
    pin: &pin::Pin,
    view: &View,
) -> Result<Pin, Reason> {
    let (pulse, at) = (&trip.chain.pulse, trip.ctx.received_at);
    let of = Pin::of(row, pin.sent(), &Seen::at(view, at))?;
    // What is final is kept for ever. Whoever names a height may name a final one; who
    // speaks of the newest block does not.
    let is_by_height = matches!(of, Pin::Block(Point::Height(_) | Point::Hash(_)))
        && matches!(pin.block, BlockRef::Number(_))
        && pin.params.is_none();
    if (is_by_height || of == Pin::Inclusion)
        && let Some(cache) = trip.chain.cache()
    {
        pulse.want_finality(at);
        if !cache.tiers.is_empty() {
            pulse.want_origin();
        }
    }
    match of {
        // While the view is not fresh, each is to hear what there is now.
        Pin::Head if row.name == BLOCK_NUMBER => Err(Reason::Live),
        of => Ok(of),
    }
}

/// What a call means whose answer may be in memory, or why it is not looked up there.
pub(crate) fn sought(
    trip: &Trip<'_>,
    call: (&MethodRow, Option<&[u8]>),
    pin: &pin::Pin,
    view: &View,
) -> Result<Asked, Reason> {
    if trip.chain.cache().is_none() {
        return Err(Reason::Off);
    }
    let of = depends_on(trip, call.0, pin, view)?;
    may_be_kept(call.0, of)?;
    asked(trip, call, of, view)
}

/// What the call means to the cache.
fn asked(
    trip: &Trip<'_>,
    (row, params): (&MethodRow, Option<&[u8]>),
    pin: Pin,
    view: &View,
) -> Result<Asked, Reason> {
    let chain = trip.chain.pulse.chain_id().ok_or(Reason::Off)?;
    let head = Seen::at(view, trip.ctx.received_at).head();
    // Whoever selects upstreams shares with those who select the same.
    let salt = trip.selected().as_bytes();
    let key = Key::of(&Ask { chain, row, params, pin, head, salt })?;
    let required = trip.chain.required(row);
    Ok(Asked { chain, key, pin, head, required, lead: None })
}

/// What a part of a search means to the cache, made by the newest view; `None` unless all of
/// it is final and such answers are kept.
pub(crate) fn part(
    chain: &ServedChain,
    (row, params): (&MethodRow, Option<&[u8]>),
    block: &BlockRef,
    salt: &[u8],
) -> Option<Asked> {
    chain.cache()?;
    let (id, at) = (chain.pulse.chain_id()?, now());
    chain.pulse.want_finality(at);
    chain.heads.look(|view| {
        let canon = Seen::at(view, at);
        let pin = Pin::of(row, *block, &canon).ok()?;
        let Pin::Range { from: Point::Final(_), to: Point::Final(_) } = pin else { return None };
        may_be_kept(row, pin).ok()?;
        let head = canon.head();
        let key = Key::of(&Ask { chain: id, row, params, pin, head, salt }).ok()?;
        let required = chain.required(row);
        Some(Asked { chain: id, key, pin, head, required, lead: None })
    })
}

/// What is the newest for a client that was shown more than is agreed.
fn shown_more(trip: &Trip<'_>, view: &View) -> Option<Newest> {
    trip.chain.pins.then(|| trip.newest(view)).flatten().filter(|newest| newest.is_shown())
}

/// Whoever was shown more than is agreed is told of nothing that is missing below that.
pub(crate) fn may_be_told(trip: &Trip<'_>, result: &[u8], view: &View) -> bool {
    !raw::is_null(result) || shown_more(trip, view).is_none()
}

impl Shares {
    /// The answer to a part of a search that is final, if it is in memory.
    pub(crate) fn part(&self, chain: &ServedChain, asked: &Asked) -> Option<Bytes> {
        let (cache, at) = (self.cache.as_ref()?, now());
        let hit = chain.heads.look(|view| {
            cache.memory.get(&asked.key, &Seen::at(view, at), asked.required, cache.ms(at))
        });
        hit.map(|hit| hit.value)
    }

    fn get(&self, trip: &Trip<'_>, asked: &Asked, row: &MethodRow, view: &View) -> Option<Bytes> {
        let cache = self.cache.as_ref()?;
        may_be_kept(row, asked.pin).ok()?;
        let at = trip.ctx.received_at;
        let seen = Seen::by(trip, view, at);
        let hit = cache.memory.get(&asked.key, &seen, asked.required, cache.ms(at))?;
        may_be_told(trip, &hit.value, view).then_some(hit.value)
    }
}

/// A call, as far as what it is told by needs it: its row, its parameters as the client wrote
/// them, and when it was answered.
pub(crate) type Told<'a> = (&'a MethodRow, Option<&'a [u8]>, Instant);

impl Asked {
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn pin(&self) -> Pin {
        self.pin
    }

    pub(crate) fn required(&self) -> Assurance {
        self.required
    }

    /// Tells those who wait that a slow tier had the answer.
    pub(crate) fn found(self, result: &Bytes) {
        if let Some(lead) = self.lead {
            lead.land(Landed::Result(result.clone(), None));
        }
    }

    /// Leads those who wait for the same.
    pub(crate) fn leading(self, lead: Lead<Landed>) -> Self {
        Self { lead: Some(lead), ..self }
    }

    /// Keeps what an upstream said where it may be kept, and tells those who wait.
    pub(crate) fn settle(self, chain: &ServedChain, told: Told<'_>, said: &Said) {
        let flows = Answer::Unfinished;
        let (answer, landed, is_final) = match said {
            Said::Result { rest: Some(_), .. } => (flows, None, true),
            // Told, as there is nothing better, and not kept.
            Said::Result { result, slot, is_doubtful: true, .. } => {
                (flows, Some(Landed::Result(result.clone(), *slot)), true)
            }
            Said::Result { result, rest: None, slot, .. } => {
                (Answer::Result(result), Some(Landed::Result(result.clone(), *slot)), true)
            }
            Said::Error { error, slot, trail } => {
                let is_final = trail.attempts.iter().any(|attempt| {
                    attempt.slot == *slot && attempt.class.try_elsewhere() == TryElsewhere::No
                });
                (Answer::Error, Some(Landed::Error(error.clone(), *slot)), is_final)
            }
            Said::Refused { refusal, outcome, .. } => {
                let refusal = Arc::new(refusal.clone());
                (Answer::Error, Some(Landed::Refused(refusal, *outcome)), false)
            }
        };
        self.keep(chain, told, answer, chain.assurance(told.0, said.trail()));
        match (self.lead, landed) {
            (Some(lead), Some(landed)) if is_final => lead.land(landed),
            (Some(lead), Some(landed)) => lead.fail(landed),
            (Some(lead), None) => lead.part(),
            (None, _) => {}
        }
    }

    /// Keeps an answer where it may be kept, by the newest view.
    pub(crate) fn keep(
        &self,
        chain: &ServedChain,
        (row, params, at): Told<'_>,
        answer: Answer<'_>,
        assurance: Assurance,
    ) {
        let Some(Shares { cache: Some(cache), distrust, .. }) = &chain.shares else { return };
        let (pin, head, now_ms) = (self.pin, self.head, cache.ms(at));
        let ask = Ask { chain: self.chain, row, params, pin, head, salt: b"" };
        let ruling = chain.heads.look(|view| {
            let canon = Seen::at(view, at);
            rule(&ask, answer, &canon, cache.times(), now_ms)
        });
        let ruling = ruling.map(|kept| kept.with(assurance));
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error | Answer::Unfinished => b"",
        };
        cache.memory.put(&self.key, ruling, result);
        if let Ok(kept) = ruling
            && let Some(origin) = distrust.origin(&chain.pulse)
        {
            cache.tiers.put(&self.key, &origin, kept, result);
        }
    }
}

/// Frees what became untrue, off the path of requests: nothing is served because it was
/// late. One for all chains of a proxy.
#[derive(Debug)]
pub struct Tidier {
    proxy: Arc<Proxy>,
    /// By chain: the reorgs heard of, and the finalized block.
    seen: Vec<(u64, Option<BlockNumber>)>,
}

impl Tidier {
    /// How often to look: a block of the quickest chains is four times as quick, and a
    /// second's worth of orphaned answers is little.
    pub const EVERY: Duration = Duration::from_secs(1);

    /// Has seen nothing yet.
    pub fn new(proxy: Arc<Proxy>) -> Self {
        let seen = vec![(0, None); proxy.chains().len()];
        Self { proxy, seen }
    }

    /// Looks at each chain, and tidies where there was a reorg or a step of finality.
    pub fn tidy(&mut self) {
        for (chain, seen) in self.proxy.chains().iter().zip(&mut self.seen) {
            let (Some(shares), Some(id)) = (&chain.shares, chain.pulse.chain_id()) else {
                continue;
            };
            let Some(cache) = &shares.cache else { continue };
            let view = chain.heads.view();
            // What is not fresh is still what is believed.
            let canon = Seen { view: &view, is_fresh: true };
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
                    "blocks that were final were replaced: all kept answers are forgotten"
                );
                memory.clear();
                shares.distrust.begin(&chain.pulse);
            } else {
                memory.settle(id, &canon);
            }
        }
    }
}
