//! Labels of the families of sockets, callers and the process, and what each family costs in series: for
//! `docs/metrics.md`.

use wellhead_access::{KeyReturn, QuotaLimit, SubjectKind};
use wellhead_net::{CloseReason, Protocol};
use wellhead_proxy::TraceLoss;
use wellhead_server::{ClientProtocol, HandshakeFailure, HttpRefusal, ProxyFailure, WsEnd};
use wellhead_telemetry::family::{
    CHAIN, FamilyFacts, LabelFacts, PERIOD, UPSTREAM, family, label, single, words,
};
use wellhead_telemetry::label_of_words;

use crate::renew::ListenerTls;

const CLIENT_PROTOCOL: LabelFacts = words("protocol", || {
    [ClientProtocol::Http1, ClientProtocol::Http2, ClientProtocol::WebSocket]
        .map(ClientProtocol::word)
        .to_vec()
});
const PROTOCOL: LabelFacts = label_of_words!("protocol", Protocol);
const SOCKET: LabelFacts = words("protocol", || vec![Protocol::Ws.word()]);
const DROP_REASON: LabelFacts = words("reason", || {
    vec!["idle", "slow_head", "slow_reader", "hoarder", "flood", "displaced", "bad_http", "drain"]
});
const LEARNT_BY: LabelFacts =
    label("by", "`announced`, `fatal`, or how the limit was learnt: see [limits.md](limits.md)");
const MESSAGE_RESULT: LabelFacts =
    words("result", || vec!["published", "received", "dropped", "malformed"]);
const ISSUER: LabelFacts = label("issuer", "the issuers of `access.jwt` whose keys are fetched");
const TENANT: LabelFacts =
    label("tenant", "the 500 tenants with a quota that spent most this month");

const STUDIED: &str = "upstreams with `study`";

/// The families of this crate; those of the proxy are in [`wellhead_proxy::FAMILIES`].
pub(super) const FAMILIES: &[FamilyFacts] = &[
    family("wellhead_client_connections", &[CLIENT_PROTOCOL], "protocols"),
    family("wellhead_client_connections_opened", &[CLIENT_PROTOCOL], "protocols"),
    family("wellhead_websocket_closed", &[label_of_words!("by", WsEnd)], "ends"),
    family("wellhead_client_connections_dropped", &[DROP_REASON], "reasons"),
    family(
        "wellhead_http_requests",
        &[label("status", "the HTTP statuses that wellhead sends, 499, and `other`")],
        "statuses",
    ),
    family("wellhead_http_refused", &[label_of_words!("reason", HttpRefusal)], "reasons"),
    family(
        "wellhead_tls_handshakes_failed",
        &[label_of_words!("reason", HandshakeFailure)],
        "reasons",
    ),
    family("wellhead_proxy_headers_failed", &[label_of_words!("reason", ProxyFailure)], "reasons"),
    single("wellhead_tls_handshakes"),
    single("wellhead_accept_failures"),
    single("wellhead_answers_compressed"),
    single("wellhead_http_requests_open"),
    single("wellhead_answers_waiting"),
    single("wellhead_answers_waiting_bytes"),
    family(
        "wellhead_tls_expires_timestamp_seconds",
        &[
            words("listener", || vec![ListenerTls::CLIENTS, ListenerTls::ADMIN]),
            words("file", || vec!["certificate", "crl"]),
        ],
        "4",
    ),
    family("wellhead_state_writes", &[words("result", || vec!["written", "failed"])], "2"),
    single("wellhead_keys"),
    single("wellhead_keys_stale"),
    family("wellhead_keys_returned", &[label_of_words!("reason", KeyReturn)], "3"),
    family(
        "wellhead_caller_refusals",
        &[label_of_words!("subject", SubjectKind), label_of_words!("limit", QuotaLimit)],
        "subjects × limits met",
    ),
    family("wellhead_tenant_credits", &[TENANT, PERIOD], "tenants with a quota × 2, at most 1,000"),
    family("wellhead_tenant_credits_limit", &[TENANT, PERIOD], "caps of these tenants"),
    family("wellhead_jwks_age_seconds", &[ISSUER], "issuers"),
    family(
        "wellhead_jwks_fetches",
        &[ISSUER, words("result", || vec!["fetched", "failed", "invalid"])],
        "issuers × results",
    ),
    family("wellhead_upstream_connections", &[CHAIN, UPSTREAM, PROTOCOL], "upstreams × protocols"),
    family(
        "wellhead_upstream_connections_opened",
        &[CHAIN, UPSTREAM, PROTOCOL],
        "upstreams × protocols",
    ),
    family(
        "wellhead_upstream_connections_closed",
        &[CHAIN, UPSTREAM, label_of_words!("reason", CloseReason)],
        "upstreams × reasons seen",
    ),
    family("wellhead_upstream_socket_calls", &[CHAIN, UPSTREAM, SOCKET], "upstreams"),
    family("wellhead_upstream_socket_unclaimed", &[CHAIN, UPSTREAM, SOCKET], "upstreams"),
    family("wellhead_upstream_streams_max", &[CHAIN, UPSTREAM, LEARNT_BY], "upstreams × sources"),
    family(
        "wellhead_upstream_connection_bounds",
        &[CHAIN, UPSTREAM, words("of", || vec!["requests", "idle_ms"])],
        "upstreams × 2",
    ),
    family("wellhead_upstream_streams_left_open", &[CHAIN, UPSTREAM], "upstreams"),
    family("wellhead_study_rate_limit_calls_per_second", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_burst_calls", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_probed_timestamp_seconds", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_budget_left_calls", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_rounds", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_studies", &[CHAIN, UPSTREAM], STUDIED),
    family("wellhead_study_limit_changes", &[CHAIN, UPSTREAM], STUDIED),
    single("wellhead_usage_rows_open"),
    single("wellhead_usage_folded_calls"),
    single("wellhead_traces_sent"),
    family("wellhead_traces_dropped", &[label_of_words!("reason", TraceLoss)], "4"),
    family(
        "wellhead_usage_outlets",
        &[
            words("outlet", || vec!["file", "push", "webhook", "push_and_webhook"]),
            words("result", || vec!["written", "dropped", "failed_attempts"]),
        ],
        "8",
    ),
    single("wellhead_shared_limits_away"),
    single("wellhead_shared_limits_replicas"),
    single("wellhead_shared_limits_served"),
    single("wellhead_shared_limits_departures"),
    single("wellhead_shared_limits_alone"),
    family("wellhead_shared_limits_asks", &[words("result", || vec!["granted", "refused"])], "2"),
    family("wellhead_shared_limits_rounds", &[words("result", || vec!["answered", "failed"])], "2"),
    family("wellhead_shared_pauses", &[MESSAGE_RESULT], "4"),
    single("wellhead_replicas"),
    family("wellhead_replica_messages", &[MESSAGE_RESULT], "4"),
    family("wellhead_worker_stuck", &[label("worker", "the worker threads, from 0")], "workers"),
    family(
        "wellhead_build_info",
        &[
            label("version", "the version of wellhead"),
            label("os", "the operating system that it was built for"),
            label("arch", "the processor that it was built for"),
        ],
        "1",
    ),
    single("process_resident_memory_bytes"),
    single("process_virtual_memory_bytes"),
    single("process_open_fds"),
    single("process_max_fds"),
    single("process_threads"),
    single("process_start_time_seconds"),
    single("process_cpu_seconds"),
    single("wellhead_config_last_reload_successful"),
    single("wellhead_config_last_reload_success_timestamp_seconds"),
    single("wellhead_config_needs_restart"),
    family("wellhead_config_reloads", &[words("result", || vec!["applied", "failed"])], "results"),
];
