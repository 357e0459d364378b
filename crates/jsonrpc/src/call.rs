//! What a client asked: one call, or a batch of them, kept as it was written.
//!
//! A call knows where its parts are, not what they mean: see `eth` for that.

use bytes::Bytes;

use crate::error::Malformed;
use crate::span::Span;

/// A body that could be read: what it holds, in the order it was written.
#[derive(Clone, Debug)]
pub enum Packet {
    /// An object, answered by an object.
    Single(Result<Call, Malformed>),
    /// An array of at least one item, answered by an array.
    Batch(Vec<Result<Call, Malformed>>),
}

/// One well-formed call: the body it came in (shared, not copied) and where the
/// parts are.
///
/// Clones are cheap. A call keeps its whole body alive, all of a batch's calls
/// the same one.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) source: Bytes,
    pub(crate) whole: Span,
    pub(crate) id: Option<Span>,
    pub(crate) method: Method,
    pub(crate) params: Option<Span>,
}

/// The method's name, wherever it can be read without escapes.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// As written, without the quotes.
    Plain(Span),
    /// Written as `"eth\u005fcall"`: legal, and never seen from a library.
    Unescaped(Box<str>),
}

impl Call {
    /// The id's JSON exactly as the client wrote it. `None` for a notification;
    /// `null` is an id.
    #[must_use]
    pub fn id(&self) -> Option<&[u8]> {
        self.id.map(|span| span.of(&self.source))
    }

    /// The method's name, escapes undone.
    #[must_use]
    pub fn method(&self) -> &str {
        match &self.method {
            Method::Plain(span) => std::str::from_utf8(span.of(&self.source))
                .expect("`parse` checks the encoding of the whole body"),
            Method::Unescaped(name) => name,
        }
    }

    /// The JSON array or object as written; `None` when absent or `null`.
    #[must_use]
    pub fn params(&self) -> Option<&[u8]> {
        self.params.map(|span| span.of(&self.source))
    }

    /// Whether the client wants no answer.
    #[must_use]
    pub const fn is_notification(&self) -> bool {
        self.id.is_none()
    }

    /// The whole call object as written, from `{` to `}`.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        self.whole.of(&self.source)
    }
}
