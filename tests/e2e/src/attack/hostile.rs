//! What an upstream does that was well-behaved until it was verified.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

use super::upstream::Body;

/// No endless answer is longer: wellhead has to give it up long before.
const ENDLESS_BYTES_MAX: usize = 1024 * 1024 * 1024;
const PIECE: [u8; 16 * 1024] = [b'a'; 16 * 1024];
/// What a bomb inflates to.
const BOMB_BYTES: usize = 512 * 1024 * 1024;
/// Brackets of an answer that is nothing but those.
const BRACKETS: usize = 4 * 1024 * 1024;

/// What the upstream does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What is right.
    Well,
    /// As [`Mode::Well`]; wide searches are refused with "max 1000 blocks".
    MaxBlocks,
    /// As [`Mode::Well`]; each `eth_call` is refused as "rate limit exceeded".
    RefuseOneKind,
    /// Each call: 429 with a `Retry-After` of ten years.
    RetryAfterYears,
    /// As [`Mode::RetryAfterYears`], for `eth_call` alone.
    RetryAfterOneKind,
    /// A body without end.
    EndlessBody,
    /// A head without end.
    EndlessHead,
    /// Half of the body, then the connection closes.
    Cut,
    /// The answer under another id.
    WrongId,
    /// Each answer twice, so that the second may be taken for the next call's.
    Twice,
    /// No HTTP at all.
    Garbage,
    /// 2 MB of gzip that inflate to half a gigabyte.
    GzipBomb,
    /// Half a gigabyte in zstd, which is some hundred bytes.
    ZstdBomb,
    /// A result of four million brackets.
    Nested,
    /// A byte a second.
    Drip,
    /// Each `eth_call`: an error that quotes the head of the request.
    EchoHead,
    /// Takes calls and says nothing.
    Silent,
    /// Over HTTP/2, see [`Http2Fault`].
    Http2(Http2Fault),
}

/// How a server of HTTP/2 misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub enum Http2Fault {
    /// Each stream is reset as an internal error.
    ResetEach,
    /// Each stream is refused.
    RefuseEach,
    /// GOAWAY with each request, none of which was processed.
    GoAwayEach,
    /// SETTINGS without end.
    SettingsFlood,
    /// PING without end.
    PingFlood,
    /// A field block that does not end.
    ContinuationFlood,
    /// Ten bytes that stand for a gigabyte of fields.
    HpackBomb,
    /// The table of fields is resized to and fro.
    TableSizes,
    /// No stream may send anything.
    WindowZero,
    /// The window grows beyond what a number holds.
    WindowOverflow,
    /// Data beyond the window of the client.
    DataBeyondWindow,
    /// Data on a stream that was closed.
    DataOnClosed,
    /// Empty DATA without end.
    EmptyData,
    /// PUSH_PROMISE, which the client has forbidden.
    PushPromise,
    /// No stream may be opened any more.
    NoStreams,
    /// A frame of a megabyte.
    LongFrame,
    /// Bytes that are no frames.
    Garbage,
    /// Interim responses (103) without end.
    Interim,
    /// Fields that HTTP/2 forbids.
    BadFields,
    /// Nothing is answered.
    Silent,
}

wellhead_word::variants!(Http2Fault);

impl Mode {
    /// What an upstream of HTTP/1.1 does to each call.
    pub const HTTP1: [Self; 12] = [
        Self::RetryAfterYears,
        Self::EndlessBody,
        Self::EndlessHead,
        Self::Cut,
        Self::WrongId,
        Self::Twice,
        Self::Garbage,
        Self::GzipBomb,
        Self::ZstdBomb,
        Self::Nested,
        Self::Drip,
        Self::Silent,
    ];

    /// Whether a call over HTTP/1.1 is not answered as it should be.
    pub(crate) fn is_hostile_http1(self, body: &[u8]) -> bool {
        match self {
            Self::Well | Self::MaxBlocks | Self::RefuseOneKind | Self::Http2(_) => false,
            Self::EchoHead | Self::RetryAfterOneKind => {
                let method = b"\"eth_call\"";
                body.windows(method.len()).any(|window| window == method)
            }
            Self::RetryAfterYears
            | Self::EndlessBody
            | Self::EndlessHead
            | Self::Cut
            | Self::WrongId
            | Self::Twice
            | Self::Garbage
            | Self::GzipBomb
            | Self::ZstdBomb
            | Self::Nested
            | Self::Drip
            | Self::Silent => true,
        }
    }
}

/// Answers over HTTP/1.1; whether the connection goes on.
pub(crate) async fn act(mode: Mode, stream: &mut TcpStream, head: &str, answer: Body) -> bool {
    let text = answer.text();
    match mode {
        Mode::Well | Mode::MaxBlocks | Mode::RefuseOneKind | Mode::Http2(_) => false,
        Mode::RetryAfterYears | Mode::RetryAfterOneKind => {
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 315360000\r\n\
                        content-length: 0\r\n\r\n";
            stream.write_all(head.as_bytes()).await.is_ok()
        }
        Mode::EndlessBody => {
            let start = r#"{"jsonrpc":"2.0","id":1,"result":"0x"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
            endless(stream, &format!("{head}{start}"), &PIECE).await;
            false
        }
        Mode::EndlessHead => {
            endless(stream, "HTTP/1.1 200 OK\r\n", b"x-endless: aaaaaaaaaaaaaaaaaaaaaa\r\n").await;
            false
        }
        Mode::Cut => {
            let whole = page(&text);
            let half = whole.len() - text.len() / 2;
            let _gone = stream.write_all(&whole.as_bytes()[..half]).await;
            false
        }
        Mode::WrongId => {
            let text = text.replacen("\"id\":", "\"id\":7", 1);
            stream.write_all(page(&text).as_bytes()).await.is_ok()
        }
        Mode::Twice => {
            let twice = page(&text).repeat(2);
            stream.write_all(twice.as_bytes()).await.is_ok()
        }
        Mode::Garbage => {
            let _gone = stream.write_all(&[0, 0xff, b'\n', 0x80, b'H', b'\r', 0, b' ']).await;
            false
        }
        Mode::GzipBomb => send(stream, "gzip", &gzip_bomb(BOMB_BYTES)).await,
        Mode::ZstdBomb => send(stream, "zstd", &zstd_bomb(BOMB_BYTES)).await,
        Mode::Nested => {
            let result = format!("{}{}", "[".repeat(BRACKETS), "]".repeat(BRACKETS));
            let id = id_of(&text).unwrap_or("1");
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            stream.write_all(page(&text).as_bytes()).await.is_ok()
        }
        Mode::Drip => drip(stream, page(&text).as_bytes()).await,
        Mode::EchoHead => {
            stream.write_all(page(&revert(id_of(&text), head)).as_bytes()).await.is_ok()
        }
        Mode::Silent => {
            std::future::pending::<()>().await;
            false
        }
    }
}

/// The id of a reply, raw.
fn id_of(reply: &str) -> Option<&str> {
    reply.split("\"id\":").nth(1)?.split([',', '}']).next()
}

/// A revert whose message is the head of the request.
fn revert(id: Option<&str>, head: &str) -> String {
    let id: serde_json::Value = id.and_then(|id| serde_json::from_str(id).ok()).unwrap_or_default();
    let error = serde_json::json!({
        "code": 3,
        "message": format!("execution reverted: you sent {head}"),
        "data": format!("0x{}", "00".repeat(32)),
    });
    serde_json::json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}

/// Writes a byte a second; whether the connection goes on.
async fn drip(stream: &mut TcpStream, page: &[u8]) -> bool {
    for byte in page {
        if stream.write_all(&[*byte]).await.is_err() {
            return false;
        }
        sleep(Duration::from_secs(1)).await;
    }
    true
}

fn page(text: &str) -> String {
    let length = text.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}"
    )
}

async fn send(stream: &mut TcpStream, encoding: &str, body: &[u8]) -> bool {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {encoding}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(body).await.is_ok()
}

async fn endless(stream: &mut TcpStream, start: &str, piece: &[u8]) {
    let mut sent = 0;
    let mut written = stream.write_all(start.as_bytes()).await;
    while written.is_ok() && sent < ENDLESS_BYTES_MAX {
        written = stream.write_all(piece).await;
        sent += piece.len();
    }
}

/// gzip of as many zeros, in stored time: one block of the fixed code, each symbol of which
/// repeats 258 bytes, 159 times smaller than what comes out.
#[must_use]
pub fn gzip_bomb(bytes: usize) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut bits = Bits::default();
    // The last block, of the fixed code; the literal `a`.
    bits.put(0b011, 3, &mut out);
    bits.put_code(0b1001_0001, 8, &mut out);
    for _ in 0..bytes / 258 {
        // Length 258 (285: 11000101), distance 1 (00000).
        bits.put_code(0b1100_0101, 8, &mut out);
        bits.put_code(0, 5, &mut out);
    }
    bits.put_code(0, 7, &mut out);
    bits.flush(&mut out);
    // A checksum that is never reached.
    out.extend_from_slice(&[0; 8]);
    out
}

/// zstd of as many bytes: blocks that say how often one byte is repeated (RFC 8878, 3.1.1.2).
#[must_use]
pub fn zstd_bomb(bytes: usize) -> Vec<u8> {
    const BLOCK: usize = 128 * 1024;
    // Magic; no single segment, no checksum; a window of 128 KiB.
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    let blocks = (bytes / BLOCK).max(1);
    for block in 0..blocks {
        let last = u32::from(block == blocks - 1);
        let head = (u32::try_from(BLOCK).unwrap_or_default() << 3) | (1 << 1) | last;
        out.extend_from_slice(&head.to_le_bytes()[..3]);
        out.push(b'a');
    }
    out
}

/// Bits of deflate: the first goes to the lowest place.
#[derive(Default)]
struct Bits {
    held: u32,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32, out: &mut Vec<u8>) {
        self.held |= value << self.count;
        self.count += count;
        while self.count >= 8 {
            out.push(self.held.to_le_bytes()[0]);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// Codes of Huffman go with their highest bit first.
    fn put_code(&mut self, code: u32, count: u32, out: &mut Vec<u8>) {
        self.put(code.reverse_bits() >> (32 - count), count, out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if self.count > 0 {
            out.push(self.held.to_le_bytes()[0]);
        }
    }
}
