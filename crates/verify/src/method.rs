//! Which methods answer what, and so which checks are made for them.

use alloy_primitives::{B256, keccak256};
use wellhead_eth::{BlockRef, MethodRow, raw_transaction_hash};
use wellhead_jsonrpc::raw;

use crate::audit::{Audit, BlockPosition, KnownFacts, RequestedBlock, must, want};
use crate::finding::{AnswerFinding, Check, InvalidAnswer, Level, Why};
use crate::json::Value;
use crate::log::{self, Filter};
use crate::proof::{self, AskedProof};
use crate::transaction::{self, TransactionJson};
use crate::{CHEAP_BYTES_MAX, FULL_BYTES_MAX, block, receipt};

/// What a method answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::VariantArray)]
pub(crate) enum ResultKind {
    /// A block; the second parameter says whether with whole transactions.
    Block,
    /// A header.
    Header,
    /// The transaction whose hash is the first parameter.
    TransactionByHash,
    /// The transaction of a block whose index is the second parameter.
    TransactionByIndex,
    /// The transaction of the sender and nonce that are the first two parameters.
    TransactionByNonce,
    /// The bytes of the transaction whose hash is the first parameter.
    RawTransaction,
    /// The hash of the transaction whose bytes are the first parameter.
    SentTransaction,
    /// The receipt of the transaction whose hash is the first parameter.
    Receipt,
    /// All receipts of a block.
    Receipts,
    /// Logs.
    Logs,
    /// An account with proofs.
    Proof,
    /// A number.
    Quantity,
}

wellhead_word::variants!(ResultKind);

impl ResultKind {
    /// What such a method answers.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Block => "a block",
            Self::Header => "a header",
            Self::TransactionByHash => "a transaction",
            Self::TransactionByIndex => "a transaction of a block",
            Self::TransactionByNonce => "a transaction of an account",
            Self::RawTransaction => "a transaction's bytes",
            Self::SentTransaction => "the hash of what was sent",
            Self::Receipt => "a receipt",
            Self::Receipts => "the receipts of a block",
            Self::Logs => "logs",
            Self::Proof => "an account with proofs",
            Self::Quantity => "a number",
        }
    }

    /// Every check that is made of such an answer, in the order of the page.
    pub(crate) const fn checks(self) -> &'static [Check] {
        use Check::*;
        match self {
            Self::Block => &[
                Shape,
                AskedHash,
                AskedNumber,
                Pinned,
                OneBlock,
                Order,
                ChainId,
                BlockHash,
                TransactionsRoot,
                WithdrawalsRoot,
                Uncles,
                TransactionHash,
                Sender,
            ],
            Self::Header => &[Shape, AskedHash, AskedNumber, Pinned, BlockHash],
            Self::TransactionByHash => &[Shape, AskedHash, ChainId, TransactionHash, Sender],
            Self::TransactionByIndex => &[
                Shape,
                AskedHash,
                AskedNumber,
                Pinned,
                AskedIndex,
                ChainId,
                TransactionHash,
                Sender,
            ],
            Self::TransactionByNonce => &[Shape, AskedIndex, ChainId, TransactionHash, Sender],
            Self::RawTransaction | Self::SentTransaction => &[Shape, TransactionHash],
            Self::Receipt => &[Shape, AskedHash, OneBlock, Order, ReceiptBloom],
            Self::Receipts => &[
                Shape,
                AskedHash,
                AskedNumber,
                Pinned,
                OneBlock,
                Order,
                ReceiptBloom,
                Gas,
                ReceiptsRoot,
                BlockBloom,
            ],
            Self::Logs => &[Shape, AskedHash, Pinned, OneBlock, Order, Range, Filter, Complete],
            Self::Proof => &[Shape, ProofAsked, AccountProof, StorageProof],
            Self::Quantity => &[Quantity],
        }
    }
}

/// Every method that has checks, sorted by name.
pub(crate) const METHODS: &[(&str, ResultKind)] = &[
    ("eth_blockNumber", ResultKind::Quantity),
    ("eth_estimateGas", ResultKind::Quantity),
    ("eth_gasPrice", ResultKind::Quantity),
    ("eth_getBalance", ResultKind::Quantity),
    ("eth_getBlockByHash", ResultKind::Block),
    ("eth_getBlockByNumber", ResultKind::Block),
    ("eth_getBlockReceipts", ResultKind::Receipts),
    ("eth_getBlockTransactionCountByHash", ResultKind::Quantity),
    ("eth_getBlockTransactionCountByNumber", ResultKind::Quantity),
    ("eth_getHeaderByHash", ResultKind::Header),
    ("eth_getHeaderByNumber", ResultKind::Header),
    ("eth_getLogs", ResultKind::Logs),
    ("eth_getProof", ResultKind::Proof),
    ("eth_getRawTransactionByHash", ResultKind::RawTransaction),
    ("eth_getTransactionByBlockHashAndIndex", ResultKind::TransactionByIndex),
    ("eth_getTransactionByBlockNumberAndIndex", ResultKind::TransactionByIndex),
    ("eth_getTransactionByHash", ResultKind::TransactionByHash),
    ("eth_getTransactionBySenderAndNonce", ResultKind::TransactionByNonce),
    ("eth_getTransactionCount", ResultKind::Quantity),
    ("eth_getTransactionReceipt", ResultKind::Receipt),
    ("eth_maxPriorityFeePerGas", ResultKind::Quantity),
    ("eth_sendRawTransaction", ResultKind::SentTransaction),
];

fn kind_of(method: &str) -> Option<ResultKind> {
    let place = METHODS.binary_search_by(|(name, _)| (*name).cmp(method)).ok()?;
    Some(METHODS[place].1)
}

/// Whether [`verify`] has checks for this method.
pub fn has_checks(row: &MethodRow) -> bool {
    kind_of(row.name).is_some()
}

/// Looks at the result of one call.
///
/// `params` and `result` are JSON as written; text that is no JSON is `Void`. Time and
/// memory are linear in the length of both, which are bounded ([`CHEAP_BYTES_MAX`]).
pub fn verify(
    level: Level,
    row: &MethodRow,
    params: Option<&[u8]>,
    result: &[u8],
    known: &KnownFacts<'_>,
) -> AnswerFinding {
    let not_checked = |why| AnswerFinding::NotChecked { why };
    if level == Level::Off {
        return not_checked(Why::Off);
    }
    let Some(kind) = kind_of(row.name) else { return not_checked(Why::Method) };
    let too_large = Why::TooLarge { bytes: result.len() };
    if result.len() > CHEAP_BYTES_MAX {
        return not_checked(too_large);
    }
    let mut audit = Audit::new(known, level == Level::Full && result.len() <= FULL_BYTES_MAX);
    if level == Level::Full && !audit.full {
        audit.doubt(too_large);
    }
    let outcome = match Value::new(result) {
        Some(answer) if answer.is_null() => {
            audit.doubt(Why::Null);
            Ok(())
        }
        Some(answer) => look(&mut audit, kind, row, params, answer),
        None => Err(InvalidAnswer::new(Check::Shape, "the answer is not UTF-8")),
    };
    match (outcome, audit.into_doubt()) {
        (Err(InvalidAnswer { check, detail }), _) => AnswerFinding::Void { check, detail },
        (Ok(()), Some(why)) => not_checked(why),
        (Ok(()), None) => AnswerFinding::Sound,
    }
}

fn look(
    audit: &mut Audit<'_>,
    kind: ResultKind,
    row: &MethodRow,
    params: Option<&[u8]>,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let block = row.block_ref(params);
    if block == BlockRef::Unreadable {
        audit.doubt(Why::Params);
        return Ok(());
    }
    let asked = RequestedBlock::of(block);
    let param = |index| Value::new(raw::item(raw::trim(params?), index)?);
    let params_are_clear = match kind {
        ResultKind::Block => {
            let whole = param(1).map(Value::is_true);
            return block::block(audit, asked, whole, answer);
        }
        ResultKind::Header => return block::block(audit, asked, None, answer),
        ResultKind::Receipts => return receipt::all(audit, asked, answer),
        ResultKind::Quantity => {
            let why = || InvalidAnswer::new(Check::Quantity, format!("{answer} is no quantity"));
            return answer.big().map(|_| ()).ok_or_else(why);
        }
        ResultKind::TransactionByHash => {
            param(0).and_then(Value::hash).map(|hash| by_hash(audit, hash, answer))
        }
        ResultKind::TransactionByIndex => {
            param(1).and_then(Value::quantity).map(|index| by_index(audit, asked, index, answer))
        }
        ResultKind::TransactionByNonce => by_nonce(audit, param(0), param(1), answer),
        ResultKind::RawTransaction => param(0).and_then(Value::hash).map(|hash| {
            let raw = must(Some(answer), "result", Value::data)?;
            if audit.full { sent(&raw, hash) } else { Ok(()) }
        }),
        ResultKind::SentTransaction => {
            let hash = must(Some(answer), "result", Value::hash)?;
            let wanted = params.and_then(raw_transaction_hash);
            match audit.full {
                true => wanted.map(|it| is_asked(hash, B256::new(it.0), Check::TransactionHash)),
                false => Some(Ok(())),
            }
        }
        ResultKind::Receipt => {
            param(0).and_then(Value::hash).map(|hash| receipt::one(audit, hash, answer))
        }
        ResultKind::Logs => {
            Filter::read(row, params).map(|filter| log::logs(audit, &filter, answer))
        }
        ResultKind::Proof => {
            AskedProof::read(params).map(|asked| proof::proof(audit, &asked, answer))
        }
    };
    params_are_clear.unwrap_or_else(|| {
        audit.doubt(Why::Params);
        Ok(())
    })
}

fn is_asked(found: B256, want: B256, check: Check) -> Result<(), InvalidAnswer> {
    match found == want {
        true => Ok(()),
        false => Err(InvalidAnswer::new(check, format!("{found}, not {want}"))),
    }
}

fn sent(raw: &[u8], want: B256) -> Result<(), InvalidAnswer> {
    // Some nodes answer a blob transaction with its blobs, others without.
    let named = B256::new(wellhead_eth::transaction_hash(raw).0);
    if keccak256(raw) == want { Ok(()) } else { is_asked(named, want, Check::TransactionHash) }
}

fn by_hash(audit: &mut Audit<'_>, hash: B256, answer: Value<'_>) -> Result<(), InvalidAnswer> {
    let tx: TransactionJson<'_> = answer.read()?;
    is_asked(must(tx.hash, "hash", Value::hash)?, hash, Check::AskedHash)?;
    transaction::check(audit, &tx).map(|_| ())
}

fn by_index(
    audit: &mut Audit<'_>,
    asked: RequestedBlock,
    index: u64,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    let tx: TransactionJson<'_> = answer.read()?;
    if asked.pending {
        audit.doubt(Why::Pending);
        return Ok(());
    }
    let number = audit.take(want(tx.block_number, "blockNumber", Value::quantity))?;
    let hash = audit.take(want(tx.block_hash, "blockHash", Value::hash))?;
    if let (Some(number), Some(hash)) = (number, hash) {
        audit.names(asked, BlockPosition { number, hash })?;
    }
    match audit.take(want(tx.index, "transactionIndex", Value::quantity))? {
        Some(named) if named != index => {
            let detail = format!("transaction {named}, not {index}");
            return Err(InvalidAnswer::new(Check::AskedIndex, detail));
        }
        Some(_) | None => {}
    }
    transaction::check(audit, &tx).map(|_| ())
}

fn by_nonce(
    audit: &mut Audit<'_>,
    sender: Option<Value<'_>>,
    nonce: Option<Value<'_>>,
    answer: Value<'_>,
) -> Option<Result<(), InvalidAnswer>> {
    let (sender, nonce) = (sender?.address()?, nonce?.quantity()?);
    let mut look = || {
        let tx: TransactionJson<'_> = answer.read()?;
        let from = must(tx.from, "from", Value::address)?;
        let named = must(tx.nonce, "nonce", Value::quantity)?;
        if (from, named) != (sender, nonce) {
            let detail = format!("number {named} of {from}, not number {nonce} of {sender}");
            return Err(InvalidAnswer::new(Check::AskedIndex, detail));
        }
        transaction::check(audit, &tx).map(|_| ())
    };
    Some(look())
}
