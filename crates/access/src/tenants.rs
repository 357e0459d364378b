//! The tenants of the settings, and grants to them.
//!
//! Built before keys, networks and tokens, which name tenants: a verifier of tokens holds this to make
//! grants of its own.
//!
//! Where the settings name tenants, a key to any other one is a problem: it may be a typing error, and would
//! have no limits. Where they name none there is nothing to mistype, and each tenant that a key, a
//! network or a certificate names exists, without limits ([`TenantDirectory::open`]). The claims of a token
//! are written by others, and make no tenants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash as _;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::caller::{AccessGrant, GrantKind, GrantMeters, Tenant};
use crate::meter::{QuotaSubject, SubjectMeter};
use crate::meter_book::MeterBook;
use crate::quota::{Quota, QuotaPlan};
use crate::rights::Rights;
use crate::rights_settings::RightsSettings;

/// The tenant of clients that show nothing. Settings may give it rights and limits, as any other.
pub const ANONYMOUS: &str = "anonymous";
/// Longest name of a tenant, in bytes. Names are labels of metrics.
pub const TENANT_BYTES_MAX: usize = 64;

/// Names that a problem lists at most.
const NAMES_TOLD_MAX: usize = 10;

/// A tenant as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub rights: RightsSettings,
    /// The named set of limits of all that it does.
    pub quota: Option<String>,
    /// That of each of its keys and subjects that names none.
    pub key_quota: Option<String>,
    /// That of each address that uses what it is granted.
    pub address_quota: Option<String>,
}

/// All tenants, the sets of limits, and what is used of them.
#[derive(Debug, Default)]
pub struct TenantDirectory {
    tenants: HashMap<Arc<str>, TenantEntry>,
    quotas: BTreeMap<Arc<str>, Arc<QuotaPlan>>,
    book: Arc<MeterBook>,
    is_open: bool,
}

#[derive(Debug)]
struct TenantEntry {
    tenant: Arc<Tenant>,
    rights: Arc<Rights>,
    meter: Option<Arc<SubjectMeter>>,
    key_quota: Option<Arc<QuotaPlan>>,
    address_quota: Option<Arc<QuotaPlan>>,
}

/// What is granted to a tenant, beside its name.
#[derive(Debug, Clone, Copy)]
pub struct GrantTerms<'a> {
    /// How the grant is found.
    pub kind: GrantKind,
    /// The public id or the subject. Printable.
    pub id: &'a str,
    /// What has named the subject, for tokens: subjects of two issuers are two.
    pub issuer: Option<&'a str>,
    /// The tenant.
    pub tenant: &'a str,
    /// What it may do of what the tenant may.
    pub rights: Option<&'a RightsSettings>,
    /// The named set of limits of this grant alone.
    pub quota: Option<&'a str>,
}

impl<'a> GrantTerms<'a> {
    /// Those of a grant with what its tenant has, and no issuer.
    pub fn new(kind: GrantKind, id: &'a str, tenant: &'a str) -> Self {
        Self { kind, id, issuer: None, tenant, rights: None, quota: None }
    }
}

impl TenantDirectory {
    /// The directory of these tenants and sets of limits, with what was used as the book has it. Tenants with a problem are in it, too, so
    /// that nothing that names them becomes a second problem: with problems it is not to be used.
    pub fn new(
        tenants: &[TenantSettings],
        quotas: impl IntoIterator<Item = Quota>,
        book: Arc<MeterBook>,
        problems: &mut Vec<String>,
    ) -> Self {
        let plan = |quota: Quota| (Arc::clone(&quota.name), Arc::new(QuotaPlan::new(quota)));
        let quotas = quotas.into_iter().map(plan).collect();
        let mut directory = Self { tenants: HashMap::new(), quotas, book, is_open: false };
        let anonymous = TenantSettings { name: ANONYMOUS.to_owned(), ..TenantSettings::default() };
        directory.insert(&anonymous, problems);
        let mut names = BTreeSet::new();
        for settings in tenants {
            if !names.insert(settings.name.as_str()) {
                problems
                    .push(format!("tenants.{}: there are two tenants of this name", settings.name));
            }
            directory.insert(settings, problems);
        }
        directory
    }

    fn insert(&mut self, settings: &TenantSettings, problems: &mut Vec<String>) {
        let place = format!("tenants.{}", settings.name);
        if let Err(problem) = check_name(&settings.name) {
            problems.push(format!("{place}: {problem}"));
        }
        let rights = match settings.rights.is_empty() {
            true => Rights::unlimited(),
            false => Arc::new(Rights::new(settings.rights.resolve(&place, problems))),
        };
        let mut tenant = Tenant::new(settings.name.as_str());
        if !settings.rights.is_empty() {
            let mut hasher = Xxh3::new();
            settings.rights.hash(&mut hasher);
            tenant.rights_mark = hasher.digest();
        }
        let mut named = |setting: &str, name: &Option<String>| {
            let plan = self.quota(name.as_deref()?);
            plan.map_err(|problem| problems.push(format!("{place}.{setting}: {problem}"))).ok()
        };
        let quota = named("quota", &settings.quota);
        let key_quota = named("key_quota", &settings.key_quota);
        let address_quota = named("address_quota", &settings.address_quota);
        tenant.quota = quota.as_ref().map(|plan| Arc::clone(&plan.quota().name));
        let subject = QuotaSubject::Tenant(Arc::clone(&tenant.name));
        let meter = quota.map(|plan| self.book.named(&subject, &tenant.name, &plan));
        let tenant = Arc::new(tenant);
        let entry =
            TenantEntry { tenant: Arc::clone(&tenant), rights, meter, key_quota, address_quota };
        self.tenants.insert(Arc::clone(&tenant.name), entry);
    }

    /// A tenant that a key, a network or a certificate names exists from now on, without limits, also where
    /// the settings do not name it.
    #[must_use]
    pub fn open(self) -> Self {
        Self { is_open: true, ..self }
    }

    /// What is used of the limits.
    pub fn book(&self) -> &Arc<MeterBook> {
        &self.book
    }

    /// Whether the settings have a tenant of this name.
    pub fn has(&self, tenant: &str) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// Whether this tenant exists with these rights.
    pub(crate) fn has_rights_of(&self, tenant: &Tenant) -> bool {
        let known = self.tenants.get(&tenant.name);
        known.is_some_and(|entry| entry.tenant.rights_mark == tenant.rights_mark)
    }

    /// A grant to a tenant. Errors: the problems of the terms, each beginning with the name of the term.
    pub fn grant(&self, terms: &GrantTerms<'_>) -> Result<AccessGrant, Vec<String>> {
        let mut problems = Vec::new();
        let implied;
        let entry = match self.tenants.get(terms.tenant) {
            Some(entry) => Some(entry),
            None => {
                let entry = self.implied(terms);
                implied = entry.map_err(|problem| problems.push(format!("tenant: {problem}"))).ok();
                implied.as_ref()
            }
        };
        let quota = terms.quota.map(|name| self.quota(name)).transpose();
        let quota = quota.map_err(|problem| problems.push(format!("quota: {problem}")));
        let quota = quota.ok().flatten();
        let rights = terms.rights.filter(|rights| !rights.is_empty());
        let layer = rights.and_then(|rights| rights.resolve("rights", &mut problems));
        let Some(entry) = entry.filter(|_| problems.is_empty()) else { return Err(problems) };
        let mut grant = AccessGrant::new(terms.kind, terms.id, Arc::clone(&entry.tenant));
        let quota = quota.as_ref().or(entry.key_quota.as_ref());
        grant.quota = quota.map(|plan| Arc::clone(&plan.quota().name));
        let subject = QuotaSubject::Grant {
            tenant: Arc::clone(&entry.tenant.name),
            kind: terms.kind.word(),
            id: Arc::clone(&grant.id),
        };
        grant.meters = GrantMeters {
            each_address: entry.address_quota.clone(),
            key: quota.map(|plan| self.book.named(&subject, &meter_name(terms), plan)),
            tenant: entry.meter.clone(),
        };
        grant.rights = match layer {
            Some(layer) => Arc::new(entry.rights.narrowed(layer)),
            None => Arc::clone(&entry.rights),
        };
        Ok(grant)
    }

    /// A tenant that the settings do not name. Nothing of it is kept: its number is the hash of its name.
    fn implied(&self, terms: &GrantTerms<'_>) -> Result<TenantEntry, String> {
        let makes_tenants = match terms.kind {
            GrantKind::Key | GrantKind::Certificate | GrantKind::Network => self.is_open,
            GrantKind::Token | GrantKind::Anonymous => false,
        };
        if !makes_tenants {
            return Err(self.no_tenant(terms.tenant));
        }
        check_name(terms.tenant)?;
        Ok(TenantEntry {
            tenant: Arc::new(Tenant::new(terms.tenant)),
            rights: Rights::unlimited(),
            meter: None,
            key_quota: None,
            address_quota: None,
        })
    }

    fn no_tenant(&self, name: &str) -> String {
        let mut names: Vec<_> = self.tenants.keys().filter(|name| &***name != ANONYMOUS).collect();
        names.sort_unstable();
        there_is_none("tenant", name, names)
    }

    fn quota(&self, name: &str) -> Result<Arc<QuotaPlan>, String> {
        let quota = self.quotas.get(name).cloned();
        quota.ok_or_else(|| there_is_none("quota", name, self.quotas.keys()))
    }
}

fn there_is_none<'k>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'k Arc<str>>,
) -> String {
    let known: Vec<_> = known.into_iter().take(NAMES_TOLD_MAX).map(|it| &**it).collect();
    match known.is_empty() {
        true => format!("there is no {what} `{name}`: none are named"),
        false => format!("there is no {what} `{name}`: there are {}", known.join(", ")),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    match (1..=TENANT_BYTES_MAX).contains(&name.len()) && is_plain {
        true => Ok(()),
        false => Err(format!(
            "the name of a tenant has 1 to {TENANT_BYTES_MAX} visible ASCII characters"
        )),
    }
}

/// The name of the meter of a grant: what a key is called is no name of a token.
fn meter_name(terms: &GrantTerms<'_>) -> Arc<str> {
    match terms.kind {
        GrantKind::Key => terms.id.into(),
        GrantKind::Token => {
            let issuer = terms.issuer.unwrap_or_default();
            format!("token:{}/{}@{issuer}", terms.tenant, terms.id).into()
        }
        GrantKind::Certificate => format!("certificate:{}", terms.id).into(),
        GrantKind::Network => format!("network:{}", terms.id).into(),
        GrantKind::Anonymous => ANONYMOUS.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, quota: Option<&str>, chains: &[&str]) -> TenantSettings {
        let chains =
            (!chains.is_empty()).then(|| chains.iter().map(|it| (*it).to_owned()).collect());
        let rights = RightsSettings { chains, ..RightsSettings::default() };
        let quota = quota.map(str::to_owned);
        TenantSettings { name: name.to_owned(), rights, quota, ..TenantSettings::default() }
    }

    #[track_caller]
    fn check(tenants: &[TenantSettings], want: &[&str]) -> TenantDirectory {
        let mut problems = Vec::new();
        let quotas = ["free", "pro"].map(|name| Quota { name: name.into(), ..Quota::default() });
        let directory = TenantDirectory::new(tenants, quotas, Arc::default(), &mut problems);
        assert_eq!(problems, want);
        directory
    }

    #[test]
    fn problems_of_tenants_are_all_told() {
        check(&[tenant("acme", Some("pro"), &["ethereum"]), tenant("anonymous", None, &[])], &[]);
        check(
            &[
                tenant("acme", Some("por"), &[""]),
                tenant("acme", None, &[]),
                tenant("", None, &[]),
                tenant("a b", None, &[]),
            ],
            &[
                "tenants.acme.chains: ``: a name is not empty",
                "tenants.acme.quota: there is no quota `por`: there are free, pro",
                "tenants.acme: there are two tenants of this name",
                "tenants.: the name of a tenant has 1 to 64 visible ASCII characters",
                "tenants.a b: the name of a tenant has 1 to 64 visible ASCII characters",
            ],
        );
        let mut problems = Vec::new();
        TenantDirectory::new(&[tenant("a", Some("pro"), &[])], [], Arc::default(), &mut problems);
        assert_eq!(problems, ["tenants.a.quota: there is no quota `pro`: none are named"]);
    }

    #[test]
    fn a_grant_has_what_its_terms_and_its_tenant_have() {
        let directory = check(&[tenant("acme", Some("pro"), &["a", "b"])], &[]);
        let rights = tenant("", None, &["b", "c"]).rights;
        let terms = GrantTerms {
            rights: Some(&rights),
            quota: Some("free"),
            ..GrantTerms::new(GrantKind::Token, "alice", "acme")
        };
        let grant = directory.grant(&terms).unwrap();
        assert_eq!((&*grant.id, &*grant.tenant.name), ("alice", "acme"));
        assert_eq!(
            (grant.quota.as_deref(), grant.tenant.quota.as_deref()),
            (Some("free"), Some("pro"))
        );
        let may =
            |grant: &AccessGrant| ["a", "b", "c"].map(|it| grant.rights.check_chain(it).is_ok());
        assert_eq!(may(&grant), [false, true, false]);
        let of_issuer = |issuer| {
            let grant = directory.grant(&GrantTerms { issuer: Some(issuer), ..terms }).unwrap();
            grant.meters.key.expect("a quota").name().to_string()
        };
        assert_ne!(of_issuer("https://a.example"), of_issuer("https://b.example"));
        let plain = directory.grant(&GrantTerms { rights: None, quota: None, ..terms }).unwrap();
        assert_eq!((may(&plain), plain.quota), ([true, true, false], None));
        assert!(directory.has("acme") && directory.has(ANONYMOUS) && !directory.has("acne"));
    }

    #[test]
    fn problems_of_terms_are_all_told() {
        let directory = check(&[], &[]);
        let rights = tenant("", None, &[""]).rights;
        let terms = GrantTerms {
            rights: Some(&rights),
            quota: Some("gold"),
            ..GrantTerms::new(GrantKind::Key, "x", "acme")
        };
        assert_eq!(
            directory.grant(&terms).unwrap_err(),
            [
                "tenant: there is no tenant `acme`: none are named",
                "quota: there is no quota `gold`: there are free, pro",
                "rights.chains: ``: a name is not empty",
            ]
        );
    }

    #[test]
    fn where_no_tenants_are_named_keys_make_them() {
        let directory = check(&[], &[]).open();
        let grant = |kind, tenant| {
            let terms = GrantTerms { quota: Some("free"), ..GrantTerms::new(kind, "x", tenant) };
            directory.grant(&terms).map(|grant| (grant.tenant.number, grant.quota.is_some()))
        };
        let acme = Tenant::new("acme").number;
        assert_eq!(grant(GrantKind::Key, "acme"), Ok((acme, true)));
        assert_eq!(grant(GrantKind::Network, "acme"), Ok((acme, true)));
        assert_eq!(grant(GrantKind::Certificate, "acme"), Ok((acme, true)));
        let problem = "tenant: there is no tenant `acme`: none are named".to_owned();
        assert_eq!(grant(GrantKind::Token, "acme"), Err(vec![problem]));
        let problem =
            "tenant: the name of a tenant has 1 to 64 visible ASCII characters".to_owned();
        assert_eq!(grant(GrantKind::Key, "a b"), Err(vec![problem.clone()]));
        assert_eq!(grant(GrantKind::Key, ""), Err(vec![problem]));
    }

    #[test]
    fn a_tenant_that_is_not_named_is_told_those_that_are() {
        let directory = check(&[tenant("b", None, &[]), tenant("a", None, &[])], &[]);
        let terms = GrantTerms::new(GrantKind::Key, "x", "c");
        let problems = directory.grant(&terms).unwrap_err();
        assert_eq!(problems, ["tenant: there is no tenant `c`: there are a, b"]);
    }

    #[test]
    fn meters_are_those_of_the_tenant_the_key_and_the_address() {
        let settings = TenantSettings {
            key_quota: Some("free".to_owned()),
            address_quota: Some("free".to_owned()),
            ..tenant("acme", Some("pro"), &[])
        };
        let directory = check(&[settings, tenant("plain", None, &[])], &[]);
        let grant = |tenant, id, quota| {
            let terms = GrantTerms { quota, ..GrantTerms::new(GrantKind::Key, id, tenant) };
            directory.grant(&terms).unwrap().meters
        };
        let (one, other) = (grant("acme", "a", None), grant("acme", "b", Some("pro")));
        let name = |meter: &Option<Arc<SubjectMeter>>| {
            meter.as_ref().map(|meter| meter.quota().name.to_string()).unwrap_or_default()
        };
        assert_eq!((name(&one.key), name(&one.tenant)), ("free".to_owned(), "pro".to_owned()));
        assert_eq!(name(&other.key), "pro");
        assert!(Arc::ptr_eq(one.tenant.as_ref().unwrap(), other.tenant.as_ref().unwrap()));
        assert!(Arc::ptr_eq(&one.key.unwrap(), &grant("acme", "a", None).key.unwrap()));
        assert!(one.each_address.is_some());
        let plain = grant("plain", "c", None);
        assert!(plain.each_address.is_none() && plain.key.is_none() && plain.tenant.is_none());
    }

    #[test]
    fn numbers_of_grants_and_tenants_stay() {
        let number = |kind, id| {
            let directory = check(&[tenant("acme", None, &[])], &[]);
            let terms = GrantTerms::new(kind, id, "acme");
            let grant = directory.grant(&terms).unwrap();
            (grant.number, grant.tenant.number)
        };
        assert_eq!(number(GrantKind::Key, "a"), number(GrantKind::Key, "a"));
        assert_ne!(number(GrantKind::Key, "a").0, number(GrantKind::Key, "b").0);
        assert_ne!(number(GrantKind::Key, "a").0, number(GrantKind::Token, "a").0);
    }
}
