//! Filters on a chain that grows and changes its branch, polled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use wellhead_eth::{BlockHash, BlockNumber};

use super::*;
use crate::header::tests::{hash, id};
use crate::logs::tests::log;
use crate::poll::{FilterQuery, FilterStep};

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

/// A chain whose blocks each have one log of the contract 1, and the filters on it.
struct Bench {
    /// From the block 1 on.
    chain: Vec<NumberedBlock>,
    parents: HashMap<BlockHash, BlockHash>,
    /// Blocks at these heights have no log.
    empty: BTreeSet<u64>,
    filters: VirtualFilters,
    rng: SmallRng,
    now: Instant,
    /// What polls asked for.
    asked: Vec<String>,
}

impl Bench {
    /// With blocks up to 10.
    fn new(bounds: FilterBounds) -> Self {
        let rng = SmallRng::seed_from_u64(7);
        let (filters, now, asked) = (VirtualFilters::new(bounds), origin(), Vec::new());
        let (chain, parents, empty) = (Vec::new(), HashMap::new(), BTreeSet::new());
        let mut bench = Self { chain, parents, empty, filters, rng, now, asked };
        bench.grow(0, 10, 0);
        bench
    }

    /// One without bounds to speak of, and a filter for logs.
    fn with_filter() -> (Self, VirtualFilterId) {
        let mut bench = Self::new(FilterBounds::default());
        let filter = bench.logs_filter();
        (bench, filter)
    }

    fn tip(&self) -> NumberedBlock {
        *self.chain.last().expect("begun")
    }

    /// Replaces the `removed` newest blocks by those of a branch up to `to`.
    fn grow(&mut self, removed: usize, to: u64, fork: u8) {
        self.chain.truncate(self.chain.len() - removed);
        for number in self.chain.len() as u64 + 1..=to {
            let parent = self.chain.last().map_or(hash(0, 0), |block| block.hash);
            self.parents.insert(hash(number, fork), parent);
            self.chain.push(id(number, fork));
        }
    }

    fn hash_at(&self, number: BlockNumber) -> Option<BlockHash> {
        let place = usize::try_from(number.0.checked_sub(1)?).ok()?;
        self.chain.get(place).map(|block| block.hash)
    }

    fn create(&mut self, kind: VirtualFilterKind) -> VirtualFilterId {
        let from = self.chain.len().saturating_sub(4);
        let id = VirtualFilterId::draw(&mut self.rng);
        let made = self.filters.create(id, kind, &self.chain[from..], 1, self.now);
        made.expect("blocks").expect("room");
        id
    }

    fn logs_filter(&mut self) -> VirtualFilterId {
        self.filter(&format!(r#"{{"address":"0x{}"}}"#, "01".repeat(20)))
    }

    fn filter(&mut self, object: &str) -> VirtualFilterId {
        let filter = FilterQuery::read(Some(object.as_bytes())).expect("a filter");
        self.create(VirtualFilterKind::Logs(Arc::new(filter)))
    }

    fn begin(&mut self, id: VirtualFilterId) -> Option<OpenPoll> {
        self.filters.begin_poll(id, self.tip(), self.now)
    }

    /// Ends a poll of a filter that no other replica has.
    fn finish(&mut self, open: OpenPoll) -> Result<Bytes, FinishError> {
        self.filters.finish(open.complete().expect("done"), StoreOutcome::Local, self.now)
    }

    /// The logs of blocks as the chain is.
    fn logs_in(&self, from: BlockNumber, to: BlockNumber) -> String {
        let is_in = |block: &&NumberedBlock| (from..=to).contains(&block.number);
        let blocks = self.chain.iter().filter(is_in);
        let with_log = blocks.filter(|block| !self.empty.contains(&block.number.0));
        Value::Array(with_log.map(|block| log(*block, 0, 1, &[2])).collect()).to_string()
    }

    /// Polls, and answers what is asked for from the chain as it is.
    fn poll(&mut self, filter: VirtualFilterId) -> Option<Value> {
        let mut open = self.begin(filter)?;
        for _ in 0..1000 {
            let step = open.poll.step();
            match step {
                FilterStep::IsCanonical(block) => {
                    let there = self.hash_at(block.number);
                    open.poll.supply_canonical(there == Some(block.hash));
                }
                FilterStep::ParentOf(block) => open.poll.supply_parent(self.parents[&block.hash]),
                FilterStep::LogsOf(block) => {
                    self.asked.push(format!("logs of {}", block.number));
                    let list = self.logs_in(block.number, block.number);
                    open.poll.supply_logs(list.as_bytes(), |_| None).expect("logs");
                }
                FilterStep::LogsIn(from, to) => {
                    self.asked.push(format!("logs in {from}..{to}"));
                    let list = self.logs_in(from, to);
                    let at = |number| self.hash_at(number);
                    open.poll.supply_logs(list.as_bytes(), at).expect("logs");
                }
                FilterStep::Done => {
                    let answer = self.finish(open).expect("finished");
                    return Some(serde_json::from_slice(&answer).expect("JSON"));
                }
                FilterStep::Gone => {
                    assert!(open.complete().is_none(), "there is no answer");
                    self.filters.remove(filter);
                    return None;
                }
            }
        }
        panic!("the poll does not end");
    }

    /// The logs that a poll tells: `+12.0` or, taken back, `-12.0`.
    fn told(&mut self, filter: VirtualFilterId) -> String {
        let Some(logs) = self.poll(filter) else { return "gone".to_owned() };
        let logs = logs.as_array().expect("a list").iter().map(|log| {
            let number = log["blockNumber"].as_str().expect("a number");
            let number: BlockNumber = number.parse().expect("a number");
            let hash: BlockHash = log["blockHash"].as_str().expect("text").parse().expect("a hash");
            let sign = if log["removed"] == json!(true) { '-' } else { '+' };
            format!("{sign}{number}.{}", hash.0[31])
        });
        logs.collect::<Vec<_>>().join(" ")
    }

    /// Goes on with the filter at another replica, which reads what this one wrote down.
    fn hand_over(&mut self, filter: VirtualFilterId, told_bytes_max: usize) {
        let saved = self.filters.to_saved(filter, told_bytes_max).expect("there").to_json();
        let saved = SavedFilter::read(saved.as_bytes()).expect("it was written");
        self.filters = VirtualFilters::new(FilterBounds::default());
        assert!(self.filters.adopt(&saved, FilterStamp(1), false, self.now));
    }

    /// A poll that is complete.
    fn complete(&mut self, filter: VirtualFilterId) -> CompletePoll {
        let mut open = self.begin(filter).expect("there");
        loop {
            match open.poll.step() {
                FilterStep::IsCanonical(_) => open.poll.supply_canonical(true),
                FilterStep::ParentOf(block) => open.poll.supply_parent(self.parents[&block.hash]),
                FilterStep::LogsOf(_) | FilterStep::LogsIn(..) => {
                    open.poll.supply_logs(b"[]", |_| None).expect("logs");
                }
                FilterStep::Done => return open.complete().expect("done"),
                FilterStep::Gone => panic!("gone"),
            }
        }
    }

    /// A poll that found that the newest block that was told still stands.
    fn begin_standing(&mut self, filter: VirtualFilterId) -> OpenPoll {
        let mut open = self.begin(filter).expect("there");
        open.poll.supply_canonical(true);
        open
    }

    /// What a poll tells, and what it asked for.
    fn told_and_asked(&mut self, filter: VirtualFilterId) -> [String; 2] {
        [self.told(filter), std::mem::take(&mut self.asked).join(", ")]
    }
}

#[test]
fn blocks_since_the_last_poll() {
    let mut bench = Bench::new(FilterBounds::default());
    let filter = bench.create(VirtualFilterKind::Blocks);
    assert_eq!(bench.poll(filter), Some(json!([])));
    bench.grow(0, 12, 0);
    let names = |list: &[BlockHash]| {
        Some(Value::Array(list.iter().map(|it| json!(it.to_string())).collect()))
    };
    assert_eq!(bench.poll(filter), names(&[hash(11, 0), hash(12, 0)]));
    assert_eq!(bench.poll(filter), names(&[]));
    bench.grow(1, 13, 1);
    assert_eq!(bench.poll(filter), names(&[hash(12, 1), hash(13, 1)]));
    bench.grow(2, 11, 1);
    assert_eq!(bench.poll(filter), names(&[]), "a shorter chain has no new block");
    bench.grow(0, 12, 2);
    assert_eq!(bench.poll(filter), names(&[hash(12, 2)]));
    bench.grow(0, 12 + 600, 2);
    assert_eq!(bench.poll(filter), None, "too many to be asked for one by one");
}

#[test]
fn logs_and_what_is_taken_back() {
    let (mut bench, filter) = Bench::with_filter();
    bench.grow(0, 13, 0);
    assert_eq!(bench.told_and_asked(filter), ["+11.0 +12.0 +13.0", "logs in 11..13"]);
    bench.grow(2, 12, 1);
    let expected = ["-13.0 -12.0 +12.1", "logs of 12"];
    assert_eq!(bench.told_and_asked(filter), expected, "one block is asked for by its hash");
    assert_eq!(bench.told(filter), "");
    // What came and went in between is not told.
    bench.grow(0, 14, 1);
    bench.grow(2, 14, 2);
    assert_eq!(bench.told(filter), "+13.2 +14.2");
    // The chain became shorter.
    bench.grow(3, 11, 2);
    assert_eq!(bench.told(filter), "-14.2 -13.2 -12.1");
    bench.asked.clear();
    assert_eq!(bench.told_and_asked(filter), ["", ""]);
}

#[test]
fn a_tip_below_what_was_told_takes_nothing_back() {
    let (mut bench, filter) = Bench::with_filter();
    bench.grow(0, 13, 0);
    bench.told(filter);
    // Another view, whose head is lower, and which knows of no other branch.
    let mut open = bench.filters.begin_poll(filter, id(12, 0), bench.now).expect("there");
    assert_eq!(open.poll.step(), FilterStep::IsCanonical(id(13, 0)));
    open.poll.supply_canonical(true);
    assert_eq!(bench.finish(open).expect("finished"), "[]");
    bench.grow(0, 14, 0);
    assert_eq!(bench.told(filter), "+14.0");
}

#[test]
fn a_filter_made_on_a_block_that_is_replaced_takes_nothing_back() {
    let mut bench = Bench::new(FilterBounds::default());
    bench.grow(0, 13, 0);
    let filter = bench.logs_filter();
    bench.grow(2, 13, 1);
    assert_eq!(bench.told(filter), "+12.1 +13.1");
    bench.grow(2, 13, 2);
    assert_eq!(bench.told(filter), "-13.1 -12.1 +12.2 +13.2");
    bench.grow(5, 13, 3);
    assert_eq!(bench.told(filter), "gone", "deeper than the blocks that it was made with");
}

#[test]
fn gates_bound_what_is_asked_for() {
    let mut bench = Bench::new(FilterBounds::default());
    let filter = bench.filter(r#"{"fromBlock":"0xd","toBlock":"0xe"}"#);
    bench.grow(0, 12, 0);
    assert_eq!(bench.told_and_asked(filter), ["", ""]);
    bench.grow(0, 20, 0);
    assert_eq!(bench.told_and_asked(filter), ["+13.0 +14.0", "logs in 13..14"]);
    bench.grow(0, 21, 0);
    assert_eq!(bench.told_and_asked(filter), ["", ""]);
}

#[test]
fn a_search_that_met_another_branch_is_taken_back_in_full() {
    let (mut bench, filter) = Bench::with_filter();
    bench.grow(0, 11, 0);
    assert_eq!(bench.told(filter), "+11.0");
    bench.grow(0, 14, 0);
    // The upstream that is asked has already changed the branch, below what was told.
    let mut open = bench.begin_standing(filter);
    bench.grow(4, 13, 1);
    let list = bench.logs_in(BlockNumber(12), BlockNumber(13));
    open.poll.supply_logs(list.as_bytes(), |_| None).expect("nothing is known against it");
    bench.finish(open).expect("finished");
    bench.grow(0, 15, 1);
    assert_eq!(bench.told(filter), "-13.1 -12.1 -11.0 +11.1 +12.1 +13.1 +14.1 +15.1");
}

#[test]
fn a_search_of_another_branch_is_taken_back_though_its_tip_stays() {
    let (mut bench, filter) = Bench::with_filter();
    bench.grow(0, 11, 0);
    assert_eq!(bench.told(filter), "+11.0");
    bench.grow(0, 14, 0);
    // The upstream that is asked is on a shorter branch for a moment.
    let mut open = bench.begin_standing(filter);
    let list = Value::Array(vec![log(id(12, 1), 0, 1, &[2])]).to_string();
    open.poll.supply_logs(list.as_bytes(), |_| None).expect("nothing is known against it");
    bench.finish(open).expect("finished");
    bench.grow(0, 15, 0);
    assert_eq!(bench.told(filter), "-12.1 +12.0 +13.0 +14.0 +15.0");
}

#[test]
fn what_cannot_be_taken_back_ends_the_filter() {
    let bounds = FilterBounds { told_bytes_max: 900, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds);
    let filter = bench.logs_filter();
    bench.grow(0, 15, 0);
    assert_eq!(bench.told(filter).matches('+').count(), 5);
    bench.grow(1, 15, 1);
    assert_eq!(bench.told(filter), "-15.0 +15.1");
    bench.grow(5, 15, 2);
    assert_eq!(bench.told(filter), "gone");
}

#[test]
fn a_filter_remembers_a_bounded_number_of_blocks() {
    let (mut bench, filter) = Bench::with_filter();
    bench.empty = (11..).take(1000).collect();
    for to in 11..600 {
        bench.grow(0, to, 0);
        assert_eq!(bench.told(filter), "");
    }
    assert!(bench.filters.bytes_held() < 20_000, "{} bytes", bench.filters.bytes_held());
}

#[test]
fn a_long_answer_ends_at_a_block() {
    let bounds = FilterBounds { answer_bytes_max: 600, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds);
    let filter = bench.logs_filter();
    bench.grow(0, 14, 0);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    assert_eq!(bench.told(filter), "+13.0 +14.0");
    assert_eq!(bench.told(filter), "");
}

#[test]
fn an_answer_that_cannot_be_right_changes_nothing() {
    let (mut bench, filter) = Bench::with_filter();
    bench.grow(0, 11, 0);
    let mut open = bench.begin_standing(filter);
    assert_eq!(open.poll.step(), FilterStep::LogsOf(id(11, 0)));
    let address = "01".repeat(20);
    let params = format!(r#"[{{"address":["0x{address}"],"blockHash":"{}"}}]"#, hash(11, 0));
    assert_eq!(open.poll.search(), Some(params));
    let foreign = json!([log(id(11, 1), 0, 1, &[])]).to_string();
    assert!(open.poll.supply_logs(foreign.as_bytes(), |_| None).is_err());
    assert_eq!(open.poll.step(), FilterStep::LogsOf(id(11, 0)));
    assert!(open.complete().is_none(), "its logs are missing");
    bench.grow(0, 12, 0);
    let mut open = bench.begin_standing(filter);
    let params = format!(r#"[{{"address":["0x{address}"],"fromBlock":"0xb","toBlock":"0xc"}}]"#);
    assert_eq!(open.poll.search(), Some(params));
    let known = |_| Some(hash(11, 1));
    let list = bench.logs_in(BlockNumber(11), BlockNumber(12));
    assert!(open.poll.supply_logs(list.as_bytes(), known).is_err(), "another block is there");
    assert_eq!(bench.told(filter), "+11.0 +12.0");
}

#[test]
fn two_polls_at_once_do_not_both_tell() {
    let mut bench = Bench::new(FilterBounds::default());
    let filter = bench.create(VirtualFilterKind::Blocks);
    bench.grow(0, 11, 0);
    let begin = |bench: &mut Bench| {
        let mut open = bench.begin_standing(filter);
        open.poll.supply_parent(hash(10, 0));
        open.complete().expect("the block is known")
    };
    let (one, two) = (begin(&mut bench), begin(&mut bench));
    let now = bench.now;
    assert!(bench.filters.finish(two, StoreOutcome::Local, now).expect("first").len() > 2);
    assert_eq!(bench.filters.finish(one, StoreOutcome::Local, now), Err(FinishError::Superseded));
    bench.grow(0, 12, 0);
    let mut open = bench.begin_standing(filter);
    open.poll.supply_parent(hash(11, 0));
    assert!(bench.filters.remove(filter) && !bench.filters.remove(filter));
    let complete = open.complete().expect("the block is known");
    assert_eq!(bench.filters.finish(complete, StoreOutcome::Local, now), Err(FinishError::Gone));
}

#[test]
fn filters_are_bounded_and_end_when_they_are_not_polled() {
    let bounds = FilterBounds { filters_max: 3, per_client_max: 2, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds);
    let start = bench.now;
    let create = |bench: &mut Bench, client| {
        let (kind, blocks) = (VirtualFilterKind::Blocks, [id(10, 0)]);
        let id = VirtualFilterId::draw(&mut bench.rng);
        let made = bench.filters.create(id, kind, &blocks, client, bench.now);
        made.expect("a block").map(|()| id)
    };
    let first = create(&mut bench, 1).expect("room");
    create(&mut bench, 1).expect("room");
    assert_eq!(create(&mut bench, 1), Err(FilterRefusal::TooManyOfClient));
    create(&mut bench, 2).expect("room");
    assert_eq!(create(&mut bench, 3), Err(FilterRefusal::TooMany));
    bench.now = start + Duration::from_secs(200);
    assert!(bench.poll(first).is_some());
    bench.now = start + Duration::from_secs(400);
    create(&mut bench, 3).expect("idle filters make room");
    assert_eq!((bench.filters.len(), bench.filters.of_client(1)), (2, 1));
    bench.now = start + Duration::from_secs(501);
    assert_eq!(bench.poll(first), None, "not polled for five minutes");
    assert_eq!(bench.filters.expire(start + Duration::from_secs(2000)), 1);
    assert_eq!((bench.filters.len(), bench.filters.bytes_held()), (0, 0));
    assert!(bench.filters.of_client.is_empty());
    let none = bench.filters.create(first, VirtualFilterKind::Blocks, &[], 1, bench.now);
    assert_eq!(none, None, "there is no block to begin at");
}

#[test]
fn a_restart_keeps_filters() {
    let (mut bench, filter) = Bench::with_filter();
    let all = bench.filter(r#"{"fromBlock":"0x0","topics":[null]}"#);
    let blocks = bench.create(VirtualFilterKind::Blocks);
    bench.grow(0, 12, 0);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    let saved: Vec<_> = bench.filters.save().iter().map(SavedFilter::to_json).collect();
    assert_eq!(saved.len(), 3);
    bench.filters = VirtualFilters::new(FilterBounds::default());
    for text in &saved {
        serde_json::from_str::<Value>(text).expect("JSON");
        let saved = SavedFilter::read(text.as_bytes()).expect(text);
        assert_eq!(saved.to_json(), *text);
        assert!(bench.filters.restore(&saved, bench.now));
        assert!(!bench.filters.restore(&saved, bench.now), "twice");
    }
    assert_eq!(bench.poll(blocks).and_then(|it| Some(it.as_array()?.len())), Some(2));
    let kind = bench.filters.kind(all, bench.now).expect("there");
    let VirtualFilterKind::Logs(kept) = kind else { panic!("a filter for logs") };
    assert_eq!(kept.object(), r#"{"fromBlock":"0x0","topics":[null]}"#, "as it was written");
    bench.grow(0, 13, 0);
    assert_eq!(bench.told(filter), "+13.0");
    bench.grow(1, 13, 1);
    assert_eq!(bench.told(filter), "-13.0 +13.1");
    bench.grow(2, 13, 2);
    assert_eq!(bench.told(filter), "gone", "what was told before the restart is not known");
    for text in ["", "{}", "null", "{\"id\":\"0x1\"}"] {
        assert_eq!(SavedFilter::read(text.as_bytes()), None);
    }
    let none = saved[0].split_once("\"blocks\"").expect("blocks").0;
    for blocks in ["[]", "null", "[[]]", "[[\"0x1\"]]", "[[\"0x1\",\"0x2\"]]"] {
        let text = format!("{none}\"blocks\":{blocks}}}");
        assert_eq!(SavedFilter::read(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn another_replica_takes_back_what_this_one_told() {
    let (mut bench, filter) = Bench::with_filter();
    for number in 11..=14 {
        bench.grow(0, number, 0);
        assert_eq!(bench.told(filter), format!("+{number}.0"));
        bench.hand_over(filter, 48 << 10);
    }
    bench.grow(3, 13, 1);
    assert_eq!(bench.told(filter), "-14.0 -13.0 -12.0 +12.1 +13.1");
    // Without the logs of the oldest block that fits.
    bench.hand_over(filter, 1_000);
    let saved = bench.filters.to_saved(filter, 1_000).expect("there").to_json();
    assert!(saved.len() < 2_000, "{} bytes", saved.len());
    bench.grow(1, 13, 2);
    assert_eq!(bench.told(filter), "-13.1 +13.2");
    bench.hand_over(filter, 0);
    bench.grow(1, 13, 3);
    assert_eq!(bench.told(filter), "gone", "its logs were not handed over");
    // What is known of a block goes along.
    let (begin, _) = saved.split_once("\"blocks\"").expect("blocks");
    for known in [",0,[]", ",1,[]", ",2,[]", r#",3,[{"a":1},{"b":[2]}]"#, ""] {
        let text = format!(r#"{begin}"blocks":[["0x1","{}"{known}]]}}"#, hash(1, 0));
        let read = SavedFilter::read(text.as_bytes()).expect(&text);
        assert_eq!(read.to_json(), text);
    }
}

#[test]
fn a_copy_that_is_not_the_newest_gives_way() {
    let (mut bench, filter) = Bench::with_filter();
    let (now, [one, two, three]) = (bench.now, [1, 2, 3].map(FilterStamp));
    let stamps = |bench: &Bench| -> Vec<_> {
        bench.filters.mark(filter, bench.now).expect("there").stamps().collect()
    };
    assert_eq!(stamps(&bench), []);
    let made = bench.filters.to_saved(filter, 1_000).expect("there");
    bench.filters.note_outcome(filter, StoreOutcome::Stored(one));
    assert!(bench.filters.confirm(filter, one, true, now));
    assert!(!bench.filters.confirm(filter, two, true, now), "another replica wrote it");
    // A poll that moves nothing is no news.
    assert!(!bench.complete(filter).is_news());
    bench.grow(0, 12, 0);
    let (mine, late) = (bench.complete(filter), bench.complete(filter));
    assert!(mine.is_news());
    bench.filters.finish(mine, StoreOutcome::Sent(two), now).expect("it may have it");
    assert_eq!(stamps(&bench), [two, one], "the store has one of them");
    assert!(bench.filters.confirm(filter, one, true, now));
    assert!(bench.complete(filter).is_news(), "it did not have it");
    assert!(bench.filters.confirm(filter, two, true, now), "or only later");
    // What the store has is told, whatever became of the copy.
    assert!(bench.filters.adopt(&made, three, false, now));
    assert!(bench.filters.finish(late, StoreOutcome::Stored(one), now).is_ok());
    assert_eq!(stamps(&bench), [three]);
    let polled = bench.complete(filter);
    assert!(bench.filters.adopt(&made, three, false, now));
    let superseded = bench.filters.finish(polled, StoreOutcome::Local, now);
    assert_eq!(superseded, Err(FinishError::Superseded), "it began at a copy that gave way");
    assert!(!bench.filters.mark(filter, bench.now).expect("there").is_home());
    assert!(bench.filters.note_missing(filter, now) && bench.complete(filter).is_news());
}

#[test]
fn a_copy_that_the_store_has_gives_way_to_another_filter() {
    let bounds = FilterBounds { filters_max: 2, per_client_max: 1, ..FilterBounds::default() };
    let mut bench = Bench::new(FilterBounds::default());
    let saved: Vec<_> = (0..4)
        .map(|_| {
            let filter = bench.create(VirtualFilterKind::Blocks);
            bench.filters.to_saved(filter, 1_000).expect("there")
        })
        .collect();
    bench.filters = VirtualFilters::new(bounds);
    let own = bench.create(VirtualFilterKind::Blocks);
    for (stamp, saved) in (1..).zip(&saved) {
        bench.now += Duration::from_secs(1);
        assert!(bench.filters.adopt(saved, FilterStamp(stamp), true, bench.now));
    }
    assert_eq!(bench.filters.len(), 2);
    assert!(bench.filters.mark(own, bench.now).is_some(), "the store does not have it");
    assert!(bench.filters.mark(saved[3].id(), bench.now).is_some(), "it came last");
    bench.filters.note_missing(saved[3].id(), bench.now);
    let has_room = bench.filters.adopt(&saved[0], FilterStamp(9), true, bench.now);
    assert!(!has_room);
}

#[test]
fn ids_are_told_from_those_of_upstreams() {
    let mut rng = SmallRng::seed_from_u64(3);
    let id = VirtualFilterId::draw(&mut rng);
    let written = id.to_string();
    assert!(written.starts_with("0xf117e200") && written.len() == 34);
    assert_eq!(VirtualFilterId::parse(&written), Some(id));
    assert_eq!(VirtualFilterId::parse(&written.to_uppercase().replace('X', "x")), Some(id));
    let other = written.replace("f117e2", "f117e3");
    for text in ["", "0x1", &other, &written[..33], &format!("{id}0")] {
        assert_eq!(VirtualFilterId::parse(text), None, "{text}");
    }
    assert_ne!(VirtualFilterId::draw(&mut rng), id);
}

proptest! {
    /// A client that adds what is told and takes out what is taken back has the logs of the chain, whichever replica
    /// it polls.
    #[test]
    fn what_is_told_adds_up(
        steps in prop::collection::vec(
            (0..5_usize, 0..5_u64, any::<bool>(), any::<bool>()),
            1..25,
        ),
        empty in prop::collection::btree_set(10..80_u64, 0..40),
        begins_at in 0..3_u64,
    ) {
        let mut bench = Bench::new(FilterBounds::default());
        bench.empty = empty;
        bench.grow(0, 10 + begins_at, 0);
        let filter = bench.logs_filter();
        let mut known = BTreeSet::new();
        let mut floor = 10 + begins_at;
        // The chain at the last poll.
        let mut before = bench.chain.clone();
        for (step, (removed, added, is_polled, is_elsewhere)) in (1..).zip(steps) {
            let tip = bench.tip().number.0;
            // The filter was made with the blocks from 7 on.
            let removed = removed.min(usize::try_from(tip - 7 - begins_at).expect("small"));
            let to = tip - removed as u64 + added;
            bench.grow(removed, to, step);
            if !is_polled {
                continue;
            }
            if is_elsewhere {
                bench.hand_over(filter, 48 << 10);
            }
            for told in bench.told(filter).split_whitespace() {
                let (sign, block) = told.split_at(1);
                let is_news = match sign {
                    "+" => known.insert(block.to_owned()),
                    _ => known.remove(block),
                };
                prop_assert!(is_news, "{} was told twice, or taken back untold", told);
            }
            let now = &bench.chain;
            let shared = before.iter().zip(now).take_while(|(one, other)| one == other).count();
            if shared < before.len() {
                floor = floor.min(shared as u64);
            }
            let is_told = |it: &&NumberedBlock| it.number.0 > floor && !bench.empty.contains(&it.number.0);
            let expected: BTreeSet<String> = now.iter().filter(is_told)
                .map(|it| format!("{}.{}", it.number, it.hash.0[31])).collect();
            prop_assert_eq!(&known, &expected);
            before.clone_from(now);
        }
    }

    /// The hashes that a filter for blocks tells are those that joined the chain between two polls.
    #[test]
    fn new_blocks_are_told_once(
        steps in prop::collection::vec((0..4_usize, 0..6_u64, any::<bool>()), 1..25),
    ) {
        let mut bench = Bench::new(FilterBounds::default());
        let filter = bench.create(VirtualFilterKind::Blocks);
        let mut before = bench.chain.clone();
        for (step, (removed, added, is_polled)) in (1..).zip(steps) {
            let tip = bench.tip().number.0;
            let removed = removed.min(usize::try_from(tip - 7).expect("small"));
            bench.grow(removed, tip - removed as u64 + added, step);
            if !is_polled {
                continue;
            }
            let told = bench.poll(filter).expect("it is there");
            let told: Vec<_> =
                told.as_array().expect("a list").iter().map(|it| it.as_str().expect("text").to_owned()).collect();
            let shared =
                before.iter().zip(&bench.chain).take_while(|(one, other)| one == other).count();
            let expected: Vec<_> =
                bench.chain[shared..].iter().map(|it| it.hash.to_string()).collect();
            prop_assert_eq!(told, expected);
            before.clone_from(&bench.chain);
        }
    }
}
