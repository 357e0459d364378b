//! One connection against a scripted peer in memory: every answer arrives cut at
//! every place.

use std::sync::Arc;

use super::*;
use crate::body::{BodyLimits, receive};
use crate::endpoint::{Endpoint, Purpose};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use wellhead_telemetry::SecretUrl;

fn prepared() -> Prepared {
    let url = SecretUrl::parse("http://localhost/").expect("a URL");
    let purpose = Purpose::Calls { compression: None };
    Prepared::new(&Endpoint::new(url), purpose).expect("usable")
}

/// A connection whose peer has `room` for what we write.
fn connection(room: usize) -> (H1Connection, DuplexStream) {
    let (ours, peer) = duplex(room);
    let now = Instant::now();
    (H1Connection::new(Stream::Memory(Box::new(ours)), now, now), peer)
}

/// Status, first part and rest of what was answered, or the kind of failure;
/// and why the connection is of no more use.
type Outcome = (Result<(u16, String, String), TransportErrorKind>, Option<CloseReason>);

/// Plays an answer that arrives in `pieces`, after which the peer closes.
async fn play(pieces: &[&[u8]], closes: bool, whole_max: usize) -> Outcome {
    let (mut connection, mut peer) = connection(1 << 20);
    let prepared = prepared();
    let ask = async {
        let body = Bytes::from_static(b"question");
        let now = Instant::now();
        let head = connection.exchange(&prepared, &OutgoingCall::new(body.clone()), now).await;
        let head = head?;
        let limits = BodyLimits { whole_max, answer_bytes_max: 1 << 20 };
        let received = receive(&mut connection, head.body, limits, &Arc::default()).await?;
        let mut rest = Vec::new();
        if let Some(mut more) = received.more {
            while let Some(piece) = more.next(&mut connection, 1).await.transpose()? {
                assert!(!piece.is_empty());
                rest.extend_from_slice(&piece);
            }
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        Ok::<_, TransportError>((head.status, text(&received.body), text(&rest)))
    };
    let answer = async {
        for piece in pieces {
            peer.write_all(piece).await.expect("room");
            // The reader takes it before the next one is written.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }
        match closes {
            true => drop(peer),
            false => std::future::pending().await,
        }
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        biased;
        outcome = ask => outcome,
        () = answer => unreachable!("it never ends"),
    };
    let unfit = connection.unfit();
    (outcome.map_err(|error| error.kind), unfit)
}

/// Expects `expected` wherever the answer is cut in two, and byte by byte.
async fn check(answer: &str, expected: &Outcome) {
    let bytes = answer.as_bytes();
    let ends = expected.0.is_ok() && expected.1.is_none();
    for cut in 0..=bytes.len() {
        let pieces = [&bytes[..cut], &bytes[cut..]];
        assert_eq!(&play(&pieces, !ends, usize::MAX).await, expected, "{answer:?} at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(&play(&single, !ends, usize::MAX).await, expected, "{answer:?} byte by byte");
}

fn good(status: u16, body: &str) -> Outcome {
    (Ok((status, body.to_owned(), String::new())), None)
}

fn last(status: u16, body: &str, reason: CloseReason) -> Outcome {
    (Ok((status, body.to_owned(), String::new())), Some(reason))
}

fn bad(kind: TransportErrorKind) -> Outcome {
    (Err(kind), Some(CloseReason::Abandoned))
}

#[tokio::test]
async fn answers_are_read_however_they_arrive() {
    check("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nanswer", &good(200, "answer")).await;
    check("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", &good(503, "")).await;
    check("HTTP/1.1 204 No\r\n\r\n", &good(204, "")).await;
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    check(&format!("{chunks}3\r\nans\r\n3;x\r\nwer\r\n0\r\n\r\n"), &good(200, "answer")).await;
    check(&format!("{chunks}1\r\na\r\n0\r\nx: y\r\n\r\n"), &good(200, "a")).await;
    check(&format!("{chunks}0\r\n\r\n"), &good(200, "")).await;
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na";
    check(&format!("{interim}{answer}"), &good(200, "a")).await;
}

#[tokio::test]
async fn answers_that_end_the_connection() {
    use CloseReason::Replaced;
    let answer = "HTTP/1.0 200 OK\r\n\r\nall of it";
    check(answer, &last(200, "all of it", Replaced)).await;
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\na";
    check(answer, &last(200, "a", Replaced)).await;
}

#[tokio::test]
async fn what_follows_an_answer_belongs_to_no_call() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab";
    let expected = last(200, "a", CloseReason::BadAnswer);
    assert_eq!(play(&[answer], false, usize::MAX).await, expected);
    let two = b"HTTP/1.1 204 OK\r\n\r\nHTTP/1.1 204 OK\r\n\r\n";
    assert_eq!(play(&[two], false, usize::MAX).await, last(204, "", CloseReason::BadAnswer));
}

#[tokio::test]
async fn failures_are_told_apart() {
    use TransportErrorKind::{Closed, Protocol, Truncated};
    check("", &bad(Closed)).await;
    check("HTTP/1.1 20", &bad(Truncated)).await;
    check("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n", &bad(Truncated)).await;
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", &bad(Truncated)).await;
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for cut in ["", "3", "3\r\nab", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n", "0\r\nx: y\r\n"] {
        check(&format!("{chunks}{cut}"), &bad(Truncated)).await;
    }
    check(&format!("{chunks}z\r\n"), &bad(Protocol)).await;
    check("SSH-2.0-OpenSSH_9.6\r\n", &bad(Protocol)).await;
    check("HTTP/1.1 101 Switching\r\n\r\n", &bad(Protocol)).await;
    let interims = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_MAX + 1);
    assert_eq!(play(&[interims.as_bytes()], false, usize::MAX).await, bad(Protocol));
}

#[tokio::test]
async fn long_answers_are_read_in_part_and_then_on_demand() {
    let body: String = ('a'..='z').cycle().take(300_000).collect();
    let length = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    for (nth, piece) in body.as_bytes().chunks(33_000).enumerate() {
        // Small chunks between large ones.
        for piece in piece.chunks(if nth % 2 == 0 { 33_000 } else { 700 }) {
            let piece = std::str::from_utf8(piece).expect("text");
            chunks.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
    }
    chunks.push_str("0\r\n\r\n");
    for answer in [length, chunks] {
        for size in [1000, 65_536, answer.len()] {
            let pieces: Vec<&[u8]> = answer.as_bytes().chunks(size).collect();
            for whole_max in [0, 5000, 200_000] {
                let (outcome, unfit) = play(&pieces, false, whole_max).await;
                let (status, first, rest) = outcome.expect("an answer");
                assert_eq!((status, unfit), (200, None));
                assert!((whole_max.max(1)..body.len()).contains(&first.len()));
                assert!(first.len() <= whole_max + 2 * PIECE, "{} bytes", first.len());
                assert!(first + &rest == body, "{size} {whole_max}");
            }
            let (outcome, unfit) = play(&pieces, false, body.len()).await;
            assert!(outcome.expect("an answer").1 == body && unfit.is_none());
        }
        let cut: Vec<&[u8]> = vec![&answer.as_bytes()[..answer.len() - 3]];
        assert_eq!(play(&cut, true, 5000).await.0, Err(TransportErrorKind::Truncated));
    }
}

#[tokio::test]
async fn nothing_more_is_read_than_is_asked_for() {
    let (mut connection, mut peer) = connection(PIECE);
    let body = Bytes::from_static(b"question");
    let prepared = prepared();
    peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.expect("room");
    let head =
        connection.exchange(&prepared, &OutgoingCall::new(body.clone()), Instant::now()).await;
    let head = head.expect("a head").body;
    let limits = BodyLimits { whole_max: 1000, answer_bytes_max: 1 << 20 };
    let mut written = 0;
    let mut read = 0;
    let mut more = None;
    while written + PIECE <= 1_000_000 {
        // What the peer can write without waiting is what was taken from it.
        let piece = vec![b'x'; PIECE];
        peer.write_all(&piece).await.expect("room for one");
        written += PIECE;
        let mut one_more = pin!(peer.write(b"x"));
        let is_full = poll_fn(|cx| Poll::Ready(one_more.as_mut().poll(cx).is_pending()));
        assert!(is_full.await, "more was taken than asked for");
        let piece = match &mut more {
            None => {
                let received =
                    receive(&mut connection, head, limits, &Arc::default()).await.expect("a part");
                more = received.more;
                received.body
            }
            Some(more) => more.next(&mut connection, 1).await.expect("more").expect("well"),
        };
        read += piece.len();
        while read < written {
            let decoding = more.as_mut().expect("not whole");
            read += decoding.next(&mut connection, 1).await.expect("more").expect("well").len();
        }
    }
    assert_eq!(connection.unfit(), Some(CloseReason::Abandoned));
}

#[tokio::test]
async fn a_peer_that_answers_while_it_reads_gets_the_rest() {
    let (mut connection, mut peer) = connection(4096);
    let body = Bytes::from(vec![b'x'; 100_000]);
    let prepared = prepared();
    let serve = async {
        peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await.expect("room");
        let mut read = vec![0; prepared.h1_head.len() + b"100000\r\n\r\n".len() + body.len()];
        peer.read_exact(&mut read).await.expect("the whole request");
        peer.write_all(b"done").await.expect("room");
        assert!(read.ends_with(b"xxx"));
    };
    let ask = async {
        let now = Instant::now();
        let head = connection.exchange(&prepared, &OutgoingCall::new(body.clone()), now).await;
        let limits = BodyLimits { whole_max: 100, answer_bytes_max: 100 };
        let head = head.expect("a head").body;
        receive(&mut connection, head, limits, &Arc::default()).await.expect("whole").body
    };
    let (answer, ()) = tokio::join!(ask, serve);
    assert_eq!(answer, "done");
    assert_eq!(connection.unfit(), Some(CloseReason::Stuck), "an early answer");
}

#[tokio::test]
async fn an_idle_connection_tells_of_its_end() {
    let (mut connection, mut peer) = connection(1000);
    let mut first = Context::from_waker(Waker::noop());
    assert!(connection.poll_ended(&mut first).is_pending());
    peer.write_all(b"unasked").await.expect("room");
    assert!(connection.poll_ended(&mut first).is_ready());
    connection.reused = true;
    let body = Bytes::new();
    let refused =
        connection.exchange(&prepared(), &OutgoingCall::new(body.clone()), Instant::now()).await;
    let error = refused.expect_err("not to be used");
    assert_eq!((error.kind, error.sent), (TransportErrorKind::Closed, Sent::No));
}

#[tokio::test]
async fn small_chunks_leave_time_for_others() {
    const CHUNKS: usize = 50_000;
    let (mut connection, mut peer) = connection(1 << 20);
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{}0\r\n\r\n", "1\r\na\r\n".repeat(CHUNKS));
    peer.write_all(answer.as_bytes()).await.expect("room");
    let (prepared, body) = (prepared(), Bytes::from_static(b"question"));
    let head =
        connection.exchange(&prepared, &OutgoingCall::new(body.clone()), Instant::now()).await;
    let head = head.expect("a head");
    let limits = BodyLimits { whole_max: usize::MAX, answer_bytes_max: 1 << 20 };
    let memory = Arc::default();
    let mut receiving = pin!(receive(&mut connection, head.body, limits, &memory));
    let mut turns = 0;
    let received = std::future::poll_fn(|cx| {
        turns += 1;
        receiving.as_mut().poll(cx)
    });
    assert_eq!(received.await.expect("whole").body.len(), CHUNKS);
    // All of it was there from the start; still others had their turns.
    assert!(turns > CHUNKS / STEPS_MAX, "{turns} turns");
}
