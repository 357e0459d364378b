//! Labels of the families of this crate, and what each family costs in series: for `docs/metrics.md`.

use wellhead_cache::Reason as NotKept;
use wellhead_eth::CostClass;
use wellhead_telemetry::family::{
    CHAIN, FamilyFacts, LabelFacts, PERIOD, UPSTREAM, family, label, single, words,
};
use wellhead_telemetry::label_of_words;
use wellhead_transport::Shortage;
use wellhead_upstream::{Bound, Condition, VerdictClass};
use wellhead_watch::CallReason;

use crate::state::counts::{CacheResult, CallOutcome};
use crate::state::subscriptions::KindName;
use crate::state::verify::InspectionOutcome;

const METHOD: LabelFacts =
    label("method", "the methods of [methods.md](methods.md), `*` for others");
const TIER: LabelFacts = words("tier", || vec!["disk", "redis"]);

const fn of_chain(name: &'static str) -> FamilyFacts {
    family(name, &[CHAIN], "chains")
}

const fn of_upstream(name: &'static str) -> FamilyFacts {
    family(name, &[CHAIN, UPSTREAM], "upstreams")
}

/// The families that [`super::register`] adds.
pub const FAMILIES: &[FamilyFacts] = &[
    single("wellhead_http_request_duration_seconds"),
    family(
        "wellhead_log_lines",
        &[
            words("outcome", || vec!["ok", "failed"]),
            words("result", || vec!["written", "left_out"]),
        ],
        "4",
    ),
    single("wellhead_answers_held_bytes"),
    single("wellhead_answers_held_peak_bytes"),
    single("wellhead_answers_bytes_max"),
    family("wellhead_answers_without_room", &[label_of_words!("became", Shortage)], "outcomes"),
    family(
        "wellhead_cache_calls",
        &[CHAIN, label_of_words!("found", CacheResult)],
        "chains × results",
    ),
    of_chain("wellhead_cache_saved_credits"),
    family(
        "wellhead_cache_not_kept",
        &[words("reason", || {
            let refused = NotKept::ALL.iter().filter(|it| !it.is_kept());
            refused.map(|it| it.word()).collect()
        })],
        "reasons",
    ),
    single("wellhead_cache_stored"),
    single("wellhead_cache_evicted"),
    single("wellhead_cache_orphaned"),
    single("wellhead_cache_entries"),
    single("wellhead_cache_bytes"),
    single("wellhead_cache_bytes_max"),
    family(
        "wellhead_cache_tier_gets",
        &[TIER, words("result", || vec!["hit", "miss", "late", "busy", "down", "error"])],
        "tiers × results",
    ),
    family(
        "wellhead_cache_tier_puts",
        &[TIER, words("result", || vec!["written", "refused", "dropped"])],
        "tiers × results",
    ),
    family("wellhead_cache_tier_damaged", &[TIER], "tiers"),
    family("wellhead_cache_tier_up", &[TIER], "tiers"),
    family("wellhead_cache_tier_bytes", &[TIER], "tiers"),
    family(
        "wellhead_calls",
        &[CHAIN, METHOD, label_of_words!("outcome", CallOutcome)],
        "chains × methods called × outcomes",
    ),
    family(
        "wellhead_call_duration_seconds",
        &[CHAIN, label_of_words!("class", CostClass)],
        "chains × classes called",
    ),
    family(
        "wellhead_attempts",
        &[CHAIN, UPSTREAM, label_of_words!("verdict", VerdictClass)],
        "upstreams × verdicts seen",
    ),
    of_upstream("wellhead_attempts_abandoned"),
    family("wellhead_attempt_duration_seconds", &[CHAIN, UPSTREAM], "upstreams called"),
    of_chain("wellhead_logs_doubted"),
    of_chain("wellhead_logs_unconfirmed"),
    of_upstream("wellhead_upstream_missed_logs"),
    of_upstream("wellhead_upstream_head_block"),
    of_upstream("wellhead_upstream_lag_blocks"),
    of_upstream("wellhead_upstream_in_flight"),
    family(
        "wellhead_upstream_condition",
        &[CHAIN, UPSTREAM, label_of_words!("condition", Condition)],
        "upstreams",
    ),
    family(
        "wellhead_chain_block",
        &[CHAIN, words("tag", || vec!["latest", "safe", "finalized"])],
        "chains × tags",
    ),
    of_chain("wellhead_chain_served"),
    of_chain("wellhead_chain_head_age_seconds"),
    of_chain("wellhead_chain_block_time_seconds"),
    of_chain("wellhead_chain_reorgs"),
    of_chain("wellhead_chain_reorg_depth_blocks"),
    of_upstream("wellhead_upstream_astray"),
    family(
        "wellhead_unknown_errors",
        &[
            CHAIN,
            UPSTREAM,
            label("code", "the JSON-RPC codes of these errors, `other` for those beyond a bound"),
        ],
        "upstreams × codes seen",
    ),
    family(
        "wellhead_quorum_dissents",
        &[CHAIN, UPSTREAM, words("block", || vec!["final", "open"])],
        "upstreams × 2",
    ),
    family(
        "wellhead_verify",
        &[CHAIN, METHOD, label_of_words!("finding", InspectionOutcome)],
        "chains × methods checked × findings",
    ),
    family(
        "wellhead_verify_void",
        &[CHAIN, UPSTREAM, METHOD, label("check", "the checks of [verify.md](verify.md)")],
        "upstreams × methods × checks, as far as found",
    ),
    of_upstream("wellhead_upstream_credits"),
    family(
        "wellhead_upstream_held",
        &[CHAIN, UPSTREAM, label_of_words!("bound", Bound)],
        "upstreams × bounds met",
    ),
    of_upstream("wellhead_upstream_in_flight_max"),
    of_upstream("wellhead_upstream_learnt_rate"),
    family("wellhead_upstream_cap_spent_ratio", &[CHAIN, UPSTREAM, PERIOD], "caps"),
    family("wellhead_upstream_credits_limit", &[CHAIN, UPSTREAM, PERIOD], "caps"),
    family("wellhead_upstream_credits_forecast", &[CHAIN, UPSTREAM, PERIOD], "caps"),
    family(
        "wellhead_self_calls",
        &[CHAIN, UPSTREAM, label_of_words!("reason", CallReason)],
        "upstreams × reasons",
    ),
    of_upstream("wellhead_feed_open"),
    of_upstream("wellhead_relays_open"),
    of_upstream("wellhead_feeds_opened"),
    of_upstream("wellhead_self_pushed"),
    of_upstream("wellhead_self_pushed_bytes"),
    of_upstream("wellhead_self_pushed_credits"),
    of_upstream("wellhead_self_credits"),
    family("wellhead_subscriptions", &[CHAIN, label_of_words!("kind", KindName)], "chains × kinds"),
    of_chain("wellhead_subscribed_connections"),
    of_chain("wellhead_subscription_lag_events_max"),
    of_chain("wellhead_relay_missed"),
    family(
        "wellhead_announced_blocks",
        &[CHAIN, words("change", || vec!["added", "removed"])],
        "chains × 2",
    ),
    family(
        "wellhead_announcer_calls",
        &[
            CHAIN,
            words("fetched", || vec!["header", "logs", "receipts", "transactions", "nothing"]),
        ],
        "chains × 5",
    ),
    family(
        "wellhead_announced_logs",
        &[CHAIN, words("logs", || vec!["pulled", "avoided"])],
        "chains × 2",
    ),
    family("wellhead_subscription_gaps", &[CHAIN, words("reason", || vec!["resync"])], "chains"),
    of_chain("wellhead_filters"),
    of_chain("wellhead_filters_bytes"),
    family(
        "wellhead_filter_events",
        &[CHAIN, words("event", || vec!["made", "polled", "gone"])],
        "chains × 3",
    ),
];
