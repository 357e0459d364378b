//! What the three dashboards show.

use super::PanelKind::{Heatmap, Lines, Number, Table};
use super::{Dashboard, DashboardPanel, PanelKind, Row, Variable};

const fn panel(
    title: &'static str,
    kind: PanelKind,
    unit: &'static str,
    queries: &'static str,
) -> DashboardPanel {
    DashboardPanel { title, kind, unit, queries }
}

const JOB: Variable = Variable { label: "job", of: "wellhead_build_info" };
const CHAIN: Variable = Variable { label: "chain", of: "wellhead_chain_served" };
const UPSTREAM_CHOICE: Variable = Variable { label: "upstream", of: "wellhead_upstream_condition" };
const TENANT: Variable = Variable { label: "tenant", of: "wellhead_tenant_credits" };

/// Rate, errors and duration of each chain, its upstreams, what they cost, and the process.
pub(super) const OVERVIEW: Dashboard = Dashboard {
    uid: "wellhead-overview",
    title: "wellhead / Overview",
    description: "Rate, errors and duration of each chain, its upstreams, what they cost, and the process",
    variables: &[JOB, CHAIN],
    rows: &[
        Row {
            title: "Now",
            panels: &[
                panel("Wellheads", Number, "short", "
                    {{version}} | count by (version) (wellhead_build_info{job})"),
                panel("Chains served", Number, "short", "
                    | sum(min by (chain) (wellhead_chain_served{chain}))"),
                panel("Upstreams ready", Number, "percentunit", r#"
                    | sum(wellhead_upstream_condition{chain,condition="ready"}) / sum(wellhead_upstream_condition{chain})"#),
                panel("Answers from the cache", Number, "percentunit", r#"
                    | sum(rate(wellhead_cache_calls_total{chain,found!="miss"}[$__rate_interval])) / sum(rate(wellhead_cache_calls_total{chain}[$__rate_interval]))"#),
            ],
        },
        Row {
            title: "Calls",
            panels: &[
                panel("Calls per second", Lines, "reqps", "
                    {{chain}} | sum by (chain) (rate(wellhead_calls_total{chain}[$__rate_interval]))"),
                panel("Calls not answered", Lines, "percentunit", r#"
                    {{chain}} {{outcome}} | sum by (chain, outcome) (rate(wellhead_calls_total{chain,outcome!="answered"}[$__rate_interval])) / on (chain) group_left () sum by (chain) (rate(wellhead_calls_total{chain}[$__rate_interval]))"#),
                panel("Duration of calls", Lines, "s", "
                    {{chain}} p50 | histogram_quantile(0.5, sum by (chain, le) (rate(wellhead_call_duration_seconds_bucket{chain}[$__rate_interval])))
                    {{chain}} p99 | histogram_quantile(0.99, sum by (chain, le) (rate(wellhead_call_duration_seconds_bucket{chain}[$__rate_interval])))"),
            ],
        },
        Row {
            title: "Methods and statuses",
            panels: &[
                panel("Calls per second of a method", Lines, "reqps", "
                    {{method}} | topk(10, sum by (method) (rate(wellhead_calls_total{chain}[$__rate_interval])))"),
                panel("HTTP requests per second", Lines, "reqps", "
                    {{status}} | sum by (status) (rate(wellhead_http_requests_total{job}[$__rate_interval])) > 0"),
                panel("Head", Lines, "short", r#"
                    {{chain}} | max by (chain) (wellhead_chain_block{chain,tag="latest"})"#),
                panel("Age of the head", Lines, "s", "
                    {{chain}} | min by (chain) (wellhead_chain_head_age_seconds{chain})"),
            ],
        },
        Row {
            title: "Upstreams",
            panels: &[panel("Upstream", Table, "short", r#"
                wellheads | count by (chain, upstream, condition) (wellhead_upstream_condition{chain})
                attempts per second | sum by (chain, upstream) (rate(wellhead_attempts_total{chain}[$__rate_interval]))
                without an answer | sum by (chain, upstream) (rate(wellhead_attempts_total{chain,verdict!~"answer|reverted"}[$__rate_interval])) / sum by (chain, upstream) (rate(wellhead_attempts_total{chain}[$__rate_interval]))
                p99 in s | histogram_quantile(0.99, sum by (chain, upstream, le) (rate(wellhead_attempt_duration_seconds_bucket{chain}[$__rate_interval])))
                lag in blocks | min by (chain, upstream) (wellhead_upstream_lag_blocks{chain})
                credits per second | sum by (chain, upstream) (rate(wellhead_upstream_credits_total{chain}[$__rate_interval]))"#)],
        },
        Row {
            title: "Spend",
            panels: &[
                panel("Credits per second", Lines, "short", "
                    {{chain}} {{upstream}} | sum by (chain, upstream) (rate(wellhead_upstream_credits_total{chain}[$__rate_interval]))"),
                panel("Spent share of caps", Lines, "percentunit", "
                    {{upstream}} {{period}} | max by (chain, upstream, period) (wellhead_upstream_cap_spent_ratio{chain})"),
                panel("Forecast as a share of caps", Lines, "percentunit", "
                    {{upstream}} {{period}} | sum by (chain, upstream, period) (wellhead_upstream_credits_forecast{chain}) / max by (chain, upstream, period) (wellhead_upstream_credits_limit{chain})"),
                panel("Credits that the cache saved per second", Lines, "short", "
                    {{chain}} | sum by (chain) (rate(wellhead_cache_saved_credits_total{chain}[$__rate_interval]))"),
            ],
        },
        Row {
            title: "Process",
            panels: &[
                panel("CPU", Lines, "short", "
                    {{instance}} | rate(process_cpu_seconds_total{job}[$__rate_interval]) and on (job, instance) wellhead_build_info"),
                panel("Memory", Lines, "bytes", "
                    {{instance}} | process_resident_memory_bytes{job} and on (job, instance) wellhead_build_info"),
                panel("Client connections", Lines, "short", "
                    {{protocol}} | sum by (protocol) (wellhead_client_connections{job})"),
                panel("Open file descriptors", Lines, "percentunit", "
                    {{instance}} | process_open_fds{job} / process_max_fds{job} and on (job, instance) wellhead_build_info"),
            ],
        },
    ],
};

/// Head, lag, latency, limits, studies and connections of each upstream.
pub(super) const UPSTREAM: Dashboard = Dashboard {
    uid: "wellhead-upstream",
    title: "wellhead / Upstream",
    description: "Head, lag, latency, limits, studies and connections of each upstream",
    variables: &[JOB, CHAIN, UPSTREAM_CHOICE],
    rows: &[
        Row {
            title: "Head",
            panels: &[
                panel("Condition", Table, "short", "
                    wellheads | count by (chain, upstream, condition) (wellhead_upstream_condition{upstream})"),
                panel("Head of each upstream", Lines, "short", "
                    {{chain}} {{upstream}} | max by (chain, upstream) (wellhead_upstream_head_block{upstream})"),
                panel("Blocks behind the agreed head", Lines, "short", "
                    {{chain}} {{upstream}} | max by (chain, upstream) (wellhead_upstream_lag_blocks{upstream})"),
                panel("On another branch", Lines, "short", "
                    {{chain}} {{upstream}} | max by (chain, upstream) (wellhead_upstream_astray{upstream})"),
            ],
        },
        Row {
            title: "Attempts",
            panels: &[
                panel("Attempts per second by verdict", Lines, "reqps", "
                    {{upstream}} {{verdict}} | sum by (upstream, verdict) (rate(wellhead_attempts_total{upstream}[$__rate_interval]))"),
                panel("Duration of attempts", Lines, "s", "
                    {{upstream}} p50 | histogram_quantile(0.5, sum by (upstream, le) (rate(wellhead_attempt_duration_seconds_bucket{upstream}[$__rate_interval])))
                    {{upstream}} p99 | histogram_quantile(0.99, sum by (upstream, le) (rate(wellhead_attempt_duration_seconds_bucket{upstream}[$__rate_interval])))"),
                panel("Attempts by duration", Heatmap, "short", "
                    {{le}} | sum by (le) (rate(wellhead_attempt_duration_seconds_bucket{upstream}[$__rate_interval]))"),
            ],
        },
        Row {
            title: "Limits",
            panels: &[
                panel("Calls in flight and their limit", Lines, "short", "
                    {{upstream}} | sum by (upstream) (wellhead_upstream_in_flight{upstream})
                    {{upstream}} limit | sum by (upstream) (wellhead_upstream_in_flight_max{upstream})"),
                panel("Calls that a limit delays per second", Lines, "reqps", "
                    {{upstream}} {{bound}} | sum by (upstream, bound) (rate(wellhead_upstream_held_total{upstream}[$__rate_interval]))"),
                panel("Learnt rate", Lines, "short", "
                    {{upstream}} | min by (upstream) (wellhead_upstream_learnt_rate{upstream})"),
                panel("Credits: forecast and cap", Lines, "short", "
                    {{upstream}} {{period}} | sum by (upstream, period) (wellhead_upstream_credits_forecast{upstream})
                    {{upstream}} {{period}} cap | max by (upstream, period) (wellhead_upstream_credits_limit{upstream})"),
            ],
        },
        Row {
            title: "Study of the limit",
            panels: &[
                panel("Rate limit that studies found", Lines, "reqps", "
                    {{chain}} {{upstream}} | min by (chain, upstream) (wellhead_study_rate_limit_calls_per_second{upstream})"),
                panel("Calls that pass at once", Lines, "short", "
                    {{chain}} {{upstream}} | min by (chain, upstream) (wellhead_study_burst_calls{upstream})"),
                panel("Studies and other limits found in a day", Lines, "short", "
                    {{chain}} {{upstream}} studies | max by (chain, upstream) (increase(wellhead_study_studies_total{upstream}[1d]))
                    {{chain}} {{upstream}} changes | max by (chain, upstream) (increase(wellhead_study_limit_changes_total{upstream}[1d]))"),
                panel("Calls left in the budget of studies", Lines, "short", "
                    {{chain}} {{upstream}} | min by (chain, upstream) (wellhead_study_budget_left_calls{upstream})"),
            ],
        },
        Row {
            title: "Connections and wellhead's own calls",
            panels: &[
                panel("Open connections", Lines, "short", "
                    {{upstream}} {{protocol}} | sum by (upstream, protocol) (wellhead_upstream_connections{upstream})"),
                panel("Connections opened per second", Lines, "short", "
                    {{upstream}} {{protocol}} | sum by (upstream, protocol) (rate(wellhead_upstream_connections_opened_total{upstream}[$__rate_interval]))"),
                panel("Own calls per second", Lines, "reqps", "
                    {{upstream}} {{reason}} | sum by (upstream, reason) (rate(wellhead_self_calls_total{upstream}[$__rate_interval]))"),
                panel("Share of credits for own calls", Lines, "percentunit", "
                    {{upstream}} | sum by (upstream) (rate(wellhead_self_credits_total{upstream}[$__rate_interval])) / sum by (upstream) (rate(wellhead_upstream_credits_total{upstream}[$__rate_interval]))"),
            ],
        },
    ],
};

/// What tenants use, and what is refused.
pub(super) const TENANTS: Dashboard = Dashboard {
    uid: "wellhead-tenants",
    title: "wellhead / Tenants",
    description: "What tenants with a quota use of it, and what limits refuse. Needs `access` in the config",
    variables: &[JOB, TENANT],
    rows: &[
        Row {
            title: "Quotas",
            panels: &[
                panel("Quota", Table, "short", "
                    spent | sum by (tenant, period) (wellhead_tenant_credits{tenant})
                    quota | max by (tenant, period) (wellhead_tenant_credits_limit{tenant})
                    share | sum by (tenant, period) (wellhead_tenant_credits{tenant}) / max by (tenant, period) (wellhead_tenant_credits_limit{tenant})"),
                panel("Spent share of quotas", Lines, "percentunit", "
                    {{tenant}} {{period}} | sum by (tenant, period) (wellhead_tenant_credits{tenant}) / max by (tenant, period) (wellhead_tenant_credits_limit{tenant})"),
            ],
        },
        Row {
            title: "Usage",
            panels: &[
                panel("Credits of this day", Lines, "short", r#"
                    {{tenant}} | topk(20, sum by (tenant) (wellhead_tenant_credits{tenant,period="day"}))"#),
                panel("Credits per second of a tenant", Lines, "short", r#"
                    {{tenant}} | topk(20, sum by (tenant) (clamp_min(deriv(wellhead_tenant_credits{tenant,period="day"}[$__rate_interval]), 0)))"#),
            ],
        },
        Row {
            title: "Refusals",
            panels: &[
                panel("Refusals per second", Lines, "reqps", "
                    {{subject}} {{limit}} | sum by (subject, limit) (rate(wellhead_caller_refusals_total{job}[$__rate_interval]))"),
                panel("Requests refused before they were read per second", Lines, "reqps", "
                    {{reason}} | sum by (reason) (rate(wellhead_http_refused_total{job}[$__rate_interval]))"),
                panel("Keys", Number, "short", "
                    {{instance}} | wellhead_keys{job}"),
                panel("Rows of usage of this minute", Lines, "short", "
                    {{instance}} | wellhead_usage_rows_open{job}"),
            ],
        },
    ],
};
