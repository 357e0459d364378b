//! The tokens that were verified lately: verifying one costs 15 to 130 µs, finding it here less than
//! half of one.
//!
//! Refused tokens are not kept: they would push out the valid ones, and a key that is fetched a moment
//! later may make them valid.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::claims::{ValidSpan, VerifiedToken};
use super::error::IssuerIndex;
use crate::caller::AccessGrant;
use crate::hashed_already::HashedAlready;

/// The most tokens that are remembered; at the bound the least used go. A token takes 300 bytes, one
/// with the longest lists of rights less than 40 KB.
pub const TOKENS_REMEMBERED_MAX: usize = 10_000;

/// SHA-256 of all bytes of a token: of the token itself nothing is kept.
///
/// A token is short, and where the processor has instructions for it SHA-256 takes 0.5 ns a byte,
/// BLAKE3 1.3; it is nearly all that a remembered token costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

impl TokenDigest {
    pub(super) fn of(token: &str) -> Self {
        let digest = digest(&SHA256, token.as_bytes());
        Self(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

impl Hash for TokenDigest {
    /// The first 8 bytes of a digest are a hash already, and only verified tokens are put in.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (first, _) = self.0.split_first_chunk().expect("a digest has more than 8 bytes");
        state.write_u64(u64::from_le_bytes(*first));
    }
}

/// What is known of a token.
#[derive(Debug, Clone)]
pub(super) struct RememberedToken {
    pub(super) issuer: IssuerIndex,
    /// The keys that it was verified with.
    pub(super) generation: u64,
    pub(super) span: ValidSpan,
    pub(super) token: Arc<VerifiedToken>,
    /// What it is granted, once it was asked for.
    pub(super) grant: Option<RememberedGrant>,
}

/// What a token is granted by one load of the settings.
#[derive(Debug, Clone)]
pub(super) struct RememberedGrant {
    /// The terms by which it was made.
    pub(super) edition: GrantEdition,
    pub(super) grant: Arc<AccessGrant>,
}

/// Tells the terms of one load of the settings from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrantEdition(pub(super) u64);

#[derive(Debug)]
pub(super) struct TokenMemory {
    tokens: Cache<TokenDigest, RememberedToken, UnitWeighter, BuildHasherDefault<HashedAlready>>,
}

impl TokenMemory {
    pub(super) fn new(tokens_max: usize) -> Self {
        let tokens = Cache::with(
            tokens_max,
            tokens_max as u64,
            UnitWeighter,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        );
        Self { tokens }
    }

    pub(super) fn get(&self, digest: &TokenDigest) -> Option<RememberedToken> {
        self.tokens.get(digest)
    }

    pub(super) fn insert(&self, digest: TokenDigest, token: RememberedToken) {
        self.tokens.insert(digest, token);
    }

    pub(super) fn remove(&self, digest: &TokenDigest) {
        self.tokens.remove(digest);
    }

    pub(super) fn forget_issuer(&self, issuer: IssuerIndex) {
        self.tokens.retain(|_, token| token.issuer != issuer);
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }
}
