//! Tokens in, what they say out: the steps in their order, and the keys that are current.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use thiserror::Error;

use super::claims::{self, VerifiedToken};
use super::error::{IssuerIndex, JwtError};
use super::jwks::Jwks;
use super::key::{KeySet, NoKey};
use super::memory::{
    GrantEdition, RememberedGrant, RememberedToken, TOKENS_REMEMBERED_MAX, TokenDigest, TokenMemory,
};
use super::settings::{JwtIssuer, KeySource};
use super::token::{self, TOKEN_BYTES_MAX, TokenParts};
use crate::caller::AccessGrant;

/// The most issuers; a token's issuer is looked for one by one.
pub const ISSUERS_MAX: usize = 64;

/// Verifies tokens of some issuers, and remembers those that it verified.
///
/// Shared by all threads: a token that is remembered costs a hash, a look-up and two atomic reads.
#[derive(Debug)]
pub struct JwtVerifier {
    issuers: Vec<IssuerState>,
    memory: TokenMemory,
    editions: AtomicU64,
}

#[derive(Debug)]
struct IssuerState {
    settings: JwtIssuer,
    keys: ArcSwap<CurrentKeys>,
}

/// What verifies an issuer's tokens at one moment. A token is verified with one of these, and a
/// remembered one is believed only while its generation is the current one.
#[derive(Debug, Clone)]
struct CurrentKeys {
    set: Option<Arc<KeySet>>,
    /// Changes with the keys.
    generation: u64,
    /// Whether they are there, and not too old.
    is_usable: bool,
}

/// Why issuers cannot be used together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadIssuers {
    /// Two have one value of `iss`: a token would not say whose rules it has to follow.
    #[error("issuer `{0}` is listed twice")]
    Twice(Arc<str>),
    /// More than [`ISSUERS_MAX`].
    #[error("at most {ISSUERS_MAX} issuers can be listed")]
    TooMany,
}

/// What came of new keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysInstalled {
    /// They are the old ones, and fresh again.
    Unchanged,
    /// They are others: what was verified with the old ones is forgotten.
    Changed,
    /// The issuer has fixed keys, or there is no such issuer; nothing was done.
    Ignored,
}

impl JwtVerifier {
    /// A verifier for these issuers, in the order in which [`IssuerIndex`] counts them.
    ///
    /// # Errors
    ///
    /// If one is listed twice, or there are too many.
    pub fn new(issuers: Vec<JwtIssuer>) -> Result<Self, BadIssuers> {
        Self::with_memory(issuers, TOKENS_REMEMBERED_MAX)
    }

    /// A verifier that remembers about `tokens_max` tokens.
    ///
    /// # Errors
    ///
    /// If one is listed twice, or there are too many.
    pub fn with_memory(issuers: Vec<JwtIssuer>, tokens_max: usize) -> Result<Self, BadIssuers> {
        if issuers.len() > ISSUERS_MAX {
            return Err(BadIssuers::TooMany);
        }
        for (at, issuer) in issuers.iter().enumerate() {
            if issuers[..at].iter().any(|other| other.issuer == issuer.issuer) {
                return Err(BadIssuers::Twice(issuer.issuer.clone()));
            }
        }
        let issuers = issuers.into_iter().map(IssuerState::new).collect();
        Ok(Self { issuers, memory: TokenMemory::new(tokens_max), editions: AtomicU64::new(0) })
    }

    /// What the token says, if it is valid `now` (since 1970).
    ///
    /// The issuer is found by a claim that is not verified yet; only its own keys are tried. What a
    /// token says is read after its signature was found valid.
    ///
    /// # Errors
    ///
    /// [`JwtError`]; with [`wants_fetch`](JwtError::wants_fetch) the keys of an issuer may be older
    /// than the token.
    pub fn verify(&self, token: &str, now: Duration) -> Result<Arc<VerifiedToken>, JwtError> {
        Ok(self.find(token, now)?.1.token)
    }

    /// An edition that none had before, for the terms of grants that are made from now on.
    pub(super) fn next_edition(&self) -> GrantEdition {
        GrantEdition(self.editions.fetch_add(1, Relaxed))
    }

    /// What the token is granted, if it is valid `now`. `grant` is called once for a token that is
    /// remembered in this edition, and has to make one grant of it each time; a token that it refuses is verified
    /// again.
    pub(super) fn verify_as_grant(
        &self,
        token: &str,
        now: Duration,
        edition: GrantEdition,
        grant: impl FnOnce(&VerifiedToken, &JwtIssuer) -> Result<Arc<AccessGrant>, JwtError>,
    ) -> Result<Arc<AccessGrant>, JwtError> {
        let (digest, mut known) = self.find(token, now)?;
        if let Some(known) = known.grant.filter(|known| known.edition == edition) {
            return Ok(known.grant);
        }
        let granted = grant(&known.token, &self.issuers[known.issuer.0].settings)?;
        known.grant = Some(RememberedGrant { edition, grant: granted.clone() });
        self.memory.insert(digest, known);
        Ok(granted)
    }

    /// What is remembered of the token, or is from now on.
    fn find(&self, token: &str, now: Duration) -> Result<(TokenDigest, RememberedToken), JwtError> {
        // Before it is hashed, so that a long one costs nothing.
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::TooLong);
        }
        let now = now.as_secs();
        let digest = TokenDigest::of(token);
        if let Some(known) = self.memory.get(&digest) {
            let keys = self.issuers[known.issuer.0].keys.load();
            if known.generation == keys.generation && keys.is_usable {
                let checked = known.span.check(now);
                if checked == Err(JwtError::Expired) {
                    self.memory.remove(&digest);
                }
                return checked.map(|()| (digest, known));
            }
        }
        let known = self.verify_anew(token, now)?;
        self.memory.insert(digest, known.clone());
        Ok((digest, known))
    }

    fn verify_anew(&self, token: &str, now: u64) -> Result<RememberedToken, JwtError> {
        let parts = token::take_apart(token)?;
        let name = claims::issuer(&parts.claims)?;
        let at = self.issuers.iter().position(|issuer| *issuer.settings.issuer == *name);
        let issuer = IssuerIndex(at.ok_or(JwtError::UnknownIssuer)?);
        let state = &self.issuers[issuer.0];
        let keys = state.keys.load();
        let set = keys.set.as_deref().filter(|_| keys.is_usable);
        check_signature(set.ok_or(JwtError::KeysUnknown(issuer))?, &parts, issuer)?;
        let (token, span) = claims::judge(&state.settings, &parts.claims, now)?;
        let token = Arc::new(token);
        Ok(RememberedToken { issuer, generation: keys.generation, span, token, grant: None })
    }

    /// Replaces the keys of an issuer by those of a document that was just fetched. They are used until others
    /// take their place, or until they are [retired](Self::retire_keys).
    ///
    /// A token in the middle of [`verify`](Self::verify) is judged by the keys that it began with.
    pub fn install_keys(&self, issuer: IssuerIndex, jwks: &Jwks) -> KeysInstalled {
        let Some(state) = self.fetched(issuer) else { return KeysInstalled::Ignored };
        let fingerprint = jwks.keys().fingerprint();
        let mut changed = false;
        // The closure runs again if another thread was quicker.
        state.keys.rcu(|old| {
            changed = old.set.as_ref().is_none_or(|set| set.fingerprint() != fingerprint);
            let set = if changed { Some(jwks.keys().clone()) } else { old.set.clone() };
            CurrentKeys { set, generation: old.generation + u64::from(changed), is_usable: true }
        });
        if !changed {
            return KeysInstalled::Unchanged;
        }
        self.memory.forget_issuer(issuer);
        KeysInstalled::Changed
    }

    /// Uses the fetched keys of an issuer no more until they are installed anew: the last fetch is longer ago than
    /// its `stale_max`. For the loop that fetches, which knows that by a clock that does not step
    /// ([`RefreshPlan`](super::RefreshPlan)): here only the wall clock is told, by which tokens expire.
    pub fn retire_keys(&self, issuer: IssuerIndex) {
        if let Some(state) = self.fetched(issuer) {
            state.keys.rcu(|old| CurrentKeys { is_usable: false, ..old.as_ref().clone() });
        }
    }

    fn fetched(&self, issuer: IssuerIndex) -> Option<&IssuerState> {
        let state = self.issuers.get(issuer.0)?;
        matches!(state.settings.keys, KeySource::Fetched { .. }).then_some(state)
    }

    /// The issuers, as they were given.
    pub fn issuers(&self) -> impl ExactSizeIterator<Item = &JwtIssuer> {
        self.issuers.iter().map(|state| &state.settings)
    }

    /// The number of an issuer's keys that verify tokens now.
    pub fn usable_keys(&self, issuer: IssuerIndex) -> usize {
        let Some(state) = self.issuers.get(issuer.0) else { return 0 };
        let keys = state.keys.load();
        keys.set.as_ref().filter(|_| keys.is_usable).map_or(0, |set| set.len())
    }

    /// The number of tokens that are remembered.
    pub fn remembered(&self) -> usize {
        self.memory.len()
    }
}

impl IssuerState {
    fn new(settings: JwtIssuer) -> Self {
        let keys = match &settings.keys {
            KeySource::Fetched { .. } => CurrentKeys { set: None, generation: 0, is_usable: false },
            KeySource::Fixed(set) => {
                CurrentKeys { set: Some(set.clone()), generation: 0, is_usable: true }
            }
        };
        Self { settings, keys: ArcSwap::from_pointee(keys) }
    }
}

fn check_signature(
    set: &KeySet,
    parts: &TokenParts<'_>,
    issuer: IssuerIndex,
) -> Result<(), JwtError> {
    let key =
        set.select(parts.kid.as_deref(), parts.algorithm).map_err(|missing| match missing {
            NoKey::UnknownKid => JwtError::UnknownKid(issuer),
            NoKey::KidMissing => JwtError::KidMissing,
            NoKey::AlgorithmMismatch => JwtError::AlgorithmMismatch,
        })?;
    if key.verify(parts.message, &parts.signature) { Ok(()) } else { Err(JwtError::BadSignature) }
}
