//! Frames to send, on the stack: headers of messages, and whole control frames.
//!
//! As a server sends them, without a mask. A client's frame is a [`FrameHeader`] with a mask, and
//! the payload after [`apply_mask`](crate::apply_mask).

use crate::close::CloseFrame;
use crate::control::{CONTROL_BYTES_MAX, ControlPayload};
use crate::decode::MessageKind;
use crate::frame::{FrameHeader, HeaderBytes, Opcode};
use crate::stack_bytes::StackBytes;

/// Bytes of the longest control frame: a header of two, and the payload.
const CONTROL_FRAME_BYTES_MAX: usize = 2 + CONTROL_BYTES_MAX;

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
    control(Opcode::Ping, payload)
}

/// The answer to a ping, with its payload.
pub fn pong(payload: &ControlPayload) -> ControlBytes {
    control(Opcode::Pong, payload)
}

/// A close. No frame may follow it.
pub fn close(frame: &CloseFrame) -> ControlBytes {
    control(Opcode::Close, &frame.payload())
}

fn control(opcode: Opcode, payload: &ControlPayload) -> ControlBytes {
    let len = payload.len() as u64;
    let header = FrameHeader { is_last: true, opcode, len, mask: None }.to_bytes();
    let mut frame = ControlBytes::EMPTY;
    let fits = frame.append(&header) && frame.append(payload);
    debug_assert!(fits, "a payload is at most 125 bytes");
    frame
}

/// A whole control frame as on the wire: at most 127 bytes.
pub type ControlBytes = StackBytes<CONTROL_FRAME_BYTES_MAX>;

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
        let longest = ControlPayload::new(&[b'x'; 125]).unwrap();
        assert_eq!(ping(&longest).len(), 127);
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
