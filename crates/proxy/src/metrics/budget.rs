//! What was spent at each upstream, what holds calls, and what was learnt of its limits.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_dispatch::now;
use wellhead_upstream::{Bound, Spending, Upstream};

use super::{Encoded, Exposed};

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
        caps(&rows, encoder)
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
