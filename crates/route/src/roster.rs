//! Which upstreams serve which methods on one chain: the settings, turned into sets.
//!
//! Sets per row of the method table are computed once, so that a known method
//! costs one array look-up; unknown methods are matched when they come.

use std::sync::Arc;

use wellhead_eth::{Access, ChainId, MethodGlob, MethodRow, MethodTable};
use wellhead_upstream::{MethodRules, Slot, UPSTREAMS_MAX, Upstream, UpstreamId, UpstreamSet};

use crate::balance::{Balance, distance, name_hash};

/// Sends some methods to some upstreams only.
#[derive(Debug, Clone)]
pub struct RouteRule {
    /// Which methods. The first rule that matches a method decides.
    pub methods: Vec<MethodGlob>,
    /// Where they may go.
    pub only: Vec<UpstreamId>,
    /// How the upstreams share them, if not as those of the chain.
    pub balance: Option<Balance>,
}

/// The ids of test chains: `geth --dev` and Ganache, Hardhat and Anvil.
pub const TEST_CHAINS: [ChainId; 2] = [ChainId(1337), ChainId(31_337)];

/// Which methods may be called that are not meant for every client ([`Access`]). By default
/// none: such a call stops a node, spends from its accounts, or is a cheat of a test chain.
#[derive(Debug, Clone, Default)]
pub struct DangerousMethods {
    /// These may.
    pub allow: Vec<MethodGlob>,
    /// And those that use keys or cheat may where the chain's id is one of [`TEST_CHAINS`].
    pub on_test_chains: bool,
}

/// Why no upstream may be asked for a method, whatever its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotServed {
    /// The chain's `methods` setting keeps it out.
    Forbidden,
    /// It is a dangerous method, and `methods.dangerous` does not name it.
    Dangerous(Access),
    /// The `routes` and the upstreams' own `methods` leave no upstream.
    NoUpstream,
    /// They leave upstreams, but the client selects none of them.
    NotSelected,
}

/// No place in a list: there are at most [`UPSTREAMS_MAX`] upstreams.
const VACANT: u8 = u8::MAX;
const _: () = assert!(UPSTREAMS_MAX <= VACANT as usize, "a place fits, and is not vacant");

/// The upstreams of one chain and what the settings let each serve.
#[derive(Debug)]
pub struct Roster {
    upstreams: Vec<Arc<Upstream>>,
    /// By slot, the place in the list; [`VACANT`] for slots of upstreams that are gone.
    places: Box<[u8]>,
    methods: MethodRules,
    routes: Vec<RouteRule>,
    dangerous: DangerousMethods,
    /// By place, of the name.
    name_hashes: Box<[u64]>,
    balance: Balance,
    /// The few that the settings make of the many methods.
    policies: Vec<MethodPolicy>,
    /// By row of the method table, the place in `policies`.
    policy_by_row: Box<[u16]>,
}

/// What the settings make of one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MethodPolicy {
    eligible: Result<UpstreamSet, NotServed>,
    balance: Balance,
}

impl Roster {
    /// Puts `upstreams` under the chain's `methods` and `routes`. They stay in this order, which need not be
    /// that of their slots: an upstream keeps its slot when the settings change.
    ///
    /// # Panics
    ///
    /// When two have one slot: the builder of the list gave them out.
    pub fn new(
        upstreams: Vec<Arc<Upstream>>,
        methods: MethodRules,
        routes: Vec<RouteRule>,
    ) -> Self {
        let slots = upstreams.iter().map(|upstream| upstream.slot().index() + 1).max();
        let mut places = vec![VACANT; slots.unwrap_or(0)].into_boxed_slice();
        for (place, upstream) in (0..VACANT).zip(&upstreams) {
            let taken = std::mem::replace(&mut places[upstream.slot().index()], place);
            assert_eq!(taken, VACANT, "a slot belongs to one upstream");
        }
        let dangerous = DangerousMethods::default();
        let hash = |upstream: &Arc<Upstream>| name_hash(upstream.identity().id.as_str());
        let roster = Self {
            name_hashes: upstreams.iter().map(hash).collect(),
            upstreams,
            places,
            methods,
            routes,
            dangerous,
            balance: Balance::default(),
            policies: Vec::new(),
            policy_by_row: Box::default(),
        };
        roster.matched()
    }

    /// With these methods allowed beside those that are meant for every client.
    #[must_use]
    pub fn allowing(self, dangerous: DangerousMethods) -> Self {
        Self { dangerous, ..self }.matched()
    }

    /// Sharing calls in this way, where no route says otherwise.
    #[must_use]
    pub fn balanced(self, balance: Balance) -> Self {
        Self { balance, ..self }.matched()
    }

    fn matched(mut self) -> Self {
        let mut policies = Vec::new();
        let mut place_of = |row: &MethodRow| {
            let policy = MethodPolicy {
                eligible: self.match_method(row, row.name),
                balance: self.match_balance(row.name),
            };
            let known = policies.iter().position(|known| *known == policy);
            let place = known.unwrap_or_else(|| {
                policies.push(policy);
                policies.len() - 1
            });
            u16::try_from(place).expect("there are fewer methods")
        };
        let rows = MethodTable::standard().rows();
        self.policy_by_row = rows.iter().map(&mut place_of).collect();
        self.policies = policies;
        self
    }

    fn policy(&self, row: &MethodRow) -> &MethodPolicy {
        &self.policies[usize::from(self.policy_by_row[row.index.get()])]
    }

    /// How the upstreams share the calls of a method.
    pub fn balance(&self, row: &MethodRow, method: &str) -> Balance {
        match row.is_unknown() {
            true => self.match_balance(method),
            false => self.policy(row).balance,
        }
    }

    fn match_balance(&self, method: &str) -> Balance {
        self.route(method).and_then(|route| route.balance).unwrap_or(self.balance)
    }

    fn route(&self, method: &str) -> Option<&RouteRule> {
        self.routes.iter().find(|route| route.methods.iter().any(|glob| glob.matches(method)))
    }

    /// How far an upstream is from a caller; see [`Balance::Rendezvous`].
    pub(crate) fn distance(&self, upstream: &Upstream, caller: u64) -> f64 {
        let hash = self.name_hashes[self.place(upstream.slot())];
        distance(caller, hash, upstream.identity().weight)
    }

    /// The upstreams, in the order of the settings.
    pub fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }

    /// The place of the upstream in `slot` among them.
    pub fn place(&self, slot: Slot) -> usize {
        self.places[slot.index()].into()
    }

    /// The upstream in `slot`.
    pub fn upstream(&self, slot: Slot) -> &Arc<Upstream> {
        &self.upstreams[self.place(slot)]
    }

    /// The upstream in `slot`, if one is there: what outlives the settings may speak of one that is gone.
    pub fn find(&self, slot: Slot) -> Option<&Arc<Upstream>> {
        let place = self.places.get(slot.index()).filter(|place| **place != VACANT)?;
        self.upstreams.get(usize::from(*place))
    }

    /// The slots of its upstreams, in their order.
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Slot> + '_ {
        self.upstreams.iter().map(|upstream| upstream.slot())
    }

    /// The upstreams that may serve `method`, whose row is `row`.
    pub fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        match row.is_unknown() {
            true => self.match_method(row, method),
            false => self.policy(row).eligible,
        }
    }

    /// Whether a method of this access may be called where the chain is a test chain.
    pub fn allows_on_test_chains(&self, access: Access) -> bool {
        match access {
            Access::Keys | Access::Dev => self.dangerous.on_test_chains,
            Access::Public | Access::Admin => false,
        }
    }

    /// The upstreams that may serve `method`, whatever its access.
    pub fn eligible_on_test_chain(&self, method: &str) -> Result<UpstreamSet, NotServed> {
        if self.methods.denies(method) {
            return Err(NotServed::Forbidden);
        }
        self.serving(method)
    }

    fn match_method(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        match MethodTable::standard().access(row, method) {
            Access::Public if !self.methods.permit(method) => return Err(NotServed::Forbidden),
            Access::Public => {}
            Access::Admin | Access::Keys | Access::Dev if self.methods.denies(method) => {
                return Err(NotServed::Forbidden);
            }
            access @ (Access::Admin | Access::Keys | Access::Dev) => {
                // What is dangerous has a list of its own: `allow: [debug_*]` is written for traces.
                if !self.dangerous.allow.iter().any(|glob| glob.matches(method)) {
                    return Err(NotServed::Dangerous(access));
                }
            }
        }
        self.serving(method)
    }

    /// Those that the routes and their own settings let serve `method`.
    fn serving(&self, method: &str) -> Result<UpstreamSet, NotServed> {
        let route = self.route(method);
        let picked = |upstream: &Upstream| {
            route.is_none_or(|route| route.only.contains(&upstream.identity().id))
        };
        let set: UpstreamSet = self
            .upstreams
            .iter()
            .filter(|upstream| picked(upstream) && upstream.identity().methods.permit(method))
            .map(|upstream| upstream.slot())
            .collect();
        if set.is_empty() { Err(NotServed::NoUpstream) } else { Ok(set) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use wellhead_upstream::{BreakerBounds, Identity};

    use super::*;

    fn globs(text: &str) -> Vec<MethodGlob> {
        text.split_whitespace().map(|glob| glob.parse().expect("a good glob")).collect()
    }

    /// `allow / deny / dangerous`, then a method and what is said of it.
    #[track_caller]
    fn check(rules: &str, method: &str, expected: Result<(), NotServed>) {
        let [allow, deny, dangerous] = rules.split('/').collect::<Vec<_>>()[..] else {
            panic!("three lists: {rules}")
        };
        let identity = Identity::named("a");
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        let upstream = Upstream::new(identity, Slot(0), BreakerBounds::default(), Instant::now());
        let methods = MethodRules { allow: globs(allow), deny: globs(deny) };
        let dangerous = DangerousMethods { allow: globs(dangerous), on_test_chains: false };
        let roster = Roster::new(vec![Arc::new(upstream)], methods, Vec::new()).allowing(dangerous);
        let row = MethodTable::standard().row(method);
        assert_eq!(roster.eligible(row, method).map(drop), expected, "{rules}: {method}");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn upstreams_are_found_by_their_slots_in_any_order() {
        let now = Instant::now();
        let upstreams = [("b", 4), ("a", 1)].map(|(id, slot)| {
            let identity = Identity::named(id);
            Arc::new(Upstream::new(identity, Slot(slot), BreakerBounds::default(), now))
        });
        let roster = Roster::new(upstreams.to_vec(), MethodRules::default(), Vec::new());
        let id = |slot| roster.find(Slot(slot)).map(|upstream| upstream.identity().id.to_string());
        assert_eq!((id(4).as_deref(), id(1).as_deref()), (Some("b"), Some("a")));
        assert_eq!((id(0), id(2), id(5), id(200)), (None, None, None, None));
        assert_eq!((roster.place(Slot(4)), roster.place(Slot(1))), (0, 1));
        let row = MethodTable::standard().row("eth_call");
        let eligible = roster.eligible(row, "eth_call").expect("all");
        assert_eq!(eligible.iter().collect::<Vec<_>>(), [Slot(1), Slot(4)]);
    }

    const DANGEROUS: Result<(), NotServed> = Err(NotServed::Dangerous(Access::Admin));

    #[test]
    fn dangerous_methods_are_off() {
        check("//", "eth_call", Ok(()));
        check("//", "debug_setHead", DANGEROUS);
        check("//", "admin_notListed", DANGEROUS);
        check("//", "eth_sign", Err(NotServed::Dangerous(Access::Keys)));
        check("//", "evm_mine", Err(NotServed::Dangerous(Access::Dev)));
    }

    #[test]
    fn only_their_own_list_allows_them() {
        check("*//", "debug_setHead", DANGEROUS);
        check("debug_* admin_peers//", "admin_peers", DANGEROUS);
        check("//debug_setHead", "debug_setHead", Ok(()));
        check("//debug_setHead", "debug_setGCPercent", DANGEROUS);
        check("//admin_*", "admin_notListed", Ok(()));
        check("eth_*//debug_setHead", "debug_setHead", Ok(()));
    }

    #[test]
    fn that_list_says_nothing_of_the_others_and_deny_wins() {
        check("eth_*//net_version", "net_version", Err(NotServed::Forbidden));
        check("/debug_setHead/debug_*", "debug_setHead", Err(NotServed::Forbidden));
        check("/debug_*/", "debug_setHead", Err(NotServed::Forbidden));
    }
}
