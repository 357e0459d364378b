//! What is agreed of each chain, and what was taken back.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_chain::{Tag, View};

use wellhead_dispatch::now;

use super::Exposed;
use crate::state::chain::ServedChain;

/// A chain, and what is agreed of it.
type ViewRow<'a> = (&'a str, &'a ServedChain, Arc<View>);

impl Exposed {
    pub(super) fn views(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows: Vec<ViewRow<'_>> =
            self.chains().map(|(chain, served)| (chain, served, served.heads.view())).collect();
        let help = "The agreed block of a tag";
        let mut family =
            encoder.encode_descriptor("wellhead_chain_block", help, None, MetricType::Gauge)?;
        for (chain, _, view) in &rows {
            let tags = [
                ("latest", view.latest.map(|head| head.number)),
                ("safe", view.mark(Tag::Safe).map(|mark| mark.number)),
                ("finalized", view.mark(Tag::Finalized).map(|mark| mark.number)),
            ];
            for (tag, number) in tags {
                let Some(number) = number else { continue };
                let labels = [("chain", *chain), ("tag", tag)];
                ConstGauge::new(number.0).encode(family.encode_family(&labels)?)?;
            }
        }
        let unserved = self.0.readiness().unserved;
        let help = "Whether an upstream of a chain can take calls";
        let name = "wellhead_chain_served";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (chain, _, _) in &rows {
            let is_served = u64::from(unserved.iter().all(|name| name != chain));
            ConstGauge::new(is_served).encode(family.encode_family(&[("chain", *chain)])?)?;
        }
        pace(&rows, encoder)?;
        let help = "Reorgs of the agreed head";
        let mut family =
            encoder.encode_descriptor("wellhead_chain_reorgs", help, None, MetricType::Counter)?;
        for (chain, _, view) in &rows {
            let labels = [("chain", *chain)];
            ConstCounter::new(view.reorgs().last()).encode(family.encode_family(&labels)?)?;
        }
        let help = "Blocks that the last reorg removed";
        let name = "wellhead_chain_reorg_depth_blocks";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (chain, _, view) in &rows {
            let Some(reorg) = view.reorgs().newest() else { continue };
            let labels = [("chain", *chain)];
            ConstGauge::new(reorg.depth).encode(family.encode_family(&labels)?)?;
        }
        let help = "1 for an upstream on another branch, or with an implausibly high head";
        let mut family =
            encoder.encode_descriptor("wellhead_upstream_astray", help, None, MetricType::Gauge)?;
        for (chain, served, view) in &rows {
            for upstream in served.roster.upstreams() {
                let labels = [("chain", *chain), ("upstream", upstream.identity().id.as_str())];
                let is_astray = u64::from(view.is_astray(upstream.slot()));
                ConstGauge::new(is_astray).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// How long ago the agreed head came, and how often one should come.
fn pace(rows: &[ViewRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let now = now();
    let help = "Time since the agreed head was first seen; absent while no upstream is followed";
    let name = "wellhead_chain_head_age_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (chain, _, view) in rows {
        let Some(head) = view.latest.filter(|_| view.is_followed()) else { continue };
        let age = now.saturating_duration_since(head.seen_at).as_secs_f64();
        ConstGauge::new(age).encode(family.encode_family(&[("chain", *chain)])?)?;
    }
    let help = "Time between blocks, given or measured; absent until it is known";
    let name = "wellhead_chain_block_time_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (chain, _, view) in rows {
        let Some(time) = view.block_time else { continue };
        let seconds = ConstGauge::new(time.as_secs_f64());
        seconds.encode(family.encode_family(&[("chain", *chain)])?)?;
    }
    Ok(())
}
