//! Reads that several upstreams must answer alike.
//!
//! As many are asked at once as must agree. More are asked only when one fails, says
//! something else or takes long, up to as many as may be heard, so that agreement costs no
//! call that it does not need. Answers are compared in one form
//! ([`wellhead_eth::canonical`]); a revert by its data, as each client has its own words;
//! what is wrong with a call, and that something is not there, by that alone. What says
//! nothing of the chain, a fault or a limit or missing history, is no vote, and another
//! upstream is asked instead. Each upstream has one vote. [`votes`] decides, and here it is done.
//!
//! Those of the best tier are asked first, and of dearer ones as many as it takes: where fewer than
//! must agree are well there, or one fails or says something else. One that is merely slow is no
//! reason to ask a dearer tier, unless the settings say so.
//!
//! After the first answer the others have [`Quorum::wait`](crate::Quorum). An upstream that said
//! something else than what was served is noted ([`Upstream::note_dissent`]); that costs it no
//! health, because above the finalized block both may be honest, on two branches.
//!
//! Not promised: that two upstreams are two nodes, or that what they agree on is true.

mod votes;

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use rand::Rng;
use wellhead_upstream::{InFlight, Slot, Upstream};

use crate::attempt::{AttemptResult, attempt};
use crate::attempts::Consequence;
use crate::ballot::Ballot;
use crate::context::RunContext;
use crate::decide::{CallStep, Scene};
use crate::hedge::is_lost;
use crate::now;
use crate::run::{Run, try_pay};
use crate::trail::Heard;
use votes::{PendingVote, Poll, PollEnd, PollStep, Vote, value};

/// An attempt that takes long is looked at again after this time.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, (Slot, AttemptResult)>>;

impl<'r> Run<'r> {
    /// Asks until enough agree, or no agreement can be had.
    pub(crate) async fn by_quorum(
        &mut self,
        context: RunContext<'_>,
        ballot: Ballot,
    ) -> Consequence {
        let mut poll = Poll::new(ballot, self.job.deadline);
        let mut under_way = UnderWay::new();
        loop {
            let (pending, futures) = (poll.pending.len(), under_way.len());
            debug_assert_eq!(pending, futures, "each upstream is asked once at a time");
            let admitted = match self.decide_poll(context, &mut poll) {
                PollStep::Finish | PollStep::Call(CallStep::Finish(_)) => break,
                PollStep::Await => {
                    let wake = self.wake_at(context, &poll);
                    match tokio::time::timeout_at(wake.into(), under_way.next()).await {
                        Ok(Some((slot, settled))) => {
                            if !self.take(context, &mut poll, slot, settled) {
                                return Consequence::Stop;
                            }
                        }
                        Err(_) if now() < poll.until => self.look_at_slow(context, &mut poll),
                        Ok(None) | Err(_) => break,
                    }
                    continue;
                }
                PollStep::Call(CallStep::Turn(step)) => {
                    self.attempts.held_by = None;
                    match Box::pin(self.turn(context, step)).await {
                        Ok(admitted) => Ok(admitted),
                        Err(_) => break,
                    }
                }
                PollStep::Call(step) => self.prepare(context, step).await,
            };
            if let Ok(admitted) = admitted {
                self.send(context, admitted, &under_way, &mut poll);
            }
        }
        drop(under_way);
        self.leave(context, &poll);
        self.count(context, poll)
    }

    fn decide_poll(&mut self, context: RunContext<'_>, poll: &mut Poll) -> PollStep {
        let (now, terms) = (now(), self.terms(context, false));
        let survey = self.survey(context, now);
        let scene = Scene { attempts: &self.attempts, candidates: &survey, terms, now };
        let draw = |range| context.worker.with_rng(|rng| rng.random_range(range));
        let (step, position, is_spent) = poll.next(&scene, draw);
        poll.position = position;
        self.attempts.is_spent |= is_spent;
        step
    }

    /// Sends the call to one that let it go.
    fn send<'a>(
        &self,
        context: RunContext<'a>,
        (slot, in_flight): (Slot, InFlight),
        under_way: &UnderWay<'a>,
        poll: &mut Poll,
    ) where
        'r: 'a,
    {
        let began = in_flight.began();
        let time_limit = self.time_limit(context, slot, began);
        let call = self.single_call(context, slot);
        let limits = context.answer_limits(self.job, false, slot);
        poll.sent(PendingVote { slot, tier: context.tier(slot), began, noted: None });
        under_way.push(Box::pin(async move {
            (slot, attempt(call, in_flight, time_limit, limits).await)
        }));
    }

    /// When the wait for the next answer ends.
    fn wake_at(&self, context: RunContext<'_>, poll: &Poll) -> Instant {
        let due = poll.pending.iter().map(|pending| self.due(context, poll, pending));
        due.fold(poll.until, Instant::min)
    }

    /// When to look whether an attempt takes too long: by what is usual there, and at the latest
    /// after half of what the others have once one has answered.
    fn due(&self, context: RunContext<'_>, poll: &Poll, pending: &PendingVote) -> Instant {
        if let Some(last) = pending.noted {
            return last + LOOK_EVERY;
        }
        let (upstream, class) = (context.roster.upstream(pending.slot), self.job.row.class);
        let usual = context.bounds.hedging.map(|hedging| hedging.delay(upstream, class));
        let half = poll.ballot.quorum.wait / 2;
        pending.began + usual.map_or(half, |usual| usual.min(half))
    }

    /// Notes which attempts take long, and has one made beside them where that helps.
    fn look_at_slow(&self, context: RunContext<'_>, poll: &mut Poll) {
        let (row, now) = (self.job.row, now());
        let mut is_slow = false;
        let due: Vec<bool> =
            poll.pending.iter().map(|it| now >= self.due(context, poll, it)).collect();
        for (pending, _) in poll.pending.iter_mut().zip(due).filter(|(_, is_due)| *is_due) {
            let upstream = context.roster.upstream(pending.slot);
            let before = pending.noted.replace(now);
            if !row.class.is_heavy() {
                upstream.overdue(pending.began, before, now);
            }
            // One at a time: each costs a call.
            is_slow |= before.is_none() || upstream.is_silent(Duration::ZERO, now);
        }
        let Some(slowest) = poll.pending.iter().min_by_key(|it| it.began) else { return };
        let is_lost = is_lost(context.roster.upstream(slowest.slot), row, slowest.began, now);
        if let Some(beside) = poll.beside(is_lost, context.bounds.extra_tiers)
            && try_pay(context, beside.price, now)
            && is_slow
        {
            poll.ask_beside(beside);
        }
    }

    /// Records an attempt, and its vote if it is one; false when the call cannot go on.
    fn take(
        &mut self,
        context: RunContext<'_>,
        poll: &mut Poll,
        slot: Slot,
        settled: AttemptResult,
    ) -> bool {
        poll.pending.retain(|pending| pending.slot != slot);
        context.worker.wait_queue().freed(slot);
        match value(&settled.verdict, self.job.is_there, poll.ballot) {
            Some(value) if !settled.no_room && !poll.has_heard(slot) => {
                self.attempts.note(self.job, slot, &settled);
                let tier = context.tier(slot);
                poll.votes.push(Vote { slot, tier, value, verdict: settled.verdict });
                let of = poll.ballot.quorum.of;
                debug_assert!(poll.votes.len() <= of, "no more than may be heard");
            }
            // What it says of the upstream is remembered; that it would end an ordinary call
            // is not asked.
            _ => {
                self.end(context, slot, settled);
            }
        }
        if poll.votes.len() == 1 {
            poll.until = poll.until.min(now() + poll.ballot.quorum.wait);
        }
        !self.attempts.no_room
    }

    /// Leaves the upstreams that are not awaited any more.
    fn leave(&mut self, context: RunContext<'_>, poll: &Poll) {
        let now = now();
        for pending in &poll.pending {
            context.worker.wait_queue().freed(pending.slot);
            self.attempts.abandon(self.job, pending.slot, pending.began, now);
        }
    }

    /// Counts the votes, and notes which upstreams said something else.
    fn count(&mut self, context: RunContext<'_>, mut poll: Poll) -> Consequence {
        let Some((_, agreed)) = poll.leader() else { return Consequence::GoOn };
        let heard = poll.votes.len();
        self.attempts.trail.heard = Some(Heard { agreed, heard });
        match poll.end(self.attempts.is_too_large()) {
            PollEnd::Nothing => Consequence::GoOn,
            PollEnd::Fail(failure) => {
                self.attempts.dispute = Some(failure);
                if agreed < heard {
                    // None is known to be right.
                    poll.votes.iter().for_each(|it| note_dissent(context, it, poll.ballot));
                }
                Consequence::Stop
            }
            PollEnd::Serve(leader) => {
                if !poll.ballot.largest {
                    let value = &poll.votes[leader].value;
                    let others = poll.votes.iter().filter(|other| other.value != *value);
                    others.for_each(|other| note_dissent(context, other, poll.ballot));
                }
                let Vote { slot, tier, verdict, .. } = poll.votes.swap_remove(leader);
                self.attempts.serve_this(slot, tier, verdict);
                Consequence::Serve
            }
        }
    }
}

fn note_dissent(context: RunContext<'_>, vote: &Vote, ballot: Ballot) {
    let upstream: &Upstream = context.roster.upstream(vote.slot);
    let id = &upstream.identity().id;
    let class = vote.verdict.class.word();
    if upstream.note_dissent(ballot.is_final, now()) {
        let is_final = ballot.is_final;
        tracing::warn!(upstream = %id, class, is_final, "upstream disagrees with the quorum");
    }
}
