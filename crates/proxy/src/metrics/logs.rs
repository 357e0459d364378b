//! Searches for logs whose empty answer was doubtful.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_telemetry::series::{EncodeResult, by, counter};

use super::{Exposed, counted};

impl Exposed {
    pub(super) fn logs(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let chains = || self.chains().map(|(chain, served)| (chain, &served.counts().chain));
        let doubted = chains().map(|(chain, it)| (chain, it.doubted.load(Ordering::Relaxed)));
        counter(
            encoder,
            "wellhead_logs_doubted",
            "Doubtful empty answers to log searches, for which another upstream was called",
            by("chain", doubted),
        )?;
        let unconfirmed =
            chains().map(|(chain, it)| (chain, it.unconfirmed.load(Ordering::Relaxed)));
        counter(
            encoder,
            "wellhead_logs_unconfirmed",
            "Empty answers to searches for logs that were served though a header speaks \
             against them, with a warning",
            by("chain", unconfirmed),
        )?;
        let missed = self
            .each_upstream()
            .map(|it| (it.labels, it.served.counts().missed_logs_so_far(it.upstream.slot())));
        counter(
            encoder,
            "wellhead_upstream_missed_logs",
            "Empty answers to log searches for which another upstream found logs",
            counted(missed),
        )
    }
}
