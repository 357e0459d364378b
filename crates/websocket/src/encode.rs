//! Frames to send, on the stack: headers of messages, and whole control frames.
//!
//! As a server sends them, without a mask. For a client there is [`masked`], to which the mask is
//! a parameter, as chance is everywhere: it draws a new one for each frame, from a generator that
//! the other end cannot predict. A client's message is a [`FrameHeader`] with a mask, and the
//! payload after [`apply_mask`].

use std::fmt;
use std::ops::Deref;

use crate::close::CloseFrame;
use crate::control::{CONTROL_BYTES_MAX, ControlPayload};
use crate::decode::MessageKind;
use crate::frame::{FrameHeader, HeaderBytes, Opcode};
use crate::mask::apply_mask;

/// Bytes of the longest control frame: a header of two, a mask, and the payload.
const CONTROL_FRAME_BYTES_MAX: usize = 2 + 4 + CONTROL_BYTES_MAX;

/// The header of a message of `len` bytes in one frame: 2, 4 or 10 bytes.
pub fn message_header(kind: MessageKind, len: usize) -> HeaderBytes {
    let opcode = match kind {
        MessageKind::Text => Opcode::Text,
        MessageKind::Binary => Opcode::Binary,
    };
    FrameHeader { is_last: true, opcode, len: len as u64, mask: None }.to_bytes()
}

/// A ping.
pub fn ping(payload: &ControlPayload) -> ControlBytes {
    control(Opcode::Ping, payload, None)
}

/// The answer to a ping, with its payload.
pub fn pong(payload: &ControlPayload) -> ControlBytes {
    control(Opcode::Pong, payload, None)
}

/// A close. No frame may follow it.
pub fn close(frame: &CloseFrame) -> ControlBytes {
    control(Opcode::Close, &frame.payload(), None)
}

/// Control frames as a client sends them.
pub mod masked {
    use super::{CloseFrame, ControlBytes, ControlPayload, Opcode, control};

    /// A ping.
    pub fn ping(payload: &ControlPayload, mask: [u8; 4]) -> ControlBytes {
        control(Opcode::Ping, payload, Some(mask))
    }

    /// The answer to a ping, with its payload.
    pub fn pong(payload: &ControlPayload, mask: [u8; 4]) -> ControlBytes {
        control(Opcode::Pong, payload, Some(mask))
    }

    /// A close. No frame may follow it.
    pub fn close(frame: &CloseFrame, mask: [u8; 4]) -> ControlBytes {
        control(Opcode::Close, &frame.payload(), Some(mask))
    }
}

fn control(opcode: Opcode, payload: &ControlPayload, mask: Option<[u8; 4]>) -> ControlBytes {
    let payload = payload.as_bytes();
    let header = FrameHeader { is_last: true, opcode, len: payload.len() as u64, mask }.to_bytes();
    let mut bytes = [0; CONTROL_FRAME_BYTES_MAX];
    let (head, rest) = bytes.split_at_mut(header.len());
    head.copy_from_slice(&header);
    let place = &mut rest[..payload.len()];
    place.copy_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(mask, 0, place);
    }
    // At most 131.
    ControlBytes { len: (header.len() + payload.len()) as u8, bytes }
}

/// A whole control frame as on the wire, on the stack: at most 127 bytes, 131 with a mask.
#[derive(Clone, Copy)]
pub struct ControlBytes {
    len: u8,
    bytes: [u8; CONTROL_FRAME_BYTES_MAX],
}

impl Deref for ControlBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for ControlBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &**self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloseCode;

    #[test]
    fn headers_take_the_shortest_form() {
        let check = |kind, len, expected: &[u8]| {
            assert_eq!(&*message_header(kind, len), expected, "{len}");
        };
        check(MessageKind::Text, 0, b"\x81\0");
        check(MessageKind::Text, 125, b"\x81\x7d");
        check(MessageKind::Text, 126, b"\x81\x7e\0\x7e");
        check(MessageKind::Binary, 0xffff, b"\x82\x7e\xff\xff");
        check(MessageKind::Binary, 0x1_0000, b"\x82\x7f\0\0\0\0\0\x01\0\0");
    }

    #[test]
    fn control_frames_are_whole() {
        let hello = ControlPayload::new(b"Hello").unwrap();
        assert_eq!(&*ping(&hello), b"\x89\x05Hello");
        assert_eq!(&*pong(&hello), b"\x8a\x05Hello");
        // RFC 6455, section 5.7.
        let masked = masked::pong(&hello, [0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(&*masked, b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
        let longest = ControlPayload::new(&[b'x'; 125]).unwrap();
        assert_eq!(ping(&longest).len(), 127);
        assert_eq!(masked::ping(&longest, [1; 4]).len(), 131);
    }

    #[test]
    fn closes_have_a_code_and_a_reason_that_fits() {
        assert_eq!(&*close(&CloseFrame::EMPTY), b"\x88\0");
        let restart = CloseFrame::new(CloseCode::RESTART, "restart");
        assert_eq!(&*close(&restart), b"\x88\x09\x03\xf4restart");
        assert_eq!(close(&CloseFrame::new(CloseCode::POLICY, &"x".repeat(200))).len(), 127);
        let cut = CloseFrame::new(CloseCode::POLICY, &"ä".repeat(100));
        assert_eq!((close(&cut).len(), cut.reason()), (126, &*"ä".repeat(61)));
    }
}
