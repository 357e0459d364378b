//! Who serves which methods on one chain: the settings, turned into sets.
//!
//! Sets per row of the method table are computed once, so that a known method
//! costs one array look-up; unknown methods are matched when they come.

use std::collections::BTreeMap;
use std::sync::Arc;

use wellhead_eth::{MethodGlob, MethodRow, MethodTable};
use wellhead_upstream::{MethodRules, Slot, Upstream, UpstreamId, UpstreamSet};

/// Sends some methods to some upstreams only.
#[derive(Debug, Clone)]
pub struct RouteRule {
    /// Which methods. The first rule that matches a method decides.
    pub methods: Vec<MethodGlob>,
    /// Where they may go.
    pub only: Only,
}

/// Picks upstreams.
#[derive(Debug, Clone)]
pub enum Only {
    /// Those that carry all of these labels.
    Labels(BTreeMap<String, String>),
    /// Those of these names.
    Upstreams(Vec<UpstreamId>),
}

impl Only {
    fn picks(&self, upstream: &Upstream) -> bool {
        let identity = upstream.identity();
        match self {
            Self::Labels(labels) => {
                labels.iter().all(|(name, value)| identity.labels.get(name) == Some(value))
            }
            Self::Upstreams(ids) => ids.contains(&identity.id),
        }
    }
}

/// Why no upstream may be asked for a method, whatever its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotServed {
    /// The chain's `methods` setting keeps it out.
    Forbidden,
    /// The `routes` and the upstreams' own `methods` leave nobody.
    NoUpstream,
    /// They leave somebody, and the client selects none of them.
    NotSelected,
}

/// The upstreams of one chain and what the settings let each serve.
#[derive(Debug)]
pub struct Roster {
    upstreams: Vec<Arc<Upstream>>,
    methods: MethodRules,
    routes: Vec<RouteRule>,
    by_row: Box<[Result<UpstreamSet, NotServed>]>,
}

impl Roster {
    /// Puts `upstreams` under the chain's `methods` and `routes`. The slot of each
    /// upstream must be its place in the list.
    ///
    /// # Panics
    ///
    /// When a slot is not its place: the builder of the list made it so.
    pub fn new(
        upstreams: Vec<Arc<Upstream>>,
        methods: MethodRules,
        routes: Vec<RouteRule>,
    ) -> Self {
        for (place, upstream) in upstreams.iter().enumerate() {
            assert_eq!(upstream.slot().index(), place, "a slot is the place in the roster");
        }
        let mut roster = Self { upstreams, methods, routes, by_row: Box::default() };
        let rows = MethodTable::standard().rows();
        roster.by_row = rows.iter().map(|row| roster.match_method(row.name)).collect();
        roster
    }

    /// The upstreams, by slot.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// The upstream in `slot`.
    pub fn upstream(&self, slot: Slot) -> &Arc<Upstream> {
        &self.upstreams[slot.index()]
    }

    /// Who may be asked for `method`, whose row is `row`.
    pub fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        if row.is_unknown() { self.match_method(method) } else { self.by_row[row.index.get()] }
    }

    fn match_method(&self, method: &str) -> Result<UpstreamSet, NotServed> {
        if !self.methods.permit(method) {
            return Err(NotServed::Forbidden);
        }
        let route =
            self.routes.iter().find(|route| route.methods.iter().any(|glob| glob.matches(method)));
        let picked = |upstream: &Upstream| route.is_none_or(|route| route.only.picks(upstream));
        let set: UpstreamSet = self
            .upstreams
            .iter()
            .filter(|upstream| picked(upstream) && upstream.identity().methods.permit(method))
            .map(|upstream| upstream.slot())
            .collect();
        if set.is_empty() { Err(NotServed::NoUpstream) } else { Ok(set) }
    }
}
