//! What was found of answers, where they are looked at.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use wellhead_eth::MethodTable;

use super::Exposed;
use crate::state::verify::InspectionOutcome;

impl Exposed {
    /// No series where no chain has its answers looked at.
    pub(super) fn verified(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let looking = self.chains().filter_map(|(chain, served)| {
            let verifier = served.verifier.as_ref()?;
            Some((chain, served, verifier))
        });
        let chains: Vec<_> = looking.collect();
        let help = "Answers to verify before use, by method and result";
        let mut family =
            encoder.encode_descriptor("wellhead_verify", help, None, MetricType::Counter)?;
        for (chain, _, verifier) in &chains {
            for row in MethodTable::standard().rows() {
                for seen in InspectionOutcome::ALL {
                    let count = verifier.findings().so_far(row, seen);
                    if count > 0 {
                        let labels =
                            [("chain", *chain), ("method", row.name), ("finding", seen.word())];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
            }
        }
        let help = "Void answers, by upstream, method and failed check";
        let mut family =
            encoder.encode_descriptor("wellhead_verify_void", help, None, MetricType::Counter)?;
        for (chain, served, verifier) in &chains {
            for ((slot, method, check), count) in verifier.findings().voids() {
                // An upstream that is gone has no series.
                let Some(upstream) = served.roster.find(slot) else { continue };
                let id = upstream.identity().id.as_str();
                let labels =
                    [("chain", *chain), ("upstream", id), ("method", method), ("check", check)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
