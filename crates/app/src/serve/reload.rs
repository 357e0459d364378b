//! A reload, on the control thread: see [`crate::reload`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::task::{self, JoinSet};
use wellhead_proxy::{ProxyWorker, ServedChain};
use wellhead_telemetry::clock;
use wellhead_upstream::Condition;

use super::Running;
use crate::assemble::{AssembleError, Assembly, NextAssembly};
use crate::config::ReloadTrigger;
use crate::loops::ChainLoops;
use crate::reload::watch::FileMarks;
use crate::reload::{
    self, ReadConfig, ReloadCause, ReloadPlan, ReloadReport, ReloadRequest, ReloadSource,
};
use crate::renew;

/// A disk that hangs is no reason to wait for longer.
const READ_WITHIN: Duration = Duration::from_secs(10);
const CAPS_ARE_FORGOTTEN: &str = "spending against the caps is kept from the next restart on: there was no cap when wellhead started, so `state` is not open";
/// Changes that have a line each in the log.
const LINES_MAX: usize = 50;

/// A reload whose settings are being read. Dropped, it does nothing.
pub(super) struct BegunReload {
    pub(super) request: ReloadRequest,
    pub(super) read: Pin<Box<dyn Future<Output = Result<ReadConfig, String>> + Send>>,
}

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
        let Some(source) = &self.source else { return };
        if self.parts.settings.reload == ReloadTrigger::Auto {
            let watched = Arc::clone(&self.watched);
            let (files, marks) = (move || watched.load().to_vec(), FileMarks::since(source.began));
            loops.spawn(reload::watch::run(marks, files, self.record.clone(), self.desk.clone()));
        }
    }

    /// Begins a reload: reads the settings.
    pub(super) fn begin_reload(&self, request: ReloadRequest) -> BegunReload {
        let read = match (&self.source, self.parts.settings.reload) {
            (_, ReloadTrigger::Off) => Err("`reload` is `off`".to_owned()),
            (None, _) => {
                Err("there is no config to read again: the settings come from the command line"
                    .to_owned())
            }
            (Some(source), _) => Ok(Arc::clone(&source.read)),
        };
        let certificates = if request.is_dry { Vec::new() } else { self.tls.clone() };
        let read = async {
            let read = read?;
            let read = move || {
                let config = read()?;
                // They are watched, too; after a reload they shall be those of now.
                certificates.iter().for_each(|it| renew::renew(&it.tls));
                Ok(config)
            };
            match tokio::time::timeout(READ_WITHIN, task::spawn_blocking(read)).await {
                Ok(Ok(read)) => read,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("the config could not be read within {READ_WITHIN:?}")),
            }
        };
        BegunReload { request, read: Box::pin(read) }
    }

    /// Carries out a reload whose settings were read, and tells what became of it.
    pub(super) fn end_reload(
        &mut self,
        request: ReloadRequest,
        read: Result<ReadConfig, String>,
        chains: &mut ChainLoops,
    ) {
        let ReloadRequest { cause, is_dry, told } = request;
        let outcome = read.and_then(|read| self.apply(read, is_dry, chains));
        let report = outcome.unwrap_or_else(|problem| {
            self.note_failed(cause, is_dry, &problem);
            ReloadReport::refused(problem, is_dry)
        });
        if let Some(told) = told {
            // The client of the admin listener may have disconnected.
            let _ = told.send(report);
        }
    }

    fn note_failed(&self, cause: ReloadCause, is_dry: bool, problem: &str) {
        let word = cause.word();
        if self.parts.settings.reload == ReloadTrigger::Off || self.source.is_none() {
            tracing::info!(cause = word, problem, "the config was not read again");
        } else if !is_dry {
            let is_news = self.record.note_failed(problem);
            // The watcher of files tries again and again.
            if is_news || cause != ReloadCause::File {
                tracing::error!(
                    cause = word,
                    problem,
                    "the config cannot be used: nothing changes"
                );
            }
        }
    }

    /// Applies settings, or shows what that would do. Where it fails, nothing has changed.
    fn apply(
        &mut self,
        read: ReadConfig,
        is_dry: bool,
        chains: &mut ChainLoops,
    ) -> Result<ReloadReport, String> {
        let told = |error: AssembleError| error.to_string();
        let ReloadPlan { settings, mut applied, needs_restart } =
            ReloadPlan::new(&self.parts.settings, &read.settings)?;
        let (settings, now) = (Arc::new(settings), wellhead_dispatch::now());
        let next = self.parts.succeeding(&settings, read.authorities, is_dry, now).map_err(told)?;
        applied.extend(next.other_certificates(&self.parts));
        let mut warnings = Vec::from_iter(Some(read.warnings).filter(|it| !it.is_empty()));
        if self.state.is_none() && settings.has_caps() && !self.parts.settings.has_caps() {
            warnings.push(CAPS_ARE_FORGOTTEN.to_owned());
        }
        let generation = self.record.status().generation;
        let problem = None;
        let mut report =
            ReloadReport { problem, applied, needs_restart, warnings, is_dry, generation };
        if is_dry {
            return Ok(report);
        }
        let old = self.take_into_use(next, chains, now).map_err(told)?;
        report.warnings.extend(unserved(&old, &self.parts));
        let waiting = report.needs_restart.iter().map(|change| change.path.clone()).collect();
        let is_applied = !report.applied.is_empty();
        report.generation = self.record.note_read(is_applied, waiting, clock::unix_seconds());
        log(&report);
        Ok(report)
    }

    /// Takes an assembly into use, and returns the one before. Where it fails, nothing has changed.
    fn take_into_use(
        &mut self,
        next: NextAssembly,
        chains: &mut ChainLoops,
        now: Instant,
    ) -> Result<Assembly, AssembleError> {
        let mut rng = SmallRng::from_os_rng();
        let mut workers = Vec::new();
        for worker in &self.workers {
            let current = worker.current.load();
            workers.push(next.worker_chains(&self.parts, &current.chains, &mut rng)?);
        }
        let own = next.worker_chains(&self.parts, &chains.current.load().chains, &mut rng)?;
        chains.follow(&next.assembly, &mut rng)?;
        // From here on nothing fails, and nothing waits.
        let parts = next.begin(&self.parts, now);
        let old = std::mem::replace(&mut self.parts, parts);
        let proxy = &self.parts.proxy;
        for (worker, chains) in self.workers.iter().zip(workers) {
            worker.current.store(Arc::new(ProxyWorker { proxy: Arc::clone(proxy), chains }));
        }
        chains.current.store(Arc::new(ProxyWorker { proxy: Arc::clone(proxy), chains: own }));
        self.proxy.store(Arc::clone(proxy));
        if let Some(state) = &self.state {
            state.note_change(&old.proxy, now);
        }
        self.pages.change(&self.parts);
        self.studies.follow(&self.parts);
        if let Some(source) = &self.source {
            self.watched.store(Arc::new(reload::watch::files(&source.path, &self.parts.settings)));
        }
        Ok(old)
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
