//! Checks of tenants, rights, quotas and prices: names that exist, bounds that bound, lists that allow
//! something.

use wellhead_access::{ANONYMOUS, AnonymousRule, QUOTA_GROUPS_MAX, RIGHTS_ITEMS_MAX};

use super::super::access::{QuotaConfig, QuotaGroupConfig, Rights, TenantConfig};
use super::super::callers::anonymous;
use super::super::name::{ChainName, LabelName, QuotaName};
use super::super::near::suggestion;
use super::super::network::Network;
use super::super::problem::SettingPath;
use super::super::read::listed;
use super::Checker;

/// More names in a hint are not read.
const NAMES_SHOWN_MAX: usize = 10;

/// What is there instead, or how to add it.
fn instead(name: &str, known: &[&str], what: &str, add: String) -> String {
    suggestion(name, known.iter().copied(), || match known.len() {
        0 => add,
        count if count > NAMES_SHOWN_MAX => {
            let shown = listed(&known[..NAMES_SHOWN_MAX]);
            format!("the {what} are {shown} and {} more", count - NAMES_SHOWN_MAX)
        }
        _ => format!("the {what} are {}", listed(known)),
    })
}

impl Checker<'_> {
    /// A tenant that something names.
    pub(super) fn tenant_of(&mut self, path: &SettingPath, name: &str) {
        let known: Vec<_> = self.settings.tenants.iter().map(|(name, _)| name.as_ref()).collect();
        if name != ANONYMOUS {
            self.named(path, name, "tenant", &known, "{}");
        }
    }

    /// A quota that something names.
    pub(super) fn quota_of(&mut self, path: &SettingPath, name: Option<&QuotaName>) {
        let known: Vec<_> = self.settings.quotas.iter().map(|(name, _)| name.as_ref()).collect();
        let name = name.map_or("", AsRef::as_ref);
        self.named(path, name, "quota", &known, "{ calls_per_second: 100 }");
    }

    /// What something names is one of those that are `known`; `example`: how one is written.
    fn named(&mut self, path: &SettingPath, name: &str, what: &str, known: &[&str], example: &str) {
        let section = format!("{what}s");
        let is_broken = self.blanks.contains(&SettingPath::root().key(&section));
        if name.is_empty() || known.contains(&name) || is_broken || self.touched(path) {
            return;
        }
        let add = format!("add it: `{section}: {{ {name}: {example} }}`");
        let hint = instead(name, known, &section, add);
        self.error(path, format!("there is no {what} `{name}`"), hint);
    }

    pub(super) fn tenants(&mut self) {
        let (root, settings) = (SettingPath::root().key("tenants"), self.settings);
        for (name, tenant) in settings.tenants.iter() {
            let path = root.key(name.as_ref());
            let TenantConfig { quota, key_quota, address_quota, rights } = tenant;
            self.quota_of(&path.key("quota"), quota.as_ref());
            self.quota_of(&path.key("key_quota"), key_quota.as_ref());
            self.quota_of(&path.key("address_quota"), address_quota.as_ref());
            self.rights(&path.key("rights"), rights);
            if name.as_ref() != ANONYMOUS
                && !self.is_tenant_named(name.as_ref())
                && !self.touched(&SettingPath::root().key("access"))
            {
                let message = "no client can belong to this tenant";
                let hint = "name it in `access.keys`, `access.networks`, `access.certificates` or `access.jwt`, or remove it";
                self.key_warning(&path, message, hint);
            }
            if name.as_ref() == ANONYMOUS
                && anonymous(&settings.access) == AnonymousRule::Deny
                && !self.is_tenant_named(ANONYMOUS)
                && !self.touched(&SettingPath::root().key("access"))
            {
                let message = "this has no effect: clients that show nothing are refused";
                let hint = "write `access: { anonymous: allow }`, or remove it";
                self.key_warning(&path, message, hint);
            }
        }
    }

    /// What a tenant or a key may do.
    pub(super) fn rights(&mut self, path: &SettingPath, rights: &Rights) {
        if self.touched(path) && self.blanks.contains(path) {
            return;
        }
        let count = |list: Option<usize>, name| list.map(|count| (name, count));
        let lists = [
            count(rights.chains.as_ref().map(Vec::len), "chains"),
            count(rights.effects.as_ref().map(Vec::len), "effects"),
            count(rights.contracts.as_ref().map(Vec::len), "contracts"),
            count(rights.origins.as_ref().map(Vec::len), "origins"),
            count(rights.networks.as_ref().map(Vec::len), "networks"),
        ];
        for (name, count) in lists.into_iter().flatten() {
            let place = path.key(name);
            if self.touched(&place) {
                continue;
            }
            if count == 0 {
                let hint = "leave it out, or name what is allowed";
                self.key_error(&place, "an empty list allows nothing", hint);
            }
            self.items_max(&place, count);
        }
        self.items_max(&path.key("select"), rights.select.as_ref().map_or(0, Vec::len));
        self.items_max(&path.key("methods").key("allow"), rights.methods.allow.len());
        self.items_max(&path.key("methods").key("deny"), rights.methods.deny.len());
        self.methods(&path.key("methods"), &rights.methods.allow, &rights.methods.deny);
        self.chains_of(&path.key("chains"), rights.chains.as_deref().unwrap_or_default());
        self.labels_of(&path.key("select"), rights.select.as_deref().unwrap_or_default());
        let networks = rights.networks.as_deref().unwrap_or_default();
        let place = path.key("networks");
        if let Err(problems) = Network::set(networks)
            && !self.touched(&place)
        {
            for problem in problems {
                self.error(&place, problem, "name each network once");
            }
        }
    }

    fn items_max(&mut self, path: &SettingPath, count: usize) {
        if count > RIGHTS_ITEMS_MAX && !self.touched(path) {
            let message = format!("the list has {count} items");
            self.key_error(path, message, format!("at most {RIGHTS_ITEMS_MAX} fit"));
        }
    }

    /// Chains by their names; an alias is for the URL.
    fn chains_of(&mut self, path: &SettingPath, chains: &[ChainName]) {
        let settings = self.settings;
        for (index, name) in chains.iter().enumerate() {
            let (item, name) = (path.item(index), name.as_ref());
            if name.is_empty() || settings.chains.get(name).is_some() || self.touched(&item) {
                continue;
            }
            let mut all = settings.chains.iter();
            let named = all.find(|(_, chain)| chain.other_names().any(|other| other == name));
            if let Some((meant, _)) = named {
                let message = format!("`{name}` is another name of the chain `{meant}`");
                self.error(&item, message, format!("write `{meant}`"));
                continue;
            }
            let known: Vec<_> = settings.chains.iter().map(|(name, _)| name.as_ref()).collect();
            let add = "list it under `chains`".to_owned();
            let hint = instead(name, &known, "chains", add);
            self.error(&item, format!("there is no chain `{name}`"), hint);
        }
    }

    /// Labels that some upstream has.
    fn labels_of(&mut self, path: &SettingPath, labels: &[LabelName]) {
        let settings = self.settings;
        let upstreams = || settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams);
        for (index, label) in labels.iter().enumerate() {
            let item = path.item(index);
            let is_known =
                upstreams().any(|upstream| upstream.labels.get(label.as_ref()).is_some());
            if is_known || self.touched(&item) {
                continue;
            }
            let known = upstreams().flat_map(|upstream| upstream.labels.iter());
            let mut known: Vec<_> = known.map(|(name, _)| name.as_ref()).collect();
            known.sort_unstable();
            known.dedup();
            let add = format!("add `labels: {{ {label}: ... }}` to an upstream");
            let hint = instead(label.as_ref(), &known, "labels", add);
            let message = format!("no upstream has the label `{label}`");
            self.warning(&item, message, hint);
        }
    }

    pub(super) fn quotas(&mut self) {
        let (root, settings) = (SettingPath::root().key("quotas"), self.settings);
        for (name, quota) in settings.quotas.iter() {
            let path = root.key(name.as_ref());
            if self.blanks.contains(&path) {
                continue;
            }
            self.bursts(&path, quota.calls_per_second, quota.credits_per_second);
            let (day, month) = (quota.credits_per_day, quota.credits_per_month);
            let place = path.key("credits_per_day");
            if day.zip(month).is_some_and(|(day, month)| day > month) && !self.touched(&path) {
                let message =
                    "the day's bound is never reached: it is more than `credits_per_month`";
                let hint = "lower `credits_per_day`, or remove it";
                self.warning(&place, message, hint);
            }
            self.quota_groups(&path.key("groups"), &quota.groups);
            if !has_bound(quota) && !self.touched(&path) {
                let hint = "give it one, such as `calls_per_second: 100`";
                self.key_warning(&path, "this quota bounds nothing", hint);
            }
            if !self.is_used(name) && !self.touched(&path) {
                let hint = "name it as `quota` of a tenant or key, or remove it";
                self.key_warning(&path, "nothing uses this quota", hint);
            }
        }
    }

    /// A burst is what a rate lets pass at once.
    fn bursts(&mut self, path: &SettingPath, calls: Option<u32>, credits: Option<u32>) {
        for (rate, key, burst) in
            [(calls, "calls_per_second", "burst"), (credits, "credits_per_second", "credits_burst")]
        {
            if rate.is_none() && !self.touched(&path.key(key)) {
                let message = format!("`{burst}` has no effect: `{key}` is not set");
                let hint = "give the rate as well, or remove it";
                self.without_effect(&path.key(burst), &message, hint);
            }
        }
    }

    fn quota_groups(&mut self, path: &SettingPath, groups: &[QuotaGroupConfig]) {
        if groups.len() > QUOTA_GROUPS_MAX && !self.touched(path) {
            let message = format!("the quota has {} groups", groups.len());
            self.error(
                &path.item(QUOTA_GROUPS_MAX),
                message,
                format!("at most {QUOTA_GROUPS_MAX} fit"),
            );
        }
        for (index, group) in groups.iter().enumerate() {
            let item = path.item(index);
            self.bursts(&item, group.calls_per_second, group.credits_per_second);
            if self.touched(&item) {
                continue;
            }
            self.methods_of(&item, &group.methods, "the group has no methods", "eth_getLogs");
            let bounds = [group.calls_per_second, group.credits_per_second, group.in_flight];
            if bounds.iter().all(Option::is_none) {
                let hint = "give it `calls_per_second`, `credits_per_second` or `in_flight`";
                self.error(&item, "the group bounds nothing", hint);
            }
        }
    }

    /// Whether something names it, or may.
    fn is_used(&self, name: &QuotaName) -> bool {
        let access = &self.settings.access;
        let is = |quota: &Option<QuotaName>| quota.as_ref() == Some(name);
        let of_tenant = |tenant: &TenantConfig| {
            is(&tenant.quota) || is(&tenant.key_quota) || is(&tenant.address_quota)
        };
        self.settings.tenants.iter().any(|(_, tenant)| of_tenant(tenant))
            || access.jwt.iter().any(|jwt| jwt.quota_claim.is_some())
            || access.keys.iter().any(|keys| {
                keys.file.is_some() || keys.redis || keys.list.iter().any(|key| is(&key.quota))
            })
    }

    /// What calls cost.
    pub(super) fn prices(&mut self, path: &SettingPath) {
        let prices = &self.settings.access.prices;
        for (index, price) in prices.iter().enumerate() {
            let item = path.item(index);
            if self.touched(&item) {
                continue;
            }
            self.methods_of(&item, &price.methods, "the price is for no method", "eth_getLogs");
            let earlier = prices[..index].iter().flat_map(|price| &price.methods);
            let message = "this price is never used: those before it match all its methods";
            self.unused_rule(&item, &price.methods, earlier, message);
        }
    }
}

fn has_bound(quota: &QuotaConfig) -> bool {
    let QuotaConfig {
        calls_per_second,
        burst: _,
        credits_per_second,
        credits_burst: _,
        credits_per_day,
        credits_per_month,
        in_flight,
        connections,
        subscriptions,
        groups,
    } = quota;
    let counts = [calls_per_second, credits_per_second, in_flight, connections, subscriptions];
    counts.iter().any(|bound| bound.is_some())
        || credits_per_day.is_some()
        || credits_per_month.is_some()
        || !groups.is_empty()
}
