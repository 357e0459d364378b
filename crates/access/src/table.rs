//! All keys as one immutable snapshot, and how a head becomes a caller.
//!
//! A new list of keys makes a new table over the policy of the old one; grants have the numbers of those
//! before them, so limits and usage go on. What is in memory of a key is a slot and its grant: 200 bytes.
//!
//! An unknown key takes the path of a known one with a wrong secret: the look-up is by its public id, its
//! text is hashed, and where there is no record its hash is compared with that of another one, which is as far away in
//! memory. What is left of a difference in time may tell whether an id exists, and ids are public.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::caller::{AccessGrant, Caller, GrantKind};
use crate::credential::{BareTarget, Credential, CredentialFinder, CredentialKind};
use crate::key::{ApiKey, KeyId};
use crate::key_check::KeyCheck;
use crate::key_record::KeyRecord;
use crate::key_slots::KeySlots;
use crate::origin::ORIGIN_BYTES_MAX;
use crate::policy::{AccessPolicy, CertificateName, NetworkVerdict};
use crate::right_denied::RightDenied;
use crate::rights::Rights;
use crate::rights_settings::RightsSettings;
use crate::tenants::GrantTerms;
use crate::token::TokenRefusal;

/// Keys of one table at most. Records behind them are left out, with a problem.
pub const KEYS_MAX: usize = 1_000_000;
/// Problems of keys that are told; the others are counted.
const KEY_PROBLEMS_MAX: usize = 20;

/// One snapshot of all that decides on callers.
#[derive(Debug)]
pub struct AccessTable {
    policy: Arc<AccessPolicy>,
    keys: KeySlots,
}

/// A table, and what was left out of it.
#[derive(Debug)]
pub struct BuiltAccess {
    /// The table of the records without a problem.
    pub table: AccessTable,
    /// What is wrong with the others. Keys of the settings should all be good; one bad record of a store that
    /// others write should not keep the good ones away.
    pub key_problems: Vec<String>,
}

/// What is known of a request beside its fields.
#[derive(Debug, Clone, Copy)]
pub struct ClientFacts<'a> {
    /// The other end of the connection, or what a PROXY header of a trusted peer said.
    pub peer: IpAddr,
    /// The path of the target, as it came.
    pub path: &'a str,
    /// The query of the target, as it came.
    pub query: Option<&'a str>,
    /// The names in the client's certificate, if it showed one and it was verified.
    pub certificate: &'a [CertificateName],
    /// The time since 1970.
    pub now: Duration,
    /// Since the epoch of the meters.
    pub elapsed: Duration,
    /// Whether a source of keys was not heard of for too long, or not yet: a key that is not known may be one of it.
    pub keys_are_stale: bool,
}

/// What is kept of the head of a connection that outlives it.
#[derive(Debug, Clone, Default)]
pub struct LastingHead {
    /// The web page that it was sent by.
    origin: Option<Box<[u8]>>,
    /// The names in the client's certificate.
    certificate: Box<[CertificateName]>,
}

impl LastingHead {
    /// A head with this origin and this certificate.
    pub fn new(origin: Option<&[u8]>, certificate: Vec<CertificateName>) -> Self {
        // One that is longer than any origin is kept as an empty one: no page has either.
        let origin = origin.map(|origin| match origin.len() <= ORIGIN_BYTES_MAX {
            true => Box::from(origin),
            false => Box::default(),
        });
        Self { origin, certificate: certificate.into() }
    }
}

/// What a head turned out to be.
#[derive(Debug)]
pub struct IdentifiedClient<'a> {
    /// What it comes from.
    pub caller: Caller,
    /// The target without its key: what is told, looked up and passed on from here on.
    pub target: BareTarget<'a>,
}

/// Why a request is turned away. The reasons are for logs and metrics: a client is told the variant alone,
/// so that it does not learn which keys exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It shows nothing, and anonymous clients are refused.
    NoKey,
    /// Its key or token is not valid.
    BadKey(BadKeyReason),
    /// It carries two different secrets.
    ManyKeys,
    /// It may not call from its address or web page.
    CallerDenied(CallerDeniedReason),
    /// Whether its key is valid cannot be said: a source of keys was not heard of.
    KeysUnknown,
}

/// Why a key or token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadKeyReason {
    /// It is no key by its text.
    Malformed,
    /// There is no such key, or its secret is wrong.
    Unknown,
    /// It is expired or revoked.
    Ended,
    /// The rights of its tenant, or of its token, have expired.
    RightsExpired,
    /// Why a token is not accepted.
    Token(&'static str),
}

/// Why a caller may not call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerDeniedReason {
    /// A rule for its network.
    Network,
    /// A right of its grant.
    Right(RightDenied),
}

impl AccessTable {
    /// A table of these keys. Records with a problem are left out.
    pub fn build(policy: Arc<AccessPolicy>, records: &[KeyRecord]) -> BuiltAccess {
        let mut builder = TableBuilder {
            keys: KeySlots::with_capacity(records.len().min(KEYS_MAX)),
            rights: HashMap::new(),
            problems: Vec::new(),
            more: 0,
        };
        for record in records {
            builder.add(&policy, record);
        }
        let TableBuilder { keys, problems: mut key_problems, more, .. } = builder;
        if more > 0 {
            key_problems.push(format!("and {more} more keys with a problem"));
        }
        BuiltAccess { table: Self { policy, keys }, key_problems }
    }

    /// How many keys there are, expired and revoked ones included.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The grant of a key, whether or not it is valid. For pages about keys.
    pub fn grant_of(&self, id: KeyId) -> Option<&Arc<AccessGrant>> {
        self.keys.get(id)
    }

    /// The grant of a caller as it is now, for a connection that outlives the head that it began with; or why a
    /// client with this head would be turned away, or be another caller.
    pub fn renewed(
        &self,
        caller: &Caller,
        head: &LastingHead,
        now: Duration,
    ) -> Result<Arc<AccessGrant>, Denied> {
        let (grant, policy) = (&caller.grant, &*self.policy);
        let network = policy.networks.get(caller.address);
        if matches!(network, Some(NetworkVerdict::Denied)) {
            return Err(Denied::CallerDenied(CallerDeniedReason::Network));
        }
        let current = match grant.kind {
            GrantKind::Key => self.renewed_key(grant, now)?,
            // The token is not kept, so what it says of rights stays; those of its tenant may not have changed.
            GrantKind::Token if policy.tenants.has_rights_of(&grant.tenant) => Arc::clone(grant),
            GrantKind::Token => {
                return Err(Denied::BadKey(BadKeyReason::Token("its tenant has changed")));
            }
            GrantKind::Certificate | GrantKind::Network | GrantKind::Anonymous => {
                self.grant_without(&head.certificate, network)?
            }
        };
        if (current.number, current.tenant.number) != (grant.number, grant.tenant.number) {
            return Err(Denied::NoKey);
        }
        check_head(&current, caller.address, head.origin.as_deref(), now)?;
        Ok(current)
    }

    fn renewed_key(&self, grant: &AccessGrant, now: Duration) -> Result<Arc<AccessGrant>, Denied> {
        let current = grant.id.parse().ok().and_then(|id| self.keys.get(id));
        let current = current.ok_or(Denied::BadKey(BadKeyReason::Unknown))?;
        match current.check.has_ended(now) {
            true => Err(Denied::BadKey(BadKeyReason::Ended)),
            false => Ok(Arc::clone(current)),
        }
    }

    /// What a request comes from. `fields` are all fields of its head, in their order, names in whatever case.
    ///
    /// A key or token counts before a certificate, and a certificate before a network: what says more of
    /// the client. A network that is denied is denied with any of them.
    pub fn identify<'a>(
        &self,
        facts: &ClientFacts<'a>,
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<IdentifiedClient<'a>, Denied> {
        let policy = &*self.policy;
        let mut finder = CredentialFinder::new(policy.sources, facts.path, facts.query);
        let mut forwarding = policy.trust.lines(facts.peer);
        let mut origin = None;
        for (name, value) in fields {
            finder.read_field(name, value);
            forwarding.read(name, value);
            if name.len() == 6 && name.eq_ignore_ascii_case("origin") {
                origin = Some(value.trim_ascii());
            }
        }
        if let Some(id) = finder.key_id() {
            self.keys.fetch_ahead(id);
        }
        let address = forwarding.client_address();
        let network = policy.networks.get(address);
        if matches!(network, Some(NetworkVerdict::Denied)) {
            return Err(Denied::CallerDenied(CallerDeniedReason::Network));
        }
        let (credential, target) = finder.finish().map_err(|_| Denied::ManyKeys)?;
        let grant = match credential {
            Some(credential) => self.grant_to(&credential, facts)?,
            None => self.grant_without(facts.certificate, network)?,
        };
        check_head(&grant, address, origin, facts.now)?;
        let caller = Caller::new(grant, address, policy.tenants.book(), facts.elapsed);
        Ok(IdentifiedClient { caller, target })
    }

    fn grant_to(
        &self,
        credential: &Credential<'_>,
        facts: &ClientFacts<'_>,
    ) -> Result<Arc<AccessGrant>, Denied> {
        let text = credential.text.expose();
        let (known, compared, hash) = match credential.kind {
            CredentialKind::Malformed => return Err(Denied::BadKey(BadKeyReason::Malformed)),
            CredentialKind::Token => return self.grant_to_token(text, facts.now),
            CredentialKind::Key(id) => {
                let known = self.keys.get(id);
                let compared = known.or_else(|| self.keys.near(id));
                if let Some(grant) = compared {
                    AccessGrant::fetch_ahead(grant);
                }
                (known, compared, self.policy.pepper.hash(text))
            }
            CredentialKind::Foreign => {
                let hash = self.policy.pepper.hash(text);
                let known = self.keys.get(hash.id());
                (known, known.or_else(|| self.keys.near(hash.id())), hash)
            }
        };
        let fits = compared.map_or(&KeyCheck::NONE, |grant| &grant.check).fits(&hash, facts.now);
        let Some(grant) = known.filter(|_| fits) else {
            return Err(match (is_mistyped(credential), facts.keys_are_stale) {
                (true, _) => Denied::BadKey(BadKeyReason::Malformed),
                (false, true) => Denied::KeysUnknown,
                (false, false) => Denied::BadKey(BadKeyReason::Unknown),
            });
        };
        if grant.check.has_ended(facts.now) {
            return Err(Denied::BadKey(BadKeyReason::Ended));
        }
        Ok(Arc::clone(grant))
    }

    fn grant_to_token(&self, token: &str, now: Duration) -> Result<Arc<AccessGrant>, Denied> {
        let Some(tokens) = &self.policy.tokens else {
            return Err(Denied::BadKey(BadKeyReason::Token("no tokens are accepted")));
        };
        tokens.verify(token, now).map_err(|refusal| match refusal {
            TokenRefusal::Invalid(reason) => Denied::BadKey(BadKeyReason::Token(reason)),
            TokenRefusal::KeysUnknown => Denied::KeysUnknown,
        })
    }

    /// The grant of a client that shows no key and no token.
    fn grant_without(
        &self,
        certificate: &[CertificateName],
        network: Option<&NetworkVerdict>,
    ) -> Result<Arc<AccessGrant>, Denied> {
        let named = certificate.iter().find_map(|name| self.policy.certificates.get(name));
        let of_network = match network {
            Some(NetworkVerdict::Granted(grant)) => Some(grant),
            Some(NetworkVerdict::Denied) | None => None,
        };
        let grant = named.or(of_network).or(self.policy.anonymous.as_ref());
        grant.cloned().ok_or(Denied::NoKey)
    }
}

/// Whether it looks like a key of ours and is none: it was typed or cut wrong. To be asked where no hash fits: one that
/// fits says more than a check sum.
fn is_mistyped(credential: &Credential<'_>) -> bool {
    let is_ours = matches!(credential.kind, CredentialKind::Key(_));
    is_ours && ApiKey::parse(credential.text.expose()).is_err()
}

fn check_head(
    grant: &AccessGrant,
    address: IpAddr,
    origin: Option<&[u8]>,
    now: Duration,
) -> Result<(), Denied> {
    grant.rights.check_head(address, origin, now).map_err(|denied| match denied {
        RightDenied::Expired => Denied::BadKey(BadKeyReason::RightsExpired),
        denied => Denied::CallerDenied(CallerDeniedReason::Right(denied)),
    })
}

struct TableBuilder<'r> {
    keys: KeySlots,
    /// Rights that were read before: keys of one kind share them.
    rights: HashMap<(&'r str, &'r RightsSettings), Arc<Rights>>,
    problems: Vec<String>,
    more: usize,
}

impl<'r> TableBuilder<'r> {
    fn add(&mut self, policy: &AccessPolicy, record: &'r KeyRecord) {
        if self.keys.len() == KEYS_MAX {
            return self.problem(record, &format!("at most {KEYS_MAX} keys are kept"));
        }
        if self.keys.get(record.id).is_some() {
            return self.problem(record, "there are two keys with this id: the first counts");
        }
        let known = (record.tenant.as_str(), &record.rights);
        let has_rights = !record.rights.is_empty();
        let shared = if has_rights { self.rights.get(&known).map(Arc::clone) } else { None };
        let terms = GrantTerms {
            rights: Some(&record.rights).filter(|_| has_rights && shared.is_none()),
            quota: record.quota.as_deref(),
            ..GrantTerms::new(GrantKind::Key, record.id.as_str(), &record.tenant)
        };
        let mut grant = match policy.tenants.grant(&terms) {
            Ok(grant) => grant,
            Err(problems) => {
                return problems.iter().for_each(|problem| self.problem(record, problem));
            }
        };
        match shared {
            Some(shared) => grant.rights = shared,
            None if has_rights => drop(self.rights.insert(known, Arc::clone(&grant.rights))),
            None => {}
        }
        grant.check = KeyCheck::of(record);
        let is_added = self.keys.insert(record.id, Arc::new(grant));
        debug_assert!(is_added, "there is room for all records, and the id is a new one");
    }

    fn problem(&mut self, record: &KeyRecord, problem: &str) {
        if self.problems.len() == KEY_PROBLEMS_MAX {
            self.more += 1;
        } else {
            self.problems.push(format!("key {}: {problem}", record.id));
        }
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
