//! Whole polls, played without a clock, a socket or a task.

use wellhead_eth::MethodTable;
use wellhead_transport::Sent;

use super::*;
use crate::attempt::AttemptResult;
use crate::attempts::Attempts;
use crate::bounds::Bounds;
use crate::decide::CallTerms;
use crate::decide::tests::{Actor, Seen, class_of, name};
use crate::job::Job;

const MS: Duration = Duration::from_millis(1);
/// No poll takes more steps.
const STEPS_MAX: usize = 40;

fn quorum(agree: usize, of: usize) -> Quorum {
    Quorum { agree, of, ..Quorum::default() }
}

/// Plays a poll over `cast`. Awaited answers come in the order in which they were asked for and take
/// the next word of `script`: a letter is a value, `fault` and `missing` are no vote, `slow` is none
/// yet. When the script is over no answer comes.
fn play(quorum: Quorum, largest: bool, cast: &str, script: &str) -> String {
    let began = crate::now();
    let actors = Actor::cast(cast, began);
    let method = "eth_call";
    let job = Job::new(MethodTable::standard().row(method), method, began, began + MS * 9_000);
    let bounds = Bounds::default();
    let terms = CallTerms { job: &job, bounds: &bounds, is_one_tier: false };
    let ballot = Ballot { quorum, is_final: true, largest };
    let (mut attempts, mut poll) = (Attempts::default(), Poll::new(ballot, job.deadline));
    let (mut now, mut script, mut steps) = (began, script.split_whitespace(), Vec::new());
    loop {
        assert!(steps.len() < STEPS_MAX, "it does not end: {steps:?}");
        let seen = Seen::of(&actors, &attempts, began, now);
        let scene = Scene { attempts: &attempts, candidates: &seen, terms, now };
        let (step, position, _) = poll.next(&scene, |range| range.end / 2);
        poll.position = position;
        match step {
            PollStep::Finish | PollStep::Call(CallStep::Finish(_)) => break,
            PollStep::Call(CallStep::Send(SendStep { slot, price, .. })) => {
                let price = if price == AttemptPrice::Retry { "$" } else { "" };
                steps.push(format!("{}{price}", name(slot)));
                let tier = seen.0[slot.index()].tier;
                poll.sent(PendingVote { slot, tier, began: now, noted: None });
            }
            PollStep::Call(CallStep::Hold { slot, held }) => {
                steps.push(format!("hold:{}", name(slot)));
                attempts.hold(slot, held);
            }
            PollStep::Call(CallStep::Pause { until }) => {
                steps.push(format!("pause{}", (until - now).as_millis()));
                now = until;
            }
            PollStep::Call(CallStep::Turn(step)) => {
                steps.push("turn".to_owned());
                attempts.held_by = None;
                now += step.by.first.wait;
                let slot = step.by.slots.iter().next().expect("one at least");
                let tier = seen.0[slot.index()].tier;
                poll.sent(PendingVote { slot, tier, began: now, noted: None });
            }
            PollStep::Call(CallStep::BeginRound { .. }) => panic!("a poll has no rounds"),
            PollStep::Await => match script.next() {
                None => {
                    steps.push("late".to_owned());
                    now = poll.until;
                }
                Some("slow") => {
                    steps.push("slow".to_owned());
                    if let Some(beside) = poll.beside(false, TierScope::Best) {
                        poll.ask_beside(beside);
                    }
                }
                Some(word) => {
                    let PendingVote { slot, tier, began, .. } = poll.pending.remove(0);
                    let class = if word.len() == 1 { "ok" } else { word };
                    let payload = Payload::None { detail: String::new() };
                    let verdict = Verdict::new(class_of(class), "test", payload);
                    let value = match largest {
                        true => VoteValue::Number(u64::from(word.as_bytes()[0])),
                        false => VoteValue::Digest([word.as_bytes()[0]; 32]),
                    };
                    let ended = now + MS;
                    let settled = AttemptResult::whole(verdict, began, ended, Sent::Maybe);
                    now = ended;
                    if class == "ok" {
                        attempts.note(&job, slot, &settled);
                        poll.votes.push(Vote { slot, tier, value, verdict: settled.verdict });
                    } else {
                        attempts.end(&job, slot, tier, settled);
                    }
                }
            },
        }
    }
    let end = match poll.end(attempts.is_too_large()) {
        PollEnd::Nothing => "nothing".to_owned(),
        PollEnd::Fail(failure) => format!("{failure:?}"),
        PollEnd::Serve(leader) => format!("serve:{}", name(poll.votes[leader].slot)),
    };
    format!("{} {end}", steps.join(" "))
}

#[track_caller]
fn check(quorum: Quorum, cast: &str, script: &str, expected: &str) {
    assert_eq!(play(quorum, false, cast, script), expected, "{cast} | {script}");
}

#[test]
fn as_many_are_asked_as_still_have_to_agree() {
    check(quorum(2, 3), "a b c d", "x x", "a b serve:a");
    check(quorum(2, 3), "a b c d", "x y x", "a b c serve:a");
    check(quorum(2, 3), "a b c d", "x y z", "a b c Disputed { agreed: 1, heard: 3, agree: 2 }");
    check(quorum(3, 3), "a b c d", "x y", "a b c Disputed { agreed: 1, heard: 2, agree: 3 }");
    check(quorum(3, 5), "a b c d e", "x y x y x", "a b c d e serve:a");
    check(quorum(1, 1), "a b", "x", "a serve:a");
}

#[test]
fn one_that_fails_is_replaced_and_asked_again_when_none_is_left() {
    check(quorum(2, 3), "a b c", "fault x x", "a b c serve:b");
    check(quorum(2, 3), "a b", "fault x x", "a b pause50 a$ serve:b");
    check(quorum(2, 3), "a b", "missing x", "a b TooFew { heard: 1, agree: 2 }");
    check(
        quorum(2, 3),
        "a b",
        "fault fault fault fault fault fault",
        "a b pause50 a$ b$ pause100 a$ b$ nothing",
    );
    check(quorum(2, 3), "a b:rests", "x", "a TooFew { heard: 1, agree: 2 }");
    check(quorum(2, 3), "a b:lags", "x x", "a b serve:a");
}

#[test]
fn one_that_is_slow_is_joined_by_one_that_may_be_heard() {
    check(quorum(2, 3), "a b c d", "x slow slow x x", "a b slow c slow d serve:a");
    check(quorum(2, 3), "a b c:fallback", "x slow", "a b slow late TooFew { heard: 1, agree: 2 }");
    check(quorum(2, 3), "a b:fallback c:fallback", "x slow y x", "a b slow c serve:a");
    check(quorum(2, 3), "a b", "x", "a b late TooFew { heard: 1, agree: 2 }");
}

#[test]
fn one_that_asked_for_a_pause_is_waited_for() {
    check(quorum(2, 3), "a b:paused300 c", "x x", "a hold:b c serve:a");
    check(quorum(2, 3), "a b:paused300", "x x", "a hold:b hold:b turn serve:a");
}

#[test]
fn too_few_or_a_dispute_end_as_the_settings_say() {
    let most = Quorum { on_dispute: Otherwise::MostSaid, ..quorum(2, 3) };
    check(most, "a b c", "x y z", "a b c serve:a");
    check(most, "a b", "x", "a b late TooFew { heard: 1, agree: 2 }");
    let most = Quorum { on_low_participation: Otherwise::MostSaid, ..quorum(2, 3) };
    check(most, "a b:rests", "x", "a serve:a");
    check(most, "a", "", "a late nothing");
    check(quorum(2, 3), "a b", "x wide", "a b nothing");
}

#[test]
fn the_largest_number_wins_where_each_knows_a_part() {
    let told = play(quorum(2, 3), true, "a b c", "x y");
    assert_eq!(told, "a b serve:b");
}
