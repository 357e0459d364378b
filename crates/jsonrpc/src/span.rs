//! A range of bytes inside a body.
//!
//! Four-byte offsets keep a call within two cache lines; bodies that do not fit
//! are refused at the door ([`crate::ParseError::TooLarge`]). A span does not
//! know its body: using it with another one is the caller's mistake.

use bytes::Bytes;

/// Where something stands in a body: `start` up to and without `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Bodies must be shorter than this for spans to reach everywhere.
pub(crate) const BODY_BYTES_MAX: usize = u32::MAX as usize;

impl Span {
    /// Callers have checked the body against [`BODY_BYTES_MAX`].
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= BODY_BYTES_MAX);
        Self { start: start as u32, end: end as u32 }
    }

    /// The bytes of this span, borrowed.
    ///
    /// Panics when `body` is shorter than the one the span was found in.
    #[must_use]
    pub fn of(self, body: &[u8]) -> &[u8] {
        &body[self.start as usize..self.end as usize]
    }

    /// The bytes of this span, sharing the body's memory.
    ///
    /// Panics when `body` is shorter than the one the span was found in. The
    /// slice keeps the whole body alive: copy small things out of large bodies
    /// that are to be kept for long.
    #[must_use]
    pub fn bytes(self, body: &Bytes) -> Bytes {
        body.slice(self.start as usize..self.end as usize)
    }

    /// How many bytes it covers.
    #[must_use]
    pub const fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it covers nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }
}
