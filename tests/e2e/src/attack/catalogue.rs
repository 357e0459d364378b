//! Every attack, with the arithmetic of what it may cost.
//!
//! Ceilings of memory begin at [`PROCESS_MIB`] and add what the named bounds let an attack hold.

use super::hostile::{Http2Fault, Mode};
use super::{Attack, By, Place, clients, http2, refusal, tls};

/// Two workers, their pools and tables, and what the allocator keeps: 30 MiB when quiet.
const PROCESS_MIB: u64 = 48;
/// `limits.answers_total_bytes`: all large answers together.
const ANSWERS_MIB: u64 = 256;
/// `limits.bodies_total_bytes`: all request bodies together, the room that they grow into, and what the
/// allocator still keeps of that which they grew out of: on a busy machine 18 MiB more than on a quiet one.
const BODIES_MIB: u64 = 256 + 64 + 32;
/// What 10,000 connections that only wait take, at 8 KiB each.
const IDLE_MIB: u64 = 80;
/// 2,000 connections with a head of 16 KiB each.
const HEADS_MIB: u64 = 32;
/// 16,384 streams (`limits.in_flight`) at 4 KiB each: the head of a request, HTTP/2's own.
const STREAMS_MIB: u64 = 64;
/// As many, with calls that wait for their turn and answers that wait for their client (a quarter
/// of `limits.in_flight` more), at 13 KiB each: calls are asked for quicker than they are answered.
const WAITING_MIB: u64 = 260;
/// Eight connections that flood, each with its buffers and 256 streams.
const FLOOD_MIB: u64 = 32;
/// 2,000 handshakes under way, 24 KiB each.
const HANDSHAKES_MIB: u64 = 48;
/// Four batches: each holds `limits.batch_bytes` (24 MiB), and the allocator keeps for a second what
/// those before it held, at the pace of this attack 40 MiB for each.
const BATCHES_MIB: u64 = 4 * (24 + 40);
/// One batch that is searched for in parts.
const SEARCHES_MIB: u64 = 80;

/// `limits.upstream_calls`: calls at the upstream for one request, a batch being one.
const SEARCH_CALLS_MAX: f64 = 5_000.0;

const fn clients(name: &'static str, about: &'static str, more_mib: u64, by: By) -> Attack {
    Attack {
        name,
        about,
        place: Place::Plain,
        by,
        ceiling_mib: PROCESS_MIB + more_mib,
        calls_per_call_max: None,
        beside: true,
    }
}

const fn over_tls(name: &'static str, about: &'static str, by: By) -> Attack {
    Attack { place: Place::Tls, ..clients(name, about, HANDSHAKES_MIB, by) }
}

const fn upstream(name: &'static str, about: &'static str, mode: Mode) -> Attack {
    Attack {
        place: Place::Two,
        beside: false,
        ..clients(name, about, ANSWERS_MIB, By::Upstream(mode))
    }
}

const fn http2_upstream(name: &'static str, about: &'static str, fault: Http2Fault) -> Attack {
    Attack { place: Place::TwoHttp2, ..upstream(name, about, Mode::Http2(fault)) }
}

macro_rules! by {
    ($run:path) => {
        By::Clients(|ground| Box::pin($run(ground)))
    };
    ($mode:expr, $run:path) => {
        By::Both($mode, |ground| Box::pin($run(ground)))
    };
}

/// All attacks, in the order in which they are played.
pub const ATTACKS: &[Attack] = &[
    clients(
        "slow-readers",
        "70 connections read 20 MB each at 400 B/s",
        ANSWERS_MIB,
        by!(clients::slow_readers),
    ),
    clients(
        "shut-windows",
        "70 HTTP/2 connections with a window of 0 make 256 calls each",
        WAITING_MIB,
        by!(http2::shut_windows),
    ),
    clients(
        "open-streams",
        "40 HTTP/2 connections begin 256 requests each and send no body",
        STREAMS_MIB,
        by!(http2::open_streams),
    ),
    Attack {
        calls_per_call_max: Some(SEARCH_CALLS_MAX),
        beside: false,
        ..clients(
            "searches",
            "a batch of 1,000 searches that find more than the upstream returns",
            SEARCHES_MIB,
            by!(clients::amplification),
        )
    },
    Attack {
        calls_per_call_max: Some(SEARCH_CALLS_MAX),
        beside: false,
        ..clients(
            "searches-blocks",
            "a batch of 1,000 searches over more blocks than the upstream allows",
            SEARCHES_MIB,
            by!(Mode::MaxBlocks, clients::amplification),
        )
    },
    clients(
        "batch-bytes",
        "4 batches of 85 KB each ask for 105 MB, again and again",
        BATCHES_MIB,
        by!(clients::batch_bytes),
    ),
    clients(
        "full-bodies",
        "52 bodies of 5 MiB, each without its last byte",
        BODIES_MIB,
        by!(clients::full_bodies),
    ),
    Attack {
        place: Place::FewConnections,
        ..clients("idle", "10,000 connections that say nothing", IDLE_MIB, by!(clients::idle))
    },
    clients(
        "slow-heads",
        "2,000 heads of which a byte comes each second",
        HEADS_MIB,
        by!(clients::slow_heads),
    ),
    clients(
        "slow-bodies",
        "2,000 bodies of which a byte comes each half second",
        HEADS_MIB,
        by!(clients::slow_bodies),
    ),
    clients(
        "churn",
        "64 clients open and drop connections as quickly as it goes",
        FLOOD_MIB,
        by!(clients::churn),
    ),
    clients(
        "hang-ups",
        "64 clients vanish at each of seven stages of a call",
        ANSWERS_MIB,
        by!(clients::hang_ups),
    ),
    clients("nesting", "bodies of a million brackets", FLOOD_MIB, by!(clients::nesting)),
    clients(
        "bombs",
        "bodies of gzip and zstd that inflate to 512 MB",
        BODIES_MIB,
        by!(clients::bombs),
    ),
    clients(
        "smuggling",
        "32 requests that two readers may frame differently, each before another request",
        FLOOD_MIB,
        by!(clients::smuggling),
    ),
    clients(
        "rapid-reset",
        "whole calls over HTTP/2 that are reset at once",
        FLOOD_MIB,
        by!(http2::rapid_reset),
    ),
    clients(
        "made-reset",
        "streams of HTTP/2 that the server itself has to reset",
        FLOOD_MIB,
        by!(http2::made_reset),
    ),
    clients(
        "continuation",
        "field blocks of HTTP/2 that do not end",
        FLOOD_MIB,
        by!(http2::continuation),
    ),
    clients("settings", "SETTINGS without end", FLOOD_MIB, by!(http2::settings_flood)),
    clients("ping", "PING without end", FLOOD_MIB, by!(http2::ping_flood)),
    clients("priority", "PRIORITY without end", FLOOD_MIB, by!(http2::priority_flood)),
    clients(
        "window-updates",
        "WINDOW_UPDATE of a byte, without end",
        FLOOD_MIB,
        by!(http2::window_updates),
    ),
    clients("empty-data", "empty DATA without end", FLOOD_MIB, by!(http2::empty_data)),
    clients(
        "hpack-bomb",
        "field blocks of 12 KB that stand for 48 MB",
        FLOOD_MIB,
        by!(http2::hpack_bomb),
    ),
    over_tls(
        "tls-half",
        "2,000 TLS handshakes from 150 addresses that do not go on",
        by!(tls::half_handshakes),
    ),
    over_tls(
        "tls-handshakes",
        "16 clients make one TLS handshake after the other",
        by!(tls::handshakes),
    ),
    over_tls("tls-garbage", "64 clients send what is no handshake", by!(tls::garbage)),
    over_tls("tls-key-updates", "KeyUpdate of TLS 1.3 without end", by!(tls::key_updates)),
    over_tls(
        "tls-renegotiation",
        "8 clients ask for another handshake of TLS 1.2 within a connection",
        by!(tls::renegotiation),
    ),
    Attack {
        beside: false,
        ..clients(
            "refused-kind",
            "the only upstream refuses one kind of call: rate limit exceeded",
            FLOOD_MIB,
            by!(Mode::RefuseOneKind, refusal::refused_kind),
        )
    },
    Attack {
        beside: false,
        ..clients(
            "retry-after-kind",
            "the only upstream answers one kind of call with a Retry-After of ten years",
            FLOOD_MIB,
            by!(Mode::RetryAfterOneKind, refusal::refused_kind),
        )
    },
    Attack {
        place: Place::Secrets,
        beside: false,
        ..clients(
            "echoed-secrets",
            "errors of the upstream quote the request, with the secrets in it",
            FLOOD_MIB,
            by!(Mode::EchoHead, refusal::echoed_secrets),
        )
    },
    upstream(
        "upstream-retry-after",
        "one of two upstreams answers all with a Retry-After of ten years",
        Mode::RetryAfterYears,
    ),
    upstream("upstream-endless-body", "its bodies do not end", Mode::EndlessBody),
    upstream("upstream-endless-head", "its heads do not end", Mode::EndlessHead),
    upstream("upstream-cut", "its bodies end in the middle", Mode::Cut),
    upstream("upstream-wrong-id", "its answers bear another id", Mode::WrongId),
    upstream("upstream-twice", "it sends each answer twice", Mode::Twice),
    upstream("upstream-garbage", "it does not speak HTTP", Mode::Garbage),
    upstream("upstream-gzip", "its answers are bombs of gzip", Mode::GzipBomb),
    upstream("upstream-zstd", "its answers are bombs of zstd", Mode::ZstdBomb),
    upstream("upstream-nested", "its results are four million brackets", Mode::Nested),
    upstream("upstream-drip", "its answers come at a byte a second", Mode::Drip),
    upstream("upstream-silent", "it takes calls and says nothing", Mode::Silent),
    http2_upstream("h2-reset", "it resets each stream", Http2Fault::ResetEach),
    http2_upstream("h2-refuse", "it refuses each stream", Http2Fault::RefuseEach),
    http2_upstream("h2-goaway", "it sends GOAWAY to each request", Http2Fault::GoAwayEach),
    http2_upstream("h2-settings", "SETTINGS without end", Http2Fault::SettingsFlood),
    http2_upstream("h2-ping", "PING without end", Http2Fault::PingFlood),
    http2_upstream("h2-continuation", "fields without end", Http2Fault::ContinuationFlood),
    http2_upstream("h2-hpack", "fields of 48 MB in 16 KB", Http2Fault::HpackBomb),
    http2_upstream("h2-table", "the table of fields resized for ever", Http2Fault::TableSizes),
    http2_upstream("h2-window-zero", "windows of zero", Http2Fault::WindowZero),
    http2_upstream("h2-window-over", "windows that overflow", Http2Fault::WindowOverflow),
    http2_upstream("h2-data-beyond", "data beyond the window", Http2Fault::DataBeyondWindow),
    http2_upstream("h2-data-closed", "data on closed streams", Http2Fault::DataOnClosed),
    http2_upstream("h2-empty-data", "empty DATA without end", Http2Fault::EmptyData),
    http2_upstream("h2-push", "PUSH_PROMISE", Http2Fault::PushPromise),
    http2_upstream("h2-no-streams", "no more streams allowed", Http2Fault::NoStreams),
    http2_upstream("h2-long-frame", "a frame of a megabyte", Http2Fault::LongFrame),
    http2_upstream("h2-garbage", "bytes that are no frames", Http2Fault::Garbage),
    http2_upstream("h2-interim", "interim responses without end", Http2Fault::Interim),
    http2_upstream("h2-bad-fields", "fields that HTTP/2 forbids", Http2Fault::BadFields),
    http2_upstream("h2-silent", "no answers", Http2Fault::Silent),
];
