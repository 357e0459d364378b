//! The study of one upstream as a task: it begins when this replica leads the upstream, and again after it failed.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};
use wellhead_analyze::measure::run::StopSignal;
use wellhead_analyze::monitor::{Monitor, MonitorRunTerms};
use wellhead_telemetry::clock;

use super::desk::{ClientTraffic, StudyDesk, StudyTurn};
use super::record::StudyRecord;
use super::upstream::{StudiedUpstream, StudyMeter};
use crate::target::run_terms;

/// Within this a task ends that is to end. A disk that hangs does not keep the process from ending.
pub(super) const END_MAX: Duration = Duration::from_secs(3);
/// A replica that does not lead, or whose turn may come, looks again so soon.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After a failure: its directory is another process's, or a disk is full. The first may be that of a process that hands
/// over and is about to end.
const RETRY: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// A replica that has just begun does not know yet that others lead.
const HEARS_OTHERS_AFTER: Duration = Duration::from_secs(10);

/// A task, as its supervisor has it.
#[derive(Debug)]
pub(super) struct RunningStudy {
    current: Arc<ArcSwap<StudiedUpstream>>,
    stop: Arc<StopSignal>,
    task: JoinHandle<()>,
}

impl RunningStudy {
    pub(super) fn begin(
        upstream: &Arc<StudiedUpstream>,
        turn: &StudyTurn,
        record: &StudyRecord,
    ) -> Self {
        let current = Arc::new(ArcSwap::new(Arc::clone(upstream)));
        let stop = Arc::new(StopSignal::default());
        record.change(&upstream.key(), |_| ());
        let task = StudyTask {
            current: Arc::clone(&current),
            stop: Arc::clone(&stop),
            turn: Arc::clone(turn),
            record: record.clone(),
            last_failure: None,
        };
        Self { current, stop, task: spawn_local(task.run()) }
    }

    /// Whether it is a study of `next` as well.
    pub(super) fn goes_on_with(&self, next: &StudiedUpstream) -> bool {
        self.current.load().goes_on_as(next)
    }

    /// Goes on with the upstream as it is now.
    pub(super) fn change(&self, next: &Arc<StudiedUpstream>) {
        self.current.store(Arc::clone(next));
    }

    /// Asks it to end.
    pub(super) fn stop(&self) {
        self.stop.set();
    }

    /// Waits until it has.
    pub(super) async fn end(mut self) {
        if timeout(END_MAX, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

struct StudyTask {
    current: Arc<ArcSwap<StudiedUpstream>>,
    stop: Arc<StopSignal>,
    turn: StudyTurn,
    record: StudyRecord,
    /// The last failure, and how often it came in a row. Told when it comes again.
    last_failure: Option<(String, u32)>,
}

impl StudyTask {
    async fn run(mut self) {
        let hears_others_at = Instant::now() + HEARS_OTHERS_AFTER;
        while !self.stop.is_set() {
            let it = self.current.load_full();
            let is_alone_yet = it.is_shared() && Instant::now() < hears_others_at;
            if is_alone_yet || !it.is_led(wellhead_dispatch::now()) {
                self.pause(LOOK_EVERY).await;
                continue;
            }
            match self.monitor(&it).await {
                Ok(()) => {
                    self.last_failure = None;
                    self.pause(LOOK_EVERY).await;
                }
                Err(why) => {
                    let times = self.note_failure(&it, why);
                    self.pause(RETRY[usize::from(times > 1)]).await;
                }
            }
        }
    }

    /// Waits, unless it is to end.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.stop.wait() => {}
        }
    }

    /// Notes a failure, and returns how often it came in a row.
    fn note_failure(&mut self, it: &StudiedUpstream, why: String) -> u32 {
        let before = self.last_failure.take().filter(|(known, _)| *known == why);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        if times == 2 {
            let key = it.key();
            let (chain, upstream) = (&*key.chain, key.upstream.as_str());
            tracing::warn!(chain, upstream, error = %why, "the upstream cannot be studied: trying again each minute");
        }
        self.last_failure = Some((why, times));
        times
    }

    /// Watches until it is to end, or another replica leads.
    async fn monitor(&mut self, it: &StudiedUpstream) -> Result<(), String> {
        let meter = Arc::new(StudyMeter(Arc::clone(&self.current)));
        let endpoints = [it.endpoint()?.metered(meter)];
        let (terms, place, stop) = (it.terms(), it.place(), Arc::new(StopSignal::default()));
        let mut desk = StudyDesk {
            current: Arc::clone(&self.current),
            key: it.key(),
            place: place.clone(),
            bounds: terms.bounds,
            record: self.record.clone(),
            turn: Arc::clone(&self.turn),
            taken: None,
            traffic: ClientTraffic::default(),
            held_until: None,
            stop: Arc::clone(&stop),
        };
        let run = run_terms(rand::random(), clock::unix_seconds(), None);
        let play = MonitorRunTerms { run, is_precise: true, cpu: None };
        let monitor = Monitor::new(&place, terms, play, &endpoints, &stop, &mut desk);
        let monitor = monitor.map_err(|error| error.to_string())?;
        let mut run = std::pin::pin!(monitor.run());
        let ended = tokio::select! {
            ended = &mut run => ended,
            () = self.stop.wait() => {
                stop.set();
                run.await
            }
        };
        ended.map_err(|error| error.to_string())
    }
}
