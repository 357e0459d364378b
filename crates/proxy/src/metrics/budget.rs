//! What was spent at each upstream, what holds calls, and what was learnt of its limits.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_dispatch::now;
use wellhead_upstream::Bound;

use super::Exposed;

impl Exposed {
    pub(super) fn budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let now = now();
        let rows: Vec<_> = self
            .chains()
            .flat_map(|(chain, served)| {
                served.roster.upstreams().iter().map(move |upstream| {
                    let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                    (labels, upstream, upstream.spending(now))
                })
            })
            .collect();
        let help = "Credits spent, our own calls included; calls where credits are not known";
        let mut family = encoder.encode_descriptor(
            "wellhead_upstream_credits",
            help,
            None,
            MetricType::Counter,
        )?;
        for (labels, _, spending) in &rows {
            ConstCounter::new(spending.total).encode(family.encode_family(labels)?)?;
        }
        let help = "Calls that an upstream's bound held, by bound";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_held", help, None, MetricType::Counter)?;
        for ([chain, id], upstream, _) in &rows {
            for bound in Bound::ALL {
                let count = upstream.held(bound);
                if count > 0 {
                    let labels = [*chain, *id, ("bound", bound.word())];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let help = "Calls that an upstream may be sent at once";
        let mut family = encoder.encode_descriptor(
            "wellhead_upstream_in_flight_max",
            help,
            None,
            MetricType::Gauge,
        )?;
        for (labels, _, spending) in &rows {
            if let Some(limit) = spending.limit {
                ConstGauge::new(i64::from(limit)).encode(family.encode_family(labels)?)?;
            }
        }
        let help = "The rate learnt from refusals, in credits a second";
        let mut family = encoder.encode_descriptor(
            "wellhead_upstream_learnt_rate",
            help,
            None,
            MetricType::Gauge,
        )?;
        for (labels, _, spending) in &rows {
            if let Some(rate) = spending.learnt_rate {
                ConstGauge::new(rate).encode(family.encode_family(labels)?)?;
            }
        }
        let help = "Share of a cap that is spent, by period";
        let mut family = encoder.encode_descriptor(
            "wellhead_upstream_cap_spent_ratio",
            help,
            None,
            MetricType::Gauge,
        )?;
        for ([chain, id], _, spending) in &rows {
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
}
