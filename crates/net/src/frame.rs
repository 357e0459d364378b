//! The frames of HTTP/2 (RFC 9113, section 4) as bytes, and what their numbers mean.
//!
//! Nothing is decided here: see `mux`.

use std::fmt;

/// Payload of one frame that every peer takes; we never send a larger one.
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 10;

/// Nine bytes before every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) len: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: Flags,
    pub(crate) stream: u32,
}

impl FrameHead {
    pub(crate) const LEN: usize = 9;

    /// The head at the start of `bytes`, if it is all there.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3, ..] = *bytes else { return None };
        Some(Self {
            len: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind: Kind(kind),
            flags: Flags(flags),
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        })
    }

    fn put(self, out: &mut Vec<u8>) {
        let [_, l0, l1, l2] = (self.len as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        out.extend_from_slice(&[l0, l1, l2, self.kind.0, self.flags.0, s0, s1, s2, s3]);
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    pub(crate) const DATA: Self = Self(0);
    pub(crate) const HEADERS: Self = Self(1);
    pub(crate) const RST_STREAM: Self = Self(3);
    pub(crate) const SETTINGS: Self = Self(4);
    pub(crate) const PUSH_PROMISE: Self = Self(5);
    pub(crate) const PING: Self = Self(6);
    pub(crate) const GOAWAY: Self = Self(7);
    pub(crate) const WINDOW_UPDATE: Self = Self(8);
    pub(crate) const CONTINUATION: Self = Self(9);
}

/// What is special about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u8);

impl Flags {
    pub(crate) const END_STREAM: Self = Self(0x1);
    pub(crate) const ACK: Self = Self(0x1);
    pub(crate) const END_HEADERS: Self = Self(0x4);
    pub(crate) const PADDED: Self = Self(0x8);
    pub(crate) const PRIORITY: Self = Self(0x20);

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Why a stream or a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H2ErrorCode(pub(crate) u32);

impl H2ErrorCode {
    pub(crate) const NO_ERROR: Self = Self(0);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1);
    pub(crate) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(crate) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(crate) const REFUSED_STREAM: Self = Self(7);
    pub(crate) const CANCEL: Self = Self(8);
    pub(crate) const COMPRESSION_ERROR: Self = Self(9);
    pub(crate) const ENHANCE_YOUR_CALM: Self = Self(11);
}

impl fmt::Display for H2ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WORDS: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match WORDS.get(self.0 as usize) {
            Some(word) => f.write_str(word),
            None => write!(f, "reason {}", self.0),
        }
    }
}

pub(crate) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let len = settings.len() * 6;
    FrameHead { len, kind: Kind::SETTINGS, flags: Flags(0), stream: 0 }.put(out);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn put_settings_ack(out: &mut Vec<u8>) {
    FrameHead { len: 0, kind: Kind::SETTINGS, flags: Flags::ACK, stream: 0 }.put(out);
}

/// The settings in a payload whose size is a multiple of theirs.
pub(crate) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).map(|setting| {
        let id = u16::from_be_bytes([setting[0], setting[1]]);
        (id, u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
    })
}

pub(crate) fn put_window_update(out: &mut Vec<u8>, stream: u32, more: u32) {
    FrameHead { len: 4, kind: Kind::WINDOW_UPDATE, flags: Flags(0), stream }.put(out);
    out.extend_from_slice(&more.to_be_bytes());
}

/// Headers, whose block `put` appends; cut into frames where it is too long for one.
pub(crate) fn put_headers(
    out: &mut Vec<u8>,
    stream: u32,
    ends: bool,
    put: impl FnOnce(&mut Vec<u8>),
) {
    let ends = if ends { Flags::END_STREAM.0 } else { 0 };
    let flags = Flags(Flags::END_HEADERS.0 | ends);
    let at = out.len();
    FrameHead { len: 0, kind: Kind::HEADERS, flags, stream }.put(out);
    put(out);
    let len = out.len() - at - FrameHead::LEN;
    if len <= FRAME_BYTES_MAX {
        out[at..at + 3].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
        return;
    }
    let block = out.split_off(at + FrameHead::LEN);
    out.truncate(at);
    let parts = block.len().div_ceil(FRAME_BYTES_MAX);
    for (nth, part) in block.chunks(FRAME_BYTES_MAX).enumerate() {
        let (kind, first) = if nth == 0 { (Kind::HEADERS, ends) } else { (Kind::CONTINUATION, 0) };
        let last = if nth + 1 == parts { Flags::END_HEADERS.0 } else { 0 };
        FrameHead { len: part.len(), kind, flags: Flags(first | last), stream }.put(out);
        out.extend_from_slice(part);
    }
}

pub(crate) fn put_data(out: &mut Vec<u8>, stream: u32, data: &[u8], ends: bool) {
    let flags = if ends { Flags::END_STREAM } else { Flags(0) };
    FrameHead { len: data.len(), kind: Kind::DATA, flags, stream }.put(out);
    out.extend_from_slice(data);
}

pub(crate) fn put_reset(out: &mut Vec<u8>, stream: u32, reason: H2ErrorCode) {
    FrameHead { len: 4, kind: Kind::RST_STREAM, flags: Flags(0), stream }.put(out);
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Of a client: the last stream is the server's, of which there is none.
pub(crate) fn put_goaway(out: &mut Vec<u8>, reason: H2ErrorCode) {
    FrameHead { len: 8, kind: Kind::GOAWAY, flags: Flags(0), stream: 0 }.put(out);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&reason.0.to_be_bytes());
}

pub(crate) fn put_ping(out: &mut Vec<u8>, ack: bool, payload: &[u8; 8]) {
    let flags = if ack { Flags::ACK } else { Flags(0) };
    FrameHead { len: 8, kind: Kind::PING, flags, stream: 0 }.put(out);
    out.extend_from_slice(payload);
}
