//! The tenants of the settings, and grants to them.
//!
//! Built before keys, networks and tokens, which name tenants: a verifier of tokens holds this to make
//! grants of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::caller::{AccessGrant, GrantKind, Tenant};
use crate::rights::Rights;
use crate::rights_settings::RightsSettings;

/// The tenant of clients that show nothing. Settings may give it rights and limits, as any other.
pub const ANONYMOUS: &str = "anonymous";
/// Longest name of a tenant, in bytes. Names are labels of metrics.
pub const TENANT_BYTES_MAX: usize = 64;

/// A tenant as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub rights: RightsSettings,
    /// The named set of limits of all that it does.
    pub quota: Option<String>,
}

/// All tenants, and the names of the sets of limits.
#[derive(Debug, Default)]
pub struct TenantDirectory {
    tenants: HashMap<Arc<str>, TenantEntry>,
    quotas: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct TenantEntry {
    tenant: Arc<Tenant>,
    rights: Arc<Rights>,
}

/// What is granted to a tenant, beside its name.
#[derive(Debug, Clone, Copy)]
pub struct GrantTerms<'a> {
    /// How the grant is found.
    pub kind: GrantKind,
    /// The public id or the subject. Printable.
    pub id: &'a str,
    /// The tenant.
    pub tenant: &'a str,
    /// What it may do of what the tenant may.
    pub rights: Option<&'a RightsSettings>,
    /// The named set of limits of this grant alone.
    pub quota: Option<&'a str>,
}

impl TenantDirectory {
    /// The directory of these tenants and sets of limits. Tenants with a problem are in it all the same,
    /// so that nothing that names them becomes a second problem: with problems it is not to be used.
    pub fn new(
        tenants: &[TenantSettings],
        quotas: impl IntoIterator<Item = impl Into<Arc<str>>>,
        problems: &mut Vec<String>,
    ) -> Self {
        let quotas = quotas.into_iter().map(Into::into).collect();
        let mut directory = Self { tenants: HashMap::new(), quotas };
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
        let is_plain = settings.name.bytes().all(|byte| byte.is_ascii_graphic());
        if settings.name.is_empty() || settings.name.len() > TENANT_BYTES_MAX || !is_plain {
            problems.push(format!(
                "{place}: the name of a tenant has 1 to {TENANT_BYTES_MAX} visible ASCII characters"
            ));
        }
        let rights = match settings.rights.is_empty() {
            true => Rights::unlimited(),
            false => Arc::new(Rights::new(settings.rights.resolve(&place, problems))),
        };
        let mut tenant = Tenant::new(settings.name.as_str());
        match settings.quota.as_deref().map(|name| self.quota(name)) {
            Some(Ok(quota)) => tenant.quota = Some(quota),
            Some(Err(problem)) => problems.push(format!("{place}.{problem}")),
            None => {}
        }
        let tenant = Arc::new(tenant);
        self.tenants.insert(Arc::clone(&tenant.name), TenantEntry { tenant, rights });
    }

    /// Whether there is a tenant of this name.
    pub fn has(&self, tenant: &str) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// A grant to a tenant. Errors: the problems of the terms, each beginning with the name of the term.
    pub fn grant(&self, terms: &GrantTerms<'_>) -> Result<AccessGrant, Vec<String>> {
        let mut problems = Vec::new();
        let entry = self.tenants.get(terms.tenant);
        if entry.is_none() {
            problems.push(format!("tenant: there is no tenant `{}`", terms.tenant));
        }
        let quota = terms.quota.map(|name| self.quota(name)).transpose();
        let quota = quota.map_err(|problem| problems.push(problem)).ok().flatten();
        let rights = terms.rights.filter(|rights| !rights.is_empty());
        let layer = rights.and_then(|rights| rights.resolve("rights", &mut problems));
        let Some(entry) = entry.filter(|_| problems.is_empty()) else { return Err(problems) };
        let mut grant = AccessGrant::new(terms.kind, terms.id, Arc::clone(&entry.tenant));
        grant.quota = quota;
        grant.rights = match layer {
            Some(layer) => Arc::new(entry.rights.narrowed(layer)),
            None => Arc::clone(&entry.rights),
        };
        Ok(grant)
    }

    fn quota(&self, name: &str) -> Result<Arc<str>, String> {
        let quota = self.quotas.get(name).cloned();
        quota.ok_or_else(|| match self.quotas.is_empty() {
            true => format!("quota: there is no quota `{name}`: none are named"),
            false => {
                let names: Vec<_> = self.quotas.iter().take(10).map(|it| &**it).collect();
                format!("quota: there is no quota `{name}`: there are {}", names.join(", "))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str, quota: Option<&str>, chains: &[&str]) -> TenantSettings {
        let chains =
            (!chains.is_empty()).then(|| chains.iter().map(|it| (*it).to_owned()).collect());
        let rights = RightsSettings { chains, ..RightsSettings::default() };
        TenantSettings { name: name.to_owned(), rights, quota: quota.map(str::to_owned) }
    }

    #[track_caller]
    fn check(tenants: &[TenantSettings], want: &[&str]) -> TenantDirectory {
        let mut problems = Vec::new();
        let directory = TenantDirectory::new(tenants, ["free", "pro"], &mut problems);
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
        TenantDirectory::new(&[tenant("a", Some("pro"), &[])], [""; 0], &mut problems);
        assert_eq!(problems, ["tenants.a.quota: there is no quota `pro`: none are named"]);
    }

    #[test]
    fn a_grant_has_what_its_terms_and_its_tenant_have() {
        let directory = check(&[tenant("acme", Some("pro"), &["a", "b"])], &[]);
        let rights = tenant("", None, &["b", "c"]).rights;
        let terms = GrantTerms {
            kind: GrantKind::Token,
            id: "alice",
            tenant: "acme",
            rights: Some(&rights),
            quota: Some("free"),
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
        let plain = directory.grant(&GrantTerms { rights: None, quota: None, ..terms }).unwrap();
        assert_eq!((may(&plain), plain.quota), ([true, true, false], None));
        assert!(directory.has("acme") && directory.has(ANONYMOUS) && !directory.has("acne"));
    }

    #[test]
    fn problems_of_terms_are_all_told() {
        let directory = check(&[], &[]);
        let rights = tenant("", None, &[""]).rights;
        let terms = GrantTerms {
            kind: GrantKind::Key,
            id: "x",
            tenant: "acme",
            rights: Some(&rights),
            quota: Some("gold"),
        };
        assert_eq!(
            directory.grant(&terms).unwrap_err(),
            [
                "tenant: there is no tenant `acme`",
                "quota: there is no quota `gold`: there are free, pro",
                "rights.chains: ``: a name is not empty",
            ]
        );
    }

    #[test]
    fn numbers_of_grants_and_tenants_stay() {
        let number = |kind, id| {
            let directory = check(&[tenant("acme", None, &[])], &[]);
            let terms = GrantTerms { kind, id, tenant: "acme", rights: None, quota: None };
            let grant = directory.grant(&terms).unwrap();
            (grant.number, grant.tenant.number)
        };
        assert_eq!(number(GrantKind::Key, "a"), number(GrantKind::Key, "a"));
        assert_ne!(number(GrantKind::Key, "a").0, number(GrantKind::Key, "b").0);
        assert_ne!(number(GrantKind::Key, "a").0, number(GrantKind::Token, "a").0);
    }
}
