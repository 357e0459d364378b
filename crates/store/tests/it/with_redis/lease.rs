//! Three keepers, each with a connection of its own as three replicas have, before one real server.
//!
//! Bounds hold whatever the machine's speed: what was admitted without the store, because an answer
//! was late, is counted apart.

#![allow(clippy::print_stdout, reason = "the figures of a test are printed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep, timeout};
use wellhead_kit::RedisServer;
use wellhead_limit::Caps;
use wellhead_limit::lease::{
    CREDIT, DEPTH, LEASE, LeaseShortage, LeasedBucket, LeasedCap, LeasedGate, LeasedLimit,
};
use wellhead_store::{LeaseBounds, LeaseClock, LeaseKeeper};
use wellhead_telemetry::SecretUrl;

use crate::support::{BROKEN, Time, raw_connection, until_seen};

const REPLICAS: u32 = 3;

/// Noon of 20 November 2026.
const NOON: u64 = 20_777 * 86_400 + 43_200;

/// The limit that is hunted, and one that is never reached.
const RATE: f64 = 300.0;
const BURST: f64 = 30.0;
const ROOM: f64 = 6_000.0;

async fn until_there(keeper: &LeaseKeeper) {
    until_seen("the store", || keeper.status().away_since.is_none()).await;
}

fn bounds() -> LeaseBounds {
    LeaseBounds {
        cluster: "test".to_owned(),
        // Patient with the machine.
        answer_within: Duration::from_millis(400),
        connect_within: Duration::from_secs(10),
        heartbeat: Duration::from_millis(100),
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
        ..LeaseBounds::default()
    }
}

/// A clock that can be set off.
#[derive(Clone)]
struct Stepping {
    epoch: Instant,
    off_ms: Arc<AtomicI64>,
}

impl Stepping {
    fn start() -> Self {
        Self { epoch: Instant::now(), off_ms: Arc::new(AtomicI64::new(10_000_000)) }
    }

    fn now(&self) -> Duration {
        let off = self.off_ms.load(Relaxed);
        Duration::from_millis(self.epoch.elapsed().as_millis() as u64 + off as u64)
    }

    fn clock(&self) -> LeaseClock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// Tries until the store has decided, as the proxy does. A limit is unanswered for a bounded time.
async fn decided(take: impl Fn() -> Result<(), LeaseShortage>) -> Result<(), LeaseShortage> {
    loop {
        match take() {
            // Between two tries: what the store says has no waiter.
            Err(LeaseShortage::Unanswered(_)) => sleep(Duration::from_millis(1)).await,
            decided => return decided,
        }
    }
}

struct Replica {
    keeper: LeaseKeeper,
    hunted: Arc<LeasedBucket>,
    roomy: Arc<LeasedBucket>,
}

struct Fleet {
    redis: RedisServer,
    clock: Stepping,
    replicas: Vec<Replica>,
}

#[derive(Debug, Default)]
struct Tally {
    hunted: u64,
    hunts: u64,
    roomy: u64,
    refused: Vec<LeaseShortage>,
}

impl Fleet {
    async fn start() -> Self {
        let redis = RedisServer::valkey();
        let clock = Stepping::start();
        let replicas = (0..REPLICAS).map(|n| replica(&redis, &clock, n.into())).collect();
        let fleet = Self { redis, clock, replicas };
        fleet.until_here().await;
        fleet
    }

    /// Until all know that the store is there, and of each other.
    async fn until_here(&self) {
        for replica in &self.replicas {
            until_there(&replica.keeper).await;
            until_seen("the others", || replica.keeper.status().replicas == REPLICAS).await;
        }
    }

    async fn until_away(&self) {
        for replica in &self.replicas {
            let is_away = || replica.keeper.status().away_since.is_some();
            until_seen("the store's end", is_away).await;
        }
    }

    /// Calls of both kinds at all replicas for a while: as many of the hunted limit as one may, and a
    /// twentieth of what the other allows.
    async fn load(&self, lasts: Duration, tally: &mut Tally) {
        let begin = Instant::now();
        let mut calls = 0_u64;
        while begin.elapsed() < lasts {
            for replica in &self.replicas {
                for _ in 0..4 {
                    tally.hunts += 1;
                    tally.hunted += u64::from(replica.hunted.take(1.0, self.clock.now()).is_ok());
                }
                if calls as f64 <= begin.elapsed().as_secs_f64() * ROOM / 20.0 {
                    calls += 1;
                    match decided(|| replica.roomy.take(1.0, self.clock.now())).await {
                        Ok(()) => tally.roomy += 1,
                        Err(shortage) => tally.refused.push(shortage),
                    }
                }
            }
            // The pace of the demand; nothing is expected after it.
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn alone(&self) -> f64 {
        self.replicas.iter().map(|replica| replica.hunted.taken_alone()).sum()
    }

    /// No call failed but by a limit, and no more were admitted than the bounds allow when the server has
    /// forgotten everything `forgot` times.
    fn judge(&self, what: &str, tally: &Tally, began: Instant, forgot: u32) {
        let lasted = began.elapsed().as_secs_f64();
        let depth = BURST.max(RATE * DEPTH.as_secs_f64());
        let calls = (f64::from(REPLICAS) - RATE * CREDIT.as_secs_f64()).max(0.0);
        let bound =
            RATE * (lasted + LEASE.as_secs_f64()) + BURST + calls + depth * f64::from(forgot);
        let alone = self.alone();
        let status: Vec<_> = self.replicas.iter().map(|replica| replica.keeper.status()).collect();
        let sum = |of: fn(&wellhead_store::LeaseStatus) -> u64| status.iter().map(of).sum::<u64>();
        println!(
            "lease, {what}: in {lasted:.2} s {} of {} admitted, {:.1} % of the rate, {alone:.0} of them \
             without the store; bound {bound:.0} and those; {} of the roomy limit, {} refused; {} \
             rounds, {} asks, {} failures, {} departures, p50 {:?}",
            tally.hunted,
            tally.hunts,
            100.0 * tally.hunted as f64 / (RATE * lasted),
            tally.roomy,
            tally.refused.len(),
            sum(|of| of.rounds),
            sum(|of| of.asks),
            sum(|of| of.failures),
            sum(|of| of.departures),
            status[0].latency_p50,
        );
        let roomy: f64 = self.replicas.iter().map(|replica| replica.roomy.taken_alone()).sum();
        assert_eq!(sum(|of| of.alone) as f64, alone + roomy, "{what}: each call costs one");
        assert_eq!(tally.refused, [], "{what}: none of them is beyond its limit");
        assert!(tally.roomy > 0 && tally.hunted > 0, "{what}: {tally:?}");
        assert!(tally.hunted as f64 - alone <= bound, "{what}: {tally:?} of {bound}");
        let share = RATE * lasted + BURST + f64::from(REPLICAS);
        assert!(alone <= share, "{what}: {alone} of {share} without the store");
        let asks = sum(|of| of.asks) as f64;
        // Two limits at three replicas, at most 30 asks a second each, and a few at the begin.
        assert!(asks <= 180.0 * lasted + 60.0, "{what}: {asks} asks in {lasted} s");
    }
}

fn keeper(redis: &RedisServer, clock: &Stepping, seed: u64) -> LeaseKeeper {
    let url = SecretUrl::parse(&redis.url()).unwrap();
    let rng = SmallRng::seed_from_u64(seed);
    LeaseKeeper::start(&url, bounds(), clock.clock(), Time::at(NOON).clock(), rng).unwrap()
}

fn replica(redis: &RedisServer, clock: &Stepping, seed: u64) -> Replica {
    let keeper = keeper(redis, clock, seed);
    let serve = |name: &str, rate: f64, burst: f64| {
        let bucket = Arc::new(LeasedBucket::new(rate, burst));
        keeper.serve(name, &LeasedLimit::Bucket(Arc::clone(&bucket))).expect("there is room");
        bucket
    };
    let (hunted, roomy) = (serve("hunted", RATE, BURST), serve("roomy", ROOM, ROOM));
    Replica { keeper, hunted, roomy }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_rate_is_held_over_three_replicas() {
    let fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    fleet.load(4 * SECOND, &mut tally).await;
    fleet.judge("undisturbed", &tally, began, 0);
    let status = fleet.replicas[0].keeper.status();
    assert_eq!((status.away_since, status.replicas, status.limits), (None, 3, 2), "{status:?}");
}

/// What many keys cost the store, and their calls: all below their limits, at three replicas.
#[tokio::test]
async fn a_thousand_keys() {
    const KEYS: usize = 1_000;
    const SECONDS: u64 = 3;
    let redis = RedisServer::valkey();
    let clock = Stepping::start();
    let fleet: Vec<(LeaseKeeper, Vec<Arc<LeasedBucket>>)> = (0..REPLICAS)
        .map(|n| {
            let keeper = keeper(&redis, &clock, n.into());
            let bucket = |key: usize| {
                let bucket = Arc::new(LeasedBucket::new(100.0, 50.0));
                let limit = LeasedLimit::Bucket(Arc::clone(&bucket));
                keeper.serve(&format!("key{key}"), &limit).expect("there is room");
                bucket
            };
            let buckets = (0..KEYS).map(bucket).collect();
            (keeper, buckets)
        })
        .collect();
    for (keeper, _) in &fleet {
        until_there(keeper).await;
    }
    let (mut calls, mut waited, mut refused) = (0_u64, 0_u64, 0_u64);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(SECONDS) {
        // Some 3,000 calls a second over all keys, a few of which are busier.
        for (_, buckets) in &fleet {
            let among = if calls.is_multiple_of(2) { 20 } else { KEYS };
            let key = (calls as usize / 2).wrapping_mul(7_919) % among;
            calls += 1;
            let taken = buckets[key].take(1.0, clock.now());
            if matches!(taken, Err(LeaseShortage::Unanswered(_))) {
                waited += 1;
                let again = decided(|| buckets[key].take(1.0, clock.now())).await;
                refused += u64::from(again.is_err());
            }
            refused += u64::from(matches!(taken, Err(LeaseShortage::Refused(_))));
        }
        // The pace of the demand; nothing is expected after it.
        sleep(Duration::from_millis(1)).await;
    }
    let lasted = began.elapsed().as_secs_f64();
    let status: Vec<_> = fleet.iter().map(|(keeper, _)| keeper.status()).collect();
    let rounds: u64 = status.iter().map(|status| status.rounds).sum();
    let asks: u64 = status.iter().map(|status| status.asks).sum();
    let alone: f64 =
        fleet.iter().flat_map(|(_, buckets)| buckets).map(|bucket| bucket.taken_alone()).sum();
    println!(
        "lease, {KEYS} keys: {calls} calls, {:.0}/s; {:.0} rounds/s and {:.0} asks/s over all \
         replicas, {waited} waited, {refused} refused, {alone} alone, p50 {:?}, p99 {:?}",
        calls as f64 / lasted,
        rounds as f64 / lasted,
        asks as f64 / lasted,
        status[0].latency_p50,
        status[0].latency_p99,
    );
    assert_eq!(refused, 0, "none of them is beyond its limit");
    // A round a tick at each replica, whatever the keys.
    assert!(rounds as f64 <= 220.0 * f64::from(REPLICAS) * lasted, "{rounds} in {lasted} s");
}

#[tokio::test]
async fn frozen_and_thawed() {
    let fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.redis.signal("-STOP");
    tokio::join!(fleet.load(SECOND, &mut tally), fleet.until_away());
    assert!(fleet.replicas[0].keeper.status().away_since.is_some());
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.redis.signal("-CONT");
    fleet.until_here().await;
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.judge("frozen", &tally, began, 0);
}

/// What a frozen server was asked is void when it goes on: the answers are not waited for any more, and a
/// limit that was hardly used is full.
#[tokio::test]
async fn what_was_asked_of_a_frozen_server_is_void_when_it_thaws() {
    /// Slow to fill up again, and less than is asked for in vain: by each replica five times, for nine.
    const SLOW_BURST: f64 = 40.0;
    let fleet = Fleet::start().await;
    let serve = |replica: &Replica| {
        let bucket = Arc::new(LeasedBucket::new(1.0, SLOW_BURST));
        let limit = LeasedLimit::Bucket(Arc::clone(&bucket));
        replica.keeper.serve("slow", &limit).expect("there is room");
        bucket
    };
    let slow: Vec<_> = fleet.replicas.iter().map(serve).collect();
    fleet.redis.signal("-STOP");
    let mut last_here = Instant::now();
    let calls = async {
        // The last ask of each has been given up for a while.
        while last_here.elapsed() < SECOND / 4 {
            if fleet.replicas.iter().any(|replica| replica.keeper.status().away_since.is_none()) {
                last_here = Instant::now();
            }
            for bucket in &slow {
                let _asked_for_in_vain = bucket.take(1.0, fleet.clock.now());
            }
            // The pace of the demand; nothing is expected after it.
            sleep(SECOND / 10).await;
        }
    };
    timeout(BROKEN, calls).await.expect("it is found out");
    fleet.redis.signal("-CONT");
    fleet.until_here().await;
    for bucket in &slow {
        for _ in 0..5 {
            let taken = decided(|| bucket.take(1.0, fleet.clock.now())).await;
            assert_eq!(taken, Ok(()), "{bucket:?}");
        }
    }
}

#[tokio::test]
async fn paused_by_command() {
    let fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    fleet.load(SECOND / 2, &mut tally).await;
    let mut raw = raw_connection(&fleet.redis).await;
    let _ok: () =
        redis::cmd("CLIENT").arg("PAUSE").arg(1_000).query_async(&mut raw).await.expect("it obeys");
    fleet.load(2 * SECOND, &mut tally).await;
    fleet.until_here().await;
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.judge("CLIENT PAUSE", &tally, began, 0);
}

#[tokio::test]
async fn killed_and_restarted_with_no_data() {
    let mut fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.redis.signal("-KILL");
    fleet.until_away().await;
    fleet.load(SECOND, &mut tally).await;
    let port = fleet.redis.port();
    fleet.redis = RedisServer::valkey_at(port);
    fleet.until_here().await;
    fleet.load(SECOND, &mut tally).await;
    fleet.judge("kill -9", &tally, began, 1);
}

#[tokio::test]
async fn flushed() {
    let fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    let mut raw = raw_connection(&fleet.redis).await;
    for _ in 0..4 {
        fleet.load(SECOND / 2, &mut tally).await;
        let _ok: () = redis::cmd("FLUSHALL").query_async(&mut raw).await.expect("it obeys");
        let _ok: () =
            redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut raw).await.expect("it obeys");
    }
    fleet.load(SECOND / 2, &mut tally).await;
    fleet.judge("FLUSHALL and SCRIPT FLUSH", &tally, began, 4);
    let departures: u64 = fleet.replicas.iter().map(|one| one.keeper.status().departures).sum();
    assert_eq!(departures, 0, "a script is loaded again at once");
}

#[tokio::test]
async fn a_clock_that_steps() {
    let fleet = Fleet::start().await;
    let (mut tally, began) = (Tally::default(), Instant::now());
    for step_ms in [3_600_000, -3_600_000, -1_800_000, 500, -500] {
        fleet.load(SECOND / 2, &mut tally).await;
        fleet.clock.off_ms.fetch_add(step_ms, Relaxed);
    }
    fleet.load(SECOND, &mut tally).await;
    // A step forward fills up what each replica counts for itself, one back lets leases begin anew.
    fleet.judge("clock steps", &tally, began, 2 * REPLICAS);
    let before = tally.hunted;
    fleet.load(2 * SECOND, &mut tally).await;
    assert!((tally.hunted - before) as f64 > RATE, "it goes on: {} {before}", tally.hunted);
}

#[tokio::test]
async fn a_cap_ends_where_it_is_set() {
    const CAP: u64 = 3_000;
    let redis = RedisServer::valkey();
    let clock = Stepping::start();
    let replicas: Vec<_> = (0..REPLICAS)
        .map(|n| {
            let keeper = keeper(&redis, &clock, n.into());
            let cap = Arc::new(LeasedCap::new(Caps { day: None, month: Some(CAP) }));
            keeper.serve("month", &LeasedLimit::Cap(Arc::clone(&cap))).expect("there is room");
            (keeper, cap)
        })
        .collect();
    for (keeper, _) in &replicas {
        until_there(keeper).await;
    }
    let mut spent = 0_u64;
    let mut ended = [false; REPLICAS as usize];
    let drain = async {
        while ended.contains(&false) {
            for (n, (_, cap)) in replicas.iter().enumerate() {
                let unix = Duration::from_secs(NOON);
                match decided(|| cap.take(1.0, clock.now(), unix)).await {
                    Ok(()) => spent += 1,
                    Err(LeaseShortage::Refused(wait)) => {
                        assert!(wait > Duration::from_secs(3_600), "until December: {wait:?}");
                        ended[n] = true;
                    }
                    Err(LeaseShortage::Unanswered(_)) => {}
                }
            }
        }
    };
    timeout(BROKEN, drain).await.expect("it ends");
    let alone: f64 = replicas.iter().map(|(_, cap)| cap.taken_alone()).sum();
    let asks: u64 = replicas.iter().map(|(keeper, _)| keeper.status().asks).sum();
    println!("lease, cap of {CAP}: {spent} spent, {alone} of them without the store, {asks} asks");
    assert!(spent as f64 - alone <= CAP as f64, "{spent} of {CAP}, {alone} without the store");
    // Each replica has at most what it leased last and could not spend any more.
    assert!(spent >= CAP * 19 / 20, "{spent} of {CAP}");
}

#[tokio::test]
async fn places_go_where_they_are_wanted() {
    const MAX: u32 = 30;
    let redis = RedisServer::valkey();
    let clock = Stepping::start();
    let replicas: Vec<_> = (0..REPLICAS)
        .map(|n| {
            let keeper = keeper(&redis, &clock, n.into());
            let gate = Arc::new(LeasedGate::new(MAX));
            keeper.serve("gate", &LeasedLimit::Gate(Arc::clone(&gate))).expect("there is room");
            (keeper, gate)
        })
        .collect();
    for (keeper, _) in &replicas {
        until_seen("the others", || keeper.status().replicas == REPLICAS).await;
    }
    let (_, gate) = &replicas[0];
    let enter = |gate: &LeasedGate| gate.enter(clock.now());
    let mut entered = 0;
    let fill = async {
        // Five are its own, and 15 are divided; the others want none.
        while entered < 20 {
            entered += u32::from(decided(|| enter(gate)).await.is_ok());
            // Places are divided anew each second, and nothing tells when.
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(BROKEN, fill).await.expect("it has what the others do not want");
    for (_, gate) in &replicas[1..] {
        for _ in 0..20 {
            entered += u32::from(decided(|| enter(gate)).await.is_ok());
        }
    }
    let alone: u64 = replicas.iter().map(|(_, gate)| gate.entered_alone()).sum();
    println!("lease, {MAX} places: {entered} are in, {alone} entered without the store");
    assert!(u64::from(entered) <= u64::from(MAX) + alone, "{entered} are in");
}
