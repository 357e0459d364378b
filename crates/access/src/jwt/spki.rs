//! A public key as X.509 writes it (`SubjectPublicKeyInfo`: RFC 5280, RFC 3279, RFC 5480, RFC 8410).
//!
//! Only what four types of keys need: the operator's own file is read, once, so an unusual encoding
//! is an error and not a case.

use super::key::BadKey;

/// The numbers of a public key, as they were written: nothing here checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublicKeyInfo<'a> {
    Rsa { modulus: &'a [u8], exponent: &'a [u8] },
    P256 { point: &'a [u8] },
    P384 { point: &'a [u8] },
    Ed25519 { point: &'a [u8] },
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const NULL: u8 = 0x05;
const OBJECT_IDENTIFIER: u8 = 0x06;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const SECP384R1: &[u8] = &[0x2b, 0x81, 0x04, 0, 0x22];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// The key in a `SubjectPublicKeyInfo`.
pub(super) fn parse(der: &[u8]) -> Result<PublicKeyInfo<'_>, BadKey> {
    let mut outer = Der(der);
    let mut info = Der(outer.take(SEQUENCE)?);
    outer.end()?;
    let mut algorithm = Der(info.take(SEQUENCE)?);
    let bits = info.take(BIT_STRING)?;
    info.end()?;
    let kind = algorithm.take(OBJECT_IDENTIFIER)?;
    // The first byte counts the bits of the last one that are not used.
    let (0, key) =
        bits.split_first().map(|(unused, key)| (*unused, key)).ok_or(BadKey::Malformed)?
    else {
        return Err(BadKey::Malformed);
    };
    match kind {
        RSA_ENCRYPTION => {
            algorithm.take(NULL)?;
            algorithm.end()?;
            rsa(key)
        }
        EC_PUBLIC_KEY => match algorithm.take(OBJECT_IDENTIFIER)? {
            PRIME256V1 => Ok(PublicKeyInfo::P256 { point: key }),
            SECP384R1 => Ok(PublicKeyInfo::P384 { point: key }),
            _ => Err(BadKey::UnknownType),
        },
        ED25519 => Ok(PublicKeyInfo::Ed25519 { point: key }),
        _ => Err(BadKey::UnknownType),
    }
}

fn rsa(key: &[u8]) -> Result<PublicKeyInfo<'_>, BadKey> {
    let mut outer = Der(key);
    let mut numbers = Der(outer.take(SEQUENCE)?);
    outer.end()?;
    let (modulus, exponent) = (numbers.take(INTEGER)?, numbers.take(INTEGER)?);
    numbers.end()?;
    let negative = |number: &[u8]| number.first().is_none_or(|first| *first >= 0x80);
    if negative(modulus) || negative(exponent) {
        return Err(BadKey::Malformed);
    }
    Ok(PublicKeyInfo::Rsa { modulus, exponent })
}

/// What is left of the elements of a DER value.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Result<&'a [u8], BadKey> {
        let [found, first, rest @ ..] = self.0 else { return Err(BadKey::Malformed) };
        if *found != tag {
            return Err(BadKey::Malformed);
        }
        let (length, rest) = match *first {
            short @ 0..=0x7f => (usize::from(short), rest),
            // Longer than 64 KiB is no public key.
            long @ 0x81..=0x82 => {
                let size = usize::from(long & 0x7f);
                let (length, rest) = rest.split_at_checked(size).ok_or(BadKey::Malformed)?;
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
            _ => return Err(BadKey::Malformed),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(BadKey::Malformed)?;
        self.0 = rest;
        Ok(content)
    }

    fn end(&self) -> Result<(), BadKey> {
        if self.0.is_empty() { Ok(()) } else { Err(BadKey::Malformed) }
    }
}
