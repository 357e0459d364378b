//! The one owner of what is known of a chain's heads.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use wellhead_eth::{BlockHash, BlockNumber, Bloom, NumberedBlock};
use wellhead_jsonrpc::raw;
use wellhead_upstream::{Condition, Slot, UPSTREAMS_MAX, Upstream, UpstreamList, UpstreamSet};

use crate::agree::{Agreement, HeadsTerms};
use crate::bloom::Blooms;
use crate::reorg::Canonical;
use crate::view::{Mark, Tag, UpstreamHead, View};

/// How we heard of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The upstream's own word on its newest block, by a feed: may also lower its head.
    Word,
    /// The upstream's own word by a poll that was sent at this moment: what a feed or an answer
    /// told since then is newer and not lowered.
    Polled(Instant),
    /// An answer that named a block: shows that the upstream holds at least that, unless the block was taken
    /// back meanwhile, as the call may have been sent before that.
    Answer,
}

/// A block that an upstream showed to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Its number.
    pub number: BlockNumber,
    /// Its hash, where told.
    pub hash: Option<BlockHash>,
    /// The hash of the block before it, where told.
    pub parent: Option<BlockHash>,
    /// Its timestamp in seconds since 1970, where told.
    pub timestamp: Option<u64>,
}

impl Observation {
    /// Reads the raw JSON of a block or header object; `None` without a number.
    pub fn of_block(block: &[u8]) -> Option<Self> {
        let number = raw::quantity(raw::field(block, "number")?).map(BlockNumber)?;
        let hash = |name| {
            let hash = raw::field(block, name).and_then(raw::string)?;
            hash.parse::<BlockHash>().ok()
        };
        Some(Self {
            number,
            hash: hash("hash"),
            parent: hash("parentHash"),
            timestamp: raw::field(block, "timestamp").and_then(raw::quantity),
        })
    }

    /// A block of which only the number is known.
    pub fn of_number(number: BlockNumber) -> Self {
        Self { number, hash: None, parent: None, timestamp: None }
    }
}

/// What an observation changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing.
    Known,
    /// This upstream's head.
    OwnHead,
    /// The highest head of all, which other upstreams may not have reported yet.
    BestHead,
}

/// Takes observations, publishes views.
#[derive(Debug)]
pub struct Heads {
    view: ArcSwap<View>,
    /// Writers take turns; readers never wait.
    writer: Mutex<Agreement>,
    /// How many upstreams have to hold a block by the settings; zero where they do not say.
    agreement_given: AtomicUsize,
    blooms: Blooms,
    /// The upstreams whose condition decides whether their reports count; if not given, all count.
    upstreams: Arc<UpstreamList>,
    /// Is told when the agreed head is another one.
    listener: OnceLock<LatestListener>,
}

/// What to call when the agreed head changed, its hash included.
struct LatestListener(Box<dyn Fn(&View) + Send + Sync>);

impl fmt::Debug for LatestListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LatestListener")
    }
}

impl Heads {
    /// Heads of a chain with this many upstreams. `block_time` and `lag_blocks_max` come from the
    /// settings.
    pub fn new(
        upstreams: usize,
        block_time: Option<Duration>,
        lag_blocks_max: Option<u64>,
    ) -> Self {
        let terms = HeadsTerms { block_time, lag_blocks_max, ..HeadsTerms::default() };
        Self {
            view: ArcSwap::from_pointee(View::unknown(upstreams, block_time, lag_blocks_max)),
            writer: Mutex::new(Agreement::new(upstreams, terms)),
            agreement_given: AtomicUsize::new(0),
            blooms: Blooms::default(),
            upstreams: Arc::default(),
            listener: OnceLock::new(),
        }
    }

    /// Has `listener` called with the new view each time after the agreed head became another one. The view is stored
    /// by then and no lock is held, so of two views that follow each other at once the later may be told first. Only
    /// the first listener is kept.
    pub fn on_latest(&self, listener: impl Fn(&View) + Send + Sync + 'static) {
        // A second one would be a mistake of the assembly, and changes nothing.
        let _ = self.listener.set(LatestListener(Box::new(listener)));
    }

    /// Stores the next view, which replaces `present`, gives the lock back, and tells the listener.
    fn publish(&self, writer: MutexGuard<'_, Agreement>, present: &View, next: View) {
        let block = |view: &View| view.latest.map(|head| (head.number, head.hash));
        let is_another = block(present) != block(&next);
        let next = Arc::new(next);
        self.view.store(Arc::clone(&next));
        // What a listener does must not hold up other writers.
        drop(writer);
        if let Some(listener) = self.listener.get().filter(|_| is_another) {
            (listener.0)(&next);
        }
    }

    /// Publishes the present view with what `change` makes of it, settled; nothing if that says so.
    fn renew(&self, now: Instant, change: impl FnOnce(&mut Agreement, &mut View) -> bool) {
        let mut writer = self.writer.lock();
        let present = self.view.load();
        let mut next = View::clone(&present);
        if change(&mut writer, &mut next) {
            writer.settle(&mut next, self.well(now), now);
            self.publish(writer, &present, next);
        }
    }

    /// Goes by other settings from now on, and by the upstreams in the list as it is now. What is known stays, but
    /// for the word of upstreams in other slots than those that are `kept`.
    ///
    /// To be called when the list has changed. Where an upstream takes the slot of another one, that one has to be
    /// gone for longer than a call may take: what such a call says would count for the new one.
    pub fn change(&self, terms: &HeadsTerms, kept: UpstreamSet, now: Instant) {
        self.agreement_given.store(terms.agreement.unwrap_or(0), Relaxed);
        self.renew(now, |writer, next| {
            let upstreams = self.upstreams.load();
            let slots = upstreams.iter().map(|it| it.slot().index() + 1).max().unwrap_or(0);
            writer.change(*terms, slots);
            let mut heads = next.heads.to_vec();
            heads.resize(slots.max(heads.len()), None);
            next.heads = heads.into();
            for slot in (0..next.heads.len()).filter_map(|slot| u8::try_from(slot).ok().map(Slot)) {
                if !kept.contains(slot) {
                    next.heads[slot.index()] = None;
                    next.idle = next.idle.without([slot].into_iter().collect());
                    writer.vacate(slot);
                }
            }
            next.lag_blocks_max = terms.lag_blocks_max;
            (next.is_followed, next.poll_min) =
                (terms.poll_min.is_some(), terms.poll_min.unwrap_or_default());
            true
        });
    }

    /// The word of those that are not well does not count.
    #[must_use]
    pub fn among(self, upstreams: Arc<UpstreamList>) -> Self {
        Self { upstreams, ..self }
    }

    /// The upstreams whose word counts as far as they are well; an empty list: all count.
    pub fn upstreams(&self) -> &Arc<UpstreamList> {
        &self.upstreams
    }

    /// The present view. One atomic load; pin it once per request.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Looks at what is believed now, without a count that all workers would share. To be
    /// used for a moment: what replaces the view waits for no one, but keeps it for him.
    pub fn look<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.load())
    }

    /// Takes in what `slot` showed. Cheap when an answer is no news: no lock, no new view.
    /// An upstream's own word is always noted, as it shows that nothing newer is there.
    pub fn observe(&self, slot: Slot, seen: Observation, source: Source, now: Instant) -> News {
        if source == Source::Answer && !is_news(self.view.load().head(slot), &seen, source) {
            return News::Known;
        }
        let mut writer = self.writer.lock();
        let present = self.view.load();
        if slot.index() >= present.heads.len() {
            return News::Known;
        }
        if is_late(present.head(slot), &seen, source) {
            return News::Known;
        }
        // Another writer may have been first.
        let is_news = is_news(present.head(slot), &seen, source);
        if source == Source::Answer && (!is_news || is_taken_back(&present, &seen)) {
            return News::Known;
        }
        writer.hear(&present, slot, seen.number.0, seen.hash, seen.parent, now);
        let mut next = View::clone(&present);
        if is_news {
            let head = UpstreamHead {
                number: seen.number,
                hash: seen.hash,
                timestamp: seen.timestamp,
                seen_at: now,
            };
            next.heads[slot.index()] = Some(head);
        }
        writer.settle(&mut next, self.well(now), now);
        if next.is_idle(slot) {
            count_lag_from_now(&mut next, slot);
        }
        let is_best = next.best.map(|head| head.number) > present.best.map(|head| head.number);
        self.publish(writer, &present, next);
        match (is_best, is_news) {
            (true, _) => News::BestHead,
            (false, true) => News::OwnHead,
            (false, false) => News::Known,
        }
    }

    /// Takes in the header of a block that was read by its hash, whichever upstream answered: no head moves.
    /// It shows on which blocks the agreed head stands, so a reorg may turn out to be deeper than reported;
    /// what it took back besides is then one more [`Reorg`](crate::Reorg). Without the hash of its parent it
    /// says nothing.
    pub fn observe_header(&self, seen: &Observation, now: Instant) {
        let (Some(hash), Some(parent)) = (seen.hash, seen.parent) else { return };
        let block = NumberedBlock { number: seen.number, hash };
        self.renew(now, |writer, next| writer.link(next, block, parent, now));
    }

    /// Takes in the bloom of a block that an upstream showed, if it told one; without the
    /// block's hash it says nothing.
    pub fn observe_bloom(&self, seen: &Observation, bloom: Option<&Bloom>) {
        let (Some(hash), Some(bloom)) = (seen.hash, bloom) else { return };
        let agreed = self.look(|view| view.latest.map_or(seen.number, |head| head.number));
        self.blooms.hear(seen.number.0, hash, bloom, agreed.0);
    }

    /// Shows the blooms of those of `blocks` that `view` holds for canonical and of which the bloom is
    /// known: the newest 256 at most.
    pub fn blooms(
        &self,
        view: &View,
        blocks: RangeInclusive<BlockNumber>,
        look: impl FnMut(BlockNumber, &Bloom),
    ) {
        self.blooms.show(view.canonical_in(*blocks.start(), *blocks.end()), look);
    }

    /// How many upstreams have to hold a block by the settings; `None` where they do not say.
    pub fn agreement_given(&self) -> Option<usize> {
        Some(self.agreement_given.load(Relaxed)).filter(|agreement| *agreement > 0)
    }

    /// Notes that the head of `slot` is asked for rarely from now on (`is_idle`), or that it was
    /// just told and is followed. The word of an idle upstream is old: it has no vote while
    /// others have one, and its lag is what it was at that word.
    pub fn set_idle(&self, slot: Slot, is_idle: bool, now: Instant) {
        if self.look(|view| view.is_idle(slot) == is_idle) {
            return;
        }
        self.renew(now, |_, next| {
            if slot.index() >= next.heads.len() {
                return false;
            }
            match is_idle {
                true => {
                    count_lag_from_now(next, slot);
                    next.idle.insert(slot);
                }
                false => next.idle = next.idle.without([slot].into_iter().collect()),
            }
            true
        });
    }

    /// Forgets the head of an upstream without recent reports: its height is no longer known.
    /// The agreed head stays, because the block still exists.
    pub fn fade(&self, slot: Slot) {
        let _writer = self.writer.lock();
        let mut next = View::clone(&self.view.load());
        if let Some(head) = next.heads.get_mut(slot.index()) {
            *head = None;
        }
        self.view.store(Arc::new(next));
    }

    /// Takes in which blocks `slot` holds to be safe and final, in one step: no view has one of them without the
    /// others.
    pub fn observe_marks(&self, slot: Slot, seen: &[(Tag, Observation)], now: Instant) {
        self.renew(now, |writer, _| {
            for (tag, seen) in seen {
                let mark = Mark { number: seen.number, hash: seen.hash, told_at: now };
                writer.mark(slot, *tag, mark);
            }
            true
        });
    }

    /// Forgets the head of an upstream that turned out not to be on this chain.
    pub fn forget(&self, slot: Slot, now: Instant) {
        self.renew(now, |writer, next| {
            if let Some(head) = next.heads.get_mut(slot.index()) {
                *head = None;
            }
            writer.forget(next, slot, now);
            true
        });
    }

    /// The upstreams whose reports count: they are reliable, even if they get no calls at the
    /// moment.
    fn well(&self, now: Instant) -> UpstreamSet {
        let upstreams = self.upstreams.load();
        if upstreams.is_empty() {
            return (0..UPSTREAMS_MAX)
                .map_while(|slot| u8::try_from(slot).ok().map(Slot))
                .collect();
        }
        let is_well = |upstream: &&Arc<Upstream>| match upstream.condition(now) {
            Condition::Ready | Condition::Throttled | Condition::Overspent | Condition::Spent => {
                true
            }
            Condition::HalfOpen
            | Condition::Syncing
            | Condition::BreakerOpen
            | Condition::OutOfService
            | Condition::Unverified
            | Condition::WrongChain => false,
        };
        upstreams.iter().filter(is_well).map(|upstream| upstream.slot()).collect()
    }
}

/// Keeps the agreed head, which the lag of an idle upstream is counted from.
fn count_lag_from_now(view: &mut View, slot: Slot) {
    let mut agreed: Vec<Option<UpstreamHead>> = view.agreed_then.to_vec();
    agreed.resize(view.heads.len(), None);
    if let Some(place) = agreed.get_mut(slot.index()) {
        *place = view.latest;
    }
    view.agreed_then = agreed.into();
}

/// Whether something newer was learnt while this was under way.
fn is_late(known: Option<&UpstreamHead>, seen: &Observation, source: Source) -> bool {
    match (known, source) {
        (Some(known), Source::Polled(asked_at)) => {
            let is_other = seen.hash.is_some() && known.hash.is_some() && seen.hash != known.hash;
            known.seen_at > asked_at
                && (seen.number < known.number || (seen.number == known.number && is_other))
        }
        (_, Source::Word | Source::Polled(_) | Source::Answer) => false,
    }
}

/// Whether a reorg took the block back, and none brought it back.
fn is_taken_back(view: &View, seen: &Observation) -> bool {
    seen.hash.is_some_and(|hash| {
        view.reorgs().orphaned_at(seen.number.0, &hash).is_some()
            && view.canonical(seen.number, &hash) == Canonical::No
    })
}

fn is_news(known: Option<&UpstreamHead>, seen: &Observation, source: Source) -> bool {
    let Some(known) = known else { return true };
    match source {
        Source::Answer => seen.number > known.number,
        Source::Word | Source::Polled(_) => {
            seen.number != known.number
                || (seen.hash.is_some() && seen.hash != known.hash)
                || (seen.timestamp.is_some() && known.timestamp.is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    fn seen(number: u64) -> Observation {
        Observation::of_number(BlockNumber(number))
    }

    /// Has an upstream tell its head.
    fn say(heads: &Heads, slot: u8, number: u64, now: Instant) {
        heads.observe(Slot(slot), seen(number), Source::Word, now);
    }

    /// Plays `slot:number` (its word) and `slot~number` (an answer), then compares
    /// "best | heads".
    fn check(script: &str, expected: &str) {
        let now = origin();
        let heads = Heads::new(3, None, None);
        for step in script.split_whitespace() {
            let source = if step.contains(':') { Source::Word } else { Source::Answer };
            let (slot, number) = step.split_once([':', '~']).expect("slot:number");
            let seen = seen(number.parse().expect("a number"));
            heads.observe(Slot(slot.parse().expect("a slot")), seen, source, now);
        }
        let view = heads.view();
        let word = |head: &Option<UpstreamHead>| {
            head.map_or_else(|| "-".into(), |head| head.number.0.to_string())
        };
        let own: Vec<String> = view.heads.iter().map(word).collect();
        assert_eq!(format!("{} | {}", word(&view.best), own.join(" ")), expected, "{script}");
    }

    fn upstream(slot: u8, now: Instant) -> Arc<Upstream> {
        let identity = wellhead_upstream::Identity::named(&format!("u{slot}"));
        let bounds = wellhead_upstream::BreakerBounds::default();
        let upstream = Upstream::new(identity, Slot(slot), bounds, now);
        upstream.set_standing(wellhead_upstream::Standing::Verified);
        Arc::new(upstream)
    }

    #[test]
    fn other_settings_keep_the_agreed_head_and_forget_upstreams_that_are_gone() {
        let now = origin();
        let upstreams = [upstream(0, now), upstream(1, now)];
        let heads = Heads::new(2, None, None).among(UpstreamList::of(&upstreams));
        say(&heads, 0, 7, now);
        say(&heads, 1, 7, now);
        let latest = |heads: &Heads| heads.view().latest.map(|head| head.number.0);
        assert_eq!(latest(&heads), Some(7));
        // The first one goes, and another one comes in a new slot.
        heads.upstreams().store(&[Arc::clone(&upstreams[1]), upstream(2, now)]);
        let terms = HeadsTerms {
            agreement: Some(2),
            poll_min: Some(Duration::ZERO),
            ..HeadsTerms::default()
        };
        heads.change(&terms, [Slot(1)].into_iter().collect(), now);
        assert_eq!(latest(&heads), Some(7), "the block still exists");
        let own = |slot: u8| heads.view().head(Slot(slot)).map(|head| head.number.0);
        assert_eq!((own(0), own(1), own(2)), (None, Some(7), None));
        assert_eq!(heads.agreement_given(), Some(2));
        say(&heads, 2, 7, now);
        say(&heads, 1, 8, now);
        assert_eq!(latest(&heads), Some(7), "two have to hold it now");
        say(&heads, 2, 8, now);
        assert_eq!(latest(&heads), Some(8));
    }

    #[test]
    fn the_highest_is_the_best() {
        check("", "- | - - -");
        check("0:5 1:7 2:6", "7 | 5 7 6");
    }

    #[test]
    fn an_answer_only_raises() {
        check("0~5 0~4", "5 | 5 - -");
        check("0:5 0~9", "9 | 9 - -");
    }

    #[test]
    fn its_own_word_may_lower_it_but_not_the_best() {
        check("0:5 1:5 0:3", "5 | 3 5 -");
    }

    #[test]
    fn what_a_poll_tells_late_lowers_nothing_that_was_learnt_since() {
        let began = origin();
        let at = |millis| began + Duration::from_millis(millis);
        let heads = Heads::new(1, None, None);
        let say = |number, source, millis| {
            heads.observe(Slot(0), seen(number), source, at(millis));
            heads.view().head(Slot(0)).map(|head| head.number.0)
        };
        assert_eq!(say(8, Source::Polled(at(0)), 10), Some(8));
        assert_eq!(say(9, Source::Word, 30), Some(9));
        assert_eq!(say(8, Source::Polled(at(20)), 40), Some(9));
        assert_eq!(say(10, Source::Polled(at(20)), 50), Some(10));
        assert_eq!(say(8, Source::Polled(at(60)), 70), Some(8));
    }

    #[test]
    fn an_answer_does_not_bring_a_block_back_that_was_taken_back() {
        let now = origin();
        let heads = Heads::new(1, None, None);
        let hash = |number: u64, branch: u8| {
            let mut hash = [branch; 32];
            hash[..8].copy_from_slice(&number.to_be_bytes());
            BlockHash(hash)
        };
        let say = |number, branch, on, source| {
            let (hash, parent) = (Some(hash(number, branch)), Some(hash(number - 1, on)));
            let seen = Observation { hash, parent, ..seen(number) };
            heads.observe(Slot(0), seen, source, now);
            let head = heads.view().latest.expect("a head");
            (head.number.0, head.hash)
        };
        for number in 17..=20 {
            say(number, 0, 0, Source::Word);
        }
        assert_eq!(say(18, 1, 0, Source::Word), (18, Some(hash(18, 1))), "a shorter branch");
        let stays = (18, Some(hash(18, 1)));
        assert_eq!(say(20, 0, 0, Source::Answer), stays, "it was asked for before that");
        assert_eq!(say(19, 1, 1, Source::Answer), (19, Some(hash(19, 1))), "a new block");
        assert_eq!(say(20, 0, 0, Source::Word), (20, Some(hash(20, 0))), "its own word counts");
        assert_eq!(say(21, 0, 0, Source::Answer), (21, Some(hash(21, 0))), "and what follows it");
    }

    #[test]
    fn an_unknown_slot_is_ignored() {
        check("9:5", "- | - - -");
    }

    #[test]
    fn lag_is_counted_from_the_best() {
        let now = origin();
        let heads = Heads::new(2, None, Some(2));
        for (slot, number, timestamp) in [(0, 10, 1000), (1, 7, 964)] {
            let seen = Observation { timestamp: Some(timestamp), ..seen(number) };
            heads.observe(Slot(slot), seen, Source::Word, now);
        }
        let view = heads.view();
        assert_eq!((view.lag_blocks(Slot(0)), view.lag_blocks(Slot(1))), (Some(0), Some(3)));
        assert_eq!(view.lag_time(Slot(1), now), Some(Duration::from_secs(36)));
        assert!(view.is_lagging(Slot(1), None));
        assert!(!view.is_lagging(Slot(1), Some(3)), "the upstream's own bound outranks");
        assert!(!view.is_lagging(Slot(0), None));
    }

    #[test]
    fn a_forgotten_upstream_no_longer_leads() {
        let now = origin();
        let heads = Heads::new(2, None, None);
        say(&heads, 0, 900, now);
        say(&heads, 1, 7, now);
        heads.forget(Slot(0), now);
        let view = heads.view();
        assert_eq!(view.latest.map(|head| head.number), Some(BlockNumber(7)));
        assert_eq!(view.best.map(|head| head.number), Some(BlockNumber(7)));
    }

    #[test]
    fn a_faded_head_is_unknown_and_what_it_showed_is_still_there() {
        let now = origin();
        let heads = Heads::new(2, None, Some(3));
        heads.observe(Slot(0), seen(900), Source::Answer, now);
        heads.observe(Slot(1), seen(7), Source::Answer, now);
        assert!(heads.view().is_lagging(Slot(1), None));
        heads.fade(Slot(1));
        heads.fade(Slot(0));
        let view = heads.view();
        assert!(!view.is_lagging(Slot(1), None), "its head is not known");
        assert_eq!(view.best.map(|head| head.number), Some(BlockNumber(900)));
        // The next word counts, however low.
        heads.observe(Slot(1), seen(8), Source::Answer, now);
        assert!(heads.view().is_lagging(Slot(1), None));
    }

    #[test]
    fn an_idle_upstream_lags_by_what_it_lagged_at_its_last_word() {
        let now = origin();
        let heads = Heads::new(3, None, Some(3));
        let say = |slot, number| say(&heads, slot, number, now);
        let shown = || {
            let view = heads.view();
            let latest = view.latest.expect("agreed").number.0;
            let lag = view.lag_blocks(Slot(2)).expect("known");
            (latest, lag, view.is_lagging(Slot(2), None), view.tip(Slot(2)).map(|tip| tip.0))
        };
        (0..3).for_each(|slot| say(slot, 100));
        heads.set_idle(Slot(2), true, now);
        (0..2).for_each(|slot| say(slot, 150));
        assert_eq!(shown(), (150, 0, false, None), "it has gone on since");
        say(2, 140);
        assert_eq!(shown(), (150, 10, true, None), "it said itself that it is behind");
        say(2, 150);
        (0..2).for_each(|slot| say(slot, 160));
        assert_eq!(shown(), (160, 0, false, None));
        heads.set_idle(Slot(2), false, now);
        assert_eq!(shown(), (160, 10, true, Some(150)), "now its head is its head");
    }

    #[test]
    fn an_idle_upstream_has_no_vote_beside_others() {
        let now = origin();
        let heads = Heads::new(3, None, Some(3));
        let tell = |slot, number| {
            say(&heads, slot, number, now);
            heads.view().latest.expect("agreed").number.0
        };
        tell(0, 100);
        tell(1, 100);
        heads.set_idle(Slot(1), true, now);
        heads.set_idle(Slot(2), true, now);
        assert_eq!(tell(0, 101), 101, "its old head does not hold down the agreed one");
        assert_eq!(tell(2, 103), 101, "nor does a newer one carry it up");
        assert_eq!(tell(0, 103), 103);
        let mark = |slot, number| {
            heads.observe_marks(Slot(slot), &[(Tag::Finalized, seen(number))], now);
            heads.view().mark(Tag::Finalized).expect("told").number.0
        };
        assert_eq!((mark(1, 60), mark(0, 70)), (60, 70), "final blocks go on without it, too");
    }

    #[test]
    fn where_all_that_were_heard_are_idle_they_vote() {
        let now = origin();
        let heads = Heads::new(2, None, Some(3));
        heads.set_idle(Slot(0), true, now);
        heads.set_idle(Slot(1), true, now);
        say(&heads, 0, 100, now);
        assert_eq!(heads.view().latest.map(|head| head.number), Some(BlockNumber(100)));
    }

    #[test]
    fn the_listener_is_told_outside_the_lock() {
        let heads = Arc::new(Heads::new(1, None, None));
        let told = Arc::new(AtomicUsize::new(0));
        heads.on_latest({
            let (heads, told) = (Arc::downgrade(&heads), Arc::clone(&told));
            move |view| {
                let heads = heads.upgrade().expect("it publishes");
                assert!(heads.writer.try_lock().is_some(), "others may write meanwhile");
                let latest = view.latest.map_or(0, |head| head.number.0 as usize);
                told.fetch_add(latest, Relaxed);
            }
        });
        let now = origin();
        [100, 100, 101].into_iter().for_each(|number| say(&heads, 0, number, now));
        assert_eq!(told.load(Relaxed), 201, "once for each");
    }

    #[test]
    fn a_header_teaches_number_hash_and_time() {
        let hash = "0x00000000000000000000000000000000000000000000000000000000000000ff";
        let block = format!(
            r#"{{"timestamp":"0x10","hash":"{hash}","parentHash":"{hash}","number":"0x1b4"}}"#
        );
        let seen = Observation::of_block(block.as_bytes()).expect("a block");
        assert_eq!((seen.number, seen.timestamp), (BlockNumber(436), Some(16)));
        assert_eq!(seen.hash.map(|hash| hash.to_string()), Some(hash.to_owned()));
        assert_eq!(seen.parent, seen.hash);
        assert_eq!(Observation::of_block(b"null"), None);
    }
}
