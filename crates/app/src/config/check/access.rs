//! Checks of who may call: keys, where they are shown, networks, certificates, and clients that show
//! nothing.
//!
//! Tenants, quotas and prices are in `tenant`, issuers of tokens in `jwt`. What is left is asked of
//! [`plan`], which makes of the settings what serves, so that `check` and `serve` never disagree.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use wellhead_access::{AccessTable, AnonymousRule, KEY_PREFIX, KeyRecord, Pepper, parse_network};

use super::super::access::{AccessKeys, AccessNetwork};
use super::super::callers::{anonymous, plan};
use super::super::problem::{Problem, SettingPath, Severity};
use super::super::read::Setting as _;
use super::super::value::KeyPlace;
use super::Checker;

/// The sections that speak of callers.
const SECTIONS: [&str; 3] = ["access", "tenants", "quotas"];

impl Checker<'_> {
    /// All of it. `keys`: those of the file of keys, if it was read.
    pub(super) fn callers(&mut self, keys: Option<Vec<KeyRecord>>) {
        let path = SettingPath::root().key("access");
        self.key_stores(&path.key("keys"));
        self.key_list(&path.key("keys").key("list"));
        self.key_places(&path.key("from"));
        self.access_networks(&path.key("networks"));
        self.access_certificates(&path.key("certificates"));
        self.issuers(&path.key("jwt"));
        self.anonymous(&path.key("anonymous"));
        self.prices(&path.key("prices"));
        self.tenants();
        self.quotas();
        self.planned(&path, keys);
    }

    /// What is wrong with them that none of the checks here sees.
    fn planned(&mut self, path: &SettingPath, keys: Option<Vec<KeyRecord>>) {
        let sections = SECTIONS.map(|section| SettingPath::root().key(section));
        let is_ours = |at: &SettingPath| sections.iter().any(|section| at.is_within(section));
        let is_known = |problem: &Problem| {
            problem.severity == Severity::Error && is_ours(&problem.path)
                || problem.path.steps().is_empty()
        };
        if self.problems.iter().any(is_known) || self.blanks.iter().any(is_ours) {
            return;
        }
        match plan(self.settings, Arc::default(), None) {
            Err(problems) => {
                for problem in problems {
                    self.push(Problem::error(path, problem));
                }
            }
            Ok(planned) => {
                let Some((planned, keys)) = planned.zip(keys) else { return };
                // An id of the list counts there.
                let all: Vec<_> = planned.listed.into_iter().chain(keys).collect();
                for problem in AccessTable::build(planned.policy, &all).key_problems {
                    let hint = "it is not used; correct it with `wellhead key`, or in the file";
                    let place = path.key("keys").key("file");
                    self.warning(&place, problem, hint);
                }
            }
        }
    }

    /// Where keys are kept, and what is mixed into their hashes.
    fn key_stores(&mut self, path: &SettingPath) {
        let settings = self.settings;
        let Some(keys) = &settings.access.keys else { return };
        let AccessKeys { file, redis, list, pepper, foreign, env: _, stale_max } = keys;
        if file.is_none() && !redis && list.is_empty() && !self.touched(path) {
            let hint = "name a file: `keys: { file: keys.jsonl }`, which `wellhead key create` writes; or remove `keys`";
            self.key_error(path, "`keys` does not say where the keys are", hint);
        }
        let place = path.key("stale_max");
        let default = AccessKeys::blank().stale_max;
        if file.is_none() && !redis && *stale_max != default && self.given(&place) {
            let message = "`stale_max` has no effect: the keys stand here and are never stale";
            self.without_effect(&place, message, "remove it");
        }
        let place = path.key("pepper");
        let hint = "make one with `openssl rand -hex 32`, and keep it: keys made with another one are not valid";
        match pepper {
            Some(pepper) if !self.touched(&place) => {
                if Pepper::parse(pepper).is_err() {
                    self.error(&place, "expected 64 hex digits", hint);
                }
            }
            None if *foreign && !self.touched(&place) => {
                let message = "keys that wellhead did not make can be guessed from their hashes without a `pepper`";
                self.error(&path.key("foreign"), message, format!("set `pepper`: {hint}"));
            }
            Some(_) | None => {}
        }
    }

    fn key_list(&mut self, path: &SettingPath) {
        let settings = self.settings;
        let Some(keys) = &settings.access.keys else { return };
        let (mut ids, mut hashes) = (HashMap::new(), HashMap::new());
        for (index, key) in keys.list.iter().enumerate() {
            let item = path.item(index);
            self.tenant_of(&item.key("tenant"), key.tenant.as_ref());
            self.quota_of(&item.key("quota"), key.quota.as_ref());
            self.rights(&item.key("rights"), &key.rights);
            let (id, hash) = (item.key("id"), item.key("hash"));
            if let Some(first) = self.seen_before(&mut ids, key.id, &id) {
                let hint = "each key has its own id, which `wellhead key create` shows";
                self.clash(&id, &first, "two keys have this id", hint);
            } else if let Some(first) = self.seen_before(&mut hashes, key.hash.to_hex(), &hash) {
                let hint = "give each key the hash that `wellhead key create` shows with its id";
                self.clash(&hash, &first, "two keys have this hash", hint);
            }
        }
    }

    /// Where `name` was seen first, if it was seen before; what could not be read was not.
    pub(super) fn seen_before<K: Eq + Hash>(
        &self,
        seen: &mut HashMap<K, SettingPath>,
        name: K,
        place: &SettingPath,
    ) -> Option<SettingPath> {
        if self.touched(place) {
            return None;
        }
        match seen.entry(name) {
            Entry::Occupied(first) => Some(first.get().clone()),
            Entry::Vacant(free) => {
                free.insert(place.clone());
                None
            }
        }
    }

    /// Where keys and tokens are looked for.
    fn key_places(&mut self, path: &SettingPath) {
        if self.touched(path) {
            return;
        }
        let access = &self.settings.access;
        let (has_keys, has_tokens) = (access.keys.is_some(), !access.jwt.is_empty());
        let from = &access.from;
        let carries_tokens = |place: &KeyPlace| {
            matches!(place, KeyPlace::Bearer | KeyPlace::Subprotocol | KeyPlace::Query)
        };
        if from.is_empty() && (has_keys || has_tokens) {
            let message = "no place is left where a client may put its key or token";
            self.error(path, message, "write `from: [x-api-key, bearer]`, or leave it out");
        } else if has_tokens && !from.iter().any(carries_tokens) {
            let message = "no place is left where a client may put its token (JWT)";
            self.error(path, message, "add `bearer`, or remove `access.jwt`");
        }
        if let Some(index) = from.iter().position(|place| *place == KeyPlace::Query) {
            let message =
                "keys in the query end up in the logs of proxies and in browser histories";
            let hint = "remove `query`, unless a client can send its key in no other way";
            self.warning(&path.item(index), message, hint);
        }
    }

    fn access_networks(&mut self, path: &SettingPath) {
        let settings = self.settings;
        let mut seen = HashMap::new();
        for (index, network) in settings.access.networks.iter().enumerate() {
            let item = path.item(index);
            let AccessNetwork { cidr, tenant, deny } = network;
            if let Some(tenant) = tenant {
                self.tenant_of(&item.key("tenant"), tenant.as_ref());
            }
            // Two texts may be one network.
            if let Ok(network) = parse_network(cidr.as_ref())
                && let Some(first) = self.seen_before(&mut seen, network, &item.key("cidr"))
            {
                let message = "this network is listed twice";
                self.clash(&item.key("cidr"), &first, message, "keep one of the two");
            }
            let problem = match (tenant, deny) {
                (Some(_), true) => ("the network has both `tenant` and `deny`", "keep one of them"),
                (None, false) => (
                    "the network has neither `tenant` nor `deny`",
                    "write `tenant: NAME`, or `deny: true`",
                ),
                (Some(_), false) | (None, true) => continue,
            };
            if !self.touched(&item) {
                self.error(&item, problem.0, problem.1);
            }
        }
    }

    fn access_certificates(&mut self, path: &SettingPath) {
        let settings = self.settings;
        let certificates = &settings.access.certificates;
        let asks = settings.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let tls = SettingPath::root().key("tls");
        if !certificates.is_empty() && !asks && !self.touched(path) && !self.touched(&tls) {
            let message = "`certificates` has no effect: `tls.clients` does not ask for them";
            self.key_error(path, message, "set `tls` with `clients: { ca: FILE }`");
        }
        let mut seen = HashMap::new();
        for (name, tenant) in certificates.iter() {
            let place = path.key(name.as_ref());
            self.tenant_of(&place, tenant.as_ref());
            let Ok(read) = name.as_ref().parse::<wellhead_access::CertificateName>() else {
                continue;
            };
            if let Some(first) = self.seen_before(&mut seen, read, &place) {
                let hint = "case does not matter in `dns:` names: keep one of the two";
                self.key_clash(&place, &first, "this name is listed twice", hint);
            }
        }
    }

    /// At least one client may call.
    fn anonymous(&mut self, path: &SettingPath) {
        let access = &self.settings.access;
        if anonymous(access) == AnonymousRule::Allow
            || self.touched(&SettingPath::root().key("access"))
        {
            return;
        }
        let is_known = access.keys.is_some()
            || !access.jwt.is_empty()
            || access.networks.iter().any(|network| network.tenant.is_some())
            || !access.certificates.is_empty();
        if !is_known {
            let hint = "set up `access.keys`, `access.jwt`, `access.networks` or `access.certificates`, or write `anonymous: allow`";
            self.error(path, "no client could call: none can show who it is", hint);
        }
    }

    /// Whether something that a client shows makes it belong to this tenant, or may.
    pub(super) fn is_tenant_named(&self, tenant: &str) -> bool {
        let access = &self.settings.access;
        let is = |name: &str| name == tenant;
        let keys = access.keys.iter();
        keys.clone().any(|keys| keys.file.is_some() || keys.redis)
            || keys.flat_map(|keys| &keys.list).any(|key| is(key.tenant.as_ref()))
            || access.networks.iter().filter_map(|it| it.tenant.as_ref()).any(|it| is(it.as_ref()))
            || access.certificates.iter().any(|(_, tenant)| is(tenant.as_ref()))
            || access.jwt.iter().any(|jwt| {
                jwt.tenant_claim.is_some() || jwt.tenant.as_ref().is_some_and(|it| is(it.as_ref()))
            })
    }

    /// Paths of chains that would be taken for keys.
    pub(super) fn chains_like_keys(&mut self) {
        let (root, settings) = (SettingPath::root().key("chains"), self.settings);
        for (name, chain) in settings.chains.iter() {
            let path = root.key(name.as_ref());
            let message = format!("a name that begins with `{KEY_PREFIX}` is taken for a key");
            let hint = "begin it otherwise: it is part of the URL, where keys may stand";
            if name.as_ref().starts_with(KEY_PREFIX) && !self.touched_exactly(&path) {
                self.key_error(&path, &message, hint);
            }
            for (index, alias) in chain.aliases.iter().enumerate() {
                let item = path.key("aliases").item(index);
                if alias.as_ref().starts_with(KEY_PREFIX) && !self.touched(&item) {
                    self.error(&item, &message, hint);
                }
            }
        }
    }
}
