//! How a peer can break the protocol or a bound.

use std::fmt;

use crate::code::CloseCode;

/// A frame that is refused. The connection cannot go on: send the close frame that is made
/// from it (`CloseFrame::from`), and close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A reserved bit is set, as if an extension had been agreed on.
    ReservedBit,
    /// An opcode without a meaning: 3 to 7 or 11 to 15.
    ReservedOpcode(u8),
    /// A client's frame without a mask.
    Unmasked,
    /// A server's frame with a mask.
    Masked,
    /// A control frame in fragments.
    ControlFragmented,
    /// A control frame of more than 125 bytes, or with its length in more than one byte.
    ControlTooLong,
    /// A length of more than 63 bits.
    LengthOutOfRange,
    /// A continuation, while no message is unfinished.
    NothingToContinue,
    /// A new message, while another is unfinished.
    MessageUnfinished,
    /// Text that is not UTF-8.
    TextNotUtf8,
    /// A close frame of one byte: a code has two.
    CloseCodeCut,
    /// A close code that may not be on the wire.
    CloseCodeForbidden(u16),
    /// The reason of a close that is not UTF-8.
    CloseReasonNotUtf8,
    /// A message of more bytes than allowed.
    MessageTooBig,
    /// A message in more fragments than allowed.
    TooManyFragments,
}

impl FrameError {
    /// The code to close with.
    pub fn close_code(self) -> CloseCode {
        match self {
            Self::ReservedBit
            | Self::ReservedOpcode(_)
            | Self::Unmasked
            | Self::Masked
            | Self::ControlFragmented
            | Self::ControlTooLong
            | Self::LengthOutOfRange
            | Self::NothingToContinue
            | Self::MessageUnfinished
            | Self::CloseCodeCut
            | Self::CloseCodeForbidden(_) => CloseCode::PROTOCOL_ERROR,
            Self::TextNotUtf8 | Self::CloseReasonNotUtf8 => CloseCode::INVALID_PAYLOAD,
            Self::TooManyFragments => CloseCode::POLICY,
            Self::MessageTooBig => CloseCode::TOO_BIG,
        }
    }

    /// What was wrong, for the peer and the log; at most 123 bytes.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ReservedBit => "a reserved bit is set, but no extension was agreed on",
            Self::ReservedOpcode(_) => "the opcode is reserved",
            Self::Unmasked => "a frame of a client is not masked",
            Self::Masked => "a frame of a server is masked",
            Self::ControlFragmented => "a control frame is fragmented",
            Self::ControlTooLong => "a control frame has more than 125 bytes",
            Self::LengthOutOfRange => "the length of a frame is out of range",
            Self::NothingToContinue => "a continuation without a message before it",
            Self::MessageUnfinished => "a new message before the end of the one before",
            Self::TextNotUtf8 => "a text is not UTF-8",
            Self::CloseCodeCut => "a close frame has one byte, but a code has two",
            Self::CloseCodeForbidden(_) => "the close code may not be sent",
            Self::CloseReasonNotUtf8 => "the reason of a close is not UTF-8",
            Self::MessageTooBig => "the message is too big",
            Self::TooManyFragments => "the message has too many fragments",
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())?;
        match self {
            Self::ReservedOpcode(number) => write!(f, " ({number})"),
            Self::CloseCodeForbidden(code) => write!(f, " ({code})"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for FrameError {}
