//! Which block is the newest that enough upstreams hold.
//!
//! **Voters** are the healthy upstreams with recent reports, except an upstream
//!
//! - that is idle ([`View::idle`]) while one that is not idle reports: its last report is up to a
//!   minute old, and would hold the head down between its polls. It still votes against impossible heads;
//! - that claims more blocks than can have been made since the agreed head moved, unless
//!   such claims are the majority of all healthy upstreams, or another upstream confirms it: that one is
//!   on a block that was this one's head earlier, and this one advanced at the pace of the chain;
//! - that is further behind the others than the lag bound;
//! - that is further ahead of two others than the lag bound while the block time is not
//!   known and fewer than `k` are with it: the number of possible blocks is not known yet;
//! - that is behind at least as many upstreams as are with it, and did not move while those kept their
//!   heads for longer than a block takes to spread: if no block follows, an upstream that is late
//!   by a few blocks would otherwise hold the head down forever.
//!
//! A voter **holds** a block if its head is that block or above it, and not on another branch as
//! far as parents are known. The agreed head is the highest head of a voter
//! that `k` voters hold; `k` is the setting, 2 by default, or the number of voters
//! if that is smaller. So an upstream with rare reports delays the head by at most its poll
//! interval, and not at all if two others are faster.
//!
//! The head **never goes back**, whichever upstream fails, except in these cases, each reported as a reorg:
//!
//! - `k` voters are known to hold another branch, and fewer hold the old head. If that branch was
//!   abandoned before, the upstreams that stayed on it count only while no upstream holds the old head;
//! - no upstream holds the head any more, and one at that height or above is on another branch;
//! - the upstreams that held the head report lower heads, by more than the lag bound or
//!   for longer than a view stays fresh, and no upstream holds it any more or is above it, not
//!   even by the last report of one that is away: the chain was reset;
//! - only the first upstream to report ever held it, and two others are far below.
//!
//! If branches persist and none has `k` voters, the head follows the branch with the most voters as
//! soon as the voters are ahead by more than the lag bound: a frozen head is of no use.
//!
//! Not covered: `k` upstreams that are wrong in one way, and a minority that advances while the majority
//! stands still for longer than the lag bound, because the minority then looks faulty.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};
use wellhead_upstream::{Slot, UpstreamSet};

use crate::header::HeaderMemory;
use crate::pace::BlockPace;
use crate::view::{BLOCK_TIME_QUICKEST, LAG_BLOCKS_QUICKEST, Mark, Tag, UpstreamHead, View};

/// So many have to hold a block, where the settings do not say.
const AGREEMENT: usize = 2;

/// The last word of one that is away speaks against a fall for so long: the other one may
/// only have come to lag. After that it is likelier that the chain was reset.
const WORD_LASTS: Duration = Duration::from_secs(600);

/// One that is behind had so long to follow, or as long as three blocks take where that is more.
const SPREADS_IN: Duration = Duration::from_secs(20);
const SPREADS_IN_BLOCKS: u32 = 3;

/// What the settings say of the heads of a chain, where they change while it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadsTerms {
    /// The time between blocks, if given.
    pub block_time: Option<Duration>,
    /// The lag in blocks from which an upstream is excluded, if given.
    pub lag_blocks_max: Option<u64>,
    /// How many upstreams have to hold a block before it is the newest, if given.
    pub agreement: Option<usize>,
    /// The depth at which a block is safe and final if no upstream reports these.
    pub final_after: Option<u64>,
    /// The shortest interval of polls; `None` if no upstream is polled.
    pub poll_min: Option<Duration>,
}

/// An upstream whose report counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Voter {
    slot: Slot,
    number: u64,
    hash: Option<BlockHash>,
}

impl Voter {
    /// The block that it stands on, where its hash is known.
    fn block(&self) -> Option<NumberedBlock> {
        Some(NumberedBlock { number: BlockNumber(self.number), hash: self.hash? })
    }
}

/// What is kept from one decision to the next.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    terms: HeadsTerms,
    headers: HeaderMemory,
    pace: BlockPace,
    /// By slot, when it was last heard of.
    heard: Box<[Option<Instant>]>,
    /// By slot, what it holds to be safe and final.
    marks: Box<[[Option<Mark>; Tag::COUNT]]>,
    moved_at: Option<Instant>,
    /// The upstreams that held the agreed head at some time.
    held_by: UpstreamSet,
    /// Two upstreams held one head at some time.
    is_confirmed: bool,
    /// The source of [`View::best`].
    leader: Option<Leader>,
}

/// The upstream whose head is [`View::best`].
#[derive(Debug, Clone, Copy)]
struct Leader {
    slot: Slot,
    head: UpstreamHead,
    /// The last reorg when it told that head.
    reorg: u64,
    /// Since when it says that it stands lower.
    fell_at: Option<Instant>,
}

impl Agreement {
    pub(crate) fn new(upstreams: usize, terms: HeadsTerms) -> Self {
        Self {
            terms,
            heard: vec![None; upstreams].into(),
            marks: vec![[None; Tag::COUNT]; upstreams].into(),
            ..Self::default()
        }
    }

    /// Goes by other settings from now on, with room for `slots` upstreams.
    pub(crate) fn change(&mut self, terms: HeadsTerms, slots: usize) {
        self.terms = terms;
        let slots = slots.max(self.heard.len());
        let (mut heard, mut marks) = (self.heard.to_vec(), self.marks.to_vec());
        heard.resize(slots, None);
        marks.resize(slots, [None; Tag::COUNT]);
        (self.heard, self.marks) = (heard.into(), marks.into());
    }

    /// Forgets what an upstream said that is gone. The blocks that it told stay.
    pub(crate) fn vacate(&mut self, slot: Slot) {
        self.held_by = self.held_by.without([slot].into_iter().collect());
        self.leader = self.leader.filter(|leader| leader.slot != slot);
        self.forget_words(slot);
        self.headers.vacate(slot);
    }

    fn forget_words(&mut self, slot: Slot) {
        if let Some(heard) = self.heard.get_mut(slot.index()) {
            *heard = None;
            self.marks[slot.index()] = [None; Tag::COUNT];
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
            let block = NumberedBlock { number: BlockNumber(number), hash };
            self.headers.stand(slot, block, parent, agreed, now);
        }
    }

    /// Notes which block another one follows, and extends what is known of the blocks below the agreed head.
    /// Returns whether that is more than before: it has to be settled then.
    pub(crate) fn link(
        &mut self,
        view: &mut View,
        block: NumberedBlock,
        parent: BlockHash,
        now: Instant,
    ) -> bool {
        let agreed = view.latest.map_or(block.number, |head| head.number).0;
        let is_kept = self.headers.remember(block, Some(parent), agreed).is_some();
        let Some(latest) = view.latest.filter(|_| is_kept && view.canon.ends_at(block)) else {
            return false;
        };
        let head = (latest.number.0, latest.hash);
        Arc::make_mut(&mut view.canon).adopt(Some(latest.number.0), head, &self.headers, now);
        true
    }

    /// Notes what the upstream in `slot` holds to be safe or final.
    pub(crate) fn mark(&mut self, slot: Slot, tag: Tag, mark: Mark) {
        if let Some(marks) = self.marks.get_mut(slot.index()) {
            marks[tag as usize] = Some(mark);
        }
    }

    /// Forgets an upstream that is not on this chain. If no other upstream ever held the head, it
    /// is forgotten too, because it was another chain's.
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
            self.pace = BlockPace::default();
        }
        self.held_by = others;
        self.forget_words(slot);
    }

    /// Decides anew what `view` says of the chain.
    pub(crate) fn settle(&mut self, view: &mut View, well: UpstreamSet, now: Instant) {
        let height = |view: &View| view.latest.map(|head| head.number);
        let before = height(view);
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
        if height(view) < before
            && let Some(best) = view.best
        {
            self.pace.fall_to(best.number.0);
        }
        self.tell_pace(view, now);
        view.tell_freshness();
    }

    /// How fast blocks come, by the best head: the agreed one may stand still until it is
    /// known how far behind is too far, and that follows from the pace.
    fn tell_pace(&mut self, view: &mut View, now: Instant) {
        if let Some(best) = view.best {
            self.pace.observe(best.number.0, now);
        }
        let measured = || self.pace.block_time().or(view.block_time);
        view.block_time = self.terms.block_time.or_else(measured);
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

    /// The upstreams whose reports count, and whether they count against the present head.
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
                return (self.without_laggards(electing(below, view), view, well), true);
            }
        }
        let Some(reach) = self.reach(view, now) else {
            return (self.without_laggards(electing(present.to_vec(), view), view, well), false);
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
        // Upstreams without recent reports may soon report something else. Before a head was
        // confirmed, an upstream is more likely to be ahead than to be wrong.
        let silent = standing(view).filter(|it| well.contains(it.slot)).count() - present.len();
        let against = near.len() + silent;
        let is_minority = far.len() < against + usize::from(self.is_confirmed && against > 0);
        let voters = if is_minority { near } else { present.to_vec() };
        (self.without_laggards(electing(voters, view), view, well), false)
    }

    /// Those that are not too far behind the others, and not for too long.
    fn without_laggards(&self, voters: Vec<Voter>, view: &View, well: UpstreamSet) -> Vec<Voter> {
        let bound = bound(view);
        let mut voters = self.without_lone_leaders(voters, view, well);
        let highest = voters.iter().map(|voter| voter.number).max().unwrap_or_default();
        voters.retain(|voter| voter.number.saturating_add(bound) >= highest);
        let all = voters.clone();
        voters.retain(|voter| !self.is_late(voter, &all, view));
        voters
    }

    /// Those that are not far above more others than are with them, while the time between
    /// blocks is not known. Without this rule an upstream that is alone, and wrong, would make
    /// laggards of all others in the first seconds, when as many blocks count as possible as the
    /// quickest chain makes. As soon as the pace is known [`Agreement::reach`] decides. The last
    /// word of others that are well and not idle counts as well, however long ago it was.
    fn without_lone_leaders(
        &self,
        mut voters: Vec<Voter>,
        view: &View,
        well: UpstreamSet,
    ) -> Vec<Voter> {
        let k = self.terms.agreement.unwrap_or(AGREEMENT);
        while view.block_time.is_none() {
            let highest = voters.iter().map(|voter| voter.number).max().unwrap_or_default();
            let is_far_below = |it: &Voter| it.number.saturating_add(bound(view)) < highest;
            let leading = voters.iter().filter(|it| !is_far_below(it)).count();
            let others =
                standing(view).filter(|it| well.contains(it.slot) && !view.is_idle(it.slot));
            let below = others.filter(is_far_below).count();
            if leading == 0 || leading >= k || below < AGREEMENT || below <= leading {
                break;
            }
            voters.retain(is_far_below);
        }
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
        let k = self.terms.agreement.unwrap_or(AGREEMENT).min(voters.len()).max(1);
        let support = |head: &Voter| voters.iter().filter(|it| self.holds(it, head)).count();
        let agreed = voters
            .iter()
            .map(|head| (head, support(head)))
            .filter(|(_, support)| *support >= k)
            // A report without a hash agrees with every block of its height, and identifies none.
            .max_by_key(|(head, support)| {
                (head.number, head.hash.is_some(), *support, head.hash, Reverse(head.slot))
            });
        let Some((next, _)) = agreed else {
            return self.strongest_branch(view, voters);
        };
        let Some(latest) = view.latest else { return Some(*next) };
        let holding = || voters.iter().filter(|voter| self.holds_latest(voter, view)).count();
        let is_other = |known: Option<BlockHash>| {
            known.zip(next.hash).is_some_and(|(known, hash)| known != hash)
        };
        // The branch of an upstream far above is not known: it may move the head up, but not over to
        // a branch that a single old report supports. And an upstream that stayed on an abandoned
        // branch shows nothing new.
        let left_at = next.hash.and_then(|hash| view.reorgs().orphaned_at(next.number, &hash));
        let left_at = left_at.filter(|_| self.is_held(view, now));
        let is_anew = |it: &Voter| {
            let stands_since = view.heads[it.slot.index()].map(|head| head.seen_at);
            left_at.is_none_or(|left| stands_since.is_some_and(|since| since >= left))
        };
        let known = || {
            let known = voters.iter().filter(|it| self.is_known_to_hold(it, next));
            known.filter(|it| is_anew(it)).count()
        };
        let moves = match next.number.cmp(&latest.number.0) {
            Ordering::Greater => true,
            Ordering::Equal if is_other(latest.hash) => {
                let (holding, known) = (holding(), known());
                known >= k && (holding < k || known > holding)
            }
            Ordering::Equal => latest.hash.is_none() && next.hash.is_some(),
            Ordering::Less if may_fall => true,
            Ordering::Less if is_other(view.canon.at(next.number)) => known() >= k && holding() < k,
            Ordering::Less => self.has_fallen(view, present, now),
        };
        match moves {
            true => Some(*next),
            false => self.left_behind(view, voters, now),
        }
    }

    /// Where to go when there are branches, and none of them with enough voters: to the one with
    /// most of them, unless that is near the head.
    fn strongest_branch(&self, view: &View, voters: &[Voter]) -> Option<Voter> {
        let support = |head: &Voter| voters.iter().filter(|it| self.holds(it, head)).count();
        let most =
            voters.iter().max_by_key(|head| (support(head), head.number, Reverse(head.slot)))?;
        let stays = view
            .latest
            .is_some_and(|latest| most.number < latest.number.0.saturating_add(bound(view)));
        (!stays).then_some(*most)
    }

    /// The new head if no upstream holds the old one any more, not even by the last report of one
    /// that is away, and an upstream at that height or above is on another branch: upstreams below
    /// cannot show their branch, and a head that no upstream holds is of no use.
    fn left_behind(&self, view: &View, voters: &[Voter], now: Instant) -> Option<Voter> {
        let latest = view.latest.filter(|_| !self.is_held(view, now))?;
        let support = |head: &Voter| voters.iter().filter(|it| self.holds(it, head)).count();
        let ahead = voters.iter().filter(|it| it.number >= latest.number.0);
        ahead.max_by_key(|head| (support(head), head.number, Reverse(head.slot))).copied()
    }

    /// Whether an upstream holds the head, if only by the last word of one that is away.
    fn is_held(&self, view: &View, now: Instant) -> bool {
        let mut standing = standing(view);
        standing.any(|it| self.is_remembered(it.slot, now) && self.holds_latest(&it, view))
    }

    /// Whether the last word of the upstream in `slot` still says something.
    fn is_remembered(&self, slot: Slot, now: Instant) -> bool {
        self.heard[slot.index()].is_some_and(|at| now.saturating_duration_since(at) <= WORD_LASTS)
    }

    /// Whether the upstreams that held the head report lower ones, and no upstream holds it, not
    /// even by the last report of one that is away.
    fn has_fallen(&self, view: &View, present: &[Voter], now: Instant) -> bool {
        let (Some(latest), Some(confirmed_at)) = (view.latest, view.confirmed_at) else {
            return false;
        };
        let highest = present.iter().map(|voter| voter.number).max().unwrap_or_default();
        let is_deep = latest.number.0.saturating_sub(highest) > bound(view);
        let is_long = now.saturating_duration_since(confirmed_at) >= view.fresh_for();
        // An upstream that is away and above the others need not have held the head itself.
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
        let head_number = BlockNumber(head.number);
        let known = voter.block().and_then(|own| self.headers.ancestor(own, head_number));
        known.zip(head.hash).is_none_or(|(known, hash)| known == hash)
    }

    /// Whether `head` is known to be on the branch on which `voter` stands.
    fn is_known_to_hold(&self, voter: &Voter, head: &Voter) -> bool {
        let own = voter.block().filter(|_| voter.number >= head.number);
        let known = own.and_then(|own| self.headers.ancestor(own, BlockNumber(head.number)));
        known.is_some() && known == head.hash
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
        view.latest = own.map(|own| UpstreamHead { seen_at: now, ..own });
        let canon = Arc::make_mut(&mut view.canon);
        canon.adopt(old, (next.number, next.hash), &self.headers, now);
        if old != Some(next.number) {
            self.moved_at = Some(now);
        }
        self.held_by = UpstreamSet::default();
    }

    /// Records which upstreams hold the head, and the time of the last report.
    fn confirm(&mut self, view: &mut View, present: &[Voter]) {
        let holding: Vec<&Voter> =
            present.iter().filter(|voter| self.holds_latest(voter, view)).collect();
        let heard = holding.iter().filter_map(|voter| self.heard[voter.slot.index()]).max();
        let holding: UpstreamSet = holding.iter().map(|voter| voter.slot).collect();
        self.held_by = self.held_by.or(holding);
        self.is_confirmed |= holding.len() >= AGREEMENT;
        view.confirmed_at = heard.max(view.confirmed_at);
    }

    /// Safe and final blocks: the highest that `k` of the reporting upstreams consider safe or
    /// final. They never go back and are never above the newest. A final block is safe, even if it
    /// was reported as final first.
    fn set_marks(&self, view: &mut View, well: UpstreamSet, now: Instant) {
        let Some(latest) = view.latest else { return };
        let slots = (0_u8..).map(Slot).zip(self.marks.iter());
        let marks: Vec<_> = slots.filter(|(slot, _)| well.contains(*slot)).collect();
        for tag in [Tag::Safe, Tag::Finalized] {
            let of_tag =
                marks.iter().filter_map(|(slot, marks)| Some((*slot, marks[tag as usize]?)));
            let below: Vec<(Slot, Mark)> =
                of_tag.filter(|(_, mark)| mark.number <= latest.number).collect();
            // What an idle upstream told is as old as its last call.
            let are_all_idle = below.iter().all(|(slot, _)| view.is_idle(*slot));
            let telling = below.iter().filter(|(slot, _)| are_all_idle || !view.is_idle(*slot));
            let mut told: Vec<Mark> = telling.map(|(_, mark)| *mark).collect();
            told.sort_unstable_by_key(|mark| Reverse((mark.number, mark.told_at)));
            let k = self.terms.agreement.unwrap_or(AGREEMENT).min(told.len()).max(1);
            let agreed = told.get(k - 1).copied().or_else(|| {
                let number = latest.number.0.checked_sub(self.terms.final_after?)?;
                let hash = view.canon.at(number);
                Some(Mark { number: BlockNumber(number), hash, told_at: now })
            });
            let known = &mut view.marks[tag as usize];
            // Above the newest block it is a chain's that was there before a reset.
            *known = known.filter(|known| known.number <= latest.number);
            let Some(agreed) = agreed else { continue };
            match known {
                Some(known) if known.number >= agreed.number => {
                    known.told_at = known.told_at.max(agreed.told_at);
                }
                Some(_) | None => *known = Some(agreed),
            }
        }
        // Where no upstream tells which block is safe, none is made up.
        let [safe, finalized] = &mut view.marks;
        if let (Some(safe), Some(finalized)) = (safe, finalized)
            && safe.number < finalized.number
        {
            *safe = *finalized;
        }
    }

    /// Finds the upstreams on another branch or with implausible heads, and the best of the others.
    fn tell_astray(&mut self, view: &mut View, voting: UpstreamSet, now: Instant) {
        let Some(latest) = view.latest else {
            (view.astray, self.leader) = (UpstreamSet::default(), None);
            view.best = view.heads.iter().flatten().max_by_key(|head| head.number).copied();
            return;
        };
        let reach = self.reach(view, now).unwrap_or(u64::MAX);
        let is_astray = |it: &Voter| {
            // An old head may be on a branch that was left since.
            if view.is_idle(it.slot) && self.heard[it.slot.index()] != Some(now) {
                return view.is_astray(it.slot);
            }
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
        self.leader = self.slipped(view, now).or_else(|| {
            let slot = best?;
            let (head, reorg) = (view.heads[slot.index()]?, view.reorgs().last());
            Some(Leader { slot, head, reorg, fell_at: None })
        });
        view.best = self.leader.map(|leader| leader.head);
    }

    /// The leader, while it only says that it stands a little lower than it showed, and nothing
    /// tells of a reorg. Several nodes of different height may answer at one address, and a node
    /// may show a block in a receipt before it calls it its newest. As with the agreed head, a fall
    /// is believed when it lasts for longer than a view stays fresh.
    fn slipped(&self, view: &View, now: Instant) -> Option<Leader> {
        let leader = self.leader.filter(|leader| leader.reorg == view.reorgs().last())?;
        let (shown, is_astray) = (leader.head, view.is_astray(leader.slot));
        let own = view.heads[leader.slot.index()].filter(|_| !is_astray)?;
        let others = standing(view).filter(|it| !view.is_astray(it.slot));
        let highest = others.map(|it| it.number).max()?;
        if highest >= shown.number.0 || shown.number.0 - own.number.0 > bound(view) {
            return None;
        }
        let shown = shown.hash.map(|hash| NumberedBlock { number: shown.number, hash });
        let known = shown.and_then(|block| self.headers.ancestor(block, own.number));
        let is_left = known.zip(own.hash).is_some_and(|(known, hash)| known != hash);
        let fell_at = leader.fell_at.unwrap_or(now);
        let is_long = now.saturating_duration_since(fell_at) >= view.fresh_for();
        (!is_left && !is_long).then_some(Leader { fell_at: Some(fell_at), ..leader })
    }
}

/// Those of `voters` that are not idle, or all where there is no other.
fn electing(mut voters: Vec<Voter>, view: &View) -> Vec<Voter> {
    if voters.iter().any(|voter| !view.is_idle(voter.slot)) {
        voters.retain(|voter| !view.is_idle(voter.slot));
    }
    voters
}

/// The heads of all upstreams with a known head.
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
mod tests;
