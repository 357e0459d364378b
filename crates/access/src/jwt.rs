//! Signed tokens (JWT, RFC 7519): what they must be for us to believe them, and what they then say.
//!
//! A [`JwtVerifier`] has the issuers of the settings, each with its current keys, and turns the text
//! of a token into a [`VerifiedToken`] or a [`JwtError`]; [`TokenGrants`] makes it a grant to a tenant:
//!
//! ```text
//! token ─ at most 8 KiB ─ remembered? ─ three parts, canonical base64url, JSON without doubles
//!       ─ `iss` names an issuer ─ its keys are fresh ─ `kid` and `alg` name one key
//!       ─ signature ─ `exp`, `nbf` ─ `aud` ─ required claims ─ tenant, subject, rights
//! ```
//!
//! What a token says about how to verify it is not followed. The algorithm is a property of the key
//! ([`JwtAlgorithm`]), and the header's `alg` must equal it, so `none`, and an HMAC with a public key
//! for its secret, have no way in; keys and addresses in the header are not read; `crit` is refused.
//! A set is either public keys or one secret (RFC 8725, sections 2 and 3).
//!
//! Not promised: tokens are not revoked one by one, `jti` and `iat` are not read, and encrypted
//! tokens (JWE) and nested ones are refused. One message has two valid ECDSA signatures, so the text of
//! a token is no identity of it. A token without `kid` is verified with the one key of its algorithm,
//! and if an issuer replaces that one by another without names, the tokens of the new key are refused
//! until the next regular fetch.
//!
//! `aws-lc-rs`, which TLS uses as well, verifies the signatures. Nothing here fetches keys:
//! [`RefreshPlan`] says when, [`Jwks::parse`] reads the document, [`JwtVerifier::install_keys`] takes
//! it in.

mod claims;
mod error;
mod grants;
mod json;
mod jwks;
mod key;
mod memory;
mod refresh;
mod settings;
mod spki;
mod token;
mod verifier;

#[cfg(test)]
mod tests;

pub use claims::{CLAIM_ITEMS_MAX, CLAIM_TEXT_BYTES_MAX, TokenRights, VerifiedToken};
pub use error::{ClaimRole, IssuerIndex, JwtError};
pub use grants::{TokenGrants, UnknownKeysHook};
pub use jwks::{BadJwks, JWKS_BYTES_MAX, JWKS_KEYS_MAX, Jwks, KID_BYTES_MAX, SkippedKeys};
pub use key::{BadKey, JwtAlgorithm, KeySet, RSA_BITS_MAX, RSA_BITS_MIN, SECRET_BYTES_MIN};
pub use memory::TOKENS_REMEMBERED_MAX;
pub use refresh::{RefreshPlan, RefreshSettings};
pub use settings::{
    AudienceRule, BadClaimPointer, ClaimMap, ClaimMatcher, ClaimPointer, ClaimValue, JwtIssuer,
    KeySource, LEEWAY, POINTER_DEPTH_MAX, TenantRule,
};
pub use token::TOKEN_BYTES_MAX;
pub use verifier::{BadIssuers, ISSUERS_MAX, JwtVerifier, KeysInstalled};
