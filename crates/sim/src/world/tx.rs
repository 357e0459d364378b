//! Transactions: legacy (EIP-155) and EIP-1559, to and from RLP, signed and recovered.
//!
//! Blob, access-list (type 1) and set-code transactions are not known here and
//! refused in geth's words. Whether a transaction may enter the pool is decided
//! in `pool`; what it does in `execute`.

use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use alloy_rlp::{BufMut, Decodable, Encodable, Header as RlpHeader, RlpDecodable, RlpEncodable};

use super::execute::BASE_GAS;
use super::key::{self, AccountKey};

/// The type byte of an EIP-1559 transaction.
const DYNAMIC_FEE: u8 = 2;

/// What the sender offers for gas, in wei.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fee {
    /// One price, as before EIP-1559.
    Legacy {
        /// Wei per gas.
        gas_price: u128,
    },
    /// A ceiling, and a tip for the proposer within it.
    Dynamic {
        /// Most wei per gas, base fee included.
        max_fee: u128,
        /// Most wei per gas for the proposer.
        max_tip: u128,
    },
}

impl Fee {
    /// Most wei per gas the sender pays.
    pub fn ceiling(self) -> u128 {
        match self {
            Self::Legacy { gas_price } => gas_price,
            Self::Dynamic { max_fee, .. } => max_fee,
        }
    }

    /// Wei per gas for the proposer at this base fee; `None` when it does not cover the base fee.
    pub fn tip(self, base_fee: u64) -> Option<u128> {
        let room = self.ceiling().checked_sub(u128::from(base_fee))?;
        Some(match self {
            Self::Legacy { .. } => room,
            Self::Dynamic { max_tip, .. } => room.min(max_tip),
        })
    }
}

/// One entry of an access list.
#[derive(Debug, Clone, PartialEq, Eq, RlpEncodable, RlpDecodable)]
pub struct AccessItem {
    /// The account that will be touched.
    pub address: Address,
    /// The storage slots that will be touched.
    pub storage_keys: Vec<B256>,
}

/// A transaction before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxBody {
    /// `None` for a legacy transaction without replay protection.
    pub chain_id: Option<u64>,
    /// Counts the sender's transactions.
    pub nonce: u64,
    /// Offered price.
    pub fee: Fee,
    /// Most gas to use.
    pub gas_limit: u64,
    /// Receiver, or creation of a contract.
    pub to: TxKind,
    /// Wei to move.
    pub value: U256,
    /// Calldata.
    pub input: Bytes,
    /// Only on EIP-1559 transactions.
    pub access_list: Vec<AccessItem>,
}

impl TxBody {
    /// Moves `value` wei to an account, with the gas that this takes.
    pub fn transfer(chain_id: u64, nonce: u64, fee: Fee, to: Address, value: U256) -> Self {
        Self {
            chain_id: Some(chain_id),
            nonce,
            fee,
            gas_limit: BASE_GAS,
            to: TxKind::Call(to),
            value,
            input: Bytes::new(),
            access_list: Vec::new(),
        }
    }

    /// The EIP-2718 type.
    pub fn kind(&self) -> u8 {
        match self.fee {
            Fee::Legacy { .. } => 0,
            Fee::Dynamic { .. } => DYNAMIC_FEE,
        }
    }

    /// What the signature covers.
    pub fn signing_hash(&self) -> B256 {
        keccak256(self.encoded(|out| {
            if let (Fee::Legacy { .. }, Some(chain_id)) = (self.fee, self.chain_id) {
                chain_id.encode(out);
                0u8.encode(out);
                0u8.encode(out);
            }
        }))
    }

    /// Signs and seals it.
    pub fn sign(self, key: &AccountKey) -> Tx {
        let signature = key.sign(self.signing_hash());
        Tx::seal(self, signature, key.address())
    }

    /// The fields, whatever `tail` adds, as one typed or untyped list.
    fn encoded(&self, tail: impl FnOnce(&mut dyn BufMut)) -> Vec<u8> {
        let mut payload = Vec::with_capacity(200 + self.input.len());
        match self.fee {
            Fee::Legacy { gas_price } => {
                self.nonce.encode(&mut payload);
                gas_price.encode(&mut payload);
            }
            Fee::Dynamic { max_fee, max_tip } => {
                self.chain_id.unwrap_or_default().encode(&mut payload);
                self.nonce.encode(&mut payload);
                max_tip.encode(&mut payload);
                max_fee.encode(&mut payload);
            }
        }
        self.gas_limit.encode(&mut payload);
        self.to.encode(&mut payload);
        self.value.encode(&mut payload);
        self.input.0.encode(&mut payload);
        if let Fee::Dynamic { .. } = self.fee {
            self.access_list.encode(&mut payload);
        }
        tail(&mut payload);

        let mut out = Vec::with_capacity(payload.len() + 5);
        if let Fee::Dynamic { .. } = self.fee {
            out.push(DYNAMIC_FEE);
        }
        RlpHeader { list: true, payload_length: payload.len() }.encode(&mut out);
        out.extend_from_slice(&payload);
        out
    }
}

/// A signed transaction with what follows from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tx {
    /// What was signed.
    pub body: TxBody,
    /// The sender's signature, as numbers.
    pub signature: Signature,
    /// Its EIP-2718 bytes, as `eth_sendRawTransaction` takes them.
    pub raw: Bytes,
    /// keccak of `raw`.
    pub hash: B256,
    /// The recovered sender.
    pub from: Address,
}

impl Tx {
    fn seal(body: TxBody, signature: Signature, from: Address) -> Self {
        let raw = body.encoded(|out| {
            match body.fee {
                Fee::Legacy { .. } => legacy_v(&body, &signature).encode(out),
                Fee::Dynamic { .. } => signature.v().encode(out),
            }
            signature.r().encode(out);
            signature.s().encode(out);
        });
        let hash = keccak256(&raw);
        Self { body, signature, raw: raw.into(), hash, from }
    }

    /// Reads EIP-2718 bytes and recovers the sender.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let (body, signature) = match raw.first() {
            None => return Err(DecodeError::TooShort),
            Some(&first) if first >= 0xc0 => decode_legacy(raw)?,
            Some(&DYNAMIC_FEE) => decode_dynamic(&raw[1..])?,
            Some(_) => return Err(DecodeError::TypeNotSupported),
        };
        let from =
            key::recover(body.signing_hash(), &signature).ok_or(DecodeError::BadSignature)?;
        Ok(Self::seal(body, signature, from))
    }

    /// The `v` of the JSON form.
    pub fn v(&self) -> u64 {
        match self.body.fee {
            Fee::Legacy { .. } => legacy_v(&self.body, &self.signature),
            Fee::Dynamic { .. } => u64::from(self.signature.v()),
        }
    }

    /// Wei per gas that is really paid at this base fee.
    pub fn effective_gas_price(&self, base_fee: u64) -> u128 {
        u128::from(base_fee) + self.body.fee.tip(base_fee).unwrap_or_default()
    }
}

/// EIP-155, or 27/28 without a chain id.
fn legacy_v(body: &TxBody, signature: &Signature) -> u64 {
    let parity = u64::from(signature.v());
    match body.chain_id {
        Some(chain_id) => chain_id * 2 + 35 + parity,
        None => 27 + parity,
    }
}

/// Opens the one list that `raw` must be.
fn open_list<'a>(raw: &'a [u8], what: &'static str) -> Result<&'a [u8], DecodeError> {
    let mut rest = raw;
    let header = RlpHeader::decode(&mut rest).map_err(DecodeError::Rlp)?;
    if !header.list {
        return Err(DecodeError::NotAList(what));
    }
    if rest.len() != header.payload_length {
        return Err(DecodeError::Rlp(alloy_rlp::Error::UnexpectedLength));
    }
    Ok(rest)
}

fn next<T: Decodable>(rest: &mut &[u8]) -> Result<T, DecodeError> {
    T::decode(rest).map_err(DecodeError::Rlp)
}

fn closed(rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() { Ok(()) } else { Err(DecodeError::Rlp(alloy_rlp::Error::UnexpectedLength)) }
}

fn decode_legacy(raw: &[u8]) -> Result<(TxBody, Signature), DecodeError> {
    let mut rest = open_list(raw, "types.LegacyTx")?;
    let rest = &mut rest;
    let mut body = TxBody {
        chain_id: None,
        nonce: next(rest)?,
        fee: Fee::Legacy { gas_price: next(rest)? },
        gas_limit: next(rest)?,
        to: next(rest)?,
        value: next(rest)?,
        input: next::<alloy_rlp::Bytes>(rest)?.into(),
        access_list: Vec::new(),
    };
    let (v, r, s): (u64, U256, U256) = (next(rest)?, next(rest)?, next(rest)?);
    closed(rest)?;
    let parity = match v {
        27 | 28 => v == 28,
        35.. => {
            body.chain_id = Some((v - 35) / 2);
            (v - 35) % 2 == 1
        }
        _ => return Err(DecodeError::BadSignature),
    };
    Ok((body, Signature::new(r, s, parity)))
}

fn decode_dynamic(raw: &[u8]) -> Result<(TxBody, Signature), DecodeError> {
    let mut rest = open_list(raw, "types.DynamicFeeTx")?;
    let rest = &mut rest;
    let chain_id = Some(next(rest)?);
    let nonce = next(rest)?;
    let max_tip = next(rest)?;
    let max_fee = next(rest)?;
    let body = TxBody {
        chain_id,
        nonce,
        fee: Fee::Dynamic { max_fee, max_tip },
        gas_limit: next(rest)?,
        to: next(rest)?,
        value: next(rest)?,
        input: next::<alloy_rlp::Bytes>(rest)?.into(),
        access_list: next(rest)?,
    };
    let (parity, r, s): (bool, U256, U256) = (next(rest)?, next(rest)?, next(rest)?);
    closed(rest)?;
    Ok((body, Signature::new(r, s, parity)))
}

/// Why bytes are not a transaction we know, in geth's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No bytes at all.
    #[error("typed transaction too short")]
    TooShort,
    /// A type byte this chain does not know.
    #[error("transaction type not supported")]
    TypeNotSupported,
    /// The payload is a string where a list must be.
    #[error("rlp: expected input list for {0}")]
    NotAList(&'static str),
    /// Broken RLP.
    #[error("rlp: {}", rlp_words(.0))]
    Rlp(alloy_rlp::Error),
    /// The signature fits no account.
    #[error("invalid transaction v, r, s values")]
    BadSignature,
}

fn rlp_words(error: &alloy_rlp::Error) -> String {
    match error {
        alloy_rlp::Error::InputTooShort => "value size exceeds available input length".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fee: Fee) -> TxBody {
        let ether = U256::from(10u64).pow(U256::from(18u64));
        let body = TxBody::transfer(1337, 9, fee, Address::repeat_byte(0x35), ether);
        TxBody { input: Bytes::from_static(&[1, 2, 3]), ..body }
    }

    #[test]
    fn signed_transactions_come_back_from_their_bytes() {
        let key = AccountKey::derive(1, 1);
        let listed = AccessItem {
            address: Address::repeat_byte(1),
            storage_keys: vec![B256::repeat_byte(2), B256::ZERO],
        };
        let cases = [
            body(Fee::Legacy { gas_price: 20_000_000_000 }),
            TxBody { chain_id: None, ..body(Fee::Legacy { gas_price: 1 }) },
            body(Fee::Dynamic { max_fee: 30, max_tip: 2 }),
            TxBody { to: TxKind::Create, ..body(Fee::Dynamic { max_fee: 30, max_tip: 2 }) },
            TxBody { access_list: vec![listed], ..body(Fee::Dynamic { max_fee: 30, max_tip: 2 }) },
        ];
        for case in cases {
            let tx = case.sign(&key);
            assert_eq!(Tx::decode(&tx.raw), Ok(tx));
        }
    }

    #[test]
    fn the_example_of_eip_155_is_signed_as_the_eip_says() {
        let tx = TxBody {
            chain_id: Some(1),
            input: Bytes::new(),
            ..body(Fee::Legacy { gas_price: 20_000_000_000 })
        };
        assert_eq!(
            tx.signing_hash().to_string(),
            "0xdaf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53"
        );
    }

    #[test]
    fn broken_bytes_are_refused_in_geths_words() {
        let check = |raw: &[u8], words: &str| {
            assert_eq!(Tx::decode(raw).unwrap_err().to_string(), words, "{raw:02x?}");
        };
        check(&[], "typed transaction too short");
        check(&[0x7f, 0xc0], "transaction type not supported");
        check(&[2, 0x80], "rlp: expected input list for types.DynamicFeeTx");
        check(&[0xc8, 1], "rlp: value size exceeds available input length");
    }

    #[test]
    fn the_tip_is_what_the_base_fee_leaves() {
        let check = |fee: Fee, base_fee: u64, tip: Option<u128>| assert_eq!(fee.tip(base_fee), tip);
        check(Fee::Legacy { gas_price: 12 }, 10, Some(2));
        check(Fee::Legacy { gas_price: 9 }, 10, None);
        check(Fee::Dynamic { max_fee: 30, max_tip: 2 }, 10, Some(2));
        check(Fee::Dynamic { max_fee: 11, max_tip: 2 }, 10, Some(1));
        check(Fee::Dynamic { max_fee: 9, max_tip: 2 }, 10, None);
    }
}
