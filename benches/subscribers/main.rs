//! What subscribers cost: wellhead beside a loop that only writes, nginx as a tunnel, and geth itself, in one run.
//!
//! Each contender stands on core 1, all else on core 0. A head is made at a geth; what counts is the CPU time of
//! the contender for each notification, from `/proc`, and when the notification arrives at some of the
//! subscribers, evenly spread. The others are read only between two heads: ten thousand clients on one core
//! would be the slower half. On the loopback the kernel charges the receiving half to the sender, of every
//! contender alike.

#![allow(clippy::print_stdout, reason = "a tool of the command line")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod calls;
mod crowd;
mod fan_out;
mod options;
#[allow(dead_code, reason = "shared with `compare`, which needs more of it")]
#[path = "../compare/process.rs"]
mod process;
mod raw;
mod servers;
mod thread_times;

use std::time::Duration;

use calls::{Protocol, call_costs};
use crowd::Crowd;
use fan_out::{BesideFloor, FanOut, HeadMaker, Spread};
use options::Options;
use process::resident_kib;
use raw::Floor;
use wellhead_e2e::Certificate;

/// Heads that are told before the first that counts.
const WARM_HEADS: usize = 3;
/// Heads after which a client that does not read has filled what the kernel takes for it.
const STALL_HEADS: usize = 60;
/// One subscriber of this many stalls.
const STALLED_OF: usize = 10;
/// nginx needs two descriptors for each, and a process has few more than that.
const TUNNELLED_MAX: usize = 9_000;
/// Of the loop of writes, for which the subscribers of the server leave descriptors. A write costs as much with 3,000.
const WRITTEN_MAX: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(of_writer) = raw::WriterArguments::of(&arguments) {
        return raw::write_for_ever(of_writer);
    }
    let Some(options) = Options::parse(&arguments) else {
        print!("{}", Options::usage());
        return;
    };
    let Options { subscribers, heads, rounds } = options;
    let mut maker = HeadMaker::start().await;
    println!("{subscribers} subscribers to newHeads, {heads} heads a turn, {rounds} rounds");

    let certificate = Certificate::new();
    memory(&maker, subscribers, None).await;
    memory(&maker, subscribers, Some(&certificate)).await;
    for round in 1..=rounds {
        println!("round {round}");
        let mut floor = Floor::start(subscribers.min(WRITTEN_MAX)).await;
        let told = |name: &str, fan_out: &FanOut| {
            let of_floor = fan_out.beside_floor.map_or_else(String::new, |beside| {
                let BesideFloor { floor_micros, ratio } = beside;
                format!(" ({ratio:.2} of a loop of writes, {floor_micros:.2} µs)")
            });
            println!(
                "  {name:<22} {:6.2} µs of CPU a notification{of_floor}, the last {:.0} ms after the first, \
                 p99 {:.0} ms",
                fan_out.cpu_micros,
                fan_out.last.as_secs_f64() * 1e3,
                fan_out.p99.as_secs_f64() * 1e3
            );
        };
        let wellhead = servers::wellhead(&maker, None).await;
        let mut crowd = Crowd::subscribe(wellhead.port, subscribers, None).await;
        maker.make(&mut crowd, WARM_HEADS).await;
        let pid = wellhead.pid();
        let fan_out =
            fan_out::measure(&mut maker, &mut crowd, pid, heads, None, Some(&mut floor)).await;
        told("wellhead", &fan_out);
        let beside =
            fan_out::measure(&mut maker, &mut crowd, pid, heads, Some(wellhead.port), None).await;
        if let Some(Spread { idle, busy }) = beside.calls {
            let millis = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "    a plain call beside it: p99 {:.2} ms, {:.2} ms without a head",
                millis(busy),
                millis(idle)
            );
        }
        drop(crowd);
        drop(wellhead);
        stalled(&mut maker, subscribers, heads, &fan_out).await;
        let nginx = servers::nginx(&maker).await;
        let mut crowd = Crowd::subscribe(nginx.port, subscribers.min(TUNNELLED_MAX), None).await;
        maker.make(&mut crowd, WARM_HEADS).await;
        let pid = nginx.pid();
        let fan_out =
            fan_out::measure(&mut maker, &mut crowd, pid, heads, None, Some(&mut floor)).await;
        told("nginx before geth", &fan_out);
        drop((crowd, nginx));
        let mut crowd = Crowd::subscribe(maker.ws_port(), subscribers, None).await;
        maker.make(&mut crowd, WARM_HEADS).await;
        let geth = maker.pid();
        let fan_out =
            fan_out::measure(&mut maker, &mut crowd, geth, heads, None, Some(&mut floor)).await;
        told("geth", &fan_out);
        drop((crowd, floor));
        let wellhead = servers::wellhead(&maker, None).await;
        for local in [true, false] {
            let http = call_costs(wellhead.port, wellhead.pid(), Protocol::Http, local);
            let websocket = call_costs(wellhead.port, wellhead.pid(), Protocol::WebSocket, local);
            println!(
                "  {:<22} {http:6.2} µs of CPU over HTTP/1.1, {websocket:.2} over WebSocket: {:.3}",
                if local { "a call answered here" } else { "a call to the upstream" },
                websocket / http
            );
        }
    }
}

/// What subscribers hold in the process of wellhead.
async fn memory(maker: &HeadMaker, subscribers: usize, certificate: Option<&Certificate>) {
    let wellhead = servers::wellhead(maker, certificate).await;
    let before = resident_kib(wellhead.pid());
    let crowd = Crowd::subscribe(wellhead.port, subscribers, certificate).await;
    let held = resident_kib(wellhead.pid()).saturating_sub(before);
    let name = if certificate.is_some() { "TLS" } else { "plain" };
    println!("{name}: {:.2} KiB a subscribed connection", held as f64 / crowd.len() as f64);
}

/// The others' notifications while one of ten subscribers does not read.
async fn stalled(maker: &mut HeadMaker, subscribers: usize, heads: usize, alone: &FanOut) {
    let wellhead = servers::wellhead(maker, None).await;
    let stalled = Crowd::that_stall(wellhead.port, subscribers / STALLED_OF).await;
    let mut crowd =
        Crowd::subscribe(wellhead.port, subscribers - subscribers / STALLED_OF, None).await;
    maker.make(&mut crowd, STALL_HEADS).await;
    let beside = fan_out::measure(maker, &mut crowd, wellhead.pid(), heads, None, None).await;
    println!(
        "    with {} that do not read: the others' p99 {:.0} ms, {:.2} of what it was",
        stalled.len(),
        beside.p99.as_secs_f64() * 1e3,
        beside.p99.as_secs_f64() / alone.p99.as_secs_f64()
    );
}
