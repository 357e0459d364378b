//! Transactions: as JSON, as bytes, and their signers.
//!
//! Types 0 to 4 are known: legacy, access lists (EIP-2930), dynamic fees (EIP-1559),
//! blobs (EIP-4844) and set-code (EIP-7702). Whether a transaction is allowed, paid
//! for or well-formed beyond that is for its chain.

use alloy_primitives::{Address, B256, Signature, keccak256};
use wellhead_eth::{ChainId, TransactionHash, transaction_hash};

use crate::SENDERS_MAX;
use crate::audit::{Audit, must, want};
use crate::finding::{Check, InvalidAnswer, Obstacle, Why};
use crate::json::{Value, object};
use crate::rlp::{RlpItem, RlpList};

const LEGACY: u64 = 0;
const ACCESS_LIST: u64 = 1;
const DYNAMIC_FEE: u64 = 2;
const BLOB: u64 = 3;
const SET_CODE: u64 = 4;

object! {
    TransactionJson {
        hash: "hash",
        block_hash: "blockHash",
        block_number: "blockNumber",
        index: "transactionIndex",
        from: "from",
        to: "to",
        kind: "type",
        chain_id: "chainId",
        nonce: "nonce",
        gas: "gas",
        gas_price: "gasPrice",
        max_fee: "maxFeePerGas",
        max_tip: "maxPriorityFeePerGas",
        max_blob_fee: "maxFeePerBlobGas",
        value: "value",
        input: "input",
        access_list: "accessList",
        blob_hashes: "blobVersionedHashes",
        authorizations: "authorizationList",
        v: "v",
        r: "r",
        s: "s",
        y_parity: "yParity",
    }
}

object! { AccessJson { address: "address", storage_keys: "storageKeys", } }

object! {
    AuthorizationJson {
        chain_id: "chainId",
        address: "address",
        nonce: "nonce",
        y_parity: "yParity",
        v: "v",
        r: "r",
        s: "s",
    }
}

/// The item at `index` of a list says at which index it stands, by Ethereum's rules: some chains
/// leave out transactions of their own and keep the gaps.
pub(crate) fn numbered(
    audit: &mut Audit<'_>,
    member: Option<Value<'_>>,
    index: usize,
) -> Result<(), InvalidAnswer> {
    match audit.take(want(member, "transactionIndex", Value::quantity))? {
        Some(named) if named != index as u64 => {
            audit.differs(Check::Order, format!("item {index} says it is {named}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// One transaction by itself. At the level `full` its bytes, if they could be made.
pub(crate) fn check(
    audit: &mut Audit<'_>,
    tx: &TransactionJson<'_>,
) -> Result<Option<Vec<u8>>, InvalidAnswer> {
    let hash = must(tx.hash, "hash", Value::hash)?;
    chain_id(audit, tx)?;
    if !audit.full {
        return Ok(None);
    }
    let Some(encoded) = audit.take(encode(tx))? else { return Ok(None) };
    let computed = keccak256(&encoded);
    if computed != hash {
        audit.differs(Check::TransactionHash, format!("named {hash}, computed {computed}"))?;
        return Ok(None);
    }
    let Some(from) = audit.take(want(tx.from, "from", Value::address))? else {
        return Ok(Some(encoded));
    };
    audit.senders += 1;
    if audit.senders > SENDERS_MAX {
        audit.doubt(Why::TooManySenders);
        return Ok(Some(encoded));
    }
    let signer = sender_of_raw(&encoded);
    if signer != Some(from) {
        let signer = signer.map_or("no key".to_owned(), |signer| signer.to_string());
        audit.differs(Check::Sender, format!("{hash}: from {from}, signed by {signer}"))?;
    }
    Ok(Some(encoded))
}

fn chain_id(audit: &mut Audit<'_>, tx: &TransactionJson<'_>) -> Result<(), InvalidAnswer> {
    let Some(ours) = audit.known.chain_id else { return Ok(()) };
    let Some(kind) = audit.take(kind(tx.kind))? else { return Ok(()) };
    let named = match kind {
        // What was signed is in `v`; what `chainId` says differs between clients.
        LEGACY => match audit.take(want(tx.v, "v", Value::quantity))? {
            Some(v) => legacy_chain(v),
            None => None,
        },
        ACCESS_LIST..=SET_CODE => audit.take(want(tx.chain_id, "chainId", Value::quantity))?,
        // Of other types nothing is known, not even whether they are signed.
        _ => None,
    };
    match named {
        Some(named) if named != ours.0 => {
            audit.differs(Check::ChainId, format!("signed for chain {named}, not {ours}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The chain of a legacy signature (EIP-155); `None` when it is good on any.
const fn legacy_chain(v: u64) -> Option<u64> {
    match v {
        35.. => Some((v - 35) / 2),
        _ => None,
    }
}

/// The type; a transaction or receipt without one is older than types.
pub(crate) fn kind(member: Option<Value<'_>>) -> Result<u64, Obstacle> {
    match member {
        None => Ok(LEGACY),
        Some(_) => want(member, "type", Value::quantity),
    }
}

/// The type byte in front of the RLP.
pub(crate) fn prefix(kind: u64) -> Result<Option<u8>, Obstacle> {
    match kind {
        LEGACY => Ok(None),
        ACCESS_LIST..=SET_CODE => Ok(Some(kind as u8)),
        _ => Err(Why::TransactionType { kind }.into()),
    }
}

/// The bytes whose hash is the transaction's, and which its block commits to.
fn encode(tx: &TransactionJson<'_>) -> Result<Vec<u8>, Obstacle> {
    let kind = kind(tx.kind)?;
    let prefix = prefix(kind)?;
    let r = want(tx.r, "r", Value::big)?;
    let s = want(tx.s, "s", Value::big)?;
    if r.is_zero() && s.is_zero() {
        return Err(Why::Unsigned.into());
    }
    let mut list = RlpList::default();
    if kind != LEGACY {
        list.add(&want(tx.chain_id, "chainId", Value::big)?);
    }
    list.add(&want(tx.nonce, "nonce", Value::quantity)?);
    if kind == LEGACY || kind == ACCESS_LIST {
        list.add(&want(tx.gas_price, "gasPrice", Value::big)?);
    } else {
        list.add(&want(tx.max_tip, "maxPriorityFeePerGas", Value::big)?);
        list.add(&want(tx.max_fee, "maxFeePerGas", Value::big)?);
    }
    list.add(&want(tx.gas, "gas", Value::big)?);
    match tx.to {
        Some(_) => list.add(&want(tx.to, "to", Value::address)?),
        None => list.add_bytes(Vec::new()),
    }
    list.add(&want(tx.value, "value", Value::big)?);
    list.add_bytes(want(tx.input, "input", Value::data)?);
    if kind != LEGACY {
        list.add_encoded(&access_list(tx.access_list)?);
    }
    if kind == BLOB {
        list.add(&want(tx.max_blob_fee, "maxFeePerBlobGas", Value::big)?);
        list.add_encoded(&hashes(tx.blob_hashes, "blobVersionedHashes")?);
    }
    if kind == SET_CODE {
        list.add_encoded(&authorizations(tx.authorizations)?);
    }
    let v = if kind == LEGACY { tx.v } else { tx.y_parity.or(tx.v) };
    list.add(&want(v, "v", Value::big)?);
    list.add(&r);
    list.add(&s);
    Ok(list.close(prefix))
}

fn access_list(member: Option<Value<'_>>) -> Result<Vec<u8>, Obstacle> {
    list_of(member, "accessList", |list, entry: &AccessJson<'_>| {
        let mut item = RlpList::default();
        item.add(&want(entry.address, "address", Value::address)?);
        item.add_encoded(&hashes(entry.storage_keys, "storageKeys")?);
        list.add_encoded(&item.close(None));
        Ok(())
    })
}

fn authorizations(member: Option<Value<'_>>) -> Result<Vec<u8>, Obstacle> {
    list_of(member, "authorizationList", |list, entry: &AuthorizationJson<'_>| {
        let mut item = RlpList::default();
        item.add(&want(entry.chain_id, "chainId", Value::big)?);
        item.add(&want(entry.address, "address", Value::address)?);
        item.add(&want(entry.nonce, "nonce", Value::quantity)?);
        item.add(&want(entry.y_parity.or(entry.v), "yParity", Value::big)?);
        item.add(&want(entry.r, "r", Value::big)?);
        item.add(&want(entry.s, "s", Value::big)?);
        list.add_encoded(&item.close(None));
        Ok(())
    })
}

fn hashes(member: Option<Value<'_>>, name: &'static str) -> Result<Vec<u8>, Obstacle> {
    list_of(member, name, |list, hash: &Value<'_>| {
        list.add(&want(Some(*hash), name, Value::hash)?);
        Ok(())
    })
}

/// The list of what `add` makes of the items of a member that must be an array; the first obstacle ends it.
fn list_of<'a, T: serde::Deserialize<'a>>(
    member: Option<Value<'a>>,
    name: &'static str,
    mut add: impl FnMut(&mut RlpList, &T) -> Result<(), Obstacle>,
) -> Result<Vec<u8>, Obstacle> {
    let items = member.ok_or(Why::Missing { field: name })?;
    let (mut list, mut doubt) = (RlpList::default(), None);
    items.each::<T>(|_, item| match add(&mut list, &item) {
        Err(Obstacle::Void(void)) => Err(void),
        Err(Obstacle::Doubt(why)) => {
            doubt.get_or_insert(why);
            Ok(())
        }
        Ok(()) => Ok(()),
    })?;
    doubt.map_or_else(|| Ok(list.close(None)), |why| Err(why.into()))
}

/// What a signed transaction's bytes tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTransaction {
    /// The type: 0 to 4.
    pub kind: u8,
    /// The chain it was signed for; `None` for a legacy one that is good on any.
    pub chain_id: Option<ChainId>,
    /// How many transactions its sender sent before.
    pub nonce: u64,
    /// Its name. For a blob transaction that of the transaction without the blobs.
    pub hash: TransactionHash,
    digest: B256,
    signature: Signature,
}

impl RawTransaction {
    /// Reads the bytes that `eth_sendRawTransaction` takes, blobs along with them or not.
    ///
    /// `None` for other types, and for what is not canonical RLP with the right number of
    /// fields. Fields that are not told here are not looked into.
    pub fn read(raw: &[u8]) -> Option<Self> {
        let (kind, body) = match *raw.first()? {
            0xc0.. => (LEGACY, raw),
            kind => (u64::from(kind), &raw[1..]),
        };
        // Fields before the signature.
        let signed = match kind {
            LEGACY => 6,
            ACCESS_LIST => 8,
            DYNAMIC_FEE => 9,
            BLOB => 11,
            SET_CODE => 10,
            _ => return None,
        };
        let mut list = RlpItem::only(body)?;
        if kind == BLOB {
            let (items, count) = list.items::<14>()?;
            // With blobs, the transaction is the first item of a list around it.
            if count > 0 && items[0].is_list {
                list = items[0];
            }
        }
        let (items, count) = list.items::<14>()?;
        if count != signed + 3 {
            return None;
        }
        let v = items[signed].number()?;
        let (y_is_odd, chain_id, nonce) = match kind {
            LEGACY => {
                let y_is_odd = match v {
                    27 | 28 => v == 28,
                    35.. => (v - 35) % 2 == 1,
                    _ => return None,
                };
                (y_is_odd, legacy_chain(v), items[0].number()?)
            }
            _ if v <= 1 => (v == 1, Some(items[0].number()?), items[1].number()?),
            _ => return None,
        };
        let mut payload = RlpList::default();
        for item in &items[..signed] {
            payload.add_encoded(item.whole);
        }
        if let (LEGACY, Some(chain)) = (kind, chain_id) {
            payload.add(&chain);
            payload.add(&0u8);
            payload.add(&0u8);
        }
        let (r, s) = (items[signed + 1].word()?, items[signed + 2].word()?);
        Some(Self {
            kind: kind as u8,
            chain_id: chain_id.map(ChainId),
            nonce,
            hash: transaction_hash(raw),
            digest: keccak256(payload.close(prefix(kind).ok()?)),
            signature: Signature::new(r.into(), s.into(), y_is_odd),
        })
    }

    /// Its signer; `None` if the signature fits no key.
    ///
    /// A high `s` is accepted: the oldest transactions have it. Whether a new one may is
    /// for its chain to say.
    pub fn sender(&self) -> Option<Address> {
        self.signature.recover_address_from_prehash(&self.digest).ok()
    }
}

/// The signer of a transaction in the form of `eth_sendRawTransaction`.
pub fn sender_of_raw(raw: &[u8]) -> Option<Address> {
    RawTransaction::read(raw)?.sender()
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{U256, address, uint};

    use super::*;

    /// The order of the curve.
    const ORDER: U256 =
        uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

    /// The example of EIP-155.
    const R: U256 = uint!(0x28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276_U256);
    const S: U256 = uint!(0x67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83_U256);

    fn signer(r: U256, s: U256, y_is_odd: bool) -> Option<Address> {
        let digest = "0xdaf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53";
        RawTransaction {
            kind: 0,
            chain_id: None,
            nonce: 9,
            hash: TransactionHash([0; 32]),
            digest: digest.parse().unwrap(),
            signature: Signature::new(r, s, y_is_odd),
        }
        .sender()
    }

    #[test]
    fn the_signer_of_eip_155() {
        let address = address!("0x9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f");
        assert_eq!(signer(R, S, false), Some(address));
        assert_eq!(signer(R, ORDER - S, true), Some(address));
        assert_ne!(signer(R, S, true), Some(address));
    }

    #[test]
    fn what_fits_no_key() {
        assert_eq!(signer(U256::ZERO, S, false), None);
        assert_eq!(signer(R, U256::ZERO, false), None);
        assert_eq!(signer(R, ORDER, false), None);
        assert_eq!(signer(U256::MAX, S, false), None);
    }
}
