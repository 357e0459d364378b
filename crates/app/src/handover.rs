//! The listening sockets go to a new process of wellhead, and no connection is lost.
//!
//! Asked by SIGUSR2, `POST /upgrade` or `wellhead upgrade`, the running process (the predecessor) starts its binary
//! again, which may be another one by now, with its own arguments, by way of a [`starter`]. The new process (the
//! successor) gets copies of the listening sockets as a service manager would give them (`LISTEN_FDS`), and a socket
//! by the name [`READY_NAME`]. It accepts nothing until its upstreams are verified; then it accepts, and says so. From
//! then on the predecessor accepts nothing more and drains, as after SIGTERM. A listening socket is never closed by
//! both, so its queue is never lost.
//!
//! A successor that ends, or is not ready within [`READY_WITHIN`], is killed, and the predecessor goes on as if it
//! had not been asked. Files with one owner (`state`, `cache.disk`, `usage`) are the successor's when the predecessor
//! has ended: their locks say so.

pub(crate) mod command;
pub(crate) mod starter;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use command_fds::FdMapping;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use wellhead_server::{AdminAction, AdminReply, AdminRole};

use self::starter::{LOOK_EVERY, Starter};

/// The successor waits for its upstreams for [`VERIFIED_WITHIN`]; the rest is for its start.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(30);
/// Chains that have no upstream by then have none in the predecessor either, or not for long.
pub(crate) const VERIFIED_WITHIN: Duration = Duration::from_secs(20);
/// The name of the socket by which the successor says that it is ready.
pub(crate) const READY_NAME: &str = "ready";
const READY: &[u8] = b"READY=1";
/// The first socket of a process that is given some, as `sd_listen_fds(3)` has it.
const FIRST_SOCKET: i32 = 3;

/// What may be done beside looking.
pub(crate) const ACTIONS: [AdminAction; 1] =
    [AdminAction { name: "upgrade", method: "POST", path: "/upgrade", role: AdminRole::Operate }];

/// Asks for a hand-over.
#[derive(Debug)]
pub(crate) struct HandOverRequest {
    pub(crate) told: Option<oneshot::Sender<Result<u32, String>>>,
}

impl HandOverRequest {
    /// Tells what became of it.
    pub(crate) fn tell(self, outcome: Result<u32, String>) {
        if let Some(told) = self.told {
            // The client of the admin listener may have disconnected.
            let _ = told.send(outcome);
        }
    }

    /// Nothing is handed over.
    pub(crate) fn refuse(self, why: &str) {
        tracing::error!(why, "the sockets are not handed over: this process goes on");
        self.tell(Err(why.to_owned()));
    }
}

/// Where hand-overs are asked for.
#[derive(Debug, Clone)]
pub(crate) struct HandOverDesk(mpsc::Sender<HandOverRequest>);

impl HandOverDesk {
    /// The desk, and where its requests come out.
    pub(crate) fn new() -> (Self, mpsc::Receiver<HandOverRequest>) {
        let (requests, receiver) = mpsc::channel(1);
        (Self(requests), receiver)
    }

    /// Asks without waiting for what becomes of it.
    pub(crate) fn ask(&self) {
        if self.0.try_send(HandOverRequest { told: None }).is_err() {
            tracing::debug!("another hand-over waits already");
        }
    }

    /// Carries out [`ACTIONS`]: answers when the successor is ready, or cannot be.
    pub(crate) async fn act(&self) -> AdminReply {
        let (told, outcome) = oneshot::channel();
        let refused = match self.0.try_send(HandOverRequest { told: Some(told) }) {
            Ok(()) => None,
            Err(_) => Some("another hand-over waits, or wellhead is stopping"),
        };
        let (status, body) = match (refused, outcome.await) {
            (None, Ok(Ok(pid))) => (200, json!({ "ok": true, "pid": pid })),
            (None, Ok(Err(why))) => (422, json!({ "ok": false, "error": why })),
            (None, Err(_)) => (503, json!({ "ok": false, "error": "wellhead is stopping" })),
            (Some(why), _) => (503, json!({ "ok": false, "error": why })),
        };
        AdminReply { status, body: body.to_string().into(), subject: None }
    }
}

/// Copies of the listening sockets, for a successor. While they are here the sockets stay open.
#[derive(Debug, Default)]
pub(crate) struct KeptSockets {
    pub(crate) clients: Vec<OwnedFd>,
    pub(crate) admin: Option<OwnedFd>,
}

/// The process that takes over, until it is ready. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Successor {
    starter: Starter,
    ready: UnixDatagram,
    is_ready: bool,
    deadline: Instant,
}

impl Successor {
    /// Starts it. Waits for its process, for some milliseconds.
    pub(crate) fn start(sockets: &KeptSockets) -> io::Result<Self> {
        let (ready, theirs) = UnixDatagram::pair()?;
        ready.set_nonblocking(true)?;
        let (mut mappings, mut names) = (Vec::new(), Vec::new());
        let clients = sockets.clients.iter().map(|socket| ("listen", socket));
        let admin = sockets.admin.iter().map(|socket| ("admin", socket));
        for (name, socket) in clients.chain(admin) {
            mappings.push(socket.try_clone()?);
            names.push(name);
        }
        mappings.push(theirs.into());
        names.push(READY_NAME);
        let mappings = (FIRST_SOCKET..).zip(mappings);
        let mappings: Vec<_> =
            mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        let count = mappings.len().to_string();
        let starter =
            Starter::start(program()?.into(), std::env::args_os().skip(1), mappings, |command| {
                command
                    .env("LISTEN_FDS", count)
                    .env("LISTEN_FDNAMES", names.join(":"))
                    // They name this process.
                    .env_remove("LISTEN_PID")
                    .env_remove("LISTEN_FDS_FIRST_FD")
                    .env_remove("WATCHDOG_PID");
            })?;
        Ok(Self { starter, ready, is_ready: false, deadline: Instant::now() + READY_WITHIN })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.starter.successor()
    }

    /// Waits until it is ready; an error in words if it ends before, or takes too long. May be dropped and called
    /// again.
    pub(crate) async fn wait_ready(&mut self) -> Result<(), String> {
        if !self.is_ready {
            let outcome = tokio::time::timeout_at(self.deadline, self.told_ready()).await;
            outcome.unwrap_or_else(|_| {
                Err(format!("the new process was not ready within {READY_WITHIN:?}"))
            })?;
            self.is_ready = true;
        }
        self.starter.release().await.map_err(|error| error.to_string())
    }

    async fn told_ready(&mut self) -> Result<(), String> {
        let mut message = [0; 64];
        loop {
            // An error says that it has not said anything yet, or that it has ended.
            if let Ok(length) = self.ready.recv(&mut message)
                && &message[..length] == READY
            {
                return Ok(());
            }
            if let Some(status) = self.starter.ended().map_err(|error| error.to_string())? {
                return Err(ended(status));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn ended(status: ExitStatus) -> String {
    format!("the new process ended before it was ready ({status}); the log has its reasons")
}

/// The binary as this process was started: its path may lead to another file by now.
fn program() -> io::Result<PathBuf> {
    let named = std::env::args_os().next().filter(is_path);
    named.map_or_else(std::env::current_exe, |named| Ok(named.into()))
}

/// Whether a command is looked for nowhere else.
fn is_path(command: &OsString) -> bool {
    command.as_encoded_bytes().contains(&b'/')
}

/// The process that handed over, as the successor sees it.
#[derive(Debug)]
pub(crate) struct Predecessor(pub(crate) UnixDatagram);

impl Predecessor {
    /// Says that this process accepts connections.
    pub(crate) fn tell_ready(&self) {
        if let Err(error) = self.0.send(READY) {
            tracing::warn!(%error, "the process that handed over has ended already");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_path_is_the_running_binary() {
        for (command, expected) in
            [("wellhead", false), ("./wellhead", true), ("/usr/bin/wellhead", true), ("", false)]
        {
            assert_eq!(is_path(&command.into()), expected, "{command}");
        }
    }
}
