//! UTF-8 that arrives in pieces.

use std::str::from_utf8;

/// Bytes that cannot be the beginning of UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidUtf8;

/// Checks UTF-8 piece by piece, and fails at the first byte that no continuation could mend.
#[derive(Debug, Default)]
pub(crate) struct Utf8Check {
    /// The beginning of a character whose end has not arrived.
    begun: [u8; 4],
    begun_len: usize,
}

impl Utf8Check {
    /// Takes the next piece.
    pub(crate) fn push(&mut self, mut piece: &[u8]) -> Result<(), InvalidUtf8> {
        while self.begun_len > 0 {
            let Some((byte, rest)) = piece.split_first() else { return Ok(()) };
            piece = rest;
            // Four bytes are a character or invalid, so a fifth is never kept.
            self.begun[self.begun_len] = *byte;
            self.begun_len += 1;
            match from_utf8(&self.begun[..self.begun_len]) {
                Ok(_) => self.begun_len = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(InvalidUtf8),
            }
        }
        let Err(error) = from_utf8(piece) else { return Ok(()) };
        if error.error_len().is_some() {
            return Err(InvalidUtf8);
        }
        let begun = &piece[error.valid_up_to()..];
        self.begun[..begun.len()].copy_from_slice(begun);
        self.begun_len = begun.len();
        Ok(())
    }

    /// Whether the text may end here: no character is incomplete.
    pub(crate) fn is_complete(&self) -> bool {
        self.begun_len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of bytes that are taken one by one before one is refused; `None` if all are
    /// taken and the text may end.
    fn refused_at(bytes: &[u8]) -> Option<usize> {
        let mut check = Utf8Check::default();
        for (at, byte) in bytes.iter().enumerate() {
            if check.push(&[*byte]).is_err() {
                return Some(at);
            }
        }
        (!check.is_complete()).then_some(bytes.len())
    }

    #[test]
    fn the_first_impossible_byte_is_refused() {
        for (bytes, expected) in [
            (&b""[..], None),
            (b"plain", None),
            ("κόσμε €𐍈\u{10ffff}".as_bytes(), None),
            (b"\xce", Some(1)),
            (b"a\xf0\x90\x8d", Some(4)),
            (b"a\x80", Some(1)),
            (b"\xc0\x80", Some(0)),
            (b"\xc1", Some(0)),
            (b"\xe0\x80\x80", Some(1)),
            (b"\xed\xa0\x80", Some(1)),
            (b"\xf0\x8f\x80\x80", Some(1)),
            (b"\xf4\x8f\xbf\xbf", None),
            (b"\xf4\x90\x80\x80", Some(1)),
            (b"\xf5", Some(0)),
            (b"\xff", Some(0)),
            (b"\xe2\x82a", Some(2)),
        ] {
            assert_eq!(refused_at(bytes), expected, "{bytes:x?}");
        }
    }

    /// All beginnings of two bytes, in every third and fourth that matters.
    #[test]
    fn pieces_are_judged_as_the_whole() {
        const ENDS: [u8; 6] = [0x00, 0x7f, 0x80, 0x8f, 0xbf, 0xc0];
        for first in 0x70..=0xff_u8 {
            for second in 0..=0xff_u8 {
                for (third, fourth) in ENDS.iter().flat_map(|a| ENDS.map(|b| (*a, b))) {
                    let bytes = [first, second, third, fourth];
                    let whole = from_utf8(&bytes).is_ok();
                    for cut in 0..=4 {
                        let mut check = Utf8Check::default();
                        let is_valid = check.push(&bytes[..cut]).is_ok()
                            && check.push(&bytes[cut..]).is_ok()
                            && check.is_complete();
                        assert_eq!(is_valid, whole, "{bytes:x?} at {cut}");
                    }
                }
            }
        }
    }
}
