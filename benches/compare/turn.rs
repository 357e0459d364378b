//! One turn: a load before a contender, while the kernel counts what it spends.

use std::time::Duration;

use tokio::time::sleep;
use wellhead_e2e::Node;

use crate::case::{Case, Load};
use crate::client::{Client, Request};
use crate::closed::{Seen, h2load, wrk};
use crate::config::Setup;
use crate::contender::{Contender, Kind};
use crate::held::{crowd, pull};
use crate::open::open;
use crate::process::{cpu_seconds, peak_kib, resident_kib};
use crate::sample::Sample;
use crate::trace::Trace;

const WARM_UP: Duration = Duration::from_secs(1);
/// A traced process is slow, and what it calls soon repeats.
const TRACED_MAX: Duration = Duration::from_secs(2);
/// Silence before the memory of idle connections is read.
const SILENCE: Duration = Duration::from_secs(1);

/// A fresh process each turn: what one turn leaves behind must not help the next.
pub(crate) async fn take_turn(
    case: Case,
    kind: Kind,
    upstream: &Node,
    request: &Request,
    turn: Duration,
) -> Sample {
    let setup = Setup {
        log: case == Case::Log,
        many_connections: matches!(case.load(), Load::Idle { .. }),
    };
    let contender = Contender::start(kind, upstream, setup).await;
    let (pid, port) = (contender.pid, contender.port);
    let first = Client::connect(port, 64 * 1024).and_then(|mut one| one.call(request));
    if let Err(why) = &first {
        println!("  {} does not answer {} as the upstream does: {why}", kind.name(), case.name());
    }
    let before_kib = resident_kib(pid);
    // Opens connections and fills caches; nothing is kept of it.
    match case.load() {
        Load::Closed { connections } | Load::Traced { connections } => {
            wrk(port, request, connections, WARM_UP);
        }
        Load::Http2 { connections, streams } => {
            h2load(contender.http2_port, request, (connections, streams), WARM_UP);
        }
        Load::Pull { .. } | Load::Idle { .. } | Load::Open { .. } => {}
    }
    let mut sample = Sample { before_kib, ..Sample::default() };
    let before = cpu_seconds(pid);
    let mut held = None;
    let seen = match case.load() {
        Load::Closed { connections } => wrk(port, request, connections, turn),
        Load::Http2 { connections, streams } => {
            h2load(contender.http2_port, request, (connections, streams), turn)
        }
        Load::Pull { connections, answers } => pull(port, request, connections, answers),
        Load::Open { per_second } => open(port, request, per_second, turn),
        Load::Traced { connections } => {
            let trace = Trace::start(pid).await;
            let seen = wrk(port, request, connections, turn.min(TRACED_MAX));
            sample.system_calls = trace.finish();
            seen
        }
        Load::Idle { connections } => {
            let mut crowd = crowd(port, request, connections);
            sleep(SILENCE).await;
            let seen = std::mem::take(&mut crowd.seen);
            held = Some(crowd);
            seen
        }
    };
    let after = cpu_seconds(pid);
    sample.user_seconds = after.0 - before.0;
    sample.system_seconds = after.1 - before.1;
    sample.resident_kib = resident_kib(pid);
    sample.peak_kib = peak_kib(pid);
    let Seen { requests, errors, seconds, latency } = seen;
    (sample.requests, sample.seconds, sample.latency) = (requests, seconds, latency);
    sample.errors = errors + u64::from(first.is_err());
    if let Some(mut crowd) = held {
        crowd.ask(request);
        sample.errors += crowd.seen.errors;
    }
    sample
}
