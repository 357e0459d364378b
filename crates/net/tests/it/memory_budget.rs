//! Answers within a memory budget: what is held stays within it, and all of it is given back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use wellhead_net::HttpTransport;
use wellhead_transport::{
    Exchange, FREE_BYTES, MemoryBudget, Shortage, Transport as _, TransportError,
    TransportErrorKind, WireReply,
};

use crate::support::*;

const LEN: usize = 700_000;
/// Room for three of them.
const BYTES_MAX: usize = 2_200_000;
/// What is read before there must be room, and one read from a socket on top of it.
const PIECE: usize = FREE_BYTES + (64 << 10);

/// Answers with so many bytes: announced, in chunks, or after a word on the way.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while let Some(request) = read_request(&mut stream).await {
        let (manner, len) = request.body.split_once(' ').expect("a manner and a length");
        let body = "x".repeat(len.parse().expect("a number"));
        let answer = match manner {
            "chunked" => format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            ),
            "stuck" => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", LEN * 2),
            _ => ok(&body),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn stage() -> (Server, HttpTransport, Arc<MemoryBudget>) {
    let server = Server::start(|stream, _| serve(stream)).await;
    let memory = Arc::new(MemoryBudget::new(BYTES_MAX));
    let mut upstream = Upstream::h1(&server);
    upstream.shared.answers = Arc::clone(&memory);
    let transport = upstream.transport();
    (server, transport, memory)
}

async fn get(
    transport: &HttpTransport,
    question: &str,
    whole_max: usize,
) -> Result<WireReply, TransportError> {
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(3_600)).into_std();
    let body = Bytes::copy_from_slice(question.as_bytes());
    transport.exchange(Exchange { body, deadline, whole_max, bulky: false, trace: None }).await
}

/// Twenty answers at once, of which three fit: those are whole, and the others come in part,
/// with all that was left out.
async fn check(manner: &str) {
    let (_server, transport, memory) = stage().await;
    let mut replies = Vec::new();
    for _ in 0..20 {
        replies.push(get(&transport, &format!("{manner} {LEN}"), 1 << 20).await.expect("well"));
    }
    let whole = replies.iter().filter(|reply| reply.rest.is_none()).count();
    // One whose length is not known asks for all that may be held of it.
    assert!(whole == 3 || (manner == "chunked" && whole == 2), "{manner}: {whole}");
    let held: usize = replies.iter().map(|reply| reply.body.len()).sum();
    assert_eq!(memory.held(), held, "{manner}");
    assert!(memory.peak() <= BYTES_MAX + 20 * PIECE, "{manner}: {}", memory.peak());
    for mut reply in replies {
        let mut len = reply.body.len();
        if let Some(rest) = &mut reply.rest {
            assert!(len <= PIECE, "{manner}: {len} bytes without room for them");
            while let Some(piece) = rest.next().await {
                len += piece.expect("well").len();
            }
        }
        assert_eq!(len, LEN, "{manner}");
    }
    assert_eq!(memory.held(), 0, "{manner}");
}

#[tokio::test]
async fn what_does_not_fit_comes_in_part() {
    for manner in ["announced", "chunked"] {
        check(manner).await;
    }
}

#[tokio::test]
async fn a_caller_that_wants_everything_is_told_that_there_is_no_room() {
    let (_server, transport, memory) = stage().await;
    let question = format!("announced {LEN}");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(get(&transport, &question, usize::MAX).await.expect("room"));
    }
    let refused = get(&transport, &question, usize::MAX).await.expect_err("no room");
    assert_eq!(refused.kind, TransportErrorKind::NoRoom);
    assert_eq!(memory.shortages(Shortage::Refused), 1);
    // A small one needs none, and one that is written makes room for the next.
    assert_eq!(
        get(&transport, "announced 16384", usize::MAX).await.expect("small").body.len(),
        16_384
    );
    held.pop();
    assert_eq!(get(&transport, &question, usize::MAX).await.expect("room").body.len(), LEN);
}

#[tokio::test]
async fn an_answer_that_is_not_waited_for_gives_its_room_back() {
    let (_server, transport, memory) = stage().await;
    let question = format!("stuck {LEN}");
    let mut asked = Box::pin(get(&transport, &question, usize::MAX));
    for _ in 0..2_000_000 {
        let poll = futures_util::poll!(asked.as_mut());
        assert!(poll.is_pending(), "half of it never comes");
        if memory.held() > 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    // All that was announced, before it is there.
    assert_eq!(memory.held(), 2 * LEN);
    drop(asked);
    assert_eq!(memory.held(), 0);
}
