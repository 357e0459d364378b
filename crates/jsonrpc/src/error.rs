//! What can be wrong with a body, and the words a client gets to read.
//!
//! The words name a place and a thing to mend, and quote nothing of the body:
//! it may hold what the client would not want in our logs.

use std::fmt;

use bytes::Bytes;

/// JSON-RPC's code for text that is not JSON.
const CODE_PARSE_ERROR: i64 = -32700;
/// JSON-RPC's code for JSON that is not a call.
const CODE_INVALID_REQUEST: i64 = -32600;

/// Why a body as a whole cannot be read. It is answered once, with `"id":null`.
///
/// `Display` is the message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// No bytes, or only white space.
    Empty,
    /// The text stops being JSON.
    NotJson {
        /// The offset of the byte that does not fit; the length of the body when it ends too early.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// Arrays and objects inside each other beyond the limit.
    TooDeep {
        /// The limit: [`crate::ParseLimits::depth_max`].
        max: usize,
    },
    /// `[]`: a batch that asks for nothing.
    EmptyBatch,
    /// More items than we take at once.
    BatchTooLarge {
        /// The limit: [`crate::ParseLimits::batch_items_max`].
        max: usize,
    },
    /// A body of 4 GiB or more, which our offsets cannot address.
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

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("parse error: the request body is empty"),
            Self::NotJson { at, what } => write!(f, "parse error: {what} at byte {at}"),
            Self::TooDeep { max } => {
                write!(f, "invalid request: nested deeper than {max} levels")
            }
            Self::EmptyBatch => f.write_str("invalid request: the batch is empty"),
            Self::BatchTooLarge { max } => {
                // Begins as geth says it, by which programs know it.
                write!(f, "batch too large: it has more than {max} items")
            }
            Self::TooLarge => f.write_str("invalid request: the body is 4 GiB or larger"),
        }
    }
}

impl std::error::Error for ParseError {}

/// One item that is JSON but not a call. It gets an error of its own; its
/// neighbours in the batch are served.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Malformed {}

/// Why an item is not a call. `Display` is the message for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedReason {
    /// A number, string, array, literal where an object is due.
    NotAnObject,
    /// A key stands there twice.
    DuplicateKey,
    /// `jsonrpc` is something else than `"2.0"`.
    WrongVersion,
    /// `id` is a boolean, an array or an object.
    IdNotScalar,
    /// No `method`.
    MethodMissing,
    /// `method` is not a string.
    MethodNotAString,
    /// `params` is neither array nor object nor null.
    ParamsNotStructured,
}

impl fmt::Display for MalformedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnObject => "invalid request: a call must be an object",
            Self::DuplicateKey => "invalid request: the call has a key twice",
            Self::WrongVersion => "invalid request: `jsonrpc` must be the string `2.0`",
            Self::IdNotScalar => "invalid request: `id` must be a string, a number or null",
            Self::MethodMissing => "invalid request: `method` is missing",
            Self::MethodNotAString => "invalid request: `method` must be a string",
            Self::ParamsNotStructured => "invalid request: `params` must be an array or an object",
        })
    }
}

/// Why a body is not the reply of a JSON-RPC upstream.
///
/// `Display` is for the log and the trail, not for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// No bytes, or only white space.
    Empty,
    /// Something that is not JSON: often a page of HTML from a gateway.
    NotJson {
        /// The offset of the byte that does not fit.
        at: usize,
    },
    /// JSON so far, but the end is missing: the connection broke, or a limit cut it.
    Truncated,
    /// JSON, but no object; from [`crate::scan_batch`], an item that is no object.
    NotAnObject,
    /// JSON, but not the array that a batch is answered with.
    NotAnArray,
    /// Neither a result nor an error.
    NoOutcome,
    /// A result and an error.
    BothOutcomes,
    /// `id`, `result` or `error` stands there twice.
    DuplicateKey,
    /// Nested deeper than any honest reply ([`crate::scan`] tells the bound).
    TooDeep,
    /// More replies than were asked for.
    TooManyItems,
    /// A body of 4 GiB or more, which our offsets cannot address.
    TooLarge,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the reply is empty"),
            Self::NotJson { at } => write!(f, "the reply is not JSON at byte {at}"),
            Self::Truncated => f.write_str("the reply ends too early"),
            Self::NotAnObject => f.write_str("the reply is not an object"),
            Self::NotAnArray => f.write_str("the reply to a batch is not an array"),
            Self::NoOutcome => f.write_str("the reply has neither result nor error"),
            Self::BothOutcomes => f.write_str("the reply has both result and error"),
            Self::DuplicateKey => f.write_str("the reply has a key twice"),
            Self::TooDeep => f.write_str("the reply is nested too deep"),
            Self::TooManyItems => f.write_str("the reply has more items than were asked for"),
            Self::TooLarge => f.write_str("the reply is 4 GiB or larger"),
        }
    }
}

impl std::error::Error for ScanError {}
