//! `reach`: what a target serves, how far back, over how much, in how many at once.
//!
//! Cells: `{"probe": w, "value": v}`, of which each is one try. `w` is `method` and `v` its name;
//! or `websocket` with `calls` or `subscriptions`; or a word of an
//! `Extent` and `v` a size, found by doubling and bisecting
//! (`extent`). `fate` is `served`, `refused` or `open`: what failed in a way that says nothing of
//! it. `whole` stands where `v` is all that there is, and `of` says how far the search went at
//! most: what was tried before a run was cut is not tried again, and a search goes on where it was.
//! Methods that are refused are tried once more in the end, with `again`.
//!
//! A refusal that may be the account's, and not that of what was asked, is held against the plainest
//! call. Where that is refused in such a way as well, one cell `{"probe": "account", "value": w}`
//! names what was under way, with its calls, and nothing more is tried there.
//!
//! Sizes of the past are counted from the head, which goes on meanwhile: it is asked for again
//! when it has got old. The newest blocks may not be everywhere yet behind one URL, and are not asked
//! for: a size that is smaller is not tried, and a search for logs ends below them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use wellhead_telemetry::SecretUrl;
use wellhead_upstream::VerdictClass;

use super::extent::ExtentSearch;
use super::{factors, quantity, value};
use crate::experiment::TryFate;
use crate::measure::client::{FinishedCall, WsSession};
use crate::measure::run::{Finished, Panel, PanelEnd, RunError, UnlessStopped};
use crate::method_list::{Listed, SampleValues, methods};
use crate::record::Cell;
use crate::work::WorkCall;

/// As records and verdicts have it.
pub const NAME: &str = "reach";
/// Goes up when what it sends changes.
pub const VERSION: u32 = 2;

/// A head that was seen this long ago is asked for again.
const HEAD_AGE_MAX: Duration = Duration::from_secs(2);
/// Below the head: what has just come may not be everywhere behind one URL.
const BELOW_HEAD: u64 = 2;
/// Newest blocks that a search of the past begins with: the oldest of them is that far below.
const FIRST: u64 = BELOW_HEAD + 1;
/// Before the smallest size is asked for again: a node that was behind has come up, and the head is
/// old enough to be asked for anew.
const AGAIN_AFTER: Duration = Duration::from_secs(3);
/// That is done at most this many times in one search: when it begins, and when it is confirmed.
const AGAIN_MAX: u64 = 2;
/// Greeting, WebSocket, and the block that parameters are made of.
const OTHERS: u64 = 10;
/// The past of a chain of at most this many blocks is searched within the calls that are told.
const PAST_MAX: u64 = 1 << 32;
/// The address of no account: a search for its logs finds nothing, however far it goes.
const NO_ACCOUNT: &str = "0x00000000000000000000000000000000000a11ce";

/// How far it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachTerms {
    /// Blocks in one search at most.
    pub range_max: u64,
    /// Calls in one batch at most.
    pub batch_max: u64,
}

impl Default for ReachTerms {
    fn default() -> Self {
        Self { range_max: 100_000, batch_max: 128 }
    }
}

impl ReachTerms {
    /// Calls to one target at most, by part: its name, a method that costs as much, calls.
    pub fn parts(&self) -> [(&'static str, &'static str, u64); 8] {
        let past = ExtentSearch::tries_max(PAST_MAX) + AGAIN_MAX;
        let range = ExtentSearch::tries_max(self.range_max) + AGAIN_MAX;
        let methods = 2 * methods().len() as u64;
        // After any refusal, and after the last try of a batch.
        let refusals = ExtentSearch::refusals_max(PAST_MAX) + AGAIN_MAX;
        let controls = methods + 5 * refusals + 1;
        [
            ("reach: methods", "eth_call", methods + OTHERS),
            ("reach: states", "eth_getBalance", past),
            ("reach: blocks", "eth_getBlockByNumber", past),
            ("reach: logs", "eth_getLogs", 2 * past),
            ("reach: traces", "trace_block", past),
            ("reach: range", "eth_getLogs", range),
            (
                "reach: batch, heads",
                "eth_blockNumber",
                ExtentSearch::calls_max(self.batch_max) + past,
            ),
            ("reach: whether it is the account", "eth_blockNumber", controls),
        ]
    }
}

/// Calls that are made at least, for a prediction of how long it takes.
pub fn methods_count() -> u64 {
    methods().len() as u64
}

/// Tries at each target what was not tried before the run was cut, one thing after another, until
/// the run is to end. `sockets` are URLs for WebSocket by seat, where they are not those of the
/// target.
///
/// # Errors
///
/// Where records cannot be written.
pub async fn play(
    panel: &mut Panel<'_, '_>,
    terms: &ReachTerms,
    sockets: &[Option<SecretUrl>],
) -> Result<(), RunError> {
    let mut earlier = panel.take_earlier();
    for seat in 0..panel.len() {
        let socket = sockets.get(seat).and_then(Option::as_ref);
        let tried =
            EarlierProbes::of(&earlier.remove(&panel.member(seat).target).unwrap_or_default());
        let aside = Vec::new();
        let panel = &mut *panel;
        let barred = false;
        let mut visit = Visit { panel, seat, tried, head: None, traced_by: None, aside, barred };
        match visit.all(terms, socket).await {
            Ok(()) => {}
            Err(PanelEnd::Stopped) if visit.barred => {}
            Err(end) => return end.failure(),
        }
    }
    Ok(())
}

/// One target.
struct Visit<'t, 'p, 'a> {
    panel: &'t mut Panel<'p, 'a>,
    seat: usize,
    tried: EarlierProbes,
    head: Option<(u64, Instant)>,
    /// The method by which the traces of a block can be asked for.
    traced_by: Option<&'static str>,
    /// Calls for the head and the like, which the next cell counts as its own.
    aside: Vec<FinishedCall>,
    /// The account was refused: nothing more is asked here.
    barred: bool,
}

/// What was tried before the run was cut: by probe the values, with what became of them, in their
/// order.
#[derive(Debug, Default)]
struct EarlierProbes {
    fates: BTreeMap<String, Vec<(String, TryFate)>>,
    /// By probe: how far the search went at most.
    of: BTreeMap<String, u64>,
}

impl EarlierProbes {
    fn of(cells: &[Cell]) -> Self {
        let mut tried = Self::default();
        for cell in cells {
            let factor = |name: &str| cell.factors.get(name).cloned();
            let fate = factor("fate").and_then(|word| TryFate::from_word(&word));
            let (Some(probe), Some(value), Some(fate)) = (factor("probe"), factor("value"), fate)
            else {
                continue;
            };
            let probe = if factor("again").is_some() { AGAIN.to_owned() } else { probe };
            if let Some(of) = factor("of").and_then(|of| of.parse().ok()) {
                tried.of.insert(probe.clone(), of);
            }
            tried.fates.entry(probe).or_default().push((value, fate));
        }
        tried
    }

    fn fate(&self, probe: &str, value: &str) -> Option<TryFate> {
        let mut fates = self.fates.get(probe)?.iter();
        fates.find(|(tried, _)| tried == value).map(|(_, fate)| *fate)
    }

    /// The search as far as it went; `None` where it was not begun.
    fn search(&self, probe: &str, first: u64) -> Option<ExtentSearch> {
        let size = |(size, fate): &(String, TryFate)| Some((size.parse().ok()?, *fate));
        let sizes: Vec<(u64, TryFate)> = self.fates.get(probe)?.iter().filter_map(size).collect();
        Some(ExtentSearch::new(first, *self.of.get(probe)?).after(&sizes))
    }
}

/// Methods that were tried once more.
const AGAIN: &str = "method again";

/// What is searched for. Its words stand in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Past {
    State,
    Blocks,
    Logs,
    Traces,
}

wellhead_word::words!(Past);

impl Visit<'_, '_, '_> {
    async fn all(&mut self, terms: &ReachTerms, socket: Option<&SecretUrl>) -> UnlessStopped<()> {
        self.methods().await?;
        self.websocket(socket).await?;
        let mut kept = u64::MAX;
        for past in [Past::State, Past::Blocks, Past::Logs, Past::Traces] {
            if past == Past::Traces && self.traced_by.is_none() {
                continue;
            }
            let served = self.past(past).await?;
            if past == Past::Logs {
                kept = served;
            }
        }
        // Where logs end a wider search says nothing of its width.
        let kept = kept.saturating_sub(BELOW_HEAD).max(1);
        self.range(terms.range_max.min(kept)).await?;
        self.batch(terms.batch_max).await
    }

    async fn ask(&mut self, method: &'static str, params: &Value) -> UnlessStopped<Finished> {
        self.panel.ask_one(self.seat, WorkCall { method, params: params.to_string() }).await
    }

    /// The newest block; `None` where it was never told.
    async fn height(&mut self) -> UnlessStopped<Option<u64>> {
        if let Some((head, at)) = self.head
            && at.elapsed() < HEAD_AGE_MAX
        {
            return Ok(Some(head));
        }
        let finished = self.ask("eth_blockNumber", &json!([])).await?;
        let head = value(&finished).as_ref().and_then(quantity);
        self.aside.extend(finished.tries);
        let head = head.or(self.head.map(|(head, _)| head));
        self.head = head.map(|head| (head, Instant::now()));
        Ok(head)
    }

    /// What a try comes to that ended with this class. A refusal that may be the account's is held
    /// against the plainest call; where that is refused like this as well, the visit is over.
    async fn weigh(
        &mut self,
        probe: &str,
        class: VerdictClass,
        fate: TryFate,
        mut calls: Vec<FinishedCall>,
    ) -> UnlessStopped<(TryFate, Vec<FinishedCall>)> {
        if !is_of_account(class) {
            return Ok((fate, calls));
        }
        let control = self.ask("eth_blockNumber", &json!([])).await?;
        let class = control.class();
        calls.extend(control.tries);
        if is_of_account(class) {
            self.barred = true;
            self.close("account", probe, TryFate::Open, calls)?;
            return Err(PanelEnd::Stopped);
        }
        let fate = if class == VerdictClass::Answer { fate } else { TryFate::Open };
        Ok((fate, calls))
    }

    /// Waits before what was refused with `calls` is asked for again.
    async fn wait(&mut self, calls: Vec<FinishedCall>) -> UnlessStopped<()> {
        self.aside.extend(calls);
        tokio::select! {
            biased;
            () = self.panel.stop().wait() => Err(PanelEnd::Stopped),
            () = sleep(AGAIN_AFTER) => Ok(()),
        }
    }

    /// What parameters of methods are made of; of no account where it does not tell.
    async fn known(&mut self) -> UnlessStopped<SampleValues> {
        let head = self.height().await?.unwrap_or(0);
        let block = format!("0x{:x}", head.saturating_sub(BELOW_HEAD));
        let finished = self.ask("eth_getBlockByNumber", &json!([block, false])).await?;
        let told = value(&finished).unwrap_or_default();
        let text = |value: Option<&Value>, default: String| {
            let text = value.and_then(Value::as_str).filter(|it| it.len() == default.len());
            let is_hex = |it: &&str| it.bytes().all(|letter| letter.is_ascii_alphanumeric());
            text.filter(is_hex).map_or(default, str::to_owned)
        };
        let none = format!("0x{:064x}", 1);
        self.aside.extend(finished.tries);
        Ok(SampleValues {
            block,
            hash: text(told.get("hash"), none.clone()),
            tx: text(told.get("transactions").and_then(|list| list.get(0)), none),
            address: text(told.get("miner"), NO_ACCOUNT.to_owned()),
        })
    }

    fn close(
        &mut self,
        probe: &str,
        tried: &str,
        fate: TryFate,
        calls: Vec<FinishedCall>,
    ) -> Result<(), RunError> {
        self.close_with(probe, tried, fate, calls, [])
    }

    /// One size of a search, and what came of it.
    fn close_size(
        &mut self,
        probe: &str,
        search: &mut ExtentSearch,
        size: u64,
        came: Came,
    ) -> Result<(), RunError> {
        let Came { fate, calls, whole } = came;
        let whole = whole.then(|| ("whole", "1".to_owned()));
        let more = [("of", search.max().to_string())].into_iter().chain(whole);
        self.close_with(probe, &size.to_string(), fate, calls, more)?;
        search.learn(fate);
        Ok(())
    }

    fn close_with(
        &mut self,
        probe: &str,
        tried: &str,
        fate: TryFate,
        calls: Vec<FinishedCall>,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<(), RunError> {
        let mut factors = factors([
            ("probe", probe.to_owned()),
            ("value", tried.to_owned()),
            ("fate", fate.word().to_owned()),
        ]);
        factors.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let calls = self.aside.drain(..).chain(calls).collect();
        self.panel.close(self.seat, factors, calls, None)
    }

    async fn methods(&mut self) -> UnlessStopped<()> {
        let mut known: Option<SampleValues> = None;
        let mut missing = Vec::new();
        for listed in methods() {
            if self.method(listed, &mut known, false).await? == TryFate::Refused {
                missing.push(listed);
            }
        }
        // Of several nodes behind one URL another one may have it.
        for listed in missing {
            self.method(listed, &mut known, true).await?;
        }
        Ok(())
    }

    async fn method(
        &mut self,
        listed: &Listed,
        known: &mut Option<SampleValues>,
        again: bool,
    ) -> UnlessStopped<TryFate> {
        let tried = self.tried.fate(if again { AGAIN } else { "method" }, listed.name);
        let fate = match tried {
            Some(fate) => fate,
            None => {
                let known = match known {
                    Some(known) => known,
                    None => known.insert(self.known().await?),
                };
                let finished = self.panel.ask_one(self.seat, listed.ask(known)).await?;
                let class = finished.class();
                let (fate, calls) =
                    self.weigh("method", class, method(class), finished.tries).await?;
                let again = again.then(|| ("again", "1".to_owned()));
                self.close_with("method", listed.name, fate, calls, again)?;
                fate
            }
        };
        if fate == TryFate::Served && self.traced_by.is_none() {
            let traces = ["trace_block", "debug_traceBlockByNumber"];
            self.traced_by = traces.into_iter().find(|name| *name == listed.name);
        }
        Ok(fate)
    }

    async fn websocket(&mut self, url: Option<&SecretUrl>) -> UnlessStopped<()> {
        let endpoint = self.panel.member(self.seat).endpoint;
        let asks = [
            ("calls", WorkCall::bare("eth_blockNumber")),
            (
                "subscriptions",
                WorkCall { method: "eth_subscribe", params: r#"["newHeads"]"#.to_owned() },
            ),
        ];
        let left: Vec<_> = asks
            .into_iter()
            .filter(|(tried, _)| self.tried.fate("websocket", tried).is_none())
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let mut open = tokio::select! {
            biased;
            () = self.panel.stop().wait() => return Err(PanelEnd::Stopped),
            open = WsSession::open(endpoint, url) => open,
        };
        for (tried, ask) in left {
            if open.is_some() && !self.panel.pay(1)? {
                return Err(PanelEnd::Stopped);
            }
            let (fate, calls) = match &mut open {
                Some(socket) => {
                    let done = socket.ask(&ask).await;
                    self.panel.over(&done);
                    let finished = Finished { tries: vec![done] };
                    let class = finished.class();
                    self.weigh("websocket", class, method(class), finished.tries).await?
                }
                None => (TryFate::Refused, Vec::new()),
            };
            self.close("websocket", tried, fate, calls)?;
        }
        Ok(())
    }

    /// How many of the newest blocks it has so much of.
    async fn past(&mut self, past: Past) -> UnlessStopped<u64> {
        // Nothing ran in the very first block, and some call that an error.
        let oldest = u64::from(past == Past::Traces);
        let all = |head: u64| (head + 1).saturating_sub(oldest);
        let mut search = match self.tried.search(past.word(), FIRST) {
            Some(search) if search.next().is_none() => return Ok(search.served()),
            begun => {
                let Some(head) = self.height().await? else {
                    self.unknown(past.word(), FIRST)?;
                    return Ok(0);
                };
                let mut search = begun.unwrap_or_else(|| ExtentSearch::new(FIRST, all(head)));
                search.widen(all(head));
                search
            }
        };
        while let Some(size) = search.next() {
            let mut came = self.has(past, size, oldest).await?;
            if came.fate == TryFate::Refused && search.is_least(size) {
                self.wait(came.calls).await?;
                came = self.has(past, size, oldest).await?;
            }
            self.close_size(past.word(), &mut search, size, came)?;
        }
        Ok(search.served())
    }

    /// Nothing can be searched for without a head.
    fn unknown(&mut self, probe: &str, first: u64) -> Result<(), RunError> {
        let mut search = ExtentSearch::new(first, first);
        let came = Came { fate: TryFate::Open, calls: Vec::new(), whole: false };
        self.close_size(probe, &mut search, first, came)
    }

    /// Whether it has this of the oldest of this many newest blocks.
    async fn has(&mut self, past: Past, size: u64, oldest: u64) -> UnlessStopped<Came> {
        let head = self.height().await?.unwrap_or(0);
        let number = (head + 1).saturating_sub(size).max(oldest);
        let block = format!("0x{number:x}");
        let (method, params) = match past {
            Past::State => ("eth_getBalance", json!([NO_ACCOUNT, block])),
            Past::Blocks => ("eth_getBlockByNumber", json!([block, false])),
            Past::Logs => ("eth_getLogs", json!([{ "fromBlock": block, "toBlock": block }])),
            Past::Traces => match self.traced_by {
                Some("trace_block") | None => ("trace_block", json!([block])),
                Some(name) => (name, json!([block, { "tracer": "callTracer" }])),
            },
        };
        let finished = self.ask(method, &params).await?;
        let (class, found) = (finished.class(), value(&finished));
        let its = match depth(class) {
            // The newest blocks are in every plan: there is not enough left for this method.
            TryFate::Refused if class == VerdictClass::Billing && size <= FIRST => TryFate::Open,
            fate => fate,
        };
        let (mut fate, mut calls) = self.weigh(past.word(), class, its, finished.tries).await?;
        let is_empty = found.as_ref().and_then(Value::as_array).is_some_and(Vec::is_empty);
        if past == Past::Logs && fate == TryFate::Served && is_empty {
            // Some say "none" of what they have thrown away. The header knows better.
            let header = self.ask("eth_getBlockByNumber", &json!([block, false])).await?;
            let bloom =
                value(&header).and_then(|it| Some(it.get("logsBloom")?.as_str()?.to_owned()));
            if bloom.is_some_and(|bloom| bloom.bytes().skip(2).any(|digit| digit != b'0')) {
                fate = TryFate::Refused;
            }
            calls.extend(header.tries);
        }
        Ok(Came { fate, calls, whole: number == oldest })
    }

    /// Over how many blocks one search may go.
    async fn range(&mut self, range_max: u64) -> UnlessStopped<()> {
        let begun = self.tried.search("range", 1);
        if begun.as_ref().is_some_and(|search| search.next().is_none()) {
            return Ok(());
        }
        let Some(head) = self.height().await? else { return Ok(self.unknown("range", 1)?) };
        let top = head.saturating_sub(BELOW_HEAD);
        let max = range_max.min(top + 1);
        let mut search = begun.unwrap_or_else(|| ExtentSearch::new(1, max));
        search.widen(max);
        while let Some(size) = search.next() {
            let mut came = self.searches(top, size).await?;
            if came.fate == TryFate::Refused && search.is_least(size) {
                self.wait(came.calls).await?;
                came = self.searches(top, size).await?;
            }
            self.close_size("range", &mut search, size, came)?;
        }
        Ok(())
    }

    /// Whether it searches this many blocks, up to this one.
    async fn searches(&mut self, top: u64, size: u64) -> UnlessStopped<Came> {
        let from = (top + 1).saturating_sub(size);
        let params = json!([{
            "fromBlock": format!("0x{from:x}"),
            "toBlock": format!("0x{top:x}"),
            "address": NO_ACCOUNT,
        }]);
        let finished = self.ask("eth_getLogs", &params).await?;
        let class = finished.class();
        let (fate, calls) = self.weigh("range", class, range(class), finished.tries).await?;
        Ok(Came { fate, calls, whole: from == 0 })
    }

    /// How many calls go in one request.
    async fn batch(&mut self, batch_max: u64) -> UnlessStopped<()> {
        let begun = self.tried.search("batch", 1);
        let mut search = begun.unwrap_or_else(|| ExtentSearch::new(1, batch_max));
        while let Some(size) = search.next() {
            let ask = WorkCall::bare("eth_blockNumber");
            let finished = self.panel.batch(self.seat, &ask, size).await?;
            let (class, fate) = (finished.class(), batch(&finished));
            let (fate, calls) = self.weigh("batch", class, fate, finished.tries).await?;
            self.close_size("batch", &mut search, size, Came { fate, calls, whole: false })?;
        }
        Ok(())
    }
}

/// What became of a size.
struct Came {
    fate: TryFate,
    calls: Vec<FinishedCall>,
    /// It is all that there is.
    whole: bool,
}

/// Whether a refusal may have nothing to do with what was asked: a quota that is spent, a firewall
/// that lets no call in any more.
fn is_of_account(class: VerdictClass) -> bool {
    matches!(class, VerdictClass::Billing | VerdictClass::Auth)
}

/// Whether a method is there: a target that refuses our parameters knows it. One that is refused for
/// payment may be dearer than what is left, and be there when that is paid.
fn method(class: VerdictClass) -> TryFate {
    match class {
        VerdictClass::Answer
        | VerdictClass::Null
        | VerdictClass::Reverted
        | VerdictClass::CallerFault
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::MissingData
        | VerdictClass::RangeTooLarge
        | VerdictClass::FilterTooLarge => TryFate::Served,
        VerdictClass::Unsupported | VerdictClass::Auth => TryFate::Refused,
        VerdictClass::Billing
        | VerdictClass::Throttled
        | VerdictClass::Fault
        | VerdictClass::Void
        | VerdictClass::Unknown => TryFate::Open,
    }
}

/// Whether data of a block is there.
fn depth(class: VerdictClass) -> TryFate {
    match class {
        VerdictClass::Answer => TryFate::Served,
        VerdictClass::Null
        | VerdictClass::MissingData
        // Plans that end at some age say so in these ways.
        | VerdictClass::Unsupported
        | VerdictClass::Billing
        | VerdictClass::Auth => TryFate::Refused,
        VerdictClass::Reverted
        | VerdictClass::CallerFault
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::RangeTooLarge
        | VerdictClass::FilterTooLarge
        | VerdictClass::Throttled
        | VerdictClass::Fault
        | VerdictClass::Void
        | VerdictClass::Unknown => TryFate::Open,
    }
}

/// Whether a search may be so wide. One that reaches what is no longer kept says nothing of that.
fn range(class: VerdictClass) -> TryFate {
    match class {
        VerdictClass::Answer => TryFate::Served,
        VerdictClass::RangeTooLarge | VerdictClass::CallerFault => TryFate::Refused,
        VerdictClass::Null
        | VerdictClass::FilterTooLarge
        | VerdictClass::MissingData
        | VerdictClass::Unsupported
        | VerdictClass::Billing
        | VerdictClass::Auth
        | VerdictClass::Reverted
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::Throttled
        | VerdictClass::Fault
        | VerdictClass::Void
        | VerdictClass::Unknown => TryFate::Open,
    }
}

/// Whether a batch may have this many. There are many words for that, and one is as good as
/// another; but a target that was asked too much, or did not answer at all, says nothing of
/// batches.
fn batch(finished: &Finished) -> TryFate {
    let failed = finished.last().is_none_or(|done| done.call.error.is_some());
    match finished.class() {
        VerdictClass::Answer => TryFate::Served,
        VerdictClass::Throttled | VerdictClass::Billing | VerdictClass::Auth => TryFate::Open,
        VerdictClass::Fault if failed => TryFate::Open,
        VerdictClass::Fault
        | VerdictClass::Null
        | VerdictClass::MissingData
        | VerdictClass::Unsupported
        | VerdictClass::Reverted
        | VerdictClass::CallerFault
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::RangeTooLarge
        | VerdictClass::FilterTooLarge
        | VerdictClass::Void
        | VerdictClass::Unknown => TryFate::Refused,
    }
}
