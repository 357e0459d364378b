//! How a run goes, on a terminal: a line for each cell that is over, and below them what is
//! being done, drawn over again.
//!
//! Without a terminal it prints only the lines, as for a file.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use terminal_size::{Width, terminal_size_of};
use tokio::time::Instant;
use wellhead_analyze::measure::plan::{CellOutcome, Ordered};
use wellhead_analyze::measure::run::{CallBudget, StopSignal, Watch};
use wellhead_analyze::measure::schedule::Schedule;
use wellhead_analyze::record::{CallRecord, Cell};
use wellhead_analyze::stat::quantile;

use crate::terminal::complain;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// Of the latest calls of a cell so many are looked at for percentiles.
const LATEST_MAX: usize = 4_000;
/// Where the terminal does not say.
const WIDTH_USUAL: usize = 80;
/// Of the bar.
const BAR: usize = 30;

/// What is to be done in all, told before.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead {
    /// What targets are called, by their index.
    pub(super) names: Vec<String>,
    /// How long each experiment lasts at least, by target and name.
    pub(super) lasts: Vec<(u32, &'static str, Duration)>,
    /// Calls at most.
    pub(super) calls: u64,
    /// Credits at most, where the catalogue knows them, and their unit.
    pub(super) credits: Option<(f64, &'static str)>,
}

/// Watches a run.
pub(super) struct Live<'a> {
    budget: &'a CallBudget,
    stop: &'a StopSignal,
    ahead: Ahead,
    /// Lines that are drawn now; `None` without a terminal.
    drawn: Option<usize>,
    cells: u64,
    credits: f64,
    /// When each experiment began and how far it is, by target.
    begun: Vec<(u32, String, Instant)>,
    now: Option<Playing>,
}

/// The cell that is played.
struct Playing {
    experiment: String,
    target: u32,
    factors: String,
    schedule: Schedule,
    begun: Instant,
    outcome: CellOutcome,
    /// Milliseconds.
    latest: VecDeque<f64>,
}

impl<'a> Live<'a> {
    pub(super) fn new(
        budget: &'a CallBudget,
        stop: &'a StopSignal,
        ahead: Ahead,
        terminal: bool,
    ) -> Self {
        let drawn = terminal.then_some(0);
        let (cells, credits, begun) = (0, 0.0, Vec::new());
        Self { budget, stop, ahead, drawn, cells, credits, begun, now: None }
    }

    /// Takes away what is drawn over; what follows stands below the lines.
    pub(super) fn clear(&mut self) {
        if let Some(lines) = self.drawn.as_mut().filter(|lines| **lines > 0) {
            put(&format!("\x1b[{lines}F\x1b[J"));
            *lines = 0;
        }
    }

    /// A line that stays.
    pub(super) fn line(&mut self, text: &str) {
        self.clear();
        complain(text);
    }

    fn draw(&mut self) {
        let Some(lines) = self.drawn else { return };
        let Some(playing) = &self.now else { return };
        let width = terminal_size_of(std::io::stderr())
            .map_or(WIDTH_USUAL, |(Width(width), _)| usize::from(width));
        let text = self.text(playing, Instant::now());
        let mut out = String::new();
        if lines > 0 {
            // To the first of them, and clear from there.
            let _ = write!(out, "\x1b[{lines}F\x1b[J");
        }
        for line in &text {
            // One that breaks would be two, and the next drawing a line too low.
            out.extend(line.chars().filter(|c| !c.is_control()).take(width.saturating_sub(1)));
            out.push('\n');
        }
        put(&out);
        self.drawn = Some(text.len());
    }

    fn name(&self, target: u32) -> &str {
        self.ahead.names.get(target as usize).map_or("?", String::as_str)
    }

    fn text(&self, playing: &Playing, now: Instant) -> Vec<String> {
        let Playing { experiment, target, factors, outcome, .. } = playing;
        let took = now.saturating_duration_since(playing.begun);
        let share = playing.share(took);
        let filled = (share * BAR as f64) as usize;
        let bar = format!("{}{}", "#".repeat(filled), "-".repeat(BAR - filled));
        let percentiles = playing.percentiles();
        let times = match percentiles {
            Some([p50, p95, p99]) => format!("p50 {p50:.1} ms  p95 {p95:.1} ms  p99 {p99:.1} ms"),
            None => "no answer yet".to_owned(),
        };
        let mut spent = format!("{} of at most {} calls", self.budget.spent(), self.ahead.calls);
        if let Some((credits, unit)) = self.ahead.credits {
            let _ = write!(spent, ", {:.0} of {credits:.0} {unit}", self.credits);
        }
        let left = if self.stop.is_set() {
            "interrupted: the report comes".to_owned()
        } else {
            format!("at least {} left", clock(self.left(now)))
        };
        vec![
            format!("{}  {experiment}  cell {}: {factors}", self.name(*target), self.cells + 1),
            format!("[{bar}] {:3.0} %  {}", share * 100.0, clock(took)),
            format!(
                "{times}  throttled {}  failed {}  of {} calls",
                outcome.throttled, outcome.unserved, outcome.calls
            ),
            format!("{spent}; {left}"),
        ]
    }

    /// What is left at least: experiments last as long as they said, or longer; those after which
    /// another one has begun are over. Targets that take turns share the time that has passed.
    fn left(&self, now: Instant) -> Duration {
        let turns = u32::try_from(self.ahead.names.len()).unwrap_or(u32::MAX).max(1);
        let begun = |target: u32, name: &str| {
            let known = self.begun.iter().find(|(at, known, _)| *at == target && known == name);
            known.map(|(_, _, at)| *at)
        };
        let of = |(index, (target, name, lasts)): (usize, &(u32, &'static str, Duration))| {
            let later = &self.ahead.lasts[index + 1..];
            if later.iter().any(|(at, name, _)| at == target && begun(*at, name).is_some()) {
                return Duration::ZERO;
            }
            let passed = begun(*target, name).map(|at| now.saturating_duration_since(at) / turns);
            lasts.saturating_sub(passed.unwrap_or_default())
        };
        self.ahead.lasts.iter().enumerate().map(of).sum()
    }
}

impl Playing {
    /// How much of it is done, from 0 to 1.
    fn share(&self, took: Duration) -> f64 {
        let calls = self.outcome.calls as f64 / self.schedule.calls().max(1) as f64;
        let time = match &self.schedule {
            Schedule::Closed { within: Some(within), .. } | Schedule::Users { within, .. } => {
                took.as_secs_f64() / within.as_secs_f64().max(1e-3)
            }
            Schedule::Knock(terms) => took.as_secs_f64() / terms.within.as_secs_f64().max(1e-3),
            Schedule::Open { .. }
            | Schedule::At(_)
            | Schedule::Closed { within: None, .. }
            | Schedule::OneConnection { .. }
            | Schedule::Beside { .. } => 0.0,
        };
        calls.max(time).clamp(0.0, 1.0)
    }

    fn percentiles(&self) -> Option<[f64; 3]> {
        let times: Vec<f64> = self.latest.iter().copied().collect();
        Some([quantile(&times, 0.5)?, quantile(&times, 0.95)?, quantile(&times, 0.99)?])
    }
}

impl Watch for Live<'_> {
    fn begins(&mut self, experiment: &str, target: u32, ordered: &Ordered) {
        let now = Instant::now();
        let is_known = self.begun.iter().any(|(at, known, _)| *at == target && known == experiment);
        if !is_known {
            self.begun.push((target, experiment.to_owned(), now));
        }
        let factors: Vec<String> =
            ordered.factors.iter().map(|(name, value)| format!("{name} {value}")).collect();
        self.now = Some(Playing {
            experiment: experiment.to_owned(),
            target,
            factors: factors.join(", "),
            schedule: ordered.schedule.clone(),
            begun: now,
            outcome: CellOutcome::default(),
            latest: VecDeque::new(),
        });
        self.draw();
    }

    fn over(&mut self, call: &CallRecord) {
        self.credits += call.credits.unwrap_or(0.0);
        let Some(playing) = &mut self.now else { return };
        playing.outcome.add(call);
        if call.error.is_none() && self.drawn.is_some() {
            if playing.latest.len() == LATEST_MAX {
                playing.latest.pop_front();
            }
            let took = call.ended_at.saturating_sub(call.intended_at) as f64 / 1_000.0;
            playing.latest.push_back(took);
        }
    }

    fn played(&mut self, experiment: &str, cell: &Cell, outcome: &CellOutcome) {
        self.cells += 1;
        self.now = None;
        let factors: Vec<String> =
            cell.factors.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let doubt = cell.load.doubted().map(|why| format!(", {}: left out", why.words()));
        let line = format!(
            "[{} of at most {} calls] {} {experiment}: {}: {} calls, {} throttled, {} failed{}",
            self.budget.spent(),
            self.ahead.calls,
            self.name(cell.target),
            factors.join(", "),
            outcome.calls,
            outcome.throttled,
            outcome.unserved,
            doubt.unwrap_or_default(),
        );
        self.line(&line);
    }

    fn silent(&mut self, experiment: &str, target: u32) {
        self.now = None;
        let line = format!(
            "{} {experiment}: no call was answered for a minute: giving up; `resume` tries again",
            self.name(target)
        );
        self.line(&line);
    }

    fn every(&self) -> Option<Duration> {
        self.drawn.map(|_| EVERY)
    }

    fn look(&mut self) {
        self.draw();
    }
}

/// Whether lines can be drawn over: one that calls itself dumb moves no cursor.
pub(super) fn draws(is_terminal: bool, term: Option<&str>) -> bool {
    is_terminal && term != Some("dumb")
}

fn put(text: &str) {
    let mut error = std::io::stderr().lock();
    // A terminal that went away is no reason to stop.
    let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
}

/// `1:05` minutes.
fn clock(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds / 3_600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wellhead_analyze::measure::client::ConnectionSettings;
    use wellhead_analyze::work::WorkKind;

    use super::*;

    #[test]
    fn a_terminal_without_a_cursor_is_shown_the_lines_alone() {
        assert!(draws(true, Some("xterm")) && draws(true, None));
        assert!(!draws(true, Some("dumb")) && !draws(false, Some("xterm")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_drawn_tells_the_cell_its_calls_and_what_is_left() {
        let (budget, stop) = (CallBudget::new(100), StopSignal::default());
        let second = Duration::from_secs(1);
        let ahead = Ahead {
            names: vec!["h".to_owned()],
            lasts: vec![(0, "rate", second * 60), (0, "streams", second * 10)],
            calls: 100,
            credits: Some((1_000.0, "CU")),
        };
        let mut live = Live::new(&budget, &stop, ahead, false);
        let factors: BTreeMap<String, String> = [("rate".to_owned(), "4".to_owned())].into();
        let ordered = Ordered {
            factors,
            repeat: 0,
            transport: ConnectionSettings::ONE,
            work: WorkKind::Cheap,
            batch: 1,
            schedule: Schedule::rate(4.0, second * 2),
            warmed: false,
            until_failure: false,
            timed: true,
            rest: second,
        };
        live.begins("rate", 0, &ordered);
        for ended_at in [10_000, 20_000, 30_000] {
            assert!(budget.take());
            let credits = Some(10.0);
            live.over(&CallRecord {
                ended_at,
                credits,
                class: "throttled".to_owned(),
                ..CallRecord::default()
            });
        }
        tokio::time::sleep(second).await;
        let playing = live.now.as_ref().expect("it plays");
        let text = live.text(playing, Instant::now());
        assert_eq!(text[0], "h  rate  cell 1: rate 4");
        assert_eq!(text[1], "[###########-------------------]  38 %  0:01");
        assert!(text[2].ends_with("throttled 3  failed 0  of 3 calls"), "{text:?}");
        assert_eq!(text[3], "3 of at most 100 calls, 30 of 1000 CU; at least 1:09 left");
        // One that has begun is the last one's end.
        live.begins("streams", 0, &ordered);
        assert_eq!(live.left(Instant::now()), second * 10);
        let playing = live.now.as_ref().expect("it plays");
        stop.set();
        let text = live.text(playing, Instant::now());
        assert!(text[3].ends_with("interrupted: the report comes"), "{text:?}");
    }
}
