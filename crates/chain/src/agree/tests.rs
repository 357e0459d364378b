//! What upstreams say, step by step, and what is agreed after it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::reorg::Reorg;

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
    fn new(upstreams: usize, rules: HeadsTerms, block_time: impl Into<Option<Duration>>) -> Self {
        let block_time = block_time.into();
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let now = Instant::now();
        Self {
            agreement: Agreement::new(upstreams, HeadsTerms { block_time, ..rules }),
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
        let head = UpstreamHead { number, hash, timestamp: None, seen_at };
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
    let rules = HeadsTerms { agreement, ..HeadsTerms::default() };
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
fn an_upstream_that_was_not_heard_of_lately_does_not_hold_it_up() {
    check("0:100 1:100 +60 0:105 =105a", "");
    check("0:100 1:100 +60 0:900 =100a", "");
}

#[test]
fn a_shorter_branch_does_not_slow_the_pace() {
    let mut chain = Chain::new(1, HeadsTerms::default(), None);
    let mut say = |number, branch| {
        chain.now += Duration::from_secs(1);
        chain.say(0, number, Some(branch));
        (chain.latest(), chain.view.block_time)
    };
    (100..=110).for_each(|number| drop(say(number, b'a')));
    for number in 104..=112 {
        let (latest, block_time) = say(number, b'b');
        let block_time = block_time.expect("many heads");
        let is_right = (900..=1_200).contains(&block_time.as_millis());
        assert!(is_right && latest == format!("{number}b"), "{latest}: {block_time:?}");
    }
}

#[test]
fn one_that_comes_to_lag_does_not_hold_up_a_pace_that_is_not_known() {
    let mut chain = Chain::new(2, HeadsTerms::default(), None);
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
fn one_far_ahead_of_two_moves_nothing_while_the_pace_is_not_known() {
    let play = |agreement, steps: &[(u64, u8, u64)]| {
        let rules = HeadsTerms { agreement, ..HeadsTerms::default() };
        let mut chain = Chain::new(4, rules, None);
        for (seconds, slot, number) in steps {
            chain.now += Duration::from_secs(*seconds);
            chain.say(*slot, *number, None);
        }
        (chain.latest(), chain.view.reorgs().last())
    };
    // Twenty blocks a second cannot be told from a lie by the pace of the quickest chain.
    let late = [(0, 0, 1000), (0, 1, 1000), (0, 2, 1100), (3, 0, 1000), (0, 1, 1000)];
    let later = [(3, 2, 1100), (3, 0, 1000), (0, 1, 1000), (0, 2, 1101)];
    assert_eq!(play(None, &[&late[..], &later[..]].concat()), ("1000?".to_owned(), 0));
    // Where it is as many as have to agree, it is believed; and of two the one ahead is.
    let followed = [(0, 0, 1000), (0, 1, 1000), (0, 2, 1100), (6, 3, 1100), (0, 2, 1100)];
    assert_eq!(play(None, &followed), ("1100?".to_owned(), 0));
    assert_eq!(play(Some(1), &[&late[..], &later[..]].concat()).0, "1101?");
    assert_eq!(play(None, &[(0, 0, 1000), (0, 1, 1100)]), ("1100?".to_owned(), 0));
}

#[test]
fn one_far_ahead_of_several_that_are_heard_of_together_is_not_believed() {
    let mut chain = Chain::new(3, HeadsTerms::default(), None);
    let all = chain.well;
    chain.well = UpstreamSet::default();
    (0..2).for_each(|slot| chain.say(slot, 1000, None));
    chain.say(2, 1100, None);
    assert_eq!(chain.latest(), "");
    chain.well = all;
    chain.settle();
    assert_eq!(chain.latest(), "1000?");
}

#[test]
fn two_that_are_stuck_from_the_start_do_not_hold_up_a_third_for_good() {
    let mut chain = Chain::new(3, HeadsTerms::default(), None);
    for second in 0..600 {
        chain.now += Duration::from_secs(1);
        (0..2).for_each(|slot| chain.say(slot, 1000, None));
        chain.say(2, 1100 + second, None);
    }
    assert_eq!(chain.latest(), "1699?");
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
fn a_head_that_no_upstream_holds_is_left_for_one_that_went_on_elsewhere() {
    check("0:103 1:103 1:101 =103a 0:104b =104b 0:105b =105b 1:105b =105b", "1");
    // While an upstream holds it, or did when last heard of, one alone moves nothing.
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

#[test]
fn an_old_word_does_not_lead_back_to_a_branch_that_was_left() {
    // The last word of 4 is of a block that was replaced; where 0 came from is not known.
    check("0:102 4:102 =102a 0:103b 1:103b =103b !1 0:105c =103b", "1");
    check("0:102 4:102 =102a 0:103b 1:103b =103b 0:104b 1:104b 0:106c 1:104c =104b", "1");
}

#[test]
fn those_that_stayed_on_a_branch_that_was_left_do_not_lead_back() {
    // 2 and 3 are stuck. 1 begins anew, so that 4 is alone on the branch that was agreed on.
    let stuck = "2:102 3:102 4:102 =102a +1 1:103b 4:103b =103b +1 2:102 3:102 1:90 =103b";
    check(stuck, "1");
    // Two that went back there lead back, and two that went on there lead on.
    check("2:102 3:102 =102a +1 2:103b 3:103b =103b +1 2:102 =103b 3:102 =102a", "1 2");
    check(&format!("{stuck} +12 2:104 3:104 =104a"), "1 1");
    // Nothing speaks for a branch that no upstream is on.
    check("2:102 3:102 4:102 =102a +1 1:103b 4:103b =103b +1 1:102 4:90 3:102 =102a", "1 2");
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
fn headers_that_are_read_show_how_deep_a_reorg_went() {
    let mut chain = play(None, "0:101 0:102 0:103 0:104 0:105 0:106b");
    let mut link = |(number, branch), parent| {
        let parent = hash(number - 1, parent);
        let block = NumberedBlock { number: BlockNumber(number), hash: hash(number, branch) };
        chain.agreement.link(&mut chain.view, block, parent, chain.now)
    };
    assert!(!link((103, b'b'), b'a'), "the head is not known to stand on it");
    assert!(link((105, b'b'), b'b'));
    assert!(!link((105, b'b'), b'b'), "known");
    assert!(link((104, b'b'), b'b'));
    let at = |number| chain.view.hash_at(BlockNumber(number));
    let expected = |number, branch| Some(hash(number, branch));
    assert_eq!([at(104), at(103)], [expected(104, b'b'), expected(103, b'b')]);
    assert_eq!(
        [at(102), at(101)],
        [expected(102, b'a'), expected(101, b'a')],
        "the two part at 102"
    );
    let orphaned = |reorg: &Reorg| reorg.orphaned.iter().map(|(at, _)| at.0).collect::<Vec<_>>();
    let orphaned: Vec<_> = chain.view.reorgs().since(0).expect("few").map(orphaned).collect();
    assert_eq!(orphaned, [vec![105], vec![104], vec![103]]);
    assert_eq!(chain.latest(), "106b");
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

/// Plays a script and compares the best head.
fn check_best(script: &str, expected: u64) {
    let chain = play(None, script);
    assert_eq!(chain.view.best.map(|head| head.number.0), Some(expected), "{script}");
}

#[test]
fn the_best_head_falls_when_its_upstream_says_so_for_long_or_a_reorg_is_known() {
    // A receipt showed it first.
    check_best("0:100 1:100 0:102? 0:101", 102);
    check_best("0:100 1:100 0:101 0:102 0:101 +12 1:101 0:101 +23", 102);
    check_best("0:100 1:100 0:102? 0:101 +35 0:101", 102);
    check_best("0:100 1:100 0:102? 0:101 +36 0:101", 101);
    // From the first word on, unless it stood there again.
    check_best("0:100 1:100 0:102? 0:101 +30 0:102? 0:101 +35 1:100", 102);
    // Another one is as high, or higher.
    check_best("0:100 1:100 2:100 0:102? 1:102? 0:101 1:101 +12 2:103", 103);
    // It is on another branch, and has none of it.
    check_best("0:100 1:100 0:101 0:102 0:101b", 101);
    check_best("0:100 1:100 0:101 1:101 0:102 0:101b", 101);
    // The chain was reset.
    check_best("0:100 1:100 0:102? 0:20 1:20", 20);
    check_best("0:100 1:100 0:103? 0:99", 100);
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
    let mut chain = Chain::new(2, HeadsTerms::default(), Duration::from_millis(250));
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
    assert_eq!(told(0, 100), Some(100), "no other upstream told");
    assert_eq!(told(1, 132), Some(100));
    assert_eq!(told(2, 5000), Some(100), "above the newest nothing is final");
    assert_eq!(told(0, 132), Some(132));
    assert_eq!((told(0, 4), told(1, 4)), (Some(132), Some(132)), "it does not go back");
    assert_eq!(chain.view.mark(Tag::Safe), None);
}

/// Plays `0:f100` (slot 0 holds 100 to be final) and `0:s116` (safe), and compares
/// "safe finalized latest" after each step.
fn check_marks(chain: &mut Chain, script: &str, expected: &[&str]) {
    let mut seen = Vec::new();
    for step in script.split_whitespace() {
        let (slot, mark) = step.split_once(':').expect("slot:mark");
        let slot: u8 = slot.parse().expect("a slot");
        let number = |text: &str| BlockNumber(text.parse().expect("a number"));
        let mark_of = |text: &str| Mark { number: number(text), hash: None, told_at: chain.now };
        match (mark.strip_prefix('s'), mark.strip_prefix('f')) {
            (Some(safe), _) => chain.agreement.mark(Slot(slot), Tag::Safe, mark_of(safe)),
            (_, Some(last)) => chain.agreement.mark(Slot(slot), Tag::Finalized, mark_of(last)),
            (None, None) => chain.say(slot, number(mark).0, None),
        }
        chain.settle();
        let word = |number: Option<BlockNumber>| number.map_or(0, |number| number.0);
        let mark = |tag| word(chain.view.mark(tag).map(|mark| mark.number));
        let latest = word(chain.view.latest.map(|head| head.number));
        assert!(mark(Tag::Safe) == 0 || mark(Tag::Safe) >= mark(Tag::Finalized), "{script}");
        seen.push(format!("{} {} {latest}", mark(Tag::Safe), mark(Tag::Finalized)));
    }
    assert_eq!(seen, expected, "{script}");
}

#[test]
fn what_is_final_is_safe_and_neither_is_above_the_newest() {
    let mut chain = play(None, "0:500? 1:500?");
    let script = "0:s384 1:s384 0:f352 1:f352 0:f416 1:f416 0:s448 1:s448";
    let expected = [
        "384 0 500",
        "384 0 500",
        "384 352 500",
        "384 352 500",
        "384 352 500",
        "416 416 500",
        "416 416 500",
        "448 416 500",
    ];
    check_marks(&mut chain, script, &expected);
    // An upstream that tells what is final and not what is safe leaves that open.
    check_marks(&mut play(None, "0:500? 1:500?"), "0:f400 1:f400", &["0 400 500", "0 400 500"]);
    // A chain that was started anew has nothing final of the one before.
    let mut chain = play(None, "0:9000?");
    check_marks(&mut chain, "0:f8900 0:100 0:f36", &["0 8900 9000", "0 0 100", "0 36 100"]);
}

#[test]
fn where_no_upstream_tells_the_settings_say_what_is_final() {
    let rules = HeadsTerms { final_after: Some(64), ..HeadsTerms::default() };
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

/// What may happen: an upstream says something or dies, or time passes.
fn steps() -> impl Strategy<Value = Vec<(u8, u64, u8, u64)>> {
    let step = (0_u8..5, 90_u64..130, prop::sample::select(b"aabc?!".to_vec()), 0_u64..30);
    prop::collection::vec(step, 1..120)
}

#[test]
fn an_upstream_that_names_no_hash_does_not_hide_that_of_those_that_agree() {
    let rules = HeadsTerms { agreement: Some(3), ..HeadsTerms::default() };
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
        let rules = HeadsTerms { agreement, ..HeadsTerms::default() };
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
        let rules = HeadsTerms { agreement: Some(usize::from(rogues) + 1), ..HeadsTerms::default() };
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
