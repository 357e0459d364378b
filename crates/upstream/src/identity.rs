//! The identity of an upstream: its settings, which traffic cannot change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wellhead_eth::MethodGlob;

/// The name of one upstream, unique within its chain. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(Arc<str>);

impl UpstreamId {
    /// Takes the name in.
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a shared string, for an answer's header.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

/// Which upstreams are asked first: all of a tier before any of the next. Its words stand in status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Tier {
    /// Own upstreams, or the provider that is paid for.
    #[default]
    Primary,
    /// Asked when no primary can serve.
    Fallback,
    /// Endpoints without a key; the last to be asked.
    Public,
}

wellhead_word::words!(Tier);

/// Which methods may be sent: an empty `allow` is everything, and `deny` wins, in whatever case a
/// method is written.
#[derive(Debug, Clone, Default)]
pub struct MethodRules {
    /// When not empty, only methods that match one of these.
    pub allow: Vec<MethodGlob>,
    /// Never these.
    pub deny: Vec<MethodGlob>,
}

impl MethodRules {
    /// Whether `deny` names `method`.
    pub fn denies(&self, method: &str) -> bool {
        self.deny.iter().any(|glob| glob.matches_ignoring_case(method))
    }

    /// Whether `method` may be sent.
    pub fn permit(&self, method: &str) -> bool {
        let matched = |globs: &[MethodGlob]| globs.iter().any(|glob| glob.matches(method));
        (self.allow.is_empty() || matched(&self.allow)) && !self.denies(method)
    }
}

/// What the settings say of an upstream.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name.
    pub id: UpstreamId,
    /// Its tier.
    pub tier: Tier,
    /// Words that routes and clients select by, such as `archive: "true"`.
    pub labels: BTreeMap<String, String>,
    /// What may be sent to it.
    pub methods: MethodRules,
    /// The company that runs it, for people.
    pub provider: Option<String>,
    /// How long one attempt may take here, when its settings say other than the chain's.
    pub attempt: Option<Duration>,
    /// How far it may lag, in blocks, before it is left out; the chain's own bound when `None`.
    pub lag_blocks_max: Option<u64>,
    /// Its share of the calls among those that are as fit, beside the weights of the others. At least 1.
    pub weight: u32,
}

impl Identity {
    /// A primary upstream called `name` with no settings of its own.
    pub fn named(name: &str) -> Self {
        Self {
            id: UpstreamId::new(name),
            tier: Tier::Primary,
            labels: BTreeMap::new(),
            methods: MethodRules::default(),
            provider: None,
            attempt: None,
            lag_blocks_max: None,
            weight: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &str, deny: &str) -> MethodRules {
        let globs = |text: &str| {
            text.split_whitespace().map(|glob| glob.parse().expect("a good glob")).collect()
        };
        MethodRules { allow: globs(allow), deny: globs(deny) }
    }

    fn check(allow: &str, deny: &str, method: &str, permitted: bool) {
        assert_eq!(rules(allow, deny).permit(method), permitted, "{allow} / {deny}: {method}");
    }

    #[test]
    fn deny_wins_and_an_empty_allow_is_everything() {
        check("", "", "eth_call", true);
        check("", "debug_*", "eth_call", true);
        check("", "debug_*", "debug_traceBlock", false);
        check("eth_*", "", "eth_call", true);
        check("eth_*", "", "net_version", false);
        check("eth_*", "eth_call", "eth_call", false);
        check("", "debug_*", "Debug_traceBlock", false);
        check("", "Debug_TraceBlock", "debug_traceBlock", false);
        check("eth_*", "", "ETH_call", false);
    }
}
