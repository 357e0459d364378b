//! A reload, on the control thread: see [`crate::reload`].

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::{self, JoinSet};
use wellhead_proxy::{ProxyWorker, ServedChain};
use wellhead_telemetry::clock;
use wellhead_upstream::Condition;

use super::Running;
use crate::assemble::{AssembleError, Assembly};
use crate::config::ReloadTrigger;
use crate::loops::ChainLoops;
use crate::reload::{self, ReadConfig, ReloadPlan, ReloadReport, ReloadRequest, ReloadSource};

/// A disk that hangs is no reason to wait for longer.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Changes that have a line each in the log.
const LINES_MAX: usize = 50;

impl Running {
    /// Reading settings again from this source; without one they stay.
    pub(crate) fn reloading(self, source: Option<ReloadSource>) -> Self {
        if let Some(source) = &source {
            self.watched.store(Arc::new(reload::watch::files(&source.path, &self.parts.settings)));
        }
        Self { source, ..self }
    }

    /// Looks for changes of files, where the settings say so.
    pub(super) fn watch_files(&self, loops: &mut JoinSet<()>) {
        if self.source.is_some() && self.parts.settings.reload == ReloadTrigger::Auto {
            let watched = Arc::clone(&self.watched);
            let files = move || watched.load().to_vec();
            loops.spawn(reload::watch::run(files, self.desk.clone()));
        }
    }

    /// Carries out one request, and tells what became of it.
    pub(super) async fn reload(&mut self, request: ReloadRequest, chains: &mut ChainLoops) {
        let ReloadRequest { cause, is_dry, told } = request;
        let outcome = match self.read().await {
            Ok(read) => self.apply(read, is_dry, chains).map_err(|error| error.to_string()),
            Err(problem) => Err(problem),
        };
        let report = match outcome {
            Ok(report) => report,
            Err(problem) => {
                if self.parts.settings.reload == ReloadTrigger::Off || self.source.is_none() {
                    tracing::info!(cause = cause.word(), problem, "the config was not read again");
                } else if !is_dry {
                    self.record.note_failed(&problem);
                    let cause = cause.word();
                    tracing::error!(cause, problem, "the config cannot be used: nothing changes");
                }
                ReloadReport::refused(problem, is_dry)
            }
        };
        if let Some(told) = told {
            // The client of the admin listener may have disconnected.
            let _ = told.send(report);
        }
    }

    async fn read(&self) -> Result<ReadConfig, String> {
        if self.parts.settings.reload == ReloadTrigger::Off {
            return Err("`reload` is `off`".to_owned());
        }
        let Some(source) = &self.source else {
            return Err(
                "there is no config to read again: the settings come from the command line"
                    .to_owned(),
            );
        };
        let read = Arc::clone(&source.read);
        match tokio::time::timeout(READ_WITHIN, task::spawn_blocking(move || read())).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("the config could not be read within {READ_WITHIN:?}")),
        }
    }

    /// Applies settings, or shows what that would do. Where it fails, nothing has changed.
    fn apply(
        &mut self,
        read: ReadConfig,
        is_dry: bool,
        chains: &mut ChainLoops,
    ) -> Result<ReloadReport, AssembleError> {
        let ReloadPlan { settings, applied, needs_restart } =
            ReloadPlan::new(&self.parts.settings, &read.settings);
        let (settings, now, unix) =
            (Arc::new(settings), wellhead_dispatch::now(), clock::unix_seconds());
        let next = self.parts.succeeding(&settings, is_dry, now)?;
        let mut warnings: Vec<String> =
            Vec::from_iter(Some(read.warnings).filter(|it| !it.is_empty()));
        if is_dry {
            let generation = self.record.status().generation;
            let problem = None;
            return Ok(ReloadReport {
                problem,
                applied,
                needs_restart,
                warnings,
                is_dry,
                generation,
            });
        }
        let mut rng = SmallRng::from_os_rng();
        let mut workers = Vec::new();
        for worker in &self.workers {
            let now = worker.current.load();
            workers.push(next.worker_chains(&self.parts, &now.chains, &mut rng)?);
        }
        let own = next.worker_chains(&self.parts, &chains.current().load().chains, &mut rng)?;
        chains.follow(&next.assembly, &mut rng)?;
        // From here on nothing fails, and nothing waits.
        let parts = next.begin(&self.parts, now);
        let old = std::mem::replace(&mut self.parts, parts);
        let proxy = &self.parts.proxy;
        for (worker, chains) in self.workers.iter().zip(workers) {
            worker.current.store(Arc::new(ProxyWorker { proxy: Arc::clone(proxy), chains }));
        }
        chains.current().store(Arc::new(ProxyWorker { proxy: Arc::clone(proxy), chains: own }));
        self.proxy.store(Arc::clone(proxy));
        if let Some(state) = &self.state {
            state.note_change(&old.proxy, now);
        }
        self.pages.change(&self.parts);
        if let Some(source) = &self.source {
            self.watched.store(Arc::new(reload::watch::files(&source.path, &settings)));
        }
        warnings.extend(unserved(&old, &self.parts));
        let waiting = needs_restart.iter().map(|change| change.path.clone()).collect();
        let generation = self.record.note_read(!applied.is_empty(), waiting, unix);
        let report =
            ReloadReport { problem: None, applied, needs_restart, warnings, is_dry, generation };
        log(&report);
        Ok(report)
    }
}

/// Chains that had an upstream that was ready, and have none now: until one is verified their calls wait.
fn unserved(old: &Assembly, new: &Assembly) -> Vec<String> {
    let now = wellhead_dispatch::now();
    let is_ready = |chain: &ServedChain| {
        chain.roster.upstreams().iter().any(|it| it.condition(now) == Condition::Ready)
    };
    let lost = new.chains.iter().filter(|chain| {
        let before = old.chain(&chain.served.name.name);
        before.is_some_and(|before| is_ready(&before.served)) && !is_ready(&chain.served)
    });
    lost.map(|chain| {
        let name = &chain.served.name.name;
        format!(
            "no upstream of `{name}` that was ready is left: its calls wait until one is verified"
        )
    })
    .collect()
}

fn log(report: &ReloadReport) {
    let (changes, generation) = (report.applied.len(), report.generation);
    match changes {
        0 => tracing::debug!("the config was read again: no change to apply"),
        _ => tracing::info!(changes, generation, "the config was reloaded"),
    }
    for change in report.applied.iter().take(LINES_MAX) {
        tracing::info!(%change, "setting changed");
    }
    for change in report.needs_restart.iter().take(LINES_MAX) {
        tracing::warn!(%change, "the change of a setting needs a restart");
    }
    for warning in &report.warnings {
        tracing::warn!(warning, "the config was reloaded with a warning");
    }
}
