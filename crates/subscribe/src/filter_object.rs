//! What the filter objects of subscriptions other than `logs` have in common, and why one is refused.

use wellhead_jsonrpc::raw;

/// Addresses, or pairs of them, that one subscription may name, as at Alchemy.
pub(crate) const ADDRESSES_MAX: usize = 1000;
/// Transactions that one subscription may name, as at geth.
pub(crate) const HASHES_MAX: usize = 200;

/// Why a filter is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterObjectError {
    /// It is no object.
    #[error("invalid argument 1: the filter is not an object")]
    NotAnObject,
    /// A member is neither `true` nor `false`.
    #[error("invalid argument 1: `{0}` is not true or false")]
    Flag(&'static str),
    /// The addresses of this member cannot be read.
    #[error("invalid argument 1: `{0}` is neither an address nor a list of addresses")]
    Addresses(&'static str),
    /// It names too many addresses.
    #[error("invalid argument 1: the filter names more than {ADDRESSES_MAX} addresses")]
    TooManyAddresses,
    /// `addresses` cannot be read.
    #[error("invalid argument 1: `addresses` is not a list of objects with `to`, `from` or both")]
    Pairs,
    /// It names too many pairs of addresses.
    #[error("invalid argument 1: `addresses` has more than {ADDRESSES_MAX} entries")]
    TooManyPairs,
    /// The list of hashes, or a hash, cannot be read.
    #[error("invalid argument 1: `transactionHashes` is not a list of transaction hashes")]
    Hashes,
    /// It names too many transactions.
    // In the words of geth, and then the number.
    #[error(
        "exceed max number of transaction hashes allowed per transactionReceipts subscription: {HASHES_MAX}"
    )]
    TooManyHashes,
}

/// The object (raw JSON) of a call; `None` where there is none, or `null`.
pub(crate) fn object(value: Option<&[u8]>) -> Result<Option<&[u8]>, FilterObjectError> {
    let object = value.filter(|value| !raw::is_null(value));
    let is_object = object.is_none_or(|object| raw::trim(object).first() == Some(&b'{'));
    if is_object { Ok(object) } else { Err(FilterObjectError::NotAnObject) }
}

/// The value of a member, if it is there and not `null`.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    raw::field(object, name).filter(|value| !raw::is_null(value))
}

/// Whether a member is `true`; not where it is absent.
pub(crate) fn flag(object: &[u8], name: &'static str) -> Result<bool, FilterObjectError> {
    match member(object, name).map(raw::trim) {
        None | Some(b"false") => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(FilterObjectError::Flag(name)),
    }
}
