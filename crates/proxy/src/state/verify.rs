//! Answers are compared with their calls, and recomputed, before they are used.
//!
//! What can be told of an answer is the business of `wellhead_verify`. Here is what that needs
//! to know of the world: the level of each method ([`VerifySettings`]), the chain's id and
//! rules, headers that were recomputed before (`header`), and where to do what takes long
//! (`pool`). The findings are counted and shown (`evidence`). `dispatch` withholds a void answer from clients and
//! counts it against its upstream.
//!
//! Void has to be certain. So a block at a height is not compared with the one that the view
//! holds: while a reorg goes on both may be honest. That is for a quorum to decide.
//!
//! Not looked at: answers that are kept, which were when they came; what the control loops
//! ask; and what flows.

mod evidence;
mod header;
mod pool;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use wellhead_cache::Scrutiny;
use wellhead_dispatch::{Answered, HURRIED, Inspect, Inspection, Inspections, Trail, now};
use wellhead_eth::{BlockHash, ChainId, MethodGlob, MethodRow, MethodTable};
use wellhead_jsonrpc::raw;
use wellhead_upstream::{Slot, Upstream, UpstreamSet, VerdictClass};
use wellhead_verify::{
    AnswerFinding, Check, FULL_BYTES_MAX, HeaderFacts, KnownFacts, Level, Rules, Why, has_checks,
    verify,
};
use wellhead_watch::Pulse;

use evidence::{Bad, Findings};
pub(crate) use evidence::{Evidence, InspectionOutcome};
use header::Headers;
pub use pool::VerifyPool;

/// The rule of an answer that was compared with its call and with itself.
const SOUND_CHEAP: &str = "sound-cheap";

/// Answers of one exchange up to this many bytes together are looked at where they came in at the
/// level `cheap`: a quarter of a millisecond.
const CHEAP_HERE_MAX: usize = 64 << 10;
/// And this many when there is no time for them elsewhere.
const CHEAP_AT_LAST_MAX: usize = 256 << 10;
/// At the level `full` this many: a header, a receipt, or a transaction with its signature.
const FULL_HERE_MAX: usize = 4 << 10;

/// What the settings say of looking at answers.
#[derive(Debug, Clone)]
pub struct VerifySettings {
    /// Where nothing else is said.
    pub level: Level,
    /// Upstreams whose answers are looked at by `levels` alone.
    pub trusted: UpstreamSet,
    /// Other levels for some methods; the first that matches decides.
    pub levels: Vec<(Vec<MethodGlob>, Level)>,
    /// Whether the chain follows Ethereum's rules; `None`: as is known of its id.
    pub ethereum: Option<bool>,
    /// Whether the logs of one block are held against its receipts, where they are looked at at
    /// the level `full`; see the module `proven`.
    pub proves_logs: bool,
}

impl VerifySettings {
    /// Nothing is looked at.
    pub const OFF: Self = Self {
        level: Level::Off,
        trusted: UpstreamSet::NONE,
        levels: Vec::new(),
        ethereum: None,
        proves_logs: false,
    };

    fn level_of(&self, row: &MethodRow) -> Levels {
        if !has_checks(row) {
            return Levels { usual: Level::Off, trusted: Level::Off };
        }
        let matches = |globs: &[MethodGlob]| globs.iter().any(|glob| glob.matches(row.name));
        match self.levels.iter().find(|(globs, _)| matches(globs)) {
            Some((_, level)) => Levels { usual: *level, trusted: *level },
            None => Levels { usual: self.level, trusted: Level::Off },
        }
    }
}

/// How closely answers to one method are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Levels {
    usual: Level,
    /// Those of upstreams that are trusted.
    trusted: Level,
}

/// Looks at the answers of one chain.
#[derive(Debug, Clone)]
pub(crate) struct Verifier {
    /// By row; off where there is no check.
    levels: Box<[Levels]>,
    trusted: UpstreamSet,
    ethereum: Option<bool>,
    proves_logs: bool,
    pulse: Arc<Pulse>,
    pool: Arc<VerifyPool>,
    headers: Arc<Headers>,
    pub(crate) findings: Arc<Findings>,
}

/// What is known of the chain.
#[derive(Debug, Clone, Copy)]
struct Terms {
    chain_id: Option<ChainId>,
    rules: Rules,
}

/// An exchange whose first answers were looked at.
#[derive(Debug)]
struct PartialInspection {
    /// What is thought of them.
    inspections: Vec<Inspection>,
    /// Those that were looked at here, together.
    bytes: usize,
    terms: Terms,
}

/// What came of an answer: what was found, at which level.
type LevelledFinding = (AnswerFinding, Level);

impl Verifier {
    /// Going on with what `old` found.
    pub(crate) fn succeeding(self, old: &Self) -> Self {
        let (headers, findings) = (Arc::clone(&old.headers), Arc::clone(&old.findings));
        Self { headers, findings, ..self }
    }

    /// `None` where nothing would be looked at.
    pub(crate) fn new(
        settings: &VerifySettings,
        pulse: Arc<Pulse>,
        pool: Arc<VerifyPool>,
    ) -> Option<Self> {
        let rows = MethodTable::standard().rows().iter();
        let levels: Box<[Levels]> = rows.map(|row| settings.level_of(row)).collect();
        let is_on = levels.iter().any(|level| level.usual != Level::Off);
        let VerifySettings { ethereum, trusted, proves_logs, .. } = *settings;
        let (headers, findings) = (Arc::default(), Arc::new(Findings::new()));
        is_on.then(|| Self {
            levels,
            trusted,
            ethereum,
            proves_logs,
            pulse,
            pool,
            headers,
            findings,
        })
    }

    /// How closely answers to this method are looked at, but for upstreams that are trusted.
    pub(crate) fn level(&self, row: &MethodRow) -> Level {
        self.levels[row.index.get()].usual
    }

    /// How closely those of the upstream in `slot` are.
    pub(crate) fn level_at(&self, row: &MethodRow, slot: Slot) -> Level {
        let Levels { usual, trusted } = self.levels[row.index.get()];
        if self.trusted.contains(slot) { trusted } else { usual }
    }

    /// Whether answers of trusted upstreams to this method are looked at less closely.
    pub(crate) fn spares_some(&self, row: &MethodRow) -> bool {
        let Levels { usual, trusted } = self.levels[row.index.get()];
        !self.trusted.is_empty() && trusted != usual
    }

    /// How closely the answer of any upstream is looked at, at least.
    pub(crate) fn required(&self, row: &MethodRow) -> Scrutiny {
        let Levels { usual, trusted } = self.levels[row.index.get()];
        scrutiny(if self.trusted.is_empty() { usual } else { trusted })
    }

    /// How closely an answer of the upstream in `slot` was looked at that this rule passed.
    pub(crate) fn made_of(&self, row: &MethodRow, slot: Slot, rule: &'static str) -> Scrutiny {
        let level = scrutiny(self.level_at(row, slot));
        match rule {
            HURRIED => Scrutiny::None,
            SOUND_CHEAP => level.min(Scrutiny::Cheap),
            // What cannot be looked at more closely was looked at as closely as can be.
            _ => level,
        }
    }

    /// How closely all answers were looked at that came of these attempts.
    pub(crate) fn made(&self, row: &MethodRow, trail: &Trail) -> Scrutiny {
        let answers = trail.attempts.iter().filter(|it| it.class == VerdictClass::Answer);
        let made = answers.map(|it| self.made_of(row, it.slot, it.rule));
        made.min().unwrap_or_default()
    }

    fn terms(&self) -> Terms {
        let chain_id = self.pulse.chain_id();
        let rules = match self.ethereum {
            Some(true) => Rules::Ethereum,
            Some(false) => Rules::Unknown,
            None => chain_id.map_or(Rules::Unknown, Rules::of),
        };
        Terms { chain_id, rules }
    }

    /// Whether answers with the logs of one block are held against its receipts.
    pub(crate) fn proves_logs(&self, row: &MethodRow) -> bool {
        self.proves_logs && self.level(row) == Level::Full && self.terms().rules == Rules::Ethereum
    }

    /// The header with this hash, if it was recomputed lately.
    pub(crate) fn header(&self, hash: &BlockHash) -> Option<Arc<HeaderFacts>> {
        self.headers.by_hash(hash)
    }

    /// Whether this answer is found sound at the level `full`, wherever it is from. A header that
    /// it proves is remembered.
    pub(crate) async fn prove(
        &self,
        method: &'static str,
        params: &str,
        result: &Bytes,
        until: Instant,
    ) -> bool {
        let row = MethodTable::standard().row(method);
        let (terms, headers) = (self.terms(), Arc::clone(&self.headers));
        let (params, result) = (params.to_owned(), result.clone());
        let found = self.pool.run(until, move || {
            let answered = Answered { row, params: Some(params.as_bytes()), result: &result };
            find(Level::Full, &answered, terms, &headers)
        });
        found.await == Some(AnswerFinding::Sound)
    }

    /// Counts and shows an answer with logs that differs from the receipts of its block.
    pub(crate) fn incomplete(
        &self,
        upstream: &Upstream,
        (row, params): (&MethodRow, Option<&[u8]>),
        result: &[u8],
    ) {
        let row = lasting(row);
        let check = Check::Complete.word();
        let detail = "the receipts of the block hold other logs";
        self.findings.void(upstream, Bad { row, params, result, check, detail }, now());
        self.findings.count(row, InspectionOutcome::Void);
    }

    /// A small answer here.
    fn at_first(
        &self,
        slot: Slot,
        answered: &Answered<'_>,
        terms: Terms,
        bytes: &mut usize,
    ) -> Option<LevelledFinding> {
        match self.level_at(answered.row, slot) {
            Level::Off => Some((AnswerFinding::NotChecked { why: Why::Off }, Level::Off)),
            Level::Cheap => self.here(answered, Level::Cheap, CHEAP_HERE_MAX, terms, bytes),
            Level::Full => self.here(answered, Level::Full, FULL_HERE_MAX, terms, bytes),
        }
    }

    /// Looks at an answer here, unless those of its exchange then make more than `bytes_max`.
    fn here(
        &self,
        answered: &Answered<'_>,
        level: Level,
        bytes_max: usize,
        terms: Terms,
        bytes: &mut usize,
    ) -> Option<LevelledFinding> {
        let sum = *bytes + answered.result.len();
        (sum <= bytes_max).then(|| {
            *bytes = sum;
            let found = find(level, answered, terms, &self.headers);
            (found, level)
        })
    }

    /// The answers after those that `inspections` is of: small ones here, all others elsewhere, and at
    /// last here at the level `cheap`.
    async fn look(
        &self,
        upstream: &Upstream,
        answers: Vec<Answered<'_>>,
        PartialInspection { mut inspections, mut bytes, terms }: PartialInspection,
        until: Instant,
    ) -> Vec<Inspection> {
        let (slot, answers) = (upstream.slot(), &answers[inspections.len()..]);
        let at_first = |answered: &Answered<'_>| self.at_first(slot, answered, terms, &mut bytes);
        let found: Vec<Option<LevelledFinding>> = answers.iter().map(at_first).collect();
        let elsewhere = answers.iter().zip(&found).filter(|(_, found)| found.is_none());
        let elsewhere = elsewhere.map(|(answered, _)| self.elsewhere(slot, answered, terms, until));
        let mut elsewhere = join_all(elsewhere).await.into_iter();
        for (answered, found) in answers.iter().zip(found) {
            let found = found.or_else(|| elsewhere.next().flatten());
            let is_busy = found.is_none();
            let at_last =
                || self.here(answered, Level::Cheap, CHEAP_AT_LAST_MAX, terms, &mut bytes);
            let found = found.or_else(at_last);
            inspections.push(self.settle(upstream, answered, found, is_busy));
        }
        inspections
    }

    /// Has an answer checked in the pool, where it delays no other call; `None` if there is no time.
    fn elsewhere(
        &self,
        slot: Slot,
        answered: &Answered<'_>,
        terms: Terms,
        until: Instant,
    ) -> impl Future<Output = Option<LevelledFinding>> {
        let Answered { row, params, result } = *answered;
        let (level, row) = (self.level_at(row, slot), lasting(row));
        let (params, result) = (params.map(<[u8]>::to_vec), result.clone());
        let headers = Arc::clone(&self.headers);
        self.pool.run(until, move || {
            let answered = Answered { row, params: params.as_deref(), result: &result };
            (find(level, &answered, terms, &headers), level)
        })
    }

    /// Counts and shows what was found.
    fn settle(
        &self,
        upstream: &Upstream,
        answered: &Answered<'_>,
        found: Option<LevelledFinding>,
        is_busy: bool,
    ) -> Inspection {
        let Answered { row, params, result } = *answered;
        let (seen, inspection) = match found {
            Some((AnswerFinding::Void { check, detail }, _)) => {
                let (check, row) = (check.word(), lasting(row));
                let bad = Bad { row, params, result, check, detail: &detail };
                self.findings.void(upstream, bad, now());
                (InspectionOutcome::Void, Inspection::Invalid { check, detail })
            }
            // What it means is said by the method table.
            Some((AnswerFinding::NotChecked { why: Why::Off | Why::Null }, _)) => {
                return Inspection::Unchecked;
            }
            Some((AnswerFinding::NotChecked { .. }, _)) if is_busy => {
                (InspectionOutcome::Busy, Inspection::Hurried)
            }
            Some((AnswerFinding::NotChecked { .. }, _)) => {
                (InspectionOutcome::NotChecked, Inspection::Unchecked)
            }
            Some((AnswerFinding::Sound, Level::Full)) => {
                (InspectionOutcome::Sound, Inspection::Sound { rule: "sound-full" })
            }
            Some((AnswerFinding::Sound, Level::Cheap | Level::Off)) => {
                (InspectionOutcome::Sound, Inspection::Sound { rule: SOUND_CHEAP })
            }
            None => (InspectionOutcome::Busy, Inspection::Hurried),
        };
        let seen =
            if is_busy && seen != InspectionOutcome::Void { InspectionOutcome::Busy } else { seen };
        self.findings.count(row, seen);
        inspection
    }
}

impl Inspect for Verifier {
    fn is_asked(&self, upstream: &Upstream, row: &MethodRow) -> bool {
        self.level_at(row, upstream.slot()) != Level::Off
    }

    fn whole_bytes(&self, upstream: &Upstream, row: &MethodRow) -> usize {
        match self.level_at(row, upstream.slot()) {
            Level::Full => FULL_BYTES_MAX,
            Level::Off | Level::Cheap => 0,
        }
    }

    fn inspect<'a>(
        &'a self,
        upstream: &'a Arc<Upstream>,
        answers: Vec<Answered<'a>>,
        until: Instant,
    ) -> Inspections<'a> {
        // Nearly all are small: no state of a wait is made for them.
        let (terms, slot, mut bytes) = (self.terms(), upstream.slot(), 0);
        let mut inspections = Vec::with_capacity(answers.len());
        for answered in &answers {
            let Some(found) = self.at_first(slot, answered, terms, &mut bytes) else { break };
            inspections.push(self.settle(upstream, answered, Some(found), false));
        }
        if inspections.len() == answers.len() {
            return Box::pin(ready(inspections));
        }
        Box::pin(self.look(
            upstream,
            answers,
            PartialInspection { inspections, bytes, terms },
            until,
        ))
    }

    fn flows(&self, row: &MethodRow) {
        self.findings.count(row, InspectionOutcome::Flowed);
    }
}

fn scrutiny(level: Level) -> Scrutiny {
    match level {
        Level::Off => Scrutiny::None,
        Level::Cheap => Scrutiny::Cheap,
        Level::Full => Scrutiny::Full,
    }
}

/// The row of the standard table, which lives as long as the process.
fn lasting(row: &MethodRow) -> &'static MethodRow {
    &MethodTable::standard().rows()[row.index.get()]
}

/// Looks at one answer, and remembers the header that it proves.
fn find(level: Level, answered: &Answered<'_>, terms: Terms, headers: &Headers) -> AnswerFinding {
    let Answered { row, params, result } = *answered;
    let is_full = level == Level::Full;
    let header = if is_full { headers.of(row, params, result) } else { None };
    let header = header.as_deref();
    let known = KnownFacts {
        chain_id: terms.chain_id,
        rules: terms.rules,
        header,
        ..KnownFacts::default()
    };
    let mut result: &[u8] = result;
    let mut finding = verify(level, row, params, result, &known);
    // Behind a long result there may be other members, which were not read.
    if let AnswerFinding::Void { .. } = finding
        && let Some(alone) = raw::leading(result)
        && alone.len() < raw::trim(result).len()
    {
        result = alone;
        finding = verify(level, row, params, result, &known);
    }
    if is_full && finding == AnswerFinding::Sound && names_a_header(row) {
        HeaderFacts::read(result).into_iter().for_each(|header| headers.keep(header));
    }
    finding
}

/// Whether a sound answer to this method is a block or its header.
fn names_a_header(row: &MethodRow) -> bool {
    let names = [
        "eth_getBlockByHash",
        "eth_getBlockByNumber",
        "eth_getHeaderByHash",
        "eth_getHeaderByNumber",
    ];
    names.contains(&row.name)
}

#[cfg(test)]
mod tests {

    use std::sync::mpsc;
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use wellhead_upstream::{BreakerBounds, Identity, Slot};

    use super::*;

    fn upstream() -> Arc<Upstream> {
        let identity = Identity::named("a");
        Arc::new(Upstream::new(identity, Slot(0), BreakerBounds::default(), now()))
    }

    /// What is found of a list of `bytes` bytes at the level `full` while there is no time for
    /// that, and how it counts.
    async fn check(bytes: usize, list: &str, expected: &str, seen: InspectionOutcome) {
        let settings = VerifySettings { level: Level::Full, ..VerifySettings::OFF };
        let (pulse, pool) = (Arc::new(Pulse::new(None, now())), Arc::new(VerifyPool::new(1)));
        let verifier = Verifier::new(&settings, pulse, Arc::clone(&pool)).expect("it is on");
        let (go, wait) = mpsc::channel::<()>();
        let until = now() + Duration::from_secs(30);
        let mut other = Box::pin(pool.run(until, move || wait.recv().is_ok()));
        assert_eq!(other.as_mut().now_or_never(), None, "it takes the only turn");
        let row = MethodTable::standard().row("eth_getLogs");
        let params: &[u8] = br#"[{"fromBlock":"0x1","toBlock":"0x2"}]"#;
        let result = Bytes::from(list.to_owned() + &" ".repeat(bytes - list.len()));
        let upstream = upstream();
        let answered = Answered { row, params: Some(params), result: &result };
        let mut looking = verifier.inspect(&upstream, vec![answered], until);
        assert_eq!(looking.as_mut().now_or_never(), None, "it waits for its turn");
        // By hand, as the clock stands still while something is at work aside.
        tokio::time::advance(pool::WAIT_MAX).await;
        let inspections = looking.await;
        let [inspection] = inspections.as_slice() else { panic!("one: {inspections:?}") };
        let word = match inspection {
            Inspection::Unchecked => "unchecked",
            Inspection::Hurried => HURRIED,
            Inspection::Sound { rule } => rule,
            Inspection::Invalid { check, .. } => check,
        };
        assert_eq!(word, expected, "{bytes} bytes");
        assert_eq!(verifier.findings.so_far(row, seen), 1, "{bytes} bytes");
        go.send(()).expect("it waits for this");
        assert_eq!(other.await, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn without_time_an_answer_is_looked_at_less_closely_or_not_at_all() {
        check(FULL_HERE_MAX + 1, "[]", "sound-cheap", InspectionOutcome::Busy).await;
        check(CHEAP_AT_LAST_MAX, "[]", "sound-cheap", InspectionOutcome::Busy).await;
        check(CHEAP_AT_LAST_MAX + 1, "[]", HURRIED, InspectionOutcome::Busy).await;
        check(FULL_HERE_MAX + 1, "{}", "shape", InspectionOutcome::Void).await;
    }
}
