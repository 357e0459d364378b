//! What a tenant, a key or a token may do, as it is written in settings, records and claims.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wellhead_eth::{AddressBytes, MethodGlob, hex};

use crate::effect_class::EffectClass;
use crate::method_rights::MethodRights;
use crate::networks::{NetworkSet, parse_network};
use crate::origin::OriginPattern;
use crate::rights::RightsLayer;
use crate::unix_seconds::UnixSeconds;

/// Items of one list at most, such as contracts of a key.
pub const RIGHTS_ITEMS_MAX: usize = 1000;

/// Rights as written. What is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RightsSettings {
    /// Names of chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chains: Option<Vec<String>>,
    /// Patterns over names of methods.
    #[serde(skip_serializing_if = "MethodRightsSettings::is_empty")]
    pub methods: MethodRightsSettings,
    /// Words of [`EffectClass`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<Vec<String>>,
    /// Addresses of contracts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contracts: Option<Vec<String>>,
    /// Web pages: `https://app.example.org`, `https://*.example.org`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<String>>,
    /// Networks and addresses of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<String>>,
    /// Labels by which upstreams may be selected (`?label=value`); an empty list for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<Vec<String>>,
    /// Whether the trail of a call is shown on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trail: Option<bool>,
    /// Blocks of one search for logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs_range_max: Option<u64>,
    /// Calls of one batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_items_max: Option<u64>,
    /// Nothing may be done from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixSeconds>,
}

/// Patterns over names of methods, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MethodRightsSettings {
    /// A method must match one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// A method must match none of these, in whatever case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl MethodRightsSettings {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RightsSettings {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reads all of it. Each problem begins with `place`, the path of these rights in the settings.
    /// `None` if there was one.
    pub fn resolve(&self, place: &str, problems: &mut Vec<String>) -> Option<Arc<RightsLayer>> {
        let before = problems.len();
        let mut reader = ListReader { place, problems };
        let methods = MethodRights::new(
            reader.list("methods.allow", self.methods.allow.as_deref(), parse_glob),
            reader.items("methods.deny", &self.methods.deny, parse_glob),
            reader.list("effects", self.effects.as_deref(), parse_effect),
        );
        let layer = RightsLayer {
            chains: reader.list("chains", self.chains.as_deref(), parse_name).map(sorted),
            methods,
            contracts: reader
                .list("contracts", self.contracts.as_deref(), parse_contract)
                .map(sorted),
            origins: reader.list("origins", self.origins.as_deref(), |text| {
                text.parse::<OriginPattern>().map_err(|error| error.to_string())
            }),
            networks: self.networks(&mut reader),
            select: self.select.as_deref().map(|it| sorted(reader.items("select", it, parse_name))),
            trail: self.trail.unwrap_or(true),
            logs_range_max: reader.bound("logs_range_max", self.logs_range_max),
            batch_items_max: reader.bound("batch_items_max", self.batch_items_max),
            expires_at: self.expires_at,
        };
        (problems.len() == before).then(|| Arc::new(layer))
    }

    fn networks(&self, reader: &mut ListReader<'_, '_>) -> Option<NetworkSet<()>> {
        let networks = reader.list("networks", self.networks.as_deref(), |text| {
            parse_network(text).map(|network| (network, ())).map_err(|error| error.to_string())
        })?;
        NetworkSet::new(networks)
            .map_err(|errors| {
                errors.iter().for_each(|error| reader.problem("networks", &error.to_string()));
            })
            .ok()
    }
}

/// Reads the lists of one place, and collects what is wrong with them.
struct ListReader<'p, 's> {
    place: &'s str,
    problems: &'p mut Vec<String>,
}

impl ListReader<'_, '_> {
    fn problem(&mut self, name: &str, problem: &str) {
        self.problems.push(format!("{}.{name}: {problem}", self.place));
    }

    /// A list that limits. An empty one would forbid everything without a word.
    fn list<T>(
        &mut self,
        name: &str,
        list: Option<&[String]>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let list = list?;
        if list.is_empty() {
            self.problem(
                name,
                "an empty list allows nothing: leave it out, or name what is allowed",
            );
        }
        Some(self.items(name, list, parse))
    }

    fn items<T>(
        &mut self,
        name: &str,
        list: &[String],
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        if list.len() > RIGHTS_ITEMS_MAX {
            let problem = format!("at most {RIGHTS_ITEMS_MAX} items, not {}", list.len());
            self.problem(name, &problem);
            return Vec::new();
        }
        let mut items = Vec::with_capacity(list.len());
        for text in list {
            match parse(text) {
                Ok(item) => items.push(item),
                Err(problem) => self.problem(name, &format!("`{text}`: {problem}")),
            }
        }
        items
    }

    fn bound(&mut self, name: &str, bound: Option<u64>) -> Option<u64> {
        if bound == Some(0) {
            self.problem(name, "0 allows nothing: the least is 1");
        }
        bound
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Box<[T]> {
    items.sort_unstable();
    items.dedup();
    items.into()
}

fn parse_glob(text: &str) -> Result<MethodGlob, String> {
    text.parse().map_err(|error: wellhead_eth::MethodGlobError| error.to_string())
}

fn parse_effect(text: &str) -> Result<EffectClass, String> {
    EffectClass::from_word(text).ok_or_else(|| {
        let words: Vec<_> = EffectClass::ALL.iter().map(|effect| effect.word()).collect();
        format!("an effect is one of {}", words.join(", "))
    })
}

fn parse_name(text: &str) -> Result<Box<str>, String> {
    if text.is_empty() { Err("a name is not empty".to_owned()) } else { Ok(text.into()) }
}

fn parse_contract(text: &str) -> Result<AddressBytes, String> {
    hex::decode_array(text).map_err(|_| "a contract is `0x` and 40 hex digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, want: &[&str]) {
        let settings: RightsSettings = serde_json::from_str(&json.replace('\'', "\"")).unwrap();
        let mut problems = Vec::new();
        let layer = settings.resolve("tenants.acme", &mut problems);
        assert_eq!(problems, want, "{json}");
        assert_eq!(layer.is_some(), want.is_empty());
    }

    #[test]
    fn good_rights_are_read() {
        check("{}", &[]);
        check("{'select':[],'methods':{'deny':[]},'trail':true}", &[]);
        check(
            "{'chains':['a'],'methods':{'allow':['eth_*'],'deny':['debug_*']},'effects':['read'],\
             'contracts':['0x00000000000000000000000000000000000000aA'],'origins':['https://a.example'],\
             'networks':['10.0.0.0/8'],'logs_range_max':1,'batch_items_max':1,'expires_at':1}",
            &[],
        );
    }

    #[test]
    fn every_problem_is_told_with_its_place() {
        check(
            "{'chains':[]}",
            &[
                "tenants.acme.chains: an empty list allows nothing: leave it out, or name what is allowed",
            ],
        );
        check("{'chains':['']}", &["tenants.acme.chains: ``: a name is not empty"]);
        check(
            "{'effects':['Read']}",
            &[
                "tenants.acme.effects: `Read`: an effect is one of read, subscribe, broadcast, write, admin",
            ],
        );
        check(
            "{'contracts':['0x1']}",
            &["tenants.acme.contracts: `0x1`: a contract is `0x` and 40 hex digits"],
        );
        check(
            "{'networks':['10.0.0.1/8']}",
            &[
                "tenants.acme.networks: `10.0.0.1/8`: there is more in the address than its prefix: for the whole network write `10.0.0.0/8`",
            ],
        );
        check(
            "{'networks':['::1','::1']}",
            &["tenants.acme.networks: the network `::1/128` is there twice"],
        );
        check(
            "{'logs_range_max':0,'batch_items_max':0}",
            &[
                "tenants.acme.logs_range_max: 0 allows nothing: the least is 1",
                "tenants.acme.batch_items_max: 0 allows nothing: the least is 1",
            ],
        );
        check(
            "{'methods':{'allow':[''],'deny':['?']}}",
            &[
                "tenants.acme.methods.allow: ``: an empty method pattern matches nothing; `*` matches all",
                "tenants.acme.methods.deny: `?`: '?' at character 1: a method pattern has letters, digits, `_`, `.`, `-`, `/`, and `*` for anything",
            ],
        );
        check(
            "{'origins':['example.org']}",
            &[
                "tenants.acme.origins: `example.org`: an origin is `https://app.example.org`, or `https://*.example.org` for all below it",
            ],
        );
    }

    #[test]
    fn lists_are_bounded() {
        let many = vec!["a".to_owned(); RIGHTS_ITEMS_MAX + 1];
        let settings = RightsSettings { chains: Some(many), ..RightsSettings::default() };
        let mut problems = Vec::new();
        assert!(settings.resolve("keys", &mut problems).is_none());
        assert_eq!(problems, ["keys.chains: at most 1000 items, not 1001"]);
    }

    #[test]
    fn nothing_written_is_nothing_limited() {
        assert!(RightsSettings::default().is_empty());
        assert_eq!(serde_json::to_string(&RightsSettings::default()).unwrap(), "{}");
        let some = RightsSettings { trail: Some(false), ..RightsSettings::default() };
        assert!(!some.is_empty());
    }
}
