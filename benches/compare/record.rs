//! What is kept of a run: each sample as measured, and the machine it was on.
//!
//! The summary can be made again from the samples, so only they are kept.

use std::time::Duration;

use serde_json::{Value, json};

use crate::case::Case;
use crate::contender::Kind;
use crate::figure::Figure;
use crate::machine::{keep, machine};
use crate::sample::Sample;

/// A run in the making.
pub(crate) struct Record {
    upstream: &'static str,
    turn: Duration,
    entries: Vec<Entry>,
    /// From start to the first good answer.
    pub(crate) starts: Vec<(Kind, Vec<Duration>)>,
    /// What the parts of `kept` showed, by their names.
    pub(crate) kept: serde_json::Map<String, Value>,
}

struct Entry {
    round: u32,
    case: Case,
    kind: Kind,
    sample: Sample,
}

impl Record {
    pub(crate) fn new(upstream: &'static str, turn: Duration) -> Self {
        Self {
            upstream,
            turn,
            entries: Vec::new(),
            starts: Vec::new(),
            kept: serde_json::Map::new(),
        }
    }

    pub(crate) fn add(&mut self, round: u32, case: Case, kind: Kind, sample: Sample) {
        self.entries.push(Entry { round, case, kind, sample });
    }

    pub(crate) fn errors(&self) -> u64 {
        self.entries.iter().map(|entry| entry.sample.errors).sum()
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.entries.iter().map(|entry| entry.round).max().unwrap_or(0)
    }

    pub(crate) fn sample(&self, round: u32, case: Case, kind: Kind) -> Option<&Sample> {
        let mut entries = self.entries.iter();
        let found = entries.find(|one| (one.round, one.case, one.kind) == (round, case, kind));
        found.map(|entry| &entry.sample)
    }

    pub(crate) fn value(&self, round: u32, case: Case, kind: Kind, figure: Figure) -> Option<f64> {
        let direct = self.sample(round, case, Kind::Direct);
        let sample = self.sample(round, case, kind)?;
        // System calls are counted in the first round alone.
        let is_there = figure != Figure::Calls || sample.traced_requests > 0;
        is_there.then(|| figure.of(sample, direct))
    }

    /// The figure over nginx's of the same round; none where nginx added nothing,
    /// as when the bare upstream was the one to be disturbed.
    pub(crate) fn ratio(&self, round: u32, case: Case, kind: Kind, figure: Figure) -> Option<f64> {
        self.ratio_to(Kind::Nginx, round, case, kind, figure)
    }

    /// The figure over that of `bar` in the same round; none where `bar` added nothing.
    pub(crate) fn ratio_to(
        &self,
        bar: Kind,
        round: u32,
        case: Case,
        kind: Kind,
        figure: Figure,
    ) -> Option<f64> {
        let bar = self.value(round, case, bar, figure).filter(|value| *value > 0.0)?;
        self.value(round, case, kind, figure).map(|value| value / bar)
    }

    /// Writes the run under benches/runs, and says where.
    pub(crate) fn keep(&self) -> Result<String, String> {
        let samples: Vec<Value> = self.entries.iter().map(Entry::to_json).collect();
        let millis = |starts: &[Duration]| -> Vec<f64> {
            starts.iter().map(|start| start.as_secs_f64() * 1e3).collect()
        };
        let starts: serde_json::Map<String, Value> = self
            .starts
            .iter()
            .map(|(kind, starts)| (kind.name().to_owned(), json!(millis(starts))))
            .collect();
        let record = json!({
            "machine": machine(),
            "upstream": self.upstream,
            "turn_seconds": self.turn.as_secs(),
            "samples": samples,
            "start_to_first_answer_ms": starts,
            "kept": self.kept,
        });
        keep(self.upstream, record)
    }
}

impl Entry {
    fn to_json(&self) -> Value {
        let mut value = self.sample.to_json();
        value["round"] = json!(self.round);
        value["case"] = json!(self.case.name());
        value["contender"] = json!(self.kind.name());
        value
    }
}
