//! What `reach` says where refusals come and go: accounts that are spent, firewalls, and nodes that
//! take turns behind one URL.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::sync::Arc;

use wellhead_analyze::conclude::profile::profile;
use wellhead_analyze::conclude::verdict::{Extent, Finding};
use wellhead_analyze::measure::client::{TargetEndpoint, WsSession};
use wellhead_analyze::measure::inquiry::reach;
use wellhead_analyze::measure::plan::CellOutcome;
use wellhead_analyze::measure::run::Watch;
use wellhead_analyze::method_list::methods;
use wellhead_analyze::record::{CallRecord, Cell};
use wellhead_analyze::work::WorkCall;
use wellhead_sim::node::{Fault, SimNode};
use wellhead_sim::provider::{CreditBucket, RefusalForm};
use wellhead_sim::{FakeProvider, FakeUpstream, ProviderDials};
use wellhead_telemetry::SecretUrl;

use super::answers::{BLOCKS, Inquiry, Played, busy, long, play, play_watched, start};

/// What `reach` writes into the profile, and what it says, of one provider.
fn told(played: &Played) -> (String, String) {
    let sentences: Vec<&str> = played.verdicts.iter().map(|it| it.sentence.as_str()).collect();
    (profile(&played.run, &played.verdicts), sentences.join("\n"))
}

fn short() -> Inquiry {
    Inquiry::Reach(reach::ReachTerms { range_max: 28, batch_max: 20 })
}

/// The first cell with this probe.
fn first_of<'a>(played: &'a Played, probe: &str) -> Option<&'a Cell> {
    played.cells(0).find(|cell| cell.factors.get("probe").map(String::as_str) == Some(probe))
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_spent_denies_no_method_and_ends_no_history() {
    let refusals = [
        RefusalForm::payment_required(),
        RefusalForm::month_spent(),
        RefusalForm::no_key(),
        RefusalForm::status(403, 0, "forbidden"),
        RefusalForm::in_body(
            -32600,
            "visit https://dashboard.example/settings/billing to continue",
        ),
    ];
    let whole = play(&start(busy(), vec![ProviderDials::default()]), short()).await;
    let all: u64 = whole.cells(0).map(|cell| cell.calls).sum();
    for (n, refusal) in refusals.into_iter().enumerate() {
        // In the middle of the methods, of the second asking, of the depths.
        for calls in [5, 30 + n as u64, all / 2, all * 3 / 4] {
            let bucket = CreditBucket::spent_once(calls as f64, refusal.clone());
            let dials = ProviderDials { buckets: vec![bucket], ..ProviderDials::default() };
            let providers = start(busy(), vec![dials]);
            let played = play(&providers, short()).await;
            let (profile, told) = told(&played);
            let case = format!("{refusal:?} after {calls} calls: {told}\n{profile}");
            let missing = |method: &str| profile.contains(&format!("- \"{method}\""));
            let denied = methods().iter().filter(|it| missing(it.name)).count();
            let known = whole.verdicts.iter().find_map(|verdict| match &verdict.finding {
                Finding::Methods { missing, .. } => Some(missing),
                _ => None,
            });
            let known = known.unwrap();
            let allowed = known.iter().filter(|it| missing(it)).count();
            assert_eq!(denied, allowed, "{case}");
            assert!(!profile.contains("    history:"), "{case}");
            assert!(told.contains("inconclusive: the account was rejected at `"), "{case}");
            let account = first_of(&played, "account").unwrap();
            assert_eq!(played.cells(0).last(), Some(account), "it was the last: {case}");
            let refused = providers[0].counts().refusals;
            assert!(refused <= 2, "{refused} refusals: {case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_target_is_asked_when_the_account_of_one_is_refused() {
    let bucket = CreditBucket::spent_once(20.0, RefusalForm::payment_required());
    let spent = ProviderDials { buckets: vec![bucket], ..ProviderDials::default() };
    let providers = start(busy(), vec![spent, ProviderDials::default()]);
    let played = play(&providers, short()).await;
    assert_eq!(played.of(1).len(), 7, "{:?}", played.verdicts);
}

/// A provider that refuses these methods so, whatever else is asked.
fn refusing(methods: &[&str], refusal: RefusalForm) -> ProviderDials {
    let costs: Vec<(&str, f64)> = methods.iter().map(|name| (*name, 2.0)).collect();
    let bucket = CreditBucket::spent_once(1.0, refusal).priced(0.0, &costs);
    ProviderDials { buckets: vec![bucket], ..ProviderDials::default() }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refuses_one_method_and_answers_others_is_believed() {
    let forbidden = RefusalForm::status(403, 0, "forbidden");
    for (refusal, denies) in [(forbidden, true), (RefusalForm::payment_required(), false)] {
        let dials = refusing(&["eth_feeHistory"], refusal.clone());
        let played = play(&start(busy(), vec![dials]), short()).await;
        let (profile, told) = told(&played);
        assert_eq!(profile.contains("- \"eth_feeHistory\""), denies, "{refusal:?}: {profile}");
        assert!(!told.contains("account"), "{told}");
        let methods = played.verdicts.iter().find(|it| it.sentence.contains("methods are served"));
        let methods = methods.unwrap();
        let evidence = methods.evidence.join("\n");
        assert_eq!(evidence.contains("unknown for eth_feeHistory"), !denies, "{evidence}");
    }
}

#[tokio::test(start_paused = true)]
async fn credits_that_pay_for_cheap_calls_alone_end_no_history() {
    // Of a method that costs 2; what is asked as the control is free.
    for credits in [1.0, 6.0, 10.0, 14.0, 20.0] {
        let bucket = CreditBucket::spent_once(credits, RefusalForm::payment_required());
        let bucket = bucket.priced(0.0, &[("eth_getBalance", 2.0)]);
        let dials = ProviderDials { buckets: vec![bucket], ..ProviderDials::default() };
        let providers = start(long(), vec![dials]);
        let played = play(&providers, short()).await;
        let (profile, told) = told(&played);
        assert!(!profile.contains("\n      state:"), "{credits} credits: {told}\n{profile}");
        assert!(!told.contains("none, not even"), "{credits} credits: {told}");
    }
}

/// A URL behind which nodes take turns, call by call.
struct Turns<'a> {
    provider: &'a FakeProvider,
    calls: usize,
    /// What is turned for the next call.
    turn: fn(&mut ProviderDials, usize),
}

impl Watch for Turns<'_> {
    fn over(&mut self, _: &CallRecord) {
        self.calls += 1;
        let (turn, calls) = (self.turn, self.calls);
        self.provider.turn(|dials| turn(dials, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_differ_by_a_block_hide_no_depth() {
    let turns: [fn(&mut ProviderDials, usize); 4] = [
        |dials, calls| dials.lag_blocks = calls as u64 % 2,
        |dials, calls| dials.lag_blocks = (calls as u64 + 1) % 2,
        |dials, calls| dials.lag_blocks = calls as u64 % 3,
        |dials, calls| dials.lag_blocks = (calls as u64 / 5) % 3,
    ];
    for (n, turn) in turns.into_iter().enumerate() {
        let providers = start(long(), vec![ProviderDials::default()]);
        let mut watch = Turns { provider: &providers[0], calls: 0, turn };
        let terms = reach::ReachTerms { range_max: 100, batch_max: 20 };
        let played = play_watched(&providers, Inquiry::Reach(terms), u64::MAX, &mut watch).await;
        for what in [Extent::State, Extent::Blocks, Extent::Logs] {
            let is_all = |finding: &&Finding| match finding {
                Finding::Reach { what: its, up_to: Some(up_to), refused_at: None, whole: true } => {
                    *its == what && (BLOCKS - 2..=BLOCKS).contains(up_to)
                }
                _ => false,
            };
            let found = played.of(0);
            assert!(found.iter().any(is_all), "turn {n}, {what:?}: {found:?}");
        }
        let range = Finding::Reach {
            what: Extent::Range,
            up_to: Some(100),
            refused_at: None,
            whole: false,
        };
        assert!(played.of(0).contains(&&range), "turn {n}: {:?}", played.of(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_far_behind_for_a_moment_is_asked_again() {
    let providers = start(long(), vec![ProviderDials::default()]);
    let mut watch = Moment { provider: &providers[0], is_next: false };
    let played = play_watched(&providers, short(), u64::MAX, &mut watch).await;
    let all =
        Finding::Reach { what: Extent::State, up_to: Some(BLOCKS), refused_at: None, whole: true };
    assert!(played.of(0).contains(&&all), "{:?}", played.of(0));
    let cell = first_of(&played, "state").unwrap();
    assert!(cell.factors["value"] == "3" && cell.factors["fate"] == "served", "{cell:?}");
    assert!(cell.calls > 1, "it was asked twice: {cell:?}");
}

/// Told the height by a node ten blocks ahead of the one that is asked for the first state.
struct Moment<'a> {
    provider: &'a FakeProvider,
    is_next: bool,
}

impl Watch for Moment<'_> {
    fn played(&mut self, _: &str, cell: &Cell, _: &CellOutcome) {
        self.is_next |= cell.factors.get("value").map(String::as_str) == Some("subscriptions");
    }

    fn over(&mut self, call: &CallRecord) {
        match call.method.as_str() {
            "eth_blockNumber" if self.is_next => {
                self.is_next = false;
                self.provider.turn(|dials| dials.lag_blocks = 10);
            }
            "eth_getBalance" => self.provider.turn(|dials| dials.lag_blocks = 0),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_one_of_two_nodes_has_is_served() {
    let providers = start(busy(), vec![ProviderDials::default()]);
    let turn: fn(&mut ProviderDials, usize) = |dials, calls| {
        let gone =
            if calls < 60 { vec!["eth_*Fee*".to_owned(), "net_*".to_owned()] } else { Vec::new() };
        dials.unsupported = gone;
    };
    let mut watch = Turns { provider: &providers[0], calls: 0, turn };
    let played = play_watched(&providers, short(), u64::MAX, &mut watch).await;
    let (profile, _) = told(&played);
    assert!(!profile.contains("net_version"), "{profile}");
}

#[tokio::test(start_paused = true)]
async fn without_a_height_nothing_is_said_of_the_past() {
    let dials = refusing(&["eth_blockNumber"], RefusalForm::in_body(-32000, "internal error"));
    let played = play(&start(busy(), vec![dials]), short()).await;
    assert!(played.of(0).len() > 4, "{:?}", played.of(0));
    for finding in played.of(0) {
        let past = [Extent::State, Extent::Blocks, Extent::Logs, Extent::Range];
        let is_past = |what: &Extent| past.contains(what);
        let told = matches!(finding, Finding::Reach { what, .. } if is_past(what));
        assert!(!told, "{finding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_only_throttles_has_told_nothing_of_its_methods() {
    let bucket = CreditBucket::spent_once(3.0, RefusalForm::too_many_in_body());
    let dials = ProviderDials { buckets: vec![bucket], ..ProviderDials::default() };
    let played = play(&start(busy(), vec![dials]), short()).await;
    assert!(!played.of(0).iter().any(|it| matches!(it, Finding::Methods { .. })));
    assert!(
        told(&played).1.contains("inconclusive: none of the 69 tested methods got an answer"),
        "{:?}",
        played.of(0)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_over_websocket_are_recorded() {
    let node = SimNode::new("node", Arc::clone(busy()));
    let upstream = FakeUpstream::start(node).unwrap();
    let endpoint = TargetEndpoint::new("a".to_owned(), SecretUrl::parse(&upstream.url()).unwrap());
    let mut socket = WsSession::open(&endpoint, None).await.unwrap();
    let done = socket.ask(&WorkCall::bare("eth_blockNumber")).await;
    let call = &done.call;
    assert_eq!((call.method.as_str(), call.class.as_str()), ("eth_blockNumber", "answer"));
    assert_eq!((call.protocol.as_deref(), call.status), (Some("ws"), None));
    assert!(call.bytes_out > 0 && call.bytes_in > 0 && done.begun <= done.ended);
    upstream.node().turn(|dials| dials.fault = Some(Fault::Down));
    let done = socket.ask(&WorkCall::bare("eth_blockNumber")).await;
    assert!(done.call.error.is_some() && done.call.class == "fault", "{:?}", done.call);
}
