//! Which traces are begun, continued and kept, and why attempts were made.

use futures_util::FutureExt as _;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use wellhead_dispatch::{Abandoned, Attempt, Heard};
use wellhead_eth::MethodTable;
use wellhead_upstream::{Slot, VerdictClass};

use super::*;

const RULES: TraceRules = TraceRules {
    sample: 0.0,
    parent: ParentMode::Continue,
    errors: true,
    hedged: true,
    slow: Duration::from_secs(1),
    per_second: 10,
};
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0";

fn parent(flag: &str) -> Option<TraceContext> {
    let parent = TraceContext::parse(format!("{PARENT}{flag}").as_bytes());
    assert!(parent.is_some());
    parent
}

/// How many of 10,000 requests with this parent are sampled at their begin.
fn sampled(rules: TraceRules, parent: Option<TraceContext>) -> usize {
    let (tracer, _traces) = Tracer::new(rules, 1, wellhead_dispatch::now());
    let mut rng = SmallRng::seed_from_u64(1);
    (0..10_000)
        .filter(|_| tracer.begin(parent.map(Box::new), &mut rng).seed.context().is_sampled)
        .count()
}

#[test]
fn as_many_are_sampled_as_the_settings_say() {
    let of = |sample| sampled(TraceRules { sample, ..RULES }, None);
    assert_eq!((of(0.0), of(1.0)), (0, 10_000));
    assert!((60..=140).contains(&of(0.01)), "{}", of(0.01));
    assert!((4_800..=5_200).contains(&of(0.5)), "{}", of(0.5));
}

#[test]
fn other_rules_sample_otherwise_into_one_queue_within_one_rate() {
    let now = wellhead_dispatch::now();
    let (first, mut traces) = Tracer::new(RULES, 100, now);
    let second = first.with_rules(TraceRules { sample: 1.0, ..RULES });
    let mut rng = SmallRng::seed_from_u64(1);
    let causes = [&first, &second].map(|tracer| tracer.begin(None, &mut rng).cause);
    assert_eq!(causes, [None, Some(TraceCause::Sample)]);
    // Ten a second: what one has used is gone for the other.
    let take = |tracer: &Tracer| tracer.intake.bucket.take(1.0, tracer.pace, Duration::ZERO);
    assert!((0..5).all(|_| take(&first).is_ok() && take(&second).is_ok()));
    assert!(take(&first).is_err() && take(&second).is_err());
    first.counts().count_sent(3);
    assert_eq!(second.counts().sent(), 3);
    drop(first);
    assert!(traces.next().now_or_never().is_none(), "the second may have more");
    drop(second);
    assert!(traces.next().now_or_never().is_some_and(|next| next.is_none()));
}

#[test]
fn a_client_decides_only_where_it_is_followed() {
    let of =
        |mode, sample, flag| sampled(TraceRules { parent: mode, sample, ..RULES }, parent(flag));
    assert_eq!(of(ParentMode::Continue, 0.0, "1"), 0, "a client cannot force a sample");
    assert_eq!(of(ParentMode::Continue, 1.0, "0"), 10_000, "nor prevent one");
    assert_eq!(of(ParentMode::Ignore, 0.0, "1"), 0);
    assert_eq!(of(ParentMode::Follow, 0.0, "1"), 10_000);
    assert_eq!(of(ParentMode::Follow, 1.0, "0"), 0);
    assert_eq!(
        sampled(TraceRules { parent: ParentMode::Follow, sample: 1.0, ..RULES }, None),
        10_000
    );
}

#[test]
fn a_trace_is_continued_unless_clients_are_ignored() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut begin = |mode| {
        let rules = TraceRules { parent: mode, ..RULES };
        let (tracer, _traces) = Tracer::new(rules, 1, wellhead_dispatch::now());
        let seed = tracer.begin(parent("1").map(Box::new), &mut rng).seed;
        (seed.context(), seed.parent())
    };
    let given = parent("1").expect("sound");
    for mode in [ParentMode::Continue, ParentMode::Follow] {
        let (context, parent) = begin(mode);
        assert_eq!((context.trace_id, parent), (given.trace_id, Some(given.span_id)));
        assert_ne!(context.span_id, given.span_id);
    }
    let (context, parent) = begin(ParentMode::Ignore);
    assert_eq!(parent, None);
    assert_ne!(context.trace_id, given.trace_id);
}

#[test]
fn what_failed_was_hedged_or_slow_is_kept() {
    let (fast, slow) = (Duration::from_millis(999), Duration::from_secs(1));
    let check = |rules: TraceRules, is_error, is_hedged, took, expected: Option<TraceCause>| {
        assert_eq!(rules.cause(is_error, is_hedged, took), expected);
    };
    check(RULES, false, false, fast, None);
    check(RULES, false, false, slow, Some(TraceCause::Slow));
    check(RULES, false, true, slow, Some(TraceCause::Hedged));
    check(RULES, true, true, slow, Some(TraceCause::Error));
    let none = TraceRules { errors: false, hedged: false, ..RULES };
    check(none, true, true, fast, None);
    check(none, true, true, slow, Some(TraceCause::Slow));
}

/// A call whose attempts were sent at `after..ended` (milliseconds) of upstreams in order, without a
/// verdict where they were abandoned.
fn call(method: &'static str, attempts: &[(u64, u64, bool)], heard: Option<Heard>) -> TracedCall {
    let mut trail = Trail { heard, ..Trail::default() };
    for ((after, ended, is_abandoned), slot) in attempts.iter().zip((0..).map(Slot)) {
        let after = Duration::from_millis(*after);
        let took = Duration::from_millis(*ended) - after;
        match is_abandoned {
            true => trail.abandoned.push(Abandoned { slot, after, took }),
            false => trail.attempts.push(Attempt {
                slot,
                after,
                took,
                class: VerdictClass::Answer,
                rule: "result",
                learnt: None,
                detail: String::new(),
            }),
        }
    }
    let now = wellhead_dispatch::now();
    TracedCall {
        row: MethodTable::standard().row(method),
        method: method.into(),
        outcome: CallOutcome::Answered,
        found: None,
        began: now,
        ended: now,
        took: Duration::ZERO,
        trail,
    }
}

#[test]
fn an_attempt_says_why_it_was_made() {
    let check = |method, attempts: &[(u64, u64, bool)], heard, expected: &str| {
        let call = call(method, attempts, heard);
        let mut found: Vec<_> = span::attempts_of(&call.trail)
            .map(|it| span::attempt_kind(&call, &it).word())
            .collect();
        // Those that ended come first in a trail.
        found.sort_unstable();
        assert_eq!(found.join(" "), expected, "{method} {attempts:?}");
    };
    check("eth_call", &[(0, 9, false)], None, "first");
    check("eth_call", &[(0, 9, false), (9, 20, false)], None, "first retry");
    check("eth_call", &[(0, 12, true), (9, 12, false)], None, "first hedge");
    check(
        "eth_call",
        &[(0, 12, false), (9, 15, false), (15, 16, false)],
        None,
        "first hedge retry",
    );
    check("eth_sendRawTransaction", &[(0, 9, false), (0, 9, true)], None, "broadcast first");
    check("eth_getLogs", &[(0, 9, false), (0, 9, false)], None, "first part");
    let heard = Some(Heard { agreed: 2, heard: 2 });
    check("eth_call", &[(0, 9, false), (0, 9, false)], heard, "first quorum");
}
