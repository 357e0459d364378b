//! Studies of upstreams' rate limits by the proxy itself: a monitor (`wellhead_analyze::monitor`) for each upstream
//! with the setting `study`.
//!
//! ```text
//! serve ── Studies ── plan (watch channel) ──> thread `wellhead-study`: supervisor
//!                                                   └─ one StudyTask for each upstream
//!              Monitor ── turns, leans ──> StudyDesk ── hold, release ──> Upstream
//!                 │ calls ──> StudyMeter ── CheckCounts, ledger            │
//!                 │ profile ──> DIR/CHAIN/ID/profile.yaml ──> reload (file watch) ──> budget
//!                 └ figures ──> StudyRecord <── /metrics, /status
//! ```
//!
//! **Where it runs.** On a thread of its own with a runtime of its own, which begins with the first upstream that is
//! studied. Workers have no part in it: a call pays one atomic load for the hold. The control thread neither makes the
//! generator late nor is made late by it. Its connections are its own, with the URL, headers, credentials, authorities
//! and certificate of the upstream.
//!
//! **Owners.** [`Studies`] owns the thread and tells it the upstreams ([`StudiedUpstream`]) after each reload; a task
//! goes on if its upstream is reached and studied as before, and ends in order otherwise. A directory keeps what was
//! spent and found: over reloads and restarts, and from one replica to the next if they share it. The monitor locks
//! it, so two processes never spend one budget twice; the second waits.
//!
//! **What becomes of a finding.** The monitor writes a profile into its directory; the config takes profiles of
//! studies when it is read (`config::profile`), and the file watch reads it again when one changes. So there is one way
//! by which a limit gets into an upstream, a restart begins with the newest limit, `wellhead check` and `/status` show
//! where it is from, and what the operator sets goes first. The price is a reload each time a limit changes.
//!
//! **Beside clients.** While cells lean on the limit (at most 8 s each, with pauses between), calls of clients are held
//! as by a pause (`wellhead_upstream`: `study_hold`): they go to other upstreams, or wait in the queue. So the study
//! sees the whole limit and not what clients leave of it, and clients do not meet what it has emptied. What is
//! refused all the same within 10 s of that pauses, teaches no rate, and is no failure. Where no other upstream is
//! ready, nothing begins unless clients call rarely (a tenth of the limit): few calls then wait some seconds, and none is
//! refused. Nothing begins while the upstream is not ready, or if its calls would cost more than half of what a cap of
//! the day or month leaves.
//!
//! **Its calls** are counted before they are sent: as own calls by the reason `study`, as attempts, in the ledger of
//! credits and against caps.
//!
//! **Replicas** (`shared`): the replica that leads an upstream studies it (`ChainPeers::leads`), and the others hear the
//! holds as pauses. None does while their store is away. What is found reaches the others if `dir` is a directory of
//! all; else each keeps what it found when it led.
//!
//! **Bounds.** Calls in an hour and a day, and the highest rate, are settings. One turn for all upstreams: one is studied
//! at a time. On the disk 30 runs for each upstream. At the end of the process tasks have 3 s.

mod desk;
mod record;
mod task;
mod upstream;

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_blocking};

use crate::assemble::Assembly;
use crate::runtime::runtime;
use desk::StudyTurn;
pub(crate) use record::StudyRecord;
use task::{END_MAX, RunningStudy};
use upstream::{StudiedUpstream, studied};

const THREAD_NAME: &str = "wellhead-study";

/// The upstreams that are studied, in the order of the settings.
type StudyPlan = Arc<Vec<Arc<StudiedUpstream>>>;

/// See the module. The side of the control thread.
#[derive(Debug, Default)]
pub(crate) struct Studies {
    plans: watch::Sender<StudyPlan>,
    thread: Option<JoinHandle<()>>,
    record: StudyRecord,
}

impl Studies {
    /// Where what is found is told.
    pub(crate) fn record(&self) -> StudyRecord {
        self.record.clone()
    }

    /// Studies what this assembly says, and nothing else from now on.
    pub(crate) fn follow(&mut self, assembly: &Assembly) {
        let plan = studied(assembly);
        if self.thread.is_none() {
            if plan.is_empty() {
                return;
            }
            let (plans, record) = (self.plans.subscribe(), self.record.clone());
            let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
            match thread.spawn(move || run(plans, record)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::error!(%error, "no thread for studies of upstreams: none is studied");
                    return;
                }
            }
        }
        self.plans.send_replace(Arc::new(plan));
    }

    /// Ends all of them, and waits for none.
    pub(crate) fn stop(&self) {
        self.plans.send_replace(StudyPlan::default());
    }

    /// Ends all of them, and waits for as long as they may take.
    pub(crate) async fn end(&mut self) {
        self.plans = watch::Sender::default();
        if let Some(thread) = self.thread.take() {
            let ended = spawn_blocking(move || thread.join());
            if !matches!(tokio::time::timeout(2 * END_MAX, ended).await, Ok(Ok(Ok(())))) {
                tracing::warn!("a study of an upstream did not end in order");
            }
        }
    }
}

/// The thread: until its plans end.
fn run(plans: watch::Receiver<StudyPlan>, record: StudyRecord) {
    match runtime() {
        Ok(runtime) => runtime.block_on(LocalSet::new().run_until(supervise(plans, record))),
        Err(error) => {
            tracing::error!(%error, "no runtime for studies of upstreams: none is studied");
        }
    }
}

async fn supervise(mut plans: watch::Receiver<StudyPlan>, record: StudyRecord) {
    let (turn, mut running) = (StudyTurn::default(), Vec::new());
    loop {
        let plan = Arc::clone(&plans.borrow_and_update());
        running = follow(running, &plan, &turn, &record).await;
        if plans.changed().await.is_err() {
            break;
        }
    }
    follow(running, &[], &turn, &record).await;
}

/// Ends the tasks that are not in the plan, lets the others go on, and begins those that are missing.
async fn follow(
    running: Vec<RunningStudy>,
    plan: &[Arc<StudiedUpstream>],
    turn: &StudyTurn,
    record: &StudyRecord,
) -> Vec<RunningStudy> {
    let (kept, ended): (Vec<_>, Vec<_>) =
        running.into_iter().partition(|it| plan.iter().any(|next| it.goes_on_with(next)));
    ended.iter().for_each(RunningStudy::stop);
    for study in ended {
        study.end().await;
    }
    record.keep(|key| plan.iter().any(|next| *key == next.key()));
    let mut followed = kept;
    for next in plan {
        match followed.iter().find(|it| it.goes_on_with(next)) {
            Some(study) => study.change(next),
            None => followed.push(RunningStudy::begin(next, turn, record)),
        }
    }
    followed
}
