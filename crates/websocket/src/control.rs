//! What a control frame carries.

use crate::stack_bytes::StackBytes;

/// Bytes that a control frame may carry (RFC 6455, section 5.5).
pub(crate) const CONTROL_BYTES_MAX: usize = 125;

/// The payload of a ping or pong, at most 125 bytes.
pub type ControlPayload = StackBytes<CONTROL_BYTES_MAX>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_bounded() {
        let of = |len: usize| ControlPayload::new(&vec![b'x'; len]);
        assert_eq!(of(0), Some(ControlPayload::EMPTY));
        assert_eq!(of(125).map(|payload| payload.len()), Some(125));
        assert_eq!(of(126), None);
        assert_eq!(of(usize::from(u16::MAX)), None);
    }
}
