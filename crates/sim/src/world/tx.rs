//! Transactions: legacy (EIP-155) and EIP-1559, signed and recovered.
//!
//! Blob, access-list (type 1) and set-code transactions are not known here and
//! refused in geth's words. Whether a transaction may enter the pool is decided
//! in `pool`; what it does in `execute`.

use alloy_consensus::transaction::{RlpEcdsaDecodableTx, SignerRecoverable};
use alloy_consensus::{
    EthereumTxEnvelope, EthereumTypedTransaction, SignableTransaction, Signed, TxEip1559,
    TxEip4844, TxLegacy,
};
use alloy_eips::eip2718::{EIP1559_TX_TYPE_ID, Encodable2718};
use alloy_primitives::{Address, B256, Bytes, TxKind, U256};

use super::execute::BASE_GAS;
use super::key::AccountKey;

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
        }
    }

    /// Signs and seals it.
    pub fn sign(self, key: &AccountKey) -> Tx {
        let Self { chain_id, nonce, fee, gas_limit, to, value, input } = self;
        let body: EthereumTypedTransaction<TxEip4844> = match fee {
            Fee::Legacy { gas_price } => {
                TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input }.into()
            }
            Fee::Dynamic { max_fee, max_tip } => TxEip1559 {
                chain_id: chain_id.unwrap_or_default(),
                nonce,
                gas_limit,
                max_fee_per_gas: max_fee,
                max_priority_fee_per_gas: max_tip,
                to,
                value,
                access_list: Default::default(),
                input,
            }
            .into(),
        };
        let signature = key.sign(body.signature_hash());
        Tx::seal(body.into_signed(signature).into(), key.address())
    }
}

/// A signed transaction with what follows from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tx {
    /// What was signed, and the signature.
    pub envelope: EthereumTxEnvelope<TxEip4844>,
    /// Its EIP-2718 bytes, as `eth_sendRawTransaction` takes them.
    pub raw: Bytes,
    /// keccak of `raw`.
    pub hash: B256,
    /// The recovered sender.
    pub from: Address,
}

impl Tx {
    fn seal(envelope: EthereumTxEnvelope<TxEip4844>, from: Address) -> Self {
        let (raw, hash) = (envelope.encoded_2718().into(), *envelope.hash());
        Self { envelope, raw, hash, from }
    }

    /// Reads EIP-2718 bytes and recovers the sender.
    pub fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        let envelope: EthereumTxEnvelope<TxEip4844> = match raw {
            [] => return Err(DecodeError::TooShort),
            [0xc0..=0xff, ..] => signed::<TxLegacy>(raw)?.into(),
            [EIP1559_TX_TYPE_ID, body @ ..] => signed::<TxEip1559>(body)?.into(),
            [_, ..] => return Err(DecodeError::TypeNotSupported),
        };
        let from = envelope.recover_signer().map_err(|_| DecodeError::BadSignature)?;
        Ok(Self::seal(envelope, from))
    }
}

fn signed<T: RlpEcdsaDecodableTx>(mut body: &[u8]) -> Result<Signed<T>, DecodeError> {
    let signed = Signed::rlp_decode(&mut body).map_err(|error| match error {
        alloy_rlp::Error::Custom(_) => DecodeError::BadSignature,
        error => DecodeError::Rlp(error),
    })?;
    match body {
        [] => Ok(signed),
        _ => Err(DecodeError::Rlp(alloy_rlp::Error::UnexpectedLength)),
    }
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
        alloy_rlp::Error::UnexpectedString => {
            "expected input list for types.DynamicFeeTx".to_owned()
        }
        error => error.to_string(),
    }
}
