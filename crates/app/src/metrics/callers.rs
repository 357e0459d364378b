//! What Prometheus is told of callers.

use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_access::{DenialCounts, KeyReturn, QuotaLimit, SubjectKind, SubjectMeter};
use wellhead_front::CallerControl;
use wellhead_telemetry::clock;
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, by, counted, counter, gauge};

/// Tenants that have series of their own: those that spent most this month. Usage has all of them.
const TENANTS_MAX: usize = 500;

const SECONDS_OF_DAY: u64 = 86_400;

/// The series of callers. Without `callers` clients are told apart by their addresses alone, and refusals are all there is.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    callers: Option<&CallerControl>,
    denied: &DenialCounts,
) -> EncodeResult {
    gauge(
        encoder,
        "wellhead_keys",
        "Keys of callers, ended ones included",
        callers.map(|it| (NO_LABELS, it.table().keys() as u64)),
    )?;
    gauge(
        encoder,
        "wellhead_keys_stale",
        "1 if a file of keys or the shared keys were not read for longer than `access.keys.stale_max`, or not yet",
        callers.map(|it| (NO_LABELS, u64::from(it.has_stale_source()))),
    )?;
    let returned = callers
        .into_iter()
        .flat_map(|it| KeyReturn::ALL.map(|why| (why.word(), it.returned().of(why))));
    counter(
        encoder,
        "wellhead_keys_returned",
        "Keys that a file or Redis brought back from an earlier time: `revoked` ones and `replaced` secrets stay \
         what they were, `removed` ones are valid again",
        by("reason", returned),
    )?;
    let limits = SubjectKind::ALL.iter().flat_map(|subject| {
        QuotaLimit::ALL.iter().map(|limit| {
            let labels = [("subject", subject.word()), ("limit", limit.word())];
            (labels, denied.of(*subject, *limit))
        })
    });
    counter(
        encoder,
        "wellhead_caller_refusals",
        "Calls, requests, connections and subscriptions that a limit of their caller refused",
        counted(limits),
    )?;
    credits(encoder, callers)
}

fn credits(encoder: &mut DescriptorEncoder<'_>, callers: Option<&CallerControl>) -> EncodeResult {
    let today = u32::try_from(clock::unix_seconds() / SECONDS_OF_DAY).unwrap_or(u32::MAX);
    let mut tenants = callers.map(|it| it.book().all()).unwrap_or_default();
    tenants.retain(|meter| meter.kind() == SubjectKind::Tenant);
    let in_month = |meter: &Arc<SubjectMeter>| meter.ledger().in_month(today);
    tenants.sort_unstable_by_key(|meter| std::cmp::Reverse(in_month(meter)));
    tenants.truncate(TENANTS_MAX);
    let spent = tenants.iter().flat_map(|meter| {
        let (name, ledger) = (&**meter.name(), meter.ledger());
        let labels = |period| [("tenant", name), ("period", period)];
        [(labels("day"), ledger.on_day(today)), (labels("month"), ledger.in_month(today))]
    });
    gauge(
        encoder,
        "wellhead_tenant_credits",
        "Credits that a tenant with a quota has spent, this day and this month of UTC",
        spent,
    )?;
    let caps = tenants.iter().flat_map(|meter| {
        let (name, caps) = (&**meter.name(), meter.quota().caps);
        let row = |period, cap: Option<u64>| Some(([("tenant", name), ("period", period)], cap?));
        [row("day", caps.day), row("month", caps.month)].into_iter().flatten()
    });
    gauge(
        encoder,
        "wellhead_tenant_credits_limit",
        "Credits that the quota of a tenant allows in a day and a month",
        caps,
    )
}
