//! What can be wrong with a body, and the words a client gets to read.
//!
//! The words name a place and a thing to mend, and quote nothing of the body:
//! it may hold what the client would not want in our logs.

use bytes::Bytes;

/// JSON-RPC's code for text that is not JSON.
const CODE_PARSE_ERROR: i64 = -32700;
/// JSON-RPC's code for JSON that is not a call.
const CODE_INVALID_REQUEST: i64 = -32600;

/// Why a body as a whole cannot be read. It is answered once, with `"id":null`.
///
/// `Display` is the message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No bytes, or only white space.
    #[error("parse error: the request body is empty")]
    Empty,
    /// The text stops being JSON.
    #[error("parse error: {what} at byte {at}")]
    NotJson {
        /// The offset of the byte that does not fit; the length of the body when it ends too early.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// Arrays and objects inside each other beyond the limit.
    #[error("invalid request: nested deeper than {max} levels")]
    TooDeep {
        /// The limit: [`crate::ParseLimits::depth_max`].
        max: usize,
    },
    /// `[]`: a batch that asks for nothing.
    #[error("invalid request: the batch is empty")]
    EmptyBatch,
    /// More items than we take at once.
    // Begins as geth says it, by which programs know it.
    #[error("batch too large: it has more than {max} items")]
    BatchTooLarge {
        /// The limit: [`crate::ParseLimits::batch_items_max`].
        max: usize,
    },
    /// A body of 4 GiB or more, which our offsets cannot address.
    #[error("invalid request: the body is 4 GiB or larger")]
    TooLarge,
}

impl ParseError {
    /// The JSON-RPC error code: -32700 for text, -32600 for its meaning.
    #[must_use]
    pub const fn code(&self) -> i64 {
        match self {
            Self::Empty | Self::NotJson { .. } => CODE_PARSE_ERROR,
            Self::TooDeep { .. }
            | Self::EmptyBatch
            | Self::BatchTooLarge { .. }
            | Self::TooLarge => CODE_INVALID_REQUEST,
        }
    }
}

/// One item that is JSON but not a call. It gets an error of its own; its
/// neighbours in the batch are served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Malformed {
    /// The id as written, when there is exactly one and it is of a legal kind.
    pub id: Option<Bytes>,
    /// What is wrong with the item.
    pub reason: MalformedReason,
}

impl Malformed {
    /// The JSON-RPC error code.
    #[must_use]
    pub const fn code(&self) -> i64 {
        CODE_INVALID_REQUEST
    }
}

/// Why an item is not a call. `Display` is the message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReason {
    /// A number, string, array, literal where an object is due.
    #[error("invalid request: a call must be an object")]
    NotAnObject,
    /// A key stands there twice.
    #[error("invalid request: the call has a key twice")]
    DuplicateKey,
    /// `jsonrpc` is something else than `"2.0"`.
    #[error("invalid request: `jsonrpc` must be the string `2.0`")]
    WrongVersion,
    /// `id` is a boolean, an array or an object.
    #[error("invalid request: `id` must be a string, a number or null")]
    IdNotScalar,
    /// No `method`.
    #[error("invalid request: `method` is missing")]
    MethodMissing,
    /// `method` is not a string.
    #[error("invalid request: `method` must be a string")]
    MethodNotAString,
    /// `params` is neither array nor object nor null.
    #[error("invalid request: `params` must be an array or an object")]
    ParamsNotStructured,
}

/// Why a body is not the reply of a JSON-RPC upstream.
///
/// `Display` is for the log and the trail, not for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// No bytes, or only white space.
    #[error("the reply is empty")]
    Empty,
    /// Something that is not JSON: often a page of HTML from a gateway.
    #[error("the reply is not JSON at byte {at}")]
    NotJson {
        /// The offset of the byte that does not fit.
        at: usize,
    },
    /// JSON so far, but the end is missing: the connection broke, or a limit cut it.
    #[error("the reply ends too early")]
    Truncated,
    /// JSON, but no object; from [`crate::scan_batch`], an item that is no object.
    #[error("the reply is not an object")]
    NotAnObject,
    /// JSON, but not the array that a batch is answered with.
    #[error("the reply to a batch is not an array")]
    NotAnArray,
    /// Neither a result nor an error.
    #[error("the reply has neither result nor error")]
    NoOutcome,
    /// A result and an error.
    #[error("the reply has both result and error")]
    BothOutcomes,
    /// `id`, `result` or `error` stands there twice.
    #[error("the reply has a key twice")]
    DuplicateKey,
    /// Nested deeper than any honest reply ([`crate::scan`] tells the bound).
    #[error("the reply is nested too deep")]
    TooDeep,
    /// More replies than were asked for.
    #[error("the reply has more items than were asked for")]
    TooManyItems,
    /// A body of 4 GiB or more, which our offsets cannot address.
    #[error("the reply is 4 GiB or larger")]
    TooLarge,
}
