//! `fresh`: how much later than the others a target shows a new block. The cells are told at
//! `inquiry::fresh`.
//!
//! Lag is counted against one other target, the one by which it is largest: the earliest of
//! several would be early by chance, and each target late. A time is the middle between two polls,
//! so one lag is off by up to a poll and the median of many by little; its interval is a
//! bootstrap's (`stat::bootstrap`), wider the more others there are: the worst of several is bad by
//! chance.
//! A run that was gone on with is counted part by part: what was new after a gap says nothing.

use std::collections::BTreeMap;

use rand::Rng;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{BlockLag, Finding, NoBlockLag};
use super::trial::Trial;
use super::{Confidence, DraftVerdict};
use crate::record::RunRecord;
use crate::stat::bootstrap::{Interval, worst_difference};
use crate::stat::{median, quantile};

/// Blocks that must have come here and there before a lag is told.
const SEEN_MIN: usize = 5;
/// A median below this share of the time between polls is none: chance alone brings it about.
const POLLS_MIN: f64 = 1.0 / 3.0;

/// What a target showed.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// By part of the run. Nothing was watched between two parts, so nothing is counted across.
    parts: BTreeMap<u32, WatchedPart>,
    went_back: u64,
    polls: u64,
    failed: u64,
    /// Where heads were pushed.
    pushed: Option<PushCounts>,
}

/// What was counted of pushed heads.
#[derive(Debug, Default, Clone, Copy)]
struct PushCounts {
    heads: u64,
    missed: u64,
    doubles: u64,
    lost: u64,
}

/// What it showed in one part of the run.
#[derive(Debug, Default)]
struct WatchedPart {
    /// By block: when it appeared, microseconds, and how long was not looked.
    shown: BTreeMap<u64, (f64, f64)>,
    /// The first height, and when.
    start: Option<(f64, u64)>,
    end: f64,
}

/// The distance of a target from the others in one part of the run.
#[derive(Debug)]
pub(crate) struct Distance {
    /// When each step begins, and blocks.
    pub(crate) steps: Vec<(f64, u64)>,
    /// When one of them was looked at for the last time.
    pub(crate) end: f64,
}

impl WatchedPart {
    /// The height that it showed at a time.
    fn height(&self, at: f64) -> Option<u64> {
        let (start, first) = self.start?;
        let newest =
            self.shown.iter().filter(|(_, (when, _))| *when <= at).map(|(block, _)| *block);
        (start <= at).then(|| newest.max().unwrap_or(first).max(first))
    }

    /// The height that it showed at its end.
    fn highest(&self) -> Option<u64> {
        self.height(self.end)
    }
}

impl Sight {
    pub(crate) fn of(trial: &Trial<'_>) -> Self {
        let mut sight = Self::default();
        for played in &trial.played {
            let span = sight.parts.entry(played.cell.part).or_default();
            let (from, to) = (played.cell.begun_at as f64, played.cell.ended_at as f64);
            if let Some(block) = played.count("block") {
                span.shown.entry(block).or_insert(((from + to) / 2.0, to - from));
            } else if let Some(height) = played.count("start") {
                span.start = Some(((from + to) / 2.0, height));
            } else if played.count("back_to").is_some() {
                sight.went_back += 1;
            } else if played.count("watched_ms").is_some() {
                sight.polls += played.count("polls").unwrap_or(0);
                sight.failed += played.count("failed").unwrap_or(0);
                if let Some(heads) = played.count("pushed") {
                    let counts = sight.pushed.get_or_insert_default();
                    counts.heads += heads;
                    counts.missed += played.count("missed").unwrap_or(0);
                    counts.doubles += played.count("doubles").unwrap_or(0);
                    counts.lost += played.count("lost").unwrap_or(0);
                }
            }
            span.end = span.end.max(to);
        }
        sight
    }

    /// The highest that it had shown before a part.
    fn known_before(&self, part: u32) -> Option<u64> {
        self.parts.range(..part).filter_map(|(_, span)| span.highest()).max()
    }

    /// For each block that both showed: how much later this one did, milliseconds.
    fn lags_ms(&self, other: &Self) -> Vec<f64> {
        let mut lags = Vec::new();
        for (part, span) in &self.parts {
            let Some(there) = other.parts.get(part) else { continue };
            // A target that goes back shows again what was no longer new.
            let known = self.known_before(*part).max(other.known_before(*part));
            let new = span.shown.iter().filter(|(block, _)| Some(**block) > known);
            let both = new.filter_map(|(block, (at, _))| Some((at, there.shown.get(block)?.0)));
            lags.extend(both.map(|(at, there)| (at - there) / 1_000.0));
        }
        lags
    }

    /// Its distance from the highest of `others`, in each part of the run.
    pub(crate) fn behind(&self, others: &[&Self]) -> Vec<Distance> {
        let distance = |(part, own): (&u32, &WatchedPart)| {
            let others: Vec<&WatchedPart> =
                others.iter().filter_map(|other| other.parts.get(part)).collect();
            let all = || others.iter().copied().chain([own]);
            let mut times: Vec<f64> =
                all().flat_map(|span| span.shown.values().map(|(at, _)| *at)).collect();
            times.extend(all().filter_map(|span| span.start).map(|(at, _)| at));
            times.sort_by(f64::total_cmp);
            let behind = |at: f64| {
                let highest = others.iter().filter_map(|other| other.height(at)).max()?;
                Some((at, highest.saturating_sub(own.height(at)?)))
            };
            let end = all().map(|span| span.end).fold(own.end, f64::min);
            Distance { steps: times.into_iter().filter_map(behind).collect(), end }
        };
        self.parts.iter().map(distance).filter(|distance| !distance.steps.is_empty()).collect()
    }

    /// New blocks that it showed.
    fn shown(&self) -> usize {
        self.parts.values().map(|span| span.shown.len()).sum()
    }

    /// The time between two blocks, milliseconds.
    fn pace_ms(&self) -> Option<f64> {
        let (mut blocks, mut ms) = (0, 0.0);
        for span in self.parts.values() {
            let ends = span.shown.iter().next().zip(span.shown.iter().next_back());
            if let Some((first, last)) = ends {
                blocks += last.0 - first.0;
                ms += (last.1.0 - first.1.0) / 1_000.0;
            }
        }
        (blocks > 0).then(|| ms / blocks as f64)
    }

    /// Milliseconds between two polls, as far as they bear on blocks.
    fn blind_ms(&self) -> f64 {
        let shown = self.parts.values().flat_map(|span| span.shown.values());
        let widths: Vec<f64> = shown.map(|(_, width)| width / 1_000.0).collect();
        median(&widths).unwrap_or(0.0)
    }
}

/// What the targets of a run showed.
pub(crate) fn sights(all: &[Trial<'_>]) -> BTreeMap<u32, Sight> {
    let trials = all.iter().filter(|trial| trial.experiment == "fresh");
    trials.map(|trial| (trial.target, Sight::of(trial))).collect()
}

/// How many others it can be compared with.
fn looked_at(target: u32, sights: &BTreeMap<u32, Sight>) -> usize {
    let own = sights.get(&target);
    let others = sights.iter().filter(|(other, _)| **other != target);
    others.filter(|(_, other)| own.is_some_and(|own| own.lags_ms(other).len() >= SEEN_MIN)).count()
}

/// The lags of this target against the other that makes them largest.
pub(crate) fn lags_ms(target: u32, sights: &BTreeMap<u32, Sight>) -> Option<(u32, Vec<f64>)> {
    let own = sights.get(&target)?;
    let others = sights.iter().filter(|(other, _)| **other != target);
    let against = others.map(|(other, sight)| (*other, own.lags_ms(sight)));
    let enough = against.filter(|(_, lags)| lags.len() >= SEEN_MIN);
    enough.max_by(|(_, a), (_, b)| {
        let middle = |lags: &[f64]| median(lags).unwrap_or(f64::NEG_INFINITY);
        middle(a).total_cmp(&middle(b))
    })
}

pub(super) fn fresh(
    run: &RunRecord,
    trial: &Trial<'_>,
    all: &[Trial<'_>],
    rng: &mut impl Rng,
) -> DraftVerdict {
    let sights = sights(all);
    let Some(own) = sights.get(&trial.target).filter(|_| sights.len() > 1) else {
        return DraftVerdict::cannot_tell(
            "lag is measured against other targets, and there is none",
        );
    };
    let others: Vec<&Sight> =
        sights.iter().filter(|(other, _)| **other != trial.target).map(|it| it.1).collect();
    let behind = Behind::of(own, &others);
    let mut evidence = trouble(own);
    let Some((against, lags)) = lags_ms(trial.target, &sights) else {
        let found = never_together(own, &others, &behind);
        evidence.splice(0..0, found.evidence);
        return DraftVerdict { evidence, ..found };
    };
    let name = run.targets.get(against as usize).map_or("another", |target| &target.id);
    let own_lags = std::slice::from_ref(&lags);
    let Some(Interval { point: ms, low: low_ms, high: high_ms }) =
        worst_difference(own_lags, &[vec![0.0]], looked_at(trial.target, &sights), rng)
    else {
        return DraftVerdict::cannot_tell("no new block was seen both here and at another target");
    };
    let seen = lags.len() as u64;
    let blind = own.blind_ms();
    let first = lags.iter().filter(|lag| **lag < 0.0).count();
    evidence.insert(0, format!("compared with {name}; ahead of it for {first} of {seen} blocks"));
    evidence.push(match own.pushed {
        Some(_) => "lag is the time between the arrivals of the pushed heads".to_owned(),
        None => format!("each lag is accurate to about {blind:.0} ms, the poll interval"),
    });
    let sure = Confidence::by_count(seen, 30, 10);
    if low_ms <= 0.0 || ms < blind * POLLS_MIN {
        // What chance alone would bring about is no lag either.
        let within_ms = high_ms.max(blind * POLLS_MIN);
        let finding = Finding::Lag(NotUpTo(NoBlockLag { within_ms, seen }));
        return DraftVerdict::new(finding, sure, evidence);
    }
    let finding = Finding::Lag(Found(BlockLag {
        ms,
        low_ms,
        high_ms,
        p95_ms: quantile(&lags, 0.95).unwrap_or(ms),
        blocks: behind.median,
        p95_blocks: behind.p95,
        seen,
        behind: name.to_owned(),
    }));
    DraftVerdict::new(finding, sure, evidence)
}

/// What went wrong while it was watched, for people.
fn trouble(own: &Sight) -> Vec<String> {
    let mut trouble = Vec::new();
    if let Some(PushCounts { heads, missed, doubles, lost }) = own.pushed {
        trouble.push(format!(
            "{heads} heads were pushed; none came for {missed} heights, {doubles} came twice, and the \
             connection was lost {lost} times"
        ));
    }
    if own.failed > 0 {
        trouble.push(format!("{} of {} polls failed", own.failed, own.polls));
    }
    if own.went_back > 0 {
        let times = own.went_back;
        trouble.push(format!("its height went backwards {times} times"));
    }
    trouble
}

/// How far behind it was, by time.
struct Behind {
    median: u64,
    p95: u64,
}

impl Behind {
    fn of(own: &Sight, others: &[&Sight]) -> Self {
        let mut lasted: BTreeMap<u64, f64> = BTreeMap::new();
        for Distance { steps, end } in own.behind(others) {
            let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([end]);
            for ((from, blocks), to) in steps.iter().zip(ends) {
                *lasted.entry(*blocks).or_default() += (to.min(end) - from).max(0.0);
            }
        }
        let whole: f64 = lasted.values().sum();
        let at = |share: f64| {
            let mut sum = 0.0;
            let mut found = 0;
            for (blocks, time) in &lasted {
                found = *blocks;
                sum += time;
                if sum >= share * whole {
                    break;
                }
            }
            found
        };
        Self { median: at(0.5), p95: at(0.95) }
    }
}

/// Where it showed none of the blocks that the others showed: it is so far behind that they came
/// before the watch began, or it stands still, or few blocks came at all.
fn never_together(own: &Sight, others: &[&Sight], behind: &Behind) -> DraftVerdict {
    let most = others.iter().map(|other| other.shown()).max().unwrap_or(0);
    let pace = others.iter().filter_map(|other| other.pace_ms()).reduce(f64::min);
    let (Some(pace), true) = (pace, most >= SEEN_MIN && behind.median > 0) else {
        let blocks = most.max(own.shown());
        return DraftVerdict::cannot_tell(format!(
            "only {blocks} new blocks arrived; {SEEN_MIN} are needed"
        ));
    };
    let ms = behind.median as f64 * pace;
    let evidence = vec![format!(
        "the others had all of its blocks already: lag is the blocks behind times the block time, \
         {pace:.0} ms"
    )];
    let finding = Finding::Lag(Found(BlockLag {
        ms,
        low_ms: (behind.median as f64 - 1.0) * pace,
        high_ms: (behind.p95 as f64 + 1.0) * pace,
        p95_ms: behind.p95 as f64 * pace,
        blocks: behind.median,
        p95_blocks: behind.p95,
        seen: 0,
        behind: "the others".to_owned(),
    }));
    DraftVerdict::new(finding, Confidence::Low, evidence)
}
