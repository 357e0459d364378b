//! The addresses of wellhead itself: free, or served by a wellhead that runs; and its certificates.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use wellhead_server::{AdminAnswer, FileEnd, Listener, TlsFile, TlsFiles, TlsProblem};

use crate::admin_client;
use crate::config::{Admin, AdminTls, Settings, Tls};
use crate::doctor::diagnosis::{Diagnosis, HealthCheck};

/// A certificate that ends sooner should have been renewed.
const CERTIFICATE_DAYS_MIN: u64 = 14;
const DAY: u64 = 86_400;

const RUNNING: HealthCheck<'_> = HealthCheck::new("admin", "running");

/// Whether an address can be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortState {
    Free,
    InUse,
    /// Ports below 1024, as a rule.
    Denied,
    /// This machine does not have the address.
    NoSuchAddress,
    Other,
}

/// Binds it for a moment; a wellhead that starts at this very moment would miss it.
pub(crate) fn port_state(address: SocketAddr) -> PortState {
    match Listener::bind(address, false) {
        Ok(_) => PortState::Free,
        Err(error) => match error.kind() {
            io::ErrorKind::AddrInUse => PortState::InUse,
            io::ErrorKind::PermissionDenied => PortState::Denied,
            io::ErrorKind::AddrNotAvailable => PortState::NoSuchAddress,
            _ => PortState::Other,
        },
    }
}

/// What a running wellhead says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningFacts {
    is_live: bool,
    is_ready: bool,
    /// Why it is not ready, where it says so.
    unready_because: Option<String>,
    /// `None` where the token is missing.
    version: Option<String>,
}

impl RunningFacts {
    /// Asks; `None` where no wellhead answers.
    pub(crate) fn ask(admin: &Admin, patience: Duration) -> Option<Self> {
        let get = |target| admin_client::ask(admin, "GET", target, "", patience).ok();
        let told = |answer: &AdminAnswer| serde_json::from_str::<Value>(&answer.body).ok();
        let live = get("/livez")?;
        let is_live = told(&live)?["live"].as_bool()?;
        let ready = get("/readyz")?;
        let readiness = told(&ready)?;
        let status = get("/status").filter(|answer| answer.status == 200);
        let version =
            status.and_then(|answer| Some(told(&answer)?["version"].as_str()?.to_owned()));
        Some(Self {
            is_live,
            is_ready: readiness["ready"].as_bool()?,
            unready_because: readiness["reason"].as_str().map(str::to_owned),
            version,
        })
    }
}

/// The address of clients. `running`: a wellhead answers at the admin address.
pub(crate) fn judge_listen(
    address: SocketAddr,
    state: PortState,
    running: Option<&RunningFacts>,
) -> Diagnosis {
    let check = HealthCheck::new("listen", "port");
    let failed = |reason: &str, advice: String| check.failed(format!("{address} {reason}"), advice);
    match (state, running) {
        (PortState::Free, None) => {
            check.well(format!("{address} is free: wellhead does not run here"))
        }
        (PortState::Free, Some(_)) => check.doubtful(
            format!("{address} is free, though a wellhead answers at `admin`"),
            "that wellhead has another `listen`: compare its settings, or restart it",
        ),
        (PortState::InUse, Some(_)) => {
            check.well(format!("{address} is taken, and a wellhead runs here"))
        }
        (PortState::InUse, None) => failed(
            "is taken, and no wellhead answers at `admin`",
            format!("see which program has it: `ss -ltnp 'sport = :{}'`", address.port()),
        ),
        (PortState::Denied, _) => failed(
            "may not be bound by this user",
            "use a port from 1024 on, or systemd's socket (deploy/systemd)".to_owned(),
        ),
        (PortState::NoSuchAddress, _) => failed(
            "is no address of this machine",
            format!("use 0.0.0.0:{} or an address that `ip addr` shows", address.port()),
        ),
        (PortState::Other, _) => {
            failed("cannot be bound", "start wellhead to see the error".to_owned())
        }
    }
}

/// The admin address, and the wellhead that answers there. `state` is `None` for a socket file.
pub(crate) fn judge_admin(
    admin: &Admin,
    state: Option<PortState>,
    running: Option<&RunningFacts>,
    has_tls: bool,
) -> Diagnosis {
    let is_free = match state {
        Some(state) => state == PortState::Free,
        None => true,
    };
    match (running, is_free) {
        (Some(running), _) => judge_running(admin, running),
        (None, true) => RUNNING.well(format!("no wellhead runs at {admin}, and it is free")),
        (None, false) if has_tls => {
            let reason = format!("{admin} is taken; it has TLS, so it was not asked what it is");
            RUNNING.well(reason)
        }
        (None, false) => RUNNING.failed(
            format!("{admin} cannot be used, and no wellhead answers there"),
            "see which program has it (`ss -ltnp`), or change `admin`",
        ),
    }
}

fn judge_running(admin: &Admin, running: &RunningFacts) -> Diagnosis {
    let own = env!("CARGO_PKG_VERSION");
    let version = running.version.as_deref();
    let named = version.map_or("a wellhead".to_owned(), |version| format!("wellhead {version}"));
    let RunningFacts { is_live, is_ready, unready_because, .. } = running;
    if !is_live {
        let advice = "a worker is stuck: see the log, save `/status`, then restart it";
        return RUNNING.failed(format!("{named} at {admin} hangs"), advice);
    }
    if !is_ready {
        let because = unready_because.as_deref().unwrap_or("it does not say why");
        let reason = format!("{named} at {admin} is not ready: {because}");
        return RUNNING.failed(reason, "see the upstreams below, and `/status`");
    }
    let reason = format!("{named} at {admin} is live and ready");
    match version {
        Some(version) if version != own => RUNNING.doubtful(
            format!("{reason}; this program is {own}"),
            "restart it to run the installed version",
        ),
        Some(_) => RUNNING.well(reason),
        None => RUNNING
            .well(format!("{reason} (for its version put a token into WELLHEAD_ADMIN_TOKEN)")),
    }
}

/// Certificates of both listeners, with the settings that name them.
pub(crate) fn certificates(settings: &Settings, now_unix: u64) -> Vec<Diagnosis> {
    let clients = settings.tls.as_ref().filter(|tls| tls.acme.is_none()).map(Tls::files);
    let admin = settings.admin_access.tls.as_ref().map(AdminTls::files);
    let named = [("tls", clients), ("admin_access.tls", admin)];
    let given = named.into_iter().filter_map(|(setting, files)| Some((setting, files?)));
    given.flat_map(|(setting, files)| judge_files(setting, files, now_unix)).collect()
}

fn judge_files(setting: &str, files: TlsFiles, now_unix: u64) -> Vec<Diagnosis> {
    match wellhead_server::Tls::load(files) {
        Ok(tls) => tls.ends().iter().map(|end| judge_end(setting, *end, now_unix)).collect(),
        Err(problems) => {
            let failed = |problem: &TlsProblem| {
                let advice = format!("correct the file, or `{setting}`");
                HealthCheck::new(setting, "certificate").failed(problem.to_string(), advice)
            };
            problems.iter().map(failed).collect()
        }
    }
}

fn judge_end(setting: &str, FileEnd { file, end }: FileEnd, now_unix: u64) -> Diagnosis {
    let check = HealthCheck::new(setting, "certificate");
    let what = match file {
        TlsFile::RevocationList(place) => format!("revocation list {}", place + 1),
        TlsFile::Certificate
        | TlsFile::Key
        | TlsFile::ClientAuthority
        | TlsFile::AcmeCache
        | TlsFile::AcmeAuthority => "certificate".to_owned(),
    };
    let advice = "renew it: wellhead takes the new file into use within a minute";
    let left = end.as_secs().checked_sub(now_unix);
    match left.map(|seconds| seconds / DAY) {
        None => {
            let days = (now_unix - end.as_secs()) / DAY;
            let reason = format!("the {what} expired {days} days ago");
            check.failed(reason, advice)
        }
        Some(days) => {
            let reason = format!("the {what} is valid for {days} days more");
            match days < CERTIFICATE_DAYS_MIN {
                true => check.doubtful(reason, advice),
                false => check.well(reason),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::tests::shown;

    fn running(is_live: bool, is_ready: bool, version: Option<&str>) -> RunningFacts {
        let unready_because = (!is_ready).then(|| "draining".to_owned());
        RunningFacts { is_live, is_ready, unready_because, version: version.map(str::to_owned) }
    }

    #[test]
    fn ports_are_free_or_ours() {
        use PortState::{Denied, Free, InUse, NoSuchAddress, Other};
        let own = running(true, true, None);
        let address = SocketAddr::from(([127, 0, 0, 1], 4545));
        for (state, running, expected) in [
            (Free, None, "ok port: 127.0.0.1:4545 is free"),
            (Free, Some(&own), "warn port: 127.0.0.1:4545 is free, though"),
            (InUse, Some(&own), "ok port: 127.0.0.1:4545 is taken, and a wellhead"),
            (InUse, None, "FAIL port: 127.0.0.1:4545 is taken, and no wellhead"),
            (Denied, None, "FAIL port: 127.0.0.1:4545 may not be bound"),
            (NoSuchAddress, None, "FAIL port: 127.0.0.1:4545 is no address of this machine"),
            (Other, None, "FAIL port: 127.0.0.1:4545 cannot be bound"),
        ] {
            let found = shown(&[judge_listen(address, state, running)]).remove(0);
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn the_wellhead_that_runs_says_how_it_is() {
        let own = env!("CARGO_PKG_VERSION");
        let admin = Admin::At(SocketAddr::from(([127, 0, 0, 1], 4546)));
        let check = |state, running: Option<RunningFacts>, has_tls, expected: &str| {
            let found = shown(&[judge_admin(&admin, state, running.as_ref(), has_tls)]).remove(0);
            assert!(found.starts_with(expected), "{found}");
        };
        let (free, taken) = (Some(PortState::Free), Some(PortState::InUse));
        check(free, None, false, "ok running: no wellhead runs");
        check(None, None, false, "ok running: no wellhead runs");
        check(taken, None, false, "FAIL running: 127.0.0.1:4546 cannot be used");
        check(taken, None, true, "ok running: 127.0.0.1:4546 is taken; it has TLS");
        let well = running(true, true, Some(own));
        check(taken, Some(well), false, &format!("ok running: wellhead {own} at"));
        let other = running(true, true, Some("0.0.1"));
        check(taken, Some(other), false, "warn running: wellhead 0.0.1");
        check(taken, Some(running(true, true, None)), false, "ok running: a wellhead at");
        let unready = "FAIL running: a wellhead at 127.0.0.1:4546 is not ready: draining";
        check(taken, Some(running(true, false, None)), false, unready);
        let hanging = "FAIL running: a wellhead at 127.0.0.1:4546 hangs";
        check(taken, Some(running(false, true, None)), false, hanging);
    }

    #[test]
    fn certificates_are_told_with_their_days() {
        let now = 1_795_000_000;
        let (own, list, day) = (TlsFile::Certificate, TlsFile::RevocationList(1), DAY as i64);
        for (file, seconds, state, expected) in [
            (own, 90 * day + 1, "ok", "certificate is valid for 90 days more"),
            (own, 13 * day, "warn", "certificate is valid for 13 days more"),
            (own, -3 * day, "FAIL", "certificate expired 3 days ago"),
            (list, 3600, "warn", "revocation list 2 is valid for 0 days more"),
        ] {
            let expected = format!("{state} certificate: the {expected}");
            let end = Duration::from_secs((now as i64 + seconds) as u64);
            let found = shown(&[judge_end("tls", FileEnd { file, end }, now)]).remove(0);
            assert!(found.starts_with(&expected), "{found}");
        }
    }
}
