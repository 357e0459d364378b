//! The receipts of one block, read by hash, checked, and rendered once for all subscribers.
//!
//! The source is an answer of `eth_getBlockReceipts`. A receipt's JSON is as the upstream wrote it.
//! That none is missing is proven elsewhere: by the root in the header where answers are verified,
//! and by the bloom when the logs are read from the same answer ([`crate::LogsReply::Receipts`]).

use std::collections::HashMap;

use bytes::Bytes;
use wellhead_eth::{NumberedBlock, TransactionHash};
use wellhead_jsonrpc::raw;

use crate::filter_object::{FilterObjectError, HASHES_MAX, member, object};
use crate::notification::Notification;

/// Which receipts are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiptCriteria {
    /// Ascending, each once; none where all receipts are told.
    hashes: Box<[TransactionHash]>,
}

impl ReceiptCriteria {
    /// Reads the filter object (raw JSON) of a call; none, `null` and an empty list mean all
    /// receipts.
    pub fn read(filter: Option<&[u8]>) -> Result<Self, FilterObjectError> {
        let list = object(filter)?.and_then(|object| member(object, "transactionHashes"));
        let Some(list) = list else { return Ok(Self::default()) };
        if raw::trim(list).first() != Some(&b'[') {
            return Err(FilterObjectError::Hashes);
        }
        let mut hashes = Vec::<TransactionHash>::new();
        for hash in raw::items(list) {
            if hashes.len() == HASHES_MAX {
                return Err(FilterObjectError::TooManyHashes);
            }
            let hash = raw::string(hash).and_then(|text| text.parse().ok());
            hashes.push(hash.ok_or(FilterObjectError::Hashes)?);
        }
        hashes.sort_unstable();
        hashes.dedup();
        Ok(Self { hashes: hashes.into() })
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.hashes)
    }
}

/// The receipts of one block, in their order.
#[derive(Debug)]
pub struct BlockReceipts {
    block: NumberedBlock,
    /// What stands behind the id in the notification of all receipts.
    text: Bytes,
    /// By transaction: where its receipt begins and ends in `text`.
    places: HashMap<TransactionHash, (u32, u32)>,
}

impl BlockReceipts {
    /// Reads and checks an answer. `bytes_max` bounds what is kept; `may_be_empty` is false where the
    /// header says that gas was used.
    pub fn read(
        block: NumberedBlock,
        list: &[u8],
        may_be_empty: bool,
        bytes_max: usize,
    ) -> Result<Self, ReceiptsError> {
        if raw::trim(list).first() != Some(&b'[') {
            return Err(ReceiptsError::NotAnArray);
        }
        // Places in the text have four bytes.
        if list.len() > bytes_max.min(u32::MAX as usize / 2) {
            return Err(ReceiptsError::TooLarge);
        }
        let (mut text, mut places) = (Vec::with_capacity(list.len() + 64), HashMap::new());
        let mut failed = None;
        Notification::write_suffix(&mut text, |out| {
            out.push(b'[');
            for (place, receipt) in raw::items(list).enumerate() {
                if place > 0 {
                    out.push(b',');
                }
                let start = out.len() as u32;
                out.extend_from_slice(raw::trim(receipt));
                let known = match transaction_of(receipt, block, place) {
                    Ok(hash) => places.insert(hash, (start, out.len() as u32)).is_some(),
                    Err(error) => return failed = Some(error),
                };
                if known {
                    return failed = Some(ReceiptsError::Malformed { place });
                }
            }
            out.push(b']');
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if places.is_empty() && !may_be_empty {
            return Err(ReceiptsError::Missing);
        }
        text.shrink_to_fit();
        places.shrink_to_fit();
        Ok(Self { block, text: text.into(), places })
    }

    /// The block that the receipts are of.
    pub fn block(&self) -> NumberedBlock {
        self.block
    }

    /// The notification of the receipts that are told, in the order of the block; `None` where
    /// there is none.
    pub fn notification(&self, criteria: &ReceiptCriteria) -> Option<Notification> {
        if criteria.hashes.is_empty() {
            let all = || Notification::of_suffix(self.text.clone());
            return (!self.places.is_empty()).then(all);
        }
        let mut told: Vec<_> =
            criteria.hashes.iter().filter_map(|hash| self.places.get(hash)).collect();
        if told.is_empty() {
            return None;
        }
        told.sort_unstable();
        let mut list = b"[".to_vec();
        for (start, end) in told {
            if list.len() > 1 {
                list.push(b',');
            }
            list.extend_from_slice(&self.text[*start as usize..*end as usize]);
        }
        list.push(b']');
        Some(Notification::new(&list))
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        let place = size_of::<(TransactionHash, (u32, u32))>();
        // A hash table is up to half empty.
        size_of::<Self>() + self.text.len() + 2 * place * self.places.len()
    }
}

fn transaction_of(
    receipt: &[u8],
    block: NumberedBlock,
    place: usize,
) -> Result<TransactionHash, ReceiptsError> {
    let malformed = ReceiptsError::Malformed { place };
    let text = |name| raw::field(receipt, name).and_then(raw::string).ok_or(malformed);
    let is_of_block = text("blockHash")?.parse().is_ok_and(|hash| block.hash == hash);
    if !is_of_block {
        return Err(ReceiptsError::OtherBlock { place });
    }
    text("transactionHash")?.parse().map_err(|_| malformed)
}

/// Why an answer is not believed. It is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptsError {
    /// It is no array: `null` for a block that the upstream does not have.
    #[error("the answer is not an array")]
    NotAnArray,
    /// A receipt does not name its block or transaction, or there are two of one transaction.
    #[error("receipt {place} of the answer cannot be read")]
    Malformed {
        /// The place of the receipt.
        place: usize,
    },
    /// A receipt is of another block.
    #[error("receipt {place} of the answer is of another block")]
    OtherBlock {
        /// The place of the receipt.
        place: usize,
    },
    /// There is none, and the header says that gas was used.
    #[error("the block used gas and the answer has no receipt")]
    Missing,
    /// They have more bytes than may be kept.
    #[error("the receipts have more bytes than may be kept")]
    TooLarge,
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};
    use wellhead_eth::hex;

    use super::*;
    use crate::header::tests::id;

    pub(crate) fn receipt(block: NumberedBlock, transaction: u8) -> Value {
        json!({
            "transactionHash": hex::encode(&[transaction; 32]), "blockHash": block.hash.to_string(),
            "status": "0x1", "logs": [],
        })
    }

    fn read(list: &Value) -> Result<BlockReceipts, ReceiptsError> {
        BlockReceipts::read(id(5, 0), list.to_string().as_bytes(), false, 1 << 20)
    }

    fn criteria(transactions: &[u8]) -> ReceiptCriteria {
        let hashes: Vec<_> = transactions.iter().map(|byte| hex::encode(&[*byte; 32])).collect();
        let object = json!({ "transactionHashes": hashes }).to_string();
        ReceiptCriteria::read(Some(object.as_bytes())).expect("a filter")
    }

    #[test]
    fn receipts_are_told_as_they_are_written_and_in_their_order() {
        let block = id(5, 0);
        let list = json!([receipt(block, 1), receipt(block, 2), receipt(block, 3)]);
        let receipts = read(&list).expect("receipts");
        let told = |criteria: &ReceiptCriteria| {
            let notification = receipts.notification(criteria)?;
            Some(serde_json::from_slice::<Value>(&notification.result()).expect("JSON"))
        };
        assert_eq!(told(&criteria(&[])), Some(list.clone()));
        assert_eq!(told(&criteria(&[3, 9, 1, 3])), Some(json!([list[0], list[2]])));
        assert_eq!(told(&criteria(&[9])), None);
        let all = criteria(&[]);
        let at = || receipts.notification(&all).expect("all").suffix().as_ptr();
        assert_eq!(at(), at(), "made once");
    }

    #[test]
    fn a_block_without_transactions_is_not_told() {
        let block = id(5, 0);
        let receipts = BlockReceipts::read(block, b" [] ", true, 100).expect("no gas was used");
        assert_eq!(receipts.notification(&criteria(&[])), None);
        assert_eq!(read(&json!([])).map(|_| ()), Err(ReceiptsError::Missing));
    }

    #[test]
    fn what_cannot_be_the_receipts_of_the_block_is_refused() {
        let block = id(5, 0);
        let check = |list: Value, error| assert_eq!(read(&list).map(|_| ()), Err(error), "{list}");
        check(Value::Null, ReceiptsError::NotAnArray);
        check(json!([{}]), ReceiptsError::Malformed { place: 0 });
        check(json!([receipt(id(5, 1), 1)]), ReceiptsError::OtherBlock { place: 0 });
        let twice = json!([receipt(block, 1), receipt(block, 1)]);
        check(twice, ReceiptsError::Malformed { place: 1 });
        let mut bad = receipt(block, 1);
        bad["transactionHash"] = json!("0x1");
        check(json!([receipt(block, 2), bad]), ReceiptsError::Malformed { place: 1 });
        let text = json!([receipt(block, 1)]).to_string();
        let read = BlockReceipts::read(block, text.as_bytes(), true, text.len() - 1);
        assert_eq!(read.map(|_| ()), Err(ReceiptsError::TooLarge));
    }

    #[test]
    fn filters_are_read_as_geth_reads_them() {
        let read = |text: &str| ReceiptCriteria::read(Some(text.as_bytes()));
        for all in ["null", "{}", r#"{"transactionHashes":null}"#, r#"{"transactionHashes":[]}"#] {
            assert_eq!(read(all), Ok(ReceiptCriteria::default()), "{all}");
        }
        assert_eq!(ReceiptCriteria::read(None), Ok(ReceiptCriteria::default()));
        assert_eq!(read("[]"), Err(FilterObjectError::NotAnObject));
        for bad in [r#"{"transactionHashes":"0x1"}"#, r#"{"transactionHashes":["0x1"]}"#] {
            assert_eq!(read(bad), Err(FilterObjectError::Hashes), "{bad}");
        }
        let many = |count: u32| {
            let hashes: Vec<_> = (0..count).map(|n| format!("\"0x{n:064x}\"")).collect();
            read(&format!(r#"{{"transactionHashes":[{}]}}"#, hashes.join(",")))
        };
        assert_eq!(many(200).expect("allowed").hashes.len(), 200);
        assert_eq!(many(201), Err(FilterObjectError::TooManyHashes));
    }
}
