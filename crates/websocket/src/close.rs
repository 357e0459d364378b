//! What a close frame says.

use std::fmt;
use std::str::from_utf8;

use crate::code::CloseCode;
use crate::control::{CONTROL_BYTES_MAX, ControlPayload};
use crate::error::FrameError;

/// Bytes of the code before a reason.
const CODE_BYTES: usize = 2;

/// What a close frame says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CloseFrame {
    code: Option<CloseCode>,
    /// UTF-8, at most 123 bytes.
    reason: ControlPayload,
}

impl CloseFrame {
    /// Neither code nor reason. An answer to such a close is one, too.
    pub const EMPTY: Self = Self { code: None, reason: ControlPayload::EMPTY };

    /// A code and a reason, which is cut after the last character that ends within 123 bytes.
    pub fn new(code: CloseCode, reason: &str) -> Self {
        let end = reason.floor_char_boundary(CONTROL_BYTES_MAX - CODE_BYTES);
        let reason = ControlPayload::new(&reason.as_bytes()[..end]).unwrap_or_default();
        Self { code: Some(code), reason }
    }

    /// Reads the payload of a close frame.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, FrameError> {
        let (code, reason) = match payload {
            [] => return Ok(Self::EMPTY),
            [_] => return Err(FrameError::CloseCodeCut),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        let Some(code) = CloseCode::new(code) else {
            return Err(FrameError::CloseCodeForbidden(code));
        };
        if from_utf8(reason).is_err() {
            return Err(FrameError::CloseReasonNotUtf8);
        }
        let reason = ControlPayload::new(reason).ok_or(FrameError::ControlTooLong)?;
        Ok(Self { code: Some(code), reason })
    }

    /// The code; `None` if the frame has no payload, which APIs show as 1005.
    pub fn code(&self) -> Option<CloseCode> {
        self.code
    }

    /// The reason; most often empty.
    pub fn reason(&self) -> &str {
        from_utf8(&self.reason).unwrap_or_default()
    }

    /// As on the wire.
    pub(crate) fn payload(&self) -> ControlPayload {
        let Some(code) = self.code else { return ControlPayload::EMPTY };
        let mut payload = ControlPayload::EMPTY;
        let fits = payload.append(&code.get().to_be_bytes()) && payload.append(&self.reason);
        debug_assert!(fits, "a reason is at most 123 bytes");
        payload
    }
}

/// What to close with after a refused frame.
impl From<FrameError> for CloseFrame {
    fn from(error: FrameError) -> Self {
        Self::new(error.close_code(), error.reason())
    }
}

impl fmt::Debug for CloseFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseFrame")
            .field("code", &self.code)
            .field("reason", &self.reason())
            .finish()
    }
}
