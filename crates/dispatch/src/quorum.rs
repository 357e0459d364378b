//! Reads that several upstreams must answer alike.
//!
//! As many are asked at once as must agree. More are asked only when one fails, says
//! something else or takes long, up to as many as may be heard, so that agreement costs no
//! call that it does not need. Answers are compared in one form
//! ([`wellhead_eth::canonical`]); a revert by its data, as each client has its own words;
//! what is wrong with a call, and that something is not there, by that alone. Whatever says
//! nothing of the chain, a fault or a limit or missing history, is no word, and another
//! upstream is asked instead. Each upstream has one word, whatever it is asked.
//!
//! Those of the best tier are asked first, and of dearer ones as many as it takes: where fewer than
//! must agree are well there, or one fails or says something else. One that is merely slow is no
//! reason to ask a dearer tier, unless the settings say so.
//!
//! Once somebody has spoken, the others have [`Quorum::wait`]. Whoever said something else
//! than what was served is noted there ([`Upstream::note_dissent`]); that costs it no
//! health, because above the finalized block both may be honest, on two branches.
//!
//! Not promised: that two upstreams are two nodes, or that what they agree on is true.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rand::Rng;
use wellhead_eth::{CostClass, canonical, keccak256};
use wellhead_jsonrpc::raw;
use wellhead_upstream::{InFlight, Payload, Slot, Tier, Upstream, Verdict, VerdictClass};

use crate::attempt::{Settled, attempt};
use crate::attempts::Consequence;
use crate::ballot::{Ballot, Otherwise, Quorum};
use crate::bounds::TierScope;
use crate::candidate::{Candidate, Candidates};
use crate::context::RunContext;
use crate::decide::{AttemptPrice, ROUND_PAUSE_BASE, Scene, TurnStep, WaitScope};
use crate::hedge::is_lost;
use crate::now;
use crate::outcome::Failure;
use crate::run::{Run, try_pay};
use crate::trail::Heard;
use crate::wait_queue::Holders;

/// An attempt that takes long is looked at again after so long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What one upstream said, in the form in which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    /// The digest of a result, or of the data of a revert.
    Said([u8; 32]),
    /// A number, where the largest wins.
    Number(u64),
    /// A refusal, or that there is nothing.
    Class(VerdictClass),
}

/// One upstream's word.
struct Opinion {
    slot: Slot,
    word: Word,
    verdict: Verdict,
}

/// The words so far.
struct Poll {
    ballot: Ballot,
    opinions: Vec<Opinion>,
}

/// Who was asked and has not answered yet.
struct Asked {
    slot: Slot,
    began: Instant,
    noted: Option<Instant>,
}

type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, (Slot, Settled)>>;

/// What happened while a poll waited.
enum Event {
    Ended(Slot, Box<Settled>),
    /// Somebody takes long.
    Slow,
    /// The time is over.
    Late,
}

impl<'r> Run<'r> {
    /// Asks until enough agree, or none can be had.
    pub(crate) async fn by_quorum(
        &mut self,
        context: RunContext<'_>,
        ballot: Ballot,
    ) -> Consequence {
        let mut poll = Poll { ballot, opinions: Vec::with_capacity(ballot.quorum.of) };
        let mut waiting: Vec<Asked> = Vec::with_capacity(ballot.quorum.of);
        let mut under_way = UnderWay::new();
        let mut rounds = 0;
        let mut until = self.job.deadline;
        let kind = (self.job.row.class, ballot.quorum.wait);
        while !poll.is_over() && now() < until {
            debug_assert_eq!(
                waiting.len(),
                under_way.len(),
                "each upstream is asked once at a time"
            );
            while waiting.len() < poll.wanted()
                && let Some((slot, in_flight)) =
                    self.another(context, &poll, &waiting, (rounds, None))
            {
                self.send(context, (slot, in_flight), &under_way, &mut waiting);
            }
            if waiting.is_empty() {
                match self.turn_or_round(context, &poll, &mut rounds, until).await {
                    Some(Some(turn)) => self.send(context, turn, &under_way, &mut waiting),
                    Some(None) => {}
                    None => break,
                }
                continue;
            }
            match event(context, kind, &mut under_way, &waiting, until).await {
                Event::Late => break,
                Event::Slow => {
                    if let Some(turn) = self.in_place_of_slow(context, &poll, &mut waiting, rounds)
                    {
                        self.send(context, turn, &under_way, &mut waiting);
                    }
                }
                Event::Ended(slot, settled) => {
                    waiting.retain(|asked| asked.slot != slot);
                    context.worker.wait_queue().freed(slot);
                    if self.take(context, &mut poll, slot, *settled) {
                        return Consequence::Stop;
                    }
                    if poll.opinions.len() == 1 {
                        until = until.min(now() + ballot.quorum.wait);
                    }
                }
            }
        }
        drop(under_way);
        self.leave(context, &waiting);
        self.count(context, poll)
    }

    /// Sends the call to one that let it go.
    fn send<'a>(
        &self,
        context: RunContext<'a>,
        (slot, in_flight): (Slot, InFlight),
        under_way: &UnderWay<'a>,
        waiting: &mut Vec<Asked>,
    ) where
        'r: 'a,
    {
        let began = in_flight.began();
        let time_limit = self.time_limit(context, slot, began);
        let (row, body) = (self.job.row, self.bodies.of(self.job, slot));
        let limits = context.answer_limits(self.job, false, slot);
        let (upstream, transport) = (context.roster.upstream(slot), context.worker.transport(slot));
        waiting.push(Asked { slot, began, noted: None });
        under_way.push(Box::pin(async move {
            (slot, attempt(row, body, upstream, transport, in_flight, time_limit, limits).await)
        }));
    }

    /// The best who is up, has no word yet and lets the call go now: those who are fit first. Who
    /// is behind may have the block by now, and says that it is missing where it has not. None of
    /// a dearer tier than `dearest`, where one is given.
    fn another(
        &mut self,
        context: RunContext<'_>,
        poll: &Poll,
        waiting: &[Asked],
        (rounds, dearest): (u32, Option<Tier>),
    ) -> Option<(Slot, InFlight)> {
        let now = now();
        if self.attempts.count() + waiting.len() >= self.asked_max(context, poll)
            || !self.check_allowance(context)
        {
            return None;
        }
        let up: Vec<Candidate> = self.survey(context, now).all().filter(Candidate::is_up).collect();
        for candidate in up {
            let slot = candidate.slot;
            if dearest.is_some_and(|dearest| candidate.tier > dearest) {
                continue;
            }
            let is_under_way = waiting.iter().any(|asked| asked.slot == slot);
            if is_under_way || poll.has_heard(slot) || !self.may_be_asked(&candidate, rounds) {
                continue;
            }
            if let Some(held) = candidate.pause {
                context.roster.upstream(slot).note_held(held.bound);
                self.attempts.hold(slot, held);
                continue;
            }
            if !candidate.is_new && !context.worker.budgets().spend_retry(now) {
                continue;
            }
            if let Some(in_flight) = self.admit(context, slot, now) {
                return Some((slot, in_flight));
            }
        }
        None
    }

    /// Attempts of one call at most: one for each word, and those that others may have.
    fn asked_max(&self, context: RunContext<'_>, poll: &Poll) -> usize {
        context.bounds.attempts_max.max(1) + poll.ballot.quorum.of - 1
    }

    /// Whether the call was not sent there yet, or that failed for a moment only and its time
    /// has come again.
    fn may_be_asked(&self, candidate: &Candidate, rounds: u32) -> bool {
        let slot = candidate.slot;
        let times = self.attempts.trail.attempts.iter().filter(|it| it.slot == slot).count();
        candidate.is_new || (times <= rounds as usize && self.attempts.may_have_been_a_moment(slot))
    }

    /// Nobody is asked just now: waits for the turn at whoever holds the call, or for a
    /// moment before those who failed are asked again. `None`: neither would help.
    async fn turn_or_round(
        &mut self,
        context: RunContext<'_>,
        poll: &Poll,
        rounds: &mut u32,
        until: Instant,
    ) -> Option<Option<(Slot, InFlight)>> {
        if self.attempts.count() >= self.asked_max(context, poll) || !self.check_allowance(context)
        {
            return None;
        }
        if let Some(by) = self.holders_unheard(context, poll) {
            self.attempts.held_by = None;
            let (price, scope) = (AttemptPrice::Nothing, WaitScope::All);
            let step = TurnStep { by, until, price, scope };
            return Box::pin(self.turn(context, step)).await.ok().map(Some);
        }
        let may_heal =
            self.attempts.trail.attempts.iter().any(|it| {
                !poll.has_heard(it.slot) && self.attempts.may_have_been_a_moment(it.slot)
            });
        let most = ROUND_PAUSE_BASE.saturating_mul(1 << *rounds);
        let pause = context.worker.with_rng(|rng| rng.random_range(Duration::ZERO..most));
        *rounds += 1;
        if !may_heal || *rounds > ROUNDS_MAX || now() + pause >= until {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some(None)
    }

    /// The upstreams that hold the call and have no word yet.
    fn holders_unheard(&self, context: RunContext<'_>, poll: &Poll) -> Option<Holders> {
        let heard = poll.opinions.iter().map(|opinion| opinion.slot).collect();
        let (now, terms) = (now(), self.terms(context, false));
        let survey = self.survey(context, now);
        let scene = Scene { attempts: &self.attempts, candidates: &survey, terms, now };
        scene.holders()?.without(heard)
    }

    /// Somebody to ask beside one that takes long, if there is one: freely while no more are
    /// asked than may be heard, and one more where that is paid for.
    fn in_place_of_slow(
        &mut self,
        context: RunContext<'_>,
        poll: &Poll,
        waiting: &mut [Asked],
        rounds: u32,
    ) -> Option<(Slot, InFlight)> {
        let (row, now) = (self.job.row, now());
        let Quorum { of, wait, .. } = poll.ballot.quorum;
        let mut is_slow = false;
        for asked in waiting.iter_mut().filter(|it| now >= it.due(context, row.class, wait)) {
            let upstream = context.roster.upstream(asked.slot);
            let before = asked.noted.replace(now);
            if !row.class.is_heavy() {
                upstream.overdue(asked.began, before, now);
            }
            // One at a time: each costs a call.
            is_slow |= before.is_none() || upstream.is_silent(Duration::ZERO, now);
        }
        let slowest = waiting.iter().min_by_key(|asked| asked.began)?;
        let upstream = context.roster.upstream(slowest.slot);
        let is_lost = is_lost(upstream, row, slowest.began, now);
        let asked = poll.opinions.len() + waiting.len();
        let may_be = match asked.cmp(&of) {
            Ordering::Less => true,
            Ordering::Equal if is_lost => try_pay(context, AttemptPrice::Counted, now),
            Ordering::Equal => try_pay(context, AttemptPrice::Hedge, now),
            Ordering::Greater => false,
        };
        // Who is merely slow will answer: a dearer tier is asked where one fails or contradicts.
        let asked = waiting.iter().map(|it| it.slot).chain(poll.opinions.iter().map(|it| it.slot));
        let dearest = match context.bounds.extra_tiers {
            TierScope::Best if !is_lost => asked.map(|slot| context.tier(slot)).max(),
            TierScope::Best | TierScope::All => None,
        };
        if !is_slow || !may_be {
            return None;
        }
        self.another(context, poll, waiting, (rounds, dearest))
    }

    /// Records an attempt, and its word if it is one; true when the call cannot go on.
    fn take(
        &mut self,
        context: RunContext<'_>,
        poll: &mut Poll,
        slot: Slot,
        settled: Settled,
    ) -> bool {
        match word(&settled.verdict, self.job.is_there, poll.ballot) {
            Some(word) if !settled.no_room && !poll.has_heard(slot) => {
                self.attempts.note(self.job, slot, &settled);
                poll.opinions.push(Opinion { slot, word, verdict: settled.verdict });
                debug_assert!(
                    poll.opinions.len() <= poll.ballot.quorum.of,
                    "no more than may be heard"
                );
            }
            // What it says of the upstream is remembered; that it would end an ordinary call
            // is not asked.
            _ => {
                self.end(context, slot, settled);
            }
        }
        self.attempts.no_room
    }

    /// Those who are not waited for any more.
    fn leave(&mut self, context: RunContext<'_>, waiting: &[Asked]) {
        let now = now();
        for asked in waiting {
            context.worker.wait_queue().freed(asked.slot);
            self.attempts.abandon(self.job, asked.slot, asked.began, now);
        }
    }

    /// Decides, and notes who said something else.
    fn count(&mut self, context: RunContext<'_>, mut poll: Poll) -> Consequence {
        let Some((leader, votes)) = poll.leader() else { return Consequence::GoOn };
        let Quorum { agree, on_dispute, on_few, .. } = poll.ballot.quorum;
        let heard = poll.opinions.len();
        let is_disputed = votes < heard && !poll.ballot.largest;
        self.attempts.trail.heard = Some(Heard { agreed: votes, heard });
        let otherwise = if is_disputed { on_dispute } else { on_few };
        if votes < agree && !is_disputed && self.attempts.is_too_large() {
            // Whoever asked can ask for less, and then all may answer.
            return Consequence::GoOn;
        }
        if votes < agree && otherwise == Otherwise::Fail {
            self.attempts.dispute = Some(match is_disputed {
                true => Failure::Disputed { agreed: votes, heard, agree },
                false => Failure::TooFew { heard, agree },
            });
            if votes < heard {
                // Nobody knows who is right.
                poll.opinions.iter().for_each(|it| dissents(context, it, poll.ballot));
            }
            return Consequence::Stop;
        }
        if !poll.ballot.largest {
            let word = poll.opinions[leader].word.clone();
            let others = poll.opinions.iter().filter(|other| other.word != word);
            others.for_each(|other| dissents(context, other, poll.ballot));
        }
        let Opinion { slot, verdict, .. } = poll.opinions.swap_remove(leader);
        self.attempts.serve_this(slot, context.tier(slot), verdict);
        Consequence::Serve
    }
}

/// Those who failed are asked again so often.
const ROUNDS_MAX: u32 = 2;

/// Waits for the next answer of those who were asked.
async fn event(
    context: RunContext<'_>,
    (class, wait): (CostClass, Duration),
    under_way: &mut UnderWay<'_>,
    waiting: &[Asked],
    until: Instant,
) -> Event {
    debug_assert!(!under_way.is_empty(), "an upstream is waited for whenever this is called");
    let look = waiting.iter().map(|asked| asked.due(context, class, wait)).min();
    let wake = look.map_or(until, |look| look.min(until));
    match tokio::time::timeout_at(wake.into(), under_way.next()).await {
        Ok(Some((slot, settled))) => Event::Ended(slot, Box::new(settled)),
        Ok(None) => Event::Late,
        Err(_) if now() >= until => Event::Late,
        Err(_) => Event::Slow,
    }
}

impl Asked {
    /// When somebody has to look whether it takes too long: by what is usual there, and after half
    /// of what the others have once one has spoken at the latest.
    fn due(&self, context: RunContext<'_>, class: CostClass, wait: Duration) -> Instant {
        if let Some(last) = self.noted {
            return last + LOOK_EVERY;
        }
        let upstream = context.roster.upstream(self.slot);
        let usual = context.bounds.hedging.map(|hedging| hedging.delay(upstream, class));
        self.began + usual.map_or(wait / 2, |usual| usual.min(wait / 2))
    }
}

fn dissents(context: RunContext<'_>, opinion: &Opinion, ballot: Ballot) {
    let upstream: &Upstream = context.roster.upstream(opinion.slot);
    let id = &upstream.identity().id;
    let class = opinion.verdict.class.word();
    if upstream.note_dissent(ballot.is_final, now()) {
        let is_final = ballot.is_final;
        tracing::warn!(upstream = %id, class, is_final, "upstream contradicts others about the same call");
    }
}

/// What a verdict says of the chain, if anything.
fn word(verdict: &Verdict, is_there: bool, ballot: Ballot) -> Option<Word> {
    if !verdict.class.speaks_of_chain() {
        return None;
    }
    match (verdict.class, &verdict.payload) {
        (VerdictClass::Answer, Payload::Result(result)) => match ballot.largest {
            true => raw::quantity(result).map(Word::Number),
            false => Some(Word::Said(keccak256(&canonical(result)))),
        },
        (VerdictClass::Reverted, Payload::Error(error)) => {
            let data = raw::scan_error(error).and_then(|error| error.data.map(canonical));
            Some(data.map_or(Word::Class(VerdictClass::Reverted), |it| Word::Said(keccak256(&it))))
        }
        // That the block is not there says that it is not there with this one.
        (VerdictClass::Null, _) => (!is_there).then_some(Word::Class(VerdictClass::Null)),
        (VerdictClass::CallerFault, _) => Some(Word::Class(VerdictClass::CallerFault)),
        _ => None,
    }
}

impl Poll {
    fn has_heard(&self, slot: Slot) -> bool {
        self.opinions.iter().any(|opinion| opinion.slot == slot)
    }

    /// Whose word is served, and how many have it: the first of those that most have.
    fn leader(&self) -> Option<(usize, usize)> {
        let votes = |word: &Word| self.opinions.iter().filter(|other| other.word == *word).count();
        let all = self.opinions.iter().enumerate();
        if self.ballot.largest {
            // Whoever refuses has nothing to add to what the others know.
            let number = |word: &Word| match word {
                Word::Number(number) => Some(*number),
                Word::Said(_) | Word::Class(_) => None,
            };
            let place = all.max_by_key(|(place, it)| (number(&it.word), usize::MAX - place))?.0;
            return Some((place, self.opinions.len()));
        }
        let (place, leader) =
            all.max_by_key(|(place, opinion)| (votes(&opinion.word), usize::MAX - place))?;
        Some((place, votes(&leader.word)))
    }

    /// How many more would have to say what most said.
    fn missing(&self) -> usize {
        let votes = self.leader().map_or(0, |(_, votes)| votes);
        self.ballot.quorum.agree.saturating_sub(votes)
    }

    /// How many may be asked at a time.
    fn wanted(&self) -> usize {
        self.missing().min(self.ballot.quorum.of.saturating_sub(self.opinions.len()))
    }

    /// Whether enough agree, or as many were heard as may be.
    fn is_over(&self) -> bool {
        self.missing() == 0 || self.opinions.len() + self.missing() > self.ballot.quorum.of
    }
}
