//! What was found of answers: counted, and for those that were void shown to an operator.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use wellhead_eth::{MethodRow, MethodTable};
use wellhead_upstream::{Slot, Upstream};

/// Void answers that are shown, of one chain.
pub(crate) const SHOWN_MAX: usize = 32;
/// Of these, of one upstream and check: one that lies all the time does not hide the others.
const ALIKE_MAX: usize = 8;
/// So much of the params is shown.
const PARAMS_BYTES_MAX: usize = 256;
/// And so much of the answer.
const ANSWER_BYTES_MAX: usize = 2 << 10;
/// In so much of an answer secrets are looked for before it is cut: what stars make shorter
/// moves up, and must not bring half a secret along.
const MASKED_BYTES_MAX: usize = 64 << 10;
/// Of one upstream and check a line is logged no more often than this.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// What became of an answer that was to be looked at. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum InspectionOutcome {
    /// Nothing is wrong with it.
    Sound,
    /// It cannot be true.
    Void,
    /// Nothing was wrong as far as could be seen, which was not as far as asked for.
    NotChecked,
    /// It went to the client as it came in.
    Flowed,
    /// There was no time for it: looked at at the level `cheap` only, or not at all.
    Busy,
}

wellhead_word::words!(InspectionOutcome);

/// A void answer, as an operator sees it: without secrets, cut short.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Evidence {
    #[serde(skip)]
    pub(crate) at: Instant,
    #[serde(skip)]
    pub(crate) slot: Slot,
    /// The method of the call.
    method: &'static str,
    /// The params as they were sent.
    params: String,
    /// What is wrong with it, as `docs/verify.md` calls it.
    check: &'static str,
    /// And in words.
    detail: String,
    /// The beginning of the result.
    answer: String,
}

/// Void answers by upstream, method and check.
pub(crate) type Voids = BTreeMap<(Slot, &'static str, &'static str), u64>;

/// What was found of the answers of one chain.
#[derive(Debug)]
pub(crate) struct Findings {
    /// By row.
    counts: Box<[[AtomicU64; InspectionOutcome::ALL.len()]]>,
    voids: Mutex<InvalidAnswers>,
}

#[derive(Debug, Default)]
struct InvalidAnswers {
    shown: VecDeque<Evidence>,
    counts: Voids,
    /// By upstream and check: when a line was logged, and how many were not since.
    lines: BTreeMap<(Slot, &'static str), (Instant, u64)>,
}

/// A void answer as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bad<'a> {
    pub(crate) row: &'static MethodRow,
    pub(crate) params: Option<&'a [u8]>,
    pub(crate) result: &'a [u8],
    pub(crate) check: &'static str,
    pub(crate) detail: &'a str,
}

impl Findings {
    pub(crate) fn new() -> Self {
        let zeros = |_| std::array::from_fn(|_| AtomicU64::new(0));
        let rows = MethodTable::standard().rows().len();
        Self { counts: (0..rows).map(zeros).collect(), voids: Mutex::default() }
    }

    pub(crate) fn count(&self, row: &MethodRow, seen: InspectionOutcome) {
        self.counts[row.index.get()][seen as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many answers to a method became that.
    pub(crate) fn so_far(&self, row: &MethodRow, seen: InspectionOutcome) -> u64 {
        self.counts[row.index.get()][seen as usize].load(Ordering::Relaxed)
    }

    /// Void answers by upstream, method and check.
    pub(crate) fn voids(&self) -> Voids {
        self.voids.lock().counts.clone()
    }

    /// The void answers that are shown, the newest last.
    pub(crate) fn shown(&self) -> Vec<Evidence> {
        self.voids.lock().shown.iter().cloned().collect()
    }

    /// Counts a void answer, keeps what shows it, and logs it unless that was done lately.
    pub(crate) fn void(&self, upstream: &Upstream, bad: Bad<'_>, now: Instant) {
        let (slot, id) = (upstream.slot(), &upstream.identity().id);
        let Bad { row, params, result, check, detail } = bad;
        let cut = |bytes: &[u8], most: usize| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MASKED_BYTES_MAX)]);
            let mut text = upstream.hidden(text.into_owned());
            text.truncate(text.floor_char_boundary(most));
            text
        };
        let evidence = Evidence {
            at: now,
            slot,
            method: row.name,
            params: cut(params.unwrap_or_default(), PARAMS_BYTES_MAX),
            check,
            detail: upstream.hidden(detail.to_owned()),
            answer: cut(result, ANSWER_BYTES_MAX),
        };
        let unlogged = self.voids.lock().add(evidence);
        if let Some(unlogged) = unlogged {
            let detail = upstream.hidden(detail.to_owned());
            tracing::warn!(upstream = %id, method = row.name, check, %detail, unlogged, "upstream gave an invalid answer; trying other upstreams");
        }
    }
}

impl InvalidAnswers {
    /// Adds one; `Some` when it is time for a line, with the number of those that had none.
    fn add(&mut self, evidence: Evidence) -> Option<u64> {
        let (slot, check, now) = (evidence.slot, evidence.check, evidence.at);
        *self.counts.entry((slot, evidence.method, check)).or_default() += 1;
        let is_alike = |other: &Evidence| other.slot == slot && other.check == check;
        let alike = self.shown.iter().filter(|other| is_alike(other)).count();
        if alike >= ALIKE_MAX
            && let Some(place) = self.shown.iter().position(is_alike)
        {
            self.shown.remove(place);
        } else if self.shown.len() >= SHOWN_MAX {
            self.shown.pop_front();
        }
        self.shown.push_back(evidence);
        match self.lines.get_mut(&(slot, check)) {
            Some((at, unlogged)) if now.saturating_duration_since(*at) < LINE_EVERY => {
                *unlogged += 1;
                None
            }
            line => {
                let unlogged = line.map_or(0, |(_, unlogged)| *unlogged);
                self.lines.insert((slot, check), (now, 0));
                Some(unlogged)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_dispatch::now;

    use super::*;

    fn evidence(slot: u8, check: &'static str, at: Instant) -> Evidence {
        let (method, text) = ("eth_getLogs", String::new);
        let (params, detail, answer) = (text(), text(), text());
        Evidence { at, slot: Slot(slot), method, params, check, detail, answer }
    }

    #[test]
    fn one_that_lies_all_the_time_does_not_hide_the_others() {
        let (mut void, at) = (InvalidAnswers::default(), now());
        void.add(evidence(0, "order", at));
        for _ in 0..100 {
            void.add(evidence(1, "range", at));
        }
        assert_eq!(void.shown.len(), 1 + ALIKE_MAX);
        for slot in 2..100 {
            void.add(evidence(slot, "range", at));
        }
        assert_eq!(void.shown.len(), SHOWN_MAX);
        assert_eq!(void.counts[&(Slot(1), "eth_getLogs", "range")], 100);
    }

    #[test]
    fn a_line_a_minute_tells_how_many_had_none() {
        let (mut void, at) = (InvalidAnswers::default(), now());
        let later = at + LINE_EVERY;
        assert_eq!(void.add(evidence(0, "order", at)), Some(0));
        assert_eq!(void.add(evidence(0, "order", at)), None);
        assert_eq!(void.add(evidence(0, "range", at)), Some(0), "another check");
        assert_eq!(void.add(evidence(1, "order", at)), Some(0), "another upstream");
        assert_eq!(void.add(evidence(0, "order", later)), Some(1));
        assert_eq!(void.add(evidence(0, "order", later)), None);
    }
}
