//! The settings of traces: where they go, and which are kept.

use std::time::Duration;

use wellhead_proxy::{ParentMode, TraceRules};
use wellhead_telemetry::{Secret, SecretUrl};

use super::chain::Auth;
use super::name::{HeaderName, ReplicaName};
use super::read::{Map, section, with_defaults};
use super::rule::{default, derived, required, secs};
use super::unit::Percent;
use super::value::TextLine;

section! {
    /// Where traces of requests go: an OpenTelemetry collector, or another server of OTLP over HTTP
    /// (protobuf). See docs/traces.md.
    TracesConfig {
        /// Where to send them, with the path: `http://collector:4318/v1/traces`.
        endpoint: SecretUrl = required(),
        /// Headers sent along, such as `authorization`. Their values are never shown.
        headers: Map<HeaderName, Secret> = default(Map::default()),
        /// Credentials for it.
        auth: Option<Auth> = derived("none"),
        /// The part of all requests that leaves a trace, drawn by chance.
        sample: Percent = default(Percent::whole(1)),
        /// Requests that leave a trace though they were not drawn.
        always: TracesAlways = default(TracesAlways::default()),
        /// What the header `traceparent` of a client means. `ignore`: nothing. `continue`: the request
        /// belongs to the trace of its client, and wellhead decides whether it is sampled. `follow`: it
        /// is also sampled if its client says so; for clients of your own, as each could ask for it
        /// with each request.
        parent: ParentMode = default(ParentMode::Continue),
        /// Spans that wait to be sent. A trace for which there is no room is dropped and counted.
        queue: usize = default(8_192).within(64, 1_000_000),
        /// Time for one attempt to send some.
        timeout: Duration = default(secs(10)).within(secs(1), secs(60)),
        /// The name of the service in them (`service.name`).
        service: TextLine = default(TextLine("wellhead".to_owned())),
        /// The name of this wellhead among others (`service.instance.id`).
        instance: Option<ReplicaName> = derived("the name of the host"),
    }
}

section! {
    /// Requests that leave a trace though they were not drawn.
    TracesAlways {
        /// Those that could not be answered, by wellhead's fault or because no upstream could. Errors that
        /// an upstream wrote and calls that are refused are answers.
        errors: bool = default(true),
        /// Those with a call that was sent to a second upstream because the first took long.
        hedged: bool = default(true),
        /// Those that take at least this long.
        slow: Duration = default(secs(1)).within(Duration::from_millis(1), secs(3_600)),
        /// The most traces per second that these reasons, and clients with `parent: follow`, can cause.
        per_second: u32 = default(20).within(1, 100_000),
    }
}

with_defaults!(TracesAlways);

impl TracesConfig {
    /// Which traces are kept.
    pub(crate) fn rules(&self) -> TraceRules {
        let TracesAlways { errors, hedged, slow, per_second } = self.always;
        let (sample, parent) = (self.sample.ratio(), self.parent);
        TraceRules { sample, parent, errors, hedged, slow, per_second }
    }
}
