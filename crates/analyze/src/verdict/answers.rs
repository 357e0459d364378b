//! What is answered: how fresh (`fresh`), whether as by the others (`agree`), how far (`reach`).
//!
//! Answers are not in the records, so a cell holds what was made of them. `fresh`: a cell
//! `{"block": n}` begins with the last poll that did not show block `n` and ends with the first
//! that did. `agree`: a cell `{"ask": k, "method": m, "params": p, "digest": d}` is one question
//! of all targets and the digest of this one's canonical answer, or `error:` and the class of an
//! error; `"difference"` may say where it differs. `reach`: a cell `{"probe": w, "value": v}` is
//! served where all its calls are; `w` is `method`, `websocket` or a word of an [`Extent`].

use std::collections::BTreeMap;

use wellhead_upstream::VerdictClass;

use super::finding::{Extent, Finding};
use super::trial::{Played, Trial, served};
use super::{Confidence, Found};
use crate::record::{Call, Run};
use crate::stat::quantile;

pub(super) fn fresh(trial: &Trial<'_>, all: &[Trial<'_>]) -> Found {
    let lags = lags_ms(trial, all);
    let others = all.iter().filter(|other| other.experiment == trial.experiment).count();
    if others < 2 {
        return Found::cannot_tell("freshness is counted against others, and there are none");
    }
    let (Some(ms), Some(p99_ms)) = (quantile(&lags, 0.5), quantile(&lags, 0.99)) else {
        return Found::cannot_tell("no block was seen here and at another target");
    };
    let polls: Vec<f64> = trial
        .played
        .iter()
        .map(|played| (played.cell.ended_at - played.cell.begun_at) as f64 / 1_000.0)
        .collect();
    let blind = quantile(&polls, 0.5).unwrap_or(0.0);
    let blocks = lags.len() as u64;
    let first = lags.iter().filter(|lag| **lag <= 0.0).count();
    let evidence = vec![
        format!("the first to show {first} of {blocks} blocks"),
        format!("a lag is known to about {blind:.0} ms, the time between polls"),
    ];
    let sure = match blocks {
        30.. => Confidence::High,
        10.. => Confidence::Medium,
        _ => Confidence::Low,
    };
    Found::new(Finding::Lag { ms, p99_ms, blocks }, sure, evidence)
}

/// For each block that another target showed as well: how much later this one did.
pub(crate) fn lags_ms(trial: &Trial<'_>, all: &[Trial<'_>]) -> Vec<f64> {
    let shown = |trial: &Trial<'_>| -> BTreeMap<u64, u64> {
        let mut first = BTreeMap::new();
        for played in &trial.played {
            if let Some(block) = played.count("block") {
                let at = first.entry(block).or_insert(played.cell.ended_at);
                *at = (*at).min(played.cell.ended_at);
            }
        }
        first
    };
    let others: Vec<BTreeMap<u64, u64>> = all
        .iter()
        .filter(|other| other.experiment == trial.experiment && other.target != trial.target)
        .map(shown)
        .collect();
    let lag = |(block, at): (u64, u64)| {
        let first = others.iter().filter_map(|other| other.get(&block)).min()?;
        Some(at.saturating_sub(*first) as f64 / 1_000.0)
    };
    shown(trial).into_iter().filter_map(lag).collect()
}

/// One question and each target's answer to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a str,
    /// By target.
    pub(crate) digests: BTreeMap<u32, &'a str>,
    /// By target.
    pub(crate) differences: BTreeMap<u32, &'a str>,
}

impl Question<'_> {
    /// What more than half of the targets say.
    pub(crate) fn majority(&self) -> Option<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for digest in self.digests.values() {
            *counts.entry(digest).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?;
        (most.1 * 2 > self.digests.len()).then_some(most.0)
    }

    /// Whether this target is alone or with few; `None` where it was not asked, or nobody else.
    pub(crate) fn differs(&self, target: u32) -> Option<bool> {
        let own = self.digests.get(&target).filter(|_| self.digests.len() > 1)?;
        Some(match self.majority() {
            Some(majority) => majority != *own,
            // With no majority nobody is right; those who differ from all others are told.
            None => self.digests.iter().any(|(other, digest)| *other != target && digest != own),
        })
    }
}

/// The questions of `agree`, by their number.
pub(crate) fn questions<'a>(all: &'a [Trial<'a>]) -> BTreeMap<&'a str, Question<'a>> {
    let mut questions: BTreeMap<&str, Question<'_>> = BTreeMap::new();
    for trial in all.iter().filter(|trial| trial.experiment == "agree") {
        for played in &trial.played {
            let of = |name: &str| played.cell.factors.get(name).map(String::as_str);
            let (Some(ask), Some(digest)) = (of("ask"), of("digest")) else { continue };
            let question = questions.entry(ask).or_default();
            question.method = of("method").unwrap_or_default();
            question.params = of("params").unwrap_or_default();
            question.digests.insert(trial.target, digest);
            if let Some(difference) = of("difference") {
                question.differences.insert(trial.target, difference);
            }
        }
    }
    questions
}

pub(super) fn agree(run: &Run, trial: &Trial<'_>, all: &[Trial<'_>]) -> Found {
    let questions = questions(all);
    let compared: Vec<(&Question<'_>, bool)> = questions
        .values()
        .filter_map(|question| Some((question, question.differs(trial.target)?)))
        .collect();
    let of = compared.len() as u64;
    if of == 0 {
        return Found::cannot_tell("no question was asked here and at another target");
    }
    let differing: Vec<&Question<'_>> =
        compared.iter().filter(|(_, differs)| *differs).map(|(question, _)| *question).collect();
    let shortest = differing
        .iter()
        .min_by_key(|question| (question.params.len(), question.method, question.params));
    let Some(shortest) = shortest else {
        let evidence = vec![format!("compared with {} others", run.targets.len() - 1)];
        let sure = if of >= 100 { Confidence::High } else { Confidence::Medium };
        return Found::new(Finding::Agrees { calls: of }, sure, evidence);
    };
    let mut by_method: BTreeMap<&str, u64> = BTreeMap::new();
    for question in &differing {
        *by_method.entry(question.method).or_default() += 1;
    }
    let mut evidence: Vec<String> = by_method
        .iter()
        .map(|(method, count)| format!("{method}: {count} answers differ"))
        .collect();
    evidence.push(format!("the shortest call: {} {}", shortest.method, shortest.params));
    let undecided = differing.iter().filter(|question| question.majority().is_none()).count();
    if undecided > 0 {
        evidence.push(format!("for {undecided} of them no answer has a majority"));
    }
    let sure = if undecided == 0 { Confidence::High } else { Confidence::Medium };
    let finding = Finding::Disagrees {
        calls: differing.len() as u64,
        of,
        method: shortest.method.to_owned(),
        params: shortest.params.to_owned(),
        difference: shortest.differences.get(&trial.target).map(|text| (*text).to_owned()),
    };
    Found::new(finding, sure, evidence)
}

pub(super) fn reach(trial: &Trial<'_>) -> Vec<Found> {
    let mut methods: BTreeMap<&str, bool> = BTreeMap::new();
    let mut sockets = Vec::new();
    let mut sizes: BTreeMap<&str, Vec<(u64, bool)>> = BTreeMap::new();
    for played in &trial.played {
        let (Some(probe), Some(value)) = (played.factor("probe"), played.factor("value")) else {
            continue;
        };
        match (probe, value.parse()) {
            // A method that refuses our parameters is there.
            ("method", _) => {
                *methods.entry(value).or_insert(false) |= all_served(played, true);
            }
            ("websocket", _) => sockets.push(all_served(played, false)),
            (probe, Ok(size)) => {
                sizes.entry(probe).or_default().push((size, all_served(played, false)));
            }
            (_, Err(_)) => {}
        }
    }
    let mut found: Vec<Found> = sizes
        .iter()
        .filter_map(|(probe, tried)| Some(extent(Extent::from_word(probe)?, tried)))
        .collect();
    if !methods.is_empty() {
        let missing: Vec<String> = methods
            .iter()
            .filter(|(_, there)| !**there)
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let served = (methods.len() - missing.len()) as u64;
        found.push(Found::new(Finding::Methods { served, missing }, Confidence::High, Vec::new()));
    }
    if !sockets.is_empty() {
        let served = sockets.contains(&true);
        let evidence = vec![format!("tried {} times", sockets.len())];
        found.push(Found::new(Finding::WebSocket { served }, Confidence::High, evidence));
    }
    found
}

fn all_served(played: &Played<'_>, caller_fault_counts: bool) -> bool {
    let fault = |call: &Call| call.class == VerdictClass::CallerFault.word();
    let good = |call: &Call| served(call) || (caller_fault_counts && fault(call));
    !played.calls.is_empty() && played.calls.iter().all(|call| good(call))
}

fn extent(what: Extent, tried: &[(u64, bool)]) -> Found {
    let refused_at = tried.iter().filter(|(_, served)| !served).map(|(size, _)| *size).min();
    let below = |(size, served): &&(u64, bool)| *served && refused_at.is_none_or(|at| *size < at);
    let up_to = tried.iter().filter(below).map(|(size, _)| *size).max();
    let again =
        tried.iter().any(|(size, served)| *served && refused_at.is_some_and(|at| *size >= at));
    let mut evidence = vec![format!("{} sizes were tried", tried.len())];
    if again {
        evidence.push("a larger size was served as well: it varies".to_owned());
    }
    let sure = if again { Confidence::Low } else { Confidence::High };
    Found::new(Finding::Reach { what, up_to, refused_at }, sure, evidence)
}
