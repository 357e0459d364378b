//! What records, conditions and reports call the experiments, and the fates of a try of `reach`.

/// Each with what it asks of a target.
pub(crate) const EXPERIMENTS: [(&str, &str); 15] = [
    ("latency", "How long does a single call take?"),
    ("protocol", "Which protocol is fastest, and over how many connections?"),
    ("streams", "How many concurrent streams does one connection allow?"),
    ("bodies", "How fast do large answers arrive, and do small ones wait for them?"),
    ("connection", "How many requests does a connection serve, and how long may it be idle?"),
    ("rate", "How many calls per second pass?"),
    ("window", "How many calls pass in a burst, and how soon does the limit refill?"),
    ("throttle", "Are concurrent calls silently slowed down?"),
    ("cost", "How much does each method count against the rate limit?"),
    ("load", "Which load does it sustain?"),
    ("soak", "Is it stable over a long time?"),
    ("replay", "How would recorded traffic be served?"),
    ("fresh", "How soon does it show a new block?"),
    ("agree", "Does it agree with the others?"),
    ("reach", "Which methods, how much history and which sizes does it serve?"),
];

/// What an experiment asks; empty for one that this build does not know.
pub(crate) fn question(name: &str) -> &'static str {
    let found = EXPERIMENTS.iter().find(|(known, _)| *known == name);
    found.map_or("", |(_, question)| question)
}

/// What became of a try of `reach`. Its words stand in records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TryFate {
    /// Served.
    Served,
    /// Refused for what it is, or for its size.
    Refused,
    /// Not known: it failed in another way.
    Open,
}

wellhead_word::words!(TryFate);
