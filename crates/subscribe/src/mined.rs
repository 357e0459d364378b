//! The transactions of one block, read by hash, checked, and rendered once for all subscribers to
//! `alchemy_minedTransactions`.
//!
//! The source is an answer of `eth_getBlockByHash` with whole transactions. Their JSON is as the
//! upstream wrote it. That none is missing is proven only by the root in the header, where answers
//! are verified.

use std::sync::OnceLock;

use bytes::Bytes;
use wellhead_eth::{AddressBytes, NumberedBlock, TransactionHash, hex};
use wellhead_jsonrpc::{raw, write};

use crate::filter_object::{ADDRESSES_MAX, FilterObjectError, flag, member, object};
use crate::notification::Notification;

/// Whose transactions are told: of one receiver, of one sender, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Parties {
    to: Option<AddressBytes>,
    from: Option<AddressBytes>,
}

/// Which transactions are told, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MinedCriteria {
    /// Ascending, each once; none where all transactions are told.
    parties: Box<[Parties]>,
    includes_removed: bool,
    hashes_only: bool,
}

impl MinedCriteria {
    /// Reads the filter object (raw JSON) of a call; none and `null` mean all transactions.
    pub fn read(filter: Option<&[u8]>) -> Result<Self, FilterObjectError> {
        let Some(object) = object(filter)? else { return Ok(Self::default()) };
        let mut parties = Vec::new();
        if let Some(list) = member(object, "addresses") {
            if raw::trim(list).first() != Some(&b'[') {
                return Err(FilterObjectError::Pairs);
            }
            for pair in raw::items(list) {
                if parties.len() == ADDRESSES_MAX {
                    return Err(FilterObjectError::TooManyPairs);
                }
                parties.push(Parties::read(pair).ok_or(FilterObjectError::Pairs)?);
            }
        }
        parties.sort_unstable();
        parties.dedup();
        Ok(Self {
            parties: parties.into(),
            includes_removed: flag(object, "includeRemoved")?,
            hashes_only: flag(object, "hashesOnly")?,
        })
    }

    /// Whether the transactions of blocks that were taken back are told again.
    pub fn includes_removed(&self) -> bool {
        self.includes_removed
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.parties)
    }

    fn matches(&self, transaction: &MinedTransaction) -> bool {
        let (to, from) = (transaction.to, Some(transaction.from));
        let has = |to, from| self.parties.binary_search(&Parties { to, from }).is_ok();
        self.parties.is_empty()
            || has(None, from)
            || (to.is_some() && (has(to, None) || has(to, from)))
    }
}

impl Parties {
    fn read(pair: &[u8]) -> Option<Self> {
        let address = |name| match member(pair, name) {
            None => Some(None),
            Some(value) => Some(Some(hex::decode_array(&raw::string(value)?).ok()?)),
        };
        let (to, from) = (address("to")?, address("from")?);
        (to.is_some() || from.is_some()).then_some(Self { to, from })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct MinedTransaction {
    hash: TransactionHash,
    from: AddressBytes,
    to: Option<AddressBytes>,
    /// Where its JSON ends in the text; it begins where the one before it ends.
    end: u32,
}

/// How a transaction is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TransactionForm {
    is_removed: bool,
    is_hash: bool,
}

/// What stands behind the id in the notification of each transaction, one after the other.
#[derive(Debug)]
struct RenderedTransactions {
    text: Bytes,
    ends: Box<[u32]>,
}

/// The transactions of one block, in their order.
#[derive(Debug)]
pub struct BlockTransactions {
    block: NumberedBlock,
    transactions: Box<[MinedTransaction]>,
    /// Their JSON, one after the other.
    text: Bytes,
    /// By form, made when it is first needed.
    rendered: [OnceLock<RenderedTransactions>; 4],
}

impl BlockTransactions {
    /// Reads and checks a block. `bytes_max` bounds what is kept; `may_be_empty` is false where the
    /// header says that gas was used.
    pub fn read(
        block: NumberedBlock,
        body: &[u8],
        may_be_empty: bool,
        bytes_max: usize,
    ) -> Result<Self, TransactionsError> {
        let hash = raw::field(body, "hash").and_then(raw::string);
        if hash.and_then(|text| text.parse().ok()) != Some(block.hash) {
            return Err(TransactionsError::NotTheBlock);
        }
        let list = raw::field(body, "transactions");
        let list = list.filter(|list| raw::trim(list).first() == Some(&b'['));
        let list = list.ok_or(TransactionsError::NotTheBlock)?;
        // Places have four bytes, in a text with what a notification adds to each transaction.
        if list.len() > bytes_max.min(u32::MAX as usize / 4) {
            return Err(TransactionsError::TooLarge);
        }
        let (mut transactions, mut text) = (Vec::new(), Vec::with_capacity(list.len()));
        for (place, object) in raw::items(list).enumerate() {
            text.extend_from_slice(raw::trim(object));
            let end = text.len() as u32;
            let read = MinedTransaction::read(object, block, end);
            transactions.push(read.ok_or(TransactionsError::Malformed { place })?);
        }
        if transactions.is_empty() && !may_be_empty {
            return Err(TransactionsError::Missing);
        }
        let rendered = Default::default();
        Ok(Self { block, transactions: transactions.into(), text: text.into(), rendered })
    }

    /// The block that they are of.
    pub fn block(&self) -> NumberedBlock {
        self.block
    }

    /// The place of the first transaction from `place` on that is told.
    pub fn next_match(&self, criteria: &MinedCriteria, place: usize) -> Option<usize> {
        let rest = self.transactions.get(place..)?;
        rest.iter().position(|it| criteria.matches(it)).map(|skipped| place + skipped)
    }

    /// The notification of the transaction at this place.
    pub fn notification(
        &self,
        criteria: &MinedCriteria,
        place: usize,
        is_removed: bool,
    ) -> Notification {
        let form = TransactionForm { is_removed, is_hash: criteria.hashes_only };
        let slot = usize::from(form.is_removed) * 2 + usize::from(form.is_hash);
        let rendered = self.rendered[slot].get_or_init(|| self.render(form));
        let start = place.checked_sub(1).map_or(0, |last| rendered.ends[last]);
        let end = rendered.ends[place];
        Notification::of_suffix(rendered.text.slice(start as usize..end as usize))
    }

    /// About how many bytes it holds, once it was told in all forms.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + 2 * size_of_val(&*self.transactions) + 4 * self.text.len()
    }

    fn render(&self, form: TransactionForm) -> RenderedTransactions {
        let (mut text, mut ends, mut start) = (Vec::new(), Vec::new(), 0);
        for transaction in &self.transactions {
            Notification::write_suffix(&mut text, |out| {
                let removed: &[u8] = match form.is_removed {
                    true => br#"{"removed":true,"transaction":"#,
                    false => br#"{"removed":false,"transaction":"#,
                };
                out.extend_from_slice(removed);
                match form.is_hash {
                    true => {
                        out.extend_from_slice(br#"{"hash":"#);
                        write::string(out, &transaction.hash.to_string());
                        out.push(b'}');
                    }
                    false => out.extend_from_slice(&self.text[start..transaction.end as usize]),
                }
                out.push(b'}');
            });
            start = transaction.end as usize;
            ends.push(text.len() as u32);
        }
        RenderedTransactions { text: text.into(), ends: ends.into() }
    }
}

impl MinedTransaction {
    fn read(object: &[u8], block: NumberedBlock, end: u32) -> Option<Self> {
        let text = |name| raw::field(object, name).and_then(raw::string);
        let is_of_block = text("blockHash")?.parse() == Ok(block.hash);
        let to = match member(object, "to") {
            // It creates a contract.
            None => None,
            Some(to) => Some(hex::decode_array(&raw::string(to)?).ok()?),
        };
        let from = hex::decode_array(&text("from")?).ok()?;
        let hash = text("hash")?.parse().ok()?;
        is_of_block.then_some(Self { hash, from, to, end })
    }
}

/// Why an answer is not believed. It is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransactionsError {
    /// It is not the block that was asked for, or has no list of transactions.
    #[error("the answer is not the block with its transactions")]
    NotTheBlock,
    /// A transaction is a hash, is of another block, or cannot be read.
    #[error("transaction {place} of the block cannot be read, or is of another block")]
    Malformed {
        /// Its place.
        place: usize,
    },
    /// There is none, and the header says that gas was used.
    #[error("the block used gas and has no transaction")]
    Missing,
    /// They have more bytes than may be kept.
    #[error("the transactions have more bytes than may be kept")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::header::tests::id;

    /// A transaction of this sender to this receiver, or to none where that is 0.
    fn transaction(block: NumberedBlock, number: u8, from: u8, to: u8) -> Value {
        let to = if to == 0 { Value::Null } else { json!(hex::encode(&[to; 20])) };
        json!({
            "hash": hex::encode(&[number; 32]), "blockHash": block.hash.to_string(),
            "from": hex::encode(&[from; 20]), "to": to,
        })
    }

    fn body(block: NumberedBlock, transactions: &[Value]) -> String {
        json!({ "hash": block.hash.to_string(), "transactions": transactions }).to_string()
    }

    fn read(block: NumberedBlock, body: &str) -> Result<BlockTransactions, TransactionsError> {
        BlockTransactions::read(block, body.as_bytes(), false, 1 << 20)
    }

    fn criteria(object: &Value) -> Result<MinedCriteria, FilterObjectError> {
        MinedCriteria::read(Some(object.to_string().as_bytes()))
    }

    /// The numbers of the transactions that these pairs match, of `1: 5 to 6, 2: 5 to none, 3: 6 to 5`.
    fn check(addresses: &Value, expected: &[u8]) {
        let block = id(5, 0);
        let all = [(1, 5, 6), (2, 5, 0), (3, 6, 5)];
        let all = all.map(|(number, from, to)| transaction(block, number, from, to));
        let transactions = read(block, &body(block, &all)).expect("transactions");
        let criteria = criteria(&json!({ "addresses": addresses })).expect("a filter");
        let (mut place, mut found) = (0, Vec::new());
        while let Some(next) = transactions.next_match(&criteria, place) {
            found.push(transactions.transactions[next].hash.0[0]);
            place = next + 1;
        }
        assert_eq!(found, expected, "{addresses}");
    }

    #[test]
    fn transactions_match_by_sender_and_receiver() {
        let address = |byte: u8| hex::encode(&[byte; 20]);
        check(&Value::Null, &[1, 2, 3]);
        check(&json!([]), &[1, 2, 3]);
        check(&json!([{ "from": address(5) }]), &[1, 2]);
        check(&json!([{ "to": address(5) }]), &[3]);
        check(&json!([{ "to": address(6), "from": address(5) }]), &[1]);
        check(&json!([{ "to": address(6), "from": address(6) }]), &[]);
        check(&json!([{ "to": address(5) }, { "from": address(5), "to": address(6) }]), &[1, 3]);
        check(&json!([{ "to": address(7) }]), &[]);
    }

    #[test]
    fn a_transaction_is_told_in_the_form_of_alchemy_and_made_once() {
        let block = id(5, 0);
        let all = [transaction(block, 1, 5, 6), transaction(block, 2, 5, 0)];
        let transactions = read(block, &body(block, &all)).expect("transactions");
        for (hashes_only, is_removed) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let criteria = criteria(&json!({ "hashesOnly": hashes_only })).expect("a filter");
            for (place, object) in all.iter().enumerate() {
                let told = || transactions.notification(&criteria, place, is_removed);
                let whole =
                    if hashes_only { json!({ "hash": object["hash"] }) } else { object.clone() };
                let found = serde_json::from_slice::<Value>(&told().result()).expect("JSON");
                assert_eq!(found, json!({ "removed": is_removed, "transaction": whole }));
                assert_eq!(told().suffix().as_ptr(), told().suffix().as_ptr());
            }
        }
    }

    #[test]
    fn what_cannot_be_the_transactions_of_the_block_is_refused() {
        let block = id(5, 0);
        let check =
            |body: &str, error| assert_eq!(read(block, body).map(|_| ()), Err(error), "{body}");
        check("null", TransactionsError::NotTheBlock);
        check(&body(id(5, 1), &[]), TransactionsError::NotTheBlock);
        check(&body(block, &[]), TransactionsError::Missing);
        let empty = body(block, &[]);
        assert!(BlockTransactions::read(block, empty.as_bytes(), true, 100).is_ok());
        let malformed = TransactionsError::Malformed { place: 0 };
        check(&body(block, &[json!(hex::encode(&[1; 32]))]), malformed);
        check(&body(block, &[transaction(id(5, 1), 1, 2, 3)]), malformed);
        let mut no_sender = transaction(block, 1, 2, 3);
        no_sender["from"] = Value::Null;
        check(&body(block, &[no_sender]), malformed);
        let one = body(block, &[transaction(block, 1, 2, 3)]);
        let read = BlockTransactions::read(block, one.as_bytes(), true, 50);
        assert_eq!(read.map(|_| ()), Err(TransactionsError::TooLarge));
    }

    #[test]
    fn filters_are_bounded_and_checked() {
        assert_eq!(MinedCriteria::read(None), Ok(MinedCriteria::default()));
        assert_eq!(criteria(&json!([])), Err(FilterObjectError::NotAnObject));
        for bad in [json!("0x"), json!([{}]), json!([{ "to": "0x12" }]), json!(["0x"])] {
            let read = criteria(&json!({ "addresses": bad }));
            assert_eq!(read, Err(FilterObjectError::Pairs), "{bad}");
        }
        let read = criteria(&json!({ "includeRemoved": 1 }));
        assert_eq!(read, Err(FilterObjectError::Flag("includeRemoved")));
        assert!(criteria(&json!({ "includeRemoved": true })).expect("a filter").includes_removed());
        let many = |count: usize| {
            let pairs: Vec<_> =
                (0..count).map(|n| json!({ "to": format!("0x{n:040x}") })).collect();
            criteria(&json!({ "addresses": pairs })).map(|criteria| criteria.parties.len())
        };
        assert_eq!(many(1000), Ok(1000));
        assert_eq!(many(1001), Err(FilterObjectError::TooManyPairs));
    }
}
