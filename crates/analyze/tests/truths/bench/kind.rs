//! Kinds of servers whose behaviour is known: what each is, what is played at it, and what should be said.
//!
//! Parameters are drawn from a seed. A kind in paused time is the fake provider or a server of our own in the same
//! runtime; one in real time has a thread of its own, or is nginx or HAProxy before one.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use wellhead_analyze::measure::plan::{
    ConnectionPlan, ExperimentPlan, FixedPlan, LoadTerms, RatePlan, SoakPlan, Stage, StreamsPlan,
    WindowPlan,
};
use wellhead_analyze::work::WorkKind;
use wellhead_sim::ProviderDials;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{
    AtOnce, CreditBucket, LimitScope, RefusalForm, Shaping, StreamCap, StreamWay,
};

use super::grade::{ANY, INCONCLUSIVE, TrueReading, Truth, about, any, between, exactly};
use super::own::{self, OwnBehaviour, OwnLatency, ReplyForm};
use super::proxy::HaProxyConfig;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What is played at a server, and what should be said of it.
pub(crate) struct Case {
    pub(crate) server: CaseServer,
    pub(crate) plans: Vec<Box<dyn ExperimentPlan>>,
    pub(crate) truths: Vec<Truth>,
}

/// Which server.
pub(crate) enum CaseServer {
    Fake(Box<ProviderDials>),
    Own(OwnBehaviour),
    /// What follows the port after `listen`, lines of `http` and lines of `location`, before a server of our own.
    Nginx {
        listen: &'static str,
        http: String,
        location: String,
        behind: OwnBehaviour,
    },
    /// Before a server of our own.
    HaProxy {
        config: HaProxyConfig,
        behind: OwnBehaviour,
    },
}

/// Draws a case.
pub(crate) type Draw = fn(&mut SmallRng) -> Case;

/// A kind of servers.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) draw: Draw,
}

impl Kind {
    /// The case that follows from a seed.
    pub(crate) fn case(self, seed: u64) -> Case {
        let hash = self
            .name
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        (self.draw)(&mut SmallRng::seed_from_u64(hash))
    }
}

fn kind(name: &'static str, draw: Draw) -> Kind {
    Kind { name, draw }
}

/// Kinds that are played in paused time.
pub(crate) fn simulated() -> Vec<Kind> {
    vec![
        kind("nothing", nothing),
        kind("token bucket of a second", |rng| metered(rng, Meter::Steady, 1.0)),
        kind("token bucket of five seconds", |rng| metered(rng, Meter::Steady, 5.0)),
        kind("fixed window of a second", |rng| metered(rng, Meter::Fixed, 1.0)),
        kind("fixed window of ten seconds", |rng| metered(rng, Meter::Fixed, 10.0)),
        kind("fixed window of a minute", |rng| metered(rng, Meter::Fixed, 60.0)),
        kind("sliding window of a second", |rng| metered(rng, Meter::Sliding, 1.0)),
        kind("sliding window of ten seconds", |rng| metered(rng, Meter::Sliding, 10.0)),
        kind("sliding window of a minute", |rng| metered(rng, Meter::Sliding, 60.0)),
        kind("calls in flight, 429", |rng| in_flight(rng, RefusalForm::too_many(None))),
        kind("calls in flight, 503", |rng| {
            in_flight(rng, RefusalForm::status(503, -32_000, "busy"))
        }),
        kind("calls in flight, waiting", waiting),
        kind("shaped by account", |rng| shaped(rng, LimitScope::Account)),
        kind("shaped by connection", |rng| shaped(rng, LimitScope::Connection)),
        kind("streams announced", |rng| streams(rng, 0)),
        kind("streams refused", |rng| streams(rng, 1)),
        kind("streams fatal", |rng| streams(rng, 2)),
        kind("recycle", recycle),
        kind("idle close", idle_close),
        kind("bucket with pages of 503", bucket_503),
        kind("bucket with pages of 403", bucket_403),
        kind("bucket that hangs", bucket_hangs),
        kind("leaky bucket", leaky),
        kind("log that counts refusals", strict_log),
        kind("connection cap", connection_cap),
        kind("ban of an hour", ban),
        kind("ban of twenty seconds", short_ban),
        kind("quota of a day, 429", |rng| quota(rng, 429, Some(40_000))),
        kind("quota of a day, 402", |rng| quota(rng, 402, None)),
        kind("quota of a day, bare 429", |rng| quota(rng, 429, None)),
        kind("one server with a line", mm1),
        kind("share of errors", failing),
        kind("step", |rng| moving(rng, true)),
        kind("ramp", |rng| moving(rng, false)),
        kind("bimodal latency", bimodal),
        kind("warming latency", warming),
    ]
}

/// Kinds of our own that are played in real time, beside other load where that is asked for.
pub(crate) fn timed() -> Vec<Kind> {
    vec![
        kind("timed: nothing", |rng| short(nothing(rng))),
        kind("timed: token bucket of a second", |rng| short(metered(rng, Meter::Steady, 1.0))),
        kind("timed: fixed window of a second", |rng| short(metered(rng, Meter::Fixed, 1.0))),
        kind("timed: sliding window of a second", |rng| short(metered(rng, Meter::Sliding, 1.0))),
        kind("timed: calls in flight", |rng| short(in_flight(rng, RefusalForm::too_many(None)))),
        kind("timed: calls in flight, waiting", |rng| short(waiting(rng))),
        kind("timed: shaped by account", |rng| short(shaped(rng, LimitScope::Account))),
        kind("timed: bucket with pages of 503", |rng| short(bucket_503(rng))),
        kind("timed: share of errors", |rng| short(failing(rng))),
        kind("timed: quota of a day", |rng| short(quota(rng, 429, Some(40_000)))),
    ]
}

/// nginx and HAProxy.
pub(crate) fn proxies() -> Vec<Kind> {
    vec![
        kind("nginx: plain", nginx_plain),
        kind("nginx: limit_req, 503", |rng| nginx_req(rng, "503", true)),
        kind("nginx: limit_req, 429", |rng| nginx_req(rng, "429", true)),
        kind("nginx: limit_req with delay", |rng| nginx_req(rng, "503", false)),
        kind("nginx: limit_conn", nginx_conn),
        kind("nginx: keepalive_requests", nginx_requests),
        kind("nginx: keepalive_timeout", nginx_idle),
        kind("nginx: http2_max_concurrent_streams", nginx_streams),
        kind("haproxy: stick table, 429", |rng| haproxy_rate(rng, 429)),
        kind("haproxy: stick table, 503", |rng| haproxy_rate(rng, 503)),
        kind("haproxy: server maxconn", haproxy_queue),
        kind("haproxy: conn_cur", haproxy_connections),
        kind("haproxy: timeout http-keep-alive", haproxy_idle),
        kind("haproxy: h2 streams", haproxy_streams),
    ]
}

/// What `wellhead analyze limits` plays.
fn limits() -> Vec<Box<dyn ExperimentPlan>> {
    let (to, sizes) = (160.0, [1, 5, 10, 20, 40, 80, 100, 120]);
    let mut rng = SmallRng::seed_from_u64(7);
    let rest = SECOND * 2;
    let throttle = FixedPlan::throttle(&sizes, &[2, 4], 300, SECOND, &mut rng);
    vec![
        Box::new(RatePlan::new(10.0, to, 2.0, SECOND * 10, rest)),
        Box::new(StreamsPlan::new(8, 256, SECOND)),
        Box::new(throttle),
        Box::new(WindowPlan::new(4.0 * to, 2_000, SECOND * 150, rest)),
    ]
}

/// Without streams, which need HTTP/2.
fn limits_h1() -> Vec<Box<dyn ExperimentPlan>> {
    limits().into_iter().filter(|plan| plan.name() != "streams").collect()
}

/// Rates and windows.
fn rate_and_window() -> Vec<Box<dyn ExperimentPlan>> {
    limits().into_iter().filter(|plan| ["rate", "window"].contains(&plan.name())).collect()
}

/// Rates and windows alone, in less than a minute.
fn brief() -> Vec<Box<dyn ExperimentPlan>> {
    vec![
        Box::new(RatePlan::new(20.0, 160.0, 2.0, SECOND * 4, SECOND)),
        Box::new(WindowPlan::new(400.0, 1_000, SECOND * 25, SECOND)),
    ]
}

fn brief_throttle() -> Box<dyn ExperimentPlan> {
    let mut rng = SmallRng::seed_from_u64(7);
    let sizes = [1, 5, 10, 20, 40, 80];
    let rest = SECOND / 2;
    Box::new(FixedPlan::throttle(&sizes, &[2, 4], 200, rest, &mut rng))
}

/// The case, played in less than a minute of real time.
fn short(mut case: Case) -> Case {
    let of = |case: &Case, name: &str| case.truths.iter().any(|truth| truth.experiment == name);
    let is_brief = of(&case, "window") || of(&case, "rate");
    case.plans = if of(&case, "load") {
        let terms = LoadTerms::new(rates(&[40.0, 80.0]), SECOND * 10, WorkKind::Cheap, 2);
        vec![Box::new(FixedPlan::load(&terms))]
    } else if is_brief {
        brief()
    } else {
        Vec::new()
    };
    if of(&case, "throttle") {
        case.plans.push(brief_throttle());
    }
    let played: Vec<&str> = case.plans.iter().map(|plan| plan.name()).collect();
    case.truths.retain(|truth| truth.experiment == ANY || played.contains(&truth.experiment));
    case
}

fn rates(rates: &[f64]) -> Vec<Stage> {
    rates.iter().map(|rate| Stage::Rate(*rate)).collect()
}

fn latency(rng: &mut SmallRng) -> LatencyDial {
    let base = Duration::from_millis(rng.random_range(10..40));
    LatencyDial::even(base, base / 4)
}

fn own_latency(rng: &mut SmallRng) -> OwnLatency {
    let base_ms = rng.random_range(10.0..40.0);
    OwnLatency { base_ms, jitter_ms: base_ms / 4.0 }
}

fn fake(rng: &mut SmallRng) -> ProviderDials {
    let http2 = rng.random_bool(0.7);
    ProviderDials { seed: rng.random(), latency: latency(rng), http2, ..ProviderDials::default() }
}

/// A fake provider, and what `limits` should say of it.
fn faked(dials: ProviderDials, truths: Vec<Truth>) -> Case {
    let plans = if dials.http2 { limits() } else { limits_h1() };
    Case { server: CaseServer::Fake(Box::new(dials)), plans, truths }
}

/// Where calls are refused, `throttle` has nothing to say; where the limit was not met, no call waited.
fn announced() -> Truth {
    Truth::new("throttle", vec![any(INCONCLUSIVE), any("not shaped")])
}

fn no_limits() -> Vec<Truth> {
    vec![
        Truth::new("rate", vec![any("no rate limit")]),
        Truth::new("window", vec![any("no bucket")]),
        Truth::new("throttle", vec![any("not shaped")]),
    ]
}

fn nothing(rng: &mut SmallRng) -> Case {
    faked(fake(rng), no_limits())
}

#[derive(Clone, Copy)]
enum Meter {
    Steady,
    Fixed,
    Sliding,
}

fn refusal(rng: &mut SmallRng) -> RefusalForm {
    match rng.random_range(0..3) {
        0 => RefusalForm::too_many(None),
        1 => RefusalForm::too_many(Some(SECOND)),
        _ => RefusalForm::too_many_in_body(),
    }
}

fn metered(rng: &mut SmallRng, meter: Meter, window_s: f64) -> Case {
    let mut dials = fake(rng);
    // Of a minute, so many as a flood can spend.
    let most = if window_s > 30.0 { 20.0 } else { 100.0 };
    let per_second = rng.random_range(14.0..most);
    let size = (per_second * window_s).round();
    let (window, refusal) = (Duration::from_secs_f64(window_s), refusal(rng));
    let (bucket, kind) = match meter {
        Meter::Steady => (CreditBucket::steady(size, window, refusal), "token bucket"),
        Meter::Fixed => (CreditBucket::fixed(size, window, refusal), "fixed window"),
        Meter::Sliding => (CreditBucket::sliding(size, window, refusal), "sliding window"),
    };
    dials.buckets = vec![bucket];
    let per_second = size / window_s;
    let mut rate = vec![about("rate", per_second)];
    // Rates that are held for ten seconds do not meet a window that is longer, or meet it once.
    if window_s >= 10.0 {
        rate.push(any(INCONCLUSIVE));
    }
    let mut limit = vec![about(kind, per_second)];
    if !matches!(meter, Meter::Steady) {
        // Which of the two is more than is told here.
        limit.push(about("window", per_second));
    }
    let truths = vec![Truth::new("rate", rate), Truth::new("window", limit), announced()];
    faked(dials, truths)
}

fn in_flight(rng: &mut SmallRng, refusal: RefusalForm) -> Case {
    let mut dials = fake(rng);
    let max = rng.random_range(6..30_usize);
    let takes = Duration::from_millis(rng.random_range(80..250));
    dials.latency = LatencyDial::even(takes, takes / 5);
    dials.at_once = Some(AtOnce { max, refusal: Some(refusal) });
    // Where fewer are in flight at the highest rate, it is not met there.
    let met = 160.0 * takes.as_secs_f64() > 1.3 * max as f64;
    let is = vec![exactly("in flight", max as f64)];
    let mut rate = is.clone();
    if !met {
        rate.push(any("no rate limit"));
    }
    let truths = vec![
        Truth::new("rate", rate),
        Truth::new("window", is.clone()),
        Truth::new("throttle", is),
    ];
    faked(dials, truths)
}

fn waiting(rng: &mut SmallRng) -> Case {
    let mut dials = fake(rng);
    let max = rng.random_range(3..8_usize);
    let takes = Duration::from_millis(rng.random_range(80..160));
    dials.latency = LatencyDial::even(takes, Duration::ZERO);
    dials.at_once = Some(AtOnce { max, refusal: None });
    let served = max as f64 / takes.as_secs_f64();
    let rate = if served < 130.0 { about("rate", served) } else { any("no rate limit") };
    let truths = vec![
        Truth::new("rate", vec![rate]),
        Truth::new("throttle", vec![about("shaped by account", served), about("shaped", served)]),
    ];
    faked(dials, truths)
}

fn shaped(rng: &mut SmallRng, scope: LimitScope) -> Case {
    let mut dials = ProviderDials { http2: true, ..fake(rng) };
    let per_second = rng.random_range(60.0..130.0_f64).round();
    dials.shaping = Some(Shaping { per_second, scope });
    let mut truths = vec![match scope {
        LimitScope::Account => Truth::new("throttle", vec![about("shaped by account", per_second)]),
        LimitScope::Connection => {
            Truth::new("throttle", vec![about("shaped by connection", per_second)])
        }
    }];
    if scope == LimitScope::Account {
        truths.push(Truth::new("rate", vec![about("rate", per_second)]));
    }
    faked(dials, truths)
}

fn streams(rng: &mut SmallRng, way: u32) -> Case {
    let mut dials = ProviderDials { http2: true, ..fake(rng) };
    let max = rng.random_range(20..200);
    let (way, kind) = match way {
        0 => (StreamWay::Announced, "streams announced"),
        1 => (StreamWay::Refused { announced: None }, "streams refused"),
        _ => (StreamWay::Fatal { goaway: Some(1), announced: Some(256) }, "streams fatal"),
    };
    dials.stream_cap = Some(StreamCap { max, way });
    faked(dials, vec![Truth::new("streams", vec![exactly(kind, f64::from(max))])])
}

fn recycle(rng: &mut SmallRng) -> Case {
    let after = rng.random_range(50..900_u64);
    let (mut dials, abruptly) = (fake(rng), rng.random());
    dials.recycle_after = Some(after);
    dials.recycle_abruptly = abruptly;
    let plan = ConnectionPlan::new(1_000, Duration::ZERO, SECOND);
    let cap = after as f64;
    let truth = Truth::new("connection", vec![between("recycle", cap - 1.5, cap + 1.5)]);
    Case { plans: vec![Box::new(plan)], ..faked(dials, vec![truth]) }
}

fn idle_close(rng: &mut SmallRng) -> Case {
    let after_ms = rng.random_range(1_000..8_000_u64);
    let dials = ProviderDials { idle_close: Some(Duration::from_millis(after_ms)), ..fake(rng) };
    let plan = ConnectionPlan::new(0, SECOND * 10, SECOND);
    let truth = Truth::new("connection", vec![about("idle", after_ms as f64)]);
    Case { plans: vec![Box::new(plan)], ..faked(dials, vec![truth]) }
}

fn own(script: own::Script, plans: Vec<Box<dyn ExperimentPlan>>, truths: Vec<Truth>) -> Case {
    Case { server: CaseServer::Own(OwnBehaviour::of(script)), plans, truths }
}

fn own_bucket(rng: &mut SmallRng, form: ReplyForm) -> (f64, own::Script) {
    let per_second = rng.random_range(15.0..90.0_f64).round();
    let size = (per_second * rng.random_range(0.5..2.0)).round();
    let script = own::bucket(size, per_second, form, own_latency(rng), rng.random());
    (per_second, script)
}

/// What `rate` and `window` should say of a token bucket.
fn token_bucket(per_second: f64) -> Vec<Truth> {
    vec![
        Truth::new("rate", vec![about("rate", per_second)]),
        Truth::new("window", vec![about("token bucket", per_second)]),
    ]
}

fn bucket_503(rng: &mut SmallRng) -> Case {
    let (per_second, script) = own_bucket(rng, ReplyForm::Page(503, None));
    let mut truths = token_bucket(per_second);
    truths.push(announced());
    own(script, limits_h1(), truths)
}

/// 403 says that a key is wrong, to most providers: a flood ends at it.
fn bucket_403(rng: &mut SmallRng) -> Case {
    let (per_second, script) = own_bucket(rng, ReplyForm::Page(403, None));
    let mut truths = token_bucket(per_second);
    truths[1].told.push(any(INCONCLUSIVE));
    truths.push(announced());
    own(script, limits_h1(), truths)
}

fn bucket_hangs(rng: &mut SmallRng) -> Case {
    let (per_second, script) = own_bucket(rng, ReplyForm::Silence);
    let truths = vec![Truth::new("rate", vec![about("rate", per_second)])];
    own(script, limits_h1().into_iter().take(1).collect(), truths)
}

fn leaky(rng: &mut SmallRng) -> Case {
    let per_second = rng.random_range(20.0..70.0_f64).round();
    let burst = rng.random_range(10.0..40.0_f64).round();
    let script = own::leaky(burst, per_second, own_latency(rng), rng.random());
    own(script, rate_and_window(), token_bucket(per_second))
}

/// Above the limit nothing passes, so nothing shows its figure but the rates around it.
fn strict_log(rng: &mut SmallRng) -> Case {
    let size = rng.random_range(20..100_usize);
    let script = own::strict_log(size, 1.0, own_latency(rng), rng.random());
    let rate = vec![between("rate", 0.5 * size as f64, 1.1 * size as f64), any(INCONCLUSIVE)];
    let truths = vec![
        Truth::new("rate", rate),
        Truth::new("window", vec![about("sliding window", size as f64), any(INCONCLUSIVE)]),
    ];
    own(script, rate_and_window(), truths)
}

fn connection_cap(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(6..30_usize);
    let script = own::plain(own_latency(rng), rng.random());
    let is = || vec![exactly("connections", max as f64)];
    let server = CaseServer::Own(OwnBehaviour { connections_max: Some(max), script });
    // Few connections are needed for a rate.
    let rate = is().into_iter().chain([any("no rate limit")]).collect();
    let truths = vec![Truth::new("rate", rate), Truth::new("throttle", is())];
    Case { server, plans: limits_h1(), truths }
}

fn ban(rng: &mut SmallRng) -> Case {
    let per_second = rng.random_range(20.0..60.0_f64).round();
    let script = own::banning(per_second, 20, 3_600.0, own_latency(rng), rng.random());
    let ended = vec![any("ended: refused")];
    let rate = vec![about("rate", per_second), any(INCONCLUSIVE)];
    let truths = vec![Truth::new(ANY, ended.clone()), Truth::new("rate", rate).beside(ended)];
    own(script, limits_h1(), truths)
}

/// It bans in the middle of what is measured: nothing passes then, whatever the rate.
fn short_ban(rng: &mut SmallRng) -> Case {
    let per_second = rng.random_range(30.0..60.0_f64).round();
    let script = own::banning(per_second, 50, 20.0, own_latency(rng), rng.random());
    let truths = vec![
        Truth::new(
            "rate",
            vec![between("rate", 0.5 * per_second, 1.1 * per_second), any(INCONCLUSIVE)],
        ),
        // Where a ban was met, it is what lets calls pass again.
        Truth::new(
            "window",
            vec![about("token bucket", per_second), any("window"), any(INCONCLUSIVE)],
        ),
    ];
    own(script, rate_and_window(), truths)
}

fn quota(rng: &mut SmallRng, status: u16, pause: Option<u64>) -> Case {
    let calls = rng.random_range(100..900_u64);
    let script = own::quota(calls, status, pause, own_latency(rng));
    let ended = match (status, pause) {
        (402, _) => "ended: spent",
        (_, Some(_)) => "ended: long pause",
        (_, None) => "ended: refused",
    };
    own(script, limits_h1(), vec![Truth::new(ANY, vec![any(ended)]), spared()])
}

/// There is no rate that would be refused.
fn spared() -> Truth {
    let ended = ["ended: spent", "ended: long pause", "ended: refused"].map(any);
    Truth::new("rate", vec![any("no rate limit"), any(INCONCLUSIVE)]).beside(ended.into())
}

fn mm1(rng: &mut SmallRng) -> Case {
    let per_second = rng.random_range(40.0..90.0_f64);
    let stages = rates(&[0.25, 0.5, 0.7, 1.25, 1.6].map(|share| share * per_second));
    let terms = LoadTerms::new(stages, SECOND * 30, WorkKind::Cheap, 2);
    let plan = FixedPlan::load(&LoadTerms { rest: SECOND * 20, ..terms });
    let truth = Truth::new("load", vec![between("capacity", 0.45 * per_second, 1.05 * per_second)]);
    own(own::mm1(per_second, rng.random()), vec![Box::new(plan)], vec![truth])
}

fn failing(rng: &mut SmallRng) -> Case {
    let share = rng.random_range(0.02..0.06_f64);
    let script = own::failing(share, own_latency(rng), rng.random());
    let percent = 100.0 * share;
    // The share of as many calls as are sent is off by chance.
    let fails = between("failures", 0.7 * percent, 1.4 * percent);
    let stages = rates(&[20.0, 40.0, 80.0]);
    let load = FixedPlan::load(&LoadTerms::new(stages, SECOND * 20, WorkKind::Cheap, 2));
    let mut plans = limits_h1();
    plans.truncate(1);
    plans.push(Box::new(load));
    let truths = vec![
        Truth::new("rate", vec![fails]).beside(vec![any("no rate limit")]),
        Truth::new("load", vec![fails]),
    ];
    own(script, plans, truths)
}

fn soak() -> Vec<Box<dyn ExperimentPlan>> {
    let (lasting, part) = (SECOND * 600, SECOND * 20);
    vec![Box::new(SoakPlan::new(Stage::Rate(5.0), lasting, part, WorkKind::Cheap, 2))]
}

fn moving(rng: &mut SmallRng, steps: bool) -> Case {
    let from = rng.random_range(10.0..40.0_f64);
    let to = from * rng.random_range(1.6..3.0_f64);
    let held = vec![any("held"), any("other step"), any("other ramp")];
    let (script, told) = match steps {
        true => {
            let at = rng.random_range(200.0..400.0_f64);
            let script = own::stepping(at, from, to, rng.random());
            (script, between("step", 0.9 * to, 1.2 * to))
        }
        false => {
            let script = own::ramping(600.0, from, to, rng.random());
            (script, between("ramp", 0.9 * to, 1.2 * to))
        }
    };
    own(script, soak(), vec![Truth::new("soak", vec![told]).beside(held)])
}

/// What `latency` should say of most calls.
fn usual(latency: OwnLatency) -> Truth {
    let to_ms = latency.base_ms + 2.0 * latency.jitter_ms + 2.0;
    Truth::new("latency", vec![between("latency", latency.base_ms, to_ms)])
}

fn bimodal(rng: &mut SmallRng) -> Case {
    let share = rng.random_range(0.1..0.3_f64);
    let latency = own_latency(rng);
    let script = own::bimodal(share, 20.0 * latency.base_ms, latency, rng.random());
    let mut plans: Vec<Box<dyn ExperimentPlan>> = vec![Box::new(FixedPlan::latency(200))];
    plans.extend(rate_and_window());
    plans.extend(soak());
    let truths = vec![
        usual(latency),
        Truth::new("rate", vec![any("no rate limit")]),
        Truth::new("window", vec![any("no bucket")]),
        Truth::new("soak", vec![any("no drift")]).beside(vec![any("held")]),
    ];
    own(script, plans, truths)
}

fn warming(rng: &mut SmallRng) -> Case {
    let latency = own_latency(rng);
    let script = own::warming(rng.random_range(30..80), 8.0, latency, rng.random());
    let mut plans: Vec<Box<dyn ExperimentPlan>> = vec![Box::new(FixedPlan::latency(200))];
    plans.extend(limits_h1());
    let mut truths = vec![usual(latency)];
    truths.extend(no_limits());
    own(script, plans, truths)
}

/// What is behind a proxy.
fn behind(rng: &mut SmallRng) -> OwnBehaviour {
    OwnBehaviour::of(own::plain(own_latency(rng), rng.random()))
}

fn nginx(http: String, location: String, behind: OwnBehaviour) -> CaseServer {
    CaseServer::Nginx { listen: "", http, location, behind }
}

fn nginx_plain(rng: &mut SmallRng) -> Case {
    let server = nginx(String::new(), String::new(), behind(rng));
    let mut plans = brief();
    plans.push(brief_throttle());
    Case { server, plans, truths: no_limits() }
}

fn nginx_req(rng: &mut SmallRng, status: &str, nodelay: bool) -> Case {
    let per_second = rng.random_range(20..80_u32);
    let burst = rng.random_range(5..40_u32);
    let http = format!("limit_req_zone $binary_remote_addr zone=z:1m rate={per_second}r/s;");
    let delay = if nodelay { "nodelay" } else { "" };
    let location = format!("limit_req zone=z burst={burst} {delay}; limit_req_status {status};");
    let truths = token_bucket(f64::from(per_second));
    Case { server: nginx(http, location, behind(rng)), plans: brief(), truths }
}

fn nginx_conn(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(5..20_u32);
    let http = "limit_conn_zone $binary_remote_addr zone=c:1m;".to_owned();
    let takes = OwnLatency { base_ms: 120.0, jitter_ms: 40.0 };
    let behind = OwnBehaviour::of(own::plain(takes, rng.random()));
    let cap = f64::from(max);
    let is = || vec![exactly("in flight", cap)];
    let mut plans = brief();
    plans.push(brief_throttle());
    let mut rate = is();
    if 160.0 * 0.14 < 1.3 * cap {
        rate.push(any("no rate limit"));
    }
    let truths =
        vec![Truth::new("rate", rate), Truth::new("window", is()), Truth::new("throttle", is())];
    Case { server: nginx(http, format!("limit_conn c {max};"), behind), plans, truths }
}

fn connection_case(server: CaseServer, requests: u64, idle: Duration, told: TrueReading) -> Case {
    let plan = ConnectionPlan::new(requests, idle, SECOND / 2);
    let beside = vec![any("no recycle"), any("no idle close"), any("recycle")];
    let truth = Truth::new("connection", vec![told]).beside(beside);
    Case { server, plans: vec![Box::new(plan)], truths: vec![truth] }
}

fn nginx_requests(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(50..400_u64);
    let location = format!("keepalive_requests {max};");
    let told = between("recycle", max as f64 - 1.5, max as f64 + 1.5);
    let quick = OwnLatency { base_ms: 2.0, jitter_ms: 1.0 };
    let behind = OwnBehaviour::of(own::plain(quick, rng.random()));
    connection_case(nginx(String::new(), location, behind), 500, Duration::ZERO, told)
}

fn nginx_idle(rng: &mut SmallRng) -> Case {
    let after = rng.random_range(2..5_u64);
    let location = format!("keepalive_timeout {after}s;");
    let told = between("idle", after as f64 * 850.0, after as f64 * 1_150.0);
    connection_case(nginx(String::new(), location, behind(rng)), 0, SECOND * 8, told)
}

fn streams_case(server: CaseServer, max: u32) -> Case {
    let plans: Vec<Box<dyn ExperimentPlan>> = vec![Box::new(StreamsPlan::new(8, 128, SECOND / 2))];
    let told = exactly("streams announced", f64::from(max));
    Case { server, plans, truths: vec![Truth::new("streams", vec![told])] }
}

fn nginx_streams(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(10..100_u32);
    let http = format!("http2_max_concurrent_streams {max};");
    let server =
        CaseServer::Nginx { listen: "http2", http, location: String::new(), behind: behind(rng) };
    streams_case(server, max)
}

fn haproxy(frontend: String, server: String, behind: OwnBehaviour) -> CaseServer {
    let config = HaProxyConfig { bind: "proto h1", global: String::new(), frontend, server };
    CaseServer::HaProxy { config, behind }
}

/// Its rates are counted over a window that slides, by two halves that are weighted: neither bucket nor log. Refused
/// requests count as well.
fn haproxy_rate(rng: &mut SmallRng, status: u16) -> Case {
    let per_second = rng.random_range(20..80_u32);
    let frontend = format!(
        "  stick-table type ip size 10k expire 30s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status {status} if {{ sc_http_req_rate(0) gt {per_second} }}"
    );
    let figure = f64::from(per_second);
    let rate = vec![between("rate", 0.5 * figure, 1.2 * figure), any(INCONCLUSIVE)];
    let window = ["token bucket", "window", "fixed window", "sliding window"];
    let mut window: Vec<TrueReading> =
        window.map(|kind| between(kind, 0.5 * figure, 1.2 * figure)).into();
    window.push(any(INCONCLUSIVE));
    let truths = vec![Truth::new("rate", rate), Truth::new("window", window)];
    Case { server: haproxy(frontend, String::new(), behind(rng)), plans: brief(), truths }
}

fn haproxy_queue(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(3..8_u32);
    let takes = OwnLatency { base_ms: 100.0, jitter_ms: 2.0 };
    let behind = OwnBehaviour::of(own::plain(takes, rng.random()));
    let served = f64::from(max) / 0.102;
    let server = haproxy(String::new(), format!("maxconn {max}"), behind);
    let rate = between("rate", 0.85 * served, 1.1 * served);
    let plans: Vec<Box<dyn ExperimentPlan>> =
        vec![Box::new(RatePlan::new(20.0, 160.0, 2.0, SECOND * 8, SECOND)), brief_throttle()];
    let shaped = ["shaped by account", "shaped"];
    let shaped = shaped.map(|kind| between(kind, 0.85 * served, 1.1 * served)).into();
    let truths = vec![Truth::new("rate", vec![rate]), Truth::new("throttle", shaped)];
    Case { server, plans, truths }
}

fn haproxy_connections(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(6..30_u32);
    let frontend = format!(
        "  stick-table type ip size 10k expire 30s store conn_cur
  tcp-request connection track-sc0 src
  tcp-request connection reject if {{ sc_conn_cur(0) gt {max} }}"
    );
    let truths = vec![Truth::new("throttle", vec![exactly("connections", f64::from(max))])];
    let server = haproxy(frontend, String::new(), behind(rng));
    Case { server, plans: vec![brief_throttle()], truths }
}

fn haproxy_idle(rng: &mut SmallRng) -> Case {
    let after = rng.random_range(1_500..5_000_u64);
    let frontend = format!("  timeout http-keep-alive {after}ms");
    let told = between("idle", after as f64 * 0.85, after as f64 * 1.15);
    connection_case(haproxy(frontend, String::new(), behind(rng)), 0, SECOND * 8, told)
}

fn haproxy_streams(rng: &mut SmallRng) -> Case {
    let max = rng.random_range(10..100_u32);
    let global = format!("  tune.h2.max-concurrent-streams {max}");
    let config = HaProxyConfig { global, ..HaProxyConfig::default() };
    let server = CaseServer::HaProxy { config, behind: behind(rng) };
    streams_case(server, max)
}
