//! Where an object that arrives in pieces ends.
//!
//! A reply that is passed on before it is all there cannot be validated first. What can be
//! told cheaply is whether it is whole: brackets outside strings open and close, and it is
//! whole when the outermost one has closed and nothing but white space follows. Every
//! text that was cut has a bracket open. It does not promise that what lies between is
//! JSON, nor that a bracket is closed by one of its own kind: [`crate::scan`] does, for
//! what is held.
//!
//! Nearly all bytes are inside strings and are no bracket, so thirty-two at a time are
//! looked at in vector instructions and only their quotes are counted.

const BLOCK_BYTES: usize = 32;
const WORD_BYTES: usize = 8;

/// How deep the text is nested so far, from one piece to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nesting {
    depth: u32,
    in_string: bool,
    /// The last byte was the backslash of an escape.
    escaped: bool,
    /// Something followed the end.
    overran: bool,
}

impl Nesting {
    /// Inside an object whose opening brace was read before, outside strings.
    #[must_use]
    pub const fn in_object() -> Self {
        Self { depth: 1, in_string: false, escaped: false, overran: false }
    }

    /// Whether the object has closed, and nothing but white space came after.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.depth == 0 && !self.overran
    }

    /// Whether something followed the end that does not belong there.
    #[must_use]
    pub const fn has_overrun(&self) -> bool {
        self.overran
    }

    /// Reads on.
    pub fn read(&mut self, piece: &[u8]) {
        let (blocks, rest) = piece.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            if !self.passes(block) {
                self.words(block);
            }
        }
        self.words(rest);
    }

    fn words(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        for word in words {
            if !self.passes(word) {
                word.iter().for_each(|byte| self.byte(*byte));
            }
        }
        rest.iter().for_each(|byte| self.byte(*byte));
    }

    /// Reads a stretch of which nothing has to be known but its quotes; false when it has
    /// to be read byte by byte.
    #[inline]
    fn passes<const BYTES: usize>(&mut self, bytes: &[u8; BYTES]) -> bool {
        let is_marked = bytes.iter().fold(false, |found, &byte| found | is_marked(byte));
        if is_marked || self.escaped || self.depth == 0 {
            return false;
        }
        let odd = bytes.iter().fold(0_u8, |odd, &byte| odd ^ u8::from(byte == b'"'));
        self.in_string ^= odd != 0;
        true
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        if self.depth == 0 {
            self.overran |= !byte.is_ascii_whitespace();
        } else if self.escaped {
            self.escaped = false;
        } else if self.in_string {
            match byte {
                b'"' => self.in_string = false,
                b'\\' => self.escaped = true,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
        }
    }
}

/// Brackets, braces and the backslash, and the three bytes that differ from those by one
/// bit: a look in earnest costs little, and one comparison finds them all.
#[inline]
const fn is_marked(byte: u8) -> bool {
    (byte | 0x20).wrapping_sub(b'{') < 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Nesting {
        let mut nesting = Nesting::in_object();
        pieces.into_iter().for_each(|piece| nesting.read(piece));
        nesting
    }

    /// What follows `{"id":1,"result":`.
    fn check(rest: &str, is_whole: bool) {
        let rest = rest.as_bytes();
        assert_eq!(read([rest]).is_whole(), is_whole, "{rest:?}");
        // However it is cut into pieces.
        for at in 0..=rest.len() {
            let (first, second) = rest.split_at(at);
            assert_eq!(read([first, second]), read([rest]), "at {at}");
        }
        assert_eq!(read(rest.chunks(1)), read([rest]));
    }

    #[test]
    fn only_the_outermost_brace_ends_it() {
        check("\"0x1\"}", true);
        check("\"0x1\"}\r\n", true);
        check("\"0x1\"", false);
        check("", false);
        check("[{\"a\":{}},{}]}", true);
        check("[{\"a\":{}}", false);
        check("[{\"a\":{}},{}]", false);
        check("{\"a\":[1,{\"b\":2}]},\"more\":{}}", true);
        check("{\"a\":[1,{\"b\":2}]}", false);
    }

    #[test]
    fn what_stands_in_a_string_is_no_bracket() {
        check("\"}\"", false);
        check("\"}\"}", true);
        check("\"{[\"}", true);
        check(r#""a\"}"#, false);
        check(r#""a\"}"}"#, true);
        check(r#""a\\"}"#, true);
        check(r#""a\\\"}"#, false);
        let long = format!("\"{}\\\"}}\"}}", "0".repeat(77));
        check(&long, true);
        check(&long[..long.len() - 1], false);
    }

    #[test]
    fn nothing_may_follow_but_space() {
        check("1} \t\n", true);
        check("1}}", false);
        check("1} x", false);
        assert!(read([b"1}}".as_slice()]).has_overrun());
        assert!(!read([b"1".as_slice()]).has_overrun());
    }

    /// Every cut of a large answer leaves a bracket open.
    #[test]
    fn no_cut_looks_whole() {
        let log = r#"{"address":"0x00000000000000000000000000000000000000ff","topics":["0x1","0x2"],"data":"0x","name":"a [b] {c} \"d\"","removed":false}"#;
        let rest = format!("[{}]}}\n", [log; 20].join(","));
        let rest = rest.as_bytes();
        let end = rest.len() - 1;
        let mut nesting = Nesting::in_object();
        for (at, byte) in rest.iter().enumerate() {
            assert_eq!(read([&rest[..at]]), nesting, "at {at}");
            assert_eq!(nesting.is_whole(), at >= end, "at {at}");
            nesting.read(&[*byte]);
        }
        assert!(nesting.is_whole());
    }
}
