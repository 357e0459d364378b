//! Subscriptions that upstreams are kept asked for: by which of them, until when, and what becomes of
//! them when an upstream dies or refuses.

mod support;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use support::{Connector, Member, Node, Speaker, Stage, now, pass, seconds, settle};
use wellhead_upstream::{Budget, BudgetTerms, Condition, Provider, Tier};
use wellhead_watch::{Checks, RelayHandle, RelaySink, RelayStatus, SeatRule};

const PENDING: &str = r#"["newPendingTransactions"]"#;
/// No upstream is an own node, and none pushes free of charge.
const PAID: [&str; 2] = ["alchemy", "infura"];

/// What was pushed, and a `-` for each gap.
#[derive(Debug, Default)]
struct Sink(Mutex<Vec<String>>);

impl RelaySink for Sink {
    fn push(&self, result: &[u8]) {
        self.0.lock().push(String::from_utf8_lossy(result).into_owned());
    }

    fn note_gap(&self) {
        self.0.lock().push("-".to_owned());
    }
}

impl Sink {
    #[track_caller]
    fn has(&self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut *self.0.lock()), expected);
    }
}

/// A chain whose upstreams offer feeds.
struct Cast {
    stage: Stage,
    connectors: Vec<Arc<Connector>>,
    _node: Arc<Node>,
}

impl Cast {
    /// An upstream of each of these providers; `own` is an own node.
    fn of(providers: &[&str]) -> Self {
        let (node, mut stage) = (Node::new(1, seconds(12)), Stage::new(Some(1), providers.len()));
        let connectors: Vec<_> = providers.iter().map(|_| Arc::new(Connector::default())).collect();
        let members = providers.iter().zip(&connectors).map(|(provider, connector)| {
            let budget = match *provider {
                "own" => Budget::default(),
                named => Budget::new(Provider::named(named), &BudgetTerms::default(), 0),
            };
            Member::new(&node, Tier::Primary).feeding(connector).within(budget)
        });
        stage.follow_chain(members.collect(), None, Checks::default());
        Self { stage, connectors, _node: node }
    }

    fn open(&self, rule: SeatRule) -> (Arc<Sink>, RelayHandle) {
        let sink = Arc::<Sink>::default();
        let relays = self.stage.pulse.relays();
        let handle = relays.open(PENDING, rule, Arc::clone(&sink) as Arc<dyn RelaySink>);
        (sink, handle)
    }

    fn opened(&self) -> Vec<usize> {
        self.connectors.iter().map(|connector| connector.opened.lock().len()).collect()
    }
}

fn push(speaker: &Speaker, result: &str) {
    speaker.say(&format!(
        r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{{"subscription":"0x1","result":{result}}}}}"#
    ));
}

#[tokio::test(start_paused = true)]
async fn all_that_are_free_of_charge_tell_and_none_after_the_end() {
    let cast = Cast::of(&["own", "alchemy", "own"]);
    let lines: Vec<_> = cast.connectors.iter().map(|it| it.prepare_good(1)).collect();
    pass(seconds(3)).await;
    assert_eq!(cast.opened(), [0, 0, 0], "nothing subscribes");
    let (sink, handle) = cast.open(SeatRule::AllFree);
    assert_eq!(handle.status(), RelayStatus::Opening);
    settle().await;
    assert_eq!((cast.opened(), handle.status()), (vec![1, 0, 1], RelayStatus::Told));
    assert_eq!(cast.stage.asked[0].relays_open(), 1);
    push(&lines[0], "1");
    push(&lines[2], "2");
    settle().await;
    sink.has(&["1", "2"]);
    drop(handle);
    settle().await;
    assert!(lines[0].is_closed() && lines[2].is_closed());
    assert_eq!(cast.stage.asked[0].relays_open(), 0);
    pass(seconds(60)).await;
    assert_eq!(cast.opened(), [1, 0, 1]);
    sink.has(&[]);
}

#[tokio::test(start_paused = true)]
async fn the_next_upstream_takes_over_at_once_and_the_gap_is_told() {
    let cast = Cast::of(&PAID);
    let mut lines: Vec<_> = cast.connectors.iter().map(|it| it.prepare_good(1)).collect();
    pass(seconds(1)).await;
    let (sink, handle) = cast.open(SeatRule::Cheapest);
    settle().await;
    let first = cast.opened().iter().position(|opened| *opened == 1).expect("one is open");
    let other = 1 - first;
    assert_eq!(cast.opened()[other], 0);
    push(&lines[first], "1");
    settle().await;
    let dead = lines.remove(first);
    let began = now();
    drop(dead);
    settle().await;
    assert_eq!(cast.opened(), [1, 1]);
    push(&lines[0], "2");
    settle().await;
    sink.has(&["1", "-", "2"]);
    assert_eq!(handle.status(), RelayStatus::Told);
    // What failed comes after what did not, so the one that tells now stays.
    let back = cast.connectors[first].prepare_good(1);
    pass(seconds(300)).await;
    assert!(!lines[0].is_closed());
    drop(lines);
    pass(seconds(1)).await;
    push(&back, "3");
    settle().await;
    sink.has(&["-", "3"]);
    assert!(now() > began);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_offer_it_is_left_alone_for_ten_minutes() {
    let cast = Cast::of(&["own", "own"]);
    let refusal = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no \"newPendingTransactions\" subscription in eth namespace"}}"#;
    let chain = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
    let refusing: Vec<_> = cast.connectors.iter().map(|it| it.prepare(&[chain, refusal])).collect();
    pass(seconds(1)).await;
    let (sink, handle) = cast.open(SeatRule::AllFree);
    settle().await;
    assert_eq!(handle.status(), RelayStatus::Refused);
    pass(seconds(590)).await;
    assert_eq!(cast.opened(), [1, 1]);
    drop(refusing);
    let lines: Vec<_> = cast.connectors.iter().map(|it| it.prepare_good(1)).collect();
    pass(seconds(20)).await;
    assert_eq!(handle.status(), RelayStatus::Told);
    push(&lines[1], "1");
    settle().await;
    sink.has(&["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_free_upstream_tells_again_as_soon_as_it_is_back_and_a_paid_one_only_meanwhile() {
    let cast = Cast::of(&["own", "alchemy"]);
    let dead = cast.connectors[0].prepare_good(1);
    pass(seconds(1)).await;
    let (sink, _handle) = cast.open(SeatRule::AllFree);
    settle().await;
    push(&dead, "1");
    settle().await;
    let paid = cast.connectors[1].prepare_good(1);
    drop(dead);
    settle().await;
    push(&paid, "2");
    settle().await;
    let back = cast.connectors[0].prepare_good(1);
    pass(seconds(3)).await;
    push(&back, "3");
    settle().await;
    sink.has(&["1", "-", "2", "3"]);
    assert!(paid.is_closed());
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_reached_does_not_delay_that_no_other_offers_it() {
    let cast = Cast::of(&["own", "own"]);
    pass(seconds(1)).await;
    let refusal = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"not offered"}}"#;
    let chain = r#"{"jsonrpc":"2.0","id":1,"result":"0x1"}"#;
    let _refusing = cast.connectors[1].prepare(&[chain, refusal]);
    let (_sink, handle) = cast.open(SeatRule::Cheapest);
    settle().await;
    assert_eq!(handle.status(), RelayStatus::Refused);
    assert_eq!(cast.opened(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_chain_without_feeds_says_so() {
    let (node, mut stage) = (Node::new(1, seconds(12)), Stage::new(Some(1), 1));
    stage.follow(&node, None);
    settle().await;
    let sink = Arc::<Sink>::default();
    let handle = stage.pulse.relays().open(PENDING, SeatRule::Cheapest, sink);
    assert_eq!(handle.status(), RelayStatus::NoFeeds);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_is_opened_before_the_upstreams_are_verified_waits_for_them() {
    let cast = Cast::of(&["own"]);
    let line = cast.connectors[0].prepare_good(1);
    tokio::task::yield_now().await;
    let (sink, handle) = cast.open(SeatRule::Cheapest);
    assert_eq!(handle.status(), RelayStatus::Opening);
    pass(seconds(2)).await;
    assert_eq!(handle.status(), RelayStatus::Told);
    push(&line, "1");
    settle().await;
    sink.has(&["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_feed_of_another_chain_tells_nothing() {
    let cast = Cast::of(&["own"]);
    let wrong = cast.connectors[0].prepare_good(5);
    pass(seconds(1)).await;
    let (sink, handle) = cast.open(SeatRule::Cheapest);
    push(&wrong, "1");
    settle().await;
    assert_eq!(cast.stage.condition(0), Condition::WrongChain);
    assert_eq!(handle.status(), RelayStatus::Opening);
    sink.has(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_ends_again_and_again_is_opened_after_growing_pauses() {
    let cast = Cast::of(&["own"]);
    pass(seconds(1)).await;
    let (_sink, _handle) = cast.open(SeatRule::Cheapest);
    let began = now();
    pass(Duration::from_millis(31_500)).await;
    let opened = cast.connectors[0].opened.lock();
    let after: Vec<u64> = opened.iter().map(|at| (*at - began).as_secs()).collect();
    assert_eq!(after, [0, 1, 3, 7, 15, 31]);
}
