//! The header of a frame (RFC 6455, section 5.2).

use crate::control::CONTROL_BYTES_MAX;
use crate::error::FrameError;
use crate::stack_bytes::StackBytes;

/// Bytes of the longest header: two, a length of 64 bits, and a mask.
pub(crate) const HEADER_BYTES_MAX: usize = 14;

const LAST: u8 = 0x80;
const RESERVED_BITS: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// A length of 16 bits follows.
const LENGTH_16: u8 = 126;
/// A length of 64 bits follows.
const LENGTH_64: u8 = 127;

/// Which end of the connection we are: clients mask their frames, servers do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WsRole {
    /// We serve, so what comes in is masked.
    Server,
    /// We are the client, so what comes in is not masked.
    Client,
}

/// What a frame is, by its number on the wire; `None` of [`Self::from_repr`] is for a reserved number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::FromRepr)]
#[repr(u8)]
pub enum Opcode {
    /// More of the message before it.
    Continuation = 0,
    /// The beginning of a text.
    Text = 1,
    /// The beginning of bytes.
    Binary = 2,
    /// The end of the connection.
    Close = 8,
    /// To be answered by a pong.
    Ping = 9,
    /// The answer to a ping, or a sign of life.
    Pong = 10,
}

impl Opcode {
    /// Close, ping and pong: they may come between the fragments of a message.
    pub fn is_control(self) -> bool {
        match self {
            Self::Close | Self::Ping | Self::Pong => true,
            Self::Continuation | Self::Text | Self::Binary => false,
        }
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// No fragment of the message follows.
    pub is_last: bool,
    /// What it is.
    pub opcode: Opcode,
    /// Bytes of the payload.
    pub len: u64,
    /// The mask of the payload, if it has one.
    pub mask: Option<[u8; 4]>,
}

impl FrameHeader {
    /// Reads the header at the start of `bytes`, which came from the other end; returns it with
    /// its length, or `None` when more is needed. Fails at the first byte that is not allowed.
    pub(crate) fn read(
        role: WsRole,
        inside_message: bool,
        bytes: &[u8],
    ) -> Result<Option<(Self, usize)>, FrameError> {
        let [first, rest @ ..] = bytes else { return Ok(None) };
        let (is_last, opcode) = read_first(*first, inside_message)?;
        let [second, rest @ ..] = rest else { return Ok(None) };
        match (role, second & MASKED != 0) {
            (WsRole::Server, false) => return Err(FrameError::Unmasked),
            (WsRole::Client, true) => return Err(FrameError::Masked),
            (WsRole::Server, true) | (WsRole::Client, false) => {}
        }
        let length = second & LENGTH;
        if opcode.is_control() && usize::from(length) > CONTROL_BYTES_MAX {
            return Err(FrameError::ControlTooLong);
        }
        let (len, rest) = match (length, rest) {
            (LENGTH_16, [a, b, rest @ ..]) => (u64::from(u16::from_be_bytes([*a, *b])), rest),
            (LENGTH_64, [high, ..]) if *high & 0x80 != 0 => {
                return Err(FrameError::LengthOutOfRange);
            }
            (LENGTH_64, [a, b, c, d, e, f, g, h, rest @ ..]) => {
                (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), rest)
            }
            (LENGTH_16 | LENGTH_64, _) => return Ok(None),
            (length, rest) => (u64::from(length), rest),
        };
        let (mask, rest) = match (role, rest) {
            (WsRole::Client, rest) => (None, rest),
            (WsRole::Server, [a, b, c, d, rest @ ..]) => (Some([*a, *b, *c, *d]), rest),
            (WsRole::Server, _) => return Ok(None),
        };
        Ok(Some((Self { is_last, opcode, len, mask }, bytes.len() - rest.len())))
    }

    /// Whether the frame is a whole message or a control frame, and no fragment of a message.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_last && self.opcode != Opcode::Continuation
    }

    /// As on the wire, with the length in its shortest form.
    pub fn to_bytes(self) -> HeaderBytes {
        let mut header = HeaderBytes::EMPTY;
        let mut put = |bytes: &[u8]| {
            let fits = header.append(bytes);
            debug_assert!(fits, "a header is at most 14 bytes");
        };
        put(&[if self.is_last { LAST } else { 0 } | self.opcode as u8]);
        let masked = if self.mask.is_some() { MASKED } else { 0 };
        match (u8::try_from(self.len), u16::try_from(self.len)) {
            (Ok(len), _) if len < LENGTH_16 => put(&[masked | len]),
            (_, Ok(len)) => {
                put(&[masked | LENGTH_16]);
                put(&len.to_be_bytes());
            }
            _ => {
                put(&[masked | LENGTH_64]);
                put(&self.len.to_be_bytes());
            }
        }
        if let Some(mask) = self.mask {
            put(&mask);
        }
        header
    }
}

/// The first byte of a header. `inside_message`: fragments came, and the last is missing.
fn read_first(byte: u8, inside_message: bool) -> Result<(bool, Opcode), FrameError> {
    if byte & RESERVED_BITS != 0 {
        return Err(FrameError::ReservedBit);
    }
    let number = byte & OPCODE;
    let opcode = Opcode::from_repr(number).ok_or(FrameError::ReservedOpcode(number))?;
    let is_last = byte & LAST != 0;
    match opcode {
        Opcode::Close | Opcode::Ping | Opcode::Pong if !is_last => {
            Err(FrameError::ControlFragmented)
        }
        Opcode::Continuation if !inside_message => Err(FrameError::NothingToContinue),
        Opcode::Text | Opcode::Binary if inside_message => Err(FrameError::MessageUnfinished),
        Opcode::Continuation
        | Opcode::Text
        | Opcode::Binary
        | Opcode::Close
        | Opcode::Ping
        | Opcode::Pong => Ok((is_last, opcode)),
    }
}

/// A header as on the wire: 2 to 10 bytes, and four more with a mask.
pub type HeaderBytes = StackBytes<HEADER_BYTES_MAX>;
