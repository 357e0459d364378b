//! Many upstreams without calls: what each of them takes, and how soon the first call is
//! answered.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop where it likes")]
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use wellhead_e2e::{Rpc, Wellhead, until};
use wellhead_sim::fast::{Canned, serve};

const BOUND: Duration = Duration::from_secs(60);
const CHAINS: usize = 200;
const UPSTREAMS: usize = 1_000;
/// What the start took for a moment is given back when something is allocated again: with the first checks of idle
/// upstreams at the latest, which come after a minute.
const SETTLED_WITHIN: Duration = Duration::from_secs(150);
/// Resident memory that one more idle upstream may take.
const KIB_EACH_MAX: usize = 50;

/// A server that answers for every upstream, on a thread of its own.
fn upstream() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve(listener, Canned::new(Duration::from_secs(1_700_000_000), 1)).await
        })
    });
    url
}

/// So many chains and upstreams, once all are verified: resident memory in KiB, and how long
/// after the start the first call was answered.
async fn measured(
    url: &str,
    chains: usize,
    upstreams: usize,
    enough_kib: usize,
) -> (usize, Duration) {
    let mut text = String::new();
    for chain in 0..chains {
        writeln!(text, "  c{chain}:\n    upstreams:").unwrap();
        for upstream in 0..upstreams / chains {
            let id = format!("u{chain}-{upstream}");
            writeln!(text, "      - {{ id: {id}, url: \"{url}/{id}\" }}").unwrap();
        }
    }
    let began = tokio::time::Instant::now();
    let wellhead = Wellhead::spawn("", &text);
    let rpc = Rpc::new(wellhead.port, "/c0");
    let answered = until(BOUND, || async {
        let params = json!(["0x0000000000000000000000000000000000000001", "latest"]);
        rpc.result("eth_getBalance", params).await.ok()
    });
    assert!(answered.await.is_some(), "{}", wellhead.process.log());
    let first = began.elapsed();
    // The page of status would take memory for itself.
    let all = until(BOUND, || async {
        (wellhead.process.lines_with("upstream verified") == upstreams).then_some(())
    });
    assert!(all.await.is_some(), "{}", wellhead.process.log());
    let pid = wellhead.process.pid();
    let settled =
        until(SETTLED_WITHIN, || async { (resident_kib(pid) <= enough_kib).then_some(()) });
    let _as_it_is = settled.await;
    (resident_kib(pid), first)
}

fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn a_thousand_idle_upstreams_take_little_memory() {
    let url = upstream();
    let (few, few_took) = measured(&url, 1, 1, usize::MAX).await;
    let enough = few + (UPSTREAMS - 1) * KIB_EACH_MAX;
    let (many, many_took) = measured(&url, CHAINS, UPSTREAMS, enough).await;
    let each = (many - few) / (UPSTREAMS - 1);
    println!("1 upstream: {few} KiB, first answer after {few_took:?}");
    println!("{UPSTREAMS} upstreams: {many} KiB, {each} each; first answer after {many_took:?}");
    assert!(each <= KIB_EACH_MAX, "{each} KiB each");
}
