//! Verified tokens as grants: what the table of keys asks of [`TokenVerifier`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::error::{IssuerIndex, JwtError};
use super::memory::GrantEdition;
use super::verifier::JwtVerifier;
use super::{JwtIssuer, VerifiedToken};
use crate::caller::{AccessGrant, GrantKind};
use crate::rights_settings::{MethodRightsSettings, RightsSettings};
use crate::tenants::{GrantTerms, TenantDirectory};
use crate::token::{TokenRefusal, TokenVerifier};
use crate::unix_seconds::UnixSeconds;

/// Turns tokens into grants to the tenants of the settings.
///
/// A grant is remembered with its token. Its tenants are those of one load of the settings, so new
/// settings need a new one of these, which may have the verifier of the old: what that remembers of the grants of
/// other tenants is not believed.
pub struct TokenGrants {
    verifier: Arc<JwtVerifier>,
    tenants: Arc<TenantDirectory>,
    /// The names of chains by what else a claim may call them, such as `1`.
    chains: BTreeMap<Arc<str>, Arc<str>>,
    on_unknown_keys: UnknownKeysHook,
    edition: GrantEdition,
}

/// Called on the request path for each token whose issuer's keys should be fetched: wakes a task, and
/// does no more.
pub type UnknownKeysHook = Box<dyn Fn(IssuerIndex) + Send + Sync>;

impl fmt::Debug for TokenGrants {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verifier, tenants: _, chains: _, on_unknown_keys: _, edition: _ } = self;
        formatter.debug_struct("TokenGrants").field("verifier", verifier).finish_non_exhaustive()
    }
}

impl TokenGrants {
    /// Grants to these tenants. `chains` has, for each other text that a token may use for a chain
    /// (its id), the name that the settings give it.
    pub fn new(
        verifier: Arc<JwtVerifier>,
        tenants: Arc<TenantDirectory>,
        chains: BTreeMap<Arc<str>, Arc<str>>,
        on_unknown_keys: UnknownKeysHook,
    ) -> Self {
        let edition = verifier.next_edition();
        Self { verifier, tenants, chains, on_unknown_keys, edition }
    }

    /// For its keys and its state.
    pub fn verifier(&self) -> &Arc<JwtVerifier> {
        &self.verifier
    }

    fn grant(
        &self,
        token: &VerifiedToken,
        issuer: &JwtIssuer,
    ) -> Result<Arc<AccessGrant>, JwtError> {
        let rights = RightsSettings {
            chains: token.rights.chains.as_ref().map(|chains| {
                let name = |chain| self.chains.get(chain).unwrap_or(chain).to_string();
                chains.iter().map(name).collect()
            }),
            methods: MethodRightsSettings {
                allow: token
                    .rights
                    .methods
                    .as_ref()
                    .map(|globs| globs.iter().map(ToString::to_string).collect()),
                deny: Vec::new(),
            },
            // For connections that outlive the head that they began with.
            expires_at: token
                .expires_at
                .map(|at| UnixSeconds(at.saturating_add(issuer.leeway).as_secs())),
            ..RightsSettings::default()
        };
        let terms = GrantTerms {
            kind: GrantKind::Token,
            id: &token.subject,
            issuer: Some(&token.issuer),
            tenant: &token.tenant,
            rights: Some(&rights),
            quota: token.quota.as_deref(),
        };
        let mut grant = self.tenants.grant(&terms).map_err(|_| {
            if self.tenants.has(&token.tenant) {
                JwtError::TermsUnknown
            } else {
                JwtError::TenantUnknown
            }
        })?;
        grant.number = grant_number(token);
        Ok(Arc::new(grant))
    }
}

impl TokenVerifier for TokenGrants {
    fn verify(&self, token: &str, now: Duration) -> Result<Arc<AccessGrant>, TokenRefusal> {
        let grant = |token: &VerifiedToken, issuer: &JwtIssuer| self.grant(token, issuer);
        self.verifier.verify_as_grant(token, now, self.edition, grant).map_err(|error| {
            if let Some(issuer) = error.wants_fetch() {
                (self.on_unknown_keys)(issuer);
            }
            if error.is_our_fault() {
                TokenRefusal::KeysUnknown
            } else {
                TokenRefusal::Invalid(error.text())
            }
        })
    }
}

/// One number for all tokens of one subject, from one issuer, for one tenant: `alice` of another
/// issuer is another subject.
fn grant_number(token: &VerifiedToken) -> u64 {
    let mut hasher = Xxh3::with_seed(GrantKind::Token as u64);
    for part in [&token.issuer, &token.subject, &token.tenant] {
        hasher.update(&part.len().to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.digest()
}
