//! Where an object that arrives in pieces ends.
//!
//! A reply that is passed on before it is all there cannot be validated first. What can be
//! told cheaply is whether it is whole: brackets outside strings open and close, and it is
//! whole when the outermost one has closed and nothing but white space follows. Every
//! text that was cut has a bracket open. It does not promise that what lies between is
//! JSON, nor that a bracket is closed by one of its own kind: [`crate::scan`] does, for
//! what is held.
//!
//! Sixty-four bytes at a time are compared with quotes and brackets in vector instructions.
//! What is inside a string follows from the quotes by a running exclusive or, and the brackets
//! outside are counted. That is the method of simdjson (Langdale and Lemire, "Parsing Gigabytes
//! of JSON per Second", 2019, section 3.1) without its backslashes: a block that has one is read
//! byte by byte, as is one with a bracket in a string and one in which the text may end.

use wide::u8x16;

const BLOCK_BYTES: usize = 64;
const LANES: usize = BLOCK_BYTES / 16;

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
                self.bytes(block);
            }
        }
        self.bytes(rest);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    /// Reads a block whose strings hold no backslash and no bracket, and in which the text does
    /// not end; false when it has to be read byte by byte.
    #[inline]
    fn passes(&mut self, block: &[u8; BLOCK_BYTES]) -> bool {
        if self.escaped || self.depth == 0 {
            return false;
        }
        let lanes = lanes(block);
        let quotes = lanes.map(quotes);
        if !may_have_structure(&lanes) {
            // Between brackets, as most of an answer is: only strings begin and end.
            self.in_string ^= is_odd(&quotes);
            return true;
        }
        let within = running_xor(mask(&quotes)) ^ u64::from(self.in_string).wrapping_neg();
        let mut structure = mask(&lanes.map(structure));
        // A backslash stands in a string, and hides where that ends.
        if structure & within != 0 {
            return false;
        }
        let mut depth = self.depth;
        while structure != 0 {
            match block[structure.trailing_zeros() as usize % BLOCK_BYTES] {
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' if depth > 1 => depth -= 1,
                _ => return false,
            }
            structure &= structure - 1;
        }
        self.depth = depth;
        self.in_string = within >> (BLOCK_BYTES - 1) == 1;
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

#[inline]
fn lanes(block: &[u8; BLOCK_BYTES]) -> [u8x16; LANES] {
    let (lanes, _) = block.as_chunks();
    std::array::from_fn(|index| u8x16::new(lanes[index]))
}

#[inline]
fn quotes(lane: u8x16) -> u8x16 {
    lane.simd_eq(u8x16::splat(b'"'))
}

/// Whether one of the lanes may hold brackets, braces or backslashes: with the bit in which a
/// bracket and its brace differ, they are the three bytes from `{` on. So are `|`, `~` and what is
/// beyond ASCII, which then cost their block a second look.
#[inline]
fn may_have_structure(lanes: &[u8x16; LANES]) -> bool {
    let highest = lanes.iter().fold(u8x16::ZERO, |high, lane| high.max(*lane | u8x16::splat(0x20)));
    highest.max(u8x16::splat(b'{')).simd_eq(highest).any()
}

/// Brackets, braces, backslashes and `|`, in one comparison.
#[inline]
fn structure(lane: u8x16) -> u8x16 {
    let from_brace = (lane | u8x16::splat(0x20)) - u8x16::splat(b'{');
    from_brace.min(u8x16::splat(2)).simd_eq(from_brace)
}

/// Whether an odd number of bytes is set: two of one place, in two lanes, are an even number.
#[inline]
fn is_odd(lanes: &[u8x16; LANES]) -> bool {
    let left = lanes.iter().fold(u8x16::ZERO, |left, lane| left ^ *lane);
    left.to_bitmask().count_ones() % 2 == 1
}

/// A bit a byte, the first one lowest.
#[inline]
fn mask(lanes: &[u8x16; LANES]) -> u64 {
    let lanes = lanes.iter().rev();
    lanes.fold(0, |mask, lane| mask << 16 | u64::from(lane.to_bitmask()))
}

/// Each bit says whether an odd number of bits is set up to and with it.
#[inline]
const fn running_xor(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ (bits << 32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        /// Blocks and bytes read the same, wherever a block begins.
        #[test]
        fn blocks_are_read_as_bytes_are(
            text in r#"([\[\]{}"|]|[0-9a-z]{1,9}|[0-9a-z]{60,200}|\\"|\\\\){0,200}"#,
            opened in 0_u32..9,
        ) {
            let text = format!("{}{text}", "[".repeat(opened as usize));
            let mut bytes = Nesting::in_object();
            bytes.bytes(text.as_bytes());
            prop_assert_eq!(read([text.as_bytes()]), bytes);
            for at in 0..text.len().min(BLOCK_BYTES) {
                let (first, second) = text.as_bytes().split_at(at);
                prop_assert_eq!(read([first, second]), bytes);
            }
        }
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
