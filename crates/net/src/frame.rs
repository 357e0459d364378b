//! Looks over HTTP/2's shoulder: which frames went by on a connection.
//!
//! The h2 library does not say which streams the peer's GOAWAY spared, nor
//! whether a request had left before the connection broke. Both decide whether
//! a call that must not run twice may be sent again, so the frame headers are
//! read on their way through the socket. Nothing is changed or delayed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::detect::PREFACE;
use crate::dial::Stream;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const HEADER_LEN: usize = 9;
/// The last stream id opens the payload of GOAWAY.
const GOAWAY_LEN: usize = HEADER_LEN + 4;

/// What was seen on one connection.
#[derive(Debug)]
pub(crate) struct Sightings {
    settings: AtomicBool,
    /// Streams above it were not and will not be processed.
    last_processed: AtomicU32,
    /// The newest stream whose HEADERS left, wholly or in part.
    last_sent: AtomicU32,
}

impl Sightings {
    pub(crate) fn new() -> Self {
        Self {
            settings: AtomicBool::new(false),
            last_processed: AtomicU32::new(u32::MAX),
            last_sent: AtomicU32::new(0),
        }
    }

    /// Whether the peer's SETTINGS arrived.
    pub(crate) fn settings(&self) -> bool {
        self.settings.load(Relaxed)
    }

    /// Whether the peer said GOAWAY.
    pub(crate) fn goaway(&self) -> bool {
        self.last_processed.load(Relaxed) != u32::MAX
    }

    /// Whether the peer certainly did not process `stream`.
    pub(crate) fn unprocessed(&self, stream: u32) -> bool {
        stream > self.last_processed.load(Relaxed) || stream > self.last_sent.load(Relaxed)
    }

    fn arrived(&self, frame: Frame) {
        match frame {
            Frame { kind: SETTINGS, flags, .. } if flags & ACK == 0 => {
                self.settings.store(true, Relaxed);
            }
            // A server may say GOAWAY twice, the second time with a lower id.
            Frame { kind: GOAWAY, last_stream, .. } => {
                self.last_processed.fetch_min(last_stream, Relaxed);
            }
            _ => {}
        }
    }

    fn left(&self, frame: Frame) {
        if frame.kind == HEADERS {
            self.last_sent.fetch_max(frame.stream, Relaxed);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    /// Of GOAWAY only; zero otherwise.
    last_stream: u32,
}

/// Finds frame headers in a byte stream that arrives in arbitrary pieces.
#[derive(Debug)]
struct Scanner {
    /// Bytes of no interest ahead: preface or payload.
    skip: usize,
    head: [u8; GOAWAY_LEN],
    have: usize,
}

impl Scanner {
    fn new(skip: usize) -> Self {
        Self { skip, head: [0; GOAWAY_LEN], have: 0 }
    }

    fn feed(&mut self, mut data: &[u8], mut seen: impl FnMut(Frame)) {
        while !data.is_empty() {
            let skipped = self.skip.min(data.len());
            self.skip -= skipped;
            data = &data[skipped..];
            let want = if self.have >= HEADER_LEN { GOAWAY_LEN } else { HEADER_LEN };
            let taken = (want - self.have).min(data.len());
            self.head[self.have..self.have + taken].copy_from_slice(&data[..taken]);
            self.have += taken;
            data = &data[taken..];
            if self.have < HEADER_LEN {
                continue;
            }
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3, g0, g1, g2, g3] = self.head;
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            let last_stream = if kind == GOAWAY && length >= 4 {
                if self.have < GOAWAY_LEN {
                    continue;
                }
                u32::from_be_bytes([g0 & 0x7f, g1, g2, g3])
            } else {
                0
            };
            self.skip = length + HEADER_LEN - self.have;
            self.have = 0;
            let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
            seen(Frame { kind, flags, stream, last_stream });
        }
    }
}

/// A stream under HTTP/2 whose frames are noted in [`Sightings`].
#[derive(Debug)]
pub(crate) struct Watched {
    stream: Stream,
    /// Read during detection, to be read again by the library.
    replay: Bytes,
    /// Bytes of the preface that detection has already written.
    preface_left: usize,
    sightings: Arc<Sightings>,
    incoming: Scanner,
    outgoing: Scanner,
}

impl Watched {
    pub(crate) fn new(stream: Stream, sightings: Arc<Sightings>) -> Self {
        Self {
            stream,
            replay: Bytes::new(),
            preface_left: 0,
            sightings,
            incoming: Scanner::new(0),
            outgoing: Scanner::new(PREFACE.len()),
        }
    }

    /// Continues after a detection that wrote the preface and read `read`.
    pub(crate) fn resumed(stream: Stream, read: Bytes, sightings: Arc<Sightings>) -> Self {
        let mut watched = Self::new(stream, sightings);
        watched.replay = read;
        watched.preface_left = PREFACE.len();
        watched
    }

    /// Whether bytes of the peer are at hand already.
    pub(crate) fn has_read(&self) -> bool {
        !self.replay.is_empty()
    }

    fn note_left(&mut self, data: &[u8]) {
        let sightings = &self.sightings;
        self.outgoing.feed(data, |frame| sightings.left(frame));
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if this.replay.is_empty() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        } else {
            let some = this.replay.len().min(buf.remaining());
            buf.put_slice(&this.replay[..some]);
            this.replay.advance(some);
        }
        let sightings = &this.sightings;
        this.incoming.feed(&buf.filled()[before..], |frame| sightings.arrived(frame));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.preface_left > 0 && !buf.is_empty() {
            let swallowed = this.preface_left.min(buf.len());
            this.preface_left -= swallowed;
            this.note_left(&buf[..swallowed]);
            return Poll::Ready(Ok(swallowed));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, buf))?;
        this.note_left(&buf[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.preface_left > 0 {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs))?;
        let mut left = written;
        for buf in bufs {
            let some = left.min(buf.len());
            this.note_left(&buf[..some]);
            left -= some;
            if left == 0 {
                break;
            }
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        out.extend([kind, flags]);
        out.extend(stream.to_be_bytes());
        out.extend(payload);
        out
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let mut goaway = 5u32.to_be_bytes().to_vec();
        goaway.extend(*b"\0\0\0\0debug");
        let wire = [
            b"PREFACE".to_vec(),
            frame(SETTINGS, 0, 0, b"123456"),
            frame(SETTINGS, ACK, 0, b""),
            frame(HEADERS, 4, 3, &[7; 300]),
            frame(GOAWAY, 0, 0, &goaway),
            frame(0, 1, 1, b"data"),
            frame(GOAWAY, 0, 0, b""),
            frame(HEADERS, 4, 5, b"x"),
        ]
        .concat();
        let seen = |kind, flags, stream, last_stream| Frame { kind, flags, stream, last_stream };
        let expected = [
            seen(SETTINGS, 0, 0, 0),
            seen(SETTINGS, ACK, 0, 0),
            seen(HEADERS, 4, 3, 0),
            seen(GOAWAY, 0, 0, 5),
            seen(0, 1, 1, 0),
            seen(GOAWAY, 0, 0, 0),
            seen(HEADERS, 4, 5, 0),
        ];
        for size in 1..=wire.len() {
            let mut scanner = Scanner::new(7);
            let mut found = Vec::new();
            for piece in wire.chunks(size) {
                scanner.feed(piece, |frame| found.push(frame));
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_certain_about_a_stream() {
        let sightings = Sightings::new();
        assert!(sightings.unprocessed(1), "not sent yet");
        sightings.left(Frame { kind: HEADERS, flags: 0, stream: 5, last_stream: 0 });
        assert!(!sightings.unprocessed(5));
        assert!(sightings.unprocessed(7));
        assert!(!sightings.goaway());
        sightings.arrived(Frame { kind: GOAWAY, flags: 0, stream: 0, last_stream: 0x7fff_ffff });
        assert!(sightings.goaway());
        assert!(!sightings.unprocessed(5));
        sightings.arrived(Frame { kind: GOAWAY, flags: 0, stream: 0, last_stream: 3 });
        assert!(sightings.unprocessed(5));
        assert!(!sightings.unprocessed(3));
        assert!(!sightings.settings());
        sightings.arrived(Frame { kind: SETTINGS, flags: ACK, stream: 0, last_stream: 0 });
        assert!(!sightings.settings());
        sightings.arrived(Frame { kind: SETTINGS, flags: 0, stream: 0, last_stream: 0 });
        assert!(sightings.settings());
    }
}
