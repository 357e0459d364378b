//! From response frames to one complete, bounded body with its encoding undone.
//!
//! The common case, one frame without an encoding, is handed through without a
//! copy. Also reads `Retry-After`, the one header that callers decide by.

use std::future::poll_fn;
use std::io::{self, Write};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::http::HeaderMap;
use ::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, DATE, RETRY_AFTER};
use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

/// Memory taken on the word of a `content-length` alone; beyond it the buffer
/// grows with what really arrives.
const TRUSTED_LENGTH_MAX: usize = 8 << 20;
/// Compressed bytes undone at a time: at deflate's best ratio of 1032, 4 MiB of output.
const INFLATE_STEP: usize = 4 << 10;
/// Other tasks get a turn after this much inflated output.
const INFLATE_YIELD: usize = 1 << 20;
/// Longest `Retry-After` believed; a larger one is a broken server.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// A body that arrives piece by piece.
pub(crate) trait Chunks {
    /// The next piece of data; `None` after the last byte of a complete body.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TransportError>>>;
}

async fn next(chunks: &mut impl Chunks) -> Option<Result<Bytes, TransportError>> {
    poll_fn(|cx| chunks.poll_chunk(cx)).await
}

fn too_large(max: usize) -> TransportError {
    let detail = format!("more than {max} bytes");
    TransportError::new(TransportErrorKind::TooLarge, Sent::Maybe, detail)
}

fn undecodable(detail: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Protocol, Sent::Maybe, detail)
}

/// Reads the whole body, at most `max` bytes of it, before and after decoding.
pub(crate) async fn collect(
    chunks: &mut impl Chunks,
    head: &HeaderMap,
    max: usize,
) -> Result<Bytes, TransportError> {
    let length = content_length(head);
    if length.is_some_and(|length| length > max as u64) {
        return Err(too_large(max));
    }
    if let Some(inflate) = Inflate::from_head(head, max)? {
        return collect_inflated(chunks, inflate, length, max).await;
    }
    let Some(first) = next(chunks).await.transpose()? else {
        return whole(Bytes::new(), length, max);
    };
    let Some(second) = next(chunks).await.transpose()? else { return whole(first, length, max) };
    let trusted = length.map_or(0, |length| (length as usize).min(TRUSTED_LENGTH_MAX));
    let mut joined = BytesMut::with_capacity(trusted.max(first.len() + second.len()));
    joined.extend_from_slice(&first);
    let mut piece = second;
    loop {
        if joined.len() + piece.len() > max {
            return Err(too_large(max));
        }
        joined.extend_from_slice(&piece);
        match next(chunks).await.transpose()? {
            Some(more) => piece = more,
            None => return whole(joined.freeze(), length, max),
        }
    }
}

fn whole(body: Bytes, length: Option<u64>, max: usize) -> Result<Bytes, TransportError> {
    if body.len() > max {
        return Err(too_large(max));
    }
    expect_length(body.len(), length)?;
    Ok(body)
}

/// The libraries check lengths too, but let some early ends pass.
fn expect_length(arrived: usize, announced: Option<u64>) -> Result<(), TransportError> {
    match announced {
        Some(length) if length > arrived as u64 => {
            let detail = format!("{arrived} of {length} bytes arrived");
            Err(TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, detail))
        }
        Some(_) | None => Ok(()),
    }
}

fn content_length(head: &HeaderMap) -> Option<u64> {
    head.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

async fn collect_inflated(
    chunks: &mut impl Chunks,
    mut inflate: Inflate,
    length: Option<u64>,
    max: usize,
) -> Result<Bytes, TransportError> {
    let mut arrived = 0;
    let mut yielded_at = 0;
    while let Some(chunk) = next(chunks).await.transpose()? {
        arrived += chunk.len();
        if arrived > max {
            return Err(too_large(max));
        }
        for step in chunk.chunks(INFLATE_STEP) {
            inflate.push(step, max)?;
            if inflate.out_len() - yielded_at >= INFLATE_YIELD {
                yielded_at = inflate.out_len();
                tokio::task::yield_now().await;
            }
        }
    }
    expect_length(arrived, length)?;
    // Answers to HEAD-like statuses may name an encoding and bring nothing.
    if arrived == 0 { Ok(Bytes::new()) } else { inflate.finish(max) }
}

/// An encoding being undone.
enum Inflate {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    /// `deflate` is zlib by the book and raw deflate by some servers; the first two bytes tell.
    Deflate {
        held: Vec<u8>,
        decoder: Option<Box<Decompress>>,
        out: Vec<u8>,
        ended: bool,
    },
}

impl Inflate {
    fn from_head(head: &HeaderMap, max: usize) -> Result<Option<Self>, TransportError> {
        let Some(encoding) = head.get(CONTENT_ENCODING) else { return Ok(None) };
        let encoding = encoding.as_bytes().trim_ascii();
        if encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity") {
            Ok(None)
        } else if encoding.eq_ignore_ascii_case(b"gzip") || encoding.eq_ignore_ascii_case(b"x-gzip")
        {
            let sink = Bounded { out: Vec::new(), max, full: false };
            Ok(Some(Self::Gzip(Box::new(MultiGzDecoder::new(sink)))))
        } else if encoding.eq_ignore_ascii_case(b"deflate") {
            Ok(Some(Self::Deflate {
                held: Vec::new(),
                decoder: None,
                out: Vec::new(),
                ended: false,
            }))
        } else {
            Err(undecodable("the answer has a content encoding that was not asked for"))
        }
    }

    fn out_len(&self) -> usize {
        match self {
            Self::Gzip(decoder) => decoder.get_ref().out.len(),
            Self::Deflate { out, .. } => out.len(),
        }
    }

    fn push(&mut self, input: &[u8], max: usize) -> Result<(), TransportError> {
        match self {
            Self::Gzip(decoder) => match decoder.write_all(input) {
                Ok(()) => Ok(()),
                Err(_) if decoder.get_ref().full => Err(too_large(max)),
                Err(_) => Err(undecodable("the answer is not valid gzip")),
            },
            Self::Deflate { held, decoder, out, ended } => {
                let Some(decoder) = decoder else {
                    held.extend_from_slice(input);
                    let [first, second, ..] = held[..] else { return Ok(()) };
                    let word = u16::from_be_bytes([first, second]);
                    let zlib = first & 0x0f == 8 && word.is_multiple_of(31);
                    let decoder = decoder.insert(Box::new(Decompress::new(zlib)));
                    let held = std::mem::take(held);
                    return inflate_some(decoder, &held, out, ended, max);
                };
                inflate_some(decoder, input, out, ended, max)
            }
        }
    }

    fn finish(self, max: usize) -> Result<Bytes, TransportError> {
        let cut = |what: &str| {
            TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, what.to_owned())
        };
        match self {
            Self::Gzip(mut decoder) => {
                match decoder.try_finish() {
                    Ok(()) => Ok(Bytes::from(std::mem::take(&mut decoder.get_mut().out))),
                    // The last of the output is only handed over here.
                    Err(_) if decoder.get_ref().full => Err(too_large(max)),
                    Err(_) => Err(cut("the gzip data ends too early")),
                }
            }
            Self::Deflate { out, ended: true, .. } => Ok(Bytes::from(out)),
            Self::Deflate { .. } => Err(cut("the deflate data ends too early")),
        }
    }
}

fn inflate_some(
    decoder: &mut Decompress,
    mut input: &[u8],
    out: &mut Vec<u8>,
    ended: &mut bool,
    max: usize,
) -> Result<(), TransportError> {
    while !*ended {
        if out.capacity() == out.len() {
            out.reserve(out.len().clamp(INFLATE_STEP, INFLATE_YIELD));
        }
        let before = (decoder.total_in(), out.len());
        let status = decoder
            .decompress_vec(input, out, FlushDecompress::None)
            .map_err(|_| undecodable("the answer is not valid deflate"))?;
        input = &input[(decoder.total_in() - before.0) as usize..];
        if out.len() > max {
            return Err(too_large(max));
        }
        *ended = status == Status::StreamEnd;
        let stands_still = (decoder.total_in(), out.len()) == before;
        if (input.is_empty() && out.len() < out.capacity()) || stands_still {
            break;
        }
    }
    Ok(())
}

/// Takes what a decoder puts out, up to a bound.
struct Bounded {
    out: Vec<u8>,
    max: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.out.len() + data.len() > self.max {
            self.full = true;
            return Err(io::Error::other("too large"));
        }
        self.out.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `Retry-After` as a duration. A date counts from the `Date` of the same
/// answer, whose clock it was written by, or else from `now_unix`.
pub(crate) fn retry_after(head: &HeaderMap, now_unix: impl FnOnce() -> u64) -> Option<Duration> {
    let value = head.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        let seconds: f64 = value.parse().ok()?;
        return Some(Duration::try_from_secs_f64(seconds).map_or(RETRY_AFTER_MAX, bounded));
    }
    let then = httpdate::parse_http_date(value).ok()?;
    let sent = head.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let now: SystemTime = sent.unwrap_or_else(|| UNIX_EPOCH + Duration::from_secs(now_unix()));
    Some(then.duration_since(now).map_or(Duration::ZERO, bounded))
}

fn bounded(wait: Duration) -> Duration {
    wait.min(RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;
    use std::collections::VecDeque;

    struct Pieces(VecDeque<Bytes>);

    impl Chunks for Pieces {
        fn poll_chunk(
            &mut self,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Bytes, TransportError>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }
    }

    fn head(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).expect("a value");
                (http::HeaderName::from_static(name), value)
            })
            .collect()
    }

    async fn collected(
        pieces: &[&[u8]],
        pairs: &[(&'static str, &str)],
        max: usize,
    ) -> Result<Bytes, TransportErrorKind> {
        let mut pieces = Pieces(pieces.iter().map(|p| Bytes::copy_from_slice(p)).collect());
        collect(&mut pieces, &head(pairs), max).await.map_err(|e| e.kind)
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_bound() {
        let whole = |text: &'static str| Ok(Bytes::from(text));
        assert_eq!(collected(&[], &[], 4).await, whole(""));
        assert_eq!(collected(&[b"abcd"], &[], 4).await, whole("abcd"));
        assert_eq!(collected(&[b"ab", b"c", b"d"], &[], 4).await, whole("abcd"));
        let large = Err(TransportErrorKind::TooLarge);
        assert_eq!(collected(&[b"abcde"], &[], 4).await, large);
        assert_eq!(collected(&[b"abc", b"de"], &[], 4).await, large);
        assert_eq!(collected(&[], &[("content-length", "5")], 4).await, large);
        // A length that lies must not take memory: it would abort the process.
        let lie = [("content-length", "1000000000000")];
        let cut = Err(TransportErrorKind::Truncated);
        assert_eq!(collected(&[b"ab", b"cd"], &lie, usize::MAX).await, cut);
        assert_eq!(collected(&[b"abc"], &[("content-length", "4")], 4).await, cut);
        assert_eq!(collected(&[], &[("content-length", "4")], 4).await, cut);
        assert_eq!(collected(&[b"abcd"], &[("content-length", "4")], 4).await, whole("abcd"));
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let piece = Bytes::from(vec![b'x'; 1000]);
        let mut pieces = Pieces([piece.clone()].into());
        let body = collect(&mut pieces, &HeaderMap::new(), 1000).await.expect("complete");
        assert_eq!(body.as_ptr(), piece.as_ptr());
    }

    fn packed(encoding: &str, data: &[u8]) -> Vec<u8> {
        fn all<W: Write>(mut encoder: W, data: &[u8]) -> W {
            encoder.write_all(data).expect("in memory");
            encoder
        }
        let level = Compression::fast();
        match encoding {
            "gzip" => all(GzEncoder::new(Vec::new(), level), data).finish(),
            "zlib" => all(ZlibEncoder::new(Vec::new(), level), data).finish(),
            _ => all(DeflateEncoder::new(Vec::new(), level), data).finish(),
        }
        .expect("in memory")
    }

    const ENCODINGS: [(&str, &str); 5] = [
        ("gzip", "gzip"),
        ("gzip", "x-gzip"),
        ("gzip", "GZip"),
        ("zlib", "deflate"),
        ("raw", "deflate"),
    ];

    #[tokio::test]
    async fn encodings_are_undone_however_they_are_cut() {
        let plain: Vec<u8> = (0..50_000u32).flat_map(|n| (n % 700).to_be_bytes()).collect();
        for (format, name) in ENCODINGS {
            let packed = packed(format, &plain);
            for size in [1, 2, 1000, packed.len()] {
                let pieces: Vec<&[u8]> = packed.chunks(size).collect();
                let body = collected(&pieces, &[("content-encoding", name)], 1 << 20).await;
                assert_eq!(body.as_deref(), Ok(&plain[..]), "{format} as {name} by {size}");
            }
            let cut = &packed[..packed.len() - 3];
            let error = collected(&[cut], &[("content-encoding", name)], 1 << 20).await;
            assert_eq!(error, Err(TransportErrorKind::Truncated), "{format}");
        }
    }

    #[tokio::test]
    async fn bombs_stop_at_the_bound() {
        let plain = vec![b'0'; 8 << 20];
        for (format, name) in ENCODINGS {
            let packed = packed(format, &plain);
            assert!(packed.len() < 200_000);
            let error = collected(&[&packed], &[("content-encoding", name)], 1 << 20).await;
            assert_eq!(error, Err(TransportErrorKind::TooLarge), "{format}");
        }
    }

    #[tokio::test]
    async fn encodings_that_cannot_be_undone_are_protocol_errors() {
        for (name, body) in [("br", "abc"), ("gzip", "plain text"), ("deflate", "\u{7}\u{7}\u{7}")]
        {
            let error = collected(&[body.as_bytes()], &[("content-encoding", name)], 100).await;
            assert_eq!(error, Err(TransportErrorKind::Protocol), "{name}");
        }
        let plain = collected(&[b"abc"], &[("content-encoding", "identity")], 100).await;
        assert_eq!(plain, Ok(Bytes::from("abc")));
        let empty = collected(&[], &[("content-encoding", "gzip")], 100).await;
        assert_eq!(empty, Ok(Bytes::new()));
    }

    fn waits(pairs: &[(&'static str, &str)]) -> Option<f64> {
        // 2015-10-21 07:28:00 UTC.
        retry_after(&head(pairs), || 1_445_412_480).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn retry_after_in_all_its_forms() {
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&[("retry-after", "2")]), Some(2.0));
        assert_eq!(waits(&[("retry-after", " 0.5 ")]), Some(0.5));
        assert_eq!(waits(&[("retry-after", "soon")]), None);
        assert_eq!(waits(&[("retry-after", "-1")]), None);
        assert_eq!(waits(&[("retry-after", "2 minutes")]), None);
        assert_eq!(waits(&[("retry-after", "99999999999999999999999")]), Some(86400.0));
        let date = ("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT");
        assert_eq!(waits(&[date]), Some(30.0));
        assert_eq!(waits(&[date, ("date", "Wed, 21 Oct 2015 07:28:20 GMT")]), Some(10.0));
        assert_eq!(waits(&[date, ("date", "Wed, 21 Oct 2015 07:30:00 GMT")]), Some(0.0));
        assert_eq!(waits(&[date, ("date", "nonsense")]), Some(30.0));
    }
}
