//! The signer of a digest.

use alloy_primitives::{Address, B256, U256, keccak256};
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};

/// The address whose key signed `digest`; `None` when the signature fits no key.
///
/// A high `s` is accepted: the oldest transactions have it. Whether a new one may is
/// for its chain to say.
pub fn recover(digest: B256, r: U256, s: U256, y_is_odd: bool) -> Option<Address> {
    let written = Signature::from_scalars(r.to_be_bytes::<32>(), s.to_be_bytes::<32>()).ok()?;
    // The library takes a low `s` alone; the other one is its negative, with the other parity.
    let (signature, y_is_odd) = match written.normalize_s() {
        Some(low) => (low, !y_is_odd),
        None => (written, y_is_odd),
    };
    let recovery = RecoveryId::new(y_is_odd, false);
    let key = VerifyingKey::recover_from_prehash(digest.as_slice(), &signature, recovery).ok()?;
    let point = key.to_encoded_point(false);
    // The first byte only says that the point is uncompressed.
    let hash = keccak256(point.as_bytes().get(1..)?);
    Some(Address::from_slice(&hash[12..]))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{address, uint};

    use super::*;

    /// The order of the curve.
    const ORDER: U256 =
        uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

    /// The example of EIP-155.
    const R: U256 = uint!(0x28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276_U256);
    const S: U256 = uint!(0x67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83_U256);

    fn digest() -> B256 {
        "0xdaf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53".parse().unwrap()
    }

    #[test]
    fn the_signer_of_eip_155() {
        let signer = address!("0x9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f");
        assert_eq!(recover(digest(), R, S, false), Some(signer));
        assert_eq!(recover(digest(), R, ORDER - S, true), Some(signer));
        assert_ne!(recover(digest(), R, S, true), Some(signer));
    }

    #[test]
    fn what_fits_no_key() {
        assert_eq!(recover(digest(), U256::ZERO, S, false), None);
        assert_eq!(recover(digest(), R, U256::ZERO, false), None);
        assert_eq!(recover(digest(), R, ORDER, false), None);
        assert_eq!(recover(digest(), U256::MAX, S, false), None);
    }
}
