//! A new process takes the listening sockets over: no call fails, and a process that cannot take over leaves all as it was.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use wellhead_e2e::attack::upstream::CHAIN_ID;
use wellhead_e2e::{Anvil, Node, Process, Rpc, Signal, WsClient, attack, binary, free_port, until};

const BOUND: Duration = Duration::from_secs(60);
const CLIENTS: usize = 8;
const GENESIS: u64 = 1_790_000_000;

/// A wellhead that was started by a path of its own, where another binary can be put.
struct Site {
    folder: TempDir,
    port: u16,
    admin: Rpc,
    process: Process,
}

impl Site {
    async fn start(more: &str, upstream: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let (port, admin_port) = (free_port(), free_port());
        let at = folder.path().display();
        let config = format!(
            "listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin_port}\nworkers: 2\nlog: {{ requests: false }}\n\
             state: {at}/state\ncache: {{ disk: {{ path: {at}/cache, bytes: 16MB }} }}\n\
             timeouts: {{ drain: 3s }}\n{more}\n\
             chains: {{ main: {{ id: {CHAIN_ID}, upstreams: [{{ id: node, url: \"{upstream}\", \
             budget: {{ credits_per_day: 1000000000 }} }}] }} }}\n"
        );
        fs::write(folder.path().join("wellhead.yaml"), config).unwrap();
        std::os::unix::fs::symlink(binary(), folder.path().join("wellhead")).unwrap();
        let words = ["wellhead", "wellhead.yaml"].map(|it| format!("{at}/{it}"));
        let command = [words[0].clone(), "serve".into(), "-c".into(), words[1].clone()];
        let process = Process::start(&command, folder.path().join("log"));
        let site = Self { folder, port, admin: Rpc::new(admin_port, "/"), process };
        site.ready().await;
        site
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn ready(&self) {
        let ready = until(BOUND, || async {
            let reply = self.admin.get("/readyz").await.ok()?;
            (reply.status == 200).then_some(())
        });
        assert!(ready.await.is_some(), "{}", self.process.log());
    }

    /// Asks for a hand-over; the status, and what was answered.
    async fn upgrade(&self) -> (u16, Value) {
        let headers = [("x-wellhead-admin", "1")];
        let reply = self.admin.send("POST", "/upgrade", &headers, Bytes::new()).await.unwrap();
        (reply.status, reply.json().unwrap())
    }

    /// Puts another program where the binary is.
    fn replace_binary(&self, script: &str) {
        let next = self.file("next");
        fs::write(&next, script).unwrap();
        fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(next, self.file("wellhead")).unwrap();
    }

    async fn credits_today(&self) -> u64 {
        let status = self.admin.get("/status").await.unwrap().json().unwrap();
        status["chains"][0]["upstreams"][0]["credits_today"].as_u64().unwrap()
    }
}

fn is_running(pid: u64) -> bool {
    // One that has ended and was not waited for is a zombie.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

fn parent(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn resident_kib(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

fn open_files(pid: u64) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// New connections and kept ones, while one process after the other takes over. `WELLHEAD_RESTARTS=100` for more.
#[tokio::test(flavor = "multi_thread")]
async fn hand_overs_fail_no_call() {
    let rounds: u64 =
        std::env::var("WELLHEAD_RESTARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let node = attack::Upstream::start();
    let site = Site::start("", &format!("http://{}", node.address)).await;
    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = join_all((0..CLIENTS).map(|client| {
        let (stop, calls, site, kept) = (&stop, &calls, &site, Rpc::new(site.port, "/"));
        async move {
            let mut number = 0_u64;
            while !stop.load(Relaxed) {
                number += 1;
                let params = json!([format!("0x{client:020x}{number:020x}"), "latest"]);
                // Every other client opens a connection for each call.
                let told = match client % 2 {
                    0 => Rpc::new(site.port, "/").result("eth_getBalance", params).await,
                    _ => kept.result("eth_getBalance", params).await,
                };
                told.unwrap_or_else(|error| panic!("{error}\n{}", site.process.log()));
                calls.fetch_add(1, Relaxed);
            }
        }
    }));
    let handing_over = async {
        let some_calls = |least: u64| {
            let calls = &calls;
            async move {
                let before = calls.load(Relaxed);
                let called = until(BOUND, || async {
                    (calls.load(Relaxed) >= before + least).then_some(())
                });
                assert!(called.await.is_some());
            }
        };
        let (mut pid, mut first, mut spent) = (u64::from(site.process.pid()), None, 0);
        for round in 0..rounds {
            some_calls(100).await;
            // The state file is each one's own when the one before has ended.
            let handed_over = until(BOUND, || async {
                let (status, told) = site.upgrade().await;
                let why = told["error"].as_str().unwrap_or_default();
                let is_early = why.contains("`state` file");
                assert!(status == 200 || is_early, "{round}: {told}\n{}", site.process.log());
                told["pid"].as_u64()
            });
            let next = handed_over.await.unwrap_or_else(|| panic!("{}", site.process.log()));
            assert_ne!(next, pid);
            // A child of the service manager's, before that is told of it.
            assert_ne!(parent(next), pid);
            let ended = until(BOUND, || async { (!is_running(pid)).then_some(()) });
            assert!(ended.await.is_some(), "{round}: {}", site.process.log());
            site.ready().await;
            pid = next;
            // What the old one spent is in the state file, which is the new one's within seconds.
            let known =
                until(BOUND, || async { (site.credits_today().await > spent).then_some(()) });
            assert!(known.await.is_some(), "{round}: {spent}");
            spent = site.credits_today().await;
            first.get_or_insert((resident_kib(pid), open_files(pid)));
        }
        some_calls(100).await;
        stop.store(true, Relaxed);
        let (began, ends) = (first.unwrap(), (resident_kib(pid), open_files(pid)));
        println!(
            "{rounds} hand-overs: {} calls, none failed; {} then {} KiB, {} then {} open files",
            calls.load(Relaxed),
            began.0,
            ends.0,
            began.1,
            ends.1
        );
        assert!(ends.0 < began.0 * 2 && ends.1 <= began.1 + 2 * CLIENTS, "{began:?} {ends:?}");
    };
    tokio::join!(clients, handing_over);
    let log = site.process.printed();
    assert!(log.contains("the disk cache is free"), "{log}");
}

/// What cannot take over changes nothing: a program that ends, one that is no wellhead, and a config with an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_take_over_leaves_all_as_it_was() {
    let node = attack::Upstream::start();
    let site = Site::start("", &format!("http://{}", node.address)).await;
    let rpc = Rpc::new(site.port, "/");
    let config = fs::read_to_string(site.file("wellhead.yaml")).unwrap();
    fs::write(site.file("wellhead.yaml"), format!("{config}nonsense: 1\n")).unwrap();
    let (status, told) = site.upgrade().await;
    assert_eq!(status, 422, "{told}");
    assert!(told["error"].as_str().unwrap().contains("exit status: 1"), "{told}");
    assert!(site.process.printed().contains("nonsense"), "{}", site.process.log());
    fs::write(site.file("wellhead.yaml"), config).unwrap();
    for (script, why) in
        [("#!/bin/sh\nexit 7\n", "exit status: 7"), ("#!/bin/nowhere\n", "cannot be started")]
    {
        site.replace_binary(script);
        let (status, told) = site.upgrade().await;
        assert_eq!(status, 422, "{told}");
        assert!(told["error"].as_str().unwrap().contains(why), "{told}");
        assert_eq!(rpc.result("eth_chainId", json!([])).await.unwrap(), json!("0x3f1"));
    }
    // One that never gets ready is ended with the process that it should follow.
    site.replace_binary(&format!(
        "#!/bin/sh\necho $$ >{}\nexec sleep 600\n",
        site.file("pid").display()
    ));
    let asked = async {
        let headers = [("x-wellhead-admin", "1")];
        site.admin.send("POST", "/upgrade", &headers, Bytes::new()).await
    };
    let ending = async {
        let started = until(BOUND, || async {
            fs::read_to_string(site.file("pid")).ok()?.trim().parse::<u64>().ok()
        });
        let pid = started.await.unwrap();
        let (status, told) = site.upgrade().await;
        assert_eq!(status, 422, "{told}");
        assert!(told["error"].as_str().unwrap().contains("under way"), "{told}");
        site.process.signal(Signal::Term);
        let ended = until(BOUND, || async { (!is_running(pid)).then_some(()) });
        assert!(ended.await.is_some(), "{}", site.process.log());
    };
    let (answered, ()) = tokio::join!(asked, ending);
    let told = answered.unwrap();
    assert_eq!((told.status, told.json().unwrap()["ok"].clone()), (503, json!(false)));
}

/// Subscribers are told by the close code that they should connect again, and miss no block.
mod with_anvil {
    use super::*;

    async fn mine(node: &Node) -> u64 {
        node.rpc().result("evm_mine", json!([])).await.unwrap();
        node.head().await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn subscribers_come_back() {
        let node = Anvil::by_hand(CHAIN_ID, GENESIS).await;
        let site = Site::start("", &node.url()).await;
        let subscribe = || async {
            let mut client = WsClient::connect(site.port).await;
            client.subscribe(json!(["newHeads"])).await;
            client
        };
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(subscribe().await);
        }
        let number = mine(&node).await;
        for client in &mut clients {
            assert_eq!(client.told().await["result"]["number"], json!(format!("{number:#x}")));
        }
        let closed = Notify::new();
        let coming_back = join_all(clients.into_iter().map(|mut client| {
            let (subscribe, closed) = (&subscribe, &closed);
            async move {
                let end = client.told_or_closed().await.unwrap_err();
                assert_eq!(end, Some(1012));
                closed.notify_one();
                subscribe().await
            }
        }));
        let (mut clients, (status, told)) = tokio::join!(coming_back, site.upgrade());
        assert_eq!(status, 200, "{told}");
        let number = mine(&node).await;
        for client in &mut clients {
            assert_eq!(client.told().await["result"]["number"], json!(format!("{number:#x}")));
        }
    }
}
