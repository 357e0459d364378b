//! The scanner: walks over JSON text, proves it valid, builds nothing.
//!
//! It accepts exactly RFC 8259. Nothing recurses: the kinds of the open
//! containers are one bit each, so depth costs neither stack nor, up to
//! [`OpenContainers::WORD_BITS`], memory. It does not say what the text means: see
//! `parse` and `envelope`, which drive it key by key.
//!
//! Most bytes of Ethereum traffic are inside strings, mostly hex. They are
//! tested eight at a time, then in blocks that the compiler turns into vector
//! instructions, and handed to `memchr` when the string is long. UTF-8 is
//! checked once at the end, and only if a byte beyond ASCII was seen: outside
//! strings such bytes are never valid.

use std::cell::Cell;

use memchr::memchr2;

use crate::text::hex4;

/// What the scanner stumbled over; [`Text::flaw`] says where.
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

/// Reading has stopped at a [`Flaw`]; [`Text::flaw`] says which, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop;

/// Where reading goes on inside a container, or after it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ContainerStep {
    /// At the next key or item.
    More(usize),
    /// Behind the closing bracket.
    Done(usize),
}

/// A key, and where its value begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpan {
    /// Behind the opening quote.
    pub(crate) start: usize,
    /// At the closing quote.
    pub(crate) end: usize,
    pub(crate) value_at: usize,
}

/// A text to walk over. Positions are passed in and handed back, so that they
/// stay in registers; what is rarely needed is noted in cells on the side.
pub(crate) struct Text<'a> {
    bytes: &'a [u8],
    depth_max: usize,
    whole_pairs_only: bool,
    beyond_ascii: Cell<bool>,
    flaw: Cell<(usize, Flaw)>,
}

impl<'a> Text<'a> {
    /// The text of a client: half surrogate pairs are a flaw.
    pub(crate) const fn of_client(bytes: &'a [u8], depth_max: usize) -> Self {
        Self::new(bytes, depth_max, true)
    }

    /// The text of an upstream.
    pub(crate) const fn of_upstream(bytes: &'a [u8], depth_max: usize) -> Self {
        Self::new(bytes, depth_max, false)
    }

    const fn new(bytes: &'a [u8], depth_max: usize, whole_pairs_only: bool) -> Self {
        Self {
            bytes,
            depth_max,
            whole_pairs_only,
            beyond_ascii: Cell::new(false),
            flaw: Cell::new((0, Flaw::End)),
        }
    }

    /// The byte at `at`; `None` behind the end.
    #[inline]
    pub(crate) fn peek(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    #[inline]
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        &self.bytes[start..end]
    }

    #[inline]
    pub(crate) fn name(&self, key: KeySpan) -> &'a [u8] {
        self.slice(key.start, key.end)
    }

    /// After a [`Stop`]: the offset of the byte that does not fit, and why.
    pub(crate) const fn flaw(&self) -> (usize, Flaw) {
        self.flaw.get()
    }

    /// The text ends at `at`, or has something there that does not fit.
    #[cold]
    fn stop<T>(&self, at: usize, flaw: Flaw) -> Result<T, Stop> {
        let flaw = if at >= self.bytes.len() { Flaw::End } else { flaw };
        self.flaw.set((at, flaw));
        Err(Stop)
    }

    #[inline]
    pub(crate) fn skip_space(&self, mut at: usize) -> usize {
        // Nearly always there is none, and then one comparison tells.
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek(at) {
            at += 1;
        }
        at
    }

    /// Checks what can only be checked at the end: nothing follows, and the encoding.
    pub(crate) fn finish(&self, at: usize) -> Result<(), Stop> {
        let at = self.skip_space(at);
        if at < self.bytes.len() {
            return self.stop(at, Flaw::Trailing);
        }
        self.encoding(at)
    }

    /// Checks that the text up to `at`, all of it walked over, is UTF-8.
    pub(crate) fn encoding(&self, at: usize) -> Result<(), Stop> {
        if self.beyond_ascii.get()
            && let Err(error) = std::str::from_utf8(&self.bytes[..at])
        {
            return self.stop(error.valid_up_to(), Flaw::Encoding);
        }
        Ok(())
    }

    /// Steps into the container whose bracket is at `at`. The outermost has `depth` 1.
    #[inline]
    pub(crate) fn open(&self, at: usize, close: u8, depth: usize) -> Result<ContainerStep, Stop> {
        if depth > self.depth_max {
            return self.stop(at, Flaw::TooDeep);
        }
        let at = self.skip_space(at + 1);
        Ok(if self.peek(at) == Some(close) {
            ContainerStep::Done(at + 1)
        } else {
            ContainerStep::More(at)
        })
    }

    /// After a member or item that ended at `at`.
    #[inline]
    pub(crate) fn more(&self, at: usize, close: u8) -> Result<ContainerStep, Stop> {
        let at = self.skip_space(at);
        match self.peek(at) {
            Some(b',') => Ok(ContainerStep::More(self.skip_space(at + 1))),
            Some(byte) if byte == close => Ok(ContainerStep::Done(at + 1)),
            _ if close == b'}' => self.stop(at, Flaw::CommaOrBrace),
            _ => self.stop(at, Flaw::CommaOrBracket),
        }
    }

    /// Reads a key and its colon.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> Result<KeySpan, Stop> {
        if self.peek(at) != Some(b'"') {
            return self.stop(at, Flaw::Key);
        }
        let after = self.string(at)?;
        let colon = self.skip_space(after);
        if self.peek(colon) != Some(b':') {
            return self.stop(colon, Flaw::Colon);
        }
        Ok(KeySpan { start: at + 1, end: after - 1, value_at: self.skip_space(colon + 1) })
    }

    /// Walks over one value of any kind, `depth` containers being open around it.
    #[inline]
    pub(crate) fn value(&self, at: usize, depth: usize) -> Result<usize, Stop> {
        // Scalars need none of the machinery for containers.
        match self.peek(at) {
            Some(b'{' | b'[') => self.container(at, depth),
            _ => self.scalar(at),
        }
    }

    #[inline]
    fn scalar(&self, at: usize) -> Result<usize, Stop> {
        match self.peek(at) {
            Some(b'"') => self.string(at),
            Some(b'-' | b'0'..=b'9') => self.number(at),
            Some(b't') => self.literal(at, b"true"),
            Some(b'f') => self.literal(at, b"false"),
            Some(b'n') => self.literal(at, b"null"),
            _ => self.stop(at, Flaw::Value),
        }
    }

    fn container(&self, mut at: usize, depth_around: usize) -> Result<usize, Stop> {
        let mut nesting = OpenContainers::new();
        loop {
            // A value is due.
            let step = match self.peek(at) {
                Some(b'{') => {
                    let step = self.open(at, b'}', depth_around + nesting.depth + 1)?;
                    if let ContainerStep::More(first) = step {
                        nesting.push(true);
                        at = self.key(first)?.value_at;
                        continue;
                    }
                    step
                }
                Some(b'[') => {
                    let step = self.open(at, b']', depth_around + nesting.depth + 1)?;
                    if let ContainerStep::More(first) = step {
                        nesting.push(false);
                        at = first;
                        continue;
                    }
                    step
                }
                _ => ContainerStep::Done(self.scalar(at)?),
            };
            let (ContainerStep::Done(mut end) | ContainerStep::More(mut end)) = step;
            // A value is done: on to the next one, however many containers end here.
            at = loop {
                if nesting.depth == 0 {
                    return Ok(end);
                }
                if nesting.in_object() {
                    match self.more(end, b'}')? {
                        ContainerStep::More(key) => break self.key(key)?.value_at,
                        ContainerStep::Done(after) => end = after,
                    }
                } else {
                    match self.more(end, b']')? {
                        ContainerStep::More(item) => break item,
                        ContainerStep::Done(after) => end = after,
                    }
                }
                nesting.pop();
            };
        }
    }

    fn literal(&self, at: usize, word: &[u8]) -> Result<usize, Stop> {
        let rest = &self.bytes[at..];
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
        let good = rest.iter().zip(word).take_while(|(found, due)| found == due).count();
        self.stop(at + good, Flaw::Literal)
    }

    fn number(&self, mut at: usize) -> Result<usize, Stop> {
        if self.peek(at) == Some(b'-') {
            at += 1;
        }
        if self.peek(at) == Some(b'0') {
            at += 1;
            if let Some(b'0'..=b'9') = self.peek(at) {
                return self.stop(at, Flaw::LeadingZero);
            }
        } else {
            at = self.digits(at)?;
        }
        if self.peek(at) == Some(b'.') {
            at = self.digits(at + 1)?;
        }
        if let Some(b'e' | b'E') = self.peek(at) {
            let signed = matches!(self.peek(at + 1), Some(b'+' | b'-'));
            at = self.digits(at + 1 + usize::from(signed))?;
        }
        Ok(at)
    }

    /// One digit or more.
    #[inline]
    fn digits(&self, start: usize) -> Result<usize, Stop> {
        let mut at = start;
        while let Some(b'0'..=b'9') = self.peek(at) {
            at += 1;
        }
        if at == start { self.stop(at, Flaw::Number) } else { Ok(at) }
    }

    /// Walks over the string whose opening quote is at `at`.
    #[inline]
    pub(crate) fn string(&self, at: usize) -> Result<usize, Stop> {
        let end = plain_end::<true>(self.bytes, at + 1);
        if self.peek(end) == Some(b'"') { Ok(end + 1) } else { self.odd_string(end) }
    }

    /// Walks on from inside a string, at the first byte that needs a look.
    #[cold]
    fn odd_string(&self, mut at: usize) -> Result<usize, Stop> {
        loop {
            match self.peek(at) {
                Some(b'"') => return Ok(at + 1),
                Some(b'\\') => at = self.escape(at)?,
                Some(0x80..) => {
                    // Such letters usually come in runs: from here to the end of the run
                    // they are plain as well.
                    self.beyond_ascii.set(true);
                    at = plain_end::<false>(self.bytes, at);
                    continue;
                }
                _ => return self.stop(at, Flaw::Control),
            }
            at = plain_end::<true>(self.bytes, at);
        }
    }

    fn escape(&self, at: usize) -> Result<usize, Stop> {
        match self.peek(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => {
                let unit = self.hex_digits(at + 2)?;
                if self.whole_pairs_only && (0xD800..0xE000).contains(&unit) {
                    return self.second_half(at, unit);
                }
                Ok(at + 6)
            }
            _ => self.stop(at + 1, Flaw::Escape),
        }
    }

    /// The escape at `at` is a surrogate: it must be a first half, with the other following.
    fn second_half(&self, at: usize, first: u16) -> Result<usize, Stop> {
        let rest = &self.bytes[at + 6..];
        if first < 0xDC00 && (rest.is_empty() || rest == b"\\") {
            return self.stop(self.bytes.len(), Flaw::End);
        }
        if first >= 0xDC00 || !rest.starts_with(b"\\u") {
            return self.stop(at, Flaw::Surrogate);
        }
        match self.hex_digits(at + 8)? {
            0xDC00..0xE000 => Ok(at + 12),
            _ => self.stop(at, Flaw::Surrogate),
        }
    }

    fn hex_digits(&self, at: usize) -> Result<u16, Stop> {
        let rest = &self.bytes[at..];
        if let Some(unit) = rest.first_chunk().and_then(hex4) {
            return Ok(unit);
        }
        let good = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        self.stop(at + good, Flaw::HexDigit)
    }
}

/// Bytes looked at before a string counts as long: beyond this, the set-up of
/// `memchr` pays for itself.
const LONG_STRING_BYTES: usize = 256;
const BLOCK_BYTES: usize = 32;

/// From `at` on, the first byte of a string that needs a look: its end, an
/// escape, a control character or, where only `ASCII` is plain, one beyond it.
/// The length of the text when there is none.
#[inline]
fn plain_end<const ASCII: bool>(text: &[u8], mut at: usize) -> usize {
    // Keys and short values end within sixteen bytes.
    for _ in 0..2 {
        match text[at..].first_chunk() {
            Some(word) => match first_special::<ASCII>(*word) {
                Some(offset) => return at + offset,
                None => at += 8,
            },
            None => return plain_end_bytewise::<ASCII>(text, at),
        }
    }
    plain_end_long::<ASCII>(text, at)
}

fn plain_end_long<const ASCII: bool>(text: &[u8], mut at: usize) -> usize {
    let long_at = at + LONG_STRING_BYTES;
    while let Some(block) = text[at..].first_chunk() {
        if !block_is_plain::<ASCII>(block) {
            break;
        }
        at += BLOCK_BYTES;
        if at >= long_at {
            return plain_end_very_long::<ASCII>(text, at);
        }
    }
    while let Some(word) = text[at..].first_chunk() {
        match first_special::<ASCII>(*word) {
            Some(offset) => return at + offset,
            None => at += 8,
        }
    }
    plain_end_bytewise::<ASCII>(text, at)
}

/// As [`plain_end_long`], for what is probably code, a trace or a blob.
fn plain_end_very_long<const ASCII: bool>(text: &[u8], mut at: usize) -> usize {
    let end = memchr2(b'"', b'\\', &text[at..]).map_or(text.len(), |offset| at + offset);
    // `memchr2` knows nothing of the other kinds; look for them up to its find.
    while let Some(block) = text[at..end].first_chunk::<128>() {
        if block.iter().fold(false, |found, &byte| found | is_control::<ASCII>(byte)) {
            break;
        }
        at += 128;
    }
    plain_end_bytewise::<ASCII>(text, at)
}

fn plain_end_bytewise<const ASCII: bool>(text: &[u8], at: usize) -> usize {
    let special = text[at..].iter().position(|&byte| is_special::<ASCII>(byte));
    special.map_or(text.len(), |offset| at + offset)
}

/// As a signed byte, what is beyond ASCII is negative: one comparison finds it
/// together with the control characters.
#[inline]
const fn is_control<const ASCII: bool>(byte: u8) -> bool {
    if ASCII { (byte as i8) < 0x20 } else { byte < 0x20 }
}

#[inline]
const fn is_special<const ASCII: bool>(byte: u8) -> bool {
    is_control::<ASCII>(byte) || byte == b'"' || byte == b'\\'
}

#[inline]
fn block_is_plain<const ASCII: bool>(block: &[u8; BLOCK_BYTES]) -> bool {
    !block.iter().fold(false, |found, &byte| found | is_special::<ASCII>(byte))
}

/// The offset of the first special byte of eight.
#[inline]
fn first_special<const ASCII: bool>(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    // Subtracting borrows into the high bit of each byte that was too small. A
    // borrow may run on into the bytes above, but never below the first find.
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let below = quote.wrapping_sub(ONES)
        | backslash.wrapping_sub(ONES)
        | word.wrapping_sub(ONES * b' ' as u64);
    // Bytes beyond ASCII have that bit from the start.
    let found = if ASCII { below | word } else { below & !word } & HIGHS;
    (found != 0).then(|| (found.trailing_zeros() / 8) as usize)
}

/// The kinds of the open containers: one bit each, the innermost lowest.
struct OpenContainers {
    top: u64,
    /// Full words below `top`; allocates only beyond [`Self::WORD_BITS`].
    below: Vec<u64>,
    depth: usize,
}

impl OpenContainers {
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

    /// Every special byte at every place of strings of every length around the block sizes.
    fn check_places<const ASCII: bool>(specials: &[u8]) {
        for length in (0..140).chain([255, 256, 271, 272, 273, 300, 400, 401, 527, 528, 700]) {
            let plain = vec![b'f'; length];
            assert_eq!(plain_end::<ASCII>(&plain, 0), length, "length {length}");
            for place in 0..length {
                for &special in specials {
                    let mut text = plain.clone();
                    text[place] = special;
                    let end = plain_end::<ASCII>(&text, 0);
                    assert_eq!(end, place, "length {length} byte {special:#x}");
                }
            }
        }
    }

    #[test]
    fn finds_the_first_special_byte_wherever_it_stands() {
        check_places::<true>(&[b'"', b'\\', 0, 0x1f, b'\n', 0x80, 0xff]);
        check_places::<false>(&[b'"', b'\\', 0, 0x1f]);
    }

    fn check_bytes<const ASCII: bool>() {
        for byte in 0..=255_u8 {
            for around in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                for place in 0..8 {
                    let mut word = [around; 8];
                    word[place] = byte;
                    let slow = word.iter().position(|&byte| is_special::<ASCII>(byte));
                    assert_eq!(first_special::<ASCII>(word), slow, "{word:x?}");
                    let mut block = [b'0'; BLOCK_BYTES];
                    block[place * 4] = byte;
                    let special = is_special::<ASCII>(byte);
                    assert_eq!(block_is_plain::<ASCII>(&block), !special, "{byte:#x}");
                }
            }
        }
    }

    #[test]
    fn the_quick_and_the_slow_way_agree_on_every_byte() {
        check_bytes::<true>();
        check_bytes::<false>();
    }

    #[test]
    fn nesting_remembers_kinds_beyond_one_word() {
        let mut nesting = OpenContainers::new();
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
