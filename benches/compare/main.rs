//! What a request costs: wellhead beside nginx and HAProxy, in one run.
//!
//! Each contender stands alone on one core, as a plain pass-through; the load
//! and the upstream share the other core. They take turns in several rounds,
//! because a machine's speed drifts by more than what is compared: only ratios
//! within a round mean something. What counts is mostly CPU time of the contender
//! per request, from `/proc`, not what the load sees.
//!
//! The comparison is unfair to wellhead, and meant to be: nginx and HAProxy do
//! not look into a call, while wellhead parses it, chooses an upstream for it
//! and judges the reply. It is the bar all the same.
//!
//! See `case` for what is compared, `kept` for what the cache saves, `contender` for what is started, `turn` for
//! how it is measured, `record` for what is kept.

#![allow(clippy::print_stdout, reason = "a tool of the command line")]

mod case;
mod client;
mod closed;
mod config;
mod contender;
mod figure;
mod held;
mod kept;
mod machine;
mod open;
mod options;
mod process;
mod record;
mod sample;
mod scrape;
mod summary;
mod trace;
mod trace_sink;
mod turn;

use std::path::Path;
use std::time::Duration;

use case::{Case, Load};
use client::Request;
use config::Setup;
use contender::{Behind, Contender, Kind, start_upstream};
use options::{Options, usage};
use record::Record;
use wellhead_e2e::Certificate;
use wellhead_e2e::Node;

const STARTS: usize = 7;

// One thread, the first: loads run on it and on threads that it starts.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        print!("{}", usage());
        return;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            print!("{why}\n\n{}", usage());
            std::process::exit(2);
        }
    };
    let upstream = start_upstream(options.upstream).await;
    let certificate = Certificate::new();
    let mut record = Record::new(options.upstream.name(), options.turn);
    let mut requests = Vec::new();
    for case in &options.cases {
        let body = case.body(&upstream).await;
        let number_at = case.number_at(&body);
        let request = Request::new(body, number_at, upstream.port).expect("the upstream answers");
        requests.push((*case, request));
    }
    let (rounds, turn) = (options.rounds, options.turn);
    let (before, only) = (options.before.as_deref(), options.only.as_slice());
    let name = options.upstream.name();
    println!("{rounds} rounds, turns of {} s, upstream `{name}`", turn.as_secs());
    for round in 1..=rounds {
        for (case, request) in &requests {
            println!("round {round}, {}: {}", case.name(), case.about());
            let bench =
                Bench { upstream: &upstream, certificate: &certificate, turn, before, only };
            take_turns(*case, request, round, &bench, &mut record).await;
        }
    }
    let mut broken = 0;
    for part in &options.kept {
        let bench = Bench { upstream: &upstream, certificate: &certificate, turn, before, only };
        let (seen, errors) = part.run(rounds, &bench).await;
        record.kept.insert(part.name().to_owned(), seen);
        broken += errors;
    }
    for kind in [Kind::Nginx, Kind::HaProxy, Kind::Wellhead] {
        let starts = first_answers(kind, &upstream, &certificate).await;
        record.starts.push((kind, starts));
    }
    summary::print(&record, &options.cases);
    match record.keep() {
        Ok(path) => println!("kept as {path}"),
        Err(why) => println!("not kept: {why}"),
    }
    if record.errors() + broken > 0 {
        std::process::exit(1);
    }
}

/// What all turns have in common.
pub(crate) struct Bench<'a> {
    pub(crate) upstream: &'a Node,
    pub(crate) certificate: &'a Certificate,
    pub(crate) turn: Duration,
    pub(crate) before: Option<&'a Path>,
    pub(crate) only: &'a [Kind],
}

/// Each contender in turn. Where latency is compared, the bare upstream goes first.
async fn take_turns(
    case: Case,
    request: &Request,
    round: u32,
    bench: &Bench<'_>,
    record: &mut Record,
) {
    let direct: &[Kind] =
        if matches!(case.load(), Load::Open { .. }) { &[Kind::Direct] } else { &[] };
    let before: &[Kind] = if bench.before.is_some() { &[Kind::WellheadBefore] } else { &[] };
    let mut kinds: Vec<Kind> = case.kinds().iter().chain(before).copied().collect();
    if !bench.only.is_empty() {
        kinds.retain(|kind| bench.only.contains(kind));
        // What is always first, or last, may be so at a price.
        if round.is_multiple_of(2) {
            kinds.reverse();
        }
    }
    for kind in direct.iter().chain(&kinds) {
        let sample = turn::take_turn(case, *kind, request, round == 1, bench).await;
        record.add(round, case, *kind, sample);
        summary::print_turn(record, round, case, *kind);
    }
}

/// From start to the first good answer, several times.
async fn first_answers(kind: Kind, upstream: &Node, certificate: &Certificate) -> Vec<Duration> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let upstream = Behind::of(upstream);
        let started = Contender::start(kind, upstream, Setup::default(), certificate, None).await;
        starts.push(started.first_answer_after);
    }
    starts
}
