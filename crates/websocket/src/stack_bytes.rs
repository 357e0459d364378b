//! A few bytes by value.

use std::fmt;
use std::ops::Deref;

/// At most `MAX` bytes, fewer than 256, on the stack: what waits for its turn holds neither the read
/// buffer nor the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StackBytes<const MAX: usize> {
    len: u8,
    bytes: [u8; MAX],
}

impl<const MAX: usize> StackBytes<MAX> {
    /// No bytes.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; MAX] };

    /// A copy of `bytes`; `None` if they are more than `MAX`.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut copy = Self::EMPTY;
        copy.append(bytes).then_some(copy)
    }

    /// Adds as many of `bytes` as there is room for; whether these are all.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let from = usize::from(self.len);
        let count = bytes.len().min(MAX - from);
        self.bytes[from..from + count].copy_from_slice(&bytes[..count]);
        // At most `MAX`.
        self.len = (from + count) as u8;
        count == bytes.len()
    }
}

impl<const MAX: usize> Deref for StackBytes<MAX> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const MAX: usize> Default for StackBytes<MAX> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const MAX: usize> fmt::Debug for StackBytes<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
