//! What is said of providers whose truth is known.

use wellhead_analyze::conclude::verdict::{
    AnswersDiffer, BlockLag, Confidence, ExperimentVerdict, Faster, Finding,
    FindingBound::{Found, NotUpTo},
    LoadCapacity, NoLoadCapacity, Refilled, RefusedRate, Shaped, TokenLimit, verdicts,
};
use wellhead_analyze::record::{CallRecord, Record};

use super::support::near;
use super::synthetic::{Dials, World, elastic, metered, shaped};

/// A world of one target, in which an experiment was played.
fn world_of(experiment: &str, dials: Dials, seed: u64) -> World {
    let mut world = World::new(seed, vec![dials]);
    world.play(experiment, 0);
    world
}

fn told_of(world: &World) -> Vec<ExperimentVerdict> {
    verdicts(&world.run, &world.records)
}

fn played(experiment: &str, dials: &Dials, seed: u64) -> Vec<ExperimentVerdict> {
    told_of(&world_of(experiment, dials.clone(), seed))
}

#[track_caller]
fn says(experiment: &str, dials: &Dials, expected: &[&str]) {
    let told = played(experiment, dials, 7);
    let sentences: Vec<&str> = told.iter().map(|verdict| verdict.sentence.as_str()).collect();
    assert_eq!(sentences, expected, "{told:#?}");
}

#[test]
fn caps_that_are_fatal_that_refuse_and_that_are_announced_and_none() {
    let refusing = Dials { refused_above: Some(98), ..elastic() };
    let uncapped = Dials { announced: None, ..elastic() };
    for (dials, expected) in [
        (shaped(), "Connection is closed at the 100th concurrent stream (not announced; 3 of 3)"),
        (
            refusing,
            "At most 98 concurrent streams per connection; more are rejected (not announced; 3 of 3)",
        ),
        (elastic(), "At most 128 concurrent streams per connection (announced; 3 of 3)"),
        (uncapped, "No limit up to 512 concurrent streams per connection"),
    ] {
        says("streams", &dials, &[expected]);
    }
}
#[test]
fn what_the_other_side_said_is_evidence() {
    let told = played("streams", &shaped(), 1);
    assert_eq!(told[0].confidence, Confidence::High);
    assert_eq!(
        told[0].evidence,
        [
            "the settings announce 128 streams",
            "99 streams: nothing failed; 100 streams: 3 of 3 failed",
            "GOAWAY with code 11, last stream 0, debug data \"too many <streams>\"",
        ]
    );
}

#[test]
fn connections_that_end_and_those_that_do_not() {
    says(
        "connection",
        &shaped(),
        &["Connection is closed after 1,000 requests", "Idle connection is closed after 60 s"],
    );
    says(
        "connection",
        &elastic(),
        &[
            "Connection serves at least 20,000 requests",
            "Idle connection stays open for at least 5 min",
        ],
    );
}

#[test]
fn a_rate() {
    for seed in 0..5 {
        let told = played("rate", &metered(), seed);
        let Finding::Rate(Found(RefusedRate { per_second, .. })) = told[0].finding else {
            panic!("{told:?}")
        };
        near(per_second, 125.0, &told);
    }
    says("rate", &metered(), &["Rate limit: 125 req/s sustained; excess gets 429"]);
    let in_body = Dials { in_body: true, ..metered() };
    says("rate", &in_body, &["Rate limit: 125 req/s sustained; excess gets an error in the body"]);
}
#[test]
fn no_rate() {
    says("rate", &elastic(), &["No rate limit up to 244 req/s, sustained for 12 s"]);
}

#[test]
fn a_bucket() {
    for seed in 0..3 {
        let told = played("window", &metered(), seed);
        let Finding::Bucket(Found(TokenLimit { size, window_s, refill: Refilled::Evenly, .. })) =
            told[0].finding
        else {
            panic!("{told:?}");
        };
        near(size as f64, 125.0, &told);
        near(window_s, 1.0, &told);
    }
    let slow = Dials { bucket: Some((200.0, 20.0)), ..metered() };
    let told = played("window", &slow, 1);
    let Finding::Bucket(Found(TokenLimit { size, window_s, .. })) = told[0].finding else {
        panic!("{told:?}")
    };
    near(size as f64, 200.0, &told);
    near(window_s, 10.0, &told);
}
#[test]
fn no_bucket() {
    says("window", &elastic(), &["Burst of 1,000 requests is served without throttling"]);
}

#[test]
fn shaping_of_an_account_and_of_each_connection() {
    for (per_connection, limit) in [(false, 252.0), (true, 60.0)] {
        let dials = Dials {
            shaped: Some(limit),
            shaped_per_connection: per_connection,
            base_ms: if per_connection { 30.0 } else { 80.0 },
            ..shaped()
        };
        let told = played("throttle", &dials, 3);
        let Finding::Shaping(Found(Shaped { calls_per_second, scope, .. })) = &told[0].finding
        else {
            panic!("{told:?}");
        };
        near(*calls_per_second, limit, &told);
        let scope = serde_json::to_value(scope).expect("a word");
        assert_eq!(scope, if per_connection { "connection" } else { "account" }, "{told:?}");
    }
    let told = played("throttle", &shaped(), 3);
    assert!(told[0].sentence.ends_with(" req/s per account; excess waits"), "{}", told[0].sentence);
}
#[test]
fn no_shaping() {
    for seed in 0..5 {
        let told = played("throttle", &elastic(), seed);
        assert!(matches!(told[0].finding, Finding::Shaping(NotUpTo(_))), "{told:?}");
    }
}

#[test]
fn what_methods_count() {
    let told = played("cost", &metered(), 1);
    let Finding::Cost { observed_ratio, catalogue_ratio, .. } = told[0].finding else {
        panic!("{told:?}");
    };
    near(observed_ratio, 2.0, &told);
    assert_eq!(catalogue_ratio, Some(1.0));
    // A limit of the method alone would look the same.
    assert_eq!(told[0].confidence, Confidence::Medium);
    assert!(told[0].sentence.contains("), or has a limit of its own; "), "{}", told[0].sentence);
    says("cost", &elastic(), &["inconclusive: no call was throttled, so no cost can be measured"]);
}

#[test]
fn which_protocol_is_quicker() {
    let told = played("protocol", &elastic(), 1);
    let Finding::Comparison(Found(Faster { what, than, percent, low, high, .. })) =
        &told[0].finding
    else {
        panic!("{told:?}");
    };
    assert_eq!((what.as_str(), than.as_str()), ("h2", "http/1.1"));
    assert!((low < percent) && (percent < high) && (55.0..65.0).contains(percent), "{told:?}");
    let same = played("protocol", &Dials { h2_share: 1.0, ..elastic() }, 1);
    assert!(matches!(same[0].finding, Finding::Comparison(NotUpTo(_))), "{same:?}");
}
#[test]
fn failures_are_not_compared() {
    let told = played("protocol", &Dials { h2_share: 1.0, shaped: None, ..shaped() }, 7);
    assert_eq!(told.len(), 4, "{told:#?}");
    for (n, way) in [(0, "h2, 1 connection"), (2, "1 connection, h2")] {
        let expected = format!(
            "inconclusive: up to 100 % of the calls failed with {way}, 100 at a time, large bodies"
        );
        assert_eq!(told[n].sentence, expected);
    }
}

#[test]
fn what_load_is_borne() {
    let told = played("load", &shaped(), 1);
    assert!(
        matches!(told[0].finding, Finding::Capacity(Found(LoadCapacity { per_second: 200.0, .. }))),
        "{told:?}"
    );
    let told = played("load", &elastic(), 1);
    let Finding::Capacity(NotUpTo(NoLoadCapacity { up_to_per_second, .. })) = told[0].finding
    else {
        panic!("{told:?}");
    };
    assert_eq!(up_to_per_second, 400.0);
}

#[test]
fn one_failure_among_hundreds_is_no_break() {
    let mut world = world_of("load", elastic(), 1);
    // Of 500 calls at 100/s one fails.
    let mut cells = world.records.iter().filter_map(Record::cell);
    let at_100 = cells.find(|cell| cell.factors["rate"] == "100").expect("a stage").cell;
    let mut fail = |share: usize| {
        let calls = calls_mut(&mut world).filter(|call| call.cell == at_100);
        calls.skip(7).step_by(share).for_each(|call| call.class = "fault".to_owned());
        told_of(&world).remove(0)
    };
    let told = fail(1_000);
    assert!(matches!(told.finding, Finding::Capacity(NotUpTo(_))), "{told:?}");
    assert!(told.evidence.iter().any(|line| line.starts_with("1 of ")), "{told:?}");
    // Four of 500 are more than chance, but rates above that are borne: it was a moment's.
    let told = fail(125);
    assert!(
        matches!(told.finding, Finding::Capacity(Found(LoadCapacity { per_second: 50.0, .. }))),
        "{told:?}"
    );
    assert_eq!(told.confidence, Confidence::Low);
}

fn calls_mut(world: &mut World) -> impl Iterator<Item = &mut CallRecord> {
    world.records.iter_mut().filter_map(|record| match record {
        Record::Call(call) => Some(call),
        Record::Cell(_) | Record::Wire(_) | Record::Rollup(_) => None,
    })
}

/// What `load` says where at the rates that are sustained some calls fail; all of them are answered,
/// or none is.
fn headline(error: Option<&str>) -> String {
    let mut world = world_of("load", elastic(), 1);
    // So few that a failure rate of 0.1 % explains them.
    for call in calls_mut(&mut world).skip(40).step_by(1_000) {
        call.class = "fault".to_owned();
        call.error = error.map(str::to_owned);
    }
    told_of(&world).remove(0).sentence
}

#[test]
fn headlines_of_load_carry_what_failed() {
    let told = played("load", &elastic(), 1).remove(0).sentence;
    assert!(told.ends_with("; no call failed"), "{told}");
    let told = headline(None);
    assert!(told.ends_with(" % of calls failed, all with a response"), "{told}");
    let told = headline(Some("timeout"));
    assert!(told.ends_with(" % of calls failed, all without a response"), "{told}");
}

#[test]
fn a_break_in_the_last_stage_alone_is_not_sure() {
    for (failing, confidence) in [(4, Confidence::Medium), (60, Confidence::High)] {
        let mut world = world_of("load", elastic(), 1);
        let cells = world.records.iter().filter_map(Record::cell);
        let last = cells.map(|cell| cell.cell).max().expect("a stage");
        let mut calls: Vec<_> = calls_mut(&mut world).filter(|call| call.cell == last).collect();
        let share = calls.len() / (2 * failing);
        calls.iter_mut().step_by(share).for_each(|call| call.class = "fault".to_owned());
        let told = told_of(&world).remove(0);
        assert!(
            matches!(
                told.finding,
                Finding::Capacity(Found(LoadCapacity { per_second: 300.0, .. }))
            ),
            "{told:?}"
        );
        assert_eq!(told.confidence, confidence, "{failing}: {told:?}");
    }
}

#[test]
fn users_show_no_capacity() {
    let mut world = world_of("load", shaped(), 1);
    for record in &mut world.records {
        if let Record::Cell(cell) = record {
            let rate = cell.factors.remove("rate").expect("a rate");
            cell.factors.insert("users".to_owned(), rate);
        }
    }
    let told = told_of(&world);
    assert_eq!(told.len(), 1, "{told:#?}");
    assert!(matches!(&told[0].finding, Finding::Users { stages } if stages.len() == 6), "{told:?}");
    let sentence = &told[0].sentence;
    assert!(sentence.starts_with("25 users: 2"), "{sentence}");
    assert!(
        sentence.ends_with("; and 1 more stage") && !sentence.contains("Sustains"),
        "{sentence}"
    );
}

#[test]
fn answers_of_three() {
    let mut world = World::new(5, vec![metered(), shaped(), elastic()]);
    for target in 0..3 {
        world.play("fresh", target);
        world.play("reach", target);
    }
    world.agree(200);
    let told = told_of(&world);
    let of = |experiment: &str, target: u32| -> Vec<&str> {
        let its = told.iter().filter(|v| v.experiment == experiment && v.target == target);
        its.map(|verdict| verdict.sentence.as_str()).collect()
    };
    assert_eq!(of("agree", 0), ["All 200 answers agree with the other targets"]);
    assert_eq!(of("agree", 1), ["5 of 200 answers differ from most targets (such as eth_getLogs)"]);
    let lag = told.iter().find(|v| v.experiment == "fresh" && v.target == 1).expect("a lag");
    let Finding::Lag(Found(BlockLag { ms, .. })) = lag.finding else { panic!("{lag:?}") };
    near(ms, 400.0, &told);
    assert!(
        of("fresh", 2)[0].starts_with("New blocks appear no later than at the other targets"),
        "{told:?}"
    );
    assert_eq!(
        of("reach", 2),
        [
            "Batch: served for at least 1,000 calls",
            "Log search: served for at least 100,000 blocks",
            "State: served for the newest 128 blocks, not for 10,000",
            "1 of 3 methods are served; missing: debug_traceCall, trace_block",
            "Calls over WebSocket are not served",
        ]
    );
}

#[test]
fn two_that_differ_are_both_told() {
    let mut world = World::new(5, vec![shaped(), elastic()]);
    world.agree(100);
    let told = told_of(&world);
    for verdict in &told {
        let finding = &verdict.finding;
        assert!(matches!(
            finding,
            Finding::Answers(Found(AnswersDiffer { calls: 3, of: 100, outvoted: 0, .. }))
        ));
        assert_eq!(verdict.confidence, Confidence::Medium);
    }
    assert_eq!(told.len(), 2);
}

/// Plays an experiment and spoils the times of every `nth` cell.
fn overloaded(dials: Dials, experiment: &str, nth: usize) -> ExperimentVerdict {
    let mut world = world_of(experiment, dials, 7);
    world.overload(experiment, nth);
    let mut told = told_of(&world);
    assert_eq!(told.len(), 1, "{experiment}: {told:#?}");
    told.remove(0)
}

#[test]
fn a_generator_that_fell_behind_concludes_nothing_from_times() {
    for experiment in ["throttle", "load", "protocol"] {
        let told = overloaded(shaped(), experiment, 1);
        let begin = "inconclusive: too few sound samples (the generator fell behind in ";
        assert!(told.sentence.starts_with(begin), "{experiment}: {}", told.sentence);
        assert_eq!(told.confidence, Confidence::None);
    }
}

#[test]
fn what_was_refused_was_refused_however_late_it_was_seen() {
    let told = overloaded(metered(), "rate", 1);
    assert_eq!(told.sentence, "Rate limit: 125 req/s sustained; excess gets 429");
    assert_eq!(told.confidence, Confidence::High);
    let told = overloaded(metered(), "window", 1);
    assert!(
        told.sentence.starts_with("Token bucket: 125 req/s sustained, burst 125"),
        "{}",
        told.sentence
    );
}

#[test]
fn a_few_cells_are_left_out_and_the_others_decide() {
    let told = overloaded(shaped(), "throttle", 6);
    assert!(matches!(told.finding, Finding::Shaping(Found(_))), "{told:#?}");
    assert_eq!(told.confidence, Confidence::Medium);
    let last = told.evidence.last().map(String::as_str).unwrap_or_default();
    assert!(last.ends_with("cells are left out: the generator fell behind"), "{told:#?}");
}

#[test]
fn a_cell_in_which_nothing_was_sent_bears_nothing() {
    let mut world = world_of("streams", shaped(), 7);
    world.records.retain(|record| record.call().is_none());
    for record in &mut world.records {
        if let Record::Cell(cell) = record {
            cell.calls = 0;
        }
    }
    let told = told_of(&world);
    assert_eq!(told[0].sentence, "inconclusive: no cell was completed");
}

#[test]
fn what_an_interrupted_cell_left_counts_for_nothing() {
    let mut world = world_of("rate", metered(), 7);
    let whole = told_of(&world);
    let calls = world.records.iter().filter_map(Record::call).filter(|call| call.cell == 1);
    let left = calls.map(|call| {
        let class = "throttled".to_owned();
        Record::Call(CallRecord { begun_at: 5, class, ..call.clone() })
    });
    world.records.extend(left.collect::<Vec<_>>());
    assert_eq!(told_of(&world), whole);
}

#[test]
fn a_connection_that_was_opened_before_its_cell_counts() {
    let mut world = world_of("streams", elastic(), 7);
    for record in &mut world.records {
        if let Record::Wire(wire) = record {
            wire.at -= 500_000;
        }
    }
    let told = told_of(&world);
    assert_eq!(
        told[0].sentence,
        "At most 128 concurrent streams per connection (announced; 3 of 3)"
    );
}

#[test]
fn the_same_records_say_the_same() {
    let mut world = World::new(9, vec![metered(), shaped(), elastic()]);
    world.play("protocol", 2);
    world.play("throttle", 1);
    let first = told_of(&world);
    assert_eq!(told_of(&world), first);
    let text = serde_json::to_string(&first).expect("plain data");
    assert_eq!(serde_json::from_str::<Vec<ExperimentVerdict>>(&text).expect("plain data"), first);
}
