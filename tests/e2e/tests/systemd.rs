//! The sockets that a service manager gives outlive the process: however often it restarts, no connect is lost.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use wellhead_e2e::attack::upstream::CHAIN_ID;
use wellhead_e2e::{FIRST_SOCKET, Process, Rpc, Signal, attack, binary, free_port, until};

const BOUND: Duration = Duration::from_secs(60);
const CLIENTS: usize = 8;

/// A config before one node, and where wellhead is.
struct Site {
    folder: TempDir,
    _node: attack::Upstream,
    port: u16,
    admin_port: u16,
}

impl Site {
    fn new() -> Self {
        Self::at(free_port(), free_port())
    }

    fn at(port: u16, admin_port: u16) -> Self {
        let (folder, node) = (TempDir::new().unwrap(), attack::Upstream::start());
        let config = format!(
            "listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin_port}\nworkers: 2\nlog: {{ requests: false }}\n\
             chains: {{ main: {{ id: {CHAIN_ID}, upstreams: [{{ id: node, url: \"http://{}\" }}] }} }}\n",
            node.address
        );
        std::fs::write(folder.path().join("wellhead.yaml"), config).unwrap();
        Self { folder, _node: node, port, admin_port }
    }

    /// The command, by way of other programs.
    fn command(&self, launcher: &[String]) -> Vec<String> {
        let config = self.folder.path().join("wellhead.yaml").display().to_string();
        let own = [binary().display().to_string(), "serve".into(), "-c".into(), config];
        launcher.iter().cloned().chain(own).collect()
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    async fn ready(&self, process: &Process) {
        let admin = Rpc::new(self.admin_port, "/");
        let ready = until(BOUND, || async {
            let reply = admin.get("/readyz").await.ok()?;
            (reply.status == 200).then_some(())
        });
        assert!(ready.await.is_some(), "{}", process.log());
    }

    /// One call on a connection of its own.
    async fn call(&self) -> Result<Value, String> {
        Rpc::new(self.port, "/").result("eth_chainId", json!([])).await
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// As a service manager does: the sockets stay open here.
fn start(site: &Site, sockets: &[&TcpListener]) -> Process {
    let launcher = words(&[
        "env",
        &format!("LISTEN_FDS={}", sockets.len()),
        &format!("LISTEN_FDS_FIRST_FD={FIRST_SOCKET}"),
        "LISTEN_FDNAMES=listen:admin",
    ]);
    let sockets = sockets.iter().map(|socket| socket.try_clone().unwrap().into()).collect();
    Process::start_with_sockets(&site.command(&launcher), site.log(), sockets)
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_lose_no_connect() {
    let restarts: u64 =
        std::env::var("WELLHEAD_RESTARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (listen, admin) = (bind(), bind());
    let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
    let site = Site::at(port(&listen), port(&admin));
    let mut process = start(&site, &[&listen, &admin]);
    site.ready(&process).await;
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = join_all((0..CLIENTS).map(|_| async {
        while !stop.load(Relaxed) {
            let told = site.call().await.unwrap_or_else(|error| panic!("{error}"));
            assert!(told.is_string(), "{told}");
            calls.fetch_add(1, Relaxed);
        }
    }));
    let restarting = async {
        for round in 0..restarts {
            process.signal(Signal::Term);
            assert_eq!(process.exit_code(BOUND).await, Some(0), "{round}: {}", process.log());
            process = start(&site, &[&listen, &admin]);
            site.ready(&process).await;
            // Some calls in each life.
            let before = calls.load(Relaxed);
            let called =
                until(BOUND, || async { (calls.load(Relaxed) >= before + 50).then_some(()) });
            assert!(called.await.is_some(), "{round}: {}", process.log());
        }
        stop.store(true, Relaxed);
    };
    tokio::join!(clients, restarting);
    println!(
        "{restarts} restarts: {} calls, each on a new connection, none failed",
        calls.load(Relaxed)
    );
}

#[tokio::test]
async fn a_socket_that_is_elsewhere_is_an_error_that_says_what_to_write() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let site = Site::new();
    let mut process = start(&site, &[&other]);
    assert_eq!(process.exit_code(BOUND).await, Some(2), "{}", process.log());
    let at = other.local_addr().unwrap();
    assert_eq!(process.lines_with(&format!("set `listen: {at}`")), 1, "{}", process.log());
}

#[tokio::test]
async fn the_service_manager_is_told_of_readiness_life_and_the_end() {
    let site = Site::new();
    let path = site.folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(BOUND)).unwrap();
    let launcher =
        words(&["env", &format!("NOTIFY_SOCKET={}", path.display()), "WATCHDOG_USEC=200000"]);
    let mut process = Process::start(&site.command(&launcher), site.log());
    let told = |what: &str| {
        let mut message = [0; 512];
        loop {
            let length = socket.recv(&mut message).unwrap_or_else(|_| panic!("not told: {what}"));
            let text = String::from_utf8_lossy(&message[..length]).into_owned();
            if text.lines().any(|line| line == what) {
                return text;
            }
        }
    };
    let ready = told("READY=1");
    assert!(ready.contains("STATUS=") && ready.contains("of 1 chains served"), "{ready}");
    told("WATCHDOG=1");
    site.ready(&process).await;
    let well = "STATUS=1 of 1 chains served, 1 of 1 upstreams ready";
    assert!(told(well).contains("WATCHDOG=1"));
    process.signal(Signal::Stop);
    // What was told before it stopped is read; then nothing comes for five times the watchdog's half, and systemd
    // would restart it.
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut message = [0; 512];
    while socket.recv(&mut message).is_ok() {}
    process.signal(Signal::Cont);
    socket.set_read_timeout(Some(BOUND)).unwrap();
    told("WATCHDOG=1");
    process.signal(Signal::Term);
    told("STOPPING=1");
    assert_eq!(process.exit_code(BOUND).await, Some(0));
}

mod with_systemd {
    use super::*;

    /// `systemd-socket-activate` of systemd gives the sockets, and starts wellhead with the first connection.
    #[tokio::test]
    async fn systemd_starts_it_with_the_first_connection() {
        let site = Site::new();
        let launcher = words(&[
            "systemd-socket-activate",
            &format!("--listen=127.0.0.1:{}", site.port),
            &format!("--listen=127.0.0.1:{}", site.admin_port),
            "--fdname=clients.socket:admin",
        ]);
        let process = Process::start(&site.command(&launcher), site.log());
        // It listens from now on, and wellhead is not there yet.
        let listening =
            until(BOUND, || async { (process.lines_with("Listening on") >= 2).then_some(()) });
        assert!(listening.await.is_some(), "{}", process.log());
        assert_eq!(process.lines_with("wellhead is up"), 0);
        site.ready(&process).await;
        assert!(site.call().await.unwrap().is_string(), "{}", process.log());
    }
}
