//! The codes with which a connection is closed.

use std::fmt;

/// A close code that may be on the wire (RFC 6455, section 7.4, and the registry of IANA): 1000
/// to 1003, 1007 to 1014, and 3000 to 4999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// 1002: the peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// 1007: text that is not UTF-8.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// 1008: the peer did what is not allowed here, and no other code fits.
    pub const POLICY: Self = Self(1008);
    /// 1009: a message is too big.
    pub const TOO_BIG: Self = Self(1009);
    /// 1012: the service restarts; clients may come back at once.
    pub const RESTART: Self = Self(1012);
    /// 1013: the service is overloaded; clients should come back later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// `None` for a code that may not be on the wire.
    pub fn new(code: u16) -> Option<Self> {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999).then_some(Self(code))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_wire() {
        let check = |code: u16, expected: bool| {
            assert_eq!(
                CloseCode::new(code).map(CloseCode::get),
                expected.then_some(code),
                "{code}"
            );
        };
        for code in [1000, 1001, 1002, 1003, 1007, 1011, 1012, 1014, 3000, 3999, 4000, 4999] {
            check(code, true);
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, u16::MAX] {
            check(code, false);
        }
    }
}
