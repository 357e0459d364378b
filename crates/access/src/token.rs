//! The seam between the table of keys and the verifier of signed tokens.
//!
//! The table finds a token in a head and asks a verifier for the grant of its subject; which issuers
//! and algorithms count, and the memory of tokens that were verified before, are the verifier's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::AccessGrant;

/// Verifies signed tokens. Called on the request path: does not wait, and opens nothing.
pub trait TokenVerifier: fmt::Debug + Send + Sync {
    /// The grant of the token's subject at `now`, the time since 1970.
    ///
    /// An implementation bounds the length of the token before it reads it, and says nothing of its
    /// content in the refusal.
    fn verify(&self, token: &str, now: Duration) -> Result<Arc<AccessGrant>, TokenRefusal>;
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is not a token of ours, its signature is wrong, or it is not valid at this time. The reason
    /// is for the log; clients are told that the token is not valid, and no more.
    #[error("{0}")]
    Invalid(&'static str),
    /// The keys of its issuer are not known: they were never fetched, or not for too long.
    #[error("the keys of the token's issuer are not known")]
    KeysUnknown,
}
