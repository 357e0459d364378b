//! Accounts with keys, derived from the world's seed.
//!
//! Not for real money: every key follows from a small number. What a signature
//! covers is decided in `tx`.

use std::fmt;

use alloy_primitives::{Address, B256, Signature, U256, keccak256};
use k256::ecdsa::{RecoveryId, SigningKey, VerifyingKey};

/// Re-hashing until the bytes are a valid scalar: the first try fails with a
/// chance of 2^-127, so the bound is never met.
const DERIVE_TRIES_MAX: u32 = 8;

/// A secp256k1 key and its address.
pub struct AccountKey {
    signing: SigningKey,
    address: Address,
}

impl AccountKey {
    /// The key number `index` of the world with this `seed`.
    pub fn derive(seed: u64, index: u32) -> Self {
        let mut material = keccak256([&seed.to_be_bytes()[..], &index.to_be_bytes()[..]].concat());
        for _ in 0..DERIVE_TRIES_MAX {
            if let Ok(signing) = SigningKey::from_slice(material.as_slice()) {
                let address = address_of(signing.verifying_key());
                return Self { signing, address };
            }
            material = keccak256(material);
        }
        unreachable!("eight hashes in a row were not scalars of the curve")
    }

    /// The account's address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Signs a digest, with a low `s` as Ethereum asks.
    pub(crate) fn sign(&self, digest: B256) -> Signature {
        let (signature, recovery) = self
            .signing
            .sign_prehash_recoverable(digest.as_slice())
            .expect("a 32-byte digest can always be signed");
        let (r, s) = signature.split_bytes();
        Signature::new(U256::from_be_slice(&r), U256::from_be_slice(&s), recovery.is_y_odd())
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The account that signed `digest`; `None` when the signature fits no key or its `s` is high.
pub fn recover(digest: B256, signature: &Signature) -> Option<Address> {
    if signature.normalize_s().is_some() {
        return None;
    }
    let raw = k256::ecdsa::Signature::from_scalars(
        signature.r().to_be_bytes::<32>(),
        signature.s().to_be_bytes::<32>(),
    )
    .ok()?;
    let recovery = RecoveryId::new(signature.v(), false);
    let key = VerifyingKey::recover_from_prehash(digest.as_slice(), &raw, recovery).ok()?;
    Some(address_of(&key))
}

fn address_of(key: &VerifyingKey) -> Address {
    let point = key.to_encoded_point(false);
    // The first byte only says that the point is uncompressed.
    let hash = keccak256(&point.as_bytes()[1..]);
    Address::from_slice(&hash[12..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_gives_back_its_signer() {
        for index in 0..4 {
            let key = AccountKey::derive(7, index);
            let digest = keccak256([index as u8]);
            assert_eq!(recover(digest, &key.sign(digest)), Some(key.address()));
        }
    }

    #[test]
    fn another_digest_gives_another_address() {
        let key = AccountKey::derive(7, 0);
        let signature = key.sign(keccak256(b"paid"));
        assert_ne!(recover(keccak256(b"not paid"), &signature), Some(key.address()));
    }

    #[test]
    fn a_well_known_key_has_its_well_known_address() {
        // Private key 1: the generator point itself.
        let mut one = [0u8; 32];
        one[31] = 1;
        let signing = SigningKey::from_slice(&one).unwrap();
        assert_eq!(
            address_of(signing.verifying_key()).to_checksum(None),
            "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"
        );
    }
}
