//! What was asked before a run was cut, found again in its cells.
//!
//! A question counts as answered where every target that has a seat now was asked it at the same
//! time: digests of one asking say nothing beside those of another. One that was cut, or asked
//! while a target was missing, is asked anew as a whole.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Factors, plain};
use super::PARAMS_MAX;
use crate::record::Cell;
use crate::work::WorkCall;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EarlierQuestions {
    /// The newest block that is asked about, and how it was found.
    pub(super) pin: Option<(u64, String)>,
    /// The targets with cells that say so.
    pub(super) pinned: BTreeSet<u32>,
    /// The blocks that are looked into.
    pub(super) chosen: Option<Vec<u64>>,
    /// The last asking of each question: part of the run, and the cells by target.
    questions: BTreeMap<u64, (u32, BTreeMap<u32, Factors>)>,
}

/// What a question that was answered left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AnsweredQuestion {
    /// What the chain contains, in the words of `Material`, in the order in which it was told.
    pub(super) found: Vec<String>,
    /// Differences that were made smaller.
    pub(super) smaller: usize,
}

impl EarlierQuestions {
    pub(super) fn of(cells: BTreeMap<u32, Vec<Cell>>) -> Self {
        let mut earlier = Self::default();
        for cell in cells.into_values().flatten() {
            let of = |name: &str| cell.factors.get(name).map(String::as_str);
            if let Some(pin) = of("pin").and_then(|pin| pin.parse().ok()) {
                earlier.pin.get_or_insert((pin, of("how").unwrap_or_default().to_owned()));
                earlier.pinned.insert(cell.target);
            } else if let Some(blocks) = of("blocks") {
                let blocks: Result<_, _> = blocks.split(',').map(str::parse).collect();
                earlier.chosen = earlier.chosen.or(blocks.ok());
            } else if let Some(ask) = of("ask").and_then(|ask| ask.parse().ok()) {
                let question: &mut (u32, BTreeMap<_, _>) =
                    earlier.questions.entry(ask).or_default();
                if cell.part > question.0 {
                    *question = (cell.part, BTreeMap::new());
                }
                if cell.part == question.0 {
                    question.1.insert(cell.target, cell.factors);
                }
            }
        }
        earlier
    }

    /// What came of this question, where all of `targets` have answered it.
    pub(super) fn answered(
        &self,
        number: usize,
        ask: &WorkCall,
        targets: &[u32],
    ) -> Option<AnsweredQuestion> {
        let (_, cells) = self.questions.get(&(number as u64))?;
        let (method, params) = (ask.method, plain(&ask.params, PARAMS_MAX));
        let is_same = |factors: &Factors| {
            let of = |name: &str| factors.get(name).map(String::as_str);
            of("method") == Some(method) && of("params") == Some(params.as_str())
        };
        let all = targets.iter().all(|target| cells.get(target).is_some_and(is_same));
        if !all {
            return None;
        }
        let mut answered = AnsweredQuestion::default();
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (target, factors) in cells {
            answered.found.extend(factors.get("found").cloned());
            let against = factors.get("against").and_then(|against| against.parse().ok());
            if let Some(against) = against {
                // Two targets that contradict each other do so by the same small call.
                answered.smaller += usize::from(!pairs.contains(&(against, *target)));
                pairs.push((*target, against));
            }
        }
        Some(answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(target: u32, part: u32, factors: &[(&str, &str)]) -> Cell {
        let factors = factors.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Cell { target, part, factors: factors.collect(), ..Cell::default() }
    }

    fn earlier(cells: Vec<Cell>) -> EarlierQuestions {
        let mut sorted: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
        for cell in cells {
            sorted.entry(cell.target).or_default().push(cell);
        }
        EarlierQuestions::of(sorted)
    }

    fn answer(target: u32, part: u32, params: &str) -> Cell {
        cell(target, part, &[("ask", "3"), ("method", "eth_getLogs"), ("params", params)])
    }

    #[track_caller]
    fn check(cells: Vec<Cell>, targets: &[u32], is_answered: bool) {
        let ask = WorkCall { method: "eth_getLogs", params: "[]".to_owned() };
        let answered = earlier(cells).answered(3, &ask, targets);
        assert_eq!(answered.is_some(), is_answered, "{answered:?}");
    }

    #[test]
    fn a_question_was_answered_by_all_at_once_or_it_is_asked_anew() {
        check(vec![answer(0, 0, "[]"), answer(1, 0, "[]")], &[0, 1], true);
        check(vec![answer(0, 0, "[]"), answer(1, 0, "[]"), answer(2, 0, "[]")], &[0, 2], true);
        check(vec![answer(0, 0, "[]")], &[0, 1], false);
        check(vec![answer(0, 0, "[]"), answer(1, 1, "[]")], &[0, 1], false);
        check(vec![answer(0, 0, "[]"), answer(0, 1, "[]"), answer(1, 1, "[]")], &[0, 1], true);
        check(vec![answer(0, 0, "[1]"), answer(1, 0, "[1]")], &[0, 1], false);
        check(Vec::new(), &[0, 1], false);
    }

    #[test]
    fn what_was_pinned_chosen_found_and_made_smaller_is_known_again() {
        let ask = [("ask", "3"), ("method", "eth_getLogs"), ("params", "[]")];
        let differs = |target, against| {
            let more = [("against", against), ("found", "block:7")];
            cell(target, 0, &[&ask[..], &more[..]].concat())
        };
        let earlier = earlier(vec![
            cell(1, 0, &[("pin", "7"), ("how", "as asked for")]),
            cell(1, 0, &[("blocks", "5,7")]),
            differs(0, "1"),
            differs(1, "0"),
            differs(2, "0"),
        ]);
        assert_eq!(earlier.pin, Some((7, "as asked for".to_owned())));
        assert_eq!((earlier.pinned.len(), &earlier.chosen), (1, &Some(vec![5, 7])));
        let ask = WorkCall { method: "eth_getLogs", params: "[]".to_owned() };
        let answered = earlier.answered(3, &ask, &[0, 1, 2]).expect("all have answered");
        assert_eq!(answered, AnsweredQuestion { found: vec!["block:7".to_owned(); 3], smaller: 2 });
    }
}
