//! How WebSocket connections end, for the counts and the log.

use wellhead_websocket::{CloseCode, FrameError};

/// How a WebSocket connection ended. Its words stand in metrics and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum WsEnd {
    /// The client closed it.
    Client,
    /// The client was gone without a close.
    Lost,
    /// 1002: the client broke the protocol.
    #[strum(serialize = "1002")]
    Protocol,
    /// 1007: text that is not UTF-8.
    #[strum(serialize = "1007")]
    InvalidText,
    /// 1008: the client let too many answers wait, sent a message in too many fragments, or may not go on.
    #[strum(serialize = "1008")]
    Policy,
    /// 1009: a message is too big.
    #[strum(serialize = "1009")]
    TooBig,
    /// 1012: the drain.
    #[strum(serialize = "1012")]
    Restart,
    /// 1013: too many connections, too much request data under way, or keys that cannot be checked.
    #[strum(serialize = "1013")]
    Overload,
}

wellhead_word::words!(WsEnd);

impl WsEnd {
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
