//! The key of an answer: everything that a call means, as bytes that mean nothing else.
//!
//! Chain, method, salt, pin and parameters are written one behind the other, each value
//! with a tag and, where its end is not plain, its length, so that no two documents can
//! run into the same bytes (`["a","b"]` and `["a,b"]`, `[[]]` and `[[],[]]`, `1` and
//! `"1"`). Keys are compared whole; hashes only find them.
//!
//! Equal keys, because the spelling cannot change the meaning: white space, the order of an
//! object's members, escapes (`"\u0061"` and `"a"`), and the case of hex digits in a value
//! that is `0x` and hex digits only, or in a member's name that is an address or a word of
//! 32 bytes (state overrides). The order counts where a name is neither such data nor a
//! plain word, because two of those may mean one thing. Different keys, because the meaning may differ: numbers as written (`1`,
//! `1.0`, `1e0`), leading zeros (`"0x01"` and `"0x1"`), `"0X1"`, `null` and an absent
//! parameter, no parameters and `[]`, names in another case. That costs a miss at worst.
//!
//! Where the method's row says that a block reference sits, a mark stands for it and the
//! [`Pin`] says which block: `"latest"` that is sent as number 100 and `"0x64"` share a
//! key. A reference spelled as no library does (`100`, `"0x064"`) is kept beside its mark:
//! some upstreams refuse it, and a refusal must not be shared with well-formed calls.
//!
//! No key: an object with a member twice (upstreams take the first, the last, or none),
//! also when only the case differs or a name is not ASCII (Go folds both), and parameters
//! that are too deep or too large. One pass over the raw bytes; no document is built.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use memchr::memchr2;
use wellhead_eth::{BlockHash, BlockNumber, BlockParam, ChainId, MethodRow};
use wellhead_jsonrpc::raw;

use crate::pin::{Pin, Point};
use crate::reason::Reason;

/// Larger parameters are code to simulate, which is hardly ever sent twice, and would fill the
/// memory with keys.
pub const PARAMS_BYTES_MAX: usize = 64 * 1024;

/// The deepest parameters we know (`eth_simulateV1` with access lists) have nine levels.
pub const PARAMS_DEPTH_MAX: usize = 32;

/// Changes whenever the same call gets other bytes, so that stores outside the process
/// never mix two ways of writing.
const LAYOUT: u8 = 1;

/// What one call means to the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheRequest<'a> {
    /// The chain that is asked.
    pub chain: ChainId,
    /// What is known of the method.
    pub row: &'a MethodRow,
    /// The parameters as the client wrote them: raw JSON that `wellhead_jsonrpc::parse`
    /// accepted.
    pub params: Option<&'a [u8]>,
    /// The blocks they speak of, as they are sent: see [`Pin::of`].
    pub pin: Pin,
    /// The head of the view that the request pinned. Not part of the key: what hangs on the
    /// head ends with it, see [`crate::Validity::Head`].
    pub head: Option<BlockNumber>,
    /// Whatever else changes the answer: a directive, the name of the upstream that must
    /// give it, a tenant with its own view. Empty otherwise.
    pub salt: &'a [u8],
}

/// The key of an answer. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// The key of a call; fails with why it can have none.
    pub fn of(ask: &CacheRequest<'_>) -> Result<Self, Reason> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.out.clear();
            scratch.members.clear();
            header(&mut scratch.out, ask);
            write_params(scratch, ask)?;
            Ok(Self(Arc::from(&scratch.out[..])))
        })
    }

    /// For stores that other processes read: 32 bytes that no other key has, nor this one on a
    /// chain of another origin, such as one that was started anew under the same id.
    pub fn digest(&self, origin: &BlockHash) -> [u8; 32] {
        // Both ends are plain: an origin has 32 bytes.
        *blake3::Hasher::new().update(&origin.0).update(&self.0).finalize().as_bytes()
    }

    /// The chain that was asked.
    pub fn chain(&self) -> ChainId {
        // Written by `header`, which no key is without.
        let id = self.0.get(1..).and_then(<[u8]>::first_chunk);
        ChainId(id.map_or(0, |id| u64::from_le_bytes(*id)))
    }

    /// The bytes that are compared.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // No length: keys stand alone, and none is the beginning of another.
        state.write(&self.0);
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Room that is used again, so that a key costs one allocation: its own.
#[derive(Default)]
struct Scratch {
    out: Vec<u8>,
    members: Vec<ObjectMember>,
    moved: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A member of an object, where it stands in `out`.
#[derive(Clone, Copy)]
struct ObjectMember {
    start: usize,
    key_end: usize,
    end: usize,
}

/// What a value begins with, or an end.
mod tag {
    pub(super) const ABSENT: u8 = 0;
    pub(super) const NULL: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const FALSE: u8 = 3;
    /// Length, then the bytes as written.
    pub(super) const NUMBER: u8 = 4;
    /// Length, then the text, escapes undone.
    pub(super) const TEXT: u8 = 5;
    /// How many digits, then two of them a byte.
    pub(super) const HEX: u8 = 6;
    pub(super) const ARRAY: u8 = 7;
    pub(super) const ARRAY_END: u8 = 8;
    pub(super) const OBJECT: u8 = 9;
    pub(super) const OBJECT_END: u8 = 10;
    /// A block by tag or height: see the pin.
    pub(super) const PINNED: u8 = 11;
    /// A block by hash: see the pin.
    pub(super) const PINNED_HASH: u8 = 12;
    /// A block, see the pin, in an odd spelling: that of the value that follows.
    pub(super) const PINNED_ODDLY: u8 = 13;
}

fn header(out: &mut Vec<u8>, ask: &CacheRequest<'_>) {
    out.push(LAYOUT);
    out.extend(ask.chain.0.to_le_bytes());
    sized(out, ask.row.name.as_bytes());
    sized(out, ask.salt);
    match ask.pin {
        Pin::Fixed => out.push(0),
        Pin::Inclusion => out.push(1),
        Pin::Head => out.push(2),
        Pin::Block(block) => {
            out.push(3);
            point(out, block);
        }
        Pin::Range { from, to } => {
            out.push(4);
            point(out, from);
            point(out, to);
        }
    }
}

fn point(out: &mut Vec<u8>, point: Point) {
    match point {
        Point::Final(number) => {
            out.push(0);
            out.extend(number.0.to_le_bytes());
        }
        Point::Hash(hash) => {
            out.push(1);
            out.extend(hash.0);
        }
        Point::Height(number) => {
            out.push(2);
            out.extend(number.0.to_le_bytes());
        }
        Point::Tag(tag) => {
            out.push(3);
            sized(out, tag.word().as_bytes());
        }
    }
}

/// Length and bytes.
fn sized(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first; the high bit says that more follow.
fn length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

fn write_params(scratch: &mut Scratch, ask: &CacheRequest<'_>) -> Result<(), Reason> {
    let Some(params) = ask.params else {
        scratch.out.push(tag::ABSENT);
        return Ok(());
    };
    if params.len() > PARAMS_BYTES_MAX {
        return Err(Reason::ParamsTooLarge);
    }
    let mut walk = Walk { text: params, at: 0, scratch };
    walk.skip_space();
    match ask.pin {
        Pin::Fixed | Pin::Inclusion | Pin::Head => walk.value(0, Spot::Plain)?,
        Pin::Block(_) | Pin::Range { .. } => walk.positional(ask.row.block)?,
    }
    walk.skip_space();
    if walk.at == params.len() { Ok(()) } else { Err(Reason::OddParams) }
}

/// What a value may hold besides values.
#[derive(Clone, Copy)]
enum Spot {
    /// Nothing.
    Plain,
    /// It is a block reference, or an EIP-1898 object with one.
    Block,
    /// Its member of this name is a [`Spot::Block`].
    Holder(&'static str),
    /// It is a filter, whose members name blocks.
    Filter,
}

impl Spot {
    /// What the parameter at `index` is.
    fn of_param(block: BlockParam, index: usize) -> Self {
        let is = |place: u8| usize::from(place) == index;
        match block {
            BlockParam::At { index, .. } | BlockParam::Hash { index } if is(index) => Self::Block,
            BlockParam::AtField { index, field, .. } if is(index) => Self::Holder(field),
            BlockParam::Filter { index, .. } if is(index) => Self::Filter,
            BlockParam::Range { from, to } if is(from) || is(to) => Self::Block,
            _ => Self::Plain,
        }
    }

    /// What the member `key` of such an object is; `key` as it was written into a key.
    fn of_member(self, key: &[u8]) -> Self {
        let is =
            |name: &str| key.strip_prefix(&[tag::TEXT, name.len() as u8]) == Some(name.as_bytes());
        match self {
            Self::Plain => Self::Plain,
            Self::Block if is("blockNumber") || is("blockHash") => Self::Block,
            Self::Holder(field) if is(field) => Self::Block,
            Self::Filter if is("fromBlock") || is("toBlock") || is("blockHash") => Self::Block,
            Self::Block | Self::Holder(_) | Self::Filter => Self::Plain,
        }
    }
}

/// A walk over raw JSON, which writes what it meets.
struct Walk<'a, 'b> {
    text: &'a [u8],
    at: usize,
    scratch: &'b mut Scratch,
}

impl<'a> Walk<'a, '_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Reason> {
        if self.peek() != Some(byte) {
            return Err(Reason::OddParams);
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// The array of parameters, of which `block` says where a block is named.
    fn positional(&mut self, block: BlockParam) -> Result<(), Reason> {
        if self.peek() != Some(b'[') {
            return Err(Reason::OddParams);
        }
        self.array(0, |index| Spot::of_param(block, index))
    }

    /// Any value; `depth` containers are open around it.
    fn value(&mut self, depth: usize, spot: Spot) -> Result<(), Reason> {
        match self.peek() {
            Some(b'"') => self.string(spot),
            Some(b'{') => self.object(depth, spot),
            Some(b'[') => self.array(depth, |_| Spot::Plain),
            Some(b't') => self.literal(b"true", tag::TRUE),
            Some(b'f') => self.literal(b"false", tag::FALSE),
            Some(b'n') => self.literal(b"null", tag::NULL),
            Some(b'-' | b'0'..=b'9') => self.number(spot),
            _ => Err(Reason::OddParams),
        }
    }

    fn literal(&mut self, word: &[u8], tag: u8) -> Result<(), Reason> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Reason::OddParams);
        }
        self.at += word.len();
        self.scratch.out.push(tag);
        Ok(())
    }

    fn number(&mut self, spot: Spot) -> Result<(), Reason> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.peek() {
            self.at += 1;
        }
        if let Spot::Block = spot {
            self.scratch.out.push(tag::PINNED_ODDLY);
        }
        self.scratch.out.push(tag::NUMBER);
        sized(&mut self.scratch.out, &self.text[start..self.at]);
        Ok(())
    }

    /// A string that is a value.
    fn string(&mut self, spot: Spot) -> Result<(), Reason> {
        let start = self.scratch.out.len();
        let (inner, escaped) = self.inner()?;
        if let Spot::Block = spot {
            if !escaped && let Some(mark) = pinned(inner) {
                self.scratch.out.push(mark);
                return Ok(());
            }
            self.scratch.out.push(tag::PINNED_ODDLY);
        }
        if !escaped {
            if !hex(&mut self.scratch.out, inner) {
                self.scratch.out.push(tag::TEXT);
                sized(&mut self.scratch.out, inner);
            }
            return Ok(());
        }
        let text = unescaped(inner)?;
        if let Spot::Block = spot
            && let Some(mark) = pinned(text.as_bytes())
        {
            self.scratch.out.truncate(start);
            self.scratch.out.push(mark);
        } else if !hex(&mut self.scratch.out, text.as_bytes()) {
            self.scratch.out.push(tag::TEXT);
            sized(&mut self.scratch.out, text.as_bytes());
        }
        Ok(())
    }

    /// The inside of the string that begins here, and whether it has escapes.
    #[inline]
    fn inner(&mut self) -> Result<(&'a [u8], bool), Reason> {
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            let rest = self.text.get(at..).ok_or(Reason::OddParams)?;
            at += memchr2(b'"', b'\\', rest).ok_or(Reason::OddParams)?;
            if self.text[at] == b'"' {
                self.at = at + 1;
                return Ok((&self.text[start..at], escaped));
            }
            escaped = true;
            at += 2;
        }
    }

    fn array(&mut self, depth: usize, spot: impl Fn(usize) -> Spot) -> Result<(), Reason> {
        if depth == PARAMS_DEPTH_MAX {
            return Err(Reason::TooDeep);
        }
        self.expect(b'[')?;
        self.scratch.out.push(tag::ARRAY);
        let mut index = 0;
        while self.peek() != Some(b']') {
            if index > 0 {
                self.expect(b',')?;
            }
            self.value(depth + 1, spot(index))?;
            self.skip_space();
            index += 1;
        }
        self.at += 1;
        self.scratch.out.push(tag::ARRAY_END);
        Ok(())
    }

    fn object(&mut self, depth: usize, spot: Spot) -> Result<(), Reason> {
        if depth == PARAMS_DEPTH_MAX {
            return Err(Reason::TooDeep);
        }
        self.expect(b'{')?;
        self.scratch.out.push(tag::OBJECT);
        let first = self.scratch.members.len();
        while self.peek() != Some(b'}') {
            if self.scratch.members.len() > first {
                self.expect(b',')?;
            }
            let start = self.scratch.out.len();
            self.member_name()?;
            let key_end = self.scratch.out.len();
            self.skip_space();
            self.expect(b':')?;
            let spot = spot.of_member(&self.scratch.out[start..key_end]);
            self.value(depth + 1, spot)?;
            self.skip_space();
            let end = self.scratch.out.len();
            self.scratch.members.push(ObjectMember { start, key_end, end });
        }
        self.at += 1;
        self.sort_members(first)?;
        self.scratch.out.push(tag::OBJECT_END);
        Ok(())
    }

    fn member_name(&mut self) -> Result<(), Reason> {
        if self.peek() != Some(b'"') {
            return Err(Reason::OddParams);
        }
        let (inner, escaped) = self.inner()?;
        let text;
        let name = if escaped {
            text = unescaped(inner)?;
            text.as_bytes()
        } else {
            inner
        };
        if !name.is_ascii() {
            return Err(Reason::DuplicateKey);
        }
        // An address or a word; what is shorter may be a name that begins with 0x.
        let is_data = matches!(name.len(), 42 | 66);
        if !is_data || !hex(&mut self.scratch.out, name) {
            self.scratch.out.push(tag::TEXT);
            sized(&mut self.scratch.out, name);
        }
        Ok(())
    }

    /// Puts the members of the object that is being written into the order of their names,
    /// where all names are plain, and refuses names that an upstream may take for one another.
    fn sort_members(&mut self, first: usize) -> Result<(), Reason> {
        let Scratch { out, members, moved } = &mut *self.scratch;
        let written = &mut members[first..];
        let name = |member: &ObjectMember| &out[member.start..member.key_end];
        if !written.is_sorted_by(|one, next| order(name(one), name(next)).is_lt()) {
            let start = written[0].start;
            let orderly = written.iter().all(|member| is_plain(name(member)));
            written.sort_unstable_by(|one, other| order(name(one), name(other)));
            if written.windows(2).any(|pair| order(name(&pair[0]), name(&pair[1])).is_eq()) {
                return Err(Reason::DuplicateKey);
            }
            if orderly {
                moved.clear();
                for member in &*written {
                    moved.extend_from_slice(&out[member.start..member.end]);
                }
                out.truncate(start);
                out.extend_from_slice(moved);
            }
        }
        members.truncate(first);
        Ok(())
    }
}

/// Of two names as they are written into a key: by bytes, and by letters whatever their case.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    match (one, other) {
        ([tag::TEXT, one @ ..], [tag::TEXT, other @ ..]) => {
            one.iter().map(u8::to_ascii_lowercase).cmp(other.iter().map(u8::to_ascii_lowercase))
        }
        _ => one.cmp(other),
    }
}

/// Whether no upstream takes this name, as it is written into a key, for that of another member,
/// except by its case. An upstream may read `0x1`, `0x01` and `1`, or an address with and
/// without `0x`, as one number or address; which of two then counts depends on their order.
fn is_plain(name: &[u8]) -> bool {
    match name {
        [tag::HEX, ..] => true,
        [tag::TEXT, length, name @ ..] => {
            usize::from(*length) == name.len()
                && name.len() < BARE_ADDRESS_DIGITS
                && name.first().is_some_and(u8::is_ascii_alphabetic)
        }
        _ => false,
    }
}

const BARE_ADDRESS_DIGITS: usize = 40;

/// The mark for a block reference in its usual spelling.
fn pinned(text: &[u8]) -> Option<u8> {
    match text {
        [b'0', b'x', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit) => match digits {
            // A quantity has no leading zeros.
            [b'0'] => Some(tag::PINNED),
            [b'1'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..] if digits.len() <= 16 => {
                Some(tag::PINNED)
            }
            _ if digits.len() == 64 => Some(tag::PINNED_HASH),
            _ => None,
        },
        b"latest" | b"safe" | b"finalized" | b"earliest" => Some(tag::PINNED),
        _ => None,
    }
}

/// What a string with escapes says.
fn unescaped(inner: &[u8]) -> Result<String, Reason> {
    let mut quoted = Vec::with_capacity(inner.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(inner);
    quoted.push(b'"');
    let text = raw::string(&quoted).ok_or(Reason::OddParams)?;
    // Half of a surrogate pair reads as this one, and there are many halves.
    if text.contains(char::REPLACEMENT_CHARACTER) {
        return Err(Reason::OddParams);
    }
    Ok(text.into_owned())
}

/// Writes `0x` and hex digits as [`tag::HEX`]; `false`, and nothing is written, when the
/// text is anything else.
fn hex(out: &mut Vec<u8>, text: &[u8]) -> bool {
    let Some(digits) = text.strip_prefix(b"0x") else { return false };
    // `const_hex` leaves out a prefix, which what follows the first one is not.
    if digits.starts_with(b"0x") {
        return false;
    }
    let (pairs, last) = digits.split_at(digits.len() & !1);
    let start = out.len();
    out.push(tag::HEX);
    length(out, digits.len());
    let written = out.len();
    out.resize(written + digits.len().div_ceil(2), 0);
    let are_pairs = const_hex::decode_to_slice(pairs, &mut out[written..written + pairs.len() / 2]);
    let mut are_digits = are_pairs.is_ok();
    if let [last] = last {
        let value = char::from(*last).to_digit(16);
        are_digits &= value.is_some();
        out[written + pairs.len() / 2] = value.map_or(0, |value| (value as u8) << 4);
    }
    if !are_digits {
        out.truncate(start);
    }
    are_digits
}
