//! Filters on a chain that grows and changes its branch, polled.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use wellhead_eth::BlockHash;

use super::*;
use crate::header::tests::{branch, hash, id};
use crate::journal::{ChainJournal, JournalBounds, LogsState, Publication};
use crate::logs::BlockLogs;
use crate::logs::tests::{log, read_all};
use crate::poll::FilterStep;

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

/// A chain whose blocks each have one log of the contract 1, and the filters on it.
struct Bench {
    journal: ChainJournal,
    filters: VirtualFilters,
    rng: SmallRng,
    now: Instant,
    /// What polls asked for.
    asked: Vec<String>,
    /// Which block upstreams have at a height; the branch 0 otherwise.
    confirmed: BlockHash,
}

impl Bench {
    fn new(bounds: FilterBounds, events_max: usize) -> Self {
        let mut journal =
            ChainJournal::new(JournalBounds { events_max, ..JournalBounds::default() });
        journal.begin(id(10, 0));
        let rng = SmallRng::seed_from_u64(7);
        let (filters, now, asked) = (VirtualFilters::new(bounds), origin(), Vec::new());
        Self { journal, filters, rng, now, asked, confirmed: hash(10, 0) }
    }

    /// Replaces the `removed` newest blocks by those of a branch up to `to`.
    fn grow(&mut self, removed: usize, to: u64, fork: u8, with_logs: bool) {
        let tip = self.journal.tip().expect("begun").number.0 - removed as u64;
        let parent = self.journal.hash_at(BlockNumber(tip)).expect("known");
        let mut added = branch(parent, tip + 1, to, fork);
        // A bloom that excludes nothing.
        added.iter_mut().for_each(|header| header.bloom = None);
        self.journal.publish(Publication { removed, added }).expect("linked");
        if with_logs {
            let view = self.journal.reader().load();
            for block in view.iter().filter_map(|(_, event)| event.added()) {
                let logs = read_all(block.id(), &[(1, &[2]), (3, &[])]);
                self.journal.set_logs(block, LogsState::Known(Arc::new(logs)));
            }
        }
    }

    fn create(&mut self, kind: VirtualFilterKind) -> VirtualFilterId {
        self.filters.create(kind, 1, self.now, &mut self.rng).expect("room")
    }

    fn logs_filter(&mut self) -> VirtualFilterId {
        let text = format!(r#"{{"address":"0x{}"}}"#, "01".repeat(20));
        let criteria = LogCriteria::read(Some(text.as_bytes())).expect("criteria");
        let tip = self.journal.tip().expect("begun");
        self.create(VirtualFilterKind::Logs(Arc::new(criteria), tip))
    }

    fn begin(&mut self, id: VirtualFilterId) -> Option<Box<OpenPoll>> {
        let view = self.journal.reader().load();
        match self.filters.begin_poll(id, self.now, &view) {
            PollBegun::NotFound => None,
            PollBegun::Chain(open) => Some(open),
            PollBegun::Pending(_) => panic!("a filter on the chain"),
        }
    }

    /// Polls, and answers what is asked for from the chain as it is.
    fn poll(&mut self, filter: VirtualFilterId) -> Option<Value> {
        let mut open = self.begin(filter)?;
        for _ in 0..100 {
            let step = open.poll.step();
            self.asked.push(match step {
                FilterStep::Confirm(block) => format!("hash at {}", block.number),
                FilterStep::LogsOf(block) => format!("logs of {}", block.number),
                FilterStep::LogsIn(from, to) => format!("logs in {from}..{to}"),
                FilterStep::Done | FilterStep::Gone => String::new(),
            });
            match step {
                FilterStep::Confirm(_) => open.poll.confirm(self.confirmed),
                FilterStep::LogsOf(block) => {
                    let list = json!([log(block, 0, 1, &[2])]).to_string();
                    open.poll.supply(list.as_bytes()).expect("logs");
                }
                FilterStep::LogsIn(from, to) => {
                    let list: Vec<_> = (from.0..=to.0)
                        .map(|number| {
                            let known = self.journal.hash_at(BlockNumber(number));
                            let hash = known.unwrap_or(hash(number, 0));
                            let block = NumberedBlock { number: BlockNumber(number), hash };
                            log(block, 0, 1, &[2])
                        })
                        .collect();
                    let list = Value::Array(list).to_string();
                    open.poll.supply(list.as_bytes()).expect("logs");
                }
                FilterStep::Done => {
                    self.asked.pop();
                    let complete = open.complete().expect("done");
                    let answer = self.filters.finish(complete, self.now).expect("finished");
                    return Some(serde_json::from_slice(&answer).expect("JSON"));
                }
                FilterStep::Gone => {
                    self.asked.pop();
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

    fn asked(&mut self) -> String {
        std::mem::take(&mut self.asked).join(", ")
    }
}

#[test]
fn blocks_since_the_last_poll() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.create(VirtualFilterKind::Blocks(id(10, 0)));
    assert_eq!(bench.poll(filter), Some(json!([])));
    bench.grow(0, 12, 0, false);
    let names = |list: &[BlockHash]| {
        Some(Value::Array(list.iter().map(|it| json!(it.to_string())).collect()))
    };
    assert_eq!(bench.poll(filter), names(&[hash(11, 0), hash(12, 0)]));
    assert_eq!(bench.poll(filter), names(&[]));
    bench.grow(1, 13, 1, false);
    assert_eq!(bench.poll(filter), names(&[hash(12, 1), hash(13, 1)]));
    assert_eq!(bench.asked(), "", "no call");
}

#[test]
fn logs_from_memory_and_taken_back() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 13, 0, true);
    assert_eq!(bench.told(filter), "+11.0 +12.0 +13.0");
    bench.grow(2, 12, 1, true);
    assert_eq!(bench.told(filter), "-13.0 -12.0 +12.1");
    assert_eq!(bench.told(filter), "");
    // What came and went in between is not told.
    bench.grow(0, 14, 1, true);
    bench.grow(2, 14, 2, true);
    assert_eq!(bench.told(filter), "+13.2 +14.2");
    assert_eq!(bench.asked(), "");
}

#[test]
fn a_filter_made_on_a_block_that_is_replaced_takes_nothing_back() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    bench.grow(0, 13, 0, true);
    let filter = bench.logs_filter();
    bench.grow(2, 13, 1, true);
    assert_eq!(bench.told(filter), "+12.1 +13.1");
    bench.grow(2, 13, 2, true);
    assert_eq!(bench.told(filter), "-13.1 -12.1 +12.2 +13.2");
}

#[test]
fn what_the_journal_lacks_is_asked_for() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 12, 0, false);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    assert_eq!(bench.asked(), "logs of 11, logs of 12");
    bench.grow(0, 20, 0, false);
    assert_eq!(bench.told(filter).matches('+').count(), 8);
    assert_eq!(bench.asked(), "logs in 13..20");
    // Taken back from what the filter remembers.
    bench.grow(2, 19, 1, false);
    assert_eq!(bench.told(filter), "-20.0 -19.0 +19.1");
    assert_eq!(bench.asked(), "logs of 19");
}

#[test]
fn a_filter_older_than_the_journal_is_served_by_a_search() {
    let mut bench = Bench::new(FilterBounds::default(), 8);
    let filter = bench.logs_filter();
    let blocks = bench.create(VirtualFilterKind::Blocks(id(10, 0)));
    for to in 11..=40 {
        bench.grow(0, to, 0, true);
    }
    assert_eq!(bench.told(filter).matches('+').count(), 30);
    assert_eq!(bench.asked(), "hash at 10, logs in 11..32");
    assert_eq!(bench.told(filter), "");
    assert_eq!(bench.poll(blocks), None, "its hashes are gone");
    // The block up to which it told was replaced meanwhile.
    let filter = bench.logs_filter();
    for to in 41..=70 {
        bench.grow(0, to, 0, true);
    }
    bench.confirmed = hash(40, 1);
    let before = bench.filters.len();
    assert_eq!((bench.told(filter), bench.filters.len()), ("gone".to_owned(), before - 1));
}

#[test]
fn what_cannot_be_taken_back_ends_the_filter() {
    let bounds = FilterBounds { told_bytes_max: 900, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds, 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 15, 0, false);
    assert_eq!(bench.told(filter).matches('+').count(), 5);
    bench.grow(1, 15, 1, false);
    assert_eq!(bench.told(filter), "-15.0 +15.1");
    bench.grow(5, 15, 2, false);
    assert_eq!(bench.told(filter), "gone");
    // With the logs in the journal there is no need to remember.
    let mut bench = Bench::new(bounds, 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 15, 0, true);
    bench.told(filter);
    bench.grow(5, 11, 2, true);
    assert_eq!(bench.told(filter), "-15.0 -14.0 -13.0 -12.0 -11.0 +11.2");
}

#[test]
fn a_long_answer_ends_at_a_block() {
    let bounds = FilterBounds { answer_bytes_max: 600, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds, 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 14, 0, true);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    assert_eq!(bench.told(filter), "+13.0 +14.0");
    assert_eq!(bench.told(filter), "");
}

#[test]
fn an_answer_that_cannot_be_right_changes_nothing() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 11, 0, false);
    let mut open = bench.begin(filter).expect("there");
    assert_eq!(open.poll.step(), FilterStep::LogsOf(id(11, 0)));
    let foreign = json!([log(id(11, 1), 0, 1, &[])]).to_string();
    assert!(open.poll.supply(foreign.as_bytes()).is_err());
    assert_eq!(open.poll.step(), FilterStep::LogsOf(id(11, 0)));
    assert!(open.complete().is_none(), "its logs are missing");
    assert_eq!(bench.told(filter), "+11.0");
}

#[test]
fn two_polls_at_once_do_not_both_tell() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 11, 0, true);
    let begin = |bench: &mut Bench| {
        bench.begin(filter).expect("there").complete().expect("all logs are in the journal")
    };
    let (one, two) = (begin(&mut bench), begin(&mut bench));
    let now = bench.now;
    assert!(bench.filters.finish(two, now).expect("first").len() > 2);
    assert_eq!(bench.filters.finish(one, now), Err(FinishError::Superseded));
    let open = begin(&mut bench);
    assert!(bench.filters.remove(filter) && !bench.filters.remove(filter));
    assert_eq!(bench.filters.finish(open, now), Err(FinishError::Gone));
}

#[test]
fn filters_are_bounded_and_end_when_they_are_not_polled() {
    let bounds = FilterBounds { filters_max: 3, per_client_max: 2, ..FilterBounds::default() };
    let mut bench = Bench::new(bounds, 1000);
    let start = bench.now;
    let create = |bench: &mut Bench, client| {
        bench.filters.create(
            VirtualFilterKind::Blocks(id(10, 0)),
            client,
            bench.now,
            &mut bench.rng,
        )
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
}

#[test]
fn a_restart_keeps_filters() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    let blocks = bench.create(VirtualFilterKind::Blocks(id(10, 0)));
    let pending = bench.journal.reader().tip();
    bench.create(VirtualFilterKind::Pending(pending));
    bench.grow(0, 12, 0, true);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    let saved: Vec<_> = bench.filters.save().iter().map(SavedFilter::to_json).collect();
    assert_eq!(saved.len(), 2, "a filter for pending transactions is not kept");
    bench.filters = VirtualFilters::new(FilterBounds::default());
    for text in &saved {
        serde_json::from_str::<Value>(text).expect("JSON");
        let saved = SavedFilter::read(text.as_bytes()).expect(text);
        assert!(bench.filters.restore(&saved, bench.now));
        assert!(!bench.filters.restore(&saved, bench.now), "twice");
    }
    assert_eq!(bench.poll(blocks).and_then(|it| Some(it.as_array()?.len())), Some(2));
    bench.grow(0, 13, 0, true);
    assert_eq!(bench.told(filter), "+13.0");
    // The journal has what was told before the restart.
    bench.grow(2, 13, 1, true);
    assert_eq!(bench.told(filter), "-13.0 -12.0 +12.1 +13.1");
    for text in ["", "{}", "null", "{\"id\":\"0x1\"}"] {
        assert_eq!(SavedFilter::read(text.as_bytes()), None);
    }
}

#[test]
fn after_a_restart_what_was_told_may_be_out_of_reach() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 12, 0, false);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    let saved = bench.filters.save();
    bench.filters = VirtualFilters::new(FilterBounds::default());
    assert!(bench.filters.restore(&saved[0], bench.now));
    bench.grow(1, 12, 1, false);
    assert_eq!(bench.told(filter), "gone");
}

#[test]
fn what_is_told_after_a_reorg_is_remembered_again() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    bench.grow(0, 12, 0, true);
    assert_eq!(bench.told(filter), "+11.0 +12.0");
    let saved = bench.filters.save();
    bench.filters = VirtualFilters::new(FilterBounds::default());
    assert!(bench.filters.restore(&saved[0], bench.now));
    // A block without logs takes the place of one whose logs the journal has.
    let added = branch(hash(11, 0), 12, 12, 1);
    bench.journal.publish(Publication { removed: 1, added }).expect("linked");
    assert_eq!(bench.told(filter), "-12.0");
    bench.grow(1, 12, 2, false);
    assert_eq!(bench.told(filter), "+12.2", "nothing was told of the block that is replaced");
}

#[test]
fn filters_for_pending_transactions_are_a_cursor() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let cursor = bench.journal.reader().tip();
    let filter = bench.create(VirtualFilterKind::Pending(cursor));
    let view = bench.journal.reader().load();
    let begun = bench.filters.begin_poll(filter, bench.now, &view);
    assert!(matches!(begun, PollBegun::Pending(at) if at == cursor));
    assert!(bench.filters.move_pending(filter, cursor.next(), bench.now));
    assert_eq!(bench.filters.criteria(filter, bench.now), None);
    let logs = bench.logs_filter();
    assert!(!bench.filters.move_pending(logs, cursor, bench.now));
    assert!(bench.filters.criteria(logs, bench.now).is_some());
}

#[test]
fn ids_are_told_from_those_of_upstreams() {
    let mut rng = SmallRng::seed_from_u64(3);
    let id = VirtualFilterId::draw(&mut rng);
    assert!(id.as_str().starts_with("0xf117e200") && id.as_str().len() == 34);
    assert_eq!(VirtualFilterId::parse(id.as_str()), Some(id));
    assert_eq!(VirtualFilterId::parse(&id.as_str().to_uppercase().replace('X', "x")), Some(id));
    let other = id.as_str().replace("f117e2", "f117e3");
    for text in ["", "0x1", &other, &id.as_str()[..33], &format!("{id}0")] {
        assert_eq!(VirtualFilterId::parse(text), None, "{text}");
    }
    assert_ne!(VirtualFilterId::draw(&mut rng), id);
}

#[test]
fn a_block_whose_bloom_excludes_the_filter_is_not_asked_for() {
    let mut bench = Bench::new(FilterBounds::default(), 1000);
    let filter = bench.logs_filter();
    // Headers of the test have an empty bloom.
    let added = branch(hash(10, 0), 11, 12, 0);
    bench.journal.publish(Publication { removed: 0, added }).expect("linked");
    assert_eq!((bench.told(filter), bench.asked()), (String::new(), String::new()));
    assert!(BlockLogs::none(id(11, 0)).logs().is_empty());
}

proptest! {
    /// A client that adds what is told and takes out what is taken back has the logs of the chain.
    #[test]
    fn what_is_told_adds_up(
        steps in prop::collection::vec(
            (0..5_usize, 0..5_u64, any::<bool>(), any::<bool>()), 1..25),
        begins_at in 0..3_u64,
    ) {
        let mut bench = Bench::new(FilterBounds::default(), 1000);
        bench.grow(0, 10 + begins_at, 0, true);
        let filter = bench.logs_filter();
        let mut known = BTreeSet::new();
        let mut floor = 10 + begins_at;
        // The chain at the last poll.
        let chain = |bench: &Bench| -> Vec<NumberedBlock> {
            let tip = bench.journal.tip().expect("begun").number.0;
            let hash_at = |number| bench.journal.hash_at(BlockNumber(number)).expect("on the chain");
            (10..=tip).map(|number| NumberedBlock { number: BlockNumber(number), hash: hash_at(number) }).collect()
        };
        let mut before = chain(&bench);
        for (step, (removed, added, with_logs, is_polled)) in (1..).zip(steps) {
            let tip = bench.journal.tip().expect("begun").number.0;
            let removed = removed.min(usize::try_from(tip - 10).expect("small"));
            let to = tip - removed as u64 + added;
            bench.grow(removed, to, step, with_logs);
            if !is_polled {
                continue;
            }
            for told in bench.told(filter).split_whitespace() {
                let (sign, block) = told.split_at(1);
                let is_news = match sign {
                    "+" => known.insert(block.to_owned()),
                    _ => known.remove(block),
                };
                prop_assert!(is_news, "{} was told twice, or taken back untold", told);
            }
            let now = chain(&bench);
            let shared = before.iter().zip(&now).take_while(|(one, other)| one == other).count();
            if shared < before.len() {
                floor = floor.min(9 + shared as u64);
            }
            let expected: BTreeSet<String> = now.iter().filter(|it| it.number.0 > floor)
                .map(|it| format!("{}.{}", it.number, it.hash.0[31])).collect();
            prop_assert_eq!(&known, &expected);
            before = now;
        }
    }
}
