//! From the settings of callers to the policy that requests are looked up in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;
use wellhead_access::jwt::{
    AudienceRule, BadIssuers, ClaimMap, ClaimMatcher, ClaimPointer, ClaimValue, IssuerIndex,
    JwtAlgorithm, JwtIssuer, JwtVerifier, KeySet, KeySource as TokenKeys, TenantRule, TokenGrants,
};
use wellhead_access::{
    ANONYMOUS, AccessPolicy, AccessSettings, AccessTable, AnonymousRule, CertificateRule,
    CredentialSources, KeyRecord, MeterBook, MethodRightsSettings, NetworkAction, NetworkRule,
    Pepper, PriceList, PriceRule, ProxyTrust, ProxyTrustHeader, Quota, QuotaBounds, QuotaGroup,
    QuotaRate, RightsSettings, TenantDirectory, TenantSettings,
};
use wellhead_limit::Caps;

use super::access::{
    Access, AccessKey, AccessKeys, AccessNetwork, Jwt, Price, QuotaConfig, QuotaGroupConfig,
    Rights, TenantConfig,
};
use super::file;
use super::name::{CertificateText, ClaimPath, QuotaName, TenantName};
use super::network::Network;
use super::settings::{Proxies, Settings};
use super::value::KeyPlace;

/// What the settings say of callers.
#[derive(Debug)]
pub(crate) struct CallerPlan {
    pub(crate) policy: Arc<AccessPolicy>,
    /// What is used of the limits.
    pub(crate) book: Arc<MeterBook>,
    /// The keys that stand in the settings.
    pub(crate) listed: Vec<KeyRecord>,
    /// Those whose tokens are accepted.
    pub(crate) tokens: Option<IssuerKeys>,
}

/// The keys of issuers, and when they should be fetched.
#[derive(Debug, Clone)]
pub(crate) struct IssuerKeys {
    pub(crate) tokens: Arc<TokenGrants>,
    /// Told the place of an issuer whose keys a token asked for that are not known.
    pub(crate) wanted: Arc<[Notify]>,
}

/// What the settings say of callers; `None` where they tell none apart. `Err`: what is wrong with it.
///
/// `book`: what is used of the limits. `known`: the keys of the issuers, where these are the issuers of before.
pub(crate) fn plan(
    settings: &Settings,
    book: Arc<MeterBook>,
    known: Option<&IssuerKeys>,
) -> Result<Option<CallerPlan>, Vec<String>> {
    if !tells_callers_apart(settings) {
        return Ok(None);
    }
    let (access, mut problems) = (&settings.access, Vec::new());
    let directory = tenants(settings, Arc::clone(&book), &mut problems);
    let keys = match known {
        Some(IssuerKeys { tokens, wanted }) => {
            Some((Arc::clone(tokens.verifier()), Arc::clone(wanted)))
        }
        None => issuers(&access.jwt, &mut problems).map(|verifier| {
            let wanted = verifier.issuers().map(|_| Notify::new()).collect();
            (Arc::new(verifier), wanted)
        }),
    };
    let tokens = keys
        .map(|(verifier, wanted)| issuer_keys(verifier, wanted, Arc::clone(&directory), settings));
    let policy = AccessPolicy::new(
        AccessSettings {
            tenants: directory,
            sources: sources(access),
            pepper: pepper(access.keys.as_ref(), &mut problems),
            tokens: tokens.as_ref().map(|keys| Arc::clone(&keys.tokens) as _),
            networks: access.networks.iter().map(network_rule).collect(),
            certificates: certificates(access),
            anonymous: anonymous(access),
            trust: trust(access, &mut problems),
        },
        &mut problems,
    );
    let Some(policy) = policy.filter(|_| problems.is_empty()) else { return Err(problems) };
    let listed: Vec<_> = access.keys.iter().flat_map(|keys| &keys.list).map(key_record).collect();
    problems.extend(AccessTable::build(Arc::clone(&policy), &listed).key_problems);
    if problems.is_empty() {
        Ok(Some(CallerPlan { policy, book, listed, tokens }))
    } else {
        Err(problems)
    }
}

/// The tenants and quotas of the settings. Where they name no tenant, each that a key names exists.
pub(crate) fn tenants(
    settings: &Settings,
    book: Arc<MeterBook>,
    problems: &mut Vec<String>,
) -> Arc<TenantDirectory> {
    let tenants: Vec<_> = settings
        .tenants
        .iter()
        .map(|(name, tenant)| tenant_settings(name.as_ref(), tenant))
        .collect();
    let quotas = settings.quotas.iter().map(|(name, quota)| quota_of(name.as_ref(), quota));
    let directory = TenantDirectory::new(&tenants, quotas, book, problems);
    Arc::new(if tenants.is_empty() { directory.open() } else { directory })
}

fn issuer_keys(
    verifier: Arc<JwtVerifier>,
    wanted: Arc<[Notify]>,
    tenants: Arc<TenantDirectory>,
    settings: &Settings,
) -> IssuerKeys {
    let told = Arc::clone(&wanted);
    let on_unknown = Box::new(move |issuer: IssuerIndex| told[issuer.0].notify_one());
    let mut chains = BTreeMap::new();
    for (name, chain) in settings.chains.iter() {
        let others = chain.other_names();
        chains.extend(others.map(|other| (Arc::from(other), Arc::from(name.as_ref()))));
    }
    let tokens = Arc::new(TokenGrants::new(verifier, tenants, chains, on_unknown));
    IssuerKeys { tokens, wanted }
}

/// Whether any setting says something of callers.
pub(super) fn tells_callers_apart(settings: &Settings) -> bool {
    let Access { anonymous, keys, jwt, networks, certificates, proxies, .. } = &settings.access;
    anonymous.is_some()
        || keys.is_some()
        || !proxies.trust.is_empty()
        || !(jwt.is_empty() && networks.is_empty() && certificates.is_empty())
        || settings.tenants.iter().any(|(name, _)| name.as_ref() == ANONYMOUS)
}

/// Whether clients may call that show nothing.
pub(crate) fn anonymous(access: &Access) -> AnonymousRule {
    let has_secrets = access.keys.is_some() || !access.jwt.is_empty();
    access.anonymous.unwrap_or(match has_secrets {
        true => AnonymousRule::Deny,
        false => AnonymousRule::Allow,
    })
}

fn sources(access: &Access) -> CredentialSources {
    let has = |place| access.from.contains(&place);
    CredentialSources {
        path: has(KeyPlace::Path),
        x_api_key: has(KeyPlace::ApiKey),
        bearer: has(KeyPlace::Bearer),
        basic: has(KeyPlace::Basic),
        websocket_protocol: has(KeyPlace::Subprotocol),
        query: has(KeyPlace::Query),
        foreign_keys: access.keys.as_ref().is_some_and(|keys| keys.foreign),
    }
}

/// The secret that is mixed into hashes.
pub(crate) fn pepper(keys: Option<&AccessKeys>, problems: &mut Vec<String>) -> Pepper {
    let Some(text) = keys.and_then(|keys| keys.pepper.as_ref()) else {
        return Pepper::well_known();
    };
    Pepper::parse(text).unwrap_or_else(|error| {
        problems.push(format!("access.keys.pepper: {error}"));
        Pepper::well_known()
    })
}

fn trust(access: &Access, problems: &mut Vec<String>) -> ProxyTrust {
    let Proxies { trust, header, protocol: _ } = &access.proxies;
    match Network::set(trust) {
        Ok(trusted) => ProxyTrust::new(trusted, ProxyTrustHeader::named(header.as_ref())),
        Err(errors) => {
            problems.extend(errors.iter().map(|error| format!("access.proxies.trust: {error}")));
            ProxyTrust::default()
        }
    }
}

fn certificates(access: &Access) -> Vec<CertificateRule> {
    let rule = |(name, tenant): &(_, _)| {
        let (name, tenant): (&CertificateText, &TenantName) = (name, tenant);
        let name = name.as_ref().parse().ok()?;
        Some(CertificateRule { name, tenant: tenant.as_ref().to_owned() })
    };
    access.certificates.iter().filter_map(rule).collect()
}

fn network_rule(network: &AccessNetwork) -> NetworkRule {
    let AccessNetwork { cidr, tenant, deny: _ } = network;
    NetworkRule {
        network: cidr.as_ref().to_owned(),
        // The config check has seen to it that it is one of the two.
        action: match tenant {
            Some(tenant) => NetworkAction::Tenant(tenant.as_ref().to_owned()),
            None => NetworkAction::Deny,
        },
    }
}

fn tenant_settings(name: &str, tenant: &TenantConfig) -> TenantSettings {
    let quota = |name: &Option<QuotaName>| name.as_ref().map(|name| name.as_ref().to_owned());
    TenantSettings {
        name: name.to_owned(),
        rights: rights(&tenant.rights),
        quota: quota(&tenant.quota),
        key_quota: quota(&tenant.key_quota),
        address_quota: quota(&tenant.address_quota),
    }
}

/// Rights, as keys and tenants have them.
pub(crate) fn rights(rights: &Rights) -> RightsSettings {
    fn words<T: AsRef<str>>(list: &Option<Vec<T>>) -> Option<Vec<String>> {
        list.as_ref().map(|list| list.iter().map(|word| word.as_ref().to_owned()).collect())
    }
    let globs = |list: &[wellhead_eth::MethodGlob]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let allow = globs(&rights.methods.allow);
    RightsSettings {
        chains: words(&rights.chains),
        methods: MethodRightsSettings {
            allow: (!allow.is_empty()).then_some(allow),
            deny: globs(&rights.methods.deny),
        },
        effects: rights
            .effects
            .as_ref()
            .map(|list| list.iter().map(|effect| effect.word().to_owned()).collect()),
        contracts: words(&rights.contracts),
        origins: words(&rights.origins),
        networks: words(&rights.networks),
        select: words(&rights.select),
        trail: (!rights.trail).then_some(false),
        logs_range_max: rights.logs_range_max,
        batch_items_max: rights.batch_items_max,
        expires_at: None,
    }
}

fn key_record(key: &AccessKey) -> KeyRecord {
    KeyRecord {
        note: key.note.as_ref().map(|note| note.0.clone()),
        quota: key.quota.as_ref().map(|quota| quota.as_ref().to_owned()),
        rights: rights(&key.rights),
        ..KeyRecord::new(key.id, key.hash, key.tenant.as_ref())
    }
}

fn quota_of(name: &str, quota: &QuotaConfig) -> Quota {
    let group = |group: &QuotaGroupConfig| QuotaGroup {
        methods: group.methods.clone(),
        bounds: QuotaBounds {
            calls: rate(group.calls_per_second, group.burst),
            credits: rate(group.credits_per_second, group.credits_burst),
            in_flight: group.in_flight,
        },
    };
    Quota {
        name: name.into(),
        bounds: QuotaBounds {
            calls: rate(quota.calls_per_second, quota.burst),
            credits: rate(quota.credits_per_second, quota.credits_burst),
            in_flight: quota.in_flight,
        },
        caps: Caps { day: quota.credits_per_day, month: quota.credits_per_month },
        connections: quota.connections,
        subscriptions: quota.subscriptions,
        groups: quota.groups.iter().map(group).collect(),
    }
}

fn rate(per_second: Option<u32>, burst: Option<u32>) -> Option<QuotaRate> {
    let per_second = per_second?;
    let burst = burst.unwrap_or(per_second);
    Some(QuotaRate::new(per_second.into(), burst.into()))
}

/// What calls cost.
pub(crate) fn prices(access: &Access) -> PriceList {
    let rules = access.prices.iter();
    let rule = |price: &Price| PriceRule { methods: price.methods.clone(), credits: price.credits };
    PriceList::new(rules.map(rule).collect())
}

fn issuers(jwt: &[Jwt], problems: &mut Vec<String>) -> Option<JwtVerifier> {
    if jwt.is_empty() {
        return None;
    }
    let before = problems.len();
    let mut issuers = Vec::new();
    for (place, settings) in jwt.iter().enumerate() {
        match issuer(settings) {
            Ok(issuer) => issuers.push(issuer),
            Err(problem) => problems.push(format!("access.jwt[{place}].{problem}")),
        }
    }
    if problems.len() > before {
        return None;
    }
    match JwtVerifier::new(issuers) {
        Ok(verifier) => Some(verifier),
        Err(BadIssuers::TooMany) => {
            problems.push("access.jwt: there are too many issuers".to_owned());
            None
        }
        Err(BadIssuers::Twice(issuer)) => {
            problems.push(format!("access.jwt: the issuer `{issuer}` is listed twice"));
            None
        }
    }
}

fn issuer(settings: &Jwt) -> Result<JwtIssuer, String> {
    let pointer =
        |path: &ClaimPath| ClaimPointer::parse(path.as_ref()).map_err(|error| error.to_string());
    let tenant = match (&settings.tenant, &settings.tenant_claim) {
        (Some(tenant), _) => TenantRule::Fixed(tenant.as_ref().into()),
        (None, Some(claim)) => TenantRule::Claim(pointer(claim)?),
        (None, None) => return Err("tenant: no tenant is named".to_owned()),
    };
    let audience = match settings.audience.is_empty() {
        true => AudienceRule::Any,
        false => {
            AudienceRule::OneOf(settings.audience.iter().map(|it| it.0.as_str().into()).collect())
        }
    };
    let optional = |path: &Option<ClaimPath>| path.as_ref().map(pointer).transpose();
    let required = settings.require.iter().map(|(claim, values)| {
        Ok::<_, String>(ClaimMatcher {
            pointer: pointer(claim)?,
            any_of: values.iter().flat_map(|value| claim_values(&value.0)).collect(),
            words: true,
        })
    });
    Ok(JwtIssuer {
        required: required.collect::<Result<_, _>>()?,
        leeway: settings.leeway,
        claims: ClaimMap {
            subject: pointer(&settings.subject_claim)?,
            quota: optional(&settings.quota_claim)?,
            methods: optional(&settings.methods_claim)?,
            chains: optional(&settings.chains_claim)?,
            ..ClaimMap::new(tenant.clone())
        },
        ..JwtIssuer::new(settings.issuer.0.as_str(), audience, token_keys(settings)?, tenant)
    })
}

/// A value of the settings has no type; a claim may be a text, a number or a flag.
fn claim_values(text: &str) -> Vec<ClaimValue> {
    let mut values = vec![ClaimValue::Text(text.to_owned())];
    values.extend(text.parse().ok().map(ClaimValue::Integer));
    values.extend(text.parse().ok().map(ClaimValue::Flag));
    values
}

fn token_keys(settings: &Jwt) -> Result<TokenKeys, String> {
    let fixed = |keys: KeySet| TokenKeys::Fixed(Arc::new(keys));
    match (&settings.jwks, &settings.public_key, &settings.secret) {
        (_, Some(path), _) => public_key(&path.0)
            .map(fixed)
            .map_err(|error| format!("public_key: `{}`: {error}", path.0.display())),
        (_, _, Some(secret)) => KeySet::from_secret(secret, JwtAlgorithm::Hs256)
            .map(fixed)
            .map_err(|error| format!("secret: {error}")),
        (Some(_), None, None) => Ok(TokenKeys::Fetched { stale_max: settings.stale_max }),
        (None, None, None) => Err("jwks: there is no key".to_owned()),
    }
}

/// Reads a public key in PEM. Errors: why not, in words.
pub(crate) fn public_key(path: &Path) -> Result<KeySet, String> {
    let pem = file::read_any(path, PEM_BYTES_MAX).map_err(|error| error.to_string())?;
    KeySet::from_pem(&pem, None).map_err(|error| error.to_string())
}

/// A public key is far shorter.
const PEM_BYTES_MAX: u64 = 64 << 10;
