//! `eth_getProof`: the accounts trie and one account's storage trie.
//!
//! The walk down a trie is our own: the library's stops the process when a path is
//! longer than a key can be, and what is read here comes from outside.

use alloy_primitives::{Address, B256, U256, keccak256};
use alloy_trie::{EMPTY_ROOT_HASH, KECCAK_EMPTY, TrieAccount};
use wellhead_jsonrpc::raw;

use crate::audit::{Audit, must, want};
use crate::finding::{Check, InvalidAnswer, Obstacle, Why};
use crate::json::{Value, object};
use crate::rlp::RlpItem;

/// Nibbles of a key, which is a hash.
const PATH_NIBBLES: usize = 64;

object! {
    ProofJson {
        address: "address",
        balance: "balance",
        nonce: "nonce",
        code_hash: "codeHash",
        storage_hash: "storageHash",
        account_proof: "accountProof",
        storage_proof: "storageProof",
    }
}

object! { SlotJson { key: "key", value: "value", proof: "proof", } }

/// Of which account and slots a proof was asked for.
pub(crate) struct AskedProof {
    address: Address,
    slots: Vec<U256>,
}

impl AskedProof {
    pub(crate) fn read(params: Option<&[u8]>) -> Option<Self> {
        let params = raw::trim(params?);
        let address = Value::new(raw::item(params, 0)?)?.address()?;
        let mut slots = Vec::new();
        let mut readable = true;
        let list = Value::new(raw::item(params, 1)?)?;
        list.each::<Value<'_>>(|_, slot| {
            readable &= slot.big().is_some();
            slots.extend(slot.big());
            Ok(())
        })
        .ok()?;
        readable.then_some(Self { address, slots })
    }
}

pub(crate) fn proof(
    audit: &mut Audit<'_>,
    asked: &AskedProof,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let proof: ProofJson<'_> = answer.read()?;
    let address = must(proof.address, "address", Value::address)?;
    if address != asked.address {
        let detail = format!("for {address}, not {}", asked.address);
        return Err(InvalidAnswer::new(Check::ProofAsked, detail));
    }
    let storage_root = match audit.full {
        true => account(audit, address, &proof)?,
        false => None,
    };
    let mut count = 0;
    must(proof.storage_proof, "storageProof", Some)?.each::<SlotJson<'_>>(|index, slot| {
        count += 1;
        let key = must(slot.key, "key", Value::big)?;
        match asked.slots.get(index) {
            Some(asked) if *asked == key => {}
            Some(_) | None => {
                let detail = format!("slot {key:#x} was not requested at index {index}");
                return Err(InvalidAnswer::new(Check::ProofAsked, detail));
            }
        }
        match storage_root {
            Some(root) => storage(audit, root, key, &slot),
            None => Ok(()),
        }
    })?;
    if count < asked.slots.len() {
        let detail = format!("{count} slots of {}", asked.slots.len());
        return Err(InvalidAnswer::new(Check::ProofAsked, detail));
    }
    Ok(())
}

/// Proves the account; its storage root when that is proven.
fn account(
    audit: &mut Audit<'_>,
    address: Address,
    proof: &ProofJson<'_>,
) -> Result<Option<B256>, InvalidAnswer> {
    let Some(header) = audit.known.header else {
        audit.doubt(Why::NoHeader);
        return Ok(None);
    };
    let Some(account) = audit.take(proven_account(proof))? else { return Ok(None) };
    let Some(nodes) = audit.take(nodes(proof.account_proof, "accountProof"))? else {
        return Ok(None);
    };
    let fault = match value_at(header.state_root, keccak256(address), &nodes) {
        Ok(Some(value)) if value == alloy_rlp::encode(account) => None,
        Ok(None) if account == TrieAccount::default() => None,
        Ok(Some(_)) => Some("the account is another one"),
        Ok(None) => Some("there is no such account"),
        Err(fault) => Some(fault),
    };
    match fault {
        None => Ok(Some(account.storage_root)),
        Some(fault) => {
            audit.differs(Check::AccountProof, format!("{address}: {fault}"))?;
            Ok(None)
        }
    }
}

fn storage(
    audit: &mut Audit<'_>,
    root: B256,
    key: U256,
    slot: &SlotJson<'_>,
) -> Result<(), InvalidAnswer> {
    let Some(value) = audit.take(want(slot.value, "value", Value::big))? else { return Ok(()) };
    let Some(nodes) = audit.take(nodes(slot.proof, "proof"))? else { return Ok(()) };
    let fault = match value_at(root, keccak256(B256::from(key)), &nodes) {
        Ok(Some(found)) if found == alloy_rlp::encode(value) && !value.is_zero() => None,
        Ok(None) if value.is_zero() => None,
        Ok(Some(_)) => Some("it holds something else"),
        Ok(None) => Some("it is empty"),
        Err(fault) => Some(fault),
    };
    match fault {
        None => Ok(()),
        Some(fault) => audit.differs(Check::StorageProof, format!("slot {key:#x}: {fault}")),
    }
}

fn proven_account(proof: &ProofJson<'_>) -> Result<TrieAccount, Obstacle> {
    // For an account that is not there, some nodes write zeros instead of empty hashes.
    let or = |hash: B256, empty| if hash.is_zero() { empty } else { hash };
    Ok(TrieAccount {
        nonce: want(proof.nonce, "nonce", Value::quantity)?,
        balance: want(proof.balance, "balance", Value::big)?,
        storage_root: or(want(proof.storage_hash, "storageHash", Value::hash)?, EMPTY_ROOT_HASH),
        code_hash: or(want(proof.code_hash, "codeHash", Value::hash)?, KECCAK_EMPTY),
    })
}

fn nodes(member: Option<Value<'_>>, name: &'static str) -> Result<Vec<Vec<u8>>, Obstacle> {
    let mut nodes = Vec::new();
    want(member, name, Some)?.each::<Value<'_>>(|_, node| {
        // One more than the deepest path has: what follows cannot matter.
        if nodes.len() <= PATH_NIBBLES {
            nodes.push(must(Some(node), name, Value::data)?);
        }
        Ok(())
    })?;
    Ok(nodes)
}

/// What the trie with this root holds under `key`, proven by `nodes` from the root down.
///
/// `None` is proven as well. Nodes beyond the end of the path are not looked at.
fn value_at(root: B256, key: B256, nodes: &[Vec<u8>]) -> Result<Option<&[u8]>, &'static str> {
    const MALFORMED: &str = "a node is malformed";
    if root == EMPTY_ROOT_HASH {
        return Ok(None);
    }
    let mut nodes = nodes.iter();
    let mut hashed = |hash: &[u8]| -> Result<&[u8], &'static str> {
        let node = nodes.next().ok_or("the proof ends too early")?;
        if keccak256(node) == *hash {
            Ok(node)
        } else {
            Err("a node is not the one above it names")
        }
    };
    let mut node = hashed(root.as_slice())?;
    let mut depth = 0;
    // Each step goes down one nibble at least, or ends.
    loop {
        let (items, count) = RlpItem::only(node).and_then(RlpItem::items::<17>).ok_or(MALFORMED)?;
        let child = match count {
            17 if depth == PATH_NIBBLES => return Err(MALFORMED),
            17 => {
                let nibble = nibble(key.as_slice(), depth);
                depth += 1;
                items[usize::from(nibble)]
            }
            2 => {
                let (path, is_leaf) = NibblePath::read(items[0]).ok_or(MALFORMED)?;
                let fits = path.is_at(&key, depth);
                depth += path.len();
                match (fits, is_leaf) {
                    (true, true) if depth == PATH_NIBBLES => return Ok(Some(items[1].payload)),
                    (true, false) if path.len() > 0 => items[1],
                    (true, _) => return Err(MALFORMED),
                    (false, _) => return Ok(None),
                }
            }
            _ => return Err(MALFORMED),
        };
        node = match (child.is_list, child.payload.len()) {
            // Short nodes stand inside the one above.
            (true, _) => child.whole,
            (false, 0) => return Ok(None),
            (false, 32) => hashed(child.payload)?,
            (false, _) => return Err(MALFORMED),
        };
    }
}

fn nibble(bytes: &[u8], place: usize) -> u8 {
    let byte = bytes[place / 2];
    if place.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

/// The nibbles that a leaf or extension covers, as encoded.
struct NibblePath<'a> {
    /// The first byte is flags, and the first nibble when there is an odd number.
    encoded: &'a [u8],
    is_odd: bool,
}

impl<'a> NibblePath<'a> {
    fn read(item: RlpItem<'a>) -> Option<(Self, bool)> {
        let flags = *item.payload.first()? >> 4;
        if item.is_list || flags > 3 {
            return None;
        }
        Some((Self { encoded: item.payload, is_odd: flags & 1 == 1 }, flags & 2 == 2))
    }

    fn len(&self) -> usize {
        2 * (self.encoded.len() - 1) + usize::from(self.is_odd)
    }

    fn is_at(&self, key: &B256, depth: usize) -> bool {
        let skipped = 2 - usize::from(self.is_odd);
        if depth + self.len() > PATH_NIBBLES {
            return false;
        }
        (0..self.len()).all(|place| {
            nibble(self.encoded, place + skipped) == nibble(key.as_slice(), depth + place)
        })
    }
}
