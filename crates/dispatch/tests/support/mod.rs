//! Upstreams that play a script, and a run over them on a paused clock.
//!
//! A script is words, one an exchange: see [`Step::of`]. When it is over the upstream
//! answers well. Who comes first is settled by latencies that are far apart.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_chain::{Heads, Observation, Source};
use wellhead_dispatch::{
    Allowance, Ballot, Bounds, ClientNet, Job, Outcome, Progress, WorkerUpstreams, now, run,
};
use wellhead_eth::{BlockNumber, MethodTable};
use wellhead_route::{DangerousMethods, Plan, PlanRequest, Roster, plan};
use wellhead_transport::{
    Exchange, ExchangeFuture, Sent, Timing, Transport, TransportError, TransportErrorKind,
    WireReply,
};
use wellhead_upstream::{
    BreakerBounds, Identity, MethodRules, Payload, Slot, Standing, Tier, Upstream, Verdict,
    VerdictClass,
};

/// What an upstream does with one exchange.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Reply {
        status: u16,
        body: String,
        retry_after: Option<Duration>,
    },
    Fail(TransportErrorKind, Sent),
    Hang,
    /// Sets up a connection for ever: each step of it takes a while.
    Dial,
    /// Is always ready for another step and never done.
    Busy,
    Slow(Duration, Box<Self>),
}

fn reply(status: u16, body: &str) -> Step {
    Step::Reply { status, body: body.to_owned(), retry_after: None }
}

fn error(code: i64, message: &str) -> Step {
    let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
    reply(200, &format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#))
}

impl Step {
    /// The step of a word; `40ms~ok` is slow, `429+7` asks for seven seconds.
    pub(crate) fn of(word: &str) -> Self {
        use TransportErrorKind as Kind;
        if let Some((time, step)) = word.split_once("ms~") {
            let time = Duration::from_millis(time.parse().expect("milliseconds"));
            return Self::Slow(time, Box::new(Self::of(step)));
        }
        if let Some((status, seconds)) = word.split_once('+') {
            let seconds = Duration::from_secs(seconds.parse().expect("seconds"));
            let status = status.parse().expect("a status");
            let body = "slow down".to_owned();
            return Self::Reply { status, body, retry_after: Some(seconds) };
        }
        match word {
            "ok" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#),
            "two" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result":"0x2"}"#),
            "upper" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result":"0xAB"}"#),
            "lower" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result": "0xab"}"#),
            "null" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            "revert" => error(3, "execution reverted"),
            "caller" => error(-32602, "missing value for required argument 1"),
            "missing" => {
                error(-32000, "missing trie node 5ab8 (path ) state 0x5ab8 is not available")
            }
            "wide" => error(-32005, "query returned more than 10000 results"),
            "limit" => error(-32005, "rate limit exceeded"),
            "unsupported" => error(-32601, "the method eth_call does not exist/is not available"),
            "known" => error(-32000, "already known"),
            "nonce" => error(-32000, "nonce too low: address 0x9a31, tx: 1 state: 4"),
            "funds" => error(-32000, "insufficient funds for gas * price + value"),
            "underpriced" => error(-32000, "replacement transaction underpriced"),
            "strange" => error(-31999, "something nobody ever heard of"),
            "internal" => error(-32603, "internal error"),
            "wrong_id" => reply(200, r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#),
            "cut_json" => reply(200, r#"{"jsonrpc":"2.0","id":1,"result":"0"#),
            "empty" => reply(200, ""),
            "html" => reply(200, "<html><body>hello</body></html>"),
            "dns" => Self::Fail(Kind::Dns, Sent::No),
            "connect" => Self::Fail(Kind::Connect, Sent::No),
            "tls" => Self::Fail(Kind::Tls, Sent::No),
            "connect_timeout" => Self::Fail(Kind::ConnectTimeout, Sent::No),
            "timeout" => Self::Fail(Kind::Timeout, Sent::Maybe),
            "closed" => Self::Fail(Kind::Closed, Sent::Maybe),
            "refused" => Self::Fail(Kind::Closed, Sent::No),
            "truncated" => Self::Fail(Kind::Truncated, Sent::Maybe),
            "protocol" => Self::Fail(Kind::Protocol, Sent::Maybe),
            "too_large" => Self::Fail(Kind::TooLarge, Sent::Maybe),
            "pool_full" => Self::Fail(Kind::PoolFull, Sent::No),
            "hang" => Self::Hang,
            "dial" => Self::Dial,
            "busy" => Self::Busy,
            status => reply(status.parse().expect("a known word or a status"), "no luck"),
        }
    }
}

/// Plays its script and remembers what it was sent.
#[derive(Debug)]
pub(crate) struct Scripted {
    script: Mutex<VecDeque<Step>>,
    pub(crate) seen: Mutex<Vec<(Instant, Bytes)>>,
}

impl Scripted {
    pub(crate) fn new(script: &str) -> Self {
        let script = script.split_whitespace().map(Step::of).collect();
        Self { script: Mutex::new(script), seen: Mutex::default() }
    }
}

impl Transport for Scripted {
    fn exchange(&self, exchange: Exchange) -> ExchangeFuture<'_> {
        self.seen.lock().push((now(), exchange.body));
        let step = self.script.lock().pop_front().unwrap_or_else(|| Step::of("ok"));
        Box::pin(act(step, exchange.whole_max))
    }
}

async fn act(mut step: Step, whole_max: usize) -> Result<WireReply, TransportError> {
    while let Step::Slow(time, then) = step {
        tokio::time::sleep(time).await;
        step = *then;
    }
    match step {
        Step::Reply { status, body, retry_after } => {
            let reply = WireReply::whole(status, body, Timing::default());
            Ok(reply.with_retry_after(retry_after).shortened(whole_max))
        }
        Step::Fail(kind, sent) => Err(TransportError::new(kind, sent, "injected")),
        Step::Dial => loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
        },
        Step::Busy => loop {
            // Leaves nothing of the task's budget for the timer that is polled next.
            tokio::time::sleep(Duration::from_millis(1)).await;
            std::future::poll_fn(|cx| {
                while tokio::task::coop::has_budget_remaining() {
                    let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
                }
                std::task::Poll::Ready(())
            })
            .await;
        },
        Step::Hang | Step::Slow(..) => std::future::pending().await,
    }
}

/// Some upstreams, named `a`, `b`, ... in the order in which they are asked.
pub(crate) struct Stage {
    pub(crate) roster: Roster,
    pub(crate) worker: WorkerUpstreams,
    pub(crate) transports: Vec<Arc<Scripted>>,
    pub(crate) bounds: Bounds,
    pub(crate) total: Duration,
    pub(crate) null_is_final: bool,
    /// The newest block of each upstream, when it matters; the call asks for the newest of
    /// all, which is there.
    pub(crate) heads: Vec<u64>,
    pub(crate) may_flow: bool,
    /// Whose calls these are.
    pub(crate) client: ClientNet,
    pub(crate) ballot: Option<Ballot>,
}

impl Stage {
    /// One upstream for each script of `a-words | b-words`. A script that begins with
    /// `fallback` or `public` belongs to one of that tier, and one that goes on with `resting`
    /// to an upstream that only serves as a last resort.
    pub(crate) fn new(scripts: &str) -> Self {
        let row = MethodTable::standard().row("eth_call");
        let (mut upstreams, mut transports) = (Vec::new(), Vec::new());
        for (place, script) in scripts.split('|').enumerate() {
            let slot = Slot(u8::try_from(place).expect("few upstreams"));
            let mut script = script.trim();
            let mut tier = Tier::Primary;
            for other in [Tier::Fallback, Tier::Public] {
                if let Some(rest) = script.strip_prefix(other.word()) {
                    (tier, script) = (other, rest.trim());
                }
            }
            let identity =
                Identity { tier, ..Identity::named(&char::from(b'a' + slot.0).to_string()) };
            let upstream = Upstream::new(identity, slot, BreakerBounds::default(), now());
            upstream.set_standing(Standing::Verified);
            let verdict =
                |class| Verdict::new(class, "test", Payload::None { detail: String::new() });
            // Far enough apart that the chance in a plan does not matter.
            let took = Duration::from_millis(10 << (2 * place));
            upstream.settle(row, &verdict(VerdictClass::Answer), now(), now() + took);
            let script = match script.strip_prefix("resting") {
                Some(rest) => {
                    (0..3).for_each(|_| {
                        upstream.settle(row, &verdict(VerdictClass::Fault), now(), now());
                    });
                    rest
                }
                None => script,
            };
            upstreams.push(Arc::new(upstream));
            transports.push(Arc::new(Scripted::new(script)));
        }
        let dynamic = |transport: &Arc<Scripted>| Arc::clone(transport) as Arc<dyn Transport>;
        let worker = WorkerUpstreams::new(transports.iter().map(dynamic).collect(), 1);
        let dangerous = ["eth_sendTransaction", "evm_mine"];
        let allow = dangerous.map(|method| method.parse().expect("a method")).to_vec();
        let roster = Roster::new(upstreams, MethodRules::default(), Vec::new())
            .allowing(DangerousMethods { allow, on_test_chains: false });
        let total = Duration::from_secs(30);
        let bounds = Bounds::default();
        Self {
            roster,
            worker,
            transports,
            bounds,
            total,
            null_is_final: false,
            heads: Vec::new(),
            may_flow: false,
            client: ClientNet::V6(1),
            ballot: None,
        }
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
            let row = MethodTable::standard().row(method);
            let none = Payload::None { detail: String::new() };
            let mut verdict = Verdict::new(VerdictClass::Throttled, "test", none);
            verdict.retry_after = Some(pause);
            self.upstream(place).settle(row, &verdict, now(), now());
        }
    }

    /// With another chance.
    pub(crate) fn reseed(&mut self, seed: u64) {
        let dynamic = |transport: &Arc<Scripted>| Arc::clone(transport) as Arc<dyn Transport>;
        self.worker = WorkerUpstreams::new(self.transports.iter().map(dynamic).collect(), seed);
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

    /// A call of another client.
    pub(crate) async fn run_for(&self, client: ClientNet, method: &str) -> Outcome {
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

    /// `a=fault b=answer -> b "0x1"`: who was asked, how it was judged, what became of it.
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
