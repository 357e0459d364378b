//! `window`: how many calls pass at once, how soon they pass again, and of which kind the limit is.
//!
//! Three times the limit is leant on (`knock`), each time after a silence in which it becomes
//! whole again. Once its window is known, that silence is made a little longer than one window,
//! each time by another part of it: windows that begin by the provider's clock then begin at
//! another time of the cell, windows that begin with the first call or slide do not. Where they do
//! not, a last cell tells these two apart: half of what passes, in the same window the other half,
//! and after a little more than one window three quarters. What slides still has the second half
//! in it. So has a window of the provider's clock that begins between the halves, if no flood showed the
//! clock: a cell of which fewer pass is played again, at another time of that clock.
//!
//! Where refusals ask for a pause, it is heeded: calls until some are refused, silence for as long
//! as was asked for, and one call. Knocks would not tell: a refused client may be made to wait
//! longer for each of them. Where windows begin by a clock, calls may end as one begins, and
//! nothing is refused: so that is played three times.
//!
//! Where nothing is refused it ends after the first cell.

use std::sync::Arc;
use std::time::Duration;

use super::{CellOutcome, ExperimentPlan, Ordered, factors};
use crate::measure::knock::Knocking;
use crate::measure::schedule::Schedule;
use crate::stat::bucket::TimedCall;
use crate::stat::refill::{
    LastPart, RefillKind, RefillLimit, RestedFlood, are_uneven, begins_by_a_clock, read_rested,
};
use crate::work::WorkKind;

/// Floods in all.
const FLOODS: usize = 3;
/// Connections: few enough to be polite, and more than one so that none is the limit.
pub(super) const CONNECTIONS: usize = 4;
/// The silence before a flood, in windows. The parts over one differ by a third of a window.
const SILENCES: [f64; 2] = [1.35, 1.68];
/// Whole windows are added until a silence is as long as this: what earlier experiments left in a window of ten
/// seconds would pass for a limit of its own.
const SILENCE_MIN: Duration = Duration::from_secs(11);
/// And likewise before two more floods, where those before show that there is a longer window.
const LONG_SILENCE_MIN: Duration = Duration::from_secs(62);
/// A bucket that seems to take longer than this to fill, in seconds, may be a longer window that was partly used.
const BUCKET_MAX_S: f64 = 10.0;
/// When the parts of the last cell begin, in windows, and how much of one window's calls they are.
/// At twice the limit the first takes a quarter of a window, and the last ends as the second begins
/// to be forgotten.
const PARTS: [(f64, f64); 3] = [(0.0, 0.5), (0.6, 0.5), (1.27, 0.75)];
/// How often these are played.
const PART_CELLS: usize = SILENCES.len();

/// A pause is heeded and so much longer: the way there and back, and an uneven clock.
const LATE: Duration = Duration::from_millis(300);
/// How often, where windows begin by a clock.
const HEEDED_MAX: u32 = 3;
/// This many times the calls that just empty the limit are sent, and some more.
const EMPTYING: f64 = 1.2;
const EMPTYING_MORE: f64 = 8.0;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct WindowPlan {
    per_second: f64,
    calls: u64,
    within: Duration,
    settle: Duration,
    floods: Vec<RestedFlood>,
    /// The silence before the flood that is played.
    silence: Duration,
    /// The last cell was a flood, and its calls are to come.
    flooding: bool,
    /// The longest pause that was asked for.
    pause: Option<Duration>,
    heeded: u32,
    /// There is a longer window than it seems.
    is_long: bool,
    /// The number of cells in parts played so far.
    part_cells: usize,
    /// The number of calls in the last part of the cell in parts that is being played.
    last_part: Option<usize>,
    /// Whether fewer calls passed in the last part of the latest cell in parts.
    is_reduced: bool,
    over: bool,
}

impl WindowPlan {
    /// Floods at `per_second`, with `calls` calls and `within` at most each time. `settle` is the
    /// silence before the first.
    pub fn new(per_second: f64, calls: u64, within: Duration, settle: Duration) -> Self {
        Self { per_second, calls, within, settle, silence: settle, ..Self::default() }
    }

    fn flood(&mut self, silence: Duration) -> Ordered {
        (self.flooding, self.silence) = (true, silence);
        let terms = Knocking {
            settle: silence,
            per_second: self.per_second,
            calls: self.calls,
            within: silence + self.within,
        };
        let factors = factors([
            ("flood", self.per_second.to_string()),
            ("silence_ms", silence.as_millis().to_string()),
        ]);
        let repeat = u32::try_from(self.floods.len()).unwrap_or(u32::MAX);
        self.cell(factors, repeat, Schedule::Knock(terms))
    }

    fn cell(
        &self,
        factors: std::collections::BTreeMap<String, String>,
        repeat: u32,
        schedule: Schedule,
    ) -> Ordered {
        Ordered { factors, repeat, ..Ordered::timed(WorkKind::Cheap, schedule).over(CONNECTIONS) }
    }

    /// Empties the limit, is silent for as long as was asked for, and sends one call. `None` where
    /// no wait is asked for, or a longer one than this plan allows, or it takes too many calls.
    fn heed(&mut self, limit: &RefillLimit, by_a_clock: bool) -> Option<Ordered> {
        let pause = self.pause.filter(|pause| *pause <= self.within)?;
        let times = if by_a_clock { HEEDED_MAX } else { 1 };
        let left = 1.0 - limit.per_second / self.per_second;
        if self.heeded >= times || left <= 0.0 {
            return None;
        }
        // A window lets no more pass while it lasts; a bucket fills meanwhile.
        let passing = match limit.kind {
            RefillKind::Steady => limit.size / left,
            RefillKind::Reset => limit.size,
        };
        let calls = (EMPTYING * passing + EMPTYING_MORE).ceil();
        if calls + 1.0 > self.calls as f64 {
            return None;
        }
        let settle = limit.window * SILENCES[self.heeded as usize % SILENCES.len()];
        let at = |n: u64| Duration::from_secs_f64(settle + n as f64 / self.per_second);
        let calls = calls as u64;
        let mut times: Vec<Duration> = (0..calls).map(at).collect();
        times.push(at(calls) + pause + LATE);
        let factors = factors([
            ("heeded_ms", pause.as_millis().to_string()),
            ("silence_ms", format!("{}", (settle * 1_000.0).round())),
        ]);
        let repeat = self.heeded;
        self.heeded += 1;
        Some(self.cell(factors, repeat, Schedule::At(Arc::from(times))))
    }

    fn parts(&mut self, size: f64, window: f64) -> Ordered {
        let settle = window * SILENCES[self.part_cells];
        let mut times = Vec::new();
        for (begin, share) in PARTS {
            let from = settle + begin * window;
            let at = |n: u64| Duration::from_secs_f64(from + n as f64 / self.per_second);
            times.extend((0..(share * size).floor() as u64).map(at));
        }
        times.truncate(usize::try_from(self.calls).unwrap_or(usize::MAX));
        let last = (PARTS[2].1 * size).floor();
        self.last_part = Some(last as usize);
        self.is_reduced = false;
        let repeat = self.part_cells as u32;
        self.part_cells += 1;
        let window_ms = (window * 1_000.0).round();
        let factors = factors([
            ("last_part", format!("{last}")),
            ("silence_ms", format!("{}", (settle * 1_000.0).round())),
            ("window_ms", window_ms.to_string()),
        ]);
        self.cell(factors, repeat, Schedule::At(Arc::from(times)))
    }
}

/// So many windows, and whole ones until it is as long as `at_least`.
fn silence_of(windows: f64, window: f64, at_least: Duration) -> Duration {
    let missing = (at_least.as_secs_f64() / window - windows).ceil().max(0.0);
    Duration::from_secs_f64((windows + missing) * window)
}

impl ExperimentPlan for WindowPlan {
    fn name(&self) -> &'static str {
        "window"
    }

    fn version(&self) -> u32 {
        3
    }

    fn calls_max(&self) -> u64 {
        let cells = (FLOODS + SILENCES.len()) as u64 + u64::from(HEEDED_MAX) + PART_CELLS as u64;
        cells * (self.calls + 3 * CONNECTIONS as u64)
    }

    fn lasts(&self) -> Duration {
        self.settle + Duration::from_secs_f64(self.calls as f64 / self.per_second)
    }

    fn saw(&mut self, served: &[TimedCall]) {
        if std::mem::take(&mut self.flooding) {
            let (silence, calls) = (self.silence.as_secs_f64(), served.to_vec());
            self.floods.push(RestedFlood { silence, calls });
        }
        if let Some(last) = self.last_part.take() {
            self.is_reduced = LastPart::of(served, last).is_some_and(LastPart::is_reduced);
        }
    }

    fn next(&mut self, last: Option<&CellOutcome>) -> Option<Ordered> {
        let asked = last.and_then(|last| last.pause_ms).map(Duration::from_millis);
        if self.heeded == 0 {
            self.pause = self.pause.max(asked);
        }
        if self.over {
            return None;
        }
        if self.floods.is_empty() {
            return Some(self.flood(self.settle));
        }
        // What fails now and then is no limit.
        let is_rare = |last: &CellOutcome| last.throttled == 0 && last.unserved * 10 < last.calls;
        if self.floods.len() == 1 && last.is_some_and(is_rare) {
            return None;
        }
        // Nothing refused, or no wait with an end that was seen: another flood says no more.
        let (limit, rested) = read_rested(&self.floods)?;
        if let Some(silence) = SILENCES.get(self.floods.len() - 1) {
            return Some(self.flood(silence_of(*silence, limit.window, SILENCE_MIN)));
        }
        if self.floods.len() == FLOODS {
            // At that length, windows are more common than buckets.
            let is_long = limit.kind == RefillKind::Steady && limit.window > BUCKET_MAX_S;
            self.is_long = is_long || are_uneven(self.floods[1..].iter().map(|it| &it.calls));
        }
        if let Some(silence) = SILENCES.get(self.floods.len() - FLOODS).filter(|_| self.is_long) {
            return Some(self.flood(silence_of(*silence, limit.window, LONG_SILENCE_MIN)));
        }
        let by_a_clock = begins_by_a_clock(&rested, &limit);
        let heeding = (self.part_cells == 0).then(|| self.heed(&limit, by_a_clock)).flatten();
        if heeding.is_some() {
            return heeding;
        }
        if self.part_cells == PART_CELLS || (self.part_cells > 0 && !self.is_reduced) {
            self.over = true;
            return None;
        }
        let parts = limit.kind == RefillKind::Reset
            && !by_a_clock
            && limit.size >= 4.0
            && self.per_second >= 1.95 * limit.per_second;
        self.over = !parts;
        parts.then(|| self.parts(limit.size, limit.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> WindowPlan {
        let second = Duration::from_secs(1);
        WindowPlan::new(100.0, 1_000, second * 60, second * 2)
    }

    #[test]
    fn where_nothing_is_refused_one_flood_is_enough() {
        let mut plan = plan();
        let first = plan.next(None).expect("a flood");
        assert_eq!(first.factors["silence_ms"], "2000");
        plan.saw(&[TimedCall { at: 2.0, passed: true }; 1_000]);
        assert_eq!(plan.next(Some(&CellOutcome::default())), None);
    }

    /// Ten in each window of a second; those at which `phase` of the window is over first.
    fn windows(phase: f64) -> Vec<TimedCall> {
        let mut calls = Vec::new();
        let mut begin = 0.0;
        let mut end = 1.0 - phase;
        while begin < 3.0 {
            let passed =
                (0..10).map(|n| TimedCall { at: begin + f64::from(n) / 100.0, passed: true });
            calls.extend(passed);
            let mut at = begin + 0.1;
            while at < end {
                calls.push(TimedCall { at, passed: false });
                at += 0.01;
            }
            begin = end;
            end += 1.0;
        }
        calls
    }

    fn play(phases: [f64; 3]) -> Vec<Ordered> {
        asking(phases, None)
    }

    fn asking(phases: [f64; 3], pause_ms: Option<u64>) -> Vec<Ordered> {
        let mut plan = plan();
        let mut cells = Vec::new();
        let last = CellOutcome { pause_ms, ..CellOutcome::default() };
        while let Some(cell) = plan.next(Some(&last).filter(|_| !cells.is_empty())) {
            let served = phases.get(cells.len()).map(|phase| windows(*phase)).unwrap_or_default();
            plan.saw(&served);
            cells.push(cell);
        }
        cells
    }

    /// How many cells in parts are played if these numbers of calls pass in the last parts of the first and the second cell.
    fn parts_of(passed: [usize; 2]) -> usize {
        let mut plan = plan();
        let mut cells = 0;
        let mut last = None;
        while let Some(cell) = plan.next(last.as_ref()) {
            let calls = usize::try_from(cell.schedule.calls()).unwrap();
            match cell.factors.contains_key("last_part") {
                true => {
                    let refused = 7 - passed[cells];
                    let one = |at| TimedCall { at: at as f64, passed: at < calls - refused };
                    plan.saw(&(0..calls).map(one).collect::<Vec<_>>());
                    cells += 1;
                }
                false => plan.saw(&windows(0.0)),
            }
            last = Some(CellOutcome::default());
        }
        cells
    }

    #[test]
    fn parts_of_which_fewer_pass_are_played_again() {
        assert_eq!([parts_of([7, 7]), parts_of([5, 5]), parts_of([5, 7])], [1, 2, 2]);
    }

    #[test]
    fn parts_are_played_where_windows_begin_with_the_first_call() {
        let cells = play([0.0; 3]);
        assert_eq!(cells.len(), 4);
        let last = &cells[3];
        assert_eq!((last.factors["last_part"].as_str(), last.schedule.calls()), ("7", 17));
        let total: u64 = cells.iter().map(|cell| cell.schedule.calls()).sum();
        assert!(total <= plan().calls_max());
        // A pause that is asked for is heeded once, before that; thrice where there is a clock.
        let cells = asking([0.0; 3], Some(4_000));
        assert_eq!(cells.len(), 5);
        let Schedule::At(times) = &cells[3].schedule else { panic!("{:?}", cells[3]) };
        let (last, before) = (times[times.len() - 1], times[times.len() - 2]);
        assert!((4_300..4_320).contains(&(last - before).as_millis()), "{times:?}");
        assert_eq!(asking([0.0, 0.4, 0.7], Some(4_000)).len(), 6);
        // Longer than the plan waits.
        assert_eq!(asking([0.0; 3], Some(60_001)).len(), 4);
        // By the provider's clock: nothing is left to be told apart.
        assert_eq!(play([0.0, 0.4, 0.7]).len(), 3);
    }
}
