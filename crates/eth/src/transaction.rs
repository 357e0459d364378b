//! The hash of a signed transaction, which we know before any upstream says it.
//!
//! Needed when an upstream answers a broadcast with "already known": the
//! transaction is there, so the caller gets its hash. Nothing else of a
//! transaction is decoded here, and no signature is checked.

use alloy_primitives::Keccak256;
use alloy_rlp::Header;
use wellhead_jsonrpc::raw;

use crate::hex;
use crate::id::TransactionHash;

/// The type byte of transactions that carry blobs (EIP-4844).
const BLOB_TYPE: u8 = 3;

/// The Keccak-256 hash of some bytes.
pub fn keccak256(bytes: &[u8]) -> [u8; 32] {
    alloy_primitives::keccak256(bytes).0
}

/// The hash of a signed transaction in its encoded form, as `eth_sendRawTransaction` takes it.
///
/// That is the hash of the bytes, but for a blob transaction: its blobs travel
/// along, while only the transaction inside is hashed.
pub fn transaction_hash(encoded: &[u8]) -> TransactionHash {
    let mut hasher = Keccak256::new();
    match inside_blob_wrapper(encoded) {
        Some(transaction) => {
            hasher.update([BLOB_TYPE]);
            hasher.update(transaction);
        }
        None => hasher.update(encoded),
    }
    TransactionHash(hasher.finalize().0)
}

/// The encoded transaction in the parameters of `eth_sendRawTransaction`.
///
/// `None` when the first parameter is not hex data; whether it is a
/// transaction is for an upstream to say.
pub fn raw_transaction(params: &[u8]) -> Option<Vec<u8>> {
    let text = raw::string(raw::item(raw::trim(params), 0)?)?;
    hex::decode(&text).ok().filter(|encoded| !encoded.is_empty())
}

/// The hash of that transaction.
pub fn raw_transaction_hash(params: &[u8]) -> Option<TransactionHash> {
    raw_transaction(params).map(|encoded| transaction_hash(&encoded))
}

/// The transaction's own list, when `encoded` is a blob transaction with its
/// blobs: `3 || rlp([[transaction], ...])`. Without them the first item is the
/// chain id, which is no list.
fn inside_blob_wrapper(encoded: &[u8]) -> Option<&[u8]> {
    let mut content = encoded.strip_prefix(&[BLOB_TYPE])?;
    let wrapper = Header::decode(&mut content).ok().filter(|header| header.list)?;
    let mut items = content;
    let first = Header::decode(&mut items).ok().filter(|header| header.list)?;
    let length = content.len() - items.len() + first.payload_length;
    content.get(..length).filter(|_| wrapper.payload_length == content.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        let content = items.concat();
        let mut rlp = match content.len() {
            short @ 0..=55 => vec![0xc0 + short as u8],
            long => {
                let digits: Vec<u8> =
                    long.to_be_bytes().into_iter().skip_while(|digit| *digit == 0).collect();
                [vec![0xf7 + digits.len() as u8], digits].concat()
            }
        };
        rlp.extend(content);
        rlp
    }

    #[test]
    fn keccak_of_nothing_and_of_something() {
        assert_eq!(
            hex::encode(&keccak256(b"")),
            "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
        );
        assert_eq!(
            hex::encode(&keccak256(b"Transfer(address,address,uint256)")),
            "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
        );
    }

    /// The example of EIP-155, signed: its hash is known from elsewhere.
    #[test]
    fn a_known_transaction() {
        let encoded = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";
        let params = format!(r#" [ "{encoded}" ] "#);
        assert_eq!(
            raw_transaction_hash(params.as_bytes()).unwrap().to_string(),
            "0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788"
        );
    }

    #[test]
    fn blobs_that_travel_along_are_not_hashed() {
        for fields in [3, 40] {
            let transaction = list(&vec![vec![0x82, 1, 2]; fields]);
            let bare = [&[BLOB_TYPE][..], &transaction].concat();
            let blobs = list(&[vec![0x80; 300]]);
            let wrapped = list(&[transaction, vec![1], blobs.clone(), blobs]);
            let wrapped = [&[BLOB_TYPE][..], &wrapped].concat();
            assert_eq!(transaction_hash(&bare).0, keccak256(&bare));
            assert_eq!(transaction_hash(&wrapped), transaction_hash(&bare));
        }
    }

    #[test]
    fn other_types_are_hashed_whole() {
        for kind in [1, 2, 4] {
            let encoded = [vec![kind], list(&[list(&[vec![5]]), vec![6]])].concat();
            assert_eq!(transaction_hash(&encoded).0, keccak256(&encoded));
        }
    }

    #[test]
    fn parameters_without_a_transaction() {
        for params in ["[]", "[null]", "[\"0x\"]", "[\"abc\"]", "[\"0x0\"]", "[{}]", "{}", "", "["]
        {
            assert_eq!(raw_transaction_hash(params.as_bytes()), None, "{params}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let typed = [&[BLOB_TYPE][..], &bytes].concat();
            let _ = transaction_hash(&typed);
            let _ = raw_transaction_hash(&bytes);
            prop_assume!(bytes.first() != Some(&BLOB_TYPE));
            prop_assert_eq!(transaction_hash(&bytes).0, keccak256(&bytes));
        }
    }
}
