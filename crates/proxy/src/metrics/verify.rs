//! What was found of answers, where they are looked at.

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_eth::MethodTable;
use wellhead_telemetry::series::{EncodeResult, counter};

use super::{Exposed, counted};
use crate::state::verify::InspectionOutcome;

impl Exposed {
    /// No series where no chain has its answers looked at.
    pub(super) fn verified(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let looking = || {
            self.chains().filter_map(|(chain, served)| {
                let verifier = served.verifier.as_ref()?;
                Some((chain, served, &verifier.findings))
            })
        };
        let found = looking().flat_map(|(chain, _, findings)| {
            MethodTable::standard().rows().iter().flat_map(move |row| {
                InspectionOutcome::ALL.map(|seen| {
                    let finding = ("finding", seen.word());
                    let labels = [("chain", chain), ("method", row.name), finding];
                    (labels, findings.so_far(row, seen))
                })
            })
        });
        let help = "Answers to verify before use, by method and result";
        counter(encoder, "wellhead_verify", help, counted(found))?;
        let void = looking().flat_map(|(chain, served, findings)| {
            findings.voids().into_iter().filter_map(move |((slot, method, check), count)| {
                // An upstream that is gone has no series.
                let upstream = ("upstream", served.roster.find(slot)?.identity().id.as_str());
                Some(([("chain", chain), upstream, ("method", method), ("check", check)], count))
            })
        });
        let help = "Void answers, by upstream, method and failed check";
        counter(encoder, "wellhead_verify_void", help, void)
    }
}
