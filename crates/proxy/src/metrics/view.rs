//! What is agreed of each chain, and what was taken back.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use wellhead_chain::Tag;

use super::Exposed;

impl Exposed {
    pub(super) fn views(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rows: Vec<_> =
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
