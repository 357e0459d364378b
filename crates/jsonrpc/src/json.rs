//! The scanner: walks over JSON text, proves it valid, builds nothing.
//!
//! It accepts exactly RFC 8259. Nothing recurses: the kinds of the open
//! containers are one bit each, so depth costs neither stack nor, up to
//! [`Nesting::WORD_BITS`], memory. It does not say what the text means: see
//! `parse` and `envelope`, which drive it key by key.
//!
//! Most bytes of Ethereum traffic are inside strings, mostly hex. They are
//! tested eight at a time, then in blocks that the compiler turns into vector
//! instructions, and handed to `memchr` when the string is long. UTF-8 is
//! checked once at the end, and only if a byte beyond ASCII was seen: outside
//! strings such bytes are never valid.

use memchr::memchr2;

use crate::text::hex4;

/// What the scanner stumbled over; [`Scanner::at`] says where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The text ends where more is due.
    End,
    Value,
    Key,
    Colon,
    CommaOrBrace,
    CommaOrBracket,
    Number,
    LeadingZero,
    Literal,
    Control,
    Escape,
    HexDigit,
    Surrogate,
    Encoding,
    Trailing,
    TooDeep,
}

impl Flaw {
    /// Words for the client, to be followed by "at byte N".
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::End => "the text ends too early",
            Self::Value => "expected a value",
            Self::Key => "expected a key in double quotes",
            Self::Colon => "expected `:`",
            Self::CommaOrBrace => "expected `,` or `}`",
            Self::CommaOrBracket => "expected `,` or `]`",
            Self::Number => "expected a digit",
            Self::LeadingZero => "a number must not begin with 0",
            Self::Literal => "expected `true`, `false` or `null`",
            Self::Control => "unescaped control character in a string",
            Self::Escape => "unknown escape in a string",
            Self::HexDigit => "expected a hex digit",
            Self::Surrogate => "half a surrogate pair in a string",
            Self::Encoding => "not UTF-8",
            Self::Trailing => "unexpected text after the end",
            Self::TooDeep => "nested too deep",
        }
    }
}

/// A string as it stands in the text, without its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quoted {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Whether a backslash is in it, so that its bytes are not its meaning.
    pub(crate) escaped: bool,
}

/// A place in a text, and what has been seen on the way to it.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    /// The next byte to read; after a [`Flaw`], the byte that does not fit.
    pub(crate) at: usize,
    depth_max: usize,
    whole_pairs_only: bool,
    beyond_ascii: bool,
}

impl<'a> Scanner<'a> {
    /// For the text of a client: half surrogate pairs are a flaw.
    pub(crate) const fn of_client(text: &'a [u8], depth_max: usize) -> Self {
        Self { text, at: 0, depth_max, whole_pairs_only: true, beyond_ascii: false }
    }

    /// For the text of an upstream.
    pub(crate) const fn of_upstream(text: &'a [u8], depth_max: usize) -> Self {
        Self { text, at: 0, depth_max, whole_pairs_only: false, beyond_ascii: false }
    }

    pub(crate) const fn text(&self) -> &'a [u8] {
        self.text
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        &self.text[start..end]
    }

    #[inline]
    pub(crate) fn white_space(&mut self) {
        // Nearly always there is none, and then one comparison tells.
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// Checks what can only be checked at the end: nothing follows, and the encoding.
    pub(crate) fn finish(&mut self) -> Result<(), Flaw> {
        self.white_space();
        if self.at < self.text.len() {
            return Err(Flaw::Trailing);
        }
        self.encoding()
    }

    /// Checks that what has been read so far is UTF-8.
    pub(crate) fn encoding(&mut self) -> Result<(), Flaw> {
        if self.beyond_ascii
            && let Err(error) = std::str::from_utf8(&self.text[..self.at])
        {
            self.at = error.valid_up_to();
            return Err(Flaw::Encoding);
        }
        Ok(())
    }

    /// Steps into a container of the given `depth` (the outermost has 1), the
    /// scanner standing on its bracket. Says whether it has anything inside, and
    /// if so stands on the first key or item; if not, behind the container.
    #[inline]
    pub(crate) fn open(&mut self, close: u8, depth: usize) -> Result<bool, Flaw> {
        if depth > self.depth_max {
            return Err(Flaw::TooDeep);
        }
        self.at += 1;
        self.white_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    /// After a member or item: says whether another follows, and stands on it;
    /// if not, stands behind the container that `close` closes.
    #[inline]
    pub(crate) fn more(&mut self, close: u8) -> Result<bool, Flaw> {
        self.white_space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.white_space();
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if close == b'}' => Err(Flaw::CommaOrBrace),
            Some(_) => Err(Flaw::CommaOrBracket),
            None => Err(Flaw::End),
        }
    }

    /// Reads a key and its colon; stands on the value after.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<Quoted, Flaw> {
        match self.peek() {
            Some(b'"') => {}
            Some(_) => return Err(Flaw::Key),
            None => return Err(Flaw::End),
        }
        let start = self.at + 1;
        let escaped = self.string()?;
        let key = Quoted { start, end: self.at - 1, escaped };
        self.white_space();
        match self.peek() {
            Some(b':') => self.at += 1,
            Some(_) => return Err(Flaw::Colon),
            None => return Err(Flaw::End),
        }
        self.white_space();
        Ok(key)
    }

    /// Walks over one value of any kind, `depth` containers being open around it.
    pub(crate) fn value(&mut self, depth: usize) -> Result<(), Flaw> {
        // Scalars need none of the machinery below.
        if let Some(b'{' | b'[') = self.peek() { self.container(depth) } else { self.scalar() }
    }

    fn scalar(&mut self) -> Result<(), Flaw> {
        match self.peek() {
            Some(b'"') => self.string().map(|_escaped| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(_) => Err(Flaw::Value),
            None => Err(Flaw::End),
        }
    }

    fn container(&mut self, depth_around: usize) -> Result<(), Flaw> {
        let mut nesting = Nesting::new();
        loop {
            // A value is due.
            let filled = match self.peek() {
                Some(b'{') => {
                    let filled = self.open(b'}', depth_around + nesting.depth + 1)?;
                    if filled {
                        nesting.push(true);
                        self.key()?;
                    }
                    filled
                }
                Some(b'[') => {
                    let filled = self.open(b']', depth_around + nesting.depth + 1)?;
                    if filled {
                        nesting.push(false);
                    }
                    filled
                }
                _ => {
                    self.scalar()?;
                    false
                }
            };
            if filled {
                continue;
            }
            // A value is done: on to the next one, however many containers end here.
            loop {
                if nesting.depth == 0 {
                    return Ok(());
                }
                if nesting.in_object() {
                    if self.more(b'}')? {
                        self.key()?;
                        break;
                    }
                } else if self.more(b']')? {
                    break;
                }
                nesting.pop();
            }
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Flaw> {
        for &byte in word {
            match self.peek() {
                Some(found) if found == byte => self.at += 1,
                Some(_) => return Err(Flaw::Literal),
                None => return Err(Flaw::End),
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Flaw> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if let Some(b'0'..=b'9') = self.peek() {
                return Err(Flaw::LeadingZero);
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), Flaw> {
        match self.peek() {
            Some(b'0'..=b'9') => {}
            Some(_) => return Err(Flaw::Number),
            None => return Err(Flaw::End),
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    /// Walks over a string, standing on its opening quote. Says whether it has escapes.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<bool, Flaw> {
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at = plain_end(self.text, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(0x80..) => {
                    self.beyond_ascii = true;
                    while let Some(0x80..) = self.peek() {
                        self.at += 1;
                    }
                }
                Some(_) => return Err(Flaw::Control),
                None => return Err(Flaw::End),
            }
        }
    }

    #[cold]
    fn escape(&mut self) -> Result<(), Flaw> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                let start = self.at - 2;
                let unit = self.hex_digits()?;
                if self.whole_pairs_only && (0xD800..0xE000).contains(&unit) {
                    self.second_half(start, unit)?;
                }
                Ok(())
            }
            Some(_) => Err(Flaw::Escape),
            None => Err(Flaw::End),
        }
    }

    /// After a surrogate that began at `start`: the other half must follow.
    fn second_half(&mut self, start: usize, first: u16) -> Result<(), Flaw> {
        let lone = first >= 0xDC00;
        let rest = &self.text[self.at..];
        if !lone && (rest.is_empty() || rest == b"\\") {
            self.at = self.text.len();
            return Err(Flaw::End);
        }
        if lone || !rest.starts_with(b"\\u") {
            self.at = start;
            return Err(Flaw::Surrogate);
        }
        self.at += 2;
        if !(0xDC00..0xE000).contains(&self.hex_digits()?) {
            self.at = start;
            return Err(Flaw::Surrogate);
        }
        Ok(())
    }

    fn hex_digits(&mut self) -> Result<u16, Flaw> {
        let rest = &self.text[self.at..];
        if let Some(unit) = rest.first_chunk().and_then(hex4) {
            self.at += 4;
            return Ok(unit);
        }
        let good = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        self.at += good;
        Err(if good == rest.len() { Flaw::End } else { Flaw::HexDigit })
    }
}

/// Bytes looked at before a string counts as long: beyond this, the set-up of
/// `memchr` pays for itself.
const LONG_STRING_BYTES: usize = 256;
const BLOCK_BYTES: usize = 32;

/// From `at` on, the first byte of a string that needs a look: its end, an
/// escape, a control character or one beyond ASCII. The length of the text when
/// there is none.
#[inline]
fn plain_end(text: &[u8], mut at: usize) -> usize {
    // Keys and short values end within sixteen bytes.
    for _ in 0..2 {
        match text[at..].first_chunk::<8>() {
            Some(word) => match first_special(*word) {
                Some(offset) => return at + offset,
                None => at += 8,
            },
            None => return plain_end_bytewise(text, at),
        }
    }
    plain_end_long(text, at)
}

fn plain_end_long(text: &[u8], mut at: usize) -> usize {
    let long_at = at + LONG_STRING_BYTES;
    while let Some(block) = text[at..].first_chunk::<BLOCK_BYTES>() {
        if !block_is_plain(block) {
            break;
        }
        at += BLOCK_BYTES;
        if at >= long_at {
            return plain_end_very_long(text, at);
        }
    }
    while let Some(word) = text[at..].first_chunk::<8>() {
        match first_special(*word) {
            Some(offset) => return at + offset,
            None => at += 8,
        }
    }
    plain_end_bytewise(text, at)
}

/// The same for what is probably code, a trace or a blob.
fn plain_end_very_long(text: &[u8], at: usize) -> usize {
    let end = memchr2(b'"', b'\\', &text[at..]).map_or(text.len(), |offset| at + offset);
    let mut at = at;
    // `memchr2` knows nothing of control characters; look for them up to its find.
    while let Some(block) = text[at..end].first_chunk::<128>() {
        if block.iter().fold(false, |found, &byte| found | ((byte as i8) < 0x20)) {
            break;
        }
        at += 128;
    }
    plain_end_bytewise(text, at)
}

fn plain_end_bytewise(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|&byte| is_special(byte)).map_or(text.len(), |offset| at + offset)
}

/// As a signed byte, what is beyond ASCII is negative: one comparison finds it
/// together with the control characters.
#[inline]
const fn is_special(byte: u8) -> bool {
    (byte as i8) < 0x20 || byte == b'"' || byte == b'\\'
}

#[inline]
fn block_is_plain(block: &[u8; BLOCK_BYTES]) -> bool {
    !block.iter().fold(false, |found, &byte| found | is_special(byte))
}

/// The offset of the first special byte of eight.
#[inline]
fn first_special(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    // Subtracting borrows into the high bit of each byte that was too small.
    // A borrow may run on into the bytes above, but never below the first find.
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let found = quote.wrapping_sub(ONES)
        | backslash.wrapping_sub(ONES)
        | word.wrapping_sub(ONES * 0x20)
        | word;
    let found = found & HIGHS;
    (found != 0).then(|| (found.trailing_zeros() / 8) as usize)
}

/// The kinds of the open containers: one bit each, the innermost lowest.
struct Nesting {
    top: u64,
    /// Full words below `top`; allocates only beyond [`Self::WORD_BITS`].
    below: Vec<u64>,
    depth: usize,
}

impl Nesting {
    const WORD_BITS: usize = u64::BITS as usize;

    const fn new() -> Self {
        Self { top: 0, below: Vec::new(), depth: 0 }
    }

    #[inline]
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(Self::WORD_BITS) {
            self.below.push(self.top);
        }
        self.top = self.top << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.top >>= 1;
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(Self::WORD_BITS) {
            self.top = self.below.pop().expect("a word was kept for each 64 levels");
        }
    }

    #[inline]
    const fn in_object(&self) -> bool {
        self.top & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_end(text: &[u8]) -> usize {
        text.iter().position(|&byte| is_special(byte)).unwrap_or(text.len())
    }

    /// Every special byte at every place of strings of every length around the block sizes.
    #[test]
    fn finds_the_first_special_byte_wherever_it_stands() {
        for length in (0..140).chain([255, 256, 271, 272, 273, 300, 400, 401, 527, 528, 700]) {
            let plain = vec![b'f'; length];
            assert_eq!(plain_end(&plain, 0), length, "length {length}");
            for place in 0..length {
                for special in [b'"', b'\\', 0, 0x1f, b'\n', 0x80, 0xff] {
                    let mut text = plain.clone();
                    text[place] = special;
                    assert_eq!(plain_end(&text, 0), place, "length {length} byte {special:#x}");
                }
            }
        }
    }

    #[test]
    fn every_byte_value_is_judged_alike_by_the_quick_and_the_slow_way() {
        for byte in 0..=255_u8 {
            for before in [b' ', b'!', b'#', b'[', b']', 0x7f] {
                for place in 0..8 {
                    let mut word = [before; 8];
                    word[place] = byte;
                    let expected = Some(slow_end(&word)).filter(|&end| end < 8);
                    assert_eq!(first_special(word), expected, "{word:?}");
                    let mut block = [before; BLOCK_BYTES];
                    block[place] = byte;
                    assert_eq!(block_is_plain(&block), !is_special(byte), "{byte:#x}");
                }
            }
        }
    }

    #[test]
    fn nesting_remembers_kinds_beyond_one_word() {
        let mut nesting = Nesting::new();
        let kind = |level: usize| level.is_multiple_of(3) || level.is_multiple_of(7);
        for level in 0..1000 {
            nesting.push(kind(level));
        }
        for level in (0..1000).rev() {
            assert_eq!(nesting.in_object(), kind(level), "level {level}");
            nesting.pop();
        }
        assert_eq!(nesting.depth, 0);
    }
}
