//! Which block is the newest that enough upstreams hold.
//!
//! **Voters** are the well upstreams that were heard of lately. Of them are left out:
//!
//! - who claims more blocks than can have been made since the agreed head moved, unless
//!   such claims are the majority of all well upstreams, or others follow it: somebody stands on a block that was
//!   its own head earlier, and it went on from there at the pace of the chain;
//! - who is further behind the others than the lag bound;
//! - who is behind at least as many as are with it, and stayed there while they stood on their
//!   heads for longer than a block takes to spread: where no block follows, one that is late
//!   by a few would else hold up the head for good.
//!
//! A voter **holds** a block when it stands on it or above, and not on another branch as
//! far as parents are known. The agreed head is the highest block on which a voter stands
//! and that `k` voters hold; `k` is the setting, 2 by default, or the number of voters
//! where that is smaller. So one that is heard of less often delays the head by the time
//! between its polls at most, and not at all when two others are quicker.
//!
//! It **never goes back**, whoever dies, but for these, each told as a reorg:
//!
//! - `k` voters hold another branch, and fewer hold the old head;
//! - nobody holds it any more, and one who stands as high is on another branch;
//! - those who held it said themselves that they stand lower, by more than the lag bound or
//!   for longer than a view stays fresh, and nobody holds it any more or stands above them, not
//!   even by the last word of one that is away: the chain was reset;
//! - nobody but the first to speak ever held it, and two others stand far below.
//!
//! When branches last and none has `k` voters, the one with most of them is followed as
//! soon as the voters are further ahead than the lag bound: a frozen head helps nobody.
//!
//! Not withstood: `k` that are wrong in the same way, and a minority while the majority stands still
//! for longer than the lag bound: from outside that is an upstream that got stuck.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_eth::{BlockHash, BlockNumber};
use wellhead_upstream::{Slot, UpstreamSet};

use crate::header::Headers;
use crate::pace::Pace;
use crate::view::{BLOCK_TIME_QUICKEST, Head, LAG_BLOCKS_QUICKEST, Mark, Tag, View};

/// So many have to hold a block, where the settings do not say.
const AGREEMENT: usize = 2;

/// The last word of one that is away speaks against a fall for so long: the other one may
/// only have come to lag. After that it is likelier that the chain was reset.
const WORD_LASTS: Duration = Duration::from_secs(600);

/// One that is behind had so long to follow, or as long as three blocks take where that is more.
const SPREADS_IN: Duration = Duration::from_secs(20);
const SPREADS_IN_BLOCKS: u32 = 3;

/// What the settings say of agreement.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    /// How many have to hold a block.
    pub(crate) agreement: Option<usize>,
    /// So far below the newest a block counts as final where nobody tells.
    pub(crate) final_after: Option<u64>,
}

/// One whose word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Voter {
    slot: Slot,
    number: u64,
    hash: Option<BlockHash>,
}

/// What is kept from one decision to the next.
#[derive(Debug)]
pub(crate) struct Agreement {
    rules: Rules,
    headers: Headers,
    pace: Pace,
    block_time_given: Option<Duration>,
    /// By slot, when it was last heard of.
    heard: Box<[Option<Instant>]>,
    /// By slot, what it holds to be safe and final.
    marks: Box<[[Option<Mark>; Tag::COUNT]]>,
    moved_at: Option<Instant>,
    /// Those who held the agreed head at some time.
    held_by: UpstreamSet,
    /// Two ever held the same head.
    is_confirmed: bool,
}

impl Agreement {
    pub(crate) fn new(upstreams: usize, rules: Rules, block_time_given: Option<Duration>) -> Self {
        Self {
            rules,
            headers: Headers::default(),
            pace: Pace::default(),
            block_time_given,
            heard: vec![None; upstreams].into(),
            marks: vec![[None; Tag::COUNT]; upstreams].into(),
            moved_at: None,
            held_by: UpstreamSet::default(),
            is_confirmed: false,
        }
    }

    /// Notes that the upstream in `slot` was heard of, and where it stands.
    pub(crate) fn hear(
        &mut self,
        view: &View,
        slot: Slot,
        number: u64,
        hash: Option<BlockHash>,
        parent: Option<BlockHash>,
        now: Instant,
    ) {
        self.heard[slot.index()] = Some(now);
        if let Some(hash) = hash {
            let agreed = view.latest.map_or(number, |head| head.number.0);
            self.headers.stand(slot, (number, hash), parent, agreed, now);
        }
    }

    /// Notes what the upstream in `slot` holds to be safe or final.
    pub(crate) fn mark(&mut self, slot: Slot, tag: Tag, mark: Mark) {
        if let Some(marks) = self.marks.get_mut(slot.index()) {
            marks[tag as usize] = Some(mark);
        }
    }

    /// Forgets an upstream that is not on this chain. When nobody else ever held the head,
    /// that is forgotten too: it was another chain's.
    pub(crate) fn forget(&mut self, view: &mut View, slot: Slot, now: Instant) {
        let others = self.held_by.without([slot].into_iter().collect());
        if let Some(latest) = view.latest
            && self.held_by.contains(slot)
            && others.is_empty()
            && !self.is_confirmed
        {
            Arc::make_mut(&mut view.canon).clear(latest.number.0, now);
            (view.latest, view.confirmed_at) = (None, None);
            view.marks = [None; Tag::COUNT];
            self.moved_at = None;
            self.pace = Pace::default();
        }
        self.held_by = others;
        if let Some(heard) = self.heard.get_mut(slot.index()) {
            *heard = None;
            self.marks[slot.index()] = [None; Tag::COUNT];
        }
    }

    /// Decides anew what `view` says of the chain. Returns whether the head moved.
    pub(crate) fn settle(&mut self, view: &mut View, well: UpstreamSet, now: Instant) -> bool {
        let before = view.latest.map(|head| (head.number, head.hash));
        let present = self.present(view, well, now);
        let mut voting = UpstreamSet::default();
        if !present.is_empty() {
            let (voters, may_fall) = self.voters(view, &present, well, now);
            voting = voters.iter().map(|voter| voter.slot).collect();
            if let Some(next) = self.choose(view, &voters, &present, may_fall, now) {
                self.adopt(view, next, now);
            }
            self.confirm(view, &present);
        }
        self.set_marks(view, well, now);
        self.tell_astray(view, voting, now);
        self.tell_pace(view, now);
        before != view.latest.map(|head| (head.number, head.hash))
    }

    /// How fast blocks come, by the best head: the agreed one may stand still until it is
    /// known how far behind is too far, and that follows from the pace.
    fn tell_pace(&mut self, view: &mut View, now: Instant) {
        if let Some(best) = view.best {
            self.pace.observe(best.number.0, now);
        }
        let measured = || self.pace.block_time().or(view.block_time);
        view.block_time = self.block_time_given.or_else(measured);
    }

    /// The well ones that were heard of while what they said is fresh.
    fn present(&self, view: &View, well: UpstreamSet, now: Instant) -> Vec<Voter> {
        let fresh_for = view.fresh_for();
        let heard = |slot: Slot| {
            let heard = self.heard[slot.index()];
            heard.is_some_and(|at| now.saturating_duration_since(at) <= fresh_for)
        };
        standing(view).filter(|it| well.contains(it.slot) && heard(it.slot)).collect()
    }

    /// Those of them whose word counts, and whether it counts against the present head.
    fn voters(
        &self,
        view: &View,
        present: &[Voter],
        well: UpstreamSet,
        now: Instant,
    ) -> (Vec<Voter>, bool) {
        let bound = bound(view);
        if let Some(latest) = view.latest.filter(|_| !self.is_confirmed) {
            let far_below = |voter: &&Voter| voter.number.saturating_add(bound) < latest.number.0;
            let below: Vec<Voter> = present.iter().filter(far_below).copied().collect();
            let holding = present.iter().filter(|voter| self.holds_latest(voter, view)).count();
            if below.len() >= AGREEMENT && below.len() > holding {
                return (self.without_laggards(below, view), true);
            }
        }
        let Some(reach) = self.reach(view, now) else {
            return (self.without_laggards(present.to_vec(), view), false);
        };
        let is_near = |voter: &Voter| voter.number <= reach;
        let is_followed = |voter: &Voter| {
            let others = present.iter().filter(|it| it.slot != voter.slot && is_near(it));
            let on_the_branch =
                |it: &Voter| view.canon.at(it.number).filter(|at| it.hash == Some(*at));
            others.filter_map(|other| Some((other, on_the_branch(other)?))).any(|(other, hash)| {
                let stood = self.headers.stood(&hash, voter.slot);
                stood.is_some_and(|at| voter.number <= reach_from(view, other.number, at, now))
            })
        };
        let (near, far): (Vec<Voter>, Vec<Voter>) =
            present.iter().partition(|voter| is_near(voter) || is_followed(voter));
        // Those who were not heard of lately may say otherwise soon. Before a head was
        // confirmed one that is ahead is likelier than one that is wrong.
        let silent = standing(view).filter(|it| well.contains(it.slot)).count() - present.len();
        let against = near.len() + silent;
        let is_minority = far.len() < against + usize::from(self.is_confirmed && against > 0);
        let voters = if is_minority { near } else { present.to_vec() };
        (self.without_laggards(voters, view), false)
    }

    /// Those that are not too far behind the others, and not for too long.
    fn without_laggards(&self, mut voters: Vec<Voter>, view: &View) -> Vec<Voter> {
        let bound = bound(view);
        let highest = voters.iter().map(|voter| voter.number).max().unwrap_or_default();
        voters.retain(|voter| voter.number.saturating_add(bound) >= highest);
        let all = voters.clone();
        voters.retain(|voter| !self.is_late(voter, &all, view));
        voters
    }

    /// Whether it said that it stands where it stood, long after at least half of all went on.
    fn is_late(&self, voter: &Voter, voters: &[Voter], view: &View) -> bool {
        let Some(heard) = self.heard[voter.slot.index()] else { return false };
        let blocks = view.block_time.unwrap_or_default().saturating_mul(SPREADS_IN_BLOCKS);
        let spreads_in = SPREADS_IN.max(blocks);
        let went_on = |it: &&Voter| {
            let since = view.heads[it.slot.index()].map(|head| head.seen_at);
            it.number > voter.number
                && since.is_some_and(|at| heard.saturating_duration_since(at) > spreads_in)
        };
        2 * voters.iter().filter(went_on).count() >= voters.len()
    }

    /// The highest block that can have been made by now.
    fn reach(&self, view: &View, now: Instant) -> Option<u64> {
        Some(reach_from(view, view.latest?.number.0, self.moved_at?, now))
    }

    /// The next head; `None` to stay.
    fn choose(
        &self,
        view: &View,
        voters: &[Voter],
        present: &[Voter],
        may_fall: bool,
        now: Instant,
    ) -> Option<Voter> {
        let k = self.rules.agreement.unwrap_or(AGREEMENT).min(voters.len()).max(1);
        let support = |head: &Voter| voters.iter().filter(|it| self.holds(it, head)).count();
        let agreed = voters
            .iter()
            .map(|head| (head, support(head)))
            .filter(|(_, support)| *support >= k)
            // Who does not say which block it is agrees with everybody, and tells nobody which.
            .max_by_key(|(head, support)| {
                (head.number, head.hash.is_some(), *support, head.hash, Reverse(head.slot))
            });
        let Some((next, supported)) = agreed else {
            // Branches, and none of them with enough voters.
            let most = voters
                .iter()
                .max_by_key(|head| (support(head), head.number, Reverse(head.slot)))?;
            let stays = view
                .latest
                .is_some_and(|latest| most.number < latest.number.0.saturating_add(bound(view)));
            return (!stays).then_some(*most);
        };
        let Some(latest) = view.latest else { return Some(*next) };
        let holding = voters.iter().filter(|voter| self.holds_latest(voter, view)).count();
        let is_other = |known: Option<BlockHash>| {
            known.zip(next.hash).is_some_and(|(known, hash)| known != hash)
        };
        let moves = match next.number.cmp(&latest.number.0) {
            Ordering::Greater => true,
            Ordering::Equal if is_other(latest.hash) => holding < k || supported > holding,
            Ordering::Equal => latest.hash.is_none() && next.hash.is_some(),
            Ordering::Less if may_fall => true,
            Ordering::Less if is_other(view.canon.at(next.number)) => holding < k,
            Ordering::Less => self.has_fallen(view, present, now),
        };
        match moves {
            true => Some(*next),
            false => self.left_behind(view, voters, now),
        }
    }

    /// Where to go when nobody holds the head any more, not even by the last word of one that
    /// is away, and one who stands as high or higher is on another branch: those below cannot
    /// tell which branch is theirs, and a head that nobody holds helps nobody.
    fn left_behind(&self, view: &View, voters: &[Voter], now: Instant) -> Option<Voter> {
        let latest = view.latest?;
        if standing(view).any(|it| self.is_remembered(it.slot, now) && self.holds_latest(&it, view))
        {
            return None;
        }
        let support = |head: &Voter| voters.iter().filter(|it| self.holds(it, head)).count();
        let ahead = voters.iter().filter(|it| it.number >= latest.number.0);
        ahead.max_by_key(|head| (support(head), head.number, Reverse(head.slot))).copied()
    }

    /// Whether the last word of the upstream in `slot` still says something.
    fn is_remembered(&self, slot: Slot, now: Instant) -> bool {
        self.heard[slot.index()].is_some_and(|at| now.saturating_duration_since(at) <= WORD_LASTS)
    }

    /// Whether those who held the head say that they stand lower, and nobody holds it, not
    /// even by the last word of one that is away.
    fn has_fallen(&self, view: &View, present: &[Voter], now: Instant) -> bool {
        let (Some(latest), Some(confirmed_at)) = (view.latest, view.confirmed_at) else {
            return false;
        };
        let highest = present.iter().map(|voter| voter.number).max().unwrap_or_default();
        let is_deep = latest.number.0.saturating_sub(highest) > bound(view);
        let is_long = now.saturating_duration_since(confirmed_at) >= view.fresh_for();
        // Who is away and stands above the others need not have held the head itself.
        let is_above = |it: &Voter| it.number > highest && !view.is_astray(it.slot);
        let speaks_against = |it: &Voter| is_above(it) || self.holds_latest(it, view);
        !standing(view).any(|it| self.is_remembered(it.slot, now) && speaks_against(&it))
            && present.iter().any(|voter| self.held_by.contains(voter.slot))
            && (is_deep || is_long)
    }

    /// Whether `voter` stands on `head` or above it, as far as is known.
    fn holds(&self, voter: &Voter, head: &Voter) -> bool {
        if voter.number < head.number {
            return false;
        }
        let known =
            voter.hash.and_then(|own| self.headers.ancestor(voter.number, own, head.number));
        known.zip(head.hash).is_none_or(|(known, hash)| known == hash)
    }

    fn holds_latest(&self, voter: &Voter, view: &View) -> bool {
        view.latest.is_some_and(|head| {
            let head = Voter { slot: voter.slot, number: head.number.0, hash: head.hash };
            self.holds(voter, &head)
        })
    }

    fn adopt(&mut self, view: &mut View, next: Voter, now: Instant) {
        let old = view.latest.map(|head| head.number.0);
        let own = view.heads[next.slot.index()];
        view.latest = own.map(|own| Head { seen_at: now, ..own });
        let canon = Arc::make_mut(&mut view.canon);
        canon.adopt(old, (next.number, next.hash), &self.headers, now);
        if old != Some(next.number) {
            self.moved_at = Some(now);
        }
        self.held_by = UpstreamSet::default();
    }

    /// Notes who holds the head, and when that was last heard.
    fn confirm(&mut self, view: &mut View, present: &[Voter]) {
        let holding: Vec<&Voter> =
            present.iter().filter(|voter| self.holds_latest(voter, view)).collect();
        let heard = holding.iter().filter_map(|voter| self.heard[voter.slot.index()]).max();
        let holding: UpstreamSet = holding.iter().map(|voter| voter.slot).collect();
        self.held_by = self.held_by.or(holding);
        self.is_confirmed |= holding.len() >= AGREEMENT;
        view.confirmed_at = heard.max(view.confirmed_at);
    }

    /// Safe and final blocks: the highest that `k` of those who tell hold to be so. They
    /// never go back and are never above the newest.
    fn set_marks(&self, view: &mut View, well: UpstreamSet, now: Instant) {
        let Some(latest) = view.latest else { return };
        let slots = (0_u8..).map(Slot).zip(self.marks.iter());
        let marks: Vec<_> = slots.filter(|(slot, _)| well.contains(*slot)).collect();
        for tag in [Tag::Safe, Tag::Finalized] {
            let mut told: Vec<Mark> = marks
                .iter()
                .filter_map(|(_, marks)| marks[tag as usize])
                .filter(|mark| mark.number <= latest.number)
                .collect();
            told.sort_unstable_by_key(|mark| Reverse((mark.number, mark.told_at)));
            let k = self.rules.agreement.unwrap_or(AGREEMENT).min(told.len()).max(1);
            let agreed = told.get(k - 1).copied().or_else(|| {
                let number = latest.number.0.checked_sub(self.rules.final_after?)?;
                let hash = view.canon.at(number);
                Some(Mark { number: BlockNumber(number), hash, told_at: now })
            });
            let Some(agreed) = agreed else { continue };
            let known = &mut view.marks[tag as usize];
            match known {
                Some(known) if known.number >= agreed.number => {
                    known.told_at = known.told_at.max(agreed.told_at);
                }
                Some(_) | None => *known = Some(agreed),
            }
        }
    }

    /// Who is on another branch, or claims what cannot be; and the best of the others.
    fn tell_astray(&self, view: &mut View, voting: UpstreamSet, now: Instant) {
        let Some(latest) = view.latest else {
            view.astray = UpstreamSet::default();
            view.best = view.heads.iter().flatten().max_by_key(|head| head.number).copied();
            return;
        };
        let reach = self.reach(view, now).unwrap_or(u64::MAX);
        let is_astray = |it: &Voter| {
            let is_far = it.number > reach && !voting.contains(it.slot);
            let is_elsewhere = match it.number >= latest.number.0 {
                true => !self.holds_latest(it, view),
                false => {
                    view.canon.at(it.number).zip(it.hash).is_some_and(|(known, hash)| known != hash)
                }
            };
            is_far || is_elsewhere
        };
        let astray: UpstreamSet = standing(view).filter(is_astray).map(|it| it.slot).collect();
        let best = standing(view).filter(|it| !astray.contains(it.slot));
        let best = best.max_by_key(|it| it.number).map(|it| it.slot);
        view.astray = astray;
        view.best = best.and_then(|slot| view.heads[slot.index()]);
    }
}

/// Where everybody stands of whom anything is known.
fn standing(view: &View) -> impl Iterator<Item = Voter> + '_ {
    let slots = (0_u8..).map(Slot);
    slots.zip(view.heads.iter()).filter_map(|(slot, head)| {
        let head = head.as_ref()?;
        Some(Voter { slot, number: head.number.0, hash: head.hash })
    })
}

/// The highest block that can have been made by now, when this one was the newest at `since`.
fn reach_from(view: &View, number: u64, since: Instant, now: Instant) -> u64 {
    let elapsed = now.saturating_duration_since(since).as_millis();
    let block_time = view.block_time.unwrap_or(BLOCK_TIME_QUICKEST).as_millis().max(1);
    let made = u64::try_from(elapsed / block_time).unwrap_or(u64::MAX);
    number.saturating_add(made).saturating_add(bound(view).saturating_sub(1))
}

/// The lag in blocks from which one's word does not count.
fn bound(view: &View) -> u64 {
    match view.lag_blocks_max.is_some() || view.block_time.is_some() {
        true => view.lag_bound(),
        false => LAG_BLOCKS_QUICKEST,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Up to here all branches are one.
    const SPLIT: u64 = 100;

    fn hash(number: u64, branch: u8) -> BlockHash {
        let mut bytes = [if number <= SPLIT { b'a' } else { branch }; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        BlockHash(bytes)
    }

    /// Upstreams that speak, on a clock that is told.
    struct Chain {
        agreement: Agreement,
        view: View,
        well: UpstreamSet,
        now: Instant,
    }

    impl Chain {
        fn new(upstreams: usize, rules: Rules, block_time: impl Into<Option<Duration>>) -> Self {
            let block_time = block_time.into();
            #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
            let now = Instant::now();
            Self {
                agreement: Agreement::new(upstreams, rules, block_time),
                view: View::unknown(upstreams, block_time, None),
                well: (0..u8::try_from(upstreams).expect("few")).map(Slot).collect(),
                now,
            }
        }

        /// The upstream in `slot` stands on a block; without a branch no hash is known.
        fn say(&mut self, slot: u8, number: u64, branch: Option<u8>) {
            let (slot, hash_of) = (Slot(slot), |number| branch.map(|it| hash(number, it)));
            let parent = number.checked_sub(1).and_then(hash_of);
            self.agreement.hear(&self.view, slot, number, hash_of(number), parent, self.now);
            let (hash, number) = (hash_of(number), BlockNumber(number));
            // What was known already was seen then.
            let known = self.view.heads[slot.index()];
            let known = known.filter(|head| (head.number, head.hash) == (number, hash));
            let seen_at = known.map_or(self.now, |head| head.seen_at);
            let head = Head { number, hash, timestamp: None, seen_at };
            self.view.heads[slot.index()] = Some(head);
            self.settle();
        }

        fn settle(&mut self) {
            self.agreement.settle(&mut self.view, self.well, self.now);
        }

        fn latest(&self) -> String {
            self.view.latest.map_or_else(String::new, |head| {
                let branch = head.hash.map_or('?', |hash| char::from(hash.0[31]));
                format!("{}{branch}", head.number.0)
            })
        }

        fn astray(&self) -> Vec<u8> {
            (0..8).filter(|slot| self.view.is_astray(Slot(*slot))).collect()
        }
    }

    /// Plays a script and compares "latest", or "latest reorgs:depth" where there were any.
    ///
    /// `0:105b` the upstream in slot 0 stands on block 105 of branch b (`0:105` of branch a,
    /// `0:105?` without a hash), `+12` seconds pass, `!1` is no longer well, `=105a` expects.
    fn play(agreement: Option<usize>, script: &str) -> Chain {
        let rules = Rules { agreement, ..Rules::default() };
        let mut chain = Chain::new(8, rules, Duration::from_secs(12));
        for step in script.split_whitespace() {
            if let Some(seconds) = step.strip_prefix('+') {
                chain.now += Duration::from_secs(seconds.parse().expect("seconds"));
            } else if let Some(slot) = step.strip_prefix('!') {
                let slot = Slot(slot.parse().expect("a slot"));
                chain.well = chain.well.without([slot].into_iter().collect());
                chain.settle();
            } else if let Some(expected) = step.strip_prefix('=') {
                assert_eq!(chain.latest(), expected, "{script}");
            } else {
                let (slot, number) = step.split_once(':').expect("slot:number");
                let branch = match number.trim_start_matches(|it: char| it.is_ascii_digit()) {
                    "" => Some(b'a'),
                    "?" => None,
                    branch => Some(branch.as_bytes()[0]),
                };
                let number = number.trim_end_matches(|it: char| !it.is_ascii_digit());
                let number = number.parse().expect("a number");
                chain.say(slot.parse().expect("a slot"), number, branch);
            }
        }
        chain
    }

    fn check(script: &str, reorgs: &str) {
        let chain = play(None, script);
        let known = chain.view.reorgs().since(0).expect("few");
        let depths: Vec<String> = known.map(|reorg| reorg.depth.to_string()).collect();
        assert_eq!(depths.join(" "), reorgs, "{script}");
    }

    #[test]
    fn one_alone_is_the_truth() {
        check("0:100 =100a 0:101 =101a 0:5000 =5000a", "");
        check("0:100? =100? 0:101? =101? 0:101 =101a", "");
    }

    #[test]
    fn two_have_to_hold_a_block() {
        check("0:100 1:100 =100a 0:101 =100a 1:101 =101a", "");
        check("0:100 1:100 2:100 3:100 0:101 =100a 3:102 =101a 2:102 =102a", "");
        check("0:100? 1:100? 0:101? =100? 1:102? =101?", "");
    }

    #[test]
    fn the_settings_say_how_many() {
        play(Some(1), "0:100 1:100 2:100 0:101 =101a");
        play(Some(3), "0:100 1:100 2:100 0:101 1:101 =100a 2:101 =101a");
        play(Some(9), "0:100 1:100 0:101 =100a 1:101 =101a");
    }

    #[test]
    fn it_does_not_fall_when_the_well_ones_die() {
        check("0:100 1:100 2:99 !0 !1 =100a +60 2:99 =100a 2:101 =101a", "");
        check("0:100 1:100 2:100 0:103 1:103 2:102 !0 !1 =103a 2:102 =103a", "");
    }

    #[test]
    fn fewer_that_are_well_agree_sooner() {
        check("0:100 1:100 0:101 =100a !1 =101a", "");
        check("0:100 1:100 2:100 2:101 =100a !0 =100a !1 =101a", "");
    }

    #[test]
    fn who_was_not_heard_of_lately_does_not_hold_it_up() {
        check("0:100 1:100 +60 0:105 =105a", "");
        check("0:100 1:100 +60 0:900 =100a", "");
    }

    #[test]
    fn one_that_comes_to_lag_does_not_hold_up_a_pace_that_is_not_known() {
        let mut chain = Chain::new(2, Rules::default(), None);
        chain.say(0, 40, None);
        chain.say(1, 40, None);
        for second in 1..10 {
            chain.now += Duration::from_secs(1);
            chain.say(0, 10 + second, None);
            chain.say(1, 40 + second, None);
        }
        assert_eq!(chain.view.block_time, Some(Duration::from_secs(1)));
        assert_eq!(chain.latest(), "49?");
        assert!(chain.view.is_lagging(Slot(0), None));
    }

    #[test]
    fn one_far_ahead_moves_nothing() {
        check("0:100 1:100 2:100 2:9000? =100a 0:101 1:101 =101a +12 2:9001? =101a", "");
        check("0:100 1:100 1:9000? =100a 0:101 =101a +12 0:102 1:9001? =102a", "");
        assert_eq!(play(None, "0:100 1:100 2:100 2:9000?").astray(), [2]);
        assert_eq!(play(None, "0:100 1:100 2:100 2:101 1:102").astray(), [0; 0]);
    }

    #[test]
    fn one_that_began_the_story_wrongly_is_corrected() {
        check("0:9000? =9000? 1:100 =9000? 2:100 =100a 1:101 2:101 =101a", "8900");
        check("1:100 =100a 0:9000? =9000? 2:100 =100a", "8900");
    }

    #[test]
    fn one_that_is_followed_is_not_astray() {
        // B is five behind from the start; A was not believed until B stood where A stood.
        let chain = "0:100 1:100 +12 0:106 =100a 1:101 +12 0:107 1:102 +12 0:108 1:103 +12             0:109 1:104 +12 0:110 1:105 =105a +12 0:111 1:106 +12 0:112 =112a";
        check(chain, "");
    }

    #[test]
    fn one_that_is_stuck_is_left_behind() {
        check(
            "0:100 1:100 +12 0:101 1:100 +12 0:102 1:100 =100a +12 0:103 1:100 =100a +12             0:104 =104a 1:100 +12 0:105 =105a",
            "",
        );
        check("0:100 1:100 2:100 +12 0:101 1:101 2:100 =101a", "");
    }

    #[test]
    fn one_that_is_late_does_not_hold_up_a_head_after_which_no_block_comes() {
        check("0:100 1:100 +12 0:101 1:100 +36 0:101 1:100 =100a +1 1:100 =101a", "");
        check("0:100 1:100 2:100 +12 0:101 +24 0:101 1:100 2:100 +13 0:101 1:100 2:100 =100a", "");
        // It comes back when it stands there too, and takes part from then on.
        check("0:100 1:100 +12 0:101 +36 0:101 +1 1:100 =101a 1:101 0:102 =101a 1:102 =102a", "");
    }

    #[test]
    fn a_minority_on_another_branch_moves_nothing() {
        check("0:100 1:100 2:100 0:101 1:101 2:101b =101a 2:102b =101a 0:102 1:102 =102a", "");
        assert_eq!(play(None, "0:101 1:101 2:101 0:102 1:102 2:102b").astray(), [2]);
        assert_eq!(play(None, "0:101 1:101 2:101b 0:102 1:102").astray(), [2]);
    }

    #[test]
    fn a_head_that_nobody_holds_is_left_for_who_went_on_elsewhere() {
        check("0:103 1:103 1:101 =103a 0:104b =104b 0:105b =105b 1:105b =105b", "1");
        // While somebody holds it, or did when last heard of, one alone moves nothing.
        check("0:103 1:103 2:103 1:101 0:104b =103a", "");
        check("0:103 1:103 2:101 !1 0:104b =103a", "");
    }

    #[test]
    fn a_majority_on_another_branch_is_a_reorg() {
        check("0:103 1:103 2:103 0:103b =103a 1:103b =103b", "2");
        check("0:101 1:101 0:102 1:102 0:103 1:103 0:102b 0:103b 1:102b =102b 1:103b =103b", "3");
        check("0:101 1:101 0:102 1:102 0:101b 1:101b =101b 0:102b 1:102b =102b", "2");
        check("0:102 =102a 0:102b =102b", "2");
        check("0:101 0:102 =102a 0:101b =101b", "2");
    }

    /// The heights of which the view says that they are on branch `a`, from `first` on.
    fn believed(script: &str, first: u64) -> Vec<u64> {
        let chain = play(None, script);
        let is_a = |at: &u64| chain.view.hash_at(BlockNumber(*at)) == Some(hash(*at, b'a'));
        (first..first + 10).filter(is_a).collect()
    }

    #[test]
    fn how_deep_a_reorg_went_is_not_guessed() {
        let before = "0:101 0:102 0:103 0:104 0:105";
        assert_eq!(believed(before, 101), [101, 102, 103, 104, 105]);
        // What is shown is block 106 of the other branch, and its parent.
        assert_eq!(believed(&format!("{before} 0:106b"), 101), []);
        // Nor is it known after a gap that there was none.
        assert_eq!(believed(&format!("{before} +24 0:107b"), 101), []);
        assert_eq!(believed(&format!("{before} +24 0:107"), 101), [106, 107]);
        assert_eq!(believed(&format!("{before} +24 0:107 1:106 0:108 1:108"), 101).len(), 8);
    }

    #[test]
    fn branches_that_last_are_not_waited_for() {
        check("0:100 1:100 0:101 1:101b =100a +12 0:102 1:102b =100a +12 0:103 =103a", "");
        check("0:100 1:100 2:100 0:101 1:101b 2:101c +12 0:102 1:102b 2:102c +12 1:103b =103b", "");
    }

    #[test]
    fn a_chain_that_was_reset_is_followed_down() {
        check("0:100 =100a 0:20 =20a", "80");
        check("0:100 =100a 0:98 =100a +35 0:98 =100a +1 0:98 =98a", "2");
        check("0:100 1:100 0:20 =100a 1:20 =20a", "80");
        // The other one is away, and may have been right.
        check("0:100 1:100 !0 1:20 =100a +60 1:21 =100a +600 1:40 =40a", "60");
        check("0:100 0:99 =100a +12 0:101 =101a", "");
        // It was not asked since, but what it showed is far above.
        check("0:98 1:98 +60 0:100 =100a 0:20 =100a +10 1:100 =100a", "");
        check("0:98 1:98 +60 0:100 =100a 0:20 =100a +600 0:21 =21a", "79");
    }

    #[test]
    fn one_that_was_on_another_chain_takes_its_head_along() {
        let mut chain = play(None, "0:9000");
        chain.view.heads[0] = None;
        chain.agreement.forget(&mut chain.view, Slot(0), chain.now);
        chain.settle();
        assert_eq!(chain.latest(), "");
        chain.say(1, 100, Some(b'a'));
        assert_eq!((chain.latest().as_str(), chain.view.reorgs().last()), ("100a", 1));
        // What two held stays when one of them goes.
        let mut chain = play(None, "0:100 1:100");
        chain.agreement.forget(&mut chain.view, Slot(0), chain.now);
        chain.settle();
        assert_eq!(chain.latest(), "100a");
    }

    #[test]
    fn quick_chains_agree_as_quickly_as_they_are_polled() {
        let mut chain = Chain::new(2, Rules::default(), Duration::from_millis(250));
        let mut late = 0;
        for tick in 0..400_u64 {
            // A feed tells each block, a poll every ninth eighth.
            chain.now += Duration::from_millis(250);
            chain.say(0, 1000 + tick, Some(b'a'));
            if tick % 9 != 8 {
                chain.say(1, 1000 + tick, Some(b'a'));
            }
            late = late.max(1000 + tick - chain.view.latest.map_or(0, |head| head.number.0));
        }
        assert_eq!(late, 1, "a block at most");
    }

    #[test]
    fn safe_and_final_blocks_are_agreed_and_stay() {
        let mut chain = play(None, "0:200 1:200 2:200");
        let mut told = |slot, number| {
            let told_at = chain.now;
            let mark = Mark { number: BlockNumber(number), hash: None, told_at };
            chain.agreement.mark(Slot(slot), Tag::Finalized, mark);
            chain.settle();
            chain.view.mark(Tag::Finalized).map(|mark| mark.number.0)
        };
        assert_eq!(told(0, 100), Some(100), "nobody else told");
        assert_eq!(told(1, 132), Some(100));
        assert_eq!(told(2, 5000), Some(100), "above the newest nothing is final");
        assert_eq!(told(0, 132), Some(132));
        assert_eq!((told(0, 4), told(1, 4)), (Some(132), Some(132)), "it does not go back");
        assert_eq!(chain.view.mark(Tag::Safe), None);
    }

    #[test]
    fn where_nobody_tells_the_settings_say_what_is_final() {
        let rules = Rules { final_after: Some(64), ..Rules::default() };
        let mut chain = Chain::new(1, rules, Duration::from_secs(2));
        chain.say(0, 30, None);
        assert_eq!(chain.view.mark(Tag::Finalized), None);
        chain.say(0, 200, None);
        let final_now = |chain: &Chain| chain.view.mark(Tag::Finalized).map(|mark| mark.number.0);
        assert_eq!(final_now(&chain), Some(136));
        chain.say(0, 201, None);
        assert_eq!(final_now(&chain), Some(137));
    }

    /// What is canonical by a view, as far as hashes are known.
    fn canonical(view: &View) -> BTreeSet<(u64, BlockHash)> {
        let latest = view.latest.map_or(0, |head| head.number.0);
        let heights = latest.saturating_sub(crate::header::DEPTH)..=latest;
        heights.filter_map(|number| Some((number, view.canon.at(number)?))).collect()
    }

    /// What may happen: who says what, who dies, and how much time passes.
    fn steps() -> impl Strategy<Value = Vec<(u8, u64, u8, u64)>> {
        let step = (0_u8..5, 90_u64..130, prop::sample::select(b"aabc?!".to_vec()), 0_u64..30);
        prop::collection::vec(step, 1..120)
    }

    #[test]
    fn who_names_no_hash_does_not_hide_that_of_those_who_agree() {
        let rules = Rules { agreement: Some(3), ..Rules::default() };
        let mut chain = Chain::new(5, rules, Duration::from_secs(12));
        (0..5).for_each(|slot| chain.say(slot, 100, Some(b'a')));
        chain.now += Duration::from_secs(12);
        // One says no hash and one another: with both of them the head without a hash has the
        // most voters.
        chain.say(3, 101, None);
        chain.say(4, 101, Some(b'b'));
        (0..3).for_each(|slot| chain.say(slot, 101, Some(b'a')));
        let latest = chain.view.latest.expect("they agree");
        assert_eq!((latest.number.0, latest.hash), (101, Some(hash(101, b'a'))));
    }

    proptest! {
        #[test]
        fn it_never_goes_back_unsaid(steps in steps(), agreement in prop::option::of(1_usize..4)) {
            let rules = Rules { agreement, ..Rules::default() };
            let mut chain = Chain::new(5, rules, Duration::from_secs(12));
            let mut marked = 0;
            for (slot, number, what, seconds) in steps {
                let before = chain.view.clone();
                chain.now += Duration::from_secs(seconds);
                match what {
                    b'!' => {
                        let one = [Slot(slot)].into_iter().collect();
                        chain.well = match chain.well.contains(Slot(slot)) {
                            true => chain.well.without(one),
                            false => chain.well.or(one),
                        };
                        chain.settle();
                    }
                    b'?' => chain.say(slot, number, None),
                    branch => chain.say(slot, number, Some(branch)),
                }
                let told_at = chain.now;
                let mark = Mark { number: BlockNumber(number - 60), hash: None, told_at };
                chain.agreement.mark(Slot(slot), Tag::Finalized, mark);
                let height = |view: &View| view.latest.map_or(0, |head| head.number.0);
                let last = before.reorgs().last();
                let news: Vec<&crate::Reorg> =
                    chain.view.reorgs().since(last).expect("one step").collect();
                prop_assert!(news.len() <= 1);
                if height(&chain.view) < height(&before) {
                    prop_assert_eq!(news.len(), 1);
                }
                // Whatever was canonical and is not was named.
                let floor = height(&chain.view).saturating_sub(crate::header::DEPTH - 1);
                let now = canonical(&chain.view);
                let gone: BTreeSet<(u64, BlockHash)> = canonical(&before)
                    .difference(&now)
                    .filter(|(number, _)| *number >= floor)
                    .copied()
                    .collect();
                let named: BTreeSet<(u64, BlockHash)> = news
                    .iter()
                    .flat_map(|reorg| reorg.orphaned.iter())
                    .map(|(number, hash)| (number.0, *hash))
                    .collect();
                prop_assert_eq!(&gone, &named);
                for (number, hash) in &named {
                    let answer = chain.view.canonical(BlockNumber(*number), hash);
                    prop_assert_eq!(answer, crate::Canonical::No);
                    let number = BlockNumber(*number);
                    prop_assert_eq!(chain.view.height_of(hash), Some(number));
                    prop_assert_ne!(chain.view.hash_at(number), Some(*hash));
                }
                if let Some(latest) = chain.view.latest
                    && let Some(hash) = latest.hash
                {
                    let answer = chain.view.canonical(latest.number, &hash);
                    prop_assert_eq!(answer, crate::Canonical::Yes);
                    prop_assert_eq!(chain.view.hash_at(latest.number), Some(hash));
                    prop_assert_eq!(chain.view.height_of(&hash), Some(latest.number));
                }
                let mark = chain.view.mark(Tag::Finalized).map_or(0, |mark| mark.number.0);
                prop_assert!(mark >= marked && mark <= height(&chain.view).max(marked));
                marked = mark;
            }
        }

        /// Three go on together, each late at times by a block; the others, fewer than have
        /// to agree, say anything.
        #[test]
        fn fewer_than_agree_never_move_it(
            rogues in 1_u8..3,
            steps in prop::collection::vec(
                (0_u8..3, 0_u8..2, prop::sample::select(b"ab?".to_vec()), 0_u64..400), 10..150,
            ),
        ) {
            let rules = Rules { agreement: Some(usize::from(rogues) + 1), ..Rules::default() };
            let mut chain = Chain::new(5, rules, Duration::from_secs(12));
            (0..3 + rogues).for_each(|slot| chain.say(slot, 100, Some(b'a')));
            let mut truth = 100;
            for (late, rogue, branch, number) in steps {
                truth += 1;
                chain.now += Duration::from_secs(12);
                (0..3).for_each(|slot| chain.say(slot, truth - u64::from(slot == late), Some(b'a')));
                let branch = (branch != b'?').then_some(if branch == b'a' { b'c' } else { branch });
                chain.say(3 + rogue % rogues, 50 + number, branch);
                let latest = chain.view.latest.expect("known from the start");
                prop_assert!(latest.number.0 <= truth, "{} of {truth}", latest.number.0);
                prop_assert!(latest.number.0 + 1 >= truth, "{} of {truth}", latest.number.0);
                prop_assert_eq!(latest.hash, Some(hash(latest.number.0, b'a')));
                prop_assert_eq!(chain.view.reorgs().last(), 0);
                (0..3).for_each(|slot| assert!(!chain.view.is_astray(Slot(slot)), "{slot}"));
            }
        }
    }
}
