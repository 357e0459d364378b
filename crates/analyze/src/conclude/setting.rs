//! The settings of the proxy that a measurement can give: the one place that knows their names.

/// A setting of an upstream that can be measured. Its text is in [`ProfileKey::path`] alone, and a test
/// of the app compares all of them with what the config reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum ProfileKey {
    /// Which HTTP to speak.
    Http,
    /// Connections that are taken from one address.
    ConnectionsMax,
    /// Streams at once on one connection.
    StreamsMax,
    /// Requests on one connection.
    RequestsMax,
    /// How long a connection may carry nothing.
    Idle,
    /// Credits a second.
    CreditsPerSecond,
    /// Calls a second.
    CallsPerSecond,
    /// In which time they are counted.
    CallsWindow,
    /// Calls that pass at once.
    CallsBurst,
    /// Calls at a time.
    InFlight,
    /// Newest blocks with state.
    State,
    /// Newest blocks.
    Blocks,
    /// Newest blocks with logs.
    Logs,
    /// Newest blocks with traces.
    Traces,
    /// Blocks in one search.
    RangeMax,
    /// Methods that are not served.
    Deny,
}

wellhead_word::variants!(ProfileKey);

impl ProfileKey {
    /// As the config has it, below an upstream: `budget.in_flight`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::ConnectionsMax => "connections_max",
            Self::StreamsMax => "connection.streams_max",
            Self::RequestsMax => "connection.requests_max",
            Self::Idle => "connection.idle",
            Self::CreditsPerSecond => "budget.credits_per_second",
            Self::CallsPerSecond => "budget.calls_per_second",
            Self::CallsWindow => "budget.calls_window",
            Self::CallsBurst => "budget.calls_burst",
            Self::InFlight => "budget.in_flight",
            Self::State => "history.state",
            Self::Blocks => "history.blocks",
            Self::Logs => "history.logs",
            Self::Traces => "history.traces",
            Self::RangeMax => "history.range_max",
            Self::Deny => "methods.deny",
        }
    }
}
