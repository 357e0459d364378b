//! What the monitor of one upstream asks of the proxy and tells it: turns, holds, findings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::{Mutex, OwnedMutexGuard};
use wellhead_analyze::measure::run::StopSignal;
use wellhead_analyze::monitor::{
    LEAN_EVERY, MonitorEvent, MonitorObserver, MonitoredTarget, SpendBounds, TrackedLimit,
};
use wellhead_dispatch::now;
use wellhead_upstream::Condition;

use super::record::{StudyKey, StudyRecord};
use super::upstream::StudiedUpstream;
use crate::config::STUDY_PROFILE;

/// A hold that is not renewed ends after this. Replicas hear of pauses of a second or more.
const HOLD: Duration = Duration::from_millis(1_200);
/// A hold is renewed when less than this is left, so that replicas hear of it about once a second.
const RENEW_AT: Duration = Duration::from_millis(600);
const _: () =
    assert!(LEAN_EVERY.as_millis() < RENEW_AT.as_millis(), "it is renewed before it ends");
/// An upstream is studied while no other one is ready if clients' calls take at most this share of its known limit.
const LONE_SHARE: f64 = 0.1;
/// The rate of clients' calls up to which a lone upstream is studied if its limit is not known, in calls per second.
const LONE_RATE_MAX: f64 = 5.0;
/// A count of clients' calls gives their rate once it is this old.
const COUNT_AGE_MIN: Duration = Duration::from_secs(4);
/// An older count gives no rate: the traffic may have changed since.
const COUNT_AGE_MAX: Duration = Duration::from_secs(30);

/// Why nothing begins now. Its words stand in the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum PutOff {
    /// Another upstream has the turn.
    Turn,
    /// The upstream is not ready.
    NotReady,
    /// Another replica leads it.
    NotLed,
    /// It would cost too much of what a cap leaves.
    Cap,
    /// No other upstream is ready, and clients call it more than rarely.
    Busy,
}

wellhead_word::words!(PutOff);

/// One upstream is studied at a time: studies of two would make each other's calls late.
pub(super) type StudyTurn = Arc<Mutex<()>>;

/// The rate of clients' calls, from two counts of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClientTraffic {
    before: Option<(Instant, u64)>,
}

impl ClientTraffic {
    /// Calls per second since the last count; `None` where that is too old, or too new, to tell.
    pub(super) fn per_second(&mut self, attempts: u64, now: Instant) -> Option<f64> {
        let (at, before) = *self.before.get_or_insert((now, attempts));
        let age = now.saturating_duration_since(at);
        if age < COUNT_AGE_MIN {
            return None;
        }
        self.before = Some((now, attempts));
        (age <= COUNT_AGE_MAX).then(|| attempts.saturating_sub(before) as f64 / age.as_secs_f64())
    }
}

/// See the module.
pub(super) struct StudyDesk {
    pub(super) current: Arc<ArcSwap<StudiedUpstream>>,
    pub(super) key: StudyKey,
    pub(super) place: PathBuf,
    pub(super) bounds: SpendBounds,
    pub(super) record: StudyRecord,
    pub(super) turn: StudyTurn,
    /// While a round or a study is played.
    pub(super) taken: Option<OwnedMutexGuard<()>>,
    pub(super) traffic: ClientTraffic,
    /// Until when clients' calls are held.
    pub(super) held_until: Option<Instant>,
    /// Ends the monitor, where another replica leads from now on.
    pub(super) stop: Arc<StopSignal>,
}

impl StudyDesk {
    /// Lets a round or a study of this many calls begin, or says why it is put off.
    fn admit(&mut self, limit: TrackedLimit, calls: u64, now: Instant) -> Result<(), PutOff> {
        let it = self.current.load();
        if !it.is_led(now) {
            return Err(PutOff::NotLed);
        }
        if it.upstream.condition(now) != Condition::Ready {
            return Err(PutOff::NotReady);
        }
        if !it.can_afford(calls, now) {
            return Err(PutOff::Cap);
        }
        if !it.has_other(now) {
            let most = limit.per_second().map_or(LONE_RATE_MAX, |limit| limit * LONE_SHARE);
            let rate = self.traffic.per_second(it.clients_attempts(), now);
            // Asked again soon, where it cannot be told yet.
            if rate.is_none_or(|rate| rate > most) {
                return Err(PutOff::Busy);
            }
        }
        Ok(())
    }

    /// Holds calls of clients, or renews the hold in time.
    fn hold(&mut self, now: Instant) {
        let left = self.held_until.map(|until| until.saturating_duration_since(now));
        if left.is_none_or(|left| left < RENEW_AT) {
            self.current.load().upstream.hold_for_study(HOLD, now);
            self.held_until = Some(now + HOLD);
        }
    }

    fn release(&mut self) {
        if self.held_until.take().is_some() {
            self.current.load().upstream.release_from_study(now());
        }
    }
}

impl Drop for StudyDesk {
    fn drop(&mut self) {
        self.release();
    }
}

impl MonitorObserver for StudyDesk {
    fn event(&mut self, target: &MonitoredTarget, event: &MonitorEvent) {
        let (chain, upstream) = (&*self.key.chain, target.target.id.as_str());
        match event {
            MonitorEvent::Found(_) | MonitorEvent::Changed { .. } => {
                tracing::info!(chain, upstream, finding = %event, "a study of the upstream ended");
            }
            MonitorEvent::Confirmed(_)
            | MonitorEvent::Unclear
            | MonitorEvent::Contradicted(_)
            | MonitorEvent::Resting
            | MonitorEvent::Answering => {
                tracing::debug!(chain, upstream, finding = %event, "a study of the upstream goes on");
            }
        }
    }

    fn updated(&mut self, targets: &[MonitoredTarget], now_unix: u64) {
        let Some(target) = targets.first() else { return };
        let limit = target.limit();
        self.record.change(&self.key, |status| {
            status.limit_calls_per_second = limit.per_second();
            status.burst_calls = match limit {
                TrackedLimit::Limited(bound) => bound.size,
                TrackedLimit::Unknown | TrackedLimit::NoneUpTo(_) | TrackedLimit::Concurrency => {
                    None
                }
            };
            status.calls_in_hour = target.spent_in_hour(now_unix);
            status.calls_left = Some(target.left(self.bounds, now_unix));
            status.probed_at = target.answered_at.or(status.probed_at);
            status.rounds = target.counts.rounds;
            status.studies = target.counts.studies;
            status.changes = target.counts.changes;
        });
    }

    fn profile(&mut self, text: &str) {
        let (path, new) = (self.place.join(STUDY_PROFILE), self.place.join("profile.new"));
        // In its place at once: it may be read at any time.
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = written {
            let path = path.display();
            tracing::warn!(%path, %error, "what a study of the upstream found cannot be written: it is not applied");
        }
    }

    fn take_turn(&mut self, target: &MonitoredTarget, calls: u64) -> bool {
        let admitted = self.admit(target.limit(), calls, now());
        let take = || Arc::clone(&self.turn).try_lock_owned().ok();
        self.taken = admitted.is_ok().then(take).flatten();
        let put_off = admitted.err().or_else(|| self.taken.is_none().then_some(PutOff::Turn));
        self.record.change(&self.key, |status| status.put_off = put_off.map(PutOff::word));
        if put_off == Some(PutOff::NotLed) {
            self.stop.set();
        }
        put_off.is_none()
    }

    fn end_turn(&mut self, _: &MonitoredTarget) {
        self.taken = None;
    }

    fn leans(&mut self, _: &MonitoredTarget) {
        self.hold(now());
    }

    fn leans_no_more(&mut self, _: &MonitoredTarget) {
        self.release();
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
