//! The TLS files of the listeners, looked at again every minute and with every reload.
//!
//! What makes them good is `server`'s business. Bad ones are told in the log once for each
//! change of the files; connections go on with those before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use wellhead_server::{Renewed, Tls};

/// Certificates are renewed weeks before they expire, so this is not urgent.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The TLS files of one listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerTls {
    /// The setting of its address: [`Self::CLIENTS`] or [`Self::ADMIN`].
    pub(crate) listener: &'static str,
    pub(crate) tls: Arc<Tls>,
}

impl ListenerTls {
    pub(crate) const CLIENTS: &str = "listen";
    pub(crate) const ADMIN: &str = "admin";

    /// Of the listeners that have TLS.
    pub(crate) fn of(clients: Option<Arc<Tls>>, admin: Option<Arc<Tls>>) -> Vec<Self> {
        let clients = clients.map(|tls| Self { listener: Self::CLIENTS, tls });
        let admin = admin.map(|tls| Self { listener: Self::ADMIN, tls });
        clients.into_iter().chain(admin).collect()
    }
}

/// Looks until it is dropped.
pub(crate) async fn run(tls: Arc<Tls>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and the files were just read.
    looks.tick().await;
    loop {
        looks.tick().await;
        let tls = Arc::clone(&tls);
        // Files may lie on a disk that hangs.
        let looked = tokio::task::spawn_blocking(move || renew(&tls)).await;
        if let Err(error) = looked {
            tracing::error!(%error, "the TLS files cannot be read; keeping those in use");
        }
    }
}

/// Looks at them, and tells what came of it. Waits for the disk.
pub(crate) fn renew(tls: &Tls) {
    match tls.renew() {
        Renewed::Unchanged => {}
        Renewed::Taken => tracing::info!("the TLS files were reloaded for new connections"),
        Renewed::Refused(problems) => {
            for problem in problems {
                tracing::error!(
                    %problem,
                    "a changed TLS file is invalid; keeping those in use"
                );
            }
        }
    }
}
