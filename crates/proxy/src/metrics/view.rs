//! What is agreed of each chain, and what was taken back.

use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_chain::{Tag, View};
use wellhead_dispatch::now;
use wellhead_telemetry::series::{EncodeResult, by, counter, gauge};

use super::Exposed;
use crate::state::chain::ServedChain;

/// A chain, and what is agreed of it.
type ViewRow<'a> = (&'a str, &'a ServedChain, Arc<View>);

impl Exposed {
    pub(super) fn views(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let rows: Vec<ViewRow<'_>> =
            self.chains().map(|(chain, served)| (chain, served, served.heads.view())).collect();
        let tags = rows.iter().flat_map(|(chain, _, view)| {
            let tags = [
                ("latest", view.latest.map(|head| head.number)),
                ("safe", view.mark(Tag::Safe).map(|mark| mark.number)),
                ("finalized", view.mark(Tag::Finalized).map(|mark| mark.number)),
            ];
            tags.into_iter()
                .filter_map(|(tag, number)| Some(([("chain", *chain), ("tag", tag)], number?.0)))
        });
        gauge(encoder, "wellhead_chain_block", "The agreed block of a tag", tags)?;
        let unserved = self.0.readiness().unserved;
        let served = rows
            .iter()
            .map(|(chain, ..)| (*chain, u64::from(unserved.iter().all(|name| name != chain))));
        let help = "Whether an upstream of a chain can take calls";
        gauge(encoder, "wellhead_chain_served", help, by("chain", served))?;
        pace(&rows, encoder)?;
        let reorgs = rows.iter().map(|(chain, _, view)| (*chain, view.reorgs().last()));
        let help = "Reorgs of the agreed head";
        counter(encoder, "wellhead_chain_reorgs", help, by("chain", reorgs))?;
        let depths = rows
            .iter()
            .filter_map(|(chain, _, view)| Some((*chain, view.reorgs().newest()?.depth)));
        let help = "Blocks that the last reorg removed";
        gauge(encoder, "wellhead_chain_reorg_depth_blocks", help, by("chain", depths))?;
        let astray = rows.iter().flat_map(|(chain, served, view)| {
            served.roster.upstreams().iter().map(|upstream| {
                let labels = [("chain", *chain), ("upstream", upstream.identity().id.as_str())];
                (labels, u64::from(view.is_astray(upstream.slot())))
            })
        });
        let help = "1 for an upstream on another branch, or with an implausibly high head";
        gauge(encoder, "wellhead_upstream_astray", help, astray)
    }
}

/// How long ago the agreed head came, and how often one should come.
fn pace(rows: &[ViewRow<'_>], encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let now = now();
    let ages = rows.iter().filter_map(|(chain, _, view)| {
        let head = view.latest.filter(|_| view.is_followed())?;
        Some((*chain, now.saturating_duration_since(head.seen_at).as_secs_f64()))
    });
    let help = "Time since the agreed head was first seen; absent while no upstream is followed";
    gauge(encoder, "wellhead_chain_head_age_seconds", help, by("chain", ages))?;
    let times =
        rows.iter().filter_map(|(chain, _, view)| Some((*chain, view.block_time?.as_secs_f64())));
    let help = "Time between blocks, given or measured; absent until it is known";
    gauge(encoder, "wellhead_chain_block_time_seconds", help, by("chain", times))
}
