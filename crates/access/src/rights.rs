//! What a grant may do.
//!
//! Rights are layers: what the tenant may do, then what its key or token may do of that. Each layer has to
//! allow a call, so a key can only narrow its tenant's rights. A layer without a certain limit says nothing
//! of it; rights without any layer cost a call the test of one flag.
//!
//! How rights are written is in `rights_settings`; limits on how much may be done are not rights.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wellhead_eth::{AddressBytes, MethodRow, MethodTable};

use crate::method_rights::MethodRights;
use crate::networks::NetworkSet;
use crate::origin::OriginPattern;
use crate::right_denied::RightDenied;
use crate::unix_seconds::UnixSeconds;

/// What one tenant, key or token may do.
#[derive(Debug)]
pub struct RightsLayer {
    /// Sorted.
    pub(crate) chains: Option<Box<[Box<str>]>>,
    pub(crate) methods: Option<MethodRights>,
    /// Sorted.
    pub(crate) contracts: Option<Box<[AddressBytes]>>,
    pub(crate) origins: Option<Vec<OriginPattern>>,
    pub(crate) networks: Option<NetworkSet<()>>,
    /// Sorted.
    pub(crate) select: Option<Box<[Box<str>]>>,
    pub(crate) trail: bool,
    pub(crate) logs_range_max: Option<u64>,
    pub(crate) batch_items_max: Option<u64>,
    pub(crate) expires_at: Option<UnixSeconds>,
}

impl RightsLayer {
    fn limits_heads(&self) -> bool {
        self.origins.is_some() || self.networks.is_some() || self.expires_at.is_some()
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.has(address))
    }

    fn limits_calls(&self) -> bool {
        self.chains.is_some() || self.methods.is_some() || self.contracts.is_some()
    }
}

/// What a connection does that no further call is needed for.
#[derive(Debug, Clone, Copy)]
pub struct BegunWork<'a> {
    /// The chain that it leads to, as the settings name it.
    pub chain: &'a str,
    /// Whether it is subscribed to anything.
    pub is_subscribed: bool,
}

/// The method by which something is begun that goes on.
const SUBSCRIBE: &str = "eth_subscribe";

/// What a grant may do: all that each of its layers allows.
#[derive(Debug, Default)]
pub struct Rights {
    layers: Box<[Arc<RightsLayer>]>,
    limits_heads: bool,
    limits_calls: bool,
    limits_contracts: bool,
    hides_trail: bool,
    logs_range_max: Option<u64>,
    batch_items_max: Option<u64>,
}

impl Rights {
    /// All there are. One value, shared by all that have them.
    pub fn unlimited() -> Arc<Self> {
        static UNLIMITED: OnceLock<Arc<Rights>> = OnceLock::new();
        Arc::clone(UNLIMITED.get_or_init(Arc::default))
    }

    /// Rights of these layers; of none, all there are.
    pub fn new(layers: impl IntoIterator<Item = Arc<RightsLayer>>) -> Self {
        let layers: Box<[_]> = layers.into_iter().collect();
        let any = |limits: fn(&RightsLayer) -> bool| layers.iter().any(|layer| limits(layer));
        let least = |bound: fn(&RightsLayer) -> Option<u64>| {
            layers.iter().filter_map(|layer| bound(layer)).min()
        };
        Self {
            limits_heads: any(RightsLayer::limits_heads),
            limits_calls: any(RightsLayer::limits_calls),
            limits_contracts: any(|layer| layer.contracts.is_some()),
            hides_trail: any(|layer| !layer.trail),
            logs_range_max: least(|layer| layer.logs_range_max),
            batch_items_max: least(|layer| layer.batch_items_max),
            layers,
        }
    }

    /// These rights, narrowed by one more layer.
    pub fn narrowed(&self, layer: Arc<RightsLayer>) -> Self {
        Self::new(self.layers.iter().cloned().chain([layer]))
    }

    /// Whether any chain, method or contract is refused: if not, `check_chain`, `check_method` and
    /// `check_params` need not be called.
    pub fn limits_calls(&self) -> bool {
        self.limits_calls
    }

    /// From when on nothing may be done; `None`: they do not end by themselves.
    pub fn ends_at(&self) -> Option<UnixSeconds> {
        self.layers.iter().filter_map(|layer| layer.expires_at).min()
    }

    /// Whether what began under `old` has to end under these rights, which came in their place: calls are
    /// checked one by one, but a connection leads to one chain, and what is subscribed to goes on by itself.
    pub fn ends_begun(&self, old: &Self, begun: BegunWork<'_>) -> bool {
        let BegunWork { chain, is_subscribed } = begun;
        let loses_chain = old.check_chain(chain).is_ok() && self.check_chain(chain).is_err();
        let subscribe = MethodTable::standard().row(SUBSCRIBE);
        let loses_subscriptions = is_subscribed
            && (self.check_method(subscribe, SUBSCRIBE).is_err() || !self.has_contracts_of(old));
        loses_chain || loses_subscriptions
    }

    /// Whether each contract that may be named under `old` may be named under these.
    fn has_contracts_of(&self, old: &Self) -> bool {
        let first = old.layers.iter().find_map(|layer| layer.contracts.as_ref());
        match first {
            Some(contracts) => {
                let mut were_allowed = contracts.iter().filter(|it| old.allows_contract(it));
                were_allowed.all(|contract| self.allows_contract(contract))
            }
            None => !self.limits_contracts,
        }
    }

    fn allows_contract(&self, contract: &AddressBytes) -> bool {
        let mut lists = self.layers.iter().filter_map(|layer| layer.contracts.as_ref());
        lists.all(|contracts| contracts.binary_search(contract).is_ok())
    }

    /// Whether searches for logs are bounded: if not, `check_logs_range` need not be called.
    pub fn limits_logs_range(&self) -> bool {
        self.logs_range_max.is_some()
    }

    /// Whether a request from this address and web page may be made at `now`, the time since 1970.
    ///
    /// Where origins are limited, a request without `Origin` is refused too: it comes from no page. Origins
    /// keep a key that is public in a page out of other pages; programs can send whichever they like.
    pub fn check_head(
        &self,
        address: IpAddr,
        origin: Option<&[u8]>,
        now: Duration,
    ) -> Result<(), RightDenied> {
        if !self.limits_heads {
            return Ok(());
        }
        for layer in &self.layers {
            if layer.expires_at.is_some_and(|at| at.is_over(now)) {
                return Err(RightDenied::Expired);
            }
            if !layer.allows_address(address) {
                return Err(RightDenied::Network);
            }
            let is_page = |page: &OriginPattern| origin.is_some_and(|origin| page.matches(origin));
            if layer.origins.as_ref().is_some_and(|pages| !pages.iter().any(is_page)) {
                return Err(RightDenied::Origin);
            }
        }
        Ok(())
    }

    /// Whether the chain of this name, as the settings have it, may be called.
    pub fn check_chain(&self, name: &str) -> Result<(), RightDenied> {
        if !self.limits_calls {
            return Ok(());
        }
        let mut lists = self.layers.iter().filter_map(|layer| layer.chains.as_ref());
        let all = lists.all(|chains| has_name(chains, name));
        if all { Ok(()) } else { Err(RightDenied::Chain) }
    }

    /// Whether the method `name`, whose row is `row`, may be called.
    pub fn check_method(&self, row: &MethodRow, name: &str) -> Result<(), RightDenied> {
        if !self.limits_calls {
            return Ok(());
        }
        let mut layers = self.layers.iter().filter_map(|layer| layer.methods.as_ref());
        layers.try_for_each(|methods| methods.check(row, name))
    }

    /// Whether a call may have these parameters (raw JSON): whether the contracts that it names are among
    /// those that are allowed. Walks over the parameters once, and only where contracts are limited; see
    /// [`MethodRow::named_contracts`] for what names one.
    pub fn check_params(&self, row: &MethodRow, params: Option<&[u8]>) -> Result<(), RightDenied> {
        if !self.limits_contracts {
            return Ok(());
        }
        let named = row.named_contracts(params);
        let named = named.map_err(|reason| RightDenied::UnnamedContracts { reason })?;
        for contracts in self.layers.iter().filter_map(|layer| layer.contracts.as_ref()) {
            let foreign = named.iter().find(|contract| contracts.binary_search(contract).is_err());
            if let Some(contract) = foreign {
                return Err(RightDenied::Contract { contract: *contract });
            }
        }
        Ok(())
    }

    /// Whether upstreams may be selected by this label.
    pub fn check_select(&self, label: &str) -> Result<(), RightDenied> {
        let mut lists = self.layers.iter().filter_map(|layer| layer.select.as_ref());
        if lists.all(|labels| has_name(labels, label)) { Ok(()) } else { Err(RightDenied::Select) }
    }

    /// Whether one search for logs may cover this many blocks.
    pub fn check_logs_range(&self, blocks: u64) -> Result<(), RightDenied> {
        match self.logs_range_max.filter(|blocks_max| blocks > *blocks_max) {
            Some(blocks_max) => Err(RightDenied::LogsRange { blocks, blocks_max }),
            None => Ok(()),
        }
    }

    /// Whether one batch may have this many calls.
    pub fn check_batch(&self, items: u64) -> Result<(), RightDenied> {
        match self.batch_items_max.filter(|items_max| items > *items_max) {
            Some(items_max) => Err(RightDenied::BatchItems { items, items_max }),
            None => Ok(()),
        }
    }

    /// Whether the trail of a call is shown on request.
    pub fn shows_trail(&self) -> bool {
        !self.hides_trail
    }
}

fn has_name(sorted: &[Box<str>], name: &str) -> bool {
    sorted.binary_search_by(|it| (**it).cmp(name)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights_settings::RightsSettings;
    use wellhead_eth::UnnamedContracts;

    fn layer(json: &str) -> Arc<RightsLayer> {
        let settings: RightsSettings = serde_json::from_str(&json.replace('\'', "\"")).unwrap();
        settings.resolve("test", &mut Vec::new()).unwrap()
    }

    fn rights(layers: &[&str]) -> Rights {
        Rights::new(layers.iter().map(|json| layer(json)))
    }

    #[test]
    fn heads() {
        use RightDenied::{Expired, Network, Origin};
        // An address, and the origin of a page if there is one.
        let check = |layers: &[&str], from: &str, now: u64, want: Result<(), RightDenied>| {
            let (address, origin) = from.split_once(' ').unzip();
            let address = address.unwrap_or(from).parse().unwrap();
            let now = Duration::from_secs(now);
            let got = rights(layers).check_head(address, origin.map(str::as_bytes), now);
            assert_eq!(got, want, "{layers:?} {from} {now:?}");
        };
        check(&[], "192.0.2.1", 0, Ok(()));
        check(&["{}"], "192.0.2.1", 0, Ok(()));
        let net = "{'networks':['10.0.0.0/8','2001:db8::/32']}";
        let part = "{'networks':['10.1.0.0/16']}";
        check(&[net], "10.1.1.1", 0, Ok(()));
        check(&[net], "::ffff:10.1.1.1", 0, Ok(()));
        check(&[net], "2001:db8::1", 0, Ok(()));
        check(&[net], "192.0.2.1", 0, Err(Network));
        check(&[net, part], "10.1.1.1", 0, Ok(()));
        check(&[net, part], "10.2.1.1", 0, Err(Network));
        let page = "{'origins':['https://a.example','https://*.b.example']}";
        check(&[page], "10.1.1.1 https://a.example", 0, Ok(()));
        check(&[page], "10.1.1.1 https://x.b.example", 0, Ok(()));
        check(&[page], "10.1.1.1 https://c.example", 0, Err(Origin));
        check(&[page], "10.1.1.1 null", 0, Err(Origin));
        check(&[page], "10.1.1.1", 0, Err(Origin));
        let early = "{'expires_at':10}";
        check(&[early], "10.1.1.1", 9, Ok(()));
        check(&[early], "10.1.1.1", 10, Err(Expired));
        check(&["{'expires_at':20}", early], "10.1.1.1", 15, Err(Expired));
    }

    #[test]
    fn what_was_begun_ends_with_the_right_to_it() {
        // `quiet`: without a subscription.
        let check = |old: &[&str], new: &[&str], quiet: bool, subscribed: bool| {
            let (from, to) = (rights(old), rights(new));
            let ends =
                |is_subscribed| to.ends_begun(&from, BegunWork { chain: "base", is_subscribed });
            assert_eq!([ends(false), ends(true)], [quiet, subscribed], "{old:?} {new:?}");
        };
        let (base, other) = ("{'chains':['base']}", "{'chains':['ethereum']}");
        check(&[], &[], false, false);
        check(&[], &[base], false, false);
        check(&[], &[other], true, true);
        check(&[base], &[base, other], true, true);
        // It was of no use before.
        check(&[other], &[other], false, false);
        check(&[], &["{'methods':{'deny':['eth_getLogs']}}"], false, false);
        check(&[], &["{'methods':{'deny':['eth_sub*']}}"], false, true);
        check(&[], &["{'methods':{'allow':['eth_call']}}"], false, true);
        check(&[], &["{'effects':['read']}"], false, true);
        check(&[], &["{'effects':['read','subscribe']}"], false, false);
        let (one, two) = (format!("0x{:040}", 1), format!("0x{:040}", 2));
        let (one, both) =
            (format!("{{'contracts':['{one}']}}"), format!("{{'contracts':['{one}','{two}']}}"));
        check(&[], &[&one], false, true);
        check(&[&both], &[&one], false, true);
        check(&[&one], &[&both], false, false);
        check(&[&one], &[], false, false);
        check(&[&both, &one], &[&one], false, false);
        check(&[&both], &[&both, &one], false, true);
    }

    #[test]
    fn rights_end_with_the_first_of_their_layers() {
        assert_eq!(rights(&[]).ends_at(), None);
        assert_eq!(rights(&["{'chains':['a']}"]).ends_at(), None);
        let both = rights(&["{'expires_at':20}", "{}", "{'expires_at':10}"]);
        assert_eq!(both.ends_at(), Some(UnixSeconds(10)));
    }

    #[test]
    fn chains_methods_and_labels() {
        use RightDenied::{Chain, Method, Select};
        let check = |layers: &[&str], ask: &str, want: Result<(), RightDenied>| {
            let rights = rights(layers);
            let (what, name) = ask.split_once(' ').unwrap();
            let got = match what {
                "chain" => rights.check_chain(name),
                "method" => rights.check_method(MethodTable::standard().row(name), name),
                _ => rights.check_select(name),
            };
            assert_eq!(got, want, "{layers:?} {ask}");
        };
        let (two, base) = ("{'chains':['base','ethereum']}", "{'chains':['base']}");
        check(&[], "chain ethereum", Ok(()));
        check(&[two], "chain ethereum", Ok(()));
        check(&[two], "chain eth", Err(Chain));
        check(&[two, base], "chain ethereum", Err(Chain));
        check(&[base, "{'chains':['ethereum']}"], "chain base", Err(Chain));
        let eth_only = "{'methods':{'allow':['eth_*']}}";
        let no_call = "{'methods':{'deny':['eth_call']}}";
        check(&[], "method debug_setHead", Ok(()));
        check(&[eth_only, no_call], "method eth_getLogs", Ok(()));
        check(&[eth_only, no_call], "method eth_call", Err(Method));
        check(&[eth_only, "{'methods':{'allow':['*']}}"], "method net_version", Err(Method));
        let archive = "{'select':['archive']}";
        check(&[], "select archive", Ok(()));
        check(&[archive], "select archive", Ok(()));
        check(&[archive], "select region", Err(Select));
        check(&[archive, "{'select':[]}"], "select archive", Err(Select));
    }

    #[test]
    fn contracts() {
        use UnnamedContracts::{Any, Method, OwnCode};
        let (a, b) = (format!("0x{}", "aa".repeat(20)), format!("0x{}", "bb".repeat(20)));
        let check = |layers: &[&str], method: &str, params: &str, want: Result<(), RightDenied>| {
            let layers: Vec<_> =
                layers.iter().map(|it| it.replace("0xa", &a).replace("0xb", &b)).collect();
            let layers: Vec<_> = layers.iter().map(String::as_str).collect();
            let params = params
                .replace("0xa", &a.to_uppercase().replace('X', "x"))
                .replace("0xb", &b)
                .replace('\'', "\"");
            let got = rights(&layers)
                .check_params(MethodTable::standard().row(method), Some(params.as_bytes()));
            assert_eq!(got, want, "{layers:?} {method} {params}");
        };
        let other = Err(RightDenied::Contract { contract: [0xbb; 20] });
        let unnamed = |reason| Err(RightDenied::UnnamedContracts { reason });
        let (one, both) = ("{'contracts':['0xa']}", "{'contracts':['0xa','0xb']}");
        check(&[], "eth_call", "[{}]", Ok(()));
        check(&["{}"], "eth_callMany", "[]", Ok(()));
        check(&[one], "eth_call", "[{'to':'0xa'}]", Ok(()));
        check(&[one], "eth_call", "[{'to':'0xb'}]", other);
        check(&[one], "eth_getLogs", "[{'address':['0xa','0xb']}]", other);
        check(
            &["{'contracts':['0xb','0xa']}"],
            "eth_getLogs",
            "[{'address':['0xa','0xb']}]",
            Ok(()),
        );
        check(&[both, one], "eth_call", "[{'to':'0xb'}]", other);
        check(&[one], "eth_getLogs", "[{}]", unnamed(Any));
        check(&[one], "eth_call", "[{}]", unnamed(OwnCode));
        check(&[one], "eth_callMany", "[]", unnamed(Method));
        check(&[one], "eth_blockNumber", "[]", Ok(()));
    }

    #[test]
    fn sizes_take_the_least_bound() {
        let both =
            rights(&["{'logs_range_max':100,'batch_items_max':10}", "{'logs_range_max':50}"]);
        assert_eq!(both.check_logs_range(50), Ok(()));
        assert_eq!(
            both.check_logs_range(51),
            Err(RightDenied::LogsRange { blocks: 51, blocks_max: 50 })
        );
        assert_eq!(both.check_batch(10), Ok(()));
        assert_eq!(both.check_batch(11), Err(RightDenied::BatchItems { items: 11, items_max: 10 }));
        let none = rights(&["{}"]);
        assert_eq!((none.check_logs_range(u64::MAX), none.check_batch(u64::MAX)), (Ok(()), Ok(())));
        assert!(none.shows_trail() && !rights(&["{}", "{'trail':false}"]).shows_trail());
    }

    #[test]
    fn a_narrower_layer_is_added() {
        let tenant = rights(&["{'chains':['a','b']}"]);
        let key = tenant.narrowed(layer("{'chains':['b','c']}"));
        let may = |name| key.check_chain(name).is_ok();
        assert_eq!([may("a"), may("b"), may("c")], [false, true, false]);
        assert!(tenant.check_chain("a").is_ok());
    }

    #[test]
    fn nothing_limited_is_one_flag() {
        assert!(!rights(&[]).limits_calls() && !rights(&["{}"]).limits_calls());
        assert!(rights(&["{'effects':['read']}"]).limits_calls());
        assert!(!rights(&["{'trail':false,'networks':['::1']}"]).limits_calls());
    }
}
