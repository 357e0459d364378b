//! Why a token is refused.

/// The place of an issuer in the list that a [`JwtVerifier`](super::JwtVerifier) was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IssuerIndex(pub usize);

/// Why a token is refused. No text has a part of the token in it: a token that is refused may still
/// be valid elsewhere.
///
/// All but one are answered with 401; see [`is_our_fault`](Self::is_our_fault).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[error("{}", self.text())]
#[strum(serialize_all = "snake_case")]
pub enum JwtError {
    /// The token is longer than [`TOKEN_BYTES_MAX`](super::TOKEN_BYTES_MAX).
    TooLong,
    /// Not three parts of canonical base64url with JSON objects in the first two. The text is a whole
    /// sentence.
    Malformed(&'static str),
    /// `alg` is `none`, or there is no signature.
    Unsigned,
    /// The header has `crit`: an extension that must be understood, and is not.
    CriticalHeader,
    /// The claim `iss` names none of the issuers.
    UnknownIssuer,
    /// The issuer's keys have not been fetched yet, or not for too long.
    KeysUnknown(IssuerIndex),
    /// The set has no key of this `kid`: the keys may have been rotated since the last fetch.
    UnknownKid(IssuerIndex),
    /// The set has more than one key of this algorithm, and the token does not say which.
    KidMissing,
    /// The token's `alg` is not the algorithm of the key.
    AlgorithmMismatch,
    /// The signature is not the key's.
    BadSignature,
    /// The instant of `exp` has passed, and the leeway with it.
    Expired,
    /// The instant of `nbf` has not come.
    NotYetValid,
    /// The claim `aud` names none of the audiences.
    WrongAudience,
    /// A claim that is required is not there.
    ClaimMissing(ClaimRole),
    /// A claim has a value of another type, too long, or not printable.
    ClaimInvalid(ClaimRole),
    /// A claim has none of the values that the settings require.
    ClaimRefused,
    /// The settings have no tenant of the name that the token has.
    TenantUnknown,
    /// The settings have no set of limits of the token's name for it, or its rights are not written as
    /// rights are.
    TermsUnknown,
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
            | Self::ClaimRefused
            | Self::TenantUnknown
            | Self::TermsUnknown => false,
        }
    }

    /// The issuer whose keys should be fetched now, if its [`RefreshPlan`](super::RefreshPlan) allows.
    pub fn wants_fetch(&self) -> Option<IssuerIndex> {
        match self {
            Self::KeysUnknown(issuer) | Self::UnknownKid(issuer) => Some(*issuer),
            _ => None,
        }
    }

    /// For people.
    pub fn text(&self) -> &'static str {
        match self {
            Self::TooLong => "the token is longer than 8 KiB",
            Self::Malformed(text) => text,
            Self::Unsigned => "the token is not signed",
            Self::CriticalHeader => "the token's header has `crit`, which is not supported",
            Self::UnknownIssuer => "the token's issuer is not known",
            Self::KeysUnknown(_) => "the keys of the token's issuer are not known at the moment",
            Self::UnknownKid(_) => "the token's key (`kid`) is not one of its issuer's",
            Self::KidMissing => "the token names no key (`kid`), and its issuer has several",
            Self::AlgorithmMismatch => "the token's algorithm is not its key's",
            Self::BadSignature => "the token's signature is not valid",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::WrongAudience => "the token is for another audience",
            Self::ClaimMissing(role) => role.missing(),
            Self::ClaimInvalid(role) => role.invalid(),
            Self::ClaimRefused => "a claim of the token has not the required value",
            Self::TenantUnknown => "the token's tenant is not known",
            Self::TermsUnknown => "the token's quota or rights are not known",
        }
    }

    /// One word for a label of metrics.
    pub fn reason(&self) -> &'static str {
        self.into()
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

impl ClaimRole {
    fn missing(self) -> &'static str {
        match self {
            Self::Issuer => "the token has no issuer (`iss`)",
            Self::Audience => "the token has no audience (`aud`)",
            Self::Expiry => "the token has no expiry (`exp`)",
            Self::NotBefore => "the token has no begin (`nbf`)",
            Self::Subject => "the token has no claim for its subject",
            Self::Tenant => "the token has no claim for its tenant",
            Self::Quota => "the token has no claim for its quota",
            Self::Methods => "the token has no claim for its methods",
            Self::Chains => "the token has no claim for its chains",
        }
    }

    fn invalid(self) -> &'static str {
        match self {
            Self::Issuer => "the token's issuer (`iss`) is not a string",
            Self::Audience => "the token's audience (`aud`) is neither a string nor a list of them",
            Self::Expiry => "the token's expiry (`exp`) is not an instant",
            Self::NotBefore => "the token's begin (`nbf`) is not an instant",
            Self::Subject => "the token's claim for its subject cannot be used",
            Self::Tenant => "the token's claim for its tenant cannot be used",
            Self::Quota => "the token's claim for its quota cannot be used",
            Self::Methods => "the token's claim for its methods cannot be used",
            Self::Chains => "the token's claim for its chains cannot be used",
        }
    }
}
