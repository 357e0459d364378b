//! The attacks of `scripts/attack`, each for a second: the caller beside them is served, memory
//! stays below the ceiling of the catalogue, descriptors come back. Nothing is said of times.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]
#![cfg(target_os = "linux")]

use tokio::time::Duration;
use wellhead_e2e::Certificate;
use wellhead_e2e::attack::{
    Attack, By, Http2Fault, Mode, Report, Scale, Upstream, named, play, wellhead,
};

const LASTS: Duration = Duration::from_secs(1);
const LASTS_EACH: Duration = Duration::from_millis(300);

/// One attack on a wellhead of its own.
async fn check(attack: &Attack, lasts: Duration) -> Report {
    let certificate = Certificate::new();
    let (hostile, well) = (Upstream::start(), Upstream::start());
    let (target, subject) = wellhead(attack, [&hostile, &well], &certificate, Scale::Short).await;
    let report = play(attack, &subject, [&hostile, &well], Scale::Short, lasts).await;
    let broken = report.broken(attack);
    let by = attack.by;
    assert!(broken.is_empty(), "{} {by:?}: {broken:#?}\n{}", attack.name, target.process.log());
    assert!(target.answers().await, "{}", target.process.log());
    report
}

macro_rules! holds_under {
    ($($test:ident: $name:literal,)*) => {
        $(#[tokio::test]
        async fn $test() {
            check(named($name).unwrap(), LASTS).await;
        })*
    };
}

holds_under! {
    slow_readers: "slow-readers",
    shut_windows: "shut-windows",
    open_streams: "open-streams",
    searches: "searches",
    searches_blocks: "searches-blocks",
    batch_bytes: "batch-bytes",
    full_bodies: "full-bodies",
    idle: "idle",
    slow_heads: "slow-heads",
    slow_bodies: "slow-bodies",
    churn: "churn",
    hang_ups: "hang-ups",
    nesting: "nesting",
    bombs: "bombs",
    smuggling: "smuggling",
    rapid_reset: "rapid-reset",
    made_reset: "made-reset",
    continuation: "continuation",
    settings: "settings",
    ping: "ping",
    priority: "priority",
    window_updates: "window-updates",
    empty_data: "empty-data",
    hpack_bomb: "hpack-bomb",
    tls_half: "tls-half",
    tls_handshakes: "tls-handshakes",
    tls_garbage: "tls-garbage",
    tls_key_updates: "tls-key-updates",
    tls_renegotiation: "tls-renegotiation",
    refused_kind: "refused-kind",
    retry_after_kind: "retry-after-kind",
    echoed_secrets: "echoed-secrets",
}

/// An upstream that misbehaves in each of these ways, beside one that is well. Each way has a
/// wellhead of its own, which meets it.
async fn check_upstream(name: &str, modes: impl IntoIterator<Item = Mode>) {
    let base = named(name).unwrap();
    for mode in modes {
        let report = check(&Attack { by: By::Upstream(mode), ..*base }, LASTS_EACH).await;
        assert!(report.hostile_calls > 0, "{mode:?} was not met");
    }
}

#[tokio::test]
async fn upstream_turns_hostile_over_http1() {
    check_upstream("upstream-cut", Mode::HTTP1).await;
}

#[tokio::test]
async fn upstream_turns_hostile_over_http2() {
    check_upstream("h2-reset", Http2Fault::ALL.map(Mode::Http2)).await;
}
