//! Three wellheads in one process, each with its own keeper, before one real Redis.
//!
//! Bounds hold whatever the machine's speed: what was admitted without the store, because an answer was
//! late, is counted apart.

#![allow(clippy::print_stdout, reason = "the figures of a test are printed")]

use std::future::Future;
use std::net::Ipv4Addr;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};
use wellhead_access::{
    ApiKey, BadKeyReason, CallCharge, ClientFacts, Denied, KeyRecord, LimitDenied, MeterTime,
    MeteredCall, NewKey, Pepper, SubjectMeter, UnixSeconds,
};
use wellhead_eth::MethodTable;
use wellhead_front::CallerControl;
use wellhead_kit::RedisServer;
use wellhead_limit::lease::{LEASE, LeasedLimit};
use wellhead_store::DirectoryWrite;
use wellhead_upstream::{Bound, Payload, Verdict, VerdictClass};

use super::*;
use crate::access::{RedisKeys, directory};
use crate::assemble::{Assembly, Recorders};
use crate::config::{self, Settings};

/// The longest wait: a step that takes longer has failed.
const BROKEN: Duration = Duration::from_secs(120);

const REPLICAS: u32 = 3;
const RATE: f64 = 100.0;
const BURST: f64 = 10.0;

/// For how long the limit is hunted.
const WINDOW: Duration = Duration::from_secs(2);

fn settings(redis: &RedisServer) -> Settings {
    let url = redis.url();
    let text = format!(
        r#"
shared: {{ redis: "{url}", cluster: test }}
access: {{ keys: {{ redis: true }} }}
tenants: {{ acme: {{ quota: pro }}, capped: {{ quota: capped }} }}
quotas:
  pro: {{ calls_per_second: {RATE}, burst: {BURST} }}
  capped: {{ credits_per_day: 1000 }}
chains:
  ethereum:
    id: 1
    upstreams:
      - {{ id: a, url: "http://127.0.0.1:9", budget: {{ calls_per_second: {RATE}, calls_burst: {BURST} }} }}
      - {{ id: b, url: "http://127.0.0.1:9", budget: {{ credits_per_day: 1000, in_flight: 12 }} }}
"#
    );
    config::sound(&text)
}

struct SharingReplica {
    parts: Assembly,
    /// What was leased of each limit.
    limits: Vec<LeasedLimit>,
}

impl SharingReplica {
    fn start(settings: &Settings, seed: u64) -> Self {
        let parts = Assembly::new(
            &Arc::new(settings.clone()),
            Recorders::default(),
            wellhead_dispatch::now(),
        )
        .expect("a good config");
        let store = settings.shared.as_ref().expect("set");
        let limits = match &*shared(&parts).serving.lock() {
            LimitServing::Waiting(limits) => limits.iter().map(|(_, it)| it.clone()).collect(),
            LimitServing::By(_) => panic!("it has not begun"),
        };
        let bounds = LeaseBounds {
            cluster: "test".to_owned(),
            // Patient with the machine, and back soon.
            answer_within: Duration::from_millis(400),
            connect_within: Duration::from_secs(10),
            heartbeat: Duration::from_millis(100),
            pause_min: Duration::from_millis(5),
            pause_max: Duration::from_millis(50),
            ..LeaseBounds::default()
        };
        let replica = Self { parts, limits };
        replica.shared().start_limits(store, bounds, SmallRng::seed_from_u64(seed));
        replica
    }

    fn shared(&self) -> &SharedLimits {
        shared(&self.parts)
    }

    fn control(&self) -> &Arc<CallerControl> {
        self.parts.callers.as_ref().expect("callers are told apart")
    }

    fn tenant(&self, name: &str) -> Arc<SubjectMeter> {
        let all = self.control().book().all();
        all.into_iter().find(|meter| &**meter.name() == name).expect("its meter")
    }

    /// Calls that were let through without the store.
    fn alone(&self) -> f64 {
        let alone = |limit: &LeasedLimit| match limit {
            LeasedLimit::Bucket(bucket) => bucket.taken_alone(),
            LeasedLimit::Cap(cap) => cap.taken_alone(),
            LeasedLimit::Gate(_) | LeasedLimit::Window(_) => 0.0,
        };
        self.limits.iter().map(alone).sum()
    }
}

/// The upstream with this place in the settings.
fn upstream(replica: &SharingReplica, place: usize) -> &Arc<Upstream> {
    &replica.parts.proxy.chains()[0].roster.upstreams()[place]
}

fn shared(parts: &Assembly) -> &SharedLimits {
    parts.shared().expect("it shares")
}

fn take(meter: &SubjectMeter, replica: &SharingReplica) -> Result<(), LimitDenied> {
    let row = MethodTable::standard().row("eth_call");
    let elapsed = replica.control().elapsed(wellhead_dispatch::now());
    let at = MeterTime { elapsed, unix_seconds: clock::unix_seconds() };
    CallCharge::take([meter], MeteredCall { row, method: "eth_call", credits: 1 }, at).map(drop)
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(BROKEN, future).await.unwrap_or_else(|_| panic!("{what} did not come about"))
}

/// Until it is so, looked at again and again: what is asked has no waiter.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    within(what, async {
        while !is_so() {
            // Between two looks; the loop has a limit.
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

fn all_status(fleet: &[SharingReplica], is_so: impl Fn(&LeaseStatus) -> bool) -> bool {
    fleet.iter().all(|replica| replica.shared().status().is_some_and(|status| is_so(&status)))
}

async fn until_here(fleet: &[SharingReplica]) {
    let is_here = |it: &LeaseStatus| it.away_since.is_none() && it.replicas == REPLICAS;
    until("the store", || all_status(fleet, is_here)).await;
}

fn start(redis: &RedisServer) -> Vec<SharingReplica> {
    let settings = settings(redis);
    (0..REPLICAS).map(|seed| SharingReplica::start(&settings, seed.into())).collect()
}

/// As many calls as one may at all replicas for a while: what each let through, and how long it took.
async fn hunt(fleet: &[SharingReplica]) -> (Vec<f64>, f64) {
    let begin = wellhead_dispatch::now();
    let meters: Vec<_> = fleet.iter().map(|replica| replica.tenant("acme")).collect();
    let mut passed = vec![0.0; fleet.len()];
    while begin.elapsed() < WINDOW {
        for ((replica, meter), passed) in fleet.iter().zip(&meters).zip(&mut passed) {
            for _ in 0..4 {
                *passed += f64::from(u8::from(take(meter, replica).is_ok()));
            }
        }
        // The keepers' turns between the calls, which the window bounds.
        sleep(Duration::from_millis(1)).await;
    }
    (passed, begin.elapsed().as_secs_f64())
}

#[tokio::test]
async fn a_tenant_has_its_rate_over_all_replicas_and_a_part_of_it_at_each_while_the_store_is_away()
{
    let redis = RedisServer::valkey();
    let port = redis.port();
    let fleet = start(&redis);
    until_here(&fleet).await;
    let alone = || fleet.iter().map(SharingReplica::alone).sum::<f64>();
    let check_shared = |what: &str, (passed, took): (Vec<f64>, f64), alone: f64| {
        let (sum, most) = (passed.iter().sum::<f64>(), RATE * (took + LEASE.as_secs_f64()) + BURST);
        println!(
            "{what}: {passed:?} = {sum} in {took:.2} s, {alone} of them alone, at most {most:.0}"
        );
        assert!(sum - alone <= most, "{what}");
        assert!(sum >= 0.8 * RATE * took, "{what}");
    };
    let before = alone();
    let found = hunt(&fleet).await;
    check_shared("shared", found, alone() - before);

    drop(redis);
    until("the end of the store", || all_status(&fleet, |it| it.away_since.is_some())).await;
    let (passed, took) = hunt(&fleet).await;
    let most = (RATE * took + BURST) / f64::from(REPLICAS) + 1.0;
    println!("away: {passed:?} in {took:.2} s, at most {most:.0} each");
    for passed in passed {
        assert!(passed <= most && passed >= 0.8 * RATE * took / f64::from(REPLICAS));
    }

    let _redis = RedisServer::valkey_at(port);
    until_here(&fleet).await;
    let before = alone();
    let found = hunt(&fleet).await;
    check_shared("shared again", found, alone() - before);
}

#[tokio::test]
async fn the_rate_of_an_upstream_is_that_of_all_replicas() {
    let redis = RedisServer::valkey();
    let fleet = start(&redis);
    until_here(&fleet).await;
    let row = MethodTable::standard().row("eth_call");
    let begin = wellhead_dispatch::now();
    let mut passed = vec![0.0; fleet.len()];
    while begin.elapsed() < WINDOW {
        for (replica, passed) in fleet.iter().zip(&mut passed) {
            for _ in 0..4 {
                let admitted = upstream(replica, 0).admit(row, 1, wellhead_dispatch::now());
                *passed += f64::from(u8::from(admitted.is_ok()));
            }
        }
        // The keepers' turns between the calls, which the window bounds.
        sleep(Duration::from_millis(1)).await;
    }
    let (took, sum) = (begin.elapsed().as_secs_f64(), passed.iter().sum::<f64>());
    let alone = fleet.iter().map(SharingReplica::alone).sum::<f64>();
    let most = RATE * (took + LEASE.as_secs_f64()) + BURST;
    println!(
        "upstream: {passed:?} = {sum} in {took:.2} s, {alone} of them alone, at most {most:.0}"
    );
    assert!(sum - alone <= most);
    assert!(sum >= 0.75 * RATE * took, "a pace leaves 5 % of the rate");
}

/// Calls of an upstream that are let in, until it holds them for long at each replica. `keep` says whether they
/// stay in.
async fn admitted(fleet: &[SharingReplica], place: usize, keep: bool) -> (usize, Bound) {
    let row = MethodTable::standard().row("eth_call");
    let (mut inside, mut passed) = (Vec::new(), 0);
    // What is held for less may be the store's answer that is under way, and places are divided anew each second.
    let patience = Duration::from_millis(1_500);
    let mut last = wellhead_dispatch::now();
    loop {
        let mut bound = None;
        for replica in fleet {
            match upstream(replica, place).admit(row, 1, wellhead_dispatch::now()) {
                Ok(call) => {
                    (passed, last) = (passed + 1, wellhead_dispatch::now());
                    inside.extend(keep.then_some(call));
                }
                Err(held) => bound = Some(held.bound),
            }
        }
        if let Some(bound) = bound.filter(|_| last.elapsed() > patience) {
            return (passed, bound);
        }
        // The keepers' turns between the calls, which have no waiter.
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_credits_and_the_places_of_an_upstream_are_those_of_all_replicas() {
    let redis = RedisServer::valkey();
    let fleet = start(&redis);
    until_here(&fleet).await;
    until("each other", || all_status(&fleet, |status| status.replicas == REPLICAS)).await;
    let (places, bound) = admitted(&fleet, 1, true).await;
    assert_eq!(bound, Bound::InFlight);
    assert!((11..=12).contains(&places), "{places} of 12");
    let (credits, bound) = admitted(&fleet, 1, false).await;
    let credits = credits + places;
    println!("upstream: {places} places of 12, {credits} credits of 1000");
    assert_eq!(bound, Bound::Day);
    assert!((900..=1_000).contains(&credits), "{credits} of 1000");
}

#[tokio::test]
async fn a_pause_that_an_upstream_asked_one_replica_for_holds_at_all() {
    let redis = RedisServer::valkey();
    let settings = settings(&redis);
    let store = settings.shared.as_ref().expect("set");
    let mut tasks = tokio::task::JoinSet::new();
    let fleet: Vec<_> = (0..REPLICAS)
        .map(|seed| {
            let parts = Assembly::new(
                &Arc::new(settings.clone()),
                Recorders::default(),
                wellhead_dispatch::now(),
            )
            .expect("good");
            let rng = SmallRng::seed_from_u64(seed.into());
            let notices = shared(&parts).start(store, rng).expect("a good URL");
            tasks.spawn(follow_pauses(notices, Arc::new(ArcSwap::new(Arc::clone(&parts.proxy)))));
            SharingReplica { parts, limits: Vec::new() }
        })
        .collect();
    let is_here = |replica: &SharingReplica| {
        replica.shared().pause_status().is_some_and(|status| status.is_here)
    };
    until("the store", || fleet.iter().all(is_here)).await;
    let row = MethodTable::standard().row("eth_getLogs");
    let mut verdict =
        Verdict::new(VerdictClass::Throttled, "test", Payload::None { detail: String::new() });
    verdict.retry_after = Some(Duration::from_secs(60));
    let now = wellhead_dispatch::now();
    upstream(&fleet[1], 0).settle(row, &verdict, now, now);
    let paused = |replica: &SharingReplica, place| {
        let paused = upstream(replica, place).paused_methods(wellhead_dispatch::now());
        paused.iter().map(|paused| (paused.method, paused.was_named)).collect::<Vec<_>>()
    };
    let is_paused = |replica: &SharingReplica| paused(replica, 0) == [("eth_getLogs", true)];
    until("the pause", || fleet.iter().all(is_paused)).await;
    assert!(fleet.iter().all(|replica| paused(replica, 1).is_empty()), "another upstream");
}

#[tokio::test]
async fn the_credits_of_a_day_are_those_of_all_replicas() {
    let redis = RedisServer::valkey();
    let fleet = start(&redis);
    until_here(&fleet).await;
    let (mut passed, mut denied) = (0.0, None);
    loop {
        let mut refused = 0;
        for replica in &fleet {
            let meter = replica.tenant("capped");
            let mut taken = take(&meter, replica);
            while taken.as_ref().is_err_and(|denied| denied.is_unanswered) {
                // As the proxy does: a try a little later has an answer.
                sleep(Duration::from_millis(1)).await;
                taken = take(&meter, replica);
            }
            match taken {
                Ok(()) => passed += 1.0,
                Err(why) => (refused, denied) = (refused + 1, Some(why)),
            }
        }
        if refused == REPLICAS {
            break;
        }
    }
    let alone: f64 = fleet.iter().map(SharingReplica::alone).sum();
    println!("{passed} credits, {alone} of them alone");
    assert!(passed - alone <= 1_000.0 && passed >= 900.0);
    let denied = denied.expect("all refuse");
    assert_eq!(denied.limit.word(), "credits_per_day");
    assert!(denied.retry_after > Duration::ZERO);
}

/// What a key is told: the name of its tenant, or why not.
fn told(control: &CallerControl, key: &str) -> String {
    let facts = ClientFacts {
        peer: Ipv4Addr::LOCALHOST.into(),
        path: "/",
        query: None,
        certificate: &[],
        now: Duration::from_secs(clock::unix_seconds()),
        elapsed: Duration::ZERO,
        keys_are_stale: control.has_stale_source(),
    };
    match control.table().identify(&facts, [("x-api-key", key.as_bytes())]) {
        Ok(client) => client.caller.grant.tenant.name.to_string(),
        Err(Denied::KeysUnknown) => "not known".to_owned(),
        Err(Denied::BadKey(BadKeyReason::Unknown)) => "wrong".to_owned(),
        Err(other) => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_key_put_by_one_is_valid_at_all_and_a_revoked_one_is_refused_everywhere() {
    let redis = RedisServer::valkey();
    let settings = settings(&redis);
    let fleet: Vec<_> =
        (0..REPLICAS).map(|seed| SharingReplica::start(&settings, seed.into())).collect();
    let store = settings.shared.as_ref().expect("set");
    let (mut followed, mut tasks) = (Vec::<Arc<RedisKeys>>::new(), tokio::task::JoinSet::new());
    let mut rng = StdRng::seed_from_u64(7);
    let [first, second] =
        [(); 2].map(|()| ApiKey::generate("test", &mut rng).expect("a good word"));
    let record = |key: &NewKey| {
        let hash = Pepper::well_known().hash(key.text.expose());
        KeyRecord::new(key.id, hash, "acme")
    };
    let of_all = |key: &NewKey| -> Vec<String> {
        fleet.iter().map(|replica| told(replica.control(), key.text.expose())).collect()
    };
    assert_eq!(of_all(&first), ["not known"; 3], "nothing was read yet");
    for (seed, replica) in (0..).zip(&fleet) {
        let (keys, control) = (Arc::<RedisKeys>::default(), Arc::clone(replica.control()));
        keys.open(store, SmallRng::seed_from_u64(seed)).expect("a Redis");
        followed.push(Arc::clone(&keys));
        tasks.spawn(directory::follow(control, keys, Duration::from_secs(4)));
    }
    until("the first look", || of_all(&first) == ["wrong"; 3]).await;
    let put = async |replica: usize, id: &str, line: &str| {
        let mut writer = followed[replica].writer().await.expect("it is there");
        let entry = writer.read(id).await.expect("it is there");
        let made = writer.replace(&entry, line.as_bytes()).await;
        assert!(matches!(made, Ok(DirectoryWrite::Made(_))), "{made:?}");
    };
    for key in [&first, &second] {
        put(0, key.id.as_str(), &record(key).to_line()).await;
    }
    put(2, "garbage", "{}").await;
    until("the keys", || of_all(&first) == ["acme"; 3] && of_all(&second) == ["acme"; 3]).await;
    let ended = KeyRecord { revoked_at: Some(UnixSeconds(1)), ..record(&first) };
    put(1, first.id.as_str(), &ended.to_line()).await;
    until("the end of one", || of_all(&first) == ["BadKey(Ended)"; 3]).await;
    assert_eq!(of_all(&second), ["acme"; 3]);
    drop(redis);
    until("that the keys are too old", || of_all(&second) == ["not known"; 3]).await;
}
