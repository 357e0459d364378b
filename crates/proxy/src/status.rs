//! The state of everything, for `/status`, the dashboard and `/readyz`.
//!
//! Typed rather than a document, so that the fields keep the order in which a
//! person reads them: what it is, how it is, how quick it is, what went wrong.

mod subscriptions;

use std::time::{Duration, Instant};

use serde::Serialize;
use wellhead_chain::Tag;
use wellhead_dispatch::now;
use wellhead_eth::CostClass;
use wellhead_store::State;
use wellhead_transport::Shortage;
use wellhead_upstream::{Bound, Condition, PausedMethod, Upstream};

use crate::journey::Proxy;
use crate::state::cache::Cache;
use crate::state::chain::ServedChain;
use crate::state::counts::CacheResult;
use crate::state::tiers::TierSeen;
use crate::state::verify::Evidence;

pub use subscriptions::{FeedStatus, KindStatus, SubscriptionStatus};

/// Everything an operator may want to know, without secrets.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Status {
    /// The version of wellhead.
    pub version: &'static str,
    /// Which settings are in use, and how the last reload went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigStatus>,
    /// All requests, whatever chain they name.
    pub requests: RequestStatus,
    /// Answers that are held in memory.
    pub answers: AnswerStatus,
    /// Connections over WebSocket; the owner of the sockets fills this in.
    pub websocket: Option<WebSocketStatus>,
    /// What is shared with other wellheads; `None` where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedStatus>,
    /// Answers that are kept; none where the settings say so.
    pub cache: Option<CacheStatus>,
    /// The issuers of tokens whose keys are fetched; the owner of these fills this in.
    pub issuers: Vec<IssuerStatus>,
    /// Chain by chain.
    pub chains: Vec<ChainStatus>,
}

/// An issuer of tokens whose keys are fetched.
#[derive(Debug, Clone, Serialize)]
pub struct IssuerStatus {
    /// The claim `iss` of its tokens.
    pub name: String,
    /// Keys that verify tokens now.
    pub keys: usize,
    /// Since keys came for the last time; none before the first.
    pub fetched_seconds_ago: Option<u64>,
    /// Why the last fetch brought none, if it did not.
    pub last_error: Option<String>,
}

/// The settings in use.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigStatus {
    /// How often settings were applied, the start included.
    pub generation: u64,
    /// When settings that can be used were read last, in seconds since 1970.
    pub read_at: u64,
    /// Why the last reload changed nothing; `null` if it could be used.
    pub last_error: Option<String>,
    /// Settings of the file that wait for a restart.
    pub needs_restart: Vec<String>,
}

/// How requests went. Quantiles are upper bounds: the end of a histogram's bucket.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RequestStatus {
    /// Since the start.
    pub total: u64,
    /// Half took no longer, in milliseconds.
    pub p50_ms_at_most: Option<f64>,
    /// All but one in a hundred took no longer, in milliseconds.
    pub p99_ms_at_most: Option<f64>,
}

/// The bytes of answers that are held, from those of 16 KiB on.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AnswerStatus {
    /// Now.
    pub held_bytes: usize,
    /// The most at once since the start.
    pub peak_bytes: usize,
    /// The budget.
    pub bytes_max: usize,
    /// Answers given up because there was no room.
    pub refused: u64,
}

/// How limits are shared with other wellheads.
#[derive(Debug, Clone, Serialize)]
pub struct SharedStatus {
    /// For how long the store has been away; `None`: it is there.
    pub away_s: Option<u64>,
    /// Wellheads that share, this one included, as counted last.
    pub replicas: u32,
    /// Limits that are shared.
    pub limits: usize,
    /// Asks for tokens a second, of late.
    pub asks_per_second: f64,
    /// Of 100 rounds of asks 99 took less.
    pub latency_p99_ms: Option<f64>,
}

/// The connections of clients over WebSocket.
#[derive(Debug, Clone, Serialize)]
pub struct WebSocketStatus {
    /// Open now.
    pub connections: u64,
    /// How those ended that were opened since the start.
    pub closes: Vec<EndStatus>,
}

/// Connections that ended in one way.
#[derive(Debug, Clone, Serialize)]
pub struct EndStatus {
    /// The close code that wellhead sent, `client`, or `lost` without a close.
    pub by: &'static str,
    /// How many.
    pub connections: u64,
}

/// The answers that are kept, of all chains.
#[derive(Debug, Clone, Serialize)]
pub struct CacheStatus {
    /// Kept now.
    pub entries: u64,
    /// What they take, with their keys and all that goes with them.
    pub bytes: u64,
    /// What they may take.
    pub bytes_max: u64,
    /// Put in since the start.
    pub stored: u64,
    /// Pushed out by others.
    pub evicted: u64,
    /// Freed because their block was orphaned.
    pub orphaned: u64,
    /// What stands behind the memory.
    pub tiers: Vec<TierStatus>,
}

/// A slow tier of the cache.
#[derive(Debug, Clone, Serialize)]
pub struct TierStatus {
    /// `disk` or `redis`.
    pub name: &'static str,
    /// Whether it is worth asking: the disk takes writes, Redis is within reach and quick.
    pub is_up: bool,
    /// Answers that it had, whole and in time.
    pub hits: u64,
    /// Answers that it did not have.
    pub misses: u64,
    /// Looks that were given up: too slow, too many at once, or failed.
    pub given_up: u64,
    /// Values that were damaged, and are forgotten.
    pub damaged: u64,
    /// Values written.
    pub written: u64,
    /// Values that were not: too large, too many at once, or it was down.
    pub not_written: u64,
    /// Bytes held; `null` where others decide that.
    pub bytes: Option<u64>,
}

/// What the cache had for the calls that it was asked for, since the start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FoundStatus {
    /// The answer.
    pub hits: u64,
    /// Nothing: an upstream was asked.
    pub misses: u64,
    /// An identical call under way for another client.
    pub joined: u64,
    /// Credits that hits and joined calls would have cost, each at the least that an upstream of
    /// the chain charges for its method.
    pub saved_credits: u64,
}

/// One chain.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ChainStatus {
    /// Its name in the settings.
    pub name: String,
    /// Its id, once given or found out.
    pub id: Option<u64>,
    /// Other names.
    pub aliases: Vec<String>,
    /// The newest block that enough upstreams hold: `latest` in calls.
    pub head: Option<u64>,
    /// The agreed block that is `safe`, once a client has used the tag.
    pub safe: Option<u64>,
    /// And `finalized`.
    pub finalized: Option<u64>,
    /// Times that the head was taken back, since the start.
    pub reorgs: u64,
    /// The last of them.
    pub last_reorg: Option<ReorgStatus>,
    /// Given or measured.
    pub block_time_ms: Option<u64>,
    /// The lag up to which an upstream is used.
    pub lag_bound_blocks: u64,
    /// How calls ended.
    pub calls: CallStatus,
    /// What was kept of their answers.
    pub cache: FoundStatus,
    /// The last answers that could not be true, the newest first; empty where answers are not
    /// looked at.
    pub void_answers: Vec<VoidStatus>,
    /// What clients subscribe to; `null` where none ever did.
    pub subscriptions: Option<SubscriptionStatus>,
    /// The upstreams that pushed new blocks since the start.
    pub feeds: Vec<FeedStatus>,
    /// In the order of the settings.
    pub upstreams: Vec<UpstreamStatus>,
}

/// An invalid answer, which was not used.
#[derive(Debug, Clone, Serialize)]
pub struct VoidStatus {
    /// When it came.
    pub ms_ago: u64,
    /// The upstream that gave it.
    pub upstream: String,
    /// The call, what is wrong with its answer, and the beginning of that.
    #[serde(flatten)]
    evidence: Evidence,
}

/// A head that was taken back.
#[derive(Debug, Clone, Serialize)]
pub struct ReorgStatus {
    /// Blocks between the old head and where the branches part.
    pub depth: u64,
    /// The head before.
    pub from: u64,
    /// The head after.
    pub to: u64,
    /// When that was seen.
    pub ms_ago: u64,
}

/// How calls ended for clients, since the start.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CallStatus {
    /// With a result.
    pub answered: u64,
    /// With an error that an upstream wrote: a revert, bad params.
    pub upstream_error: u64,
    /// With wellhead's own error: no upstream could answer.
    pub failed: u64,
    /// With an error of ours: not served here.
    pub refused: u64,
}

/// One upstream.
#[derive(Debug, Clone, Default, Serialize)]
pub struct UpstreamStatus {
    /// Its name.
    pub id: String,
    /// Whether it can take calls.
    pub condition: &'static str,
    /// The version that it told, if it is asked for one.
    pub version: Option<String>,
    /// The newest block that it is known to hold.
    pub head: Option<u64>,
    /// Behind the agreed head.
    pub lag_blocks: Option<u64>,
    /// Ahead of the agreed head; negative when behind.
    pub distance_blocks: Option<i64>,
    /// On another branch, or claims more blocks than can have been made: a last resort.
    pub astray: bool,
    /// Its tier serves no calls: its head and lag are those of its last word, up to a minute ago.
    pub idle: bool,
    /// How far behind in time.
    pub lag_ms: Option<u64>,
    /// Too far behind to be used.
    pub lagging: bool,
    /// What the next call is expected to take, over all classes.
    pub latency_ms: Option<f64>,
    /// Half of its attempts took no longer.
    pub p50_ms_at_most: Option<f64>,
    /// All but one in a hundred took no longer.
    pub p99_ms_at_most: Option<f64>,
    /// Calls it is answering now.
    pub in_flight: u32,
    /// Attempts since the start, our own calls included.
    pub attempts: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Those of them that were made on our own behalf.
    pub self_calls: u64,
    /// What these cost.
    pub self_credits: u64,
    /// Errors that no rule knows, by JSON-RPC code.
    pub unknown_errors: Vec<UnknownError>,
    /// How often it contradicted the upstreams that agreed, about blocks that were final.
    pub dissents_final: u64,
    /// How often it contradicted them about other blocks, where both may be honest.
    pub dissents_open: u64,
    /// Empty answers to log searches for which another upstream found logs.
    pub missed_logs: u64,
    /// Classes of calls that fail too often and go elsewhere.
    pub resting_classes: Vec<&'static str>,
    /// Methods that it refused, and that pause while others go on.
    pub paused_methods: Vec<PausedMethodStatus>,
    /// Credits spent since the start; calls, if credits are not counted.
    pub credits: u64,
    /// Those of today, where there is a budget.
    pub credits_today: Option<u64>,
    /// And of this month.
    pub credits_this_month: Option<u64>,
    /// What may be spent in a day.
    pub credits_per_day: Option<u64>,
    /// And in a month.
    pub credits_per_month: Option<u64>,
    /// The rate learnt from refusals, in credits per second.
    pub learnt_rate: Option<f64>,
    /// Calls that it may be sent at once now.
    pub in_flight_max: Option<u32>,
    /// Its connections; the owner of the sockets fills this in.
    pub connections: Option<ConnectionStatus>,
    /// Its limits; the owner of the settings fills this in.
    pub limits: Vec<LimitStatus>,
    /// What studies of its limit found; the owner of these fills this in.
    pub study: Option<StudyStatus>,
    /// Calls that a bound of it held, by bound: `learnt_rate=12`.
    pub held: Vec<String>,
    /// When it is asked: primary, fallback, public.
    pub tier: &'static str,
    /// The company that runs it.
    pub provider: Option<String>,
    /// Words that routes select by.
    pub labels: Vec<String>,
    /// What went wrong last.
    pub last_problem: Option<String>,
    /// When that was.
    pub last_problem_ms_ago: Option<u64>,
}

/// The connections to one upstream, over all workers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ConnectionStatus {
    /// Open now.
    pub open: u64,
    /// Streams at once that its last HTTP/2 connection announced to bear.
    pub streams_announced: Option<u64>,
    /// Those that one was found to bear.
    pub streams_learnt: Option<usize>,
    /// By what: it `refused` more, it `died` with more, or `goaway`.
    pub streams_learnt_by: Option<&'static str>,
    /// The fewest with which a connection died or was left.
    pub streams_fatal: Option<usize>,
    /// Requests after which a connection is replaced, because it would be ended.
    pub requests_learnt: Option<u64>,
    /// How long a connection may be idle, for the same reason.
    pub idle_learnt_ms: Option<u64>,
    /// Abandoned streams that were left to finish, to send fewer resets.
    pub streams_left_open: u64,
}

/// The studies of one upstream's rate limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StudyStatus {
    /// The limit; `None` where none was found yet, or there is none.
    pub limit_calls_per_second: Option<f64>,
    /// Calls that pass at once before it refuses, where that is known.
    pub burst_calls: Option<f64>,
    /// When a round of probes, or a study, began last and was answered, in seconds since 1970.
    pub probed_at: Option<u64>,
    /// Calls of the last hour.
    pub calls_in_hour: u64,
    /// Calls that the budget still allows.
    pub calls_left: Option<u64>,
    /// Rounds of probes so far.
    pub rounds: u64,
    /// Studies so far.
    pub studies: u64,
    /// Times that the limit was another one than before.
    pub changes: u64,
    /// Why what is due does not begin: `turn`, `not_ready`, `not_led`, `cap` or `busy`.
    pub put_off: Option<&'static str>,
}

/// A limit of one upstream that holds now.
#[derive(Debug, Clone, Serialize)]
pub struct LimitStatus {
    /// Its setting: the last word of its key, with the unit where it has one.
    pub limit: &'static str,
    /// How much.
    pub value: f64,
    /// `given` by the settings or the plan that they name, `measured` by the profile that they
    /// name, `learnt` from traffic, or the `default`.
    pub source: &'static str,
    /// When that was, UTC; only of what was measured.
    pub measured: Option<String>,
}

/// A method that pauses at one upstream, because that refused it.
#[derive(Debug, Clone, Serialize)]
pub struct PausedMethodStatus {
    /// Its name; `*` for methods that the table does not list.
    pub method: &'static str,
    /// When calls of it go there again.
    pub ends_in_ms: u64,
    /// `named`: the upstream named the time, as with `Retry-After`. `refused`: it did not.
    pub reason: &'static str,
}

/// An error that no rule knows.
#[derive(Debug, Clone, Serialize)]
pub struct UnknownError {
    /// Its JSON-RPC code; none for all the codes for which there was no place left.
    pub code: Option<i64>,
    /// How often.
    pub count: u64,
}

/// Whether calls should be sent here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// At least one chain can be served.
    pub is_ready: bool,
    /// The chains that cannot.
    pub unserved: Vec<String>,
}

impl Proxy {
    /// Whether calls should be sent here: at least one chain has an upstream that may
    /// answer now, if only after a pause or from a little behind. One dead chain of
    /// several must not take the others out of the load balancer; it is listed.
    pub fn readiness(&self) -> Readiness {
        let now = now();
        let may_answer = |upstream: &Upstream| match upstream.condition(now) {
            Condition::Ready
            | Condition::Throttled
            | Condition::HalfOpen
            | Condition::Syncing
            | Condition::Overspent => true,
            Condition::BreakerOpen
            | Condition::OutOfService
            | Condition::Spent
            | Condition::Unverified
            | Condition::WrongChain => false,
        };
        let is_served =
            |chain: &ServedChain| chain.roster.upstreams().iter().any(|it| may_answer(it));
        let unserved: Vec<String> = self
            .chains()
            .iter()
            .filter(|chain| !is_served(chain))
            .map(|chain| chain.name.name.to_string())
            .collect();
        Readiness { is_ready: unserved.len() < self.chains().len(), unserved }
    }

    /// The state of everything now.
    pub fn status(&self) -> Status {
        let quantile = |share| self.requests.quantile(share).map(millis);
        Status {
            version: env!("CARGO_PKG_VERSION"),
            requests: RequestStatus {
                total: self.requests.count(),
                p50_ms_at_most: quantile(0.5),
                p99_ms_at_most: quantile(0.99),
            },
            answers: AnswerStatus {
                held_bytes: self.answers.held(),
                peak_bytes: self.answers.peak(),
                bytes_max: self.answers.bytes_max(),
                refused: self.answers.shortages(Shortage::Refused),
            },
            cache: self.cache().map(cache_status),
            chains: self.chains().iter().map(|chain| chain_status(chain, now())).collect(),
            // Of these others are the owners.
            ..Status::default()
        }
    }
}

fn millis(duration: Duration) -> f64 {
    // Microseconds are fine enough, and spare the reader 5136.054769.
    duration.as_micros() as f64 / 1e3
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn cache_status(cache: &Cache) -> CacheStatus {
    let stats = cache.memory.stats();
    CacheStatus {
        entries: stats.entries,
        bytes: stats.bytes,
        bytes_max: cache.bytes_max(),
        stored: stats.stored,
        evicted: stats.evicted,
        orphaned: stats.orphaned,
        tiers: cache.tiers().seen().into_iter().map(tier_status).collect(),
    }
}

fn tier_status(TierSeen { name, stats }: TierSeen) -> TierStatus {
    TierStatus {
        name,
        is_up: stats.state == State::Up,
        hits: stats.hits,
        misses: stats.misses,
        given_up: stats.late + stats.busy + stats.down + stats.errors,
        damaged: stats.damaged,
        written: stats.written,
        not_written: stats.refused + stats.dropped,
        bytes: stats.bytes,
    }
}

fn chain_status(chain: &ServedChain, now: Instant) -> ChainStatus {
    let view = chain.heads.view();
    let [answered, upstream_error, failed, refused] = chain.counts().totals();
    let upstreams = chain.roster.upstreams().iter();
    ChainStatus {
        name: chain.name.name.to_string(),
        id: chain.pulse.chain_id().map(|id| id.0),
        aliases: chain.name.aliases.clone(),
        head: view.latest.map(|head| head.number.0),
        safe: view.mark(Tag::Safe).map(|mark| mark.number.0),
        finalized: view.mark(Tag::Finalized).map(|mark| mark.number.0),
        reorgs: view.reorgs().last(),
        last_reorg: view.reorgs().newest().map(|reorg| ReorgStatus {
            depth: reorg.depth,
            from: reorg.from.0,
            to: reorg.to.0,
            ms_ago: whole_millis(now.saturating_duration_since(reorg.seen_at)),
        }),
        block_time_ms: view.block_time.map(whole_millis),
        lag_bound_blocks: view.lag_bound(),
        calls: CallStatus { answered, upstream_error, failed, refused },
        cache: FoundStatus {
            hits: chain.counts().found_so_far(CacheResult::Hit),
            misses: chain.counts().found_so_far(CacheResult::Miss),
            joined: chain.counts().found_so_far(CacheResult::Joined),
            saved_credits: chain.counts().saved_so_far(),
        },
        void_answers: void_answers(chain, now),
        subscriptions: subscriptions::subscriptions(chain),
        feeds: subscriptions::feeds(chain),
        upstreams: upstreams.map(|upstream| upstream_status(chain, upstream, now)).collect(),
    }
}

fn void_answers(chain: &ServedChain, now: Instant) -> Vec<VoidStatus> {
    let shown = chain.verifier.as_ref().map(|verifier| verifier.findings.shown());
    let status = |evidence: Evidence| {
        // Of one that is gone nothing is told.
        let upstream = chain.roster.find(evidence.slot)?;
        Some(VoidStatus {
            ms_ago: whole_millis(now.saturating_duration_since(evidence.at)),
            upstream: upstream.identity().id.to_string(),
            evidence,
        })
    };
    shown.unwrap_or_default().into_iter().rev().filter_map(status).collect()
}

fn upstream_status(chain: &ServedChain, upstream: &Upstream, now: Instant) -> UpstreamStatus {
    let (slot, identity, view) = (upstream.slot(), upstream.identity(), chain.heads.view());
    let (attempts, failures) = upstream.totals();
    let quantile = |share| chain.counts().of(slot).attempt_took.quantile(share).map(millis);
    let problem = upstream.last_problem();
    let spending = upstream.spending(now);
    let held = Bound::ALL.map(|bound| (bound, upstream.held(bound)));
    UpstreamStatus {
        id: identity.id.to_string(),
        condition: upstream.condition(now).word(),
        version: upstream.client_version().map(|version| version.to_string()),
        head: view.head(slot).map(|head| head.number.0),
        lag_blocks: view.lag_blocks(slot),
        distance_blocks: view.distance(slot),
        astray: view.is_astray(slot),
        idle: view.is_idle(slot),
        lag_ms: view.lag_time(slot, now).map(whole_millis),
        lagging: view.is_lagging(slot, identity.lag_blocks_max),
        latency_ms: upstream.latency(now).map(millis),
        p50_ms_at_most: quantile(0.5),
        p99_ms_at_most: quantile(0.99),
        in_flight: upstream.in_flight(),
        attempts,
        failures,
        self_calls: chain.asked(slot).total(),
        self_credits: chain.asked(slot).credits(),
        unknown_errors: unknown_errors(upstream),
        dissents_final: upstream.dissents().0,
        dissents_open: upstream.dissents().1,
        missed_logs: chain.counts().missed_logs_so_far(slot),
        resting_classes: CostClass::ALL
            .iter()
            .filter(|class| upstream.class_rests(**class, now))
            .map(|class| class.word())
            .collect(),
        paused_methods: upstream.paused_methods(now).into_iter().map(paused_status).collect(),
        credits: spending.total,
        credits_today: spending.day,
        credits_this_month: spending.month,
        credits_per_day: spending.caps.day,
        credits_per_month: spending.caps.month,
        learnt_rate: spending.learnt_rate,
        in_flight_max: spending.limit,
        held: held
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(bound, count)| format!("{}={count}", bound.word()))
            .collect(),
        tier: identity.tier.word(),
        provider: identity.provider.clone(),
        labels: identity.labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
        last_problem_ms_ago: problem
            .as_ref()
            .map(|problem| whole_millis(now.saturating_duration_since(problem.at))),
        last_problem: problem.map(|problem| problem.text),
        ..UpstreamStatus::default()
    }
}

fn paused_status(paused: PausedMethod) -> PausedMethodStatus {
    PausedMethodStatus {
        method: paused.method,
        ends_in_ms: whole_millis(paused.left),
        reason: if paused.was_named { "named" } else { "refused" },
    }
}

fn unknown_errors(upstream: &Upstream) -> Vec<UnknownError> {
    let (codes, others) = upstream.unknown_errors();
    let codes = codes.into_iter().map(|(code, count)| UnknownError { code: Some(code), count });
    let others = (others > 0).then_some(UnknownError { code: None, count: others });
    codes.chain(others).collect()
}
