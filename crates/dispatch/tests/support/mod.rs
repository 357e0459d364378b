//! Upstreams that play a script, and a run over them on a paused clock.
//!
//! A script is words, one an exchange: see [`step`]. When it is over the upstream
//! answers well. Which one comes first is settled by latencies that are far apart.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_chain::{Heads, Observation, Source};
use wellhead_dispatch::{
    Allowance, Ballot, BatchContext, BatchItem, BatchOutcome, Bounds, ClientId, Job, Outcome,
    Progress, Quorum, WorkerUpstreams, now, run, run_batch,
};
use wellhead_eth::{BlockNumber, MethodTable};
pub(crate) use wellhead_kit::{ScriptedTransport, Step, ms, secs, settle, verified};
use wellhead_kit::{named_by, status, throttle};
use wellhead_route::{DangerousMethods, Plan, PlanRequest, Roster, plan};
use wellhead_transport::{Sent, Transport, TransportErrorKind};
use wellhead_upstream::{Identity, MethodRules, Payload, Slot, Tier, Upstream, VerdictClass};

fn answer(outcome: &str) -> Step {
    status(200, format!(r#"{{"jsonrpc":"2.0","id":1,{outcome}}}"#))
}

fn error(code: i64, message: &str) -> Step {
    answer(&format!(r#""error":{{"code":{code},"message":"{message}"}}"#))
}

/// The step of a word; `40ms~ok` is slow, `429+7` asks for seven seconds.
pub(crate) fn step(word: &str) -> Step {
    use TransportErrorKind as Kind;
    if let Some((time, word)) = word.split_once("ms~") {
        return step(word).after(ms(time.parse().expect("milliseconds")));
    }
    if let Some((status, seconds)) = word.split_once('+') {
        let retry_after = Some(secs(seconds.parse().expect("seconds")));
        let status = status.parse().expect("a status");
        return Step::Status { status, body: "slow down".into(), retry_after };
    }
    match word {
        "ok" => answer(r#""result":"0x1""#),
        "two" => answer(r#""result":"0x2""#),
        "upper" => answer(r#""result":"0xAB""#),
        "lower" => answer(r#""result": "0xab""#),
        "null" => answer(r#""result":null"#),
        "revert" => error(3, "execution reverted"),
        "caller" => error(-32602, "missing value for required argument 1"),
        "missing" => error(-32000, "missing trie node 5ab8 (path ) state 0x5ab8 is not available"),
        "wide" => error(-32005, "query returned more than 10000 results"),
        "limit" => error(-32005, "rate limit exceeded"),
        "unsupported" => error(-32601, "the method eth_call does not exist/is not available"),
        "known" => error(-32000, "already known"),
        "nonce" => error(-32000, "nonce too low: address 0x9a31, tx: 1 state: 4"),
        "funds" => error(-32000, "insufficient funds for gas * price + value"),
        "underpriced" => error(-32000, "replacement transaction underpriced"),
        "strange" => error(-31999, "an error that no rule knows"),
        "internal" => error(-32603, "internal error"),
        "wrong_id" => status(200, r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#),
        "cut_json" => status(200, r#"{"jsonrpc":"2.0","id":1,"result":"0"#),
        "empty" => status(200, ""),
        "html" => status(200, "<html><body>hello</body></html>"),
        "dns" => Step::Fail(Kind::Dns, Sent::No),
        "connect" => Step::Fail(Kind::Connect, Sent::No),
        "tls" => Step::Fail(Kind::Tls, Sent::No),
        "connect_timeout" => Step::Fail(Kind::ConnectTimeout, Sent::No),
        "timeout" => Step::Fail(Kind::Timeout, Sent::Maybe),
        "closed" => Step::Fail(Kind::Closed, Sent::Maybe),
        "refused" => Step::Fail(Kind::Closed, Sent::No),
        "truncated" => Step::Fail(Kind::Truncated, Sent::Maybe),
        "protocol" => Step::Fail(Kind::Protocol, Sent::Maybe),
        "too_large" => Step::Fail(Kind::TooLarge, Sent::Maybe),
        "pool_full" => Step::Fail(Kind::PoolFull, Sent::No),
        "hang" => Step::Hang,
        "dial" => Step::Dial,
        "busy" => Step::Busy,
        other => status(other.parse().expect("a known word or a status"), "no luck"),
    }
}

/// Two of three have to say the same of a final block.
pub(crate) fn ballot() -> Ballot {
    Ballot { quorum: Quorum::default(), is_final: true, largest: false }
}

/// A transport that plays the words of `script`, and answers well when it is over.
pub(crate) fn scripted(script: &str) -> ScriptedTransport {
    ScriptedTransport::playing(script.split_whitespace().map(step), step("ok"))
}

/// What a worker takes them as.
pub(crate) fn dynamic(transports: &[Arc<ScriptedTransport>]) -> Vec<Arc<dyn Transport>> {
    transports.iter().map(|it| Arc::clone(it) as Arc<dyn Transport>).collect()
}

/// Opens the breaker of an upstream.
pub(crate) fn fail(upstream: &Upstream) {
    (0..3).for_each(|_| settle(upstream, "eth_call", VerdictClass::Fault, Duration::ZERO));
}

/// Some upstreams, named `a`, `b`, ... in the order in which they are asked.
pub(crate) struct Stage {
    pub(crate) roster: Roster,
    pub(crate) worker: WorkerUpstreams,
    pub(crate) transports: Vec<Arc<ScriptedTransport>>,
    pub(crate) bounds: Bounds,
    pub(crate) total: Duration,
    pub(crate) null_is_final: bool,
    /// The newest block of each upstream, when it matters; the call asks for the newest of
    /// all, which is there.
    pub(crate) heads: Vec<u64>,
    pub(crate) may_flow: bool,
    /// Whose calls these are.
    pub(crate) client: ClientId,
    pub(crate) ballot: Option<Ballot>,
}

impl Stage {
    /// One upstream for each script of `a-words | b-words`. A script that begins with
    /// `fallback` or `public` belongs to one of that tier, and one that goes on with `resting`
    /// to an upstream that only serves as a last resort.
    pub(crate) fn new(scripts: &str) -> Self {
        Self::through(scripts, |transport| transport)
    }

    /// As [`Stage::new`], each behind this many connections, without hedges.
    pub(crate) fn pooled(scripts: &str, connections: usize) -> Self {
        Self::through(scripts, |transport| transport.pooled(connections)).without_hedges()
    }

    fn through(scripts: &str, change: impl Fn(ScriptedTransport) -> ScriptedTransport) -> Self {
        let upstreams = scripts.split('|').enumerate().map(|(place, script)| {
            let slot = Slot(u8::try_from(place).expect("few upstreams"));
            let mut script = script.trim();
            let mut tier = Tier::Primary;
            for other in [Tier::Fallback, Tier::Public] {
                if let Some(rest) = script.strip_prefix(other.word()) {
                    (tier, script) = (other, rest.trim());
                }
            }
            let upstream = verified(Identity { tier, ..named_by(slot) }, slot);
            // Far enough apart that the chance in a plan does not matter.
            settle(&upstream, "eth_call", VerdictClass::Answer, ms(10 << (2 * place)));
            if let Some(rest) = script.strip_prefix("resting") {
                script = rest;
                fail(&upstream);
            }
            (upstream, Arc::new(change(scripted(script))))
        });
        let mut stage = Self::of(upstreams);
        let dangerous = ["eth_sendTransaction", "evm_mine"];
        let allow = dangerous.map(|method| method.parse().expect("a method")).to_vec();
        let dangerous = DangerousMethods { allow, on_test_chains: false };
        stage.roster = stage.roster.allowing(dangerous);
        stage
    }

    /// These upstreams over their transports.
    pub(crate) fn of(
        upstreams: impl IntoIterator<Item = (Upstream, Arc<ScriptedTransport>)>,
    ) -> Self {
        let (upstreams, transports): (Vec<_>, Vec<_>) = upstreams
            .into_iter()
            .map(|(upstream, transport)| (Arc::new(upstream), transport))
            .unzip();
        Self {
            roster: Roster::new(upstreams, MethodRules::default(), Vec::new()),
            worker: WorkerUpstreams::new(dynamic(&transports), 1),
            transports,
            bounds: Bounds::default(),
            total: secs(30),
            null_is_final: false,
            heads: Vec::new(),
            may_flow: false,
            client: ClientId::V6(1),
            ballot: None,
        }
    }

    /// Exchanges so far, upstream by upstream.
    pub(crate) fn exchanges(&self) -> Vec<usize> {
        self.transports.iter().map(|transport| transport.count()).collect()
    }

    /// For tests of a single attempt's time.
    pub(crate) fn without_hedges(mut self) -> Self {
        self.bounds.hedging = None;
        self
    }

    /// Has the upstream at `place` ask for a pause of all calls: of three methods, as a long
    /// one of fewer is not believed of the others.
    pub(crate) fn throttle(&mut self, place: usize, pause: Duration) {
        for method in ["eth_call", "eth_getBlockByNumber", "eth_getBalance"] {
            throttle(self.upstream(place), method, Some(pause));
        }
    }

    /// With another chance.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.worker = WorkerUpstreams::new(dynamic(&self.transports), seed);
    }

    pub(crate) fn plan(&self, method: &str) -> Plan {
        let row = MethodTable::standard().row(method);
        let eligible = self.roster.eligible(row, method).expect("served");
        let heads = Heads::new(self.roster.upstreams().len(), None, Some(9));
        for (slot, number) in (0..).map(Slot).zip(&self.heads) {
            let number = BlockNumber(*number);
            let seen = Observation::of_number(number);
            heads.observe(slot, seen, Source::Word, now());
        }
        let view = heads.view();
        let needed = view.best.map(|best| best.number);
        let ask = PlanRequest { needed, ..PlanRequest::of(row, eligible) };
        plan(&ask, &view, &self.roster, now(), &mut SmallRng::seed_from_u64(1))
    }

    pub(crate) async fn run(&self, method: &str) -> Outcome {
        self.run_within(method, None).await
    }

    /// These calls in one exchange with the first upstream.
    pub(crate) async fn run_batch(&self, items: &[BatchItem<'_>]) -> BatchOutcome {
        let context = BatchContext {
            worker: &self.worker,
            room: self.worker.answers(),
            client: None,
            received_at: now(),
            trace: None,
        };
        let deadline = now() + self.total;
        run_batch(items, Slot(0), &self.roster, context, &self.bounds, deadline).await
    }

    /// A call of another client.
    pub(crate) async fn run_for(&self, client: ClientId, method: &str) -> Outcome {
        let progress = Progress::new(Allowance::new(1_000)).from_client(Some(client));
        self.run_within(method, Some(&progress)).await
    }

    async fn run_within(&self, method: &str, progress: Option<&Progress>) -> Outcome {
        let job = Job {
            params: Some(br#"["0xab"]"#),
            null_is_final: self.null_is_final,
            is_there: !self.heads.is_empty(),
            flows_to: self.may_flow.then_some(self.client),
            ballot: self.ballot,
            progress,
            ..Job::new(MethodTable::standard().row(method), method, now(), now() + self.total)
        };
        run(&job, &self.plan(method), &self.roster, &self.worker, &self.bounds).await
    }

    pub(crate) fn upstream(&self, place: usize) -> &Arc<Upstream> {
        &self.roster.upstreams()[place]
    }

    /// `a=fault b=answer -> b "0x1"`: which upstream was asked, how it was judged, what became of it.
    pub(crate) fn tell(&self, outcome: &Outcome) -> String {
        let name = |slot: Slot| self.roster.upstream(slot).identity().id.to_string();
        let tried = outcome.trail.attempts.iter();
        let tried: Vec<String> =
            tried.map(|it| format!("{}={}", name(it.slot), it.class.word())).collect();
        let end = match &outcome.result {
            Ok(served) => match &served.payload {
                Payload::Result(raw) | Payload::Error(raw) => {
                    format!("{} {}", name(served.slot), String::from_utf8_lossy(raw))
                }
                Payload::None { detail } => format!("{} none: {detail}", name(served.slot)),
            },
            Err(failure) => format!("{failure:?}"),
        };
        format!("{} -> {end}", tried.join(" "))
    }
}

/// Runs `play`, whose calls may be local tasks.
pub(crate) async fn locally<T>(play: impl Future<Output = T>) -> T {
    tokio::task::LocalSet::new().run_until(play).await
}

/// Runs `method` over `scripts` and compares how the telling begins.
pub(crate) async fn check(method: &str, scripts: &str, expected: &str) {
    check_with(method, scripts, |_| {}, expected).await;
}

/// As [`check`], on a stage that `change` has altered first.
pub(crate) async fn check_with(
    method: &str,
    scripts: &str,
    change: impl FnOnce(&mut Stage),
    expected: &str,
) {
    let mut stage = Stage::new(scripts);
    change(&mut stage);
    let told = stage.tell(&stage.run(method).await);
    assert!(
        told.starts_with(expected),
        "{method} over {scripts}\n told: {told}\n want: {expected}"
    );
}
