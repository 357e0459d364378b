//! How WebSocket connections end, for the counts and the log.

use wellhead_websocket::{CloseCode, FrameError};

/// How a WebSocket connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WsEnd {
    /// The client closed it.
    Client,
    /// The client was gone without a close.
    Lost,
    /// 1002: the client broke the protocol.
    Protocol,
    /// 1007: text that is not UTF-8.
    InvalidText,
    /// 1008: the client let too many answers wait, sent a message in too many fragments, or may not go on.
    Policy,
    /// 1009: a message is too big.
    TooBig,
    /// 1012: the drain.
    Restart,
    /// 1013: too many connections, too much request data under way, or keys that cannot be checked.
    Overload,
}

impl WsEnd {
    /// All of them, in the order of [`crate::ServerCounts::websocket_ended`].
    pub const ALL: [Self; 8] = [
        Self::Client,
        Self::Lost,
        Self::Protocol,
        Self::InvalidText,
        Self::Policy,
        Self::TooBig,
        Self::Restart,
        Self::Overload,
    ];

    /// A stable word for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Lost => "lost",
            Self::Protocol => "1002",
            Self::InvalidText => "1007",
            Self::Policy => "1008",
            Self::TooBig => "1009",
            Self::Restart => "1012",
            Self::Overload => "1013",
        }
    }

    /// The end that a refused frame leads to.
    pub(crate) fn of(error: FrameError) -> Self {
        match error.close_code() {
            CloseCode::INVALID_PAYLOAD => Self::InvalidText,
            CloseCode::POLICY => Self::Policy,
            CloseCode::TOO_BIG => Self::TooBig,
            _ => Self::Protocol,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_in_their_order_and_close_codes_are_kept() {
        for (index, end) in WsEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, index, "{end:?}");
        }
        for error in [
            FrameError::Unmasked,
            FrameError::TextNotUtf8,
            FrameError::TooManyFragments,
            FrameError::MessageTooBig,
        ] {
            assert_eq!(WsEnd::of(error).word(), error.close_code().to_string());
        }
    }
}
