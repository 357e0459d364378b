//! The task of a keeper: it connects, serves round by round, and connects anew.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ServerErrorKind, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};
use wellhead_limit::lease::LeasedLimit;
use wellhead_telemetry::SecretUrl;

use super::KeeperCore;
use super::ask::{self, LimitAsk, ScriptCall};
use crate::reconnect::{KeptConnection, LinkEnd};
use crate::shared::breaker::Breaker;
use crate::shared::link;

/// The part of the registry that is swept each heartbeat: all of 200,000 in 20 s.
const SWEEP: usize = 20_000;

/// A step back of the clock by more than this is one.
const STEP_BACK: Duration = Duration::from_secs(1);

/// Rounds in a row that came too late by the store's clock and were answered in time, after which asks say no
/// latest moment: there is no one clock behind this link.
const VOID_ROUNDS_MAX: u32 = 2;

pub(super) struct LeaseRounds {
    core: Arc<KeeperCore>,
    client: Client,
    /// Prints without its secrets.
    place: SecretUrl,
    replica: String,
    /// Limits that rang.
    queue: mpsc::Receiver<u32>,
    /// When each is to be looked at again.
    due: BTreeSet<(Duration, u32)>,
    due_of: HashMap<u32, Duration>,
    /// The last time that the clock told.
    last_now: Duration,
    /// Fewer replicas than are reckoned with were counted since then.
    fewer_since: Option<Instant>,
    /// Asks at an earlier moment, for the pace.
    paced: (Instant, u64),
}

struct LeaseLink {
    connection: MultiplexedConnection,
    sha: String,
    breaker: Breaker,
    time: Option<StoreTime>,
    /// Rounds in a row with an ask that came too late.
    void_rounds: u32,
    /// When the next round may begin, and when one must.
    next: Instant,
    heartbeat: Instant,
}

/// The store's clock, as a round was told.
#[derive(Debug, Clone, Copy)]
struct StoreTime {
    /// When the round was sent.
    sent: Instant,
    micros: u64,
}

impl LeaseLink {
    /// Until when, by the store's clock, an ask that is sent now has a use; 0: that is not known. A clock
    /// that steps back makes this later, one that steps ahead makes one round void.
    fn latest(&self, answer_within: Duration) -> u64 {
        let Some(time) = self.time.filter(|_| self.void_rounds < VOID_ROUNDS_MAX) else { return 0 };
        let later = time.sent.elapsed() + answer_within;
        time.micros.saturating_add(u64::try_from(later.as_micros()).unwrap_or(u64::MAX))
    }

    /// Notes what a round that was sent then says of the store's clock.
    fn note_answers(&mut self, answers: &[Value], sent: Instant) {
        let here = answers.first().and_then(ask::replicas);
        self.time = here.map(|(_, micros)| StoreTime { sent, micros });
        let is_void = answers.iter().any(ask::is_void);
        self.void_rounds = match (is_void, self.void_rounds < VOID_ROUNDS_MAX) {
            (true, true) => self.void_rounds + 1,
            (false, true) => 0,
            // It stays so on this link.
            (_, false) => self.void_rounds,
        };
    }
}

struct Pending {
    slot: u32,
    name: Arc<str>,
    limit: LeasedLimit,
    asked: LimitAsk,
}

impl KeptConnection for LeaseRounds {
    async fn serve(&mut self) -> Result<LinkEnd, &'static str> {
        let served = self.connect().await?;
        let since = Instant::now();
        let reason = self.serve_link(served).await;
        Ok(LinkEnd { since, reason })
    }

    fn log_away(&self, reason: &'static str) {
        let replicas = self.core.counters.replicas();
        warn!(redis = %self.place, reason, replicas, "the store of shared limits is away: each replica goes by its share");
    }
}

impl LeaseRounds {
    pub(super) fn new(
        core: Arc<KeeperCore>,
        client: Client,
        place: SecretUrl,
        replica: String,
        queue: mpsc::Receiver<u32>,
    ) -> Self {
        let last_now = (core.now)();
        Self {
            core,
            client,
            place,
            replica,
            queue,
            due: BTreeSet::new(),
            due_of: HashMap::new(),
            last_now,
            fewer_since: None,
            paced: (Instant::now(), 0),
        }
    }

    async fn connect(&self) -> Result<LeaseLink, &'static str> {
        let bounds = &self.core.bounds;
        let config = AsyncConnectionConfig::new();
        let mut connection =
            Box::pin(link::connect(&self.client, &config, bounds.connect_within)).await?;
        link::prove(&mut connection, bounds.answer_within).await?;
        let sha = load(&mut connection, bounds.connect_within).await?;
        let now = Instant::now();
        let breaker = Breaker::default();
        let (time, void_rounds) = (None, 0);
        Ok(LeaseLink { connection, sha, breaker, time, void_rounds, next: now, heartbeat: now })
    }

    /// Serves until the link is over; returns why it is.
    async fn serve_link(&mut self, mut served: LeaseLink) -> &'static str {
        // The first round counts the replicas, before any limit goes by the store.
        if let Err(reason) = self.round(&mut served, Vec::new()).await {
            return reason;
        }
        self.turn(true);
        info!(redis = %self.place, replicas = self.core.counters.replicas(), "the store of shared limits is there");
        let reason = loop {
            let slots = self.wait(&served).await;
            let asks = self.collect(slots);
            let is_heartbeat = Instant::now() >= served.heartbeat;
            if asks.is_empty() && !is_heartbeat {
                continue;
            }
            if let Err(reason) = self.round(&mut served, asks).await {
                break reason;
            }
            if is_heartbeat {
                served.heartbeat = Instant::now() + self.core.bounds.heartbeat;
                self.core.registry.lock().sweep(SWEEP);
                self.note_pace();
            }
        };
        self.turn(false);
        reason
    }

    /// All limits are told.
    fn turn(&mut self, is_here: bool) {
        let (core, replicas) = (&self.core, self.core.counters.replicas());
        self.due.clear();
        self.due_of.clear();
        let registry = core.registry.lock();
        if !is_here {
            core.counters.note_away((core.unix)());
        }
        core.is_here.store(is_here, Relaxed);
        for limit in registry.all() {
            if is_here { limit.note_back() } else { limit.note_away(replicas) }
        }
    }

    /// Those that rang or are due, as soon as there are some and a round may begin.
    async fn wait(&mut self, served: &LeaseLink) -> Vec<u32> {
        let asks_max = self.core.bounds.asks_max.max(1);
        let mut slots = Vec::new();
        let until_due = self.until_due();
        tokio::select! {
            rung = self.queue.recv_many(&mut slots, asks_max) => {
                if rung == 0 {
                    // The last handle is gone, which ends this task.
                    std::future::pending::<()>().await;
                }
            }
            () = sleep(until_due) => {}
            () = tokio::time::sleep_until(served.heartbeat) => {}
        }
        if Instant::now() < served.next {
            tokio::time::sleep_until(served.next).await;
        }
        // Those that rang meanwhile come along.
        while slots.len() < asks_max {
            let Ok(slot) = self.queue.try_recv() else { break };
            slots.push(slot);
        }
        let now = self.now();
        while slots.len() < asks_max {
            let Some((due, slot)) = self.due.first().copied() else { break };
            if due > now {
                break;
            }
            self.forget_due(slot);
            slots.push(slot);
        }
        slots
    }

    fn until_due(&self) -> Duration {
        let now = (self.core.now)();
        let next = self.due.first().map(|(due, _)| due.saturating_sub(now));
        // As good as never: the heartbeat comes sooner.
        next.unwrap_or(Duration::from_secs(3600))
    }

    /// The time; a clock that stepped back makes all limits begin anew, as what they remember
    /// would keep them closed until then.
    fn now(&mut self) -> Duration {
        let now = (self.core.now)();
        if now + STEP_BACK < self.last_now {
            warn!("the clock went back: leases of shared limits begin anew");
            self.turn(true);
        }
        self.last_now = now;
        now
    }

    fn collect(&mut self, slots: Vec<u32>) -> Vec<Pending> {
        let (now, unix) = (self.now(), Duration::from_secs((self.core.unix)()));
        let mut asks = Vec::with_capacity(slots.len());
        for slot in slots {
            let Some((name, limit)) = self.core.registry.lock().get(slot) else { continue };
            self.forget_due(slot);
            match LimitAsk::of(&limit, now, unix) {
                Some(asked) => asks.push(Pending { slot, name, limit, asked }),
                None => self.note_due(slot, &limit, now),
            }
        }
        asks
    }

    fn forget_due(&mut self, slot: u32) {
        if let Some(due) = self.due_of.remove(&slot) {
            self.due.remove(&(due, slot));
        }
    }

    fn note_due(&mut self, slot: u32, limit: &LeasedLimit, now: Duration) {
        self.forget_due(slot);
        if let Some(due) = limit.due(now) {
            self.due.insert((due, slot));
            self.due_of.insert(slot, due);
        }
    }

    /// Asks for all in one pipeline, and hands over what is answered. An error: the link is over.
    async fn round(
        &mut self,
        served: &mut LeaseLink,
        asks: Vec<Pending>,
    ) -> Result<(), &'static str> {
        let begin = Instant::now();
        served.next = begin + self.core.bounds.tick;
        let answers = self.exchange(served, &asks).await;
        let now = (self.core.now)();
        let counters = &self.core.counters;
        counters.rounds.fetch_add(1, Relaxed);
        counters.asks.fetch_add(asks.len() as u64, Relaxed);
        let result = match answers {
            Ok(answers) => {
                counters.latency.observe(begin.elapsed());
                served.note_answers(&answers, begin);
                self.hand_over(&asks, &answers, now)
            }
            Err(failure) => {
                asks.iter().for_each(|ask| ask.limit.fail(now));
                Err(failure)
            }
        };
        for ask in &asks {
            self.note_due(ask.slot, &ask.limit, now);
        }
        match result {
            Ok(()) => served.breaker.answered(),
            Err(RoundFailure::Broken(reason)) => return Err(reason),
            Err(RoundFailure::Failed(reason)) => {
                self.core.counters.failures.fetch_add(1, Relaxed);
                if served.breaker.failed() {
                    return Err(reason);
                }
            }
        }
        Ok(())
    }

    /// Sends a round; once more with the script, if the server has forgotten it.
    async fn exchange(
        &self,
        served: &mut LeaseLink,
        asks: &[Pending],
    ) -> Result<Vec<Value>, RoundFailure> {
        let answers = self.send(served, asks).await?;
        let is_unknown = |answer: &Value| match answer {
            Value::ServerError(why) => why.kind() == Some(ServerErrorKind::NoScript),
            _ => false,
        };
        // All or none: it is one script.
        if !answers.iter().any(is_unknown) {
            return Ok(answers);
        }
        served.sha = load(&mut served.connection, self.core.bounds.answer_within)
            .await
            .map_err(RoundFailure::Failed)?;
        self.send(served, asks).await
    }

    async fn send(
        &self,
        served: &mut LeaseLink,
        asks: &[Pending],
    ) -> Result<Vec<Value>, RoundFailure> {
        let bounds = &self.core.bounds;
        let mut pipeline = redis::pipe();
        let mut call = ScriptCall {
            pipeline: &mut pipeline,
            sha: &served.sha,
            cluster: &bounds.cluster,
            replica: &self.replica,
            replicas: self.core.counters.replicas(),
            latest: served.latest(bounds.answer_within),
        };
        call.write_here(bounds.absent_after);
        for ask in asks {
            ask.asked.write(&mut call, &ask.name);
        }
        let sent = served.connection.send_packed_commands(&pipeline, 0, asks.len() + 1);
        match timeout(bounds.answer_within, sent).await {
            Ok(Ok(answers)) if answers.len() == asks.len() + 1 => Ok(answers),
            Ok(Ok(_)) => Err(RoundFailure::Failed("it answers with errors")),
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                Err(RoundFailure::Broken("the connection broke"))
            }
            Ok(Err(_)) => Err(RoundFailure::Failed("it answers with errors")),
            Err(_) => Err(RoundFailure::Failed("it is slow or silent")),
        }
    }

    fn hand_over(
        &mut self,
        asks: &[Pending],
        answers: &[Value],
        now: Duration,
    ) -> Result<(), RoundFailure> {
        let mut result = Ok(());
        let (here, answers) = answers.split_first().expect("the count was looked at");
        match ask::replicas(here) {
            Some((replicas, _)) => self.note_replicas(replicas.max(1)),
            None => result = Err(RoundFailure::Failed("it answers with errors")),
        }
        for (ask, answer) in asks.iter().zip(answers) {
            match ask.asked.answer(answer, now) {
                Some(true) => {}
                Some(false) => {
                    self.core.counters.refused.fetch_add(1, Relaxed);
                }
                None => {
                    ask.limit.fail(now);
                    let reason = match ask::is_void(answer) {
                        true => "its clock went ahead",
                        false => "it answers with errors",
                    };
                    result = Err(RoundFailure::Failed(reason));
                }
            }
        }
        result
    }

    /// More replicas count at once; fewer, when that lasts: a server that forgot them all hears of
    /// each again within a heartbeat.
    fn note_replicas(&mut self, counted: u32) {
        let known = self.core.counters.replicas();
        let now = Instant::now();
        if counted < known {
            let since = *self.fewer_since.get_or_insert(now);
            if now - since < self.core.bounds.absent_after {
                return;
            }
        }
        self.fewer_since = None;
        if counted != known {
            self.core.counters.note_replicas(counted);
            self.core.registry.lock().all().for_each(|limit| limit.note_replicas(counted));
        }
    }

    fn note_pace(&mut self) {
        let asks = self.core.counters.asks.load(Relaxed);
        let (since, before) = self.paced;
        let passed = since.elapsed().as_secs_f64();
        if passed > 0.0 {
            self.core.counters.note_pace((asks - before) as f64 / passed);
            self.paced = (Instant::now(), asks);
        }
    }
}

enum RoundFailure {
    /// The link is of no use any more.
    Broken(&'static str),
    /// Counted; the link may go on.
    Failed(&'static str),
}

async fn load(
    connection: &mut MultiplexedConnection,
    within: Duration,
) -> Result<String, &'static str> {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(include_str!("script.lua"));
    match timeout(within, connection.send_packed_command(&load)).await {
        Ok(Ok(Value::BulkString(sha))) => {
            String::from_utf8(sha).map_err(|_| "it answers a script with errors")
        }
        Ok(Ok(_) | Err(_)) => Err("it takes no scripts: a Redis from 5 on, or a Valkey, is needed"),
        Err(_) => Err("it is slow or silent"),
    }
}
