//! Accounts with keys, derived from the world's seed.
//!
//! Not for real money: every key follows from a small number. What a signature
//! covers is decided in `tx`.

use alloy_primitives::{Address, B256, Signature, keccak256};
use k256::ecdsa::SigningKey;

/// A secp256k1 key and its address.
#[derive(Debug)]
pub struct AccountKey {
    signing: SigningKey,
    address: Address,
}

impl AccountKey {
    /// The key number `index` of the world with this `seed`.
    pub fn derive(seed: u64, index: u32) -> Self {
        let hash = keccak256([&seed.to_be_bytes()[..], &index.to_be_bytes()[..]].concat());
        let signing = SigningKey::from_slice(hash.as_slice())
            .expect("a hash is a scalar of the curve, but for a chance of 2^-127");
        Self { address: Address::from_private_key(&signing), signing }
    }

    /// The account's address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Signs a digest, with a low `s` as Ethereum asks.
    pub(crate) fn sign(&self, digest: B256) -> Signature {
        let signed = self.signing.sign_prehash_recoverable(digest.as_slice());
        signed.expect("a 32-byte digest can always be signed").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_gives_back_its_signer() {
        for index in 0..4 {
            let key = AccountKey::derive(7, index);
            let digest = keccak256([index as u8]);
            let signer = key.sign(digest).recover_address_from_prehash(&digest).unwrap();
            assert_eq!(signer, key.address());
        }
    }

    #[test]
    fn another_digest_gives_another_address() {
        let key = AccountKey::derive(7, 0);
        let signature = key.sign(keccak256(b"paid"));
        let other = signature.recover_address_from_prehash(&keccak256(b"not paid"));
        assert_ne!(other.ok(), Some(key.address()));
    }

    #[test]
    fn a_well_known_key_has_its_well_known_address() {
        // Private key 1: the generator point itself.
        let mut one = [0u8; 32];
        one[31] = 1;
        let signing = SigningKey::from_slice(&one).unwrap();
        assert_eq!(
            Address::from_private_key(&signing).to_checksum(None),
            "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"
        );
    }
}
