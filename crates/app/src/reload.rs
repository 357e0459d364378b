//! Other settings while wellhead runs: read, check, plan, apply, tell.
//!
//! All triggers come here as a [`ReloadRequest`]: SIGHUP, a file that changed ([`watch`]), `POST /reload` and
//! `wellhead reload`. Settings with an error change nothing. What does not reload is named and stays as it is
//! ([`config::as_far_as_it_reloads`]). The control thread applies a reload between two steps of its loops
//! (`serve::Running::reload`), so there is one at a time.

pub(crate) mod command;
mod record;
pub(crate) mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use wellhead_server::{AdminAction, AdminCall, AdminReply, AdminRole};

use crate::assemble::Authorities;
use crate::config::{self, SettingChange, Settings};
pub(crate) use record::ReloadRecord;

/// Requests that wait for their turn. One more is refused: each reads the newest file.
const WAITING_MAX: usize = 8;

/// Where settings are read from, again and again. It is called on a thread that may wait for a disk.
pub(crate) type ReadSettings = Arc<dyn Fn() -> Result<ReadConfig, String> + Send + Sync>;

/// Where settings come from.
#[derive(Clone)]
pub(crate) struct ReloadSource {
    /// The file.
    pub(crate) path: PathBuf,
    /// Before it was read for the first time.
    pub(crate) began: SystemTime,
    pub(crate) read: ReadSettings,
}

/// Settings as they were read.
#[derive(Debug)]
pub(crate) struct ReadConfig {
    pub(crate) settings: Settings,
    pub(crate) authorities: Authorities,
    /// What can be lived with, for people; often empty.
    pub(crate) warnings: String,
}

/// What may be done beside looking.
pub(crate) const ACTIONS: [AdminAction; 1] =
    [AdminAction { name: "reload", method: "POST", path: "/reload", role: AdminRole::Operate }];

/// Why the settings are read again. Its words stand in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    File,
    /// The admin listener.
    Request,
}

wellhead_word::words!(ReloadCause);

/// Asks for a reload.
#[derive(Debug)]
pub(crate) struct ReloadRequest {
    pub(crate) cause: ReloadCause,
    /// Nothing is applied.
    pub(crate) is_dry: bool,
    pub(crate) told: Option<oneshot::Sender<ReloadReport>>,
}

/// What becomes of a reload.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReloadReport {
    /// Why nothing was applied, where the settings cannot be used.
    pub(crate) problem: Option<String>,
    /// What is applied, or would be.
    pub(crate) applied: Vec<SettingChange>,
    /// What needs a restart and stays as it is.
    pub(crate) needs_restart: Vec<SettingChange>,
    /// What can be lived with.
    pub(crate) warnings: Vec<String>,
    pub(crate) is_dry: bool,
    /// How often settings were applied, the start included.
    pub(crate) generation: u64,
}

impl ReloadReport {
    /// A reload that cannot be done.
    pub(crate) fn refused(problem: String, is_dry: bool) -> Self {
        Self { problem: Some(problem), is_dry, ..Self::default() }
    }

    fn json(&self) -> Value {
        let change = |change: &SettingChange| {
            json!({
                "change": change.kind.word(),
                "setting": change.path,
                "from": change.from,
                "to": change.to,
                "text": change.to_string(),
            })
        };
        json!({
            "ok": self.problem.is_none(),
            "error": self.problem,
            "dry_run": self.is_dry,
            "generation": self.generation,
            "applied": self.applied.iter().map(change).collect::<Vec<_>>(),
            "needs_restart": self.needs_restart.iter().map(change).collect::<Vec<_>>(),
            "warnings": self.warnings,
        })
    }
}

/// The plan between two settings.
#[derive(Debug)]
pub(crate) struct ReloadPlan {
    /// The settings that apply then.
    pub(crate) settings: Settings,
    pub(crate) applied: Vec<SettingChange>,
    pub(crate) needs_restart: Vec<SettingChange>,
}

impl ReloadPlan {
    /// From `old`, which are in use, to `new`; an error where what needs a restart, and stays, does not fit the rest.
    pub(crate) fn new(old: &Settings, new: &Settings) -> Result<Self, String> {
        let settings = config::as_far_as_it_reloads(old, new);
        let applied = config::changes(old, &settings);
        let needs_restart = config::changes(&settings, new);
        let misfits = match needs_restart.is_empty() {
            true => Vec::new(),
            false => config::misfits(&settings, [old, new]),
        };
        if misfits.is_empty() {
            return Ok(Self { settings, applied, needs_restart });
        }
        let kept: Vec<_> = needs_restart.iter().map(|change| &*change.path).collect();
        let (misfits, kept) = (misfits.join("; "), kept.join(", "));
        Err(format!("{misfits}; these need a restart, and stay as they are: {kept}"))
    }
}

/// Where reloads are asked for.
#[derive(Debug, Clone)]
pub(crate) struct ReloadDesk(mpsc::Sender<ReloadRequest>);

impl ReloadDesk {
    /// The desk, and where its requests come out.
    pub(crate) fn new() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (requests, receiver) = mpsc::channel(WAITING_MAX);
        (Self(requests), receiver)
    }

    /// Asks without waiting for what becomes of it. While many wait already, one of them reads what is new.
    pub(crate) fn ask(&self, cause: ReloadCause) {
        if self.0.try_send(ReloadRequest { cause, is_dry: false, told: None }).is_err() {
            tracing::debug!(cause = cause.word(), "reloads are waiting already");
        }
    }

    /// Carries out [`ACTIONS`].
    pub(crate) async fn act(&self, call: &AdminCall) -> AdminReply {
        let query = call.query.as_deref().unwrap_or_default();
        let is_dry = url::form_urlencoded::parse(query.as_bytes())
            .any(|(name, value)| name == "dry_run" && value != "false");
        let (told, report) = oneshot::channel();
        let request = ReloadRequest { cause: ReloadCause::Request, is_dry, told: Some(told) };
        if self.0.try_send(request).is_err() {
            return reply(
                503,
                &json!({ "error": "other reloads are waiting, or wellhead is stopping" }),
            );
        }
        match report.await {
            Ok(report) => {
                let status = if report.problem.is_none() { 200 } else { 422 };
                reply(status, &report.json())
            }
            Err(_) => reply(503, &json!({ "error": "wellhead is stopping" })),
        }
    }
}

fn reply(status: u16, body: &Value) -> AdminReply {
    AdminReply { status, body: body.to_string().into(), subject: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(yaml: &str) -> Settings {
        let chains = "chains: { eth: { id: 1, upstreams: [{ id: a, url: 'http://a' }] } }";
        let yaml = format!("{yaml}\n{chains}");
        config::sound(&yaml)
    }

    #[test]
    fn what_stays_must_fit_what_changes() {
        let old =
            settings("limits: { answer_bytes: 10MB, batch_bytes: 9MB, answers_total_bytes: 20MB }");
        let new =
            settings("limits: { answer_bytes: 30MB, batch_bytes: 9MB, answers_total_bytes: 40MB }");
        let problem = ReloadPlan::new(&old, &new).expect_err("30 MB are more than 20 MB");
        assert!(problem.contains("`answer_bytes` is more than `answers_total_bytes`"), "{problem}");
        assert!(problem.ends_with("stay as they are: limits.answers_total_bytes"), "{problem}");
        let new =
            settings("limits: { answer_bytes: 15MB, batch_bytes: 9MB, answers_total_bytes: 40MB }");
        let plan = ReloadPlan::new(&old, &new).expect("they fit");
        assert_eq!((plan.applied.len(), plan.needs_restart.len()), (1, 1));
    }
}
