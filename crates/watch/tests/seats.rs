//! Which upstreams of a chain have a feed open, and until when.

mod support;

use std::sync::Arc;

use support::{BLOCK, Connector, Member, Mood, Node, Speaker, Stage, now, pass, seconds, settle};
use wellhead_upstream::{Budget, BudgetTerms, Condition, Provider, Tier};
use wellhead_watch::{Checks, FeedUse};

/// One upstream of the cast: its feed, and the other end of each connection to it.
struct Fed {
    connector: Arc<Connector>,
    lines: Vec<Speaker>,
}

impl Fed {
    fn new() -> Self {
        let connector = Arc::new(Connector::default());
        let lines = (0..8).map(|_| connector.prepare_good(1)).collect();
        Self { connector, lines }
    }

    fn opened(&self) -> usize {
        self.connector.opened.lock().len()
    }

    fn is_open(&self) -> bool {
        self.opened().checked_sub(1).is_some_and(|last| !self.lines[last].is_closed())
    }

    fn head(&self, number: u64) {
        if self.is_open() {
            self.lines[self.opened() - 1].head(number);
        }
    }

    /// The other end closes the open connection; none is left to be opened after it.
    fn die(&mut self) {
        self.lines.clear();
    }
}

/// A chain with an upstream of each of these providers, none of which is an own node.
struct Cast {
    node: Arc<Node>,
    stage: Stage,
    fed: Vec<Fed>,
}

impl Cast {
    fn new(providers: &[(&str, Tier)], checks: Checks) -> Self {
        let (node, mut stage) = (Node::new(1, BLOCK), Stage::new(Some(1), providers.len()));
        let fed: Vec<_> = providers.iter().map(|_| Fed::new()).collect();
        let members = providers.iter().zip(&fed).map(|((provider, tier), fed)| {
            let budget = Budget::new(Provider::named(provider), &BudgetTerms::default(), 0);
            Member::new(&node, *tier).feeding(&fed.connector).within(budget)
        });
        stage.follow_chain(members.collect(), None, checks);
        Self { node, stage, fed }
    }

    /// Primaries only.
    fn of(providers: &[&str]) -> Self {
        let primaries: Vec<_> = providers.iter().map(|name| (*name, Tier::Primary)).collect();
        Self::new(&primaries, Checks::default())
    }

    /// The places of the upstreams whose feeds are open.
    fn open(&self) -> Vec<usize> {
        (0..self.fed.len()).filter(|place| self.fed[*place].is_open()).collect()
    }

    /// So many blocks, told over all open feeds, while something subscribes; never more than two
    /// are open.
    async fn blocks(&self, blocks: u32) {
        for _ in 0..blocks {
            for _ in 0..12 {
                pass(seconds(1)).await;
                assert!(self.open().len() <= 2, "{:?}", self.open());
            }
            self.fed.iter().for_each(|fed| fed.head(self.node.head()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_feeds_are_open_the_cheapest_and_a_standby() {
    for (providers, open) in [
        (["", "", "", "", "", ""], [0, 1]),
        (["infura", "infura", "quicknode", "", "infura", "ankr"], [3, 5]),
        (["quicknode", "infura", "quicknode", "infura", "quicknode", "infura"], [1, 3]),
        // A pushed block costs more than a polled one there.
        (["alchemy", "alchemy", "alchemy", "quicknode", "alchemy", "infura"], [3, 5]),
    ] {
        let cast = Cast::of(&providers);
        pass(seconds(60)).await;
        assert_eq!(cast.open(), [0; 0], "nothing wants heads");
        cast.stage.pulse.note_subscribed(true, now());
        settle().await;
        assert_eq!(cast.open(), open, "{providers:?}");
        cast.blocks(50).await;
        assert_eq!(cast.open(), open, "{providers:?}");
        let opened: usize = cast.fed.iter().map(Fed::opened).sum();
        assert_eq!(opened, 2, "{providers:?}: no other was tried");
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_dies_or_falls_silent_is_replaced() {
    for is_silent in [true, false] {
        let mut cast = Cast::of(&["", "infura", "quicknode", "infura"]);
        cast.stage.pulse.note_subscribed(true, now());
        cast.blocks(10).await;
        assert_eq!(cast.open(), [0, 1]);
        if is_silent {
            // Out of the cast it hears of no block.
            let silent = std::mem::replace(&mut cast.fed[0], Fed::new());
            cast.blocks(11).await;
            assert!(!silent.is_open());
            assert_eq!((cast.fed[1].is_open(), cast.fed[3].is_open()), (true, true));
            continue;
        }
        cast.fed[0].die();
        settle().await;
        assert_eq!((cast.fed[1].is_open(), cast.fed[3].is_open()), (true, true), "at once");
    }
}

/// The feed of an upstream that fails calls may stay open.
#[tokio::test(start_paused = true)]
async fn an_upstream_whose_breaker_is_open_gives_its_seat_to_one_that_is_well() {
    let cast = Cast::of(&["", "infura", "quicknode"]);
    cast.stage.pulse.note_subscribed(true, now());
    cast.blocks(10).await;
    assert_eq!(cast.open(), [0, 1]);
    let failing = &cast.stage.upstreams[0];
    while failing.condition(now()) == Condition::Ready {
        cast.stage.fail(0);
    }
    pass(seconds(2)).await;
    assert_eq!(cast.open(), [1, 2]);
    // It is well again, and does not close a good one.
    cast.blocks(10).await;
    assert_eq!(cast.open(), [1, 2]);
    assert_eq!(failing.condition(now()), Condition::Ready);
    cast.blocks(50).await;
    assert_eq!(cast.open(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_does_not_close_a_good_one_for_ten_minutes() {
    let cast = Cast::of(&["", "infura", "quicknode"]);
    cast.stage.pulse.note_subscribed(true, now());
    cast.blocks(10).await;
    assert_eq!(cast.open(), [0, 1]);
    let failing = &cast.fed[0];
    (0..3).for_each(|_| failing.lines[0].say("x"));
    settle().await;
    assert_eq!(cast.open(), [1, 2]);
    cast.blocks(48).await;
    assert_eq!((cast.open(), failing.opened()), (vec![1, 2], 1));
    cast.blocks(3).await;
    assert_eq!(cast.open(), [0, 1], "it is the cheapest again");
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_closed_half_a_minute_after_the_last_subscription() {
    let cast = Cast::of(&["", "infura", "infura"]);
    for round in 1..=3 {
        cast.stage.pulse.note_subscribed(true, now());
        cast.blocks(100 * round).await;
        assert_eq!(cast.open(), [0, 1]);
        cast.stage.pulse.note_subscribed(false, now());
        pass(seconds(28)).await;
        assert_eq!(cast.open(), [0, 1], "it may come back");
        pass(seconds(2)).await;
        assert_eq!(cast.open(), [0; 0]);
        let spent = |place: usize| cast.stage.upstreams[place].spending(now()).total;
        let left = [0, 1, 2].map(spent);
        pass(seconds(600)).await;
        assert!([0, 1, 2].map(spent).iter().zip(left).all(|(now, left)| now - left <= 11 * 80));
        assert_eq!(cast.open(), [0; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn feeds_that_are_wanted_at_any_price_are_open_whatever_their_number() {
    let checks = Checks { feed: FeedUse::Always, ..Checks::default() };
    let tiers = [("alchemy", Tier::Primary), ("alchemy", Tier::Primary), ("", Tier::Primary)];
    let cast = Cast::new(&tiers, checks);
    cast.stage.pulse.note_subscribed(true, now());
    pass(seconds(5)).await;
    assert_eq!(cast.open(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_standby_of_a_fallback_is_open_only_while_its_tier_is_needed() {
    let tiers = [("infura", Tier::Primary), ("", Tier::Fallback), ("", Tier::Fallback)];
    let cast = Cast::new(&tiers, Checks::default());
    cast.stage.pulse.note_subscribed(true, now());
    cast.blocks(5).await;
    assert_eq!(cast.open(), [0]);
    cast.stage.call(1);
    settle().await;
    assert_eq!(cast.open(), [0, 1]);
}

/// Polled upstreams, each on a node of its own; something subscribes and no client calls.
async fn subscribed(providers: &[&str]) -> (Vec<Arc<Node>>, Stage) {
    let nodes: Vec<_> = providers.iter().map(|_| Node::new(1, BLOCK)).collect();
    let mut stage = Stage::new(Some(1), providers.len());
    let members = providers.iter().zip(&nodes).map(|(provider, node)| {
        let budget = Budget::new(Provider::named(provider), &BudgetTerms::default(), 0);
        Member::new(node, Tier::Primary).within(budget)
    });
    stage.follow_chain(members.collect(), None, Checks::default());
    stage.pulse.note_subscribed(true, now());
    pass(seconds(120)).await;
    (nodes, stage)
}

#[tokio::test(start_paused = true)]
async fn for_subscribers_alone_two_that_cost_something_are_polled() {
    let (nodes, stage) = subscribed(&["infura", "alchemy", "quicknode", "", "infura"]).await;
    let polls = async |time| {
        let began = now();
        pass(time).await;
        let of = |node: &Arc<Node>| node.calls_of("eth_getBlockByNumber", began).len();
        nodes.iter().map(of).collect::<Vec<_>>()
    };
    let hour = polls(seconds(3600)).await;
    // The own node, and the cheapest beside it.
    assert!([1, 3].iter().all(|place| (260..=300).contains(&hour[*place])), "{hour:?}");
    assert!([0, 2, 4].iter().all(|place| hour[*place] <= 60), "{hour:?}");
    // A client's call needs to know which of all can take it.
    let called = now();
    while now() < called + seconds(600) {
        stage.call(0);
        pass(seconds(1)).await;
    }
    let all = nodes.iter().map(|node| node.calls_of("eth_getBlockByNumber", called).len());
    let all: Vec<_> = all.collect();
    assert!(all.iter().all(|polls| (40..=55).contains(polls)), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn when_those_that_are_followed_tell_nothing_new_the_others_do() {
    for mood in [Mood::Refuses, Mood::Hangs, Mood::Status(500), Mood::Well] {
        let (nodes, stage) = subscribed(&["infura"; 6]).await;
        pass(seconds(600)).await;
        for node in &nodes[..2] {
            node.feel(mood.clone());
            if matches!(mood, Mood::Well) {
                // It answers, and has no new block any more.
                let head = node.head();
                *node.chain.lock() = (head, seconds(1_000_000));
            }
        }
        let mut late_most = 0;
        for _ in 0..600 {
            pass(seconds(1)).await;
            let latest = stage.heads.view().latest.expect("agreed").number.0;
            late_most = late_most.max(nodes[2].head() - latest);
        }
        // Three where both answer, and are left out when they lag by more.
        assert!(late_most <= 3, "{mood:?}: {late_most} blocks late");
    }
}
