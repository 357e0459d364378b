//! The figures as OTLP metrics, sent to a collector over HTTP.
//!
//! They are sent each [`EVERY`], and once at the end. What a collector does not take is not kept: the next figures
//! have all that these had.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric::Data, number_data_point,
};
use prost::Message as _;
use wellhead_net::Auth;
use wellhead_telemetry::{Secret, SecretUrl, clock};
use wellhead_transport::Transport;

use super::figures::{FigureFamily, FigureKind};
use super::pages::SharedFigures;
use crate::otlp;
use crate::outlet::{instance_name, post};
use crate::terminal::complain;

/// Between two exports.
const EVERY: Duration = Duration::from_secs(30);
/// For one of them.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Of an answer this much is read.
const ANSWER_BYTES: usize = 4_096;

/// Sends figures to a collector.
pub(super) struct MetricExporter {
    way: Arc<dyn Transport>,
    figures: SharedFigures,
    instance: String,
    /// The last export failed; each change is one line.
    is_failing: bool,
}

impl MetricExporter {
    /// Opens no connection yet.
    ///
    /// # Errors
    ///
    /// If the URL or a header cannot be used, in words.
    pub(super) fn new(
        url: SecretUrl,
        headers: Vec<(String, Secret)>,
        figures: SharedFigures,
    ) -> Result<Self, String> {
        let way = otlp::collector_transport(url, headers, Auth::Url, TIMEOUT);
        let way = way.map_err(|error| error.to_string())?;
        Ok(Self { way, figures, instance: instance_name(None), is_failing: false })
    }

    /// Exports for ever.
    pub(super) async fn run(&mut self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.export().await;
        }
    }

    /// Exports what there is now.
    pub(super) async fn export(&mut self) {
        let body = body(&self.figures.families(), &self.instance, clock::unix_time());
        let why = match post(&*self.way, body, TIMEOUT, ANSWER_BYTES).await {
            Err(why) => Some(why),
            Ok(reply) if (200..300).contains(&reply.status) => None,
            Ok(reply) => Some(format!("HTTP {}", reply.status)),
        };
        match &why {
            Some(why) if !self.is_failing => {
                complain(&format!("metrics were not taken by the collector: {why}"));
            }
            None if self.is_failing => complain("metrics are taken by the collector again"),
            Some(_) | None => {}
        }
        self.is_failing = why.is_some();
    }
}

/// The body of one export; `now` is since 1970.
fn body(families: &[FigureFamily], instance: &str, now: Duration) -> Bytes {
    let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let scope = Some(otlp::scope());
    let metrics = families.iter().filter(|family| !family.series.is_empty());
    let metrics = metrics.map(|family| metric(family, nanos)).collect();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(otlp::resource("wellhead-analyze-watch", instance)),
            scope_metrics: vec![ScopeMetrics { scope, metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec().into()
}

fn metric(family: &FigureFamily, nanos: u64) -> Metric {
    let label = |(name, value): &(&str, &str)| otlp::attribute(name, otlp::text(value));
    let points = family.series.iter().map(|series| NumberDataPoint {
        attributes: series.labels().iter().map(label).collect(),
        time_unix_nano: nanos,
        value: Some(number_data_point::Value::AsDouble(series.value)),
        ..NumberDataPoint::default()
    });
    let data_points = points.collect();
    let data = match family.kind {
        FigureKind::Gauge => Data::Gauge(Gauge { data_points }),
        // Counts go on over a restart: when they began is not known.
        FigureKind::Counter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::FigureSeries;
    use super::*;

    #[test]
    fn figures_keep_their_kind_their_labels_and_their_time() {
        let family = |kind, value| FigureFamily {
            name: "a",
            help: "b",
            kind,
            series: vec![FigureSeries { target: "one".to_owned(), quantile: Some("0.5"), value }],
        };
        let empty = FigureFamily { series: Vec::new(), ..family(FigureKind::Gauge, 0.0) };
        let families = [family(FigureKind::Gauge, 1.5), family(FigureKind::Counter, 2.0), empty];
        let bytes = body(&families, "here", Duration::from_secs(7));
        let sent = ExportMetricsServiceRequest::decode(bytes).expect("it is one");
        let metrics = &sent.resource_metrics[0].scope_metrics[0].metrics;
        let [Some(Data::Gauge(gauge)), Some(Data::Sum(sum))] =
            [metrics[0].data.clone(), metrics[1].data.clone()]
        else {
            panic!("{metrics:?}")
        };
        assert_eq!(metrics.len(), 2, "one without figures is not sent");
        assert!(sum.is_monotonic && gauge.data_points[0].time_unix_nano == 7_000_000_000);
        let labels: Vec<&str> =
            gauge.data_points[0].attributes.iter().map(|it| it.key.as_str()).collect();
        assert_eq!(labels, ["target", "quantile"]);
    }
}
