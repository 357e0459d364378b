//! Which transactions of a pool `alchemy_pendingTransactions` tells, and how.

use wellhead_eth::{AddressBytes, hex};
use wellhead_jsonrpc::raw;

use crate::filter_object::{ADDRESSES_MAX, FilterObjectError, flag, member, object};
use crate::notification::Notification;
use crate::pending::PendingEvent;

/// A filter of pending transactions. One that names senders and receivers matches what either side
/// matches, as at Alchemy; one without addresses matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PendingCriteria {
    /// Ascending, each once.
    from: Box<[AddressBytes]>,
    /// As `from`.
    to: Box<[AddressBytes]>,
    hashes_only: bool,
}

impl PendingCriteria {
    /// Reads the filter object (raw JSON) of a call; none and `null` mean all transactions.
    pub fn read(filter: Option<&[u8]>) -> Result<Self, FilterObjectError> {
        let Some(object) = object(filter)? else { return Ok(Self::default()) };
        let (from, to) = (addresses(object, "fromAddress")?, addresses(object, "toAddress")?);
        if from.len() + to.len() > ADDRESSES_MAX {
            return Err(FilterObjectError::TooManyAddresses);
        }
        Ok(Self { from, to, hashes_only: flag(object, "hashesOnly")? })
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.from) + size_of_val(&*self.to)
    }

    /// What is told of a transaction; `None` where it does not match.
    pub fn notification(&self, event: &PendingEvent) -> Option<Notification> {
        let is_among = |named: &[AddressBytes], party: Option<AddressBytes>| {
            party.is_some_and(|party| named.binary_search(&party).is_ok())
        };
        let is_told = (self.from.is_empty() && self.to.is_empty())
            || is_among(&self.from, event.from)
            || is_among(&self.to, event.to);
        is_told.then(|| match self.hashes_only {
            true => Notification::new(format!("\"{}\"", event.hash).as_bytes()),
            false => event.notification.clone(),
        })
    }
}

/// An address, or a list of them.
fn addresses(object: &[u8], name: &'static str) -> Result<Box<[AddressBytes]>, FilterObjectError> {
    let bad = FilterObjectError::Addresses(name);
    let Some(value) = member(object, name) else { return Ok(Box::default()) };
    let address =
        |value: &[u8]| raw::string(value).and_then(|text| hex::decode_array(&text).ok()).ok_or(bad);
    let mut named = match raw::trim(value).first() {
        Some(b'[') => raw::items(value).take(ADDRESSES_MAX + 1).map(address).collect(),
        _ => address(value).map(|one| vec![one]),
    }?;
    named.sort_unstable();
    named.dedup();
    Ok(named.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pending::PendingJournal;

    fn address(byte: u8) -> String {
        hex::encode(&[byte; 20])
    }

    fn read(object: &Value) -> Result<PendingCriteria, FilterObjectError> {
        PendingCriteria::read(Some(object.to_string().as_bytes()))
    }

    /// The first bytes of the hashes that are told, of `1: 5 to 6, 2: 5 to none, 3: 6 to 5`.
    fn check(object: &Value, expected: &[u8]) {
        let mut journal = PendingJournal::default();
        for (number, from, to) in [(1, 5, 6), (2, 5, 0), (3, 6, 5)] {
            let to = if to == 0 { Value::Null } else { json!(address(to)) };
            let hash = hex::encode(&[number; 32]);
            let whole = json!({ "hash": hash, "from": address(from), "to": to }).to_string();
            assert!(journal.offer_result(whole.as_bytes()));
        }
        let criteria = read(object).expect("a filter");
        let view = journal.reader().load();
        let told = view.iter().filter(|(_, event)| criteria.notification(event).is_some());
        assert_eq!(
            told.map(|(_, event)| event.hash.0[0]).collect::<Vec<_>>(),
            expected,
            "{object}"
        );
    }

    #[test]
    fn senders_or_receivers_match() {
        check(&json!({}), &[1, 2, 3]);
        check(&json!({ "fromAddress": address(5) }), &[1, 2]);
        check(&json!({ "toAddress": [address(6)] }), &[1]);
        check(&json!({ "fromAddress": [address(6)], "toAddress": address(6) }), &[1, 3]);
        check(&json!({ "toAddress": [address(7), address(5)] }), &[3]);
        check(&json!({ "fromAddress": [], "toAddress": null }), &[1, 2, 3]);
    }

    #[test]
    fn hashes_alone_are_told_where_they_are_wanted() {
        let mut journal = PendingJournal::default();
        let hash = hex::encode(&[9; 32]);
        let whole = json!({ "hash": hash, "from": address(1), "to": null }).to_string();
        journal.offer_result(whole.as_bytes());
        let view = journal.reader().load();
        let (_, event) = view.iter().next().expect("one");
        let told = |object: Value| {
            let notification = read(&object).expect("a filter").notification(event);
            String::from_utf8(notification.expect("told").result().to_vec()).expect("text")
        };
        assert_eq!(told(json!({ "hashesOnly": true })), format!("\"{hash}\""));
        assert_eq!(told(json!({ "hashesOnly": false })), whole);
    }

    #[test]
    fn filters_are_bounded_and_checked() {
        assert_eq!(PendingCriteria::read(None), Ok(PendingCriteria::default()));
        assert_eq!(read(&json!([])), Err(FilterObjectError::NotAnObject));
        for bad in [json!("0x12"), json!(5), json!([1]), json!({})] {
            let found = read(&json!({ "toAddress": bad }));
            assert_eq!(found, Err(FilterObjectError::Addresses("toAddress")), "{bad}");
        }
        assert_eq!(read(&json!({ "hashesOnly": 1 })), Err(FilterObjectError::Flag("hashesOnly")));
        let many = |count: usize| {
            let all: Vec<_> = (0..count).map(|n| format!("0x{n:040x}")).collect();
            read(&json!({ "fromAddress": all, "toAddress": "0x".to_owned() + &"9".repeat(40) }))
        };
        assert!(many(999).is_ok());
        assert_eq!(many(1000), Err(FilterObjectError::TooManyAddresses));
    }
}
