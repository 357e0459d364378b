//! What all that is sent as OTLP has in common: the way to a collector, and what is said of this process.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, any_value::Value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use wellhead_net::{Auth, Endpoint, HttpVersion};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::Transport;

use crate::outlet::{OutletError, outlet_transport};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A transport to a collector.
pub(crate) fn collector_transport(
    url: SecretUrl,
    headers: impl IntoIterator<Item = (String, Secret)>,
    auth: Auth,
    timeout: Duration,
) -> Result<Arc<dyn Transport>, OutletError> {
    let protobuf = |name: &str| (name.to_owned(), Secret::new("application/x-protobuf"));
    let own = [protobuf("content-type"), protobuf("accept")];
    let headers = headers.into_iter().chain(own).collect();
    let endpoint = Endpoint { headers, auth, version: HttpVersion::H1, ..Endpoint::new(url) };
    outlet_transport(&endpoint, timeout)
}

/// This process, under the name of a service and of an instance of it.
pub(crate) fn resource(service: &str, instance: &str) -> Resource {
    let attributes = [
        ("service.name", service),
        ("service.instance.id", instance),
        ("service.version", VERSION),
    ];
    let attributes = attributes.map(|(name, value)| attribute(name, text(value))).to_vec();
    Resource { attributes, ..Resource::default() }
}

/// What made it.
pub(crate) fn scope() -> InstrumentationScope {
    let (name, version) = ("wellhead".to_owned(), VERSION.to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}

pub(crate) fn attribute(name: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_owned(), value, ..KeyValue::default() }
}

pub(crate) fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}
