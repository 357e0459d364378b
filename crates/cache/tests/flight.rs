//! Flights: which call leads, which follow, and which takes over.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wellhead_cache::{
    CacheRequest, FlightKey, FlightLimits, Flights, Follow, Joined, Key, LEADS_MAX, Lead,
};
use wellhead_cache::{FollowEnd, Pin};
use wellhead_eth::{BlockNumber, ChainId, MethodTable};

type Outcome = Result<u32, &'static str>;

fn key(name: &str, head: u64) -> FlightKey {
    let row = MethodTable::standard().row("web3_sha3");
    let params = format!("[\"{name}\"]");
    let params = Some(params.as_bytes());
    let ask =
        CacheRequest { chain: ChainId(1), row, params, pin: Pin::Fixed, head: None, salt: b"" };
    FlightKey { key: Key::of(&ask).expect("a good call"), head: Some(BlockNumber(head)) }
}

fn flights() -> Flights<Outcome> {
    Flights::new(FlightLimits::default(), 1)
}

#[track_caller]
fn lead(flights: &Flights<Outcome>) -> Lead<Outcome> {
    match flights.join(key("a", 1)) {
        Joined::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn follow(flights: &Flights<Outcome>) -> Follow<Outcome> {
    match flights.join(key("a", 1)) {
        Joined::Follow(follow) => follow,
        other => panic!("{other:?}"),
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll(follow: &mut Follow<Outcome>, bell: &Arc<Bell>) -> Poll<FollowEnd<Outcome>> {
    let waker = Waker::from(Arc::clone(bell));
    pin!(follow).poll(&mut Context::from_waker(&waker))
}

#[track_caller]
fn waits(follow: &mut Follow<Outcome>, bell: &Arc<Bell>) {
    let turn = poll(follow, bell);
    assert!(turn.is_pending(), "{turn:?}");
}

#[track_caller]
fn told(follow: &mut Follow<Outcome>) -> FollowEnd<Outcome> {
    match poll(follow, &Arc::default()) {
        Poll::Ready(turn) => turn,
        Poll::Pending => panic!("still waits"),
    }
}

#[track_caller]
fn landed(follow: &mut Follow<Outcome>, want: Outcome) {
    match told(follow) {
        FollowEnd::Landed(outcome) => assert_eq!(outcome, want),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn leads(follow: &mut Follow<Outcome>) -> Lead<Outcome> {
    match told(follow) {
        FollowEnd::Lead(lead) => lead,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thousand_followers_share_one_call() {
    let flights = flights();
    let leader = lead(&flights);
    let bell = Arc::new(Bell::default());
    let mut followers: Vec<_> = (0..1000).map(|_| follow(&flights)).collect();
    followers.iter_mut().for_each(|follower| waits(follower, &bell));
    assert_eq!(leader.followers(), 1000);
    leader.land(Ok(7));
    assert_eq!(bell.rung(), 1000);
    followers.iter_mut().for_each(|follower| landed(follower, Ok(7)));
    let stats = flights.stats();
    assert_eq!((stats.led, stats.joined, stats.handed_over, stats.flying), (1, 1000, 0, 0));
}

#[test]
fn other_keys_and_other_heads_are_other_flights() {
    let flights = flights();
    let _a = lead(&flights);
    assert!(matches!(flights.join(key("b", 1)), Joined::Lead(_)));
    assert!(matches!(flights.join(key("a", 2)), Joined::Lead(_)));
    drop(follow(&flights));
}

#[test]
fn what_landed_is_over() {
    let flights = flights();
    lead(&flights).land(Ok(1));
    lead(&flights).land(Ok(2));
    assert_eq!(flights.stats().led, 2);
}

#[test]
fn a_follower_that_was_not_polled_yet_is_told_too() {
    let flights = flights();
    let leader = lead(&flights);
    let mut follower = follow(&flights);
    leader.land(Ok(1));
    landed(&mut follower, Ok(1));
}

#[test]
fn a_leader_that_goes_away_hands_over_to_one() {
    let flights = flights();
    let leader = lead(&flights);
    let bells: [Arc<Bell>; 3] = Default::default();
    let mut followers = [follow(&flights), follow(&flights), follow(&flights)];
    for (follower, bell) in followers.iter_mut().zip(&bells) {
        waits(follower, bell);
    }
    drop(leader);
    assert_eq!(bells.each_ref().map(|bell| bell.rung()), [1, 0, 0], "no herd");
    let [first, second, third] = &mut followers;
    waits(second, &bells[1]);
    let next = leads(first);
    // A call that comes now follows the new leader.
    let mut late = follow(&flights);
    waits(&mut late, &bells[2]);
    next.land(Ok(3));
    landed(second, Ok(3));
    landed(third, Ok(3));
    landed(&mut late, Ok(3));
    assert_eq!(flights.stats().flying, 0);
}

#[test]
fn leaders_that_go_away_are_not_counted_as_failures() {
    let flights = flights();
    let mut leader = lead(&flights);
    for _ in 0..20 {
        let mut follower = follow(&flights);
        drop(leader);
        leader = leads(&mut follower);
    }
    leader.land(Ok(1));
    assert_eq!(flights.stats().handed_over, 20);
}

#[test]
fn a_leader_without_followers_leaves_nothing_behind() {
    let flights = flights();
    drop(lead(&flights));
    assert_eq!(flights.stats().flying, 0);
    lead(&flights).fail(Err("down"));
    assert_eq!(flights.stats().flying, 0);
    lead(&flights).part();
    assert_eq!(flights.stats().flying, 0);
}

#[test]
fn a_failure_hands_over_and_the_last_one_is_that_of_all() {
    let flights = flights();
    let mut leader = lead(&flights);
    let mut followers: Vec<_> = (0..10).map(|_| follow(&flights)).collect();
    for _ in 1..LEADS_MAX {
        leader.fail(Err("down"));
        leader = leads(&mut followers.remove(0));
    }
    leader.fail(Err("down still"));
    followers.iter_mut().for_each(|follower| landed(follower, Err("down still")));
    assert_eq!(flights.stats().handed_over, u64::from(LEADS_MAX - 1));
    // The next one begins anew.
    lead(&flights).land(Ok(1));
}

#[test]
fn what_cannot_be_shared_sends_each_alone() {
    let flights = flights();
    let leader = lead(&flights);
    let mut follower = follow(&flights);
    leader.part();
    assert!(matches!(told(&mut follower), FollowEnd::Alone));
    assert_eq!(flights.stats().flying, 0);
}

#[test]
fn followers_that_give_up_change_nothing_for_others() {
    let flights = flights();
    let leader = lead(&flights);
    let bell = Arc::new(Bell::default());
    let mut followers: Vec<_> = (0..5).map(|_| follow(&flights)).collect();
    followers.iter_mut().for_each(|follower| waits(follower, &bell));
    followers.drain(1..4);
    assert_eq!(leader.followers(), 2);
    leader.land(Ok(1));
    assert_eq!(bell.rung(), 2);
    followers.iter_mut().for_each(|follower| landed(follower, Ok(1)));
}

#[test]
fn a_chosen_follower_that_gives_up_hands_over() {
    let flights = flights();
    let leader = lead(&flights);
    let bell = Arc::new(Bell::default());
    let (first, mut second) = (follow(&flights), follow(&flights));
    waits(&mut second, &bell);
    drop(leader);
    assert_eq!(bell.rung(), 0);
    drop(first);
    assert_eq!(bell.rung(), 1);
    leads(&mut second).land(Ok(1));
    assert_eq!(flights.stats().flying, 0);
}

#[test]
fn the_last_chosen_follower_that_gives_up_ends_the_flight() {
    let flights = flights();
    let leader = lead(&flights);
    let only = follow(&flights);
    drop(leader);
    assert_eq!(flights.stats().flying, 1);
    drop(only);
    assert_eq!(flights.stats().flying, 0);
}

#[test]
fn past_the_bounds_reads_go_alone() {
    let flights: Flights<Outcome> =
        Flights::new(FlightLimits { flights_max: 2, followers_max: 1 }, 1);
    let _first = lead(&flights);
    let follower = follow(&flights);
    assert!(matches!(flights.join(key("a", 1)), Joined::Alone));
    let second = flights.join(key("b", 1));
    assert!(matches!(second, Joined::Lead(_)));
    assert!(matches!(flights.join(key("c", 1)), Joined::Alone));
    drop((second, follower));
    assert!(matches!(flights.join(key("c", 1)), Joined::Lead(_)));
    drop(follow(&flights));
    assert_eq!(flights.stats().alone, 2);
}

/// Several single-threaded runtimes, as the workers are: each read ends with an outcome,
/// whichever call led, and nothing stays in the air.
#[test]
fn workers_share_flights() {
    const WORKERS: u64 = 4;
    const READS: u64 = 600;
    let flights = flights();
    let calls = AtomicUsize::new(0);
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (flights, calls, ended) = (&flights, &calls, &ended);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, async {
                    let reads = (0..READS).map(|read| async move {
                        let mut rng = SmallRng::seed_from_u64(worker << 32 | read);
                        for _ in 0..rng.random_range(0..20) {
                            tokio::task::yield_now().await;
                        }
                        let name = rng.random_range(0..5_u32);
                        let outcome = one_read(flights, name, &mut rng, calls).await;
                        assert!(outcome.is_none_or(|outcome| outcome == name), "another's answer");
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                    futures_util::future::join_all(reads).await;
                });
            });
        }
    });
    assert_eq!(ended.load(Ordering::Relaxed) as u64, WORKERS * READS);
    let stats = flights.stats();
    assert_eq!(stats.flying, 0);
    assert_eq!(stats.led + stats.joined + stats.alone, WORKERS * READS);
    assert!(calls.load(Ordering::Relaxed) as u64 <= stats.led + stats.handed_over);
}

/// One read with bad luck now and then; `None` when it gave up or failed.
async fn one_read(
    flights: &Flights<Outcome>,
    name: u32,
    rng: &mut SmallRng,
    calls: &AtomicUsize,
) -> Option<u32> {
    let lead = match flights.join(key(&name.to_string(), 1)) {
        Joined::Lead(lead) => lead,
        Joined::Alone => return None,
        Joined::Follow(mut follow) => {
            if rng.random_ratio(1, 5) {
                // Polls a few times and hangs up.
                for _ in 0..rng.random_range(0..3) {
                    if let Poll::Ready(turn) = poll(&mut follow, &Arc::default()) {
                        drop(turn);
                        return None;
                    }
                    tokio::task::yield_now().await;
                }
                return None;
            }
            match follow.await {
                FollowEnd::Landed(outcome) => return outcome.ok(),
                FollowEnd::Alone => return None,
                FollowEnd::Lead(lead) => lead,
            }
        }
    };
    calls.fetch_add(1, Ordering::Relaxed);
    for _ in 0..rng.random_range(0..10) {
        tokio::task::yield_now().await;
    }
    match rng.random_range(0..8) {
        0 => lead.fail(Err("down")),
        1 => lead.part(),
        2 => drop(lead),
        _ => {
            lead.land(Ok(name));
            return Some(name);
        }
    }
    None
}
