//! What was spent at each upstream, what holds calls, and what was learnt of its limits.

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_dispatch::now;
use wellhead_limit::{civil, days_left_in_month};
use wellhead_telemetry::clock;
use wellhead_telemetry::series::{EncodeResult, counter, gauge};
use wellhead_upstream::{Bound, Spending, Upstream};

use super::{Exposed, UpstreamLabels, UpstreamSeen, counted};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// One upstream, with what was spent at it.
struct UpstreamRow<'a> {
    labels: UpstreamLabels<'a>,
    upstream: &'a Upstream,
    spending: Spending,
}

/// What an upstream may be charged in a day or month, and was so far.
struct SpendingCap<'a> {
    labels: [(&'static str, &'a str); 3],
    period: SpendingPeriod,
    spent: Option<u64>,
    most: u64,
}

impl<'a> UpstreamRow<'a> {
    fn caps(&self, unix: u64) -> impl Iterator<Item = SpendingCap<'a>> {
        let ([chain, id], Spending { day, month, caps, .. }) = (self.labels, &self.spending);
        let periods = [
            ("day", SpendingPeriod::day(unix), *day, caps.day),
            ("month", SpendingPeriod::month(unix), *month, caps.month),
        ];
        periods.into_iter().filter_map(move |(word, period, spent, most)| {
            Some(SpendingCap { labels: [chain, id, ("period", word)], period, spent, most: most? })
        })
    }
}

impl Exposed {
    pub(super) fn budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let now = now();
        let rows: Vec<_> = self
            .each_upstream()
            .map(|UpstreamSeen { labels, upstream, .. }| UpstreamRow {
                labels,
                upstream,
                spending: upstream.spending(now),
            })
            .collect();
        counter(
            encoder,
            "wellhead_upstream_credits",
            "Credits spent, including wellhead's own calls; calls if credits are not known",
            rows.iter().map(|row| (row.labels, row.spending.total)),
        )?;
        held(&rows, encoder)?;
        limits(&rows, encoder)?;
        let unix = clock::unix_seconds();
        caps(&rows.iter().flat_map(|row| row.caps(unix)).collect::<Vec<_>>(), encoder)
    }
}

fn held(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let held = rows.iter().flat_map(|UpstreamRow { labels: [chain, id], upstream, .. }| {
        Bound::ALL.map(|bound| ([*chain, *id, ("bound", bound.word())], upstream.held(bound)))
    });
    let help = "Calls that a limit of an upstream delayed, by limit";
    counter(encoder, "wellhead_upstream_held", help, counted(held))
}

fn limits(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let limits = rows.iter().filter_map(|row| Some((row.labels, i64::from(row.spending.limit?))));
    let help = "Limit on concurrent calls to an upstream";
    gauge(encoder, "wellhead_upstream_in_flight_max", help, limits)?;
    let rates = rows.iter().filter_map(|row| Some((row.labels, row.spending.learnt_rate?)));
    let help = "The rate learnt from refusals, in credits per second";
    gauge(encoder, "wellhead_upstream_learnt_rate", help, rates)
}

fn caps(caps: &[SpendingCap<'_>], encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let shares =
        caps.iter().filter_map(|it| Some((it.labels, it.spent? as f64 / it.most.max(1) as f64)));
    let help = "Spent share of a cap, by period";
    gauge(encoder, "wellhead_upstream_cap_spent_ratio", help, shares)?;
    let help = "Credits that the caps of an upstream allow in a day and a month";
    let limits = caps.iter().map(|it| (it.labels, it.most));
    gauge(encoder, "wellhead_upstream_credits_limit", help, limits)?;
    let forecasts = caps.iter().filter_map(|it| Some((it.labels, it.period.forecast(it.spent?))));
    let help = "Credits at the end of the day or month at the pace so far, where it has a cap";
    gauge(encoder, "wellhead_upstream_credits_forecast", help, forecasts)
}

/// How much of a day or month of UTC is over.
#[derive(Debug, Clone, Copy)]
struct SpendingPeriod {
    passed_s: u64,
    length_s: u64,
    /// Less than this is taken for this: the first call of a day is not the pace of the day.
    passed_s_min: u64,
}

impl SpendingPeriod {
    fn day(unix: u64) -> Self {
        Self { passed_s: unix % DAY, length_s: DAY, passed_s_min: HOUR }
    }

    fn month(unix: u64) -> Self {
        let today = u32::try_from(unix / DAY).unwrap_or(u32::MAX);
        let (_, _, of_month) = civil(today);
        let days_over = u64::from(of_month.saturating_sub(1));
        Self {
            passed_s: days_over * DAY + unix % DAY,
            length_s: (days_over + u64::from(days_left_in_month(today))) * DAY,
            passed_s_min: DAY,
        }
    }

    fn forecast(self, spent: u64) -> f64 {
        let passed = self.passed_s.max(self.passed_s_min);
        spent as f64 * (self.length_s as f64 / passed as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20 12:00 UTC: half of a day is over, and 19.5 of 30 days.
    const NOON: u64 = 20_777 * DAY + 12 * HOUR;

    fn check(period: SpendingPeriod, spent: u64, expected: f64) {
        let forecast = period.forecast(spent);
        assert!((forecast - expected).abs() < 1e-6, "{period:?}: {forecast}, not {expected}");
    }

    #[test]
    fn half_of_the_day_is_over() {
        check(SpendingPeriod::day(NOON), 500, 1_000.0);
    }
    #[test]
    fn the_first_minutes_of_a_day_count_as_an_hour() {
        check(SpendingPeriod::day(20_777 * DAY + 60), 10, 240.0);
    }
    #[test]
    fn the_month_goes_on_as_it_did() {
        check(SpendingPeriod::month(NOON), 1_950, 3_000.0);
    }
    #[test]
    fn the_first_hours_of_a_month_count_as_a_day() {
        check(SpendingPeriod::month(20_758 * DAY + HOUR), 100, 3_000.0);
    }
    #[test]
    fn the_last_second_of_a_month() {
        check(SpendingPeriod::month(20_788 * DAY - 1), 30 * DAY - 1, 2_592_000.0);
    }
}
