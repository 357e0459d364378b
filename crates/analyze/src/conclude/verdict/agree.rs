//! `agree`: whether the answers of a target are those of the others. The cells are told at
//! `inquiry::agree`.

use std::collections::BTreeMap;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{AnswersAgree, AnswersDiffer, Finding};
use super::trial::{PlayedCell, Trial};
use super::{Confidence, DraftVerdict};
use crate::difference::{known_differences, majority};
use crate::record::RunRecord;

/// Differences that are shown with a call, of different kinds.
const SHOWN_MAX: usize = 5;
/// Questions from which on agreement is no chance.
const SURE: u64 = 100;
/// Below these it is a first look.
const FEW: u64 = 30;

/// One question and each target's answer to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a str,
    /// By target.
    pub(crate) digests: BTreeMap<u32, &'a str>,
    /// By target: where it differs.
    pub(crate) differences: BTreeMap<u32, ShownDifference<'a>>,
}

/// Where an answer differs from that of another target, and the smallest call that shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownDifference<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: &'a str,
    /// Such as `result.status`.
    pub(crate) path: &'a str,
    pub(crate) here: &'a str,
    pub(crate) there: &'a str,
    /// The other target.
    pub(crate) against: u32,
}

impl<'a> ShownDifference<'a> {
    fn of(played: &PlayedCell<'a>) -> Option<Self> {
        let small = played.factor("small_method").is_some();
        let part =
            |name: &str, small_name: &str| played.factor(if small { small_name } else { name });
        Some(Self {
            method: part("method", "small_method")?,
            params: part("params", "small_params")?,
            path: part("path", "small_path")?,
            here: part("here", "small_here")?,
            there: part("there", "small_there")?,
            against: played.factor("against")?.parse().ok()?,
        })
    }

    /// In words.
    pub(crate) fn text(&self, run: &RunRecord) -> String {
        let against = run.targets.get(self.against as usize).map_or("another", |it| &it.id);
        format!("{}: {} here, {} at {against}", self.path, self.here, self.there)
    }

    /// A line for a shell that asks both. URLs are variables: no record knows one.
    pub(crate) fn curl(&self, target: u32) -> String {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{}}}"#,
            self.method, self.params
        );
        format!(
            "for url in \"${}\" \"${}\"; do curl -s \"$url\" -H 'content-type: application/json' \
             -d '{}'; echo; done",
            variable(target),
            variable(self.against),
            body.replace('\'', r"'\''")
        )
    }
}

/// The variable that stands for the URL of a target: `URL_A` is the first one's.
fn variable(target: u32) -> String {
    match u8::try_from(target).ok().filter(|n| *n < 26) {
        Some(n) => format!("URL_{}", char::from(b'A' + n)),
        None => format!("URL_{}", target + 1),
    }
}

impl<'a> Question<'a> {
    /// Where this target differs, and by which call.
    pub(crate) fn shown(&self, target: u32) -> Option<ShownDifference<'a>> {
        self.differences.get(&target).copied()
    }

    /// The length of the smallest call that shows where this target differs, and the call.
    fn size(&self, target: u32) -> (usize, String, String) {
        let (method, params) = self
            .shown(target)
            .map_or((self.method, self.params), |shown| (shown.method, shown.params));
        (method.len() + params.len(), method.to_owned(), params.to_owned())
    }

    /// What more than half of the targets say.
    pub(crate) fn majority(&self) -> Option<&str> {
        majority(self.digests.values().copied())
    }

    /// Whether this target is alone or with few; `None` where it told nothing, or no other target did.
    pub(crate) fn differs(&self, target: u32) -> Option<bool> {
        let own = self.digests.get(&target).filter(|_| self.digests.len() > 1)?;
        Some(match self.majority() {
            Some(majority) => majority != *own,
            // With no majority none is right: a target that differs from any other is told.
            None => self.digests.iter().any(|(other, digest)| *other != target && digest != own),
        })
    }

    /// Whether these two say the same; `None` where one told nothing.
    pub(crate) fn same(&self, one: u32, other: u32) -> Option<bool> {
        Some(self.digests.get(&one)? == self.digests.get(&other)?)
    }
}

/// The part of the run in which each question was last asked. Where a run was cut some are asked
/// twice, and digests of one asking say nothing beside those of another.
fn last_parts(all: &[Trial<'_>]) -> BTreeMap<u64, u32> {
    let mut parts = BTreeMap::new();
    for played in all.iter().filter(|trial| trial.experiment == "agree").flat_map(|it| &it.played) {
        let Some(ask) = played.count("ask") else { continue };
        let part: &mut u32 = parts.entry(ask).or_default();
        *part = played.cell.part.max(*part);
    }
    parts
}

/// The questions, by their number.
pub(crate) fn questions<'a>(all: &'a [Trial<'a>]) -> BTreeMap<u64, Question<'a>> {
    let parts = last_parts(all);
    let mut questions: BTreeMap<u64, Question<'_>> = BTreeMap::new();
    for trial in all.iter().filter(|trial| trial.experiment == "agree") {
        for played in &trial.played {
            let digest = played.factor("digest");
            let (Some(ask), Some(digest)) = (played.count("ask"), digest) else { continue };
            if parts.get(&ask) != Some(&played.cell.part) {
                continue;
            }
            let question = questions.entry(ask).or_default();
            question.method = played.factor("method").unwrap_or_default();
            question.params = played.factor("params").unwrap_or_default();
            question.digests.insert(trial.target, digest);
            if let Some(shown) = ShownDifference::of(played) {
                question.differences.insert(trial.target, shown);
            }
        }
    }
    questions
}

/// What this target's cells say beside its answers.
fn notes(trial: &Trial<'_>, all: &[Trial<'_>]) -> Vec<String> {
    let parts = last_parts(all);
    let mut notes = Vec::new();
    let pin = trial.played.iter().find_map(|played| Some((played.count("pin")?, played)));
    if let Some((pin, played)) = pin {
        let how = played.factor("how").unwrap_or_default();
        notes.push(format!("all questions are about blocks up to {pin}: {how}"));
    }
    let mut untold: BTreeMap<&str, u64> = BTreeMap::new();
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    let mut faded = 0;
    let is_last = |played: &&PlayedCell<'_>| {
        let part = played.count("ask").and_then(|ask| parts.get(&ask));
        part == Some(&played.cell.part)
    };
    for played in trial.played.iter().filter(is_last) {
        if let Some(class) = played.factor("unanswered") {
            *untold.entry(class).or_default() += 1;
        }
        for member in played.factor("known").into_iter().flat_map(|names| names.split(',')) {
            *known.entry(member).or_default() += 1;
        }
        faded += u64::from(played.factor("faded").is_some());
    }
    for (class, count) in untold {
        notes.push(format!("{count} questions got no answer ({class}) and were not compared"));
    }
    if faded > 0 {
        notes.push(format!(
            "{faded} differences disappeared when the question was repeated; they are not counted"
        ));
    }
    for (member, count) in known {
        let list = known_differences().iter().find(|it| it.member == member);
        let why = list.map_or("", |it| it.why);
        notes.push(format!("no difference: `{member}` in {count} answers: {why}"));
    }
    notes
}

pub(super) fn agree(run: &RunRecord, trial: &Trial<'_>, all: &[Trial<'_>]) -> DraftVerdict {
    let questions = questions(all);
    let compared: Vec<(&Question<'_>, bool)> = questions
        .values()
        .filter_map(|question| Some((question, question.differs(trial.target)?)))
        .collect();
    let of = compared.len() as u64;
    let mut notes = notes(trial, all);
    if of == 0 {
        let why = "no question was answered both here and by another target";
        return DraftVerdict { evidence: notes, ..DraftVerdict::cannot_tell(why) };
    }
    let differing: Vec<&Question<'_>> =
        compared.iter().filter(|(_, differs)| *differs).map(|(question, _)| *question).collect();
    let Some(smallest) = differing.iter().min_by_key(|it| it.size(trial.target)) else {
        let others = all.iter().filter(|it| it.experiment == trial.experiment).count() - 1;
        notes.insert(0, format!("compared with {others} other targets"));
        let sure = Confidence::by_count(of, SURE, FEW);
        let finding = Finding::Answers(NotUpTo(AnswersAgree { calls: of }));
        return DraftVerdict::new(finding, sure, notes);
    };
    let mut evidence = differences(run, trial.target, &differing);
    evidence.append(&mut notes);
    let outvoted = differing.iter().filter(|question| question.majority().is_some()).count();
    let sure = if outvoted == differing.len() { Confidence::High } else { Confidence::Medium };
    let (_, method, params) = smallest.size(trial.target);
    let finding = Finding::Answers(Found(AnswersDiffer {
        calls: differing.len() as u64,
        of,
        outvoted: outvoted as u64,
        method,
        params,
        difference: smallest.shown(trial.target).map(|shown| shown.text(run)),
    }));
    DraftVerdict::new(finding, sure, evidence)
}

/// How many answers differ by method, and one of each kind of difference, the smallest call first.
fn differences(run: &RunRecord, target: u32, differing: &[&Question<'_>]) -> Vec<String> {
    let mut by_method: BTreeMap<&str, u64> = BTreeMap::new();
    for question in differing {
        *by_method.entry(question.method).or_default() += 1;
    }
    let mut lines: Vec<String> = by_method
        .iter()
        .map(|(method, count)| format!("{method}: {count} answers differ"))
        .collect();
    let mut sorted = differing.to_vec();
    sorted.sort_by_key(|question| question.size(target));
    let mut kinds: Vec<(&str, String)> = Vec::new();
    for found in sorted.into_iter().filter_map(|question| question.shown(target)) {
        let path: String = found.path.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let kind = (found.method, path);
        if kinds.len() < SHOWN_MAX && !kinds.contains(&kind) {
            kinds.push(kind);
            let text = found.text(run);
            lines.push(format!("{} {}: {text}", found.method, found.params));
            lines.push(found.curl(target));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_a_shell_holds_no_url_and_ends_no_quote() {
        let shown = ShownDifference {
            method: "eth_getBalance",
            params: r#"["it's"]"#,
            path: "result",
            here: "1",
            there: "2",
            against: 0,
        };
        assert_eq!(
            shown.curl(2),
            r#"for url in "$URL_C" "$URL_A"; do curl -s "$url" -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_getBalance","params":["it'\''s"]}'; echo; done"#
        );
        assert_eq!(variable(26), "URL_27");
    }
}
