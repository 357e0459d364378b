//! What a request costs: wellhead beside nginx and HAProxy, in one run.
//!
//! Each contender stands alone on one core, as a plain pass-through; the load
//! and the upstream share the other core. They take turns in several rounds,
//! because a machine's speed drifts by more than what is compared: only ratios
//! within a round mean something. What counts is CPU time of the contender per
//! request, from `/proc`, not what the load sees.
//!
//! The comparison is unfair to wellhead, and meant to be: nginx and HAProxy do
//! not look into a call, while wellhead parses it, chooses an upstream for it
//! and judges the reply. It is the bar all the same.
//!
//! See `contender` for what is started, `measure` for how it is measured,
//! `record` for what is kept.

#![allow(clippy::print_stdout, reason = "a tool of the command line")]

mod contender;
mod measure;
mod record;

use std::time::Duration;

use contender::{Contender, Kind, UpstreamKind, start_upstream};
use measure::Sample;
use record::Record;
use wellhead_e2e::Node;

const USAGE: &str = "\
usage: make bench, or scripts/bench [--rounds N] [--seconds N] [--upstream fast|geth]
  --rounds N      how often each contender gets its turn (5)
  --seconds N     how long a turn is (10)
  --upstream U    fast: an upstream that costs next to nothing (the default);
                  geth: a real node, which then takes most of the other core";

/// Turns are bounded, however they are asked for.
const ROUNDS_MAX: u32 = 50;
const SECONDS_MAX: u32 = 120;
const STARTS: usize = 7;

struct Options {
    rounds: u32,
    seconds: u32,
    upstream: UpstreamKind,
}

fn options(arguments: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options { rounds: 5, seconds: 10, upstream: UpstreamKind::Fast };
    // `cargo bench` adds its own `--bench`.
    let mut arguments = arguments.filter(|argument| argument != "--bench");
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        match name.as_str() {
            "--rounds" => {
                options.rounds = value.parse().ok().filter(|n| (1..=ROUNDS_MAX).contains(n))?;
            }
            "--seconds" => {
                options.seconds = value.parse().ok().filter(|n| (1..=SECONDS_MAX).contains(n))?;
            }
            "--upstream" => {
                options.upstream = match value.as_str() {
                    "fast" => UpstreamKind::Fast,
                    "geth" => UpstreamKind::Geth,
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    Some(options)
}

#[tokio::main]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return;
    }
    let Some(options) = options(std::env::args().skip(1)) else {
        println!("{USAGE}");
        std::process::exit(2);
    };
    let turn = Duration::from_secs(options.seconds.into());
    let upstream = start_upstream(options.upstream).await;
    let mut record = Record::new(options.upstream.name(), turn);
    println!(
        "{} rounds of {} s, 64 connections, upstream `{}`; CPU of the proxy per request",
        options.rounds,
        options.seconds,
        options.upstream.name(),
    );
    for round in 1..=options.rounds {
        let mut baseline = None;
        for kind in Kind::ALL {
            let sample = take_turn(kind, &upstream, turn).await;
            let nginx = *baseline.get_or_insert(sample.cpu_micros_per_request());
            println!(
                "round {round}  {:<16} {:6.2} µs  {:5.2} x nginx   {:>7.0} requests/s   p50 {} µs  p99 {} µs   {} MB{}",
                kind.name(),
                sample.cpu_micros_per_request(),
                sample.cpu_micros_per_request() / nginx,
                sample.requests_per_second(),
                sample.latency_p50_micros,
                sample.latency_p99_micros,
                sample.resident_kib / 1024,
                if sample.errors == 0 {
                    String::new()
                } else {
                    format!("   {} ERRORS", sample.errors)
                },
            );
            record.add(round, kind, &sample);
        }
    }
    record.starts = first_answers(&upstream).await;
    record.summarise();
    match record.keep() {
        Ok(path) => println!("kept as {path}"),
        Err(why) => println!("not kept: {why}"),
    }
    if record.errors() > 0 {
        std::process::exit(1);
    }
}

/// A fresh process each turn: what one turn leaves behind must not help the next.
async fn take_turn(kind: Kind, upstream: &Node, turn: Duration) -> Sample {
    let contender = Contender::start(kind, upstream).await;
    measure::warm_up(contender.port);
    measure::measure(contender.pid, contender.port, turn)
}

/// From start to the first good answer, several times.
async fn first_answers(upstream: &Node) -> Vec<Duration> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        starts.push(Contender::start(Kind::Wellhead, upstream).await.first_answer_after);
    }
    starts
}
