//! Traces beside the series of the durations of calls, for scrapers that ask for the OpenMetrics format.
//!
//! The library that writes the families takes exemplars from histograms of its own alone, which lock at each
//! observation. So they are added to its text: a line of the text that is the series of an exemplar gets it.

use std::collections::HashMap;
use std::fmt::Write as _;

use wellhead_telemetry::clock::ClockPair;
use wellhead_telemetry::histogram::BUCKETS_SECONDS;

use crate::journey::Proxy;
use crate::state::exemplars::ToldExemplar;

const SERIES: &str = "wellhead_call_duration_seconds_bucket{";

/// Adds the exemplars to the text of all families.
pub fn with_exemplars(text: String, proxy: &Proxy, clock: ClockPair) -> String {
    let chains = proxy.chains().iter().map(|chain| {
        let told = chain.counts().chain.exemplars.told(clock);
        told.into_iter().map(|it| (series(&chain.name.name, &it), it))
    });
    let exemplars: HashMap<String, ToldExemplar> = chains.flatten().collect();
    if exemplars.is_empty() {
        return text;
    }
    let mut told = String::with_capacity(text.len() + exemplars.len() * 100);
    for line in text.lines() {
        told.push_str(line);
        let of_line = line.starts_with(SERIES).then(|| line.rsplit_once(' ')).flatten();
        if let Some(exemplar) = of_line.and_then(|(series, _)| exemplars.get(series)) {
            let (took, unix) = (exemplar.took.as_secs_f64(), exemplar.unix.as_millis());
            let (seconds, millis) = (unix / 1000, unix % 1000);
            // Writing to a String cannot fail.
            let _ =
                write!(told, " # {{trace_id=\"{}\"}} {took} {seconds}.{millis:03}", exemplar.trace);
        }
        told.push('\n');
    }
    told
}

/// As the library writes it, without the value.
fn series(chain: &str, exemplar: &ToldExemplar) -> String {
    let bound = match BUCKETS_SECONDS.get(exemplar.bucket) {
        Some(bound) => format!("{bound:?}"),
        None => "+Inf".to_owned(),
    };
    format!("{SERIES}le=\"{bound}\",chain=\"{chain}\",class=\"{}\"}}", exemplar.class.word())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::metrics::family::Family;
    use prometheus_client::registry::{Registry, Unit};
    use wellhead_eth::CostClass;
    use wellhead_telemetry::Histogram;
    use wellhead_transport::TraceId;

    use super::*;

    #[test]
    fn each_series_is_named_as_the_library_writes_it() {
        let family = Family::<Vec<(&str, &str)>, Histogram>::default();
        drop(family.get_or_create(&vec![("chain", "ethereum"), ("class", "state")]));
        let mut registry = Registry::default();
        registry.register_with_unit("wellhead_call_duration", "", Unit::Seconds, family);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
        for bucket in 0..=BUCKETS_SECONDS.len() {
            let trace = TraceId::of([1, 2]);
            let (took, unix) = (Duration::ZERO, Duration::ZERO);
            let it = ToldExemplar { class: CostClass::State, bucket, trace, took, unix };
            let series = format!("\n{} 0\n", series("ethereum", &it));
            assert!(text.contains(&series), "{series} is not in {text}");
        }
    }
}
