//! Filters that are kept here: what they tell, what they cost, and what ends them.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::filter_store::{FakeFilterStore, StoreMood, VALUE_BYTES_MAX};
use support::{Peer, Plan, Stage, Step, error, hash, text};
use wellhead_dispatch::now;
use wellhead_proxy::FilterStore;

/// A log of this block of this branch.
fn log(number: u64, branch: u8) -> String {
    let hash = hash(number, branch);
    format!(
        r#"{{"address":"0x{}","topics":[],"data":"0x","blockNumber":"0x{number:x}","blockHash":"{hash}","transactionHash":"0x{}","transactionIndex":"0x0","logIndex":"0x0","removed":false}}"#,
        "01".repeat(20),
        "07".repeat(32),
    )
}

fn list(logs: &[(u64, u8)]) -> Step {
    let logs: Vec<_> = logs.iter().map(|(number, branch)| log(*number, *branch)).collect();
    Step::Result(format!("[{}]", logs.join(",")))
}

/// Two upstreams that stand on block 100.
fn stage() -> Stage {
    seeded(1)
}

fn seeded(seed: u64) -> Stage {
    let stage = Stage::new(vec![Plan { upstreams: 2, seed, ..Plan::default() }]);
    stage.show_to_100();
    stage
}

fn grow(stage: &Stage, numbers: std::ops::RangeInclusive<u64>, branch: u8) {
    for number in numbers {
        (0..2).for_each(|place| stage.show_block(place, number, branch));
    }
}

async fn made(stage: &Stage, method: &str, params: &str) -> String {
    let id = stage.call(method, params).await;
    assert!(id.starts_with("\"0xf117e200") && id.len() == 36, "{id}");
    id
}

async fn changes(stage: &Stage, id: &str) -> String {
    stage.call("eth_getFilterChanges", &format!("[{id}]")).await
}

/// Of each log in a list `+` or, taken back, `-` and its block.
fn told(list: &str) -> String {
    let logs: serde_json::Value = serde_json::from_str(list).expect(list);
    let logs = logs.as_array().expect(list).iter().map(|log| {
        let sign = if log["removed"] == true { '-' } else { '+' };
        format!("{sign}{}", log["blockNumber"].as_str().expect("a number"))
    });
    logs.collect::<Vec<_>>().join(" ")
}

fn asked(stage: &Stage) -> usize {
    stage.peers[0].iter().map(Peer::calls).sum()
}

#[tokio::test(start_paused = true)]
async fn new_blocks_cost_no_call_where_the_view_knows_them() {
    let stage = stage();
    let id = made(&stage, "eth_newBlockFilter", "[]").await;
    assert_eq!(changes(&stage, &id).await, "[]");
    grow(&stage, 101..=103, b'a');
    let hashes = |blocks: &[(u64, u8)]| {
        let hashes =
            blocks.iter().map(|(number, branch)| format!("\"{}\"", hash(*number, *branch)));
        format!("[{}]", hashes.collect::<Vec<_>>().join(","))
    };
    let expected = hashes(&[(101, b'a'), (102, b'a'), (103, b'a')]);
    assert_eq!(changes(&stage, &id).await, expected);
    assert_eq!(changes(&stage, &id).await, "[]");
    assert_eq!(asked(&stage), 0, "no upstream was asked");
    let uninstall = format!("[{id}]");
    assert_eq!(stage.call("eth_uninstallFilter", &uninstall).await, "true");
    assert_eq!(stage.call("eth_uninstallFilter", &uninstall).await, "false");
    let gone = r#"{"code":-32000,"message":"filter not found"}"#;
    assert_eq!(changes(&stage, &id).await, gone);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_the_view_does_not_know_is_asked_for_by_its_hash() {
    let stage = stage();
    let id = made(&stage, "eth_newBlockFilter", "[]").await;
    // Blocks 101 and 102 were never heard of.
    grow(&stage, 103..=103, b'a');
    let header = |number: u64| {
        let (block, parent) = (hash(number, b'a'), hash(number - 1, b'a'));
        let header =
            format!(r#"{{"number":"0x{number:x}","hash":"{block}","parentHash":"{parent}"}}"#);
        Step::Result(header)
    };
    // The report of block 103 names its parent: 102 and 101 are missing.
    stage.peer(0).next("eth_getBlockByHash", header(102));
    stage.peer(0).next("eth_getBlockByHash", header(101));
    let told = changes(&stage, &id).await;
    assert_eq!(told.matches("0x").count(), 3, "{told}");
    assert_eq!(asked(&stage), 2, "one call for each block that is not known");
}

#[tokio::test(start_paused = true)]
async fn logs_cost_one_search_a_poll_and_survive_their_upstream() {
    let stage = stage();
    let id = made(&stage, "eth_newFilter", r#"[{"fromBlock":"latest"}]"#).await;
    assert_eq!((changes(&stage, &id).await.as_str(), asked(&stage)), ("[]", 0));
    grow(&stage, 101..=103, b'a');
    // The upstream that is asked first fails.
    for peer in &stage.peers[0] {
        peer.next("eth_getLogs", Step::REFUSE);
        peer.always("eth_getLogs", list(&[(101, b'a'), (103, b'a')]));
    }
    stage.peer(1).next("eth_getLogs", Step::REFUSE);
    assert_eq!(told(&changes(&stage, &id).await), "+0x65 +0x67");
    let seen: Vec<_> = stage.peers[0].iter().flat_map(Peer::seen).collect();
    let search = r#"{"eth_getLogs","params":[{"fromBlock":"0x65","toBlock":"0x67"}]}"#;
    assert!(seen.iter().all(|call| call == search), "{seen:?}");
    assert_eq!(changes(&stage, &id).await, "[]", "each once");
    assert_eq!(asked(&stage), seen.len(), "nothing new costs nothing");
    // One block is asked for by its hash.
    grow(&stage, 104..=104, b'a');
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(104, b'a')])));
    assert_eq!(told(&changes(&stage, &id).await), "+0x68");
    let last = stage.peers[0].iter().flat_map(Peer::seen).filter(|call| call.contains("blockHash"));
    assert_eq!(last.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reorg_takes_back_what_was_told() {
    let stage = stage();
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    grow(&stage, 101..=102, b'a');
    let always = |step: Step| {
        stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", step.clone()));
    };
    always(list(&[(101, b'a'), (102, b'a')]));
    assert_eq!(told(&changes(&stage, &id).await), "+0x65 +0x66");
    // The branches part at block 99.
    grow(&stage, 100..=103, b'b');
    always(list(&[(103, b'b')]));
    assert_eq!(told(&changes(&stage, &id).await), "-0x66 -0x65 +0x67");
    let searches: Vec<_> = stage.peers[0].iter().flat_map(Peer::seen).collect();
    let searched = r#""fromBlock":"0x64","toBlock":"0x67""#;
    assert!(searches.last().is_some_and(|call| call.contains(searched)), "{searches:?}");
    let calls = asked(&stage);
    assert_eq!((changes(&stage, &id).await.as_str(), asked(&stage)), ("[]", calls));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_branch_is_not_told() {
    let stage = stage();
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    grow(&stage, 101..=102, b'a');
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(101, b'b')])));
    let refused = changes(&stage, &id).await;
    assert!(refused.contains("\"code\":-32002"), "{refused}");
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(101, b'a')])));
    assert_eq!(told(&changes(&stage, &id).await), "+0x65", "nothing is lost");
    // Nor is anything when the search fails.
    grow(&stage, 103..=104, b'a');
    let failing = error(-32000, "execution aborted");
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", failing.clone()));
    let refused = changes(&stage, &id).await;
    assert!(refused.contains("\"code\":"), "{refused}");
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(103, b'a')])));
    assert_eq!(told(&changes(&stage, &id).await), "+0x67");
}

#[tokio::test(start_paused = true)]
async fn blooms_save_the_search() {
    let stage = stage();
    let filter = format!(r#"[{{"address":"0x{}"}}]"#, "01".repeat(20));
    let id = made(&stage, "eth_newFilter", &filter).await;
    grow(&stage, 101..=102, b'a');
    // Blooms in which the bits of the address are not set, and which are not empty.
    (101..=102).for_each(|number| stage.show_bloom(number, b'a', 0x01));
    assert_eq!((changes(&stage, &id).await.as_str(), asked(&stage)), ("[]", 0));
    grow(&stage, 103..=103, b'a');
    stage.show_bloom(103, b'a', 0xff);
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(103, b'a')])));
    assert_eq!(told(&changes(&stage, &id).await), "+0x67");
    assert_eq!(asked(&stage), 1);
}

#[tokio::test(start_paused = true)]
async fn a_search_that_blooms_contradict_is_made_again_at_the_next_poll() {
    let stage = Stage::upstreams(1);
    stage.show_to_100();
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    let polled = async |number: u64, logs: &[(u64, u8)]| {
        if stage.head(0) < Some(number) {
            stage.show_block(0, number, b'a');
            stage.show_bloom(number, b'a', 0x01);
        }
        stage.peer(0).always("eth_getLogs", list(logs));
        told(&changes(&stage, &id).await)
    };
    assert_eq!(polled(101, &[]).await, "");
    assert_eq!(polled(102, &[]).await, "");
    assert_eq!(polled(102, &[(101, b'a'), (102, b'a')]).await, "+0x65 +0x66");
    assert_eq!(polled(102, &[]).await, "");
    // Not for ever: the evidence may be wrong.
    assert_eq!(polled(103, &[]).await, "");
    tokio::time::sleep(Duration::from_secs(61)).await;
    stage.show_block(0, 103, b'a');
    assert_eq!(polled(103, &[]).await, "");
    assert_eq!(polled(103, &[(103, b'a')]).await, "");
    assert_eq!(polled(104, &[(104, b'a')]).await, "+0x68");
}

#[tokio::test(start_paused = true)]
async fn a_search_by_an_upstream_that_lags_is_made_again_at_the_next_poll() {
    let stage = Stage::upstreams(1);
    stage.show_to_100();
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    (101..=103).for_each(|number| stage.show_block(0, number, b'a'));
    let polled = async |head: u64, logs: &[(u64, u8)]| {
        stage.show_block(0, head, b'a');
        stage.peer(0).always("eth_getLogs", list(logs));
        told(&changes(&stage, &id).await)
    };
    // It finds what it has.
    assert_eq!(polled(102, &[(101, b'a')]).await, "");
    assert_eq!(polled(103, &[(101, b'a'), (103, b'a')]).await, "+0x65 +0x67");
    // Two blocks may have been pushed in the wrong order, and the newest has no logs.
    (104..=105).for_each(|number| stage.show_block(0, number, b'a'));
    stage.show_bloom(105, b'a', 0);
    assert_eq!(polled(104, &[(104, b'a')]).await, "+0x68");
    // Or it has.
    (106..=107).for_each(|number| stage.show_block(0, number, b'a'));
    assert_eq!(polled(106, &[(106, b'a'), (107, b'a')]).await, "+0x6a +0x6b");
}

#[tokio::test(start_paused = true)]
async fn all_logs_of_a_filter_are_a_search_as_it_was_written() {
    let stage = stage();
    let filter = r#"{"fromBlock":"0x1","toBlock":"0x5"}"#;
    let id = made(&stage, "eth_newFilter", &format!("[{filter}]")).await;
    stage.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(3, b'a')])));
    let all = stage.call("eth_getFilterLogs", &format!("[{id}]")).await;
    assert_eq!(told(&all), "+0x3");
    let seen: Vec<_> = stage.peers[0].iter().flat_map(Peer::seen).collect();
    assert_eq!(seen, [format!(r#"{{"eth_getLogs","params":[{filter}]}}"#)]);
    let blocks = made(&stage, "eth_newBlockFilter", "[]").await;
    let refused = stage.call("eth_getFilterLogs", &format!("[{blocks}]")).await;
    assert_eq!(refused, r#"{"code":-32000,"message":"filter not found"}"#, "as geth says");
}

#[tokio::test(start_paused = true)]
async fn bad_filters_are_refused_in_the_words_of_geth() {
    let stage = stage();
    for (params, words) in [
        ("[]", "missing value for required argument 0"),
        (r#"[{"fromBlock":"0x6","toBlock":"0x5"}]"#, "invalid block range params"),
        (r#"[{"fromBlock":"pending"}]"#, "pending logs are not supported"),
        (r#"[{"address":1}]"#, "invalid argument 0: invalid addresses in query"),
        ("[1]", "invalid argument 0: the filter is not an object with each member once"),
    ] {
        let refused = stage.call("eth_newFilter", params).await;
        assert_eq!(refused, format!(r#"{{"code":-32602,"message":"{words}"}}"#), "{params}");
    }
    assert_eq!(asked(&stage), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_has_a_bounded_number_of_filters_and_idle_ones_end() {
    let stage = stage();
    for _ in 0..1_000 {
        made(&stage, "eth_newBlockFilter", "[]").await;
    }
    let refused = stage.call("eth_newBlockFilter", "[]").await;
    assert!(
        refused.starts_with(r#"{"code":-32005,"message":"too many filters of this"#),
        "{refused}"
    );
    let other = stage.call_from(2, "eth_newBlockFilter", "[]").await;
    assert!(other.starts_with("\"0xf117e200"), "{other}");
    tokio::time::advance(Duration::from_secs(301)).await;
    let gone = changes(&stage, &other).await;
    assert_eq!(gone, r#"{"code":-32000,"message":"filter not found"}"#, "not polled for 5 minutes");
    grow(&stage, 101..=101, b'a');
    made(&stage, "eth_newBlockFilter", "[]").await;
}

#[tokio::test(start_paused = true)]
async fn where_no_head_is_known_the_newest_block_is_asked_for() {
    let stage = Stage::new(vec![Plan { upstreams: 1, is_followed: false, ..Plan::default() }]);
    let block = |number: u64| {
        let block = format!(r#"{{"number":"0x{number:x}","hash":"{}"}}"#, hash(number, b'a'));
        Step::Result(block)
    };
    stage.peer(0).always("eth_getBlockByNumber", block(7));
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    // Then it is asked whether the newest one stands on the other.
    stage.peer(0).next("eth_getBlockByNumber", block(8));
    stage.peer(0).always("eth_getLogs", list(&[(8, b'a')]));
    assert_eq!(told(&changes(&stage, &id).await), "+0x8");
}

#[tokio::test(start_paused = true)]
async fn a_view_that_is_old_says_nothing_of_the_chain_of_a_newer_block() {
    let stage = Stage::upstreams(1);
    stage.show_to_100();
    let id = made(&stage, "eth_newFilter", "[{}]").await;
    stage.show_block(0, 101, b'a');
    stage.peer(0).next("eth_getLogs", list(&[(101, b'a')]));
    assert_eq!(told(&changes(&stage, &id).await), "+0x65");
    // Nothing is heard for a while, in which another branch took the place of block 101.
    tokio::time::advance(Duration::from_secs(120)).await;
    for (number, branch) in [(103, b'b'), (101, b'b'), (100, b'a')] {
        let block = format!(r#"{{"number":"0x{number:x}","hash":"{}"}}"#, hash(number, branch));
        stage.peer(0).next("eth_getBlockByNumber", Step::Result(block));
    }
    stage.peer(0).next("eth_getLogs", list(&[(101, b'b'), (103, b'b')]));
    assert_eq!(told(&changes(&stage, &id).await), "-0x65 +0x65 +0x67");
}

#[tokio::test(start_paused = true)]
async fn filters_go_on_after_a_restart() {
    let before = stage();
    let logs = made(&before, "eth_newFilter", "[{}]").await;
    let blocks = made(&before, "eth_newBlockFilter", "[]").await;
    let saved = before.chain().saved_filters();
    let after = stage();
    assert_eq!(after.chain().restore_filters(&saved, now()), 2);
    assert_eq!(after.chain().restore_filters(&["{}".to_owned()], now()), 0);
    grow(&after, 101..=101, b'a');
    after.peers[0].iter().for_each(|peer| peer.always("eth_getLogs", list(&[(101, b'a')])));
    assert_eq!(told(&changes(&after, &logs).await), "+0x65");
    assert_eq!(changes(&after, &blocks).await, format!("[\"{}\"]", hash(101, b'a')));
}

#[tokio::test(start_paused = true)]
async fn a_poll_in_a_batch_is_one_call_of_it() {
    let stage = stage();
    let id = made(&stage, "eth_newBlockFilter", "[]").await;
    grow(&stage, 101..=101, b'a');
    let poll =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"eth_getFilterChanges","params":[{id}]}}"#);
    let answer = stage.send(None, &format!("[{poll},{poll}]")).await;
    let answers: serde_json::Value = serde_json::from_str(&text(&answer)).expect("JSON");
    let blocks: usize =
        (0..2).map(|place| answers[place]["result"].as_array().expect("a list").len()).sum();
    assert_eq!(blocks, 1, "told once: {answers}");
}

/// Three replicas that share one store, each with two upstreams that stand on block 100.
struct Fleet {
    stages: Vec<Stage>,
    stores: Vec<Arc<FakeFilterStore>>,
}

const AWAY: &str = r#"{"code":-32002,"message":"the filters that replicas share cannot be reached for now: poll again"}"#;
const NOT_FOUND: &str = r#"{"code":-32000,"message":"filter not found"}"#;

impl Fleet {
    fn new() -> Self {
        let stores = FakeFilterStore::of(3);
        let stages = (1..).zip(&stores).map(|(seed, store)| {
            let stage = seeded(seed);
            stage.chain().share_filters(&(Arc::clone(store) as Arc<dyn FilterStore>));
            stage
        });
        Self { stages: stages.collect(), stores }
    }

    /// Blocks at each replica, each with one log.
    fn grow(&self, numbers: std::ops::RangeInclusive<u64>, branch: u8) {
        for stage in &self.stages {
            grow(stage, numbers.clone(), branch);
        }
    }

    /// What a search for logs finds from now on.
    fn finds(&self, logs: &[(u64, u8)]) {
        for peer in self.stages.iter().flat_map(|stage| &stage.peers[0]) {
            peer.always("eth_getLogs", list(logs));
        }
    }

    fn set(&self, mood: StoreMood) {
        self.stores.iter().for_each(|store| store.set(mood));
    }

    async fn made(&self, place: usize) -> String {
        made(&self.stages[place], "eth_newFilter", "[{}]").await
    }

    async fn changes(&self, place: usize, id: &str) -> String {
        changes(&self.stages[place], id).await
    }

    /// The logs of a poll at this replica, after a block more with a log in it.
    async fn next(&self, place: usize, id: &str, number: u64) -> String {
        self.grow(number..=number, b'a');
        self.finds(&[(number, b'a')]);
        told(&self.changes(place, id).await)
    }
}

#[tokio::test(start_paused = true)]
async fn any_replica_goes_on_where_another_one_ended() {
    let fleet = Fleet::new();
    let logs = fleet.made(0).await;
    let blocks = made(&fleet.stages[0], "eth_newBlockFilter", "[]").await;
    for (number, place) in (101..).zip([0, 1, 0, 2, 1, 2, 0]) {
        assert_eq!(fleet.next(place, &logs, number).await, format!("+0x{number:x}"));
        assert_eq!(fleet.changes(place, &blocks).await, format!("[\"{}\"]", hash(number, b'a')));
        for place in 0..3 {
            assert_eq!(fleet.changes(place, &logs).await, "[]", "each once");
            assert_eq!(fleet.changes(place, &blocks).await, "[]", "each once");
        }
    }
    // What one replica told another one takes back.
    fleet.grow(100..=108, b'b');
    fleet.finds(&[(106, b'b'), (108, b'b')]);
    let taken_back = "-0x6b -0x6a -0x69 -0x68 -0x67 -0x66 -0x65";
    assert_eq!(told(&fleet.changes(1, &logs).await), format!("{taken_back} +0x6a +0x6c"));
    assert_eq!(fleet.changes(0, &logs).await, "[]");
    let all = fleet.stages[2].call("eth_getFilterLogs", &format!("[{logs}]")).await;
    assert_eq!(told(&all), "+0x6a +0x6c");
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_uninstalled_at_one_replica_is_unknown_at_all() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    for place in 0..3 {
        assert_eq!(fleet.changes(place, &id).await, "[]");
    }
    let uninstall = format!("[{id}]");
    assert_eq!(fleet.stages[1].call("eth_uninstallFilter", &uninstall).await, "true");
    for stage in &fleet.stages {
        assert_eq!(stage.call("eth_uninstallFilter", &uninstall).await, "false");
        assert_eq!(changes(stage, &id).await, NOT_FOUND);
        assert_eq!(stage.call("eth_getFilterLogs", &uninstall).await, NOT_FOUND);
    }
}

#[tokio::test(start_paused = true)]
async fn of_polls_at_two_replicas_at_once_one_tells() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    for number in 101..=110 {
        fleet.grow(number..=number, b'a');
        fleet.finds(&[(number, b'a')]);
        let polls = tokio::join!(
            fleet.changes(0, &id),
            fleet.changes(1, &id),
            fleet.changes(2, &id),
            fleet.changes(0, &id),
        );
        let polls = [polls.0, polls.1, polls.2, polls.3];
        let all: Vec<_> = polls.iter().map(|poll| told(poll)).filter(|it| !it.is_empty()).collect();
        assert_eq!(all, [format!("+0x{number:x}")], "{polls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_only_the_replica_that_its_client_stays_at_serves() {
    let fleet = Fleet::new();
    let (stays, moves) = (fleet.made(0).await, fleet.made(1).await);
    assert_eq!(fleet.next(0, &stays, 101).await, "+0x65");
    assert_eq!(told(&fleet.changes(1, &moves).await), "+0x65");
    assert_eq!(fleet.next(2, &moves, 102).await, "+0x66");
    assert_eq!(fleet.changes(1, &moves).await, "[]");
    fleet.set(StoreMood::Away);
    assert_eq!(fleet.changes(2, &moves).await, AWAY, "also where nothing is new");
    let criteria = fleet.stages[2].call("eth_getFilterLogs", &format!("[{moves}]")).await;
    assert_eq!(told(&criteria), "+0x66", "the criteria of a copy are those of the filter");
    assert_eq!(fleet.next(0, &stays, 103).await, "+0x67");
    for place in 0..3 {
        assert_eq!(fleet.changes(place, &moves).await, AWAY);
    }
    let named = format!("[{stays}]");
    let stage = &fleet.stages[1];
    assert_eq!(changes(stage, &stays).await, AWAY, "the store may have it");
    assert_eq!(stage.call("eth_getFilterLogs", &named).await, AWAY);
    assert_eq!(stage.call("eth_uninstallFilter", &named).await, AWAY);
    let made = fleet.made(0).await;
    assert_eq!(fleet.next(0, &made, 104).await, "+0x68");
    fleet.set(StoreMood::Answers);
    // The copy that went on alone is the newer one, and is written when it is polled.
    assert_eq!(told(&fleet.changes(0, &stays).await), "+0x68");
    assert_eq!(fleet.changes(0, &made).await, "[]");
    assert_eq!(fleet.next(2, &stays, 105).await, "+0x69");
    assert_eq!(told(&fleet.changes(1, &made).await), "+0x69");
    fleet.finds(&[(103, b'a'), (104, b'a'), (105, b'a')]);
    assert_eq!(told(&fleet.changes(0, &moves).await), "+0x67 +0x68 +0x69", "nothing is lost");
}

/// Where a filter was made is not where its client is.
#[tokio::test(start_paused = true)]
async fn a_copy_that_its_client_left_does_not_serve_without_the_store() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    for number in 101..=104 {
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(fleet.next(1, &id, number).await, format!("+0x{number:x}"));
    }
    fleet.set(StoreMood::Away);
    assert_eq!(fleet.changes(0, &id).await, AWAY);
    assert_eq!(fleet.changes(1, &id).await, "[]");
}

/// Whether the store took the first of the writes is not known.
#[tokio::test(start_paused = true)]
async fn of_two_polls_at_once_one_tells_though_the_store_does_not_answer() {
    for mood in [StoreMood::LosesWrites, StoreMood::LosesAnswers] {
        let fleet = Fleet::new();
        let id = fleet.made(0).await;
        fleet.grow(101..=101, b'a');
        fleet.finds(&[(101, b'a')]);
        fleet.set(mood);
        let (one, other) = tokio::join!(fleet.changes(0, &id), fleet.changes(0, &id));
        let mut both = [told(&one), told(&other)];
        both.sort();
        assert_eq!(both, ["", "+0x65"], "{mood:?}");
        fleet.set(StoreMood::Answers);
        assert_eq!(fleet.changes(0, &id).await, "[]", "{mood:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_data_gets_the_filter_back() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    assert_eq!(fleet.next(1, &id, 101).await, "+0x65");
    fleet.stores[0].empty();
    assert_eq!(fleet.changes(2, &id).await, NOT_FOUND, "no copy is there");
    assert_eq!(fleet.changes(1, &id).await, "[]", "it moves nothing and is written all the same");
    assert_eq!(fleet.stores[0].filters(), 1);
    assert_eq!(fleet.next(2, &id, 102).await, "+0x66");
    assert_eq!(fleet.next(0, &id, 103).await, "+0x67");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_loses_nothing_and_tells_nothing_twice() {
    for mood in [StoreMood::LosesWrites, StoreMood::LosesAnswers] {
        let fleet = Fleet::new();
        let id = fleet.made(0).await;
        fleet.set(mood);
        assert_eq!(fleet.next(0, &id, 101).await, "+0x65");
        assert_eq!(fleet.changes(0, &id).await, "[]", "{mood:?}");
        fleet.set(StoreMood::Answers);
        assert_eq!(fleet.changes(0, &id).await, "[]", "{mood:?}");
        assert_eq!(fleet.changes(1, &id).await, "[]", "{mood:?}");
        // The copy moves on before the store says whether it has what was sent.
        let id = fleet.made(0).await;
        fleet.set(mood);
        assert_eq!(fleet.next(0, &id, 102).await, "+0x66");
        fleet.set(StoreMood::Away);
        assert_eq!(fleet.next(0, &id, 103).await, "+0x67");
        fleet.set(StoreMood::Answers);
        assert_eq!(fleet.changes(0, &id).await, "[]", "{mood:?}");
        assert_eq!(fleet.changes(1, &id).await, "[]", "{mood:?}");
        assert_eq!(fleet.next(2, &id, 104).await, "+0x68");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_idle_here_is_not_if_another_replica_polls_it() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(100)).await;
        // The head is told anew, and is the same.
        fleet.grow(100..=100, b'a');
        assert_eq!(fleet.changes(1, &id).await, "[]");
    }
    assert_eq!(fleet.changes(0, &id).await, "[]");
}

#[tokio::test(start_paused = true)]
async fn only_calls_that_name_a_filter_reach_the_store() {
    let fleet = Fleet::new();
    let stage = &fleet.stages[0];
    stage.call("eth_blockNumber", "[]").await;
    stage.call("eth_getLogs", "[{}]").await;
    stage.call("eth_getFilterChanges", "[\"0x1\"]").await;
    assert_eq!(fleet.stores[0].calls(), 0);
    let id = fleet.made(0).await;
    assert_eq!(fleet.stores[0].calls(), 1);
    assert_eq!(fleet.changes(0, &id).await, "[]");
    assert_eq!(fleet.stores[0].calls(), 2, "nothing changed, so nothing was written");
    fleet.next(0, &id, 101).await;
    assert_eq!(fleet.stores[0].calls(), 4);
}

/// Its block is stored all the same: no other replica tells them again.
#[tokio::test(start_paused = true)]
async fn logs_that_are_too_many_for_the_store_are_told_once() {
    let fleet = Fleet::new();
    let id = fleet.made(0).await;
    fleet.grow(101..=101, b'a');
    let log = log(101, b'a');
    let large =
        log.replace(r#""data":"0x""#, &format!(r#""data":"0x{}""#, "00".repeat(VALUE_BYTES_MAX)));
    assert_ne!(log, large);
    for peer in fleet.stages.iter().flat_map(|stage| &stage.peers[0]) {
        peer.always("eth_getLogs", Step::Result(format!("[{large}]")));
    }
    assert_eq!(told(&fleet.changes(0, &id).await), "+0x65");
    for place in [1, 2, 0] {
        assert_eq!(fleet.changes(place, &id).await, "[]");
    }
    assert_eq!(fleet.next(2, &id, 102).await, "+0x66");
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_too_large_for_the_store_stays_at_its_replica() {
    let fleet = Fleet::new();
    let addresses: Vec<_> = (0..1_000).map(|n| format!("\"0x{n:040x}\"")).collect();
    let filter = format!(r#"[{{"address":[{}]}}]"#, addresses.join(","));
    let id = made(&fleet.stages[0], "eth_newFilter", &filter).await;
    assert_eq!(fleet.changes(0, &id).await, "[]");
    assert_eq!(fleet.changes(1, &id).await, NOT_FOUND);
    assert_eq!(fleet.stores[0].filters(), 0);
}
