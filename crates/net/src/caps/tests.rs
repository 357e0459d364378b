//! What which ends teach, and for how long.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const BOUND: usize = 250;

fn end(manner: Manner, open: usize, requests: u64, silence: Duration) -> Ending {
    Ending { manner, open, peak: open, requests, called_off: 0, silence }
}

fn death(open: usize) -> Ending {
    end(Manner::Abrupt, open, 5000 + open as u64 * 1000, Duration::ZERO)
}

fn goodbye(open: usize) -> Ending {
    end(Manner::Orderly, open, 5000 + open as u64 * 1000, Duration::ZERO)
}

/// The caps after these ends, a minute apart.
fn after(endings: &[Ending]) -> LearntCaps {
    let caps = SharedCaps::default();
    let start = Instant::now();
    for (nth, ending) in endings.iter().enumerate() {
        caps.ended(ending, start + MINUTE * nth as u32);
    }
    let learnt = caps.learnt();
    assert_eq!(caps.streams(), learnt.streams.unwrap_or(usize::MAX));
    assert_eq!(caps.requests(), learnt.requests.unwrap_or(u64::MAX));
    assert_eq!(caps.idle(), learnt.idle.unwrap_or(Duration::MAX));
    learnt
}

#[test]
fn a_death_with_many_streams_open_teaches_at_once() {
    let streams = |endings: &[Ending]| {
        let learnt = after(endings);
        (learnt.streams, learnt.streams_fatal)
    };
    assert_eq!(streams(&[death(99)]), (Some(74), Some(99)));
    assert_eq!(streams(&[death(128)]), (Some(90), Some(128)));
    // More than it saw may have been on the way: what most servers bear is the cap.
    assert_eq!(streams(&[death(200)]), (Some(90), Some(200)));
    assert_eq!(streams(&[death(MANY)]), (Some(24), Some(MANY)));
    // Few streams are not the reason, nor are many after there were more.
    assert_eq!(streams(&[death(MANY - 1), death(MANY - 1)]), (None, None));
    assert_eq!(streams(&[Ending { peak: 140, ..death(99) }]), (None, None));
    // Those that were full before the lesson change nothing, those within it do.
    assert_eq!(streams(&[death(99), death(99), death(80)]), (Some(74), Some(80)));
    assert_eq!(streams(&[death(99), death(70)]), (Some(52), Some(70)));
}

#[test]
fn an_orderly_farewell_teaches_when_it_happens_again() {
    let streams = |endings: &[Ending]| after(endings).streams;
    assert_eq!(streams(&[goodbye(99)]), None);
    assert_eq!(streams(&[goodbye(99), goodbye(97)]), Some(72));
    assert_eq!(streams(&[goodbye(99), goodbye(60)]), None);
    assert_eq!(streams(&[goodbye(99), goodbye(60), goodbye(99)]), None);
}

#[test]
fn requests_teach_when_connections_end_after_as_many() {
    let after_requests = |counts: &[u64]| {
        let each = counts.iter().map(|n| end(Manner::Orderly, 3, *n, Duration::ZERO));
        after(&each.collect::<Vec<_>>()).requests
    };
    assert_eq!(after_requests(&[1000]), None);
    assert_eq!(after_requests(&[1000, 1000]), Some(900));
    assert_eq!(after_requests(&[1000, 985]), Some(886));
    assert_eq!(after_requests(&[1000, 1100]), None);
    assert_eq!(after_requests(&[1000, 5000, 1000]), None);
    assert_eq!(after_requests(&[1000, 1000, 5000, 1000]), Some(900));
    assert_eq!(after_requests(&[10, 10]), None, "replacing would cost more than it saves");
}

/// A call on which the server breaks, sent again and again, ends connections as well.
#[test]
fn abrupt_ends_teach_requests_when_there_are_three_alike() {
    let after_requests = |counts: &[u64]| {
        let each = counts.iter().map(|n| end(Manner::Abrupt, 3, *n, Duration::ZERO));
        after(&each.collect::<Vec<_>>()).requests
    };
    assert_eq!(after_requests(&[100, 100]), None);
    assert_eq!(after_requests(&[100, 100, 100]), Some(90));
    assert_eq!(after_requests(&[100, 100, 300, 100, 100]), None);
}

/// Seen with floods of calls that were called off at once: a server that bears a hundred resets
/// ended each connection after as many, which taught 90 requests for each.
#[test]
fn clients_that_go_away_teach_nothing() {
    let provoked =
        |manner, open, called_off| Ending { called_off, ..end(manner, open, 100, Duration::ZERO) };
    for manner in [Manner::Orderly, Manner::Abrupt] {
        for open in [0, 3, 60] {
            let ends = [provoked(manner, open, 25); 5];
            assert_eq!(after(&ends), LearntCaps::default(), "{manner:?} with {open} open");
        }
    }
    // A few that go away are everywhere, and are not the reason.
    let usual = [provoked(Manner::Orderly, 3, 24); 2];
    assert_eq!(after(&usual).requests, Some(90));
    let few = Ending { called_off: 9, ..end(Manner::Abrupt, 32, 33, Duration::ZERO) };
    assert_eq!(after(&[few]).streams, Some(24));
}

#[test]
fn silence_teaches_when_connections_end_after_as_long() {
    let after_silence = |seconds: &[f64]| {
        let each =
            seconds.iter().map(|s| end(Manner::Abrupt, 0, 3000, Duration::from_secs_f64(*s)));
        let learnt = after(&each.collect::<Vec<_>>());
        assert_eq!(learnt.requests, None, "the silence explains it");
        learnt.idle.map(|idle| idle.as_millis())
    };
    assert_eq!(after_silence(&[30.0]), None);
    assert_eq!(after_silence(&[30.0, 30.2]), Some(24_000));
    assert_eq!(after_silence(&[30.0, 50.0]), None);
    assert_eq!(after_silence(&[5.0, 5.9]), Some(4000));
    let busy = end(Manner::Abrupt, 1, 10, Duration::from_secs(30));
    assert_eq!(after(&[busy, busy]).idle, None, "it was not idle");
}

#[test]
fn what_an_outage_taught_is_taken_back() {
    let start = Instant::now();
    let caps = SharedCaps::default();
    caps.ended(&death(99), start);
    caps.was_down(start + Duration::from_secs(1));
    assert_eq!(caps.learnt(), LearntCaps::default());
    caps.ended(&death(99), start + MINUTE);
    caps.was_down(start + 2 * MINUTE);
    assert_eq!(caps.streams(), 74, "that was another time");
    caps.ended(&death(70), start + HOUR);
    caps.was_down(start + HOUR);
    assert_eq!((caps.streams(), caps.learnt().streams_fatal), (74, Some(99)));
    let orderly = end(Manner::Orderly, 0, 1000, Duration::ZERO);
    caps.ended(&orderly, start + HOUR);
    caps.ended(&orderly, start + HOUR);
    caps.was_down(start + HOUR);
    assert_eq!(caps.requests(), u64::MAX);
}

#[test]
fn what_a_ping_proved_is_doubted_only_by_a_second_death() {
    let start = Instant::now();
    let caps = SharedCaps::default();
    caps.proven(120, start);
    caps.ended(&death(110), start);
    assert_eq!(caps.streams(), usize::MAX);
    caps.ended(&death(110), start + MINUTE);
    assert_eq!(caps.streams(), 82);
    // Beyond what was proven it speaks for the cap.
    let caps = SharedCaps::default();
    caps.proven(120, start);
    caps.ended(&death(160), start);
    assert_eq!(caps.streams(), 120);
    // And not for ever.
    let caps = SharedCaps::default();
    caps.proven(120, start);
    caps.ended(&death(110), start + 2 * HOUR);
    assert_eq!(caps.streams(), 82);
}

#[test]
fn a_cap_is_tried_upwards_by_one_connection_at_a_time() {
    let start = Instant::now();
    let caps = SharedCaps::default();
    assert_eq!(caps.trial(BOUND, start), None, "nothing was learnt");
    caps.ended(&death(99), start);
    assert_eq!(caps.trial(BOUND, start + MINUTE), None, "not so soon");
    let mut now = start + TRIAL_EVERY;
    assert_eq!(caps.trial(BOUND, now), Some(84));
    now += TRIAL_EVERY;
    assert_eq!(caps.trial(BOUND, now), None, "one is under way");
    assert_eq!(caps.streams(), 74, "no other call tries");
    caps.proven(84, now);
    caps.trial_over();
    assert_eq!(caps.streams(), 84);
    let mut tried = Vec::new();
    for _ in 0..10 {
        now += TRIAL_EVERY;
        if let Some(trial) = caps.trial(BOUND, now) {
            tried.push(trial);
            caps.proven(trial, now);
            caps.trial_over();
        }
    }
    assert_eq!(tried, [89, 91, 92, 93], "never as much as killed one");
    // A trial that goes wrong costs its connection and no more.
    let caps = SharedCaps::default();
    caps.ended(&death(99), start);
    assert_eq!(caps.trial(BOUND, start + TRIAL_EVERY), Some(84));
    caps.ended(&death(80), start + TRIAL_EVERY);
    caps.trial_over();
    assert_eq!((caps.streams(), caps.learnt().streams_fatal), (74, Some(80)));
}

#[test]
fn nothing_is_believed_for_ever() {
    let start = Instant::now();
    let caps = SharedCaps::default();
    caps.ended(&death(99), start);
    let mut now = start + FORGET;
    let mut tried = Vec::new();
    while caps.streams() != usize::MAX {
        if let Some(trial) = caps.trial(BOUND, now) {
            tried.push(trial);
            caps.proven(trial, now);
            caps.trial_over();
        }
        now += TRIAL_EVERY;
    }
    assert_eq!(tried, [148, BOUND]);
    assert_eq!(caps.learnt().streams_fatal, None);
    let caps = SharedCaps::default();
    for _ in 0..2 {
        caps.ended(&end(Manner::Orderly, 0, 1000, Duration::ZERO), start);
        caps.ended(&end(Manner::Orderly, 0, 1000, MINUTE), start);
    }
    assert_eq!((caps.requests(), caps.idle()), (900, MINUTE * 4 / 5));
    caps.refresh(start + FORGET - MINUTE);
    assert_eq!((caps.requests(), caps.idle()), (900, MINUTE * 4 / 5));
    caps.refresh(start + FORGET);
    assert_eq!(caps.learnt(), LearntCaps::default());
}

#[test]
fn a_refusal_tells_the_number_itself() {
    let start = Instant::now();
    let caps = SharedCaps::default();
    caps.refused(3, start);
    assert_eq!(caps.streams(), usize::MAX, "it refuses whatever it is sent");
    for streams in [120, 99, 110] {
        caps.refused(streams, start);
    }
    assert_eq!((caps.streams(), caps.learnt().streams_fatal), (99, Some(100)));
}

#[test]
fn it_is_told_what_a_cap_rests_on() {
    let lesson = |endings: &[Ending]| after(endings).streams_lesson;
    assert_eq!(lesson(&[]), None);
    assert_eq!(lesson(&[death(100)]), Some(Lesson::Death));
    assert_eq!(lesson(&[goodbye(100)]), None);
    assert_eq!(lesson(&[goodbye(100), goodbye(101)]), Some(Lesson::Goaways));
    let caps = SharedCaps::default();
    let now = Instant::now();
    caps.refused(40, now);
    assert_eq!(caps.learnt().streams_lesson, Some(Lesson::Refusal));
    caps.ended(&death(35), now + MINUTE);
    assert_eq!(caps.learnt().streams_lesson, Some(Lesson::Death));
    // It was down: the earlier lesson stands.
    caps.was_down(now + MINUTE);
    assert_eq!(caps.learnt().streams_lesson, Some(Lesson::Refusal));
}
