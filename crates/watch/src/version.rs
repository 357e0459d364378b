//! Which software an upstream runs: asked when it is verified, and when it is back after a
//! rest, as another node may answer there then. Never polled.

use std::sync::atomic::Ordering;

use crate::ask::{CallReason, now};
use crate::checks::CheckKind;
use crate::watcher::Watcher;

impl Watcher {
    /// From now on the version is due, where it is asked for at all.
    pub(crate) fn want_version(&self) {
        if self.checks.asks(CheckKind::Version) {
            self.upstream().expect_client_version();
            self.version_is_due.store(true, Ordering::Relaxed);
        }
    }

    /// Asks for the version if it is due. While no client calls, the call waits for its turn.
    pub(crate) async fn look_at_version_in_turn(&self) {
        let now = now();
        if self.is_busy() || self.asker.turn_is_free_at(now) <= now {
            self.look_at_version().await;
        }
    }

    /// Asks for the version if it is due. One that does not say is not asked again before the
    /// next verification: nothing but the name that clients see depends on it.
    pub(crate) async fn look_at_version(&self) {
        if !self.version_is_due.swap(false, Ordering::Relaxed) {
            return;
        }
        let said = self.asker.client_version(CallReason::Version).await;
        if let Err(detail) = &said {
            let id = &self.upstream().identity().id;
            tracing::debug!(upstream = %id, %detail, "version not learnt");
        }
        if self.upstream().note_client_version(said.as_deref().ok())
            && let Some(version) = self.upstream().client_version()
        {
            let id = &self.upstream().identity().id;
            tracing::info!(upstream = %id, %version, "upstream version detected");
        }
        // A client that asks for the version may wait for the first one.
        self.pulse().tell_verified();
    }
}
