//! What systemd, or a program that behaves like it, gives and is told: listening sockets, readiness, a watchdog.
//!
//! Sockets that are given (`LISTEN_FDS`) outlive this process: clients that connect while wellhead restarts
//! wait in the queue of the kernel, and none is refused. The one with the name `admin` is the admin
//! listener's; all others take calls.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use listenfd::ListenFd;
use sd_notify::NotifyState;
use wellhead_proxy::Proxy;
use wellhead_upstream::Condition;

use crate::config::{Admin, Settings};
use crate::handover::{Predecessor, READY_NAME};
use crate::heartbeat::Heartbeats;
use crate::serve_error::ServeError;

/// How often the status line is told, where no watchdog wants to hear more often.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The sockets that were given.
#[derive(Debug, Default)]
pub(crate) struct GivenSockets {
    pub(crate) clients: Vec<TcpListener>,
    pub(crate) admin: Option<GivenAdmin>,
    /// They are of a process that hands over.
    pub(crate) predecessor: Option<Predecessor>,
}

/// The socket of the admin listener that was given.
#[derive(Debug)]
pub(crate) enum GivenAdmin {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl GivenSockets {
    /// Takes the sockets that the environment names; none where it names none, or those of another process.
    /// To be called once, before a thread starts.
    pub(crate) fn take() -> Result<Self, ServeError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = ListenFd::from_env();
        let mut given = Self::default();
        for place in 0..sockets.len() {
            let name = names.next().unwrap_or_default();
            given.add(name, place, &mut sockets).map_err(|error| {
                ServeError::System("a socket that was given cannot be used", error)
            })?;
        }
        Ok(given)
    }

    fn add(&mut self, name: &str, place: usize, sockets: &mut ListenFd) -> io::Result<()> {
        if name == READY_NAME {
            self.predecessor = sockets.take_unix_datagram(place)?.map(Predecessor);
            return Ok(());
        }
        if name != "admin" {
            self.clients.extend(sockets.take_tcp_listener(place)?);
            return Ok(());
        }
        if self.admin.is_some() {
            return Err(io::Error::other("two have the name `admin`"));
        }
        self.admin = match sockets.take_tcp_listener(place) {
            Ok(socket) => socket.map(GivenAdmin::Tcp),
            Err(_) => sockets.take_unix_listener(place)?.map(GivenAdmin::Unix),
        };
        Ok(())
    }

    /// Checks that the sockets are where the settings say: what the settings were checked for holds there alone.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), ServeError> {
        let system = |error| ServeError::System("a socket that was given has no address", error);
        for socket in &self.clients {
            let at = socket.local_addr().map_err(system)?;
            if !is_at(at, settings.listen) {
                let (at, set) = (at.to_string(), settings.listen.to_string());
                return Err(ServeError::GivenElsewhere { what: "listen", at, set });
            }
        }
        let Some(admin) = &self.admin else { return Ok(()) };
        let at = admin.place().map_err(system)?;
        let is_there = match (&at, &settings.admin) {
            (Admin::At(at), Admin::At(set)) => is_at(*at, *set),
            (at, set) => at == set,
        };
        let (at, set) = (at.to_string(), settings.admin.to_string());
        if is_there { Ok(()) } else { Err(ServeError::GivenElsewhere { what: "admin", at, set }) }
    }
}

impl GivenAdmin {
    fn place(&self) -> io::Result<Admin> {
        Ok(match self {
            Self::Tcp(socket) => Admin::At(socket.local_addr()?),
            Self::Unix(socket) => {
                let address = socket.local_addr()?;
                Admin::Unix(address.as_pathname().map_or_else(PathBuf::new, Into::into))
            }
        })
    }
}

/// With port 0 any port will do.
fn is_at(at: SocketAddr, set: SocketAddr) -> bool {
    at.ip() == set.ip() && (set.port() == 0 || at.port() == set.port())
}

/// Says that clients can call.
pub(crate) fn tell_ready(proxy: &Proxy) {
    tell(&[NotifyState::Ready, NotifyState::Status(&status_line(proxy))]);
}

/// Says that a process has taken over: what that one tells counts from now on.
pub(crate) fn tell_successor(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// Says that the process will end.
pub(crate) fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells the status, and the watchdog that no worker is stuck, until it is dropped; nothing where no service
/// manager listens.
pub(crate) async fn keep_told(proxy: Arc<ArcSwap<Proxy>>, beats: Arc<Heartbeats>) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let watchdog = sd_notify::watchdog_enabled();
    // Half of its time, as its manual says.
    let every = watchdog.map_or(STATUS_EVERY, |within| (within / 2).min(STATUS_EVERY));
    loop {
        tokio::time::sleep(every).await;
        let line = status_line(&proxy.load());
        let is_well = beats.stuck(wellhead_dispatch::now()).is_empty();
        match watchdog.is_some() && is_well {
            true => tell(&[NotifyState::Status(&line), NotifyState::Watchdog]),
            false => tell(&[NotifyState::Status(&line)]),
        }
    }
}

/// Where no `NOTIFY_SOCKET` is set, nothing is told.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}

/// `1 of 2 chains served, 3 of 4 upstreams ready`.
fn status_line(proxy: &Proxy) -> String {
    let (now, chains) = (wellhead_dispatch::now(), proxy.chains());
    let unserved = proxy.readiness().unserved.len();
    let mut upstreams = chains.iter().flat_map(|chain| chain.roster.upstreams());
    let all = upstreams.clone().count();
    let ready = upstreams.by_ref().filter(|it| it.condition(now) == Condition::Ready).count();
    let served = chains.len().saturating_sub(unserved);
    format!("{served} of {} chains served, {ready} of {all} upstreams ready", chains.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_to_be_where_the_settings_say() {
        for (at, set, expected) in [
            ("127.0.0.1:8545", "127.0.0.1:8545", true),
            ("127.0.0.1:8545", "127.0.0.1:0", true),
            ("127.0.0.1:8546", "127.0.0.1:8545", false),
            ("0.0.0.0:8545", "127.0.0.1:8545", false),
            ("[::]:8545", "0.0.0.0:8545", false),
        ] {
            assert_eq!(is_at(at.parse().unwrap(), set.parse().unwrap()), expected, "{at} {set}");
        }
    }
}
