//! From what arrives on a connection to a body: whole, or in part with a rest.
//!
//! The common case, one piece without an encoding, is handed through without a
//! copy.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use wellhead_transport::{
    FREE_BYTES, MemoryBudget, Reservation, Sent, Shortage, TRUSTED_LENGTH_MAX, TransportError,
    TransportErrorKind,
};

use crate::head::BodyHead;
use crate::inflate::{Encoding, INFLATE_STEP, Inflate, too_large};

/// Bytes that are worth a read of their own.
pub(crate) const PIECE: usize = 64 << 10;
/// Room that is asked for before it is known how long an answer will be.
const ASKED_AT_ONCE_MAX: usize = 2 << 20;
/// Other tasks get a turn after this much inflated output.
const INFLATE_YIELD: usize = 1 << 20;

/// A body that arrives piece by piece.
pub(crate) trait Chunks {
    /// The next piece of data, never empty; `None` after the last byte of a
    /// complete body. Waits for `at_least` bytes where it can join them without
    /// a copy, and for one otherwise.
    fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
        at_least: usize,
    ) -> Poll<Option<Result<Bytes, TransportError>>>;

    /// Whether the last piece was the last. May say no and then bring nothing more.
    fn is_end(&self) -> bool;
}

/// How much of an answer is kept in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// An answer up to this size is wanted whole.
    pub(crate) whole_max: usize,
    /// A whole answer is never larger than this.
    pub(crate) answer_bytes_max: usize,
}

impl BodyLimits {
    /// Bytes to be held at most.
    fn bound(self) -> usize {
        self.whole_max.min(self.answer_bytes_max)
    }

    /// Bytes to be read together: one more than are held tells whether there are more.
    pub(crate) fn wanted(self) -> usize {
        self.bound().saturating_add(1)
    }
}

/// The first part of a body.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) body: Bytes,
    /// What reads on, when `body` is not all of it.
    pub(crate) more: Option<Decoding>,
}

/// Reads a body whole, or as much of it as `limits` say and as there is room for in
/// `memory`. Asks for room before it reads; what one read brings beyond that is counted
/// when it is there.
pub(crate) async fn receive(
    chunks: &mut impl Chunks,
    head: BodyHead,
    limits: BodyLimits,
    memory: &Arc<MemoryBudget>,
) -> Result<Received, TransportError> {
    let (bound, enough) = (limits.bound(), limits.wanted());
    // A caller that needs the whole answer gets an error; others read on.
    let reads_on = limits.whole_max < limits.answer_bytes_max;
    let may_be_short = limits.whole_max != usize::MAX;
    if !reads_on && head.length.is_some_and(|length| length > bound as u64) {
        return Err(too_large(bound));
    }
    let mut decoding = Decoding::new(head, if reads_on { usize::MAX } else { bound })?;
    let mut body = JoinedBody::of_length(head.length.map_or(0, |it| (it as usize).min(enough)));
    let announced = announced(head, enough);
    let mut reservation = None;
    // What may be read before there must be more room: all of a small answer, and of a
    // large one what was announced.
    let mut room = match announced {
        Some(announced) if announced <= FREE_BYTES || grow(&mut reservation, memory, announced) => {
            enough
        }
        Some(_) | None => FREE_BYTES,
    };
    let is_whole = loop {
        let have = body.len();
        if have > bound {
            break false;
        }
        if have >= room {
            let more = announced.unwrap_or_else(|| next_room(have, enough));
            if !grow(&mut reservation, memory, more) {
                if may_be_short {
                    break false;
                }
                memory.note(Shortage::Refused);
                return Err(no_room());
            }
            room = if announced.is_some() { enough } else { more };
        }
        // More than `have`, as there was room for that or would be no need of it.
        let at_least = room.min(enough) - have;
        let Some(piece) = decoding.next(chunks, at_least).await.transpose()? else { break true };
        body.push(piece);
        if have == 0 && decoding.is_end(chunks) {
            break true;
        }
    };
    if body.len() > bound && !reads_on {
        return Err(too_large(bound));
    }
    let body = memory.around(body.into_bytes(), reservation);
    Ok(Received { body, more: (!is_whole).then_some(decoding) })
}

/// How much of a body will be read, where that is known.
fn announced(head: BodyHead, enough: usize) -> Option<usize> {
    match head.encoding {
        Encoding::Identity => {
            head.length.map(|length| usize::try_from(length).map_or(enough, |it| it.min(enough)))
        }
        Encoding::Gzip | Encoding::Deflate | Encoding::Foreign => None,
    }
}

/// The pieces of a body: the first as it came, and one buffer from the second on.
struct JoinedBody {
    /// What the head said that there will be; 0 where it did not.
    length: usize,
    first: Bytes,
    joined: BytesMut,
}

impl JoinedBody {
    fn of_length(length: usize) -> Self {
        Self { length, first: Bytes::new(), joined: BytesMut::new() }
    }

    fn len(&self) -> usize {
        self.first.len().max(self.joined.len())
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            let both = self.first.len() + piece.len();
            self.joined.reserve(self.length.min(TRUSTED_LENGTH_MAX).max(both));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

/// The room to ask for when there is no word on what is still to come: all at once where
/// that is little, as each step costs a copy, and otherwise four times as much.
fn next_room(have: usize, enough: usize) -> usize {
    if enough <= ASKED_AT_ONCE_MAX { enough } else { have.saturating_mul(4).min(enough) }
}

fn grow(reservation: &mut Option<Reservation>, memory: &Arc<MemoryBudget>, bytes: usize) -> bool {
    match reservation {
        Some(reservation) => reservation.grow(bytes),
        None => {
            *reservation = memory.try_hold(bytes);
            reservation.is_some()
        }
    }
}

fn no_room() -> TransportError {
    TransportError::new(TransportErrorKind::NoRoom, Sent::Maybe, "")
}

/// Reads on in a body, undoing its encoding and checking its length.
#[derive(Debug)]
pub(crate) struct Decoding {
    inflate: Option<Inflate>,
    /// Arrived and not yet inflated.
    packed: Bytes,
    /// Bytes on the wire so far, and those announced.
    arrived: u64,
    length: Option<u64>,
    /// What may come out of an encoding; `usize::MAX` where nothing is kept.
    max: usize,
}

impl Decoding {
    fn new(head: BodyHead, max: usize) -> Result<Self, TransportError> {
        let BodyHead { length, encoding } = head;
        let inflate = Inflate::new(encoding, max)?;
        Ok(Self { inflate, packed: Bytes::new(), arrived: 0, length, max })
    }

    /// Bytes that are still to come, where that was announced and no encoding changes it.
    pub(crate) fn announced(&self) -> Option<u64> {
        let length = self.length.filter(|_| self.inflate.is_none())?;
        Some(length.saturating_sub(self.arrived))
    }

    fn is_end(&self, chunks: &impl Chunks) -> bool {
        self.inflate.is_none() && chunks.is_end() && self.expect_length().is_ok()
    }

    /// The next piece, of `at_least` bytes where that costs no copy. May be
    /// dropped and called again without losing a byte.
    pub(crate) async fn next(
        &mut self,
        chunks: &mut impl Chunks,
        at_least: usize,
    ) -> Option<Result<Bytes, TransportError>> {
        if self.inflate.is_some() {
            return self.next_inflated(chunks, at_least).await.transpose();
        }
        match poll_fn(|cx| chunks.poll_chunk(cx, at_least)).await {
            Some(Ok(piece)) => {
                self.arrived += piece.len() as u64;
                Some(Ok(piece))
            }
            Some(Err(error)) => Some(Err(error)),
            None => self.expect_length().err().map(Err),
        }
    }

    async fn next_inflated(
        &mut self,
        chunks: &mut impl Chunks,
        at_least: usize,
    ) -> Result<Option<Bytes>, TransportError> {
        let mut yielded_at = 0;
        while let Some(inflate) = &mut self.inflate {
            if self.packed.is_empty() {
                match poll_fn(|cx| chunks.poll_chunk(cx, 1)).await.transpose()? {
                    Some(piece) => {
                        self.arrived += piece.len() as u64;
                        self.packed = piece;
                        if self.arrived > self.max as u64 {
                            return Err(too_large(self.max));
                        }
                    }
                    None => {
                        self.expect_length()?;
                        let inflate = self.inflate.take();
                        // Answers to HEAD-like statuses may name an encoding and bring nothing.
                        return match inflate {
                            Some(inflate) if self.arrived > 0 => {
                                let last = inflate.finish(self.max)?;
                                Ok((!last.is_empty()).then_some(last))
                            }
                            Some(_) | None => Ok(None),
                        };
                    }
                }
            }
            let step = self.packed.len().min(INFLATE_STEP);
            inflate.push(&self.packed[..step], self.max)?;
            self.packed.advance(step);
            let out = inflate.out_len();
            if out >= at_least {
                return Ok(Some(inflate.take()));
            }
            if out - yielded_at >= INFLATE_YIELD {
                yielded_at = out;
                tokio::task::yield_now().await;
            }
        }
        Ok(None)
    }

    /// The libraries check lengths too, but let some early ends pass.
    fn expect_length(&self) -> Result<(), TransportError> {
        match self.length {
            Some(length) if length > self.arrived => {
                let detail = format!("{} of {length} bytes arrived", self.arrived);
                Err(TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, detail))
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use std::collections::VecDeque;
    use std::io::Write;

    struct Pieces(VecDeque<Bytes>);

    impl Chunks for Pieces {
        fn poll_chunk(
            &mut self,
            _: &mut Context<'_>,
            _: usize,
        ) -> Poll<Option<Result<Bytes, TransportError>>> {
            Poll::Ready(self.0.pop_front().map(Ok))
        }

        fn is_end(&self) -> bool {
            self.0.is_empty()
        }
    }

    type Pairs<'a> = &'a [(&'static str, &'a str)];

    fn value<'a>(pairs: Pairs<'a>, name: &str) -> Option<&'a [u8]> {
        pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes())
    }

    fn head(pairs: Pairs<'_>) -> BodyHead {
        let length = value(pairs, "content-length");
        let length = length.map(|v| std::str::from_utf8(v).expect("text").parse().expect("digits"));
        BodyHead { length, encoding: Encoding::of(value(pairs, "content-encoding")) }
    }

    fn pieces(of: &[&[u8]]) -> Pieces {
        Pieces(of.iter().map(|p| Bytes::copy_from_slice(p)).collect())
    }

    /// The whole body, or why there is none.
    async fn collected(
        of: &[&[u8]],
        pairs: Pairs<'_>,
        max: usize,
    ) -> Result<Bytes, TransportErrorKind> {
        let limits = BodyLimits { whole_max: usize::MAX, answer_bytes_max: max };
        let received = receive(&mut pieces(of), head(pairs), limits, &Arc::default())
            .await
            .map_err(|e| e.kind)?;
        assert!(received.more.is_none());
        Ok(received.body)
    }

    /// The first part of a body and the pieces that follow it.
    async fn streamed(
        of: &[&[u8]],
        pairs: Pairs<'_>,
        whole_max: usize,
    ) -> Result<(Bytes, Vec<Bytes>), TransportErrorKind> {
        let limits = BodyLimits { whole_max, answer_bytes_max: usize::MAX };
        let mut pieces = pieces(of);
        let received =
            receive(&mut pieces, head(pairs), limits, &Arc::default()).await.map_err(|e| e.kind)?;
        let mut rest = Vec::new();
        if let Some(mut more) = received.more {
            while let Some(piece) = more.next(&mut pieces, 1).await {
                rest.push(piece.map_err(|e| e.kind)?);
            }
        }
        Ok((received.body, rest))
    }

    #[tokio::test]
    async fn what_exceeds_the_part_wanted_whole_follows_piece_by_piece() {
        let parts = |first: &'static str, rest: &[&'static str]| {
            Ok((Bytes::from(first), rest.iter().map(|p| Bytes::from(*p)).collect::<Vec<_>>()))
        };
        assert_eq!(streamed(&[b"abcd"], &[], 4).await, parts("abcd", &[]));
        assert_eq!(streamed(&[b"ab", b"cd"], &[], 4).await, parts("abcd", &[]));
        assert_eq!(streamed(&[b"abcde"], &[], 4).await, parts("abcde", &[]));
        assert_eq!(streamed(&[b"ab", b"cde", b"f"], &[], 4).await, parts("abcde", &["f"]));
        assert_eq!(streamed(&[b"a", b"b"], &[], 0).await, parts("a", &["b"]));
        let length = [("content-length", "6")];
        assert_eq!(streamed(&[b"abc", b"de", b"f"], &length, 4).await, parts("abcde", &["f"]));
        let cut = Err(TransportErrorKind::Truncated);
        assert_eq!(streamed(&[b"abc", b"de"], &length, 4).await, cut);
        assert_eq!(streamed(&[b"abc", b"de"], &length, 9).await, cut);
    }

    #[tokio::test]
    async fn packed_answers_are_undone_while_they_are_read() {
        let plain: Vec<u8> = (0..500_000u32).flat_map(|n| (n % 700).to_be_bytes()).collect();
        for (format, name) in ENCODINGS {
            let packed = packed(format, &plain);
            let encoding = [("content-encoding", name)];
            let (first, rest) = streamed(&[&packed], &encoding, 1000).await.expect("whole");
            assert!(first.len() >= 1000 && !rest.is_empty(), "{format}");
            let largest = rest.iter().map(Bytes::len).max();
            assert!(largest < Some(INFLATE_STEP * 1100), "{largest:?}");
            assert!([&[first], &rest[..]].concat().concat() == plain, "{format}");
            let cut = &packed[..packed.len() - 3];
            let error = streamed(&[cut], &encoding, 1000).await;
            assert_eq!(error, Err(TransportErrorKind::Truncated), "{format}");
        }
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
        let limits = BodyLimits { whole_max: 1000, answer_bytes_max: 1000 };
        let received =
            receive(&mut pieces, head(&[]), limits, &Arc::default()).await.expect("complete");
        assert_eq!(received.body.as_ptr(), piece.as_ptr());
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
}
