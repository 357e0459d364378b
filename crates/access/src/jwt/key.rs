//! Keys that verify signatures. The algorithm is a property of the key: no token can choose it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    RsaPublicKeyComponents,
};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use thiserror::Error;
use wellhead_telemetry::Secret;

use super::spki::{self, PublicKeyInfo};

/// The shortest secret of an HMAC: with less, one token suffices to guess it.
pub const SECRET_BYTES_MIN: usize = 32;
/// The smallest RSA modulus (RFC 7518, section 3.3).
pub const RSA_BITS_MIN: usize = 2048;
/// The largest RSA modulus: the cost of a signature that is not valid grows with its square.
pub const RSA_BITS_MAX: usize = 8192;

/// An algorithm of signatures (RFC 7518, section 3.1; RFC 8037; RFC 9864).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "UPPERCASE")]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA, PKCS #1 v1.5, SHA-256.
    Rs256,
    /// RSA, PKCS #1 v1.5, SHA-384.
    Rs384,
    /// RSA, PKCS #1 v1.5, SHA-512.
    Rs512,
    /// RSA, PSS, SHA-256.
    Ps256,
    /// RSA, PSS, SHA-384.
    Ps384,
    /// RSA, PSS, SHA-512.
    Ps512,
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// Ed25519, named `EdDSA` or `Ed25519`.
    #[strum(serialize = "EdDSA")]
    EdDsa,
}

wellhead_word::words!(JwtAlgorithm);

impl JwtAlgorithm {
    /// By its name in headers and key sets. `none` is no algorithm.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Ed25519" => Some(Self::EdDsa),
            _ => Self::from_word(name),
        }
    }

    fn rsa_parameters(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Hs256 | Self::Hs384 | Self::Hs512 | Self::Es256 | Self::Es384 | Self::EdDsa => {
                return None;
            }
        })
    }

    fn hmac(self) -> Option<hmac::Algorithm> {
        Some(match self {
            Self::Hs256 => hmac::HMAC_SHA256,
            Self::Hs384 => hmac::HMAC_SHA384,
            Self::Hs512 => hmac::HMAC_SHA512,
            Self::Rs256
            | Self::Rs384
            | Self::Rs512
            | Self::Ps256
            | Self::Ps384
            | Self::Ps512
            | Self::Es256
            | Self::Es384
            | Self::EdDsa => return None,
        })
    }
}

/// Why a key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadKey {
    /// The text has no `PUBLIC KEY` block in PEM.
    #[error(
        "no PEM block `PUBLIC KEY` is in it; `openssl x509 -pubkey -noout` takes one from a certificate"
    )]
    NoPublicKey,
    /// The bytes are no key, or no point of the curve.
    #[error("the key is malformed")]
    Malformed,
    /// A type or curve that no algorithm here uses.
    #[error("a key of this type is not supported")]
    UnknownType,
    /// The algorithm is not one for a key of this type.
    #[error("the algorithm is not one for a key of this type")]
    WrongAlgorithm,
    /// An RSA modulus below [`RSA_BITS_MIN`] or above [`RSA_BITS_MAX`].
    #[error("an RSA key must have {RSA_BITS_MIN} to {RSA_BITS_MAX} bits")]
    RsaSize,
    /// A secret below [`SECRET_BYTES_MIN`].
    #[error("the secret must have at least {SECRET_BYTES_MIN} bytes")]
    ShortSecret,
    /// The secret is a public key or a certificate in PEM: any client could sign with it.
    #[error("the secret is a public key; use the setting for public keys")]
    PublicSecret,
}

/// Whether a character may stand in a log line and a label: no control, no mark that turns the
/// direction of what follows.
pub(super) fn is_printable(char: char) -> bool {
    char.is_ascii_graphic() || char == ' ' || char.is_alphanumeric()
}

/// A key, the algorithm that it is used with, and its name.
pub(super) struct VerificationKey {
    pub(super) kid: Option<Box<str>>,
    pub(super) algorithm: JwtAlgorithm,
    material: KeyMaterial,
}

enum KeyMaterial {
    /// RSA, ECDSA or Ed25519, parsed once.
    Public(ParsedPublicKey),
    Hmac(Box<hmac::Key>),
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kid, algorithm, material: _ } = self;
        write!(formatter, "{} {}", algorithm.word(), kid.as_deref().unwrap_or("-"))
    }
}

impl VerificationKey {
    /// A key for one algorithm; for an RSA key without one, RS256 (what issuers use that do not say
    /// it), and for all others the one that its type has.
    pub(super) fn public(
        kid: Option<Box<str>>,
        info: &PublicKeyInfo<'_>,
        algorithm: Option<JwtAlgorithm>,
    ) -> Result<Self, BadKey> {
        let (own, parsed) = match *info {
            PublicKeyInfo::Rsa { modulus, exponent } => {
                let algorithm = algorithm.unwrap_or(JwtAlgorithm::Rs256);
                (algorithm, rsa(algorithm, modulus, exponent)?)
            }
            PublicKeyInfo::P256 { point } => {
                (JwtAlgorithm::Es256, uncompressed(&ECDSA_P256_SHA256_FIXED, point, 65)?)
            }
            PublicKeyInfo::P384 { point } => {
                (JwtAlgorithm::Es384, uncompressed(&ECDSA_P384_SHA384_FIXED, point, 97)?)
            }
            PublicKeyInfo::Ed25519 { point } => {
                let point: [u8; 32] = point.try_into().map_err(|_| BadKey::Malformed)?;
                let key = ParsedPublicKey::new(&ED25519, point).map_err(|_| BadKey::Malformed)?;
                (JwtAlgorithm::EdDsa, key)
            }
        };
        if algorithm.is_some_and(|algorithm| algorithm != own) {
            return Err(BadKey::WrongAlgorithm);
        }
        Ok(Self { kid, algorithm: own, material: KeyMaterial::Public(parsed) })
    }

    /// Whether the signature is this key's. Takes equally long for each HMAC.
    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            KeyMaterial::Public(key) => key.verify_sig(message, signature).is_ok(),
            KeyMaterial::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }

    /// What tells this key from others: none of it for a secret.
    fn fingerprint(&self) -> [u8; SHA256_OUTPUT_LEN] {
        let kid = self.kid.as_deref();
        let bytes = match &self.material {
            KeyMaterial::Public(key) => key.as_ref(),
            KeyMaterial::Hmac(_) => &[],
        };
        let mut context = Context::new(&SHA256);
        for part in [self.algorithm.word().as_bytes(), kid.unwrap_or_default().as_bytes(), bytes] {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        context.update(&[u8::from(kid.is_some())]);
        sha256(context)
    }
}

fn rsa(
    algorithm: JwtAlgorithm,
    modulus: &[u8],
    exponent: &[u8],
) -> Result<ParsedPublicKey, BadKey> {
    let parameters = algorithm.rsa_parameters().ok_or(BadKey::WrongAlgorithm)?;
    let (n, e) = (without_leading_zeros(modulus), without_leading_zeros(exponent));
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
        return Err(BadKey::RsaSize);
    }
    // An exponent of 1 signs nothing; a long one makes each verification slow.
    let odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
    if !odd(n) || !odd(e) || e == [1] || e.len() > 4 {
        return Err(BadKey::Malformed);
    }
    let components = RsaPublicKeyComponents { n, e };
    components.to_parsed_public_key(parameters).map_err(|_| BadKey::Malformed)
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn uncompressed(
    curve: &'static aws_lc_rs::signature::EcdsaVerificationAlgorithm,
    point: &[u8],
    length: usize,
) -> Result<ParsedPublicKey, BadKey> {
    if point.len() != length || point.first() != Some(&4) {
        return Err(BadKey::Malformed);
    }
    ParsedPublicKey::new(curve, point).map_err(|_| BadKey::Malformed)
}

/// The keys of an issuer: either public ones or one secret, never both.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
    /// Whether the only key is used whatever `kid` a token has: it was set by hand, without a name.
    nameless: bool,
}

/// Why a set has no key for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoKey {
    UnknownKid,
    KidMissing,
    AlgorithmMismatch,
}

impl KeySet {
    /// One public key: a PEM block `PUBLIC KEY` (RFC 7468, section 13) of an RSA, P-256, P-384 or
    /// Ed25519 key. The `kid` of a token is not looked at.
    ///
    /// `algorithm` is needed for RSA keys that are not used with RS256.
    ///
    /// # Errors
    ///
    /// If there is no such block, or its key cannot be used.
    pub fn from_pem(pem: &[u8], algorithm: Option<JwtAlgorithm>) -> Result<Self, BadKey> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).map_err(|_| BadKey::NoPublicKey)?;
        let info = spki::parse(&der)?;
        let key = VerificationKey::public(None, &info, algorithm)?;
        Ok(Self { keys: vec![key], nameless: true })
    }

    /// One secret that the issuer and we share, for an HMAC. The `kid` of a token is not looked at.
    ///
    /// # Errors
    ///
    /// If it is short, is a public key, or the algorithm is not an HMAC.
    pub fn from_secret(secret: &Secret, algorithm: JwtAlgorithm) -> Result<Self, BadKey> {
        let text = secret.expose();
        if text.contains("-----BEGIN ") {
            return Err(BadKey::PublicSecret);
        }
        Self::from_secret_bytes(text.as_bytes(), algorithm)
    }

    /// One secret that is not text.
    pub(super) fn from_secret_bytes(
        secret: &[u8],
        algorithm: JwtAlgorithm,
    ) -> Result<Self, BadKey> {
        let hash = algorithm.hmac().ok_or(BadKey::WrongAlgorithm)?;
        if secret.len() < SECRET_BYTES_MIN {
            return Err(BadKey::ShortSecret);
        }
        let material = KeyMaterial::Hmac(Box::new(hmac::Key::new(hash, secret)));
        Ok(Self { keys: vec![VerificationKey { kid: None, algorithm, material }], nameless: true })
    }

    pub(super) fn of_public_keys(keys: Vec<VerificationKey>) -> Self {
        Self { keys, nameless: false }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// `RS256 a, ES256 b`: at most eight keys, and of each name at most 32 characters that can be
    /// printed.
    pub(super) fn summary(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.keys.iter().take(8).enumerate() {
            let kid = key.kid.as_deref().unwrap_or("without kid");
            let shown: String = kid.chars().filter(|char| is_printable(*char)).take(32).collect();
            write!(
                formatter,
                "{}{} {shown}",
                if at == 0 { "" } else { ", " },
                key.algorithm.word()
            )?;
        }
        formatter.write_str(if self.keys.len() > 8 { ", …" } else { "" })
    }

    /// The key for a token: by name, or the only one of its algorithm.
    pub(super) fn select(
        &self,
        kid: Option<&str>,
        algorithm: Option<JwtAlgorithm>,
    ) -> Result<&VerificationKey, NoKey> {
        let kid = kid.filter(|_| !self.nameless);
        if kid.is_some() && self.keys.iter().all(|key| key.kid.as_deref() != kid) {
            return Err(NoKey::UnknownKid);
        }
        let fits = |key: &&VerificationKey| {
            Some(key.algorithm) == algorithm && (kid.is_none() || key.kid.as_deref() == kid)
        };
        let mut fitting = self.keys.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(NoKey::KidMissing),
            (None, _) => Err(NoKey::AlgorithmMismatch),
        }
    }

    /// Equal for sets of equal keys in any order. Does not tell secrets apart.
    pub(super) fn fingerprint(&self) -> [u8; SHA256_OUTPUT_LEN] {
        let mut each: Vec<_> = self.keys.iter().map(VerificationKey::fingerprint).collect();
        each.sort_unstable();
        let mut context = Context::new(&SHA256);
        context.update(each.as_flattened());
        sha256(context)
    }
}

fn sha256(context: Context) -> [u8; SHA256_OUTPUT_LEN] {
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl From<KeySet> for super::KeySource {
    fn from(keys: KeySet) -> Self {
        Self::Fixed(Arc::new(keys))
    }
}
