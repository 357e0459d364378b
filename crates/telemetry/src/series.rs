//! Families of series as collectors write them: a head, and a row for each series.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::Histogram;

/// What a collector returns.
pub type EncodeResult = Result<(), fmt::Error>;

/// Of a family with one series.
pub const NO_LABELS: &[(&str, &str)] = &[];

/// Rows with one label, each by its value.
pub fn by<W, N>(
    label: &'static str,
    rows: impl IntoIterator<Item = (W, N)>,
) -> impl Iterator<Item = ([(&'static str, W); 1], N)> {
    rows.into_iter().map(move |(word, number)| ([(label, word)], number))
}

/// Rows without those that are zero: a counter begins with its first count.
pub fn counted<L>(rows: impl IntoIterator<Item = (L, u64)>) -> impl Iterator<Item = (L, u64)> {
    rows.into_iter().filter(|(_, count)| *count > 0)
}

/// A family of counters.
///
/// # Errors
///
/// If the text cannot be written.
pub fn counter<L: EncodeLabelSet, N: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, N)>,
) -> EncodeResult {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in rows {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A family of gauges.
///
/// # Errors
///
/// If the text cannot be written.
pub fn gauge<L: EncodeLabelSet, N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, N)>,
) -> EncodeResult {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// A family of histograms. The library adds `_seconds` to its name.
///
/// # Errors
///
/// If the text cannot be written.
pub fn durations<'a, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, &'a Histogram)>,
) -> EncodeResult {
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for (labels, took) in rows {
        took.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
