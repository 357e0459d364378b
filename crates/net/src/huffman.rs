//! The Huffman code of HPACK (RFC 7541, appendix B), unpacked.
//!
//! Nothing is packed: our own headers are sent once and referred to afterwards.

/// Lengths of the codes of RFC 7541, appendix B. The codes themselves follow: they
/// are numbered by length and then by symbol.
#[rustfmt::skip]
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
/// Codes up to this length are looked up in one step; they are all of ASCII's usual ones.
const QUICK_BITS: u32 = 8;
const LONGEST: usize = 30;

/// The codes in the order in which they are numbered.
struct Codes {
    /// By the next bits: the symbol and the length of its code, or length 0.
    quick: [(u8, u8); 1 << QUICK_BITS],
    /// By length: the first code, how many there are, and where their symbols start.
    lengths: [(u32, u32, usize); LONGEST + 1],
    symbols: [u8; 256],
}

static CODES: Codes = Codes::new();

impl Codes {
    const fn new() -> Self {
        let mut codes = Self {
            quick: [(0, 0); 1 << QUICK_BITS],
            lengths: [(0, 0, 0); LONGEST + 1],
            symbols: [0; 256],
        };
        let (mut code, mut placed, mut length) = (0u32, 0, 1);
        while length <= LONGEST {
            code <<= 1;
            codes.lengths[length] = (code, 0, placed);
            let mut symbol = 0;
            while symbol < CODE_LENGTHS.len() {
                if CODE_LENGTHS[symbol] as usize == length {
                    codes.symbols[placed] = symbol as u8;
                    placed += 1;
                    codes.lengths[length].1 += 1;
                    if length <= QUICK_BITS as usize {
                        let shift = QUICK_BITS as usize - length;
                        let mut tail = 0;
                        while tail < 1 << shift {
                            codes.quick[((code as usize) << shift) | tail] =
                                (symbol as u8, length as u8);
                            tail += 1;
                        }
                    }
                    code += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        codes
    }

    /// The symbol at the top of `bits` and the length of its code.
    fn longer(&self, bits: u64) -> Option<(u8, u32)> {
        for length in QUICK_BITS as usize + 1..=LONGEST {
            let (first, count, start) = self.lengths[length];
            let code = (bits >> (64 - length)) as u32;
            if let Some(nth) = code.checked_sub(first)
                && nth < count
            {
                return Some((self.symbols[start + nth as usize], length as u32));
            }
        }
        None
    }
}

/// Appends the plain text of `packed`; `None` when it is not valid.
pub(crate) fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // The bits not yet read, at the top, and how many they are.
    let (mut bits, mut have) = (0u64, 0u32);
    let mut bytes = packed.iter();
    loop {
        while have <= 56 {
            let Some(byte) = bytes.next() else { break };
            bits |= u64::from(*byte) << (56 - have);
            have += 8;
        }
        if have == 0 {
            return Some(());
        }
        let (symbol, length) = match CODES.quick[(bits >> (64 - QUICK_BITS)) as usize] {
            (_, 0) => match CODES.longer(bits) {
                Some(found) if found.1 <= have => found,
                Some(_) | None => (0, u32::MAX),
            },
            (symbol, length) => (symbol, u32::from(length)),
        };
        if length > have {
            // What is left must be padding: fewer than 8 bits, all set.
            let padding = have < 8 && bits == !(u64::MAX >> have);
            return padding.then_some(());
        }
        out.push(symbol);
        bits <<= length;
        have -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs `text` bit by bit.
    fn packed(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for symbol in text {
            let length = usize::from(CODE_LENGTHS[usize::from(*symbol)]);
            let (first, _, start) = CODES.lengths[length];
            let nth = CODES.symbols[start..].iter().position(|s| s == symbol).expect("listed");
            let code = first + nth as u32;
            bits.extend((0..length).rev().map(|bit| (code >> bit & 1) as u8));
        }
        bits.resize(bits.len().next_multiple_of(8), 1);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |sum, bit| sum << 1 | bit)).collect()
    }

    #[test]
    fn the_code_is_the_standard_s() {
        assert_eq!(packed(b"www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        assert_eq!(packed(&[0, 255]), [0xff, 0xc7, 0xff, 0xff, 0xdd]);
        // A complete code: the longest ends just before that of the end, which is all ones.
        let (first, count, _) = CODES.lengths[LONGEST];
        assert_eq!(first + count, (1 << LONGEST) - 1);
    }

    #[test]
    fn whatever_was_packed_is_unpacked() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for start in 0..all.len() {
            for end in [start, all.len().min(start + 1), all.len().min(start + 9), all.len()] {
                let mut out = Vec::new();
                assert_eq!(unpack(&packed(&all[start..end]), &mut out), Some(()));
                assert_eq!(out, all[start..end]);
            }
        }
    }

    #[test]
    fn padding_must_be_short_and_set() {
        let unpacked = |packed: &[u8]| unpack(packed, &mut Vec::new());
        assert_eq!(unpacked(b"\x07"), Some(()), "`0` and three bits");
        assert_eq!(unpacked(b"\x06"), None);
        assert_eq!(unpacked(b"\x07\xff"), None, "a whole byte of padding");
        assert_eq!(unpacked(b"\xff\xff\xff\xff"), None, "the end is no symbol");
    }
}
