//! What a control frame carries.

use std::fmt;

/// Bytes that a control frame may carry (RFC 6455, section 5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// The payload of a ping or pong, at most 125 bytes, by value: an answer may wait for its turn
/// without holding the read buffer or the heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ControlPayload {
    len: u8,
    bytes: [u8; CONTROL_BYTES_MAX],
}

impl ControlPayload {
    /// No payload.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; CONTROL_BYTES_MAX] };

    /// A copy of `bytes`; `None` if they are more than 125.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut payload = Self::EMPTY;
        payload.append(bytes).then_some(payload)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Adds `bytes`; false, and nothing added, if they are too many.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let from = usize::from(self.len);
        let Some(place) = self.bytes.get_mut(from..from + bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        // At most 125.
        self.len = (from + bytes.len()) as u8;
        true
    }
}

impl Default for ControlPayload {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for ControlPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlPayload({})", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_bounded() {
        let of = |len: usize| ControlPayload::new(&vec![b'x'; len]);
        assert_eq!(of(0), Some(ControlPayload::EMPTY));
        assert_eq!(of(125).map(|payload| payload.as_bytes().len()), Some(125));
        assert_eq!(of(126), None);
        assert_eq!(of(usize::from(u16::MAX)), None);
    }
}
