//! What is decided about callers beside the keys: sources of credentials, networks, certificates, anonymous
//! clients, trusted proxies.
//!
//! Made once for each load of the settings; tables of keys that follow each other share it.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::caller::{AccessGrant, GrantKind};
use crate::client_address::ProxyTrust;
use crate::credential::CredentialSources;
use crate::key_hash::Pepper;
use crate::networks::{NetworkSet, parse_network};
use crate::tenants::{ANONYMOUS, GrantTerms, TenantDirectory};
use crate::token::TokenVerifier;

/// The settings of access, the keys apart.
#[derive(Debug, Clone)]
pub struct AccessSettings {
    /// The tenants that all else names.
    pub tenants: Arc<TenantDirectory>,
    /// Where secrets are looked for.
    pub sources: CredentialSources,
    /// The secret with which keys are hashed.
    pub pepper: Pepper,
    /// Verifies signed tokens, if any are accepted.
    pub tokens: Option<Arc<dyn TokenVerifier>>,
    /// What is said of networks.
    pub networks: Vec<NetworkRule>,
    /// What is said of names in client certificates.
    pub certificates: Vec<CertificateRule>,
    /// Whether a client may call that shows nothing.
    pub anonymous: AnonymousRule,
    /// Which proxies are believed.
    pub trust: ProxyTrust,
}

/// Whether a client may call that shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnonymousRule {
    /// It is refused.
    Deny,
    /// It belongs to the tenant [`ANONYMOUS`].
    Allow,
}

/// What is said of one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRule {
    /// As [`parse_network`] reads it.
    pub network: String,
    /// What happens to its clients.
    pub action: NetworkAction,
}

/// What happens to clients of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkAction {
    /// Without a credential they belong to this tenant.
    Tenant(String),
    /// They are refused, whatever they show.
    Deny,
}

/// The tenant of a name in client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRule {
    /// The name.
    pub name: CertificateName,
    /// The tenant.
    pub tenant: String,
}

/// A name in a verified client certificate. One text of two kinds is two names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// A URI among the subject's alternative names, such as a SPIFFE id.
    Uri(Box<str>),
    /// A DNS name among them, in lower case.
    Dns(Box<str>),
    /// The subject's common name.
    CommonName(Box<str>),
}

impl CertificateName {
    /// A DNS name, in whatever case.
    pub fn dns(name: &str) -> Self {
        Self::Dns(name.to_ascii_lowercase().into())
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(name) => write!(f, "uri:{name}"),
            Self::Dns(name) => write!(f, "dns:{name}"),
            Self::CommonName(name) => write!(f, "cn:{name}"),
        }
    }
}

/// A text that names nothing in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name in a certificate is `uri:spiffe://example.org/a`, `dns:a.example.org` or `cn:a`")]
pub struct CertificateNameError;

impl FromStr for CertificateName {
    type Err = CertificateNameError;

    fn from_str(text: &str) -> Result<Self, CertificateNameError> {
        match text.split_once(':') {
            Some((_, "")) | None => Err(CertificateNameError),
            Some(("uri", name)) => Ok(Self::Uri(name.into())),
            Some(("dns", name)) => Ok(Self::dns(name)),
            Some(("cn", name)) => Ok(Self::CommonName(name.into())),
            Some(_) => Err(CertificateNameError),
        }
    }
}

/// [`AccessSettings`] without a mistake in them, ready for look-ups.
#[derive(Debug)]
pub struct AccessPolicy {
    pub(crate) tenants: Arc<TenantDirectory>,
    pub(crate) sources: CredentialSources,
    pub(crate) pepper: Pepper,
    pub(crate) tokens: Option<Arc<dyn TokenVerifier>>,
    pub(crate) networks: NetworkSet<NetworkVerdict>,
    pub(crate) certificates: HashMap<CertificateName, Arc<AccessGrant>>,
    pub(crate) anonymous: Option<Arc<AccessGrant>>,
    pub(crate) trust: ProxyTrust,
}

#[derive(Debug, Clone)]
pub(crate) enum NetworkVerdict {
    Denied,
    Granted(Arc<AccessGrant>),
}

impl AccessPolicy {
    /// Reads the settings. All problems are collected; with one there is no policy.
    pub fn new(settings: AccessSettings, problems: &mut Vec<String>) -> Option<Arc<Self>> {
        let before = problems.len();
        check_sources(&settings, problems);
        let networks = networks(&settings, problems);
        let certificates = certificates(&settings, problems);
        let anonymous = match settings.anonymous {
            AnonymousRule::Deny => None,
            AnonymousRule::Allow => {
                grant(&settings.tenants, GrantKind::Anonymous, [ANONYMOUS, ANONYMOUS], problems)
            }
        };
        let AccessSettings { tenants, sources, pepper, tokens, trust, .. } = settings;
        (problems.len() == before).then(|| {
            Arc::new(Self {
                tenants,
                sources,
                pepper,
                tokens,
                networks,
                certificates,
                anonymous,
                trust,
            })
        })
    }

    /// The tenants and the sets of limits.
    pub fn tenants(&self) -> &Arc<TenantDirectory> {
        &self.tenants
    }

    /// The secret with which keys are hashed.
    pub fn pepper(&self) -> &Pepper {
        &self.pepper
    }
}

/// Settings that would refuse everything, or do nothing, without a word.
fn check_sources(settings: &AccessSettings, problems: &mut Vec<String>) {
    let CredentialSources {
        path,
        x_api_key,
        bearer,
        basic,
        websocket_protocol,
        query,
        foreign_keys,
    } = settings.sources;
    let any = path || x_api_key || bearer || basic || websocket_protocol || query;
    if foreign_keys && settings.pepper.is_well_known() {
        problems.push(
            "access.foreign_keys: keys that were not made here can be guessed from their hashes: set a pepper"
                .to_owned(),
        );
    }
    if foreign_keys && !any {
        problems.push(
            "access.foreign_keys: there is no source of keys: name one in access.from".to_owned(),
        );
    }
    if settings.tokens.is_some() && !(bearer || websocket_protocol || query) {
        problems.push(
            "access.jwt: tokens come as `bearer`, which access.from does not name".to_owned(),
        );
    }
    let is_closed = settings.anonymous == AnonymousRule::Deny;
    if is_closed && !any && settings.networks.is_empty() && settings.certificates.is_empty() {
        problems.push(
            "access.anonymous: `deny` refuses every request: there is no source of keys, no network and no certificate that may call"
                .to_owned(),
        );
    }
}

fn networks(settings: &AccessSettings, problems: &mut Vec<String>) -> NetworkSet<NetworkVerdict> {
    let mut networks = Vec::with_capacity(settings.networks.len());
    for rule in &settings.networks {
        let network = match parse_network(&rule.network) {
            Ok(network) => network,
            Err(error) => {
                problems.push(format!("access.networks: `{}`: {error}", rule.network));
                continue;
            }
        };
        let verdict = match &rule.action {
            NetworkAction::Deny => NetworkVerdict::Denied,
            NetworkAction::Tenant(tenant) => {
                let terms = [network.to_string(), tenant.clone()];
                let terms = terms.each_ref().map(String::as_str);
                match grant(&settings.tenants, GrantKind::Network, terms, problems) {
                    Some(grant) => NetworkVerdict::Granted(grant),
                    None => continue,
                }
            }
        };
        networks.push((network, verdict));
    }
    NetworkSet::new(networks).unwrap_or_else(|errors| {
        problems.extend(errors.iter().map(|error| format!("access.networks: {error}")));
        NetworkSet::default()
    })
}

fn certificates(
    settings: &AccessSettings,
    problems: &mut Vec<String>,
) -> HashMap<CertificateName, Arc<AccessGrant>> {
    let mut certificates = HashMap::with_capacity(settings.certificates.len());
    for rule in &settings.certificates {
        let id = rule.name.to_string();
        let terms = [id.as_str(), rule.tenant.as_str()];
        let grant = grant(&settings.tenants, GrantKind::Certificate, terms, problems);
        let Some(grant) = grant else { continue };
        if certificates.insert(rule.name.clone(), grant).is_some() {
            problems.push(format!("access.certificates: `{id}` is there twice"));
        }
    }
    certificates
}

/// A grant of all that a tenant may do.
fn grant(
    tenants: &TenantDirectory,
    kind: GrantKind,
    [id, tenant]: [&str; 2],
    problems: &mut Vec<String>,
) -> Option<Arc<AccessGrant>> {
    let terms = GrantTerms::new(kind, id, tenant);
    let place = match kind {
        GrantKind::Network => "access.networks",
        GrantKind::Certificate => "access.certificates",
        GrantKind::Anonymous | GrantKind::Key | GrantKind::Token => "access",
    };
    match tenants.grant(&terms) {
        Ok(grant) => Some(Arc::new(grant)),
        Err(errors) => {
            problems.extend(errors.iter().map(|error| format!("{place}: `{id}`: {error}")));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::TenantSettings;

    fn settings() -> AccessSettings {
        let acme = TenantSettings { name: "acme".to_owned(), ..TenantSettings::default() };
        AccessSettings {
            tenants: Arc::new(TenantDirectory::new(&[acme], [], Arc::default(), &mut Vec::new())),
            sources: CredentialSources::default(),
            pepper: Pepper::well_known(),
            tokens: None,
            networks: Vec::new(),
            certificates: Vec::new(),
            anonymous: AnonymousRule::Deny,
            trust: ProxyTrust::default(),
        }
    }

    #[track_caller]
    fn check(settings: AccessSettings, want: &[&str]) {
        let mut problems = Vec::new();
        let policy = AccessPolicy::new(settings, &mut problems);
        assert_eq!(problems, want);
        assert_eq!(policy.is_some(), want.is_empty());
    }

    fn network(network: &str, tenant: &str) -> NetworkRule {
        let action = match tenant {
            "deny" => NetworkAction::Deny,
            tenant => NetworkAction::Tenant(tenant.to_owned()),
        };
        NetworkRule { network: network.to_owned(), action }
    }

    #[test]
    fn good_settings_make_a_policy() {
        check(settings(), &[]);
        let networks = vec![network("10.0.0.0/8", "acme"), network("10.1.0.0/16", "deny")];
        let name = "dns:A.example.org".parse().unwrap();
        let certificates = vec![CertificateRule { name, tenant: "acme".to_owned() }];
        check(AccessSettings { networks, certificates, ..settings() }, &[]);
        check(
            AccessSettings {
                anonymous: AnonymousRule::Allow,
                sources: CredentialSources::NONE,
                ..settings()
            },
            &[],
        );
    }

    #[test]
    fn all_problems_are_told() {
        let name: CertificateName = "cn:a".parse().unwrap();
        let rule = |tenant: &str| CertificateRule { name: name.clone(), tenant: tenant.to_owned() };
        check(
            AccessSettings {
                networks: vec![
                    network("10.0.0.1/8", "acme"),
                    network("::1", "acne"),
                    network("::2", "acme"),
                    network("::2", "deny"),
                ],
                certificates: vec![rule("acme"), rule("acme"), rule("acne")],
                sources: CredentialSources { foreign_keys: true, ..CredentialSources::default() },
                ..settings()
            },
            &[
                "access.foreign_keys: keys that were not made here can be guessed from their hashes: set a pepper",
                "access.networks: `10.0.0.1/8`: there is more in the address than its prefix: for the whole network write `10.0.0.0/8`",
                "access.networks: `::1/128`: tenant: there is no tenant `acne`: there are acme",
                "access.networks: the network `::2/128` is there twice",
                "access.certificates: `cn:a` is there twice",
                "access.certificates: `cn:a`: tenant: there is no tenant `acne`: there are acme",
            ],
        );
    }

    #[test]
    fn no_setting_refuses_everything_without_a_word() {
        check(
            AccessSettings { sources: CredentialSources::NONE, ..settings() },
            &[
                "access.anonymous: `deny` refuses every request: there is no source of keys, no network and no certificate that may call",
            ],
        );
    }

    #[test]
    fn names_in_certificates() {
        for (text, want) in [
            ("uri:spiffe://a/b", Some("uri:spiffe://a/b")),
            ("dns:A.Example", Some("dns:a.example")),
            ("cn:Alice B", Some("cn:Alice B")),
            ("cn:", None),
            ("alice", None),
            ("email:a@example.org", None),
            ("", None),
        ] {
            let name = text.parse::<CertificateName>().ok().map(|name| name.to_string());
            assert_eq!(name.as_deref(), want, "{text}");
        }
        assert_ne!("cn:a".parse::<CertificateName>(), "dns:a".parse::<CertificateName>());
    }
}
