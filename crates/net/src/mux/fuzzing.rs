//! A connection driven by a script of bytes, for the fuzzer and, with random
//! scripts, for a test: whatever a peer sends, whenever, and whatever its readers
//! do meanwhile, nothing panics, what is held stays within its bounds, everything
//! ends, and it makes no difference how the bytes were cut.
//!
//! Compiled for those two only.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use tokio::time::Instant;
use wellhead_transport::TransportErrorKind;

use super::{CONNECTION_WINDOW, Mux, STREAM_WINDOW};
use crate::detect::PREFACE;
use crate::frame::{self, FrameHead};
use crate::hpack::Blocks;
use crate::outgoing::OutgoingCall;

/// Steps of one script; more only repeat themselves.
const STEPS_MAX: usize = 2000;

/// Runs `script` with everything arriving at once, and again in small pieces.; panics
/// when something does not hold.
pub(crate) fn h2(script: &[u8]) {
    let now = Instant::now();
    let at_once = Run::new(script, now, usize::MAX).play(script);
    for piece in [1, 13, 5000] {
        assert_eq!(Run::new(script, now, piece).play(script), at_once, "in pieces of {piece}");
    }
}

struct Run {
    mux: Mux,
    blocks: Blocks,
    now: Instant,
    /// What arrives together at the most.
    piece: usize,
    /// The beginning of something.
    pending: Vec<u8>,
    /// Streams with a reader.
    open: Vec<u32>,
    /// What the readers saw.
    seen: Vec<String>,
    written: u64,
    ended: bool,
}

impl Run {
    fn new(script: &[u8], now: Instant, piece: usize) -> Self {
        let near = script.first().is_some_and(|first| first & 1 != 0);
        let fields = [("accept", &b"application/json"[..], false)];
        let blocks = Blocks::new(false, "localhost", "/", fields.into_iter());
        let mux = Mux::new(false, near);
        let (pending, open, seen) = (Vec::new(), Vec::new(), Vec::new());
        Self { mux, blocks, now, piece, pending, open, seen, written: 0, ended: false }
    }

    fn play(mut self, script: &[u8]) -> Vec<String> {
        let mut rest = script.get(1..).unwrap_or_default();
        if script.first().is_some_and(|first| first & 2 == 0) {
            let mut settings = Vec::new();
            frame::put_settings(&mut settings, &[]);
            self.arrive(&settings);
        }
        for _ in 0..STEPS_MAX {
            let [step, a, more @ ..] = rest else { break };
            rest = more;
            self.step(*step, *a, &mut rest);
            self.check();
        }
        self.end();
        self.seen
    }

    fn step(&mut self, step: u8, a: u8, rest: &mut &[u8]) {
        match step % 9 {
            0 => self.arrive(take(rest, usize::from(a))),
            1 | 2 => {
                let [flags, stream, len] = *take(rest, 3) else { return };
                let payload = take(rest, usize::from(len));
                self.arrive(&framed(a % 10, flags, u32::from(stream), payload));
            }
            3 => {
                let (stream, flags) = (u32::from(a >> 3) * 2 + 1, a & 1);
                let size = take(rest, 1).first().map_or(0, |size| usize::from(*size) * 1999);
                let data = vec![a; size.min(self.mux.frame_bytes_max)];
                self.arrive(&framed(0, flags, stream, &data));
            }
            4 => {
                let body = Bytes::from(vec![a; usize::from(a) * 997]);
                if let Ok(id) =
                    self.mux.request(&self.blocks, OutgoingCall::new(body), usize::from(a) << 12)
                {
                    self.open.push(id);
                }
            }
            5 if !self.open.is_empty() => {
                let id = self.open.swap_remove(usize::from(a) % self.open.len());
                let now = self.now;
                self.mux.release(id, || now);
            }
            6 if !self.open.is_empty() => {
                self.poll(self.open[usize::from(a) % self.open.len()], usize::from(a));
            }
            7 => self.write(),
            8 => match a % 8 {
                0 => self.mux.ping(),
                1 => self.mux.close(),
                2 => _ = self.mux.take_ending(),
                3 => _ = self.mux.take_proven(),
                4 => _ = self.mux.sleep(Waker::noop()),
                _ => self.now += Duration::from_secs(u64::from(a)),
            },
            _ => {}
        }
    }

    /// As the connection's task reads: straight to where it belongs where it may.
    fn arrive(&mut self, mut bytes: &[u8]) {
        while !self.ended && !bytes.is_empty() {
            let some = bytes.len().min(self.piece);
            if self.piece != usize::MAX
                && let Some(mut room) = self.mux.room()
            {
                assert!(self.pending.is_empty(), "a frame is under way");
                let some = some.min(room.remaining_mut());
                room.put_slice(&bytes[..some]);
                self.mux.received_directly(some);
                bytes = &bytes[some..];
                continue;
            }
            self.pending.extend_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            match self.mux.receive(&self.pending, self.now) {
                Ok(taken) => _ = self.pending.drain(..taken),
                Err(broken) => {
                    self.seen.push(format!("{broken:?}"));
                    self.end();
                }
            }
        }
    }

    /// What is written must be frames that a peer could read.
    fn write(&mut self) {
        let mut out = Vec::new();
        self.mux.take_out(&mut out);
        let preface = if self.written == 0 { PREFACE.len() } else { 0 };
        self.written += out.len() as u64;
        let mut rest = &out[preface.min(out.len())..];
        while !rest.is_empty() {
            let head = FrameHead::read(rest).expect("whole frames are written");
            assert!(head.len <= frame::FRAME_BYTES_MAX);
            rest = &rest[FrameHead::LEN + head.len..];
        }
        assert_eq!(self.written, self.mux.appended, "all that was appended was written");
    }

    fn poll(&mut self, id: u32, at_least: usize) {
        let mut cx = Context::from_waker(Waker::noop());
        let seen = match self.mux.poll_head(&mut cx, id) {
            Poll::Ready(Ok((fields, _))) => format!("{id} {fields:?}"),
            Poll::Ready(Err(error)) => format!("{id} {error:?}"),
            Poll::Pending => match self.mux.poll_data(&mut cx, id, at_least) {
                Poll::Ready(piece) => format!("{id} {piece:?}"),
                Poll::Pending => format!("{id} waits"),
            },
        };
        self.seen.push(seen);
    }

    /// The connection is lost: every reader hears of it or has its answer.
    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.mux.lost();
        self.mux.end(TransportErrorKind::Closed, "lost", self.written);
        for id in std::mem::take(&mut self.open) {
            for _ in 0..3 {
                self.poll(id, 1);
                assert_ne!(self.seen.last(), Some(&format!("{id} waits")), "nothing will come");
            }
            let now = self.now;
            assert!(!self.mux.release(id, || now), "nothing stays of a lost connection");
        }
    }

    /// What is held for the peer is bounded.
    fn check(&self) {
        let mux = &self.mux;
        assert!(mux.uncredited < CONNECTION_WINDOW);
        assert!(mux.abandoned() <= mux.streams.len());
        assert!(mux.streams.len() <= self.open.len() + mux.abandoned());
        if self.ended {
            return;
        }
        for (id, stream) in &mux.streams {
            assert!((0..=i64::from(STREAM_WINDOW)).contains(&stream.receive_window), "{id}");
            assert!(stream.data.is_empty() || !stream.abandoned);
        }
    }
}

fn framed(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(len.min(rest.len()));
    *rest = left;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn nothing_that_arrives_does_harm(script in prop::collection::vec(any::<u8>(), 0..300)) {
            h2(&script);
        }
    }
}
