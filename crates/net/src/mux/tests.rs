//! A connection without a socket: what a peer may send, and what comes of it.

use std::task::{Context, Poll, Waker};

use bytes::{BufMut as _, Bytes};
use proptest::prelude::*;
use tokio::time::Instant;
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use super::abandon::{RESETS_MAX, RESETS_WINDOW};
use super::*;
use crate::frame::{Flags, FrameHead, put_data, put_goaway, put_ping, put_reset, put_settings};

fn blocks() -> Blocks {
    let fields = [("accept", &b"application/json"[..], false), ("x-key", b"SECRET", true)];
    Blocks::new(false, "localhost", "/", fields.into_iter())
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A frame as a peer may write it.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn written(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

/// `:status: 200`, from the static table.
const OK: &[u8] = b"\x88";
const END: u8 = 1;
const END_HEADERS: u8 = 4;

fn answer(stream: u32, body: &[u8]) -> Vec<u8> {
    [frame(1, END_HEADERS, stream, OK), written(|out| put_data(out, stream, body, true))].concat()
}

/// A connection whose peer announced `settings`.
fn settled(settings: &[(u16, u32)]) -> Mux {
    let mut mux = Mux::new(false, false);
    receive(&mut mux, &written(|out| put_settings(out, settings))).expect("well");
    mux.take_out(&mut Vec::new());
    mux
}

fn receive(mux: &mut Mux, bytes: &[u8]) -> Result<(), Broken> {
    let taken = mux.receive(bytes, Instant::now())?;
    assert_eq!(taken, bytes.len(), "only whole frames are sent here");
    Ok(())
}

fn ask(mux: &mut Mux, body: &'static [u8]) -> u32 {
    mux.request(&blocks(), OutgoingCall::new(body), 1 << 20).expect("a stream")
}

/// The kinds, flags, streams and sizes of the frames that wait to be written.
fn out(mux: &mut Mux) -> Vec<(u8, u8, u32, usize)> {
    let mut bytes = Vec::new();
    mux.take_out(&mut bytes);
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while let Some(head) = FrameHead::read(rest) {
        frames.push((rest[3], rest[4], head.stream, head.len));
        rest = &rest[FrameHead::LEN + head.len..];
    }
    assert!(rest.is_empty());
    frames
}

/// Status and body, or how it failed.
type Outcome<B> = Result<(u16, B), (Kind, Sent)>;

/// What became of a request, if that is known.
fn outcome(mux: &mut Mux, id: u32) -> Option<Outcome<Vec<u8>>> {
    let failed = |error: TransportError| Some(Err((error.kind, error.sent)));
    let status = match mux.poll_head(&mut cx(), id) {
        Poll::Pending => return None,
        Poll::Ready(Ok((fields, _))) => fields.status.expect("a status"),
        Poll::Ready(Err(error)) => return failed(error),
    };
    let mut body = Vec::new();
    loop {
        match mux.poll_data(&mut cx(), id, 1) {
            Poll::Pending => return None,
            Poll::Ready(None) => return Some(Ok((status, body))),
            Poll::Ready(Some(Ok((data, _)))) => body.extend_from_slice(&data),
            Poll::Ready(Some(Err(error))) => return failed(error),
        }
    }
}

/// What becomes of a request when the peer sends `bytes`, cut anywhere.
fn check(bytes: &[u8], expected: Option<Outcome<&str>>) {
    let expected = expected.map(|e| e.map(|(status, body)| (status, body.as_bytes().to_vec())));
    for size in [1, 2, 7, bytes.len().max(1)] {
        let mut mux = settled(&[]);
        let id = ask(&mut mux, b"question");
        let mut read = Vec::new();
        for piece in bytes.chunks(size) {
            read.extend_from_slice(piece);
            let taken = mux.receive(&read, Instant::now()).expect("the connection goes on");
            read.drain(..taken);
        }
        assert_eq!(outcome(&mut mux, id), expected, "{bytes:?} by {size}");
    }
}

#[test]
fn answers_are_read_however_they_are_cut() {
    check(&answer(1, b"answer"), Some(Ok((200, "answer"))));
    check(&frame(1, END_HEADERS | END, 1, OK), Some(Ok((200, ""))));
    let head = frame(1, END_HEADERS, 1, OK);
    check(&head, None);
    let two = [frame(0, 0, 1, b"ans"), frame(0, END, 1, b"wer")].concat();
    check(&[&head[..], &two].concat(), Some(Ok((200, "answer"))));
    let padded = [frame(0, 8, 1, b"\x02ans\0\0"), frame(0, 8 | END, 1, b"\0wer")].concat();
    check(&[&head[..], &padded].concat(), Some(Ok((200, "answer"))));
    let trailers = [frame(0, 0, 1, b"answer"), frame(1, END_HEADERS | END, 1, b"\x40\x01x\x01y")];
    check(&[&head[..], &trailers.concat()].concat(), Some(Ok((200, "answer"))));
    let parts = [frame(1, 0, 1, b"\x48"), frame(9, 0, 1, b"\x03"), frame(9, 4, 1, b"503")].concat();
    check(&[&parts[..], &frame(0, END, 1, b"no")].concat(), Some(Ok((503, "no"))));
    let priority = frame(1, END_HEADERS | END | 0x28, 1, b"\x01\0\0\0\0\x10\x88\0");
    check(&priority, Some(Ok((200, ""))));
    let interim = frame(1, END_HEADERS, 1, b"\x08\x03103");
    check(&[&interim[..], &answer(1, b"late")].concat(), Some(Ok((200, "late"))));
    // Of no use to us, and no harm.
    let others = [frame(2, 0, 1, &[0; 5]), frame(200, 255, 0, b"x"), frame(3, 0, 1, &[0; 4])];
    check(
        &[&others[0][..], &others[1], &answer(1, b"a"), &others[2]].concat(),
        Some(Ok((200, "a"))),
    );
}

#[test]
fn failures_say_whether_the_request_can_have_run() {
    let (maybe, no) = (Sent::Maybe, Sent::No);
    let reset = |reason| written(|out| put_reset(out, 1, reason));
    check(&reset(H2ErrorCode::CANCEL), Some(Err((Kind::Closed, maybe))));
    check(&reset(H2ErrorCode::REFUSED_STREAM), Some(Err((Kind::Closed, no))));
    let head = frame(1, END_HEADERS, 1, OK);
    check(
        &[&head[..], &reset(H2ErrorCode::NO_ERROR)].concat(),
        Some(Err((Kind::Truncated, maybe))),
    );
    let spared = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    check(&spared, None);
    check(&[&spared[..], &answer(1, b"a")].concat(), Some(Ok((200, "a"))));
    check(&frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0]), Some(Err((Kind::Closed, no))));
    // One stream's mistakes are not the others'.
    let protocol = Some(Err((Kind::Protocol, maybe)));
    check(&frame(0, END, 1, b"no headers"), protocol);
    check(&frame(1, END_HEADERS, 1, b"\x0f\x0d\x011"), protocol);
    check(&frame(1, END_HEADERS, 1, b"\x08\x03101"), protocol);
    check(&frame(1, END_HEADERS, 1, b"\x08\x03abc"), protocol);
    check(&frame(1, END_HEADERS, 1, b"\x88\x88"), protocol);
    check(&frame(1, END_HEADERS, 1, b"\x88\x40\x01X\x01y"), protocol);
    let long = [frame(1, END_HEADERS, 1, b"\x88\x0f\x0d\x011"), frame(0, END, 1, b"12")].concat();
    check(&long, Some(Err((Kind::Truncated, maybe))));
}

#[test]
fn a_lost_connection_tells_what_left_and_what_did_not() {
    let mut mux = settled(&[]);
    let (first, mut buffer) = (ask(&mut mux, b"one"), Vec::new());
    let before = mux.appended;
    mux.take_out(&mut buffer);
    let second = ask(&mut mux, b"two");
    mux.end(Kind::Closed, "lost", before);
    assert_eq!(outcome(&mut mux, first), Some(Err((Kind::Closed, Sent::Maybe))));
    assert_eq!(outcome(&mut mux, second), Some(Err((Kind::Closed, Sent::No))));
    let error = mux.request(&blocks(), OutgoingCall::new(Bytes::new()), 1).expect_err("ended");
    assert_eq!((error.kind, error.sent), (Kind::Closed, Sent::No));
}

fn breaks(bytes: &[u8], reason: H2ErrorCode) {
    let mut mux = settled(&[]);
    ask(&mut mux, b"question");
    let broken = receive(&mut mux, bytes).expect_err("broken");
    assert_eq!(broken.0, reason, "{bytes:?}: {}", broken.1);
}

#[test]
fn what_breaks_the_connection() {
    let protocol = H2ErrorCode::PROTOCOL_ERROR;
    breaks(&frame(0, 0, 0, b"x"), protocol);
    breaks(&frame(0, 0, 2, b"x"), protocol);
    breaks(&frame(0, 0, 3, b"x"), protocol);
    breaks(&frame(0, 8, 1, b"\x05abc"), protocol);
    breaks(&frame(0, 8, 1, b""), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(1, END_HEADERS, 3, OK), protocol);
    breaks(&frame(1, END_HEADERS | 8, 1, b"\x05abc"), protocol);
    breaks(&frame(1, END_HEADERS | 0x20, 1, b"\0\0"), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(1, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\x0f"), H2ErrorCode::COMPRESSION_ERROR);
    breaks(&[frame(1, 0, 1, OK), frame(0, 0, 1, b"x")].concat(), protocol);
    breaks(&[frame(1, 0, 1, OK), frame(9, 4, 3, b"")].concat(), protocol);
    breaks(&frame(9, 4, 1, OK), protocol);
    breaks(&frame(3, 0, 1, b"abc"), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(3, 0, 5, &[0; 4]), protocol);
    breaks(&frame(4, 0, 1, b""), protocol);
    breaks(&frame(4, 0, 0, b"abc"), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(4, 1, 0, b"abcdef"), H2ErrorCode::FRAME_SIZE_ERROR);
    let setting = |id, value| written(|out| put_settings(out, &[(id, value)]));
    breaks(&setting(frame::INITIAL_WINDOW_SIZE, 1 << 31), H2ErrorCode::FLOW_CONTROL_ERROR);
    breaks(&setting(frame::MAX_FRAME_SIZE, 100), protocol);
    breaks(&frame(5, 4, 1, &[0; 4]), protocol);
    breaks(&frame(6, 0, 0, b"short"), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(7, 0, 0, b"short"), H2ErrorCode::FRAME_SIZE_ERROR);
    breaks(&frame(8, 0, 0, &[0; 4]), protocol);
    breaks(&frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), H2ErrorCode::FLOW_CONTROL_ERROR);
    breaks(&frame(8, 0, 1, &[0x7f, 0xff, 0xff, 0xff]), H2ErrorCode::FLOW_CONTROL_ERROR);
    let mut mux = Mux::new(false, false);
    let broken = mux.receive(&frame(6, 0, 0, &[0; 8]), Instant::now()).expect_err("no SETTINGS");
    assert_eq!(broken.0, protocol);
    let too_large = [0, 0x40, 1, 0, 0, 0, 0, 0, 1];
    assert!(settled(&[]).receive(&too_large, Instant::now()).is_err());
}

#[test]
fn floods_are_stopped() {
    let calm = H2ErrorCode::ENHANCE_YOUR_CALM;
    breaks(&written(|out| put_ping(out, false, &[0; 8])).repeat(20_000), calm);
    breaks(&written(|out| put_settings(out, &[])).repeat(20_000), calm);
    let head = frame(1, END_HEADERS, 1, OK);
    breaks(&[head, frame(0, 0, 1, b"").repeat(20_000)].concat(), calm);
    let parts = frame(9, 0, 1, &[b'x'; 4000]).repeat(100);
    breaks(&[frame(1, 0, 1, b""), parts].concat(), calm);
    let parts = frame(9, 0, 1, b"").repeat(100);
    breaks(&[frame(1, 0, 1, b""), parts].concat(), calm);
}

#[test]
fn requests_are_written_together_and_small_after_the_first() {
    let mut mux = Mux::new(false, false);
    let mut opening = Vec::new();
    mux.take_out(&mut opening);
    assert!(opening.starts_with(PREFACE));
    let (block, first) = (blocks(), ask(&mut mux, b"one"));
    let second = ask(&mut mux, b"second");
    let length = |digits: usize| 3 + digits;
    let expected = [
        (1, END_HEADERS, first, block.first.len() + length(1)),
        (0, END, first, 3),
        (1, END_HEADERS, second, block.later.len() + length(1)),
        (0, END, second, 6),
    ];
    assert_eq!(out(&mut mux), expected);
    assert!(block.later.len() < block.first.len() / 2);
    // A smaller table is declared once, and not used.
    receive(&mut mux, &written(|out| put_settings(out, &[(frame::HEADER_TABLE_SIZE, 0)])))
        .expect("well");
    assert_eq!(out(&mut mux), [(4, END, 0, 0)]);
    let (third, fourth) = (ask(&mut mux, b""), ask(&mut mux, b""));
    let plain = block.plain.len() + length(1);
    let expected =
        [(1, END_HEADERS | END, third, plain + 1), (1, END_HEADERS | END, fourth, plain)];
    assert_eq!(out(&mut mux), expected);
}

#[test]
fn large_requests_wait_for_their_windows_and_let_small_ones_pass() {
    let mut mux = settled(&[(frame::INITIAL_WINDOW_SIZE, 20_000)]);
    let body: &'static [u8] = vec![b'x'; 50_000].leak();
    let (large, small) = (ask(&mut mux, body), ask(&mut mux, b"small"));
    let frames = out(&mut mux);
    let data: Vec<_> = frames.into_iter().filter(|(kind, ..)| *kind == 0).collect();
    assert_eq!(data, [(0, 0, large, 16_384), (0, 0, large, 3616), (0, END, small, 5)]);
    let more = |stream, bytes| written(|out| frame::put_window_update(out, stream, bytes));
    receive(&mut mux, &more(large, 100_000)).expect("well");
    assert_eq!(out(&mut mux), [(0, 0, large, 16_384), (0, END, large, 13_616)]);
    // 65,535 in all before the connection's own window opens.
    let other = ask(&mut mux, body);
    assert_eq!(out(&mut mux).last(), Some(&(0, 0, other, 15_530)));
    mux.release(other, Instant::now);
    assert_eq!(out(&mut mux), [(3, 0, other, 4)]);
    assert!(mux.unsent.is_empty());
}

#[test]
fn an_unread_stream_costs_its_window_and_no_more() {
    let mut mux = settled(&[]);
    let (unread, read) = (ask(&mut mux, b""), ask(&mut mux, b""));
    out(&mut mux);
    let heads = [unread, read].map(|id| frame(1, END_HEADERS, id, OK)).concat();
    receive(&mut mux, &heads).expect("well");
    for id in [unread, read] {
        assert!(mux.poll_head(&mut cx(), id).is_ready());
        mux.streams.get_mut(&id).expect("open").wanted = 0;
    }
    let piece = |id| frame(0, 0, id, &[b'x'; 16_000]);
    for _ in 0..30 {
        receive(&mut mux, &piece(unread)).expect("within the window");
        receive(&mut mux, &piece(read)).expect("within the window");
        assert!(mux.poll_data(&mut cx(), read, 1).is_ready());
    }
    assert_eq!(out(&mut mux), [(8, 0, read, 4)], "only the one that is read may go on");
    receive(&mut mux, &piece(read)).expect("within its new window");
    for _ in 0..2 {
        receive(&mut mux, &piece(unread)).expect("within the window");
    }
    let broken = receive(&mut mux, &piece(unread)).expect_err("more than the window");
    assert_eq!(broken.0, H2ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_reader_that_wants_everything_is_not_held_up_by_the_window() {
    let mut mux = settled(&[]);
    let id = ask(&mut mux, b"");
    receive(&mut mux, &frame(1, END_HEADERS, id, OK)).expect("well");
    let (mut given, mut sent) = (i64::from(STREAM_WINDOW), 0);
    // One MiB is wanted; the window is half of it.
    while sent < 1 << 20 {
        assert!(given >= 16_000, "held up after {sent}");
        receive(&mut mux, &frame(0, 0, id, &[b'x'; 16_000])).expect("within the window");
        (given, sent) = (given - 16_000, sent + 16_000);
        for (kind, _, stream, _) in out(&mut mux) {
            if (kind, stream) == (8, id) {
                given = mux.streams[&id].receive_window;
            }
        }
    }
    assert!(mux.poll_data(&mut cx(), id, 1 << 20).is_ready());
}

#[test]
fn dropping_resets_what_is_under_way_only() {
    let mut mux = settled(&[]);
    let (done, open) = (ask(&mut mux, b"a"), ask(&mut mux, b"b"));
    out(&mut mux);
    receive(&mut mux, &answer(done, b"x")).expect("well");
    mux.release(done, Instant::now);
    mux.release(open, Instant::now);
    assert_eq!(out(&mut mux), [(3, 0, open, 4)]);
    // What still arrives for either is dropped.
    receive(&mut mux, &answer(open, b"late")).expect("well");
    receive(&mut mux, &written(|out| put_reset(out, done, H2ErrorCode::NO_ERROR))).expect("well");
    assert!(!mux.has_streams() && out(&mut mux).is_empty());
    mux.close();
    assert!(!mux.is_done());
    assert_eq!(out(&mut mux), [(7, 0, 0, 8)]);
    assert!(mux.is_done());
}

#[test]
fn an_early_answer_withdraws_the_rest_of_the_request() {
    let mut mux = settled(&[(frame::INITIAL_WINDOW_SIZE, 0)]);
    let id = ask(&mut mux, b"never read");
    receive(&mut mux, &answer(id, b"too large")).expect("well");
    assert_eq!(outcome(&mut mux, id), Some(Ok((200, b"too large".to_vec()))));
    out(&mut mux);
    mux.release(id, Instant::now);
    assert_eq!(out(&mut mux), [(3, 0, id, 4)]);
}

#[test]
fn pings_are_answered_and_noticed() {
    let mut mux = settled(&[]);
    receive(&mut mux, &written(|out| put_ping(out, false, b"whatever"))).expect("well");
    assert_eq!(out(&mut mux), [(6, 1, 0, 8)]);
    mux.ping();
    assert_eq!((out(&mut mux), mux.pong), (vec![(6, 0, 0, 8)], false));
    receive(&mut mux, &written(|out| put_ping(out, true, &[0; 8]))).expect("well");
    assert!(mux.pong && out(&mut mux).is_empty());
    receive(&mut mux, &written(|out| put_goaway(out, H2ErrorCode::NO_ERROR))).expect("well");
    assert!(mux.was_told_to_leave() && mux.is_done());
}

/// Frames as a careless or hostile peer may send them.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(OK.to_vec()),
        Just(vec![0, 0, 0, 4]),
        Just(vec![0, 0, 0, 0, 0, 0, 0, 7]),
    ];
    (0..11u8, any::<u8>(), 0..8u32, payload).prop_map(|(kind, flags, stream, payload)| {
        let flags = if Flags::PADDED.0 & flags != 0 && kind != 1 { flags & !8 } else { flags };
        frame(kind, flags, stream, &payload)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// However what arrives is cut, it ends alike.
    #[test]
    fn cuts_make_no_difference(frames in proptest::collection::vec(any_frame(), 0..20), size in 1..50usize) {
        let bytes = frames.concat();
        let mut ends = Vec::new();
        for size in [size, bytes.len().max(1)] {
            let mut mux = settled(&[]);
            let ids = [ask(&mut mux, b"a"), ask(&mut mux, b"b"), ask(&mut mux, b"c")];
            let (mut read, mut broken) = (Vec::new(), None);
            for piece in bytes.chunks(size) {
                read.extend_from_slice(piece);
                match mux.receive(&read, Instant::now()) {
                    Ok(taken) => drop(read.drain(..taken)),
                    Err(why) => {
                        broken = Some(why);
                        break;
                    }
                }
            }
            let outcomes = broken.is_none().then(|| ids.map(|id| outcome(&mut mux, id)));
            ends.push((broken, outcomes));
        }
        prop_assert_eq!(&ends[0], &ends[1]);
    }
}

/// Streams that are asked for and abandoned before anything came.
fn abandon(mux: &mut Mux, how_many: usize, now: Instant) -> Vec<u32> {
    let abandoned: Vec<_> = (0..how_many).map(|_| ask(mux, b"")).collect();
    for id in &abandoned {
        mux.release(*id, || now);
    }
    abandoned
}

fn resets(mux: &mut Mux) -> Vec<u32> {
    out(mux).into_iter().filter(|(kind, ..)| *kind == 3).map(|(_, _, id, _)| id).collect()
}

#[test]
fn resets_are_bounded_and_what_exceeds_them_keeps_its_place() {
    let now = Instant::now();
    let mut mux = settled(&[]);
    let all = abandon(&mut mux, RESETS_MAX + 4, now);
    let (told, [open, long, cut, last]) = all.split_at(RESETS_MAX) else { panic!("four more") };
    assert_eq!(resets(&mut mux), told);
    assert_eq!(mux.abandoned(), 4);
    let hear = |mux: &mut Mux, bytes: &[u8], now| {
        mux.receive(bytes, now).expect("well");
        mux.abandoned()
    };
    // What ends by itself is let go of; answers are thrown away.
    assert_eq!(hear(&mut mux, &answer(*open, b"late"), now), 3);
    assert_eq!(hear(&mut mux, &written(|out| put_reset(out, *cut, H2ErrorCode::CANCEL)), now), 2);
    hear(&mut mux, &frame(1, END_HEADERS, *long, OK), now);
    let mut given = i64::from(STREAM_WINDOW);
    let mut sent = 0;
    while given >= 16_000 {
        hear(&mut mux, &frame(0, 0, *long, &[b'x'; 16_000]), now);
        (given, sent) = (mux.streams[long].receive_window, sent + 16_000);
        assert!(mux.streams[long].data.is_empty());
    }
    assert!((1..3).contains(&(sent >> 20)), "an answer without an end was taken in: {sent}");
    out(&mut mux);
    // With the next window there is budget for them.
    let ping = written(|out| put_ping(out, true, &[0; 8]));
    assert_eq!(hear(&mut mux, &ping, now + RESETS_WINDOW - Duration::from_millis(1)), 2);
    assert!(resets(&mut mux).is_empty());
    assert_eq!(hear(&mut mux, &ping, now + RESETS_WINDOW), 0);
    assert_eq!(resets(&mut mux), [*long, *last]);
    assert!(!mux.has_streams());
}

#[test]
fn a_connection_whose_streams_are_all_abandoned_may_end() {
    let now = Instant::now();
    let mut mux = settled(&[]);
    abandon(&mut mux, RESETS_MAX + 1, now);
    mux.close();
    out(&mut mux);
    assert!(mux.has_streams() && mux.is_done());
}

#[test]
fn how_the_peer_ends_a_connection_is_noted() {
    let asked = |how_many: usize| {
        let mut mux = settled(&[]);
        let ids: Vec<_> = (0..how_many).map(|_| ask(&mut mux, b"")).collect();
        for id in &ids[..10] {
            receive(&mut mux, &answer(*id, b"x")).expect("well");
            mux.release(*id, Instant::now);
        }
        mux
    };
    let goaway = |last: u32, reason: H2ErrorCode| {
        frame(7, 0, 0, &[last.to_be_bytes(), reason.0.to_be_bytes()].concat())
    };
    let told = |mux: &mut Mux| mux.take_ending().map(|e| (e.manner, e.open, e.peak, e.requests));
    let (orderly, abrupt) = (Manner::Orderly, Manner::Abrupt);
    let check = |last, reason, expected| {
        let mut mux = asked(110);
        receive(&mut mux, &goaway(last, reason)).expect("well");
        assert_eq!(told(&mut mux), Some(expected), "GOAWAY {last}");
        mux
    };
    check(u32::MAX >> 1, H2ErrorCode::NO_ERROR, (orderly, 100, 110, 110));
    check(0, H2ErrorCode::ENHANCE_YOUR_CALM, (abrupt, 100, 110, 0));
    let mut mux = check(2 * 59 - 1, H2ErrorCode::NO_ERROR, (orderly, 50, 110, 59));
    // Those it took in are lost after all.
    mux.lost();
    assert_eq!(told(&mut mux), Some((abrupt, 49, 110, 61)));
    let mut mux = check(0, H2ErrorCode::ENHANCE_YOUR_CALM, (abrupt, 100, 110, 0));
    mux.lost();
    assert_eq!(told(&mut mux), None, "told already");
    let mut mux = asked(50);
    mux.lost();
    assert_eq!(told(&mut mux), Some((abrupt, 40, 50, 10)));
    let mut mux = asked(50);
    mux.close();
    mux.lost();
    assert_eq!(told(&mut mux), None, "our own doing");
}

#[test]
fn a_storm_of_resets_is_noted_once() {
    let mut mux = settled(&[]);
    let ids: Vec<_> = (0..60).map(|_| ask(&mut mux, b"")).collect();
    let noted = |mux: &mut Mux, ids: &[u32], reason| {
        let storm = ids.iter().flat_map(|id| written(|out| put_reset(out, *id, reason)));
        receive(mux, &storm.collect::<Vec<_>>()).expect("well");
        mux.take_ending().map(|ending| (ending.manner, ending.open))
    };
    assert_eq!(noted(&mut mux, &ids[..MANY - 1], H2ErrorCode::CANCEL), None);
    assert_eq!(noted(&mut mux, &ids[MANY - 1..], H2ErrorCode::CANCEL), Some((Manner::Abrupt, 60)));
    let ids: Vec<_> = (0..60).map(|_| ask(&mut mux, b"")).collect();
    assert_eq!(noted(&mut mux, &ids, H2ErrorCode::REFUSED_STREAM), None, "safe to repeat");
}

#[test]
fn a_ping_proves_what_is_open_behind_it() {
    let mut mux = settled(&[]);
    let ids: Vec<_> = (0..50).map(|_| ask(&mut mux, b"")).collect();
    mux.ping();
    ask(&mut mux, b"later");
    receive(&mut mux, &answer(ids[7], b"x")).expect("well");
    receive(&mut mux, &written(|out| put_ping(out, true, &[0; 8]))).expect("well");
    assert_eq!((mux.take_proven(), mux.take_proven()), (Some(49), None));
}

#[test]
fn large_frames_are_read_to_where_they_belong() {
    let check = |read: usize, cut: usize, ends: bool| {
        let mut mux = Mux::new(false, true);
        receive(&mut mux, &written(|out| put_settings(out, &[]))).expect("well");
        let id = ask(&mut mux, b"");
        let body: Vec<u8> = (0..LARGE_FRAME_BYTES).map(|n| n as u8).collect();
        let flags = if ends { END } else { 0 };
        let bytes = [frame(1, END_HEADERS, id, OK), frame(0, flags, id, &body)].concat();
        let (first, mut rest) = bytes.split_at(cut);
        receive(&mut mux, first).expect("well");
        while let Some(mut room) = mux.room() {
            let some = rest.len().min(read).min(room.remaining_mut());
            room.put_slice(&rest[..some]);
            rest = &rest[some..];
            mux.received_directly(some);
        }
        assert!(rest.len() < DIRECT_BYTES_MIN, "{} bytes were left", rest.len());
        receive(&mut mux, rest).expect("well");
        if !ends {
            receive(&mut mux, &frame(0, END, id, b"")).expect("well");
        }
        assert_eq!(outcome(&mut mux, id), Some(Ok((200, body))), "{read} {cut}");
    };
    for read in [1, 999, 1 << 20] {
        for cut in [19, 20, 5000, 200_000] {
            check(read, cut, cut == 20);
        }
    }
}

#[test]
fn nothing_is_read_for_a_stream_that_was_released() {
    let mut mux = Mux::new(false, true);
    receive(&mut mux, &written(|out| put_settings(out, &[]))).expect("well");
    let id = ask(&mut mux, b"");
    let bytes = [frame(1, END_HEADERS, id, OK), frame(0, 0, id, &[0; 100_000])].concat();
    receive(&mut mux, &bytes[..50]).expect("well");
    assert!(mux.room().is_some());
    mux.release(id, Instant::now);
    assert!(mux.room().is_none());
    receive(&mut mux, &bytes[50..]).expect("well");
}

#[test]
fn an_answer_that_fits_its_window_needs_no_more_of_it() {
    let check = |length: &str, sent: usize, updates: usize| {
        let mut mux = settled(&[]);
        let id = ask(&mut mux, b"");
        let field = [b"\x88\x0f\x0d", &[length.len() as u8][..], length.as_bytes()].concat();
        receive(&mut mux, &frame(1, END_HEADERS, id, &field)).expect("well");
        for _ in 0..sent / 10_000 {
            receive(&mut mux, &frame(0, 0, id, &[0; 10_000])).expect("well");
        }
        let asked = out(&mut mux).into_iter().filter(|(kind, ..)| *kind == 8).count();
        assert_eq!(asked, updates, "{length}");
    };
    check("300000", 290_000, 0);
    check("520000", 510_000, 0);
    check("1000000", 990_000, 2);
}
