//! What a poll does next: [`crate::decide`] for a call that several upstreams must answer alike.
//!
//! | while | the next step |
//! |---|---|
//! | enough agree, no agreement can be had, or the time is over | the end |
//! | fewer are awaited than still have to agree, or one is to be asked beside a slow one | the next candidate that is up and has no vote: [`CallStep::Send`], or [`CallStep::Hold`] for one that asked for a pause |
//! | one is awaited | [`PollStep::Await`] |
//! | one that has no vote holds the call | a wait for its turn |
//! | one failed for a moment only | a pause, and those that failed are asked again ([`ROUNDS_MAX`]) |
//! | none of these | the end |

use std::cmp::Ordering;
use std::ops::Range;
use std::time::{Duration, Instant};

use wellhead_eth::{canonical, keccak256};
use wellhead_jsonrpc::raw;
use wellhead_upstream::{Payload, Slot, Tier, Verdict, VerdictClass};

use crate::ballot::{Ballot, Otherwise, Quorum};
use crate::bounds::TierScope;
use crate::candidate::{Candidate, Candidates};
use crate::decide::{
    AttemptPrice, CallStep, ROUND_PAUSE_BASE, Scene, SendStep, TurnStep, WaitScope,
};
use crate::outcome::Failure;

/// Upstreams that failed are asked again at most this often.
const ROUNDS_MAX: u32 = 2;

/// What one upstream said, in the form in which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VoteValue {
    /// The digest of a result, or of the data of a revert.
    Digest([u8; 32]),
    /// A number, where the largest wins.
    Number(u64),
    /// A refusal, or that there is nothing.
    Class(VerdictClass),
}

/// One upstream's answer.
pub(crate) struct Vote {
    pub(crate) slot: Slot,
    pub(crate) tier: Tier,
    pub(crate) value: VoteValue,
    pub(crate) verdict: Verdict,
}

/// An upstream that was asked and has not answered yet.
pub(crate) struct PendingVote {
    pub(crate) slot: Slot,
    pub(crate) tier: Tier,
    pub(crate) began: Instant,
    /// When it was last noted that it takes long.
    pub(crate) noted: Option<Instant>,
}

/// A place in the order of the candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PollPosition {
    /// How often those that failed were asked again.
    rounds: u32,
    /// The next candidate.
    place: usize,
    /// One is to be asked beside a slow one, which was paid for.
    beside: Option<BesideTerms>,
}

/// What an attempt beside a slow one costs, and where it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BesideTerms {
    pub(crate) price: AttemptPrice,
    /// To no dearer tier.
    pub(crate) dearest: Option<Tier>,
}

/// The votes so far.
pub(crate) struct Poll {
    pub(crate) ballot: Ballot,
    pub(crate) votes: Vec<Vote>,
    pub(crate) pending: Vec<PendingVote>,
    pub(crate) until: Instant,
    pub(crate) position: PollPosition,
}

/// What to do next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PollStep {
    /// As for any call.
    Call(CallStep),
    /// Wait for the next answer.
    Await,
    /// Count the votes.
    Finish,
}

/// How a poll ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollEnd {
    /// There is no vote, or the client can ask for less.
    Nothing,
    /// Too few agree.
    Fail(Failure),
    /// The vote there is passed on.
    Serve(usize),
}

/// What a verdict says of the chain, if anything.
pub(crate) fn value(verdict: &Verdict, is_there: bool, ballot: Ballot) -> Option<VoteValue> {
    if !verdict.class.speaks_of_chain() {
        return None;
    }
    match (verdict.class, &verdict.payload) {
        (VerdictClass::Answer, Payload::Result(result)) => match ballot.largest {
            true => raw::quantity(result).map(VoteValue::Number),
            false => Some(VoteValue::Digest(keccak256(&canonical(result)))),
        },
        (VerdictClass::Reverted, Payload::Error(error)) => {
            let data = raw::scan_error(error).and_then(|error| error.data.map(canonical));
            Some(data.map_or(VoteValue::Class(VerdictClass::Reverted), |it| {
                VoteValue::Digest(keccak256(&it))
            }))
        }
        // That the block is not there says that this upstream does not have it.
        (VerdictClass::Null, _) => (!is_there).then_some(VoteValue::Class(VerdictClass::Null)),
        (VerdictClass::CallerFault, _) => Some(VoteValue::Class(VerdictClass::CallerFault)),
        _ => None,
    }
}

impl Poll {
    pub(crate) fn new(ballot: Ballot, until: Instant) -> Self {
        let of = ballot.quorum.of;
        let (votes, pending) = (Vec::with_capacity(of), Vec::with_capacity(of));
        Self { ballot, votes, pending, until, position: PollPosition::default() }
    }

    /// The next step, where the poll is then, and whether the request may begin no exchange that
    /// was wanted.
    pub(crate) fn next(
        &self,
        scene: &Scene<'_, impl Candidates>,
        draw: impl FnOnce(Range<Duration>) -> Duration,
    ) -> (PollStep, PollPosition, bool) {
        let Scene { attempts, terms, now, .. } = *scene;
        let mut at = self.position;
        if self.is_over() || now >= self.until {
            return (PollStep::Finish, at, false);
        }
        let asked_max = terms.bounds.attempts_max.max(1) + self.ballot.quorum.of - 1;
        let may_begin = terms.may_begin(attempts.begun);
        let mut is_spent = false;
        loop {
            let is_wanted = at.beside.is_some() || self.pending.len() < self.wanted();
            if is_wanted && attempts.count() + self.pending.len() < asked_max {
                is_spent |= !may_begin;
                if may_begin && let Some((step, at)) = self.another(scene, at) {
                    return (PollStep::Call(step), at, is_spent);
                }
            }
            at.place = 0;
            if at.beside.take().is_none() {
                break;
            }
        }
        if !self.pending.is_empty() {
            return (PollStep::Await, at, is_spent);
        }
        if attempts.count() >= asked_max || !may_begin {
            return (PollStep::Finish, at, is_spent);
        }
        let heard = self.votes.iter().map(|vote| vote.slot).collect();
        if let Some(by) = scene.holders().and_then(|by| by.without(heard)) {
            let (price, scope) = (AttemptPrice::Nothing, WaitScope::All);
            let step = TurnStep { by, until: self.until, price, scope };
            return (PollStep::Call(CallStep::Turn(step)), at, is_spent);
        }
        let most = ROUND_PAUSE_BASE.saturating_mul(1 << at.rounds);
        let until = now + draw(Duration::ZERO..most);
        at.rounds += 1;
        let mut failed = attempts.trail.attempts.iter().filter(|it| !self.has_heard(it.slot));
        let may_heal = failed.any(|it| attempts.may_have_been_a_moment(it.slot));
        let step = match may_heal && at.rounds <= ROUNDS_MAX && until < self.until {
            true => PollStep::Call(CallStep::Pause { until }),
            false => PollStep::Finish,
        };
        (step, at, is_spent)
    }

    /// The best upstream from this place on that is up and has no vote yet: those that are fit
    /// first. One that is behind may have the block by now, and says that it is missing where it
    /// has not.
    fn another(
        &self,
        scene: &Scene<'_, impl Candidates>,
        at: PollPosition,
    ) -> Option<(CallStep, PollPosition)> {
        let dearest = at.beside.and_then(|beside| beside.dearest);
        let is_possible = |it: &Candidate| {
            it.is_up()
                && dearest.is_none_or(|dearest| it.tier <= dearest)
                && !self.pending.iter().any(|pending| pending.slot == it.slot)
                && !self.has_heard(it.slot)
        };
        for place in at.place..scene.candidates.count() {
            let candidate = scene.candidates.at(place);
            let Candidate { slot, is_new, .. } = candidate;
            let attempts = scene.attempts.trail.attempts.iter();
            let times = attempts.filter(|it| it.slot == slot).count();
            // What failed for a moment only is asked again when its time has come.
            let is_in_turn = is_new
                || (times <= at.rounds as usize && scene.attempts.may_have_been_a_moment(slot));
            if !is_possible(&candidate) || !is_in_turn {
                continue;
            }
            let price = if is_new { AttemptPrice::Nothing } else { AttemptPrice::Retry };
            let step = match candidate.pause {
                Some(held) => CallStep::Hold { slot, held },
                None => CallStep::Send(SendStep { slot, price, gives_way: false }),
            };
            return Some((step, PollPosition { place: place + 1, ..at }));
        }
        None
    }

    /// Whether one is asked beside an attempt that takes long: freely while no more are asked than
    /// may be heard, and one more where that is paid for.
    pub(crate) fn beside(&self, is_lost: bool, extra_tiers: TierScope) -> Option<BesideTerms> {
        let asked = self.votes.len() + self.pending.len();
        let price = match asked.cmp(&self.ballot.quorum.of) {
            Ordering::Less => AttemptPrice::Nothing,
            Ordering::Equal if is_lost => AttemptPrice::Counted,
            Ordering::Equal => AttemptPrice::Hedge,
            Ordering::Greater => return None,
        };
        // One that is merely slow will answer: a dearer tier is asked where one fails or
        // contradicts.
        let tiers =
            self.pending.iter().map(|it| it.tier).chain(self.votes.iter().map(|it| it.tier));
        let dearest = match extra_tiers {
            TierScope::Best if !is_lost => tiers.max(),
            TierScope::Best | TierScope::All => None,
        };
        Some(BesideTerms { price, dearest })
    }

    /// One is asked beside an attempt that takes long.
    pub(crate) fn ask_beside(&mut self, beside: BesideTerms) {
        self.position.beside = Some(beside);
        self.position.place = 0;
    }

    /// The call was sent there.
    pub(crate) fn sent(&mut self, pending: PendingVote) {
        self.pending.push(pending);
        (self.position.place, self.position.beside) = (0, None);
    }

    /// How the poll ends.
    pub(crate) fn end(&self, is_too_large: bool) -> PollEnd {
        let Some((leader, votes)) = self.leader() else { return PollEnd::Nothing };
        let Quorum { agree, on_dispute, on_low_participation, .. } = self.ballot.quorum;
        let heard = self.votes.len();
        let is_disputed = self.is_disputed();
        if votes >= agree {
            return PollEnd::Serve(leader);
        }
        if !is_disputed && is_too_large {
            // The client can ask for less, and then all may answer.
            return PollEnd::Nothing;
        }
        match if is_disputed { on_dispute } else { on_low_participation } {
            Otherwise::MostSaid => PollEnd::Serve(leader),
            Otherwise::Fail if is_disputed => {
                PollEnd::Fail(Failure::Disputed { agreed: votes, heard, agree })
            }
            Otherwise::Fail => PollEnd::Fail(Failure::TooFew { heard, agree }),
        }
    }

    /// Whether the votes contradict each other.
    fn is_disputed(&self) -> bool {
        !self.ballot.largest && self.leader().is_some_and(|(_, votes)| votes < self.votes.len())
    }

    pub(crate) fn has_heard(&self, slot: Slot) -> bool {
        self.votes.iter().any(|vote| vote.slot == slot)
    }

    /// Which vote is served, and how many have its value: the first of those that most have.
    pub(crate) fn leader(&self) -> Option<(usize, usize)> {
        let votes =
            |value: &VoteValue| self.votes.iter().filter(|other| other.value == *value).count();
        let all = self.votes.iter().enumerate();
        if self.ballot.largest {
            // A refusal has nothing to add to what the others know.
            let number = |value: &VoteValue| match value {
                VoteValue::Number(number) => Some(*number),
                VoteValue::Digest(_) | VoteValue::Class(_) => None,
            };
            let place = all.max_by_key(|(place, it)| (number(&it.value), usize::MAX - place))?.0;
            return Some((place, self.votes.len()));
        }
        let (place, leader) =
            all.max_by_key(|(place, vote)| (votes(&vote.value), usize::MAX - place))?;
        Some((place, votes(&leader.value)))
    }

    /// How many more would have to say what most said.
    fn missing(&self) -> usize {
        let votes = self.leader().map_or(0, |(_, votes)| votes);
        self.ballot.quorum.agree.saturating_sub(votes)
    }

    /// How many may be asked at a time.
    fn wanted(&self) -> usize {
        self.missing().min(self.ballot.quorum.of.saturating_sub(self.votes.len()))
    }

    /// Whether enough agree, or as many were heard as may be.
    fn is_over(&self) -> bool {
        self.missing() == 0 || self.votes.len() + self.missing() > self.ballot.quorum.of
    }
}

#[cfg(test)]
mod tests;
