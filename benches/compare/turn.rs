//! One turn: a load before a contender, while the kernel counts what it spends.

use std::time::Duration;

use tokio::time::sleep;
use wellhead_e2e::until;

use crate::Bench;
use crate::case::{Case, Load};
use crate::client::{Client, Request};
use crate::closed::{Seen, h2load, wrk};
use crate::contender::{Behind, Contender, Kind};
use crate::held::{crowd, pull};
use crate::open::open;
use crate::process::{cpu_seconds, peak_kib, resident_kib};
use crate::sample::Sample;
use crate::scrape::{Scraper, sum};
use crate::trace::Trace;

const WARM_UP: Duration = Duration::from_secs(1);
/// What a process calls soon repeats. But it is slow while it is traced, and the load opens
/// its connections anew: so many for each second, that they do not weigh.
const TRACED_CONNECTIONS_A_SECOND: u32 = 64;
/// Silence before the memory of idle connections is read.
const SILENCE: Duration = Duration::from_secs(1);

/// Its counter of what the cache had.
pub(crate) const HITS: &str = "wellhead_cache_calls_total";
/// Until it knows which block is final.
const HITS_MAX: Duration = Duration::from_secs(30);

/// Asks until the answer is kept.
pub(crate) async fn wait_for_hits(contender: &Contender, body: &str) {
    let known = until(HITS_MAX, || async {
        Client::connect(contender.port, 64 * 1024).ok()?.answer(body).ok()?;
        let hits = sum(&contender.metrics, HITS, &["found=\"hit\""]).ok()?;
        (hits > 0.0).then_some(())
    });
    assert!(known.await.is_some(), "nothing is kept");
}

/// A fresh process each turn: what one turn leaves behind must not help the next.
pub(crate) async fn take_turn(
    case: Case,
    kind: Kind,
    request: &Request,
    traced: bool,
    bench: &Bench<'_>,
) -> Sample {
    let (setup, turn) = (case.setup(), bench.turn);
    let contender =
        Contender::start(kind, Behind::of(bench.upstream), setup, bench.certificate, bench.before)
            .await;
    let (pid, port) = (contender.pid, contender.port);
    let secure = setup.tls.then_some(bench.certificate);
    if setup.keeps
        && matches!(
            kind,
            Kind::Wellhead | Kind::WellheadTraced | Kind::WellheadHttp2 | Kind::WellheadBefore
        )
    {
        wait_for_hits(&contender, &request.body).await;
    }
    let first = Client::connect_to(port, secure, 64 * 1024).and_then(|mut one| one.call(request));
    if let Err(why) = &first {
        println!("  {} does not answer {} as the upstream does: {why}", kind.name(), case.name());
    }
    let before_kib = resident_kib(pid);
    let again = |length| match case.load() {
        Load::Closed { connections } => Some(wrk(port, setup.tls, request, connections, length)),
        Load::Http2 { connections, streams } => {
            let port = contender.http2_port;
            Some(h2load(port, setup.tls, request, (connections, streams), length))
        }
        Load::Pull { .. } | Load::Idle { .. } | Load::Open { .. } => None,
    };
    // Opens connections and fills caches; nothing is kept of it.
    again(WARM_UP);
    let mut sample = Sample { before_kib, ..Sample::default() };
    let before = cpu_seconds(pid);
    let scraper = setup.metrics.then(|| Scraper::start(&contender.metrics));
    let is_ours = matches!(
        kind,
        Kind::Wellhead
            | Kind::WellheadTraced
            | Kind::WellheadHttp2
            | Kind::WellheadWebSocket
            | Kind::WellheadBefore
    );
    let found = |how: &str| sum(&contender.metrics, HITS, &[how]).unwrap_or(0.0);
    let hits = || found("found=\"hit\"");
    let unsent = || hits() + found("found=\"joined\"");
    let hits_before = if setup.keeps { hits() } else { 0.0 };
    let unsent_before = if setup.calls_differ && is_ours { unsent() } else { 0.0 };
    let mut held = None;
    let seen = match case.load() {
        Load::Closed { .. } | Load::Http2 { .. } => again(turn).unwrap_or_default(),
        Load::Pull { connections, answers } => pull(port, request, connections, answers),
        Load::Open { per_second } => open(port, request, per_second, turn),
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
    if let Some(scraper) = scraper {
        sample.errors += scraper.finish();
    }
    if setup.keeps && matches!(kind, Kind::Wellhead | Kind::WellheadTraced) {
        // Also those whose answer came too late to be counted by the load.
        let hits = hits() - hits_before;
        println!("  {:.1} % of the requests were hits", hits * 100.0 / requests.max(1) as f64);
        sample.errors += requests.saturating_sub(hits as u64);
    }
    if setup.calls_differ && is_ours {
        // Each call is another one, so all have to go upstream.
        let count = unsent() - unsent_before;
        if count > 0.0 {
            println!("  {count} calls did not go upstream");
            sample.errors += count as u64;
        }
    }
    if let Load::Closed { connections } | Load::Http2 { connections, .. } = case.load()
        && traced
    {
        let trace = Trace::start(pid).await;
        let seconds = connections.div_ceil(TRACED_CONNECTIONS_A_SECOND);
        let seen = again(Duration::from_secs(seconds.into())).unwrap_or_default();
        sample.system_calls = trace.finish();
        (sample.traced_requests, sample.errors) = (seen.requests, sample.errors + seen.errors);
    }
    if let Some(mut crowd) = held {
        crowd.ask(request);
        sample.errors += crowd.seen.errors;
    }
    sample
}
