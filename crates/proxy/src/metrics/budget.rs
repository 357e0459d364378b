//! What was spent at each upstream, what holds calls, and what was learnt of its limits.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_dispatch::now;
use wellhead_limit::{civil, days_left_in_month};
use wellhead_telemetry::clock;
use wellhead_upstream::{Bound, Spending, Upstream};

use super::{Encoded, Exposed};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// One upstream, with what was spent at it.
struct UpstreamRow<'a> {
    labels: [(&'static str, &'a str); 2],
    upstream: &'a Upstream,
    spending: Spending,
}

impl Exposed {
    pub(super) fn budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let now = now();
        let rows: Vec<_> = self
            .chains()
            .flat_map(|(chain, served)| {
                served.roster.upstreams().iter().map(move |upstream| UpstreamRow {
                    labels: [("chain", chain), ("upstream", upstream.identity().id.as_str())],
                    upstream,
                    spending: upstream.spending(now),
                })
            })
            .collect();
        credits(&rows, encoder)?;
        held(&rows, encoder)?;
        limits(&rows, encoder)?;
        caps(&rows, encoder)?;
        forecasts(&rows, clock::unix_seconds(), encoder)
    }
}

fn credits(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let name = "wellhead_upstream_credits";
    let help = "Credits spent, including wellhead's own calls; calls if credits are not known";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for UpstreamRow { labels, spending, .. } in rows {
        ConstCounter::new(spending.total).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

fn held(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let name = "wellhead_upstream_held";
    let help = "Calls that a limit of an upstream delayed, by limit";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for UpstreamRow { labels: [chain, id], upstream, .. } in rows {
        for bound in Bound::ALL {
            let count = upstream.held(bound);
            if count > 0 {
                let labels = [*chain, *id, ("bound", bound.word())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn limits(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let name = "wellhead_upstream_in_flight_max";
    let help = "Limit on concurrent calls to an upstream";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for UpstreamRow { labels, spending, .. } in rows {
        if let Some(limit) = spending.limit {
            ConstGauge::new(i64::from(limit)).encode(family.encode_family(labels)?)?;
        }
    }
    let name = "wellhead_upstream_learnt_rate";
    let help = "The rate learnt from refusals, in credits per second";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for UpstreamRow { labels, spending, .. } in rows {
        if let Some(rate) = spending.learnt_rate {
            ConstGauge::new(rate).encode(family.encode_family(labels)?)?;
        }
    }
    Ok(())
}

fn caps(rows: &[UpstreamRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let name = "wellhead_upstream_cap_spent_ratio";
    let help = "Spent share of a cap, by period";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for UpstreamRow { labels: [chain, id], spending, .. } in rows {
        let periods = [
            ("day", spending.day, spending.caps.day),
            ("month", spending.month, spending.caps.month),
        ];
        for (period, spent, cap) in periods {
            if let (Some(spent), Some(cap)) = (spent, cap) {
                let labels = [*chain, *id, ("period", period)];
                let share = spent as f64 / cap.max(1) as f64;
                ConstGauge::new(share).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn forecasts(rows: &[UpstreamRow<'_>], unix: u64, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
    let name = "wellhead_upstream_credits_limit";
    let help = "Credits that the caps of an upstream allow in a day and a month";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for UpstreamRow { labels: [chain, id], spending, .. } in rows {
        for (word, cap) in [("day", spending.caps.day), ("month", spending.caps.month)] {
            if let Some(cap) = cap {
                let labels = [*chain, *id, ("period", word)];
                ConstGauge::new(cap).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    let name = "wellhead_upstream_credits_forecast";
    let help = "Credits at the end of the day or month at the pace so far, where it has a cap";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    let (day, month) = (SpendingPeriod::day(unix), SpendingPeriod::month(unix));
    for UpstreamRow { labels: [chain, id], spending, .. } in rows {
        let periods = [
            ("day", day, spending.day, spending.caps.day),
            ("month", month, spending.month, spending.caps.month),
        ];
        for (word, period, spent, cap) in periods {
            if let (Some(spent), Some(_)) = (spent, cap) {
                let labels = [*chain, *id, ("period", word)];
                let credits = ConstGauge::new(period.forecast(spent));
                credits.encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
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
