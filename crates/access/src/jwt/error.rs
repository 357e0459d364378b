//! Why a token is refused.

use std::fmt;

use thiserror::Error;

/// The place of an issuer in the list that a [`JwtVerifier`](super::JwtVerifier) was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssuerIndex(pub usize);

/// Why a token is refused. No text has a part of the token in it: a token that is refused may still
/// be valid elsewhere.
///
/// All but one are answered with 401; see [`is_our_fault`](Self::is_our_fault).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JwtError {
    /// The token is longer than [`TOKEN_BYTES_MAX`](super::TOKEN_BYTES_MAX).
    #[error("the token is longer than {} bytes", super::TOKEN_BYTES_MAX)]
    TooLong,
    /// Not three parts of canonical base64url with JSON objects in the first two.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// `alg` is `none`.
    #[error("the token is not signed")]
    Unsigned,
    /// The header has `crit`: an extension that must be understood, and is not.
    #[error("the token's header has `crit`, which is not supported")]
    CriticalHeader,
    /// The claim `iss` names none of the issuers.
    #[error("the token's issuer is not known")]
    UnknownIssuer,
    /// The issuer's keys have not been fetched yet, or not for too long.
    #[error("the keys of the token's issuer are not known at the moment")]
    KeysUnknown(IssuerIndex),
    /// The set has no key of this `kid`: the keys may have been rotated since the last fetch.
    #[error("the token's key is not one of its issuer's keys")]
    UnknownKid(IssuerIndex),
    /// The set has more than one key of this algorithm, and the token does not say which.
    #[error("the token names no key (`kid`), and its issuer has several")]
    KidMissing,
    /// The token's `alg` is not the algorithm of the key.
    #[error("the token's algorithm is not its key's")]
    AlgorithmMismatch,
    /// The signature is not the key's.
    #[error("the token's signature is not valid")]
    BadSignature,
    /// The instant of `exp` has passed, and the leeway with it.
    #[error("the token has expired")]
    Expired,
    /// The instant of `nbf` has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The claim `aud` names none of the audiences.
    #[error("the token is for another audience")]
    WrongAudience,
    /// A claim that is required is not there.
    #[error("the token has no claim for {0}")]
    ClaimMissing(ClaimRole),
    /// A claim has a value of another type, too long, or not printable.
    #[error("the token's claim for {0} cannot be used")]
    ClaimInvalid(ClaimRole),
    /// A claim has none of the values that the settings require.
    #[error("a claim of the token has not the required value")]
    ClaimRefused,
}

impl JwtError {
    /// Whether the token may be valid and only we cannot tell: 503, not 401.
    pub fn is_our_fault(&self) -> bool {
        match self {
            Self::KeysUnknown(_) => true,
            Self::TooLong
            | Self::Malformed(_)
            | Self::Unsigned
            | Self::CriticalHeader
            | Self::UnknownIssuer
            | Self::UnknownKid(_)
            | Self::KidMissing
            | Self::AlgorithmMismatch
            | Self::BadSignature
            | Self::Expired
            | Self::NotYetValid
            | Self::WrongAudience
            | Self::ClaimMissing(_)
            | Self::ClaimInvalid(_)
            | Self::ClaimRefused => false,
        }
    }

    /// The issuer whose keys should be fetched now, if its [`RefreshPlan`](super::RefreshPlan) allows.
    pub fn wants_fetch(&self) -> Option<IssuerIndex> {
        match self {
            Self::KeysUnknown(issuer) | Self::UnknownKid(issuer) => Some(*issuer),
            _ => None,
        }
    }

    /// One word for a label of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Malformed(_) => "malformed",
            Self::Unsigned => "unsigned",
            Self::CriticalHeader => "critical_header",
            Self::UnknownIssuer => "unknown_issuer",
            Self::KeysUnknown(_) => "keys_unknown",
            Self::UnknownKid(_) => "unknown_kid",
            Self::KidMissing => "kid_missing",
            Self::AlgorithmMismatch => "algorithm_mismatch",
            Self::BadSignature => "bad_signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::WrongAudience => "wrong_audience",
            Self::ClaimMissing(_) => "claim_missing",
            Self::ClaimInvalid(_) => "claim_invalid",
            Self::ClaimRefused => "claim_refused",
        }
    }
}

/// What a claim is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRole {
    /// `iss`.
    Issuer,
    /// `aud`.
    Audience,
    /// `exp`.
    Expiry,
    /// `nbf`.
    NotBefore,
    /// The name in logs.
    Subject,
    /// The tenant.
    Tenant,
    /// The name of a set of limits.
    Quota,
    /// The methods that may be called.
    Methods,
    /// The chains that may be called.
    Chains,
}

impl fmt::Display for ClaimRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Issuer => "the issuer (`iss`)",
            Self::Audience => "the audience (`aud`)",
            Self::Expiry => "the expiry (`exp`)",
            Self::NotBefore => "the begin (`nbf`)",
            Self::Subject => "the subject",
            Self::Tenant => "the tenant",
            Self::Quota => "the quota",
            Self::Methods => "the methods",
            Self::Chains => "the chains",
        })
    }
}
