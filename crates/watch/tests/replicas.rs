//! Several replicas that hear each other: one asks an upstream for all, and each goes on alone when it has to.
//!
//! Each replica has its own loops, heads and breakers; the bus between them is a list of inboxes.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use support::{BLOCK, Mood, Node, Stage, now, pass, seconds, settle};
use wellhead_eth::BlockNumber;
use wellhead_transport::feed::BoxFuture;
use wellhead_upstream::{Condition, Slot, Tier};
use wellhead_watch::{BEAT, ChainPeers, ChainWord, Checks, PeerOutlet, ReplicaWord, Replicas};

/// One replica's end of the bus.
#[derive(Debug)]
struct Outlet {
    own: u64,
    is_linked: AtomicBool,
    fleet: Mutex<Vec<Weak<Replica>>>,
}

impl PeerOutlet for Outlet {
    fn is_linked(&self) -> bool {
        self.is_linked.load(Relaxed)
    }

    fn tell(&self, text: String) {
        let word = ReplicaWord::read(&text).expect("what is written is read");
        assert!(text.len() < 2_000, "{text}");
        let others = self.fleet.lock().clone();
        for other in others.iter().filter_map(Weak::upgrade) {
            if other.own != self.own && other.outlet.is_linked() {
                other.hear(self.own, word.clone());
            }
        }
    }

    fn tell_acked(&self, text: String) -> BoxFuture<'static, ()> {
        self.tell(text);
        Box::pin(std::future::ready(()))
    }
}

#[derive(Debug)]
struct Replica {
    own: u64,
    outlet: Arc<Outlet>,
    replicas: Arc<Replicas>,
    pulse: Arc<wellhead_watch::Pulse>,
}

impl Replica {
    fn hear(&self, from: u64, word: ReplicaWord) {
        self.replicas.note_heard(from, now());
        match word {
            ReplicaWord::Here => {}
            ReplicaWord::Leaving => self.replicas.note_leaving(from),
            ReplicaWord::Chain { says: ChainWord::Demand(demand), .. } => {
                self.pulse.hear_demand(demand, now());
            }
            ReplicaWord::Chain { says: ChainWord::Upstream { upstream, says }, .. } => {
                let peers = self.pulse.peers().expect("it joined");
                peers.hear(from, &upstream, says, now());
            }
            ReplicaWord::Chain { .. } => {}
        }
    }
}

/// Replicas that follow the same nodes.
struct Fleet {
    stages: Vec<Option<Stage>>,
    replicas: Vec<Arc<Replica>>,
    /// What each replica reaches its upstreams by, in turn: the nodes are one, the paths are not.
    nodes: Vec<Vec<Arc<Node>>>,
}

impl Fleet {
    /// So many replicas; `nodes` are the upstreams, which each replica reaches over a path of its own.
    async fn start(replicas: usize, tiers: &[Tier]) -> Self {
        let mut fleet = Self { stages: Vec::new(), replicas: Vec::new(), nodes: Vec::new() };
        for place in 0..replicas {
            let mut stage = Stage::new(Some(1), tiers.len());
            let own = 1 + place as u64 * 0x1357_9bdf_0246_8ace;
            let outlet =
                Arc::new(Outlet { own, is_linked: AtomicBool::new(true), fleet: Mutex::default() });
            let as_outlet = Arc::clone(&outlet) as Arc<dyn PeerOutlet>;
            let replicas = Arc::new(Replicas::new(own, as_outlet));
            stage.pulse.join(ChainPeers::new("ethereum".into(), Arc::clone(&replicas)));
            let pulse = Arc::clone(&stage.pulse);
            fleet.replicas.push(Arc::new(Replica { own, outlet, replicas, pulse }));
            let nodes: Vec<_> = tiers.iter().map(|_| Node::new(1, BLOCK)).collect();
            let members: Vec<_> =
                nodes.iter().zip(tiers).map(|(node, tier)| (node, *tier)).collect();
            stage.follow_tiers(&members, Checks::default());
            fleet.nodes.push(nodes);
            fleet.stages.push(Some(stage));
        }
        for replica in &fleet.replicas {
            *replica.outlet.fleet.lock() = fleet.replicas.iter().map(Arc::downgrade).collect();
        }
        settle().await;
        fleet.beat(seconds(20)).await;
        fleet
    }

    /// Lets this time pass, with the beats of all that are there.
    async fn beat(&self, time: std::time::Duration) {
        let end = now() + time;
        while now() < end {
            for (replica, stage) in self.replicas.iter().zip(&self.stages) {
                if stage.is_some() {
                    replica.replicas.tell(&ReplicaWord::Here);
                    replica.pulse.tell_demand(now());
                }
            }
            pass(BEAT.min(end - now())).await;
        }
    }

    /// As [`Self::beat`], while clients of these replicas call the upstream at `upstream`.
    async fn call(&self, callers: &[usize], upstream: usize, time: std::time::Duration) {
        let end = now() + time;
        while now() < end {
            callers.iter().for_each(|place| self.stage(*place).call(upstream));
            self.beat(seconds(1)).await;
        }
    }

    fn stage(&self, place: usize) -> &Stage {
        self.stages[place].as_ref().expect("it lives")
    }

    /// Ends a replica, which says no last word.
    async fn kill(&mut self, place: usize) {
        self.replicas[place].outlet.is_linked.store(false, Relaxed);
        self.stages[place] = None;
        settle().await;
    }

    /// The calls that the replicas made to one upstream so far.
    fn asked(&self, upstream: usize) -> Vec<u64> {
        self.nodes.iter().map(|nodes| nodes[upstream].calls.lock().len() as u64).collect()
    }

    /// The calls that they made within this time.
    async fn asked_within(&self, upstream: usize, during: impl Future<Output = ()>) -> Vec<u64> {
        let before = self.asked(upstream);
        during.await;
        self.asked(upstream).iter().zip(&before).map(|(after, before)| after - before).collect()
    }

    /// The replica that alone asks the upstream.
    async fn prober(&self, upstream: usize) -> usize {
        let asked = self.asked_within(upstream, self.beat(seconds(600))).await;
        let probers: Vec<_> = (0..asked.len()).filter(|place| asked[*place] > 0).collect();
        assert_eq!(probers.len(), 1, "{asked:?}");
        probers[0]
    }

    fn head(&self, place: usize, upstream: u8) -> Option<u64> {
        self.stage(place).heads.look(|view| view.head(Slot(upstream)).map(|head| head.number.0))
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_upstream_hears_sixty_calls_an_hour_from_all_replicas_together() {
    let fleet = Fleet::start(5, &[Tier::Primary, Tier::Primary]).await;
    for upstream in [0, 1] {
        let asked = fleet.asked_within(upstream, fleet.beat(seconds(3_600))).await;
        assert!((50..=60).contains(&asked.iter().sum::<u64>()), "{asked:?}");
        assert_eq!(asked.iter().filter(|asked| **asked > 0).count(), 1, "{asked:?}");
    }
    for place in 0..5 {
        assert_eq!(fleet.stage(place).condition(0), Condition::Ready, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_of_one_replica_has_the_prober_follow_for_all() {
    let fleet = Fleet::start(3, &[Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let caller = (prober + 1) % 3;
    let asked = fleet.asked_within(0, fleet.call(&[caller], 0, seconds(120))).await;
    assert!((7..=12).contains(&asked[prober]), "a poll a block: {asked:?}");
    assert_eq!(asked.iter().sum::<u64>(), asked[prober], "{asked:?}");
    let newest = fleet.head(prober, 0);
    for place in 0..3 {
        assert_eq!(fleet.head(place, 0), newest, "{place}");
        let latest = fleet.stage(place).heads.look(|view| view.latest.map(|head| head.number));
        assert_eq!(latest, newest.map(BlockNumber), "{place}");
    }
    // Long after the last call it is idle again everywhere.
    fleet.beat(seconds(60)).await;
    let asked = fleet.asked_within(0, fleet.beat(seconds(600))).await;
    assert!(asked.iter().sum::<u64>() <= 10, "{asked:?}");
}

/// The first call after a quiet time does not wait for a beat.
#[tokio::test(start_paused = true)]
async fn the_first_call_wakes_the_prober_at_once() {
    let fleet = Fleet::start(3, &[Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let caller = (prober + 1) % 3;
    // Until half a minute after a poll: what is known is old.
    while fleet.asked_within(0, fleet.beat(seconds(1))).await[prober] == 0 {}
    fleet.beat(seconds(30)).await;
    let asked = fleet
        .asked_within(0, async {
            fleet.stage(caller).call(0);
            settle().await;
        })
        .await;
    assert_eq!((asked[prober], asked.iter().sum::<u64>()), (1, 1), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn another_takes_over_from_a_prober_that_dies() {
    let mut fleet = Fleet::start(3, &[Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let others = [(prober + 1) % 3, (prober + 2) % 3];
    fleet.kill(prober).await;
    let busy = fleet.call(&others, 0, seconds(60));
    busy.await;
    let newest = fleet.head(others[0], 0).expect("told");
    let stands = fleet.nodes[others[0]][0].head();
    assert!(stands - newest <= 1, "{newest} of {stands}");
    let asked = fleet.asked_within(0, fleet.call(&others, 0, seconds(120))).await;
    let asking = others.iter().filter(|place| asked[**place] > 0).count();
    assert_eq!(asking, 1, "{asked:?}");
    assert_eq!(fleet.head(others[0], 0), fleet.head(others[1], 0));
}

/// While its clients call, none hears of a block later than it would alone by half a block time and a second.
#[tokio::test(start_paused = true)]
async fn a_dead_prober_costs_half_a_block_of_freshness() {
    let mut fleet = Fleet::start(3, &[Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let other = (prober + 1) % 3;
    fleet.call(&[other], 0, seconds(60)).await;
    fleet.kill(prober).await;
    for _ in 0..60 {
        fleet.call(&[other], 0, seconds(1)).await;
        let (told, stands) = (fleet.head(other, 0).expect("told"), fleet.nodes[other][0].head());
        assert!(stands - told <= 2, "{told} of {stands}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_each_goes_on_alone() {
    let fleet = Fleet::start(3, &[Tier::Primary]).await;
    fleet.replicas.iter().for_each(|replica| replica.outlet.is_linked.store(false, Relaxed));
    let asked = fleet.asked_within(0, fleet.call(&[0, 1, 2], 0, seconds(120))).await;
    assert!(asked.iter().all(|asked| (7..=20).contains(asked)), "{asked:?}");
    fleet.replicas.iter().for_each(|replica| replica.outlet.is_linked.store(true, Relaxed));
    fleet.call(&[0, 1, 2], 0, seconds(10)).await;
    let asked = fleet.asked_within(0, fleet.call(&[0, 1, 2], 0, seconds(120))).await;
    assert_eq!(asked.iter().filter(|asked| **asked > 0).count(), 1, "{asked:?}");
}

/// A replica that cannot reach an upstream takes it from no other one, and its own comes back when its path does.
#[tokio::test(start_paused = true)]
async fn the_path_of_one_replica_is_its_own() {
    let fleet = Fleet::start(3, &[Tier::Primary, Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let others = [(prober + 1) % 3, (prober + 2) % 3];
    // The prober's path is broken: the others ask for themselves.
    fleet.nodes[prober][0].feel(Mood::Refuses);
    fleet.call(&[0, 1, 2], 0, seconds(60)).await;
    assert_eq!(fleet.stage(prober).condition(0), Condition::BreakerOpen);
    for other in others {
        assert_eq!(fleet.stage(other).condition(0), Condition::Ready);
        let (told, stands) = (fleet.head(other, 0).expect("told"), fleet.nodes[other][0].head());
        assert!(stands - told <= 1, "{told} of {stands}");
    }
    fleet.nodes[prober][0].feel(Mood::Well);
    fleet.call(&[0, 1, 2], 0, seconds(60)).await;
    assert_eq!(fleet.stage(prober).condition(0), Condition::Ready);
    // Another one's path is: it rests there alone, though the prober finds it well.
    fleet.nodes[others[0]][0].feel(Mood::Refuses);
    (0..20).for_each(|_| fleet.stage(others[0]).fail(0));
    fleet.call(&[0, 1, 2], 0, seconds(30)).await;
    let condition = |place: usize| fleet.stage(place).condition(0);
    assert_ne!(condition(others[0]), Condition::Ready);
    assert_eq!([condition(prober), condition(others[1])], [Condition::Ready; 2]);
    fleet.nodes[others[0]][0].feel(Mood::Well);
    fleet.call(&[0, 1, 2], 0, seconds(60)).await;
    assert_eq!(condition(others[0]), Condition::Ready);
}

/// An upstream that is down for all is probed by one, and used again by all as soon as that one finds it well.
#[tokio::test(start_paused = true)]
async fn one_probes_what_is_down_for_all() {
    let fleet = Fleet::start(3, &[Tier::Primary, Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    fleet.nodes.iter().for_each(|nodes| nodes[0].feel(Mood::Refuses));
    (0..3).for_each(|place| (0..20).for_each(|_| fleet.stage(place).fail(0)));
    fleet.call(&[0, 1, 2], 1, seconds(10)).await;
    let asked = fleet.asked_within(0, fleet.call(&[0, 1, 2], 1, seconds(300))).await;
    assert_eq!(asked.iter().filter(|asked| **asked > 0).count(), 1, "{asked:?}");
    assert!(asked[prober] > 2, "{asked:?}");
    fleet.nodes.iter().for_each(|nodes| nodes[0].feel(Mood::Well));
    fleet.call(&[0, 1, 2], 1, seconds(60)).await;
    for place in 0..3 {
        assert_eq!(fleet.stage(place).condition(0), Condition::Ready, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_is_told_of_syncing_all_know() {
    let fleet = Fleet::start(3, &[Tier::Primary, Tier::Primary]).await;
    let prober = fleet.prober(0).await;
    let behind = r#"{"currentBlock":"0x1","highestBlock":"0x100"}"#;
    fleet.nodes.iter().for_each(|nodes| *nodes[0].syncing.lock() = behind);
    // It is asked only while it lags.
    fleet.nodes.iter().for_each(|nodes| nodes[0].chain.lock().0 -= 50);
    fleet.call(&[0, 1, 2], 1, seconds(180)).await;
    assert_eq!(fleet.stage(prober).condition(0), Condition::Syncing);
    for place in 0..3 {
        assert_eq!(fleet.stage(place).condition(0), Condition::Syncing, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_tier_is_followed_when_another_replica_uses_it() {
    let fleet = Fleet::start(3, &[Tier::Primary, Tier::Fallback]).await;
    let prober = fleet.prober(1).await;
    let caller = (prober + 1) % 3;
    let idle = fleet.asked_within(1, fleet.call(&[caller], 0, seconds(120))).await;
    assert!(idle.iter().sum::<u64>() <= 3, "{idle:?}");
    let used = fleet.asked_within(1, fleet.call(&[caller], 1, seconds(120))).await;
    assert!(used[prober] >= 7, "{used:?}");
    assert_eq!(used.iter().sum::<u64>(), used[prober], "{used:?}");
}
