//! HTTP/2 frames, written and read by hand, so that an attack can send what no library would.

use tokio::io::{AsyncRead, AsyncReadExt};

/// What a client sends first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No peer here sends longer frames: the default of RFC 9113, section 4.2.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024;

/// Types of frames, RFC 9113, section 6.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Of DATA and HEADERS: nothing more comes on this stream.
pub const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
pub const ACK: u8 = 1;
/// Of HEADERS and CONTINUATION: the field block ends here.
pub const END_HEADERS: u8 = 4;

/// Settings, RFC 9113, section 6.5.2.
pub mod setting {
    #![allow(missing_docs, reason = "the names are those of the RFC")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// A frame as it goes over the wire.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("frames of attacks are small").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// SETTINGS with these values.
#[must_use]
pub fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in values {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(kind::SETTINGS, 0, 0, &payload)
}

/// WINDOW_UPDATE of a stream, or of the connection as stream 0.
#[must_use]
pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// RST_STREAM.
#[must_use]
pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// A field that is written out and not put into the table of the reader (RFC 7541, 6.2.2).
#[must_use]
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("short"));
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// The field block of a `POST /` with a JSON body.
#[must_use]
pub fn post_fields(authority: &str) -> Vec<u8> {
    // `:method POST`, `:scheme http` and `:path /` of the static table.
    let mut block = vec![0x83, 0x86, 0x84];
    block.extend(literal(":authority", authority));
    block.extend(literal("content-type", "application/json"));
    block
}

/// A whole request: HEADERS and DATA.
#[must_use]
pub fn post(stream: u32, authority: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = frame(kind::HEADERS, END_HEADERS, stream, &post_fields(authority));
    bytes.extend(frame(kind::DATA, END_STREAM, stream, body));
    bytes
}

/// A frame as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type, of [`kind`].
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// The next frame; `None` when the peer has ended, or sends what is no frame.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let length = usize::try_from(length).ok().filter(|length| *length <= PAYLOAD_BYTES_MAX)?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}
