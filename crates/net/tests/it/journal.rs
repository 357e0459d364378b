//! What is noted of connections, and what an exchange is told of its way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use wellhead_net::{
    CloseReason, ConnectionStats, ExchangeTimeline, HttpTransport, HttpVersion, Journal,
    JournalEntry, JournalEvent, Protocol,
};
use wellhead_transport::WireReply;

use crate::h2::{Frames, echo_h2, serve_h2};
use crate::support::*;
use crate::tls::Authority;

fn noted(mut upstream: Upstream) -> (HttpTransport, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    upstream.settings.resend = false;
    upstream.shared.stats = Arc::new(ConnectionStats::with_journal(Arc::clone(&journal)));
    (upstream.transport(), journal)
}

async fn told(transport: &HttpTransport, question: &str) -> (Option<WireReply>, ExchangeTimeline) {
    let mut passage = ExchangeTimeline::default();
    let reply = transport.exchange_told(exchange(question, PATIENCE), &mut passage).await;
    (reply.ok(), passage)
}

fn named(events: &[JournalEntry]) -> Vec<(u64, &'static str)> {
    let word = |event: &JournalEntry| match event.what {
        JournalEvent::Opened { .. } => "opened",
        JournalEvent::Settings(_) => "settings",
        JournalEvent::Goaway { .. } => "goaway",
        JournalEvent::Reset { .. } => "reset",
        JournalEvent::Closed { .. } => "closed",
    };
    events.iter().map(|event| (event.connection, word(event))).collect()
}

#[tokio::test]
async fn exchanges_over_http1_are_told_their_way() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        let first = "HTTP/1.1 200 OK\r\nX-RateLimit-Remaining: 41\r\nx-secret: KEY\r\n\
                     content-length: 2\r\n\r\nok";
        write(&mut stream, first).await;
        read_request(&mut stream).await.expect("a second request");
        let last = "HTTP/1.1 429 Slow\r\nretry-after: 7\r\nconnection: close\r\n\
                    content-length: 0\r\n\r\n";
        write(&mut stream, last).await;
    })
    .await;
    let (transport, journal) = noted(Upstream::h1(&server));
    let (_, first) = told(&transport, "one").await;
    let (reply, second) = told(&transport, "two").await;
    assert_eq!(reply.map(|reply| reply.status), Some(429));
    let limit = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    assert_eq!(first.limits, limit("x-ratelimit-remaining", "41"));
    assert_eq!(second.limits, limit("retry-after", "7"));
    for passage in [&first, &second] {
        assert_eq!((passage.connection, passage.stream), (Some(1), None));
        assert_eq!(passage.protocol, Some(Protocol::H1));
        assert!(passage.write.is_some() && passage.first_byte.is_some(), "{passage:?}");
    }
    assert!(first.set_up.is_some_and(|set_up| set_up.tcp > Duration::ZERO), "{first:?}");
    assert_eq!(second.set_up, None);
    let events = journal.take();
    assert_eq!(named(&events), [(1, "opened"), (1, "closed")]);
    let closed = JournalEvent::Closed { reason: CloseReason::Replaced, requests: 2, in_flight: 0 };
    assert_eq!(events[1].what, closed);
}

#[tokio::test]
async fn an_answer_that_never_came_is_in_flight() {
    let server = Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
    })
    .await;
    let (transport, journal) = noted(Upstream::h1(&server));
    let (reply, passage) = told(&transport, "one").await;
    assert!(reply.is_none());
    assert_eq!((passage.connection, passage.first_byte), (Some(1), None));
    let closed = JournalEvent::Closed { reason: CloseReason::Peer, requests: 1, in_flight: 1 };
    assert_eq!(journal.take().pop().map(|event| event.what), Some(closed));
}

#[tokio::test]
async fn exchanges_over_http2_are_told_their_stream() {
    let server = Server::start(|stream, _| async move {
        let handle = |mut call: crate::h2::Call| async move {
            if call.body().await.is_some() {
                let response = Response::builder()
                    .header("x-ratelimit-limit", "100")
                    .header("retry-after", "3")
                    .header("x-other", "KEY");
                let response = response.body(()).expect("headers");
                let _ = call.reply.send_response(response, true);
            }
        };
        serve_h2(stream, handle, |b| _ = b.max_concurrent_streams(77), Some(3)).await;
    })
    .await;
    let (transport, journal) = noted(Upstream::auto(&server));
    let mut streams = Vec::new();
    for nth in 0..3 {
        let (reply, passage) = told(&transport, "question").await;
        assert_eq!(reply.map(|reply| reply.status), Some(200));
        assert_eq!((passage.connection, passage.protocol), (Some(1), Some(Protocol::H2)));
        assert_eq!(passage.set_up.is_some(), nth == 0, "{passage:?}");
        assert!(passage.write.is_some() && passage.first_byte.is_some(), "{passage:?}");
        let mut limits = passage.limits;
        limits.sort();
        let told: Vec<String> =
            limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(told, ["retry-after 3", "x-ratelimit-limit 100"], "of the table too");
        streams.extend(passage.stream);
    }
    assert_eq!(streams, [1, 3, 5]);
    let (_, other) = told(&transport, "question").await;
    assert_eq!((other.connection, other.stream), (Some(2), Some(1)));
    let events = journal.take();
    assert_eq!(named(&events)[..3], [(1, "opened"), (1, "settings"), (1, "goaway")]);
    let JournalEvent::Settings(settings) = &events[1].what else { panic!("{events:?}") };
    assert!(settings.contains(&(3, 77)), "{settings:?}");
    let closed = events
        .iter()
        .find(|event| event.connection == 1 && named(&[(*event).clone()])[0].1 == "closed");
    let closed = closed.map(|event| event.what.clone());
    let reason = CloseReason::Replaced;
    assert_eq!(closed, Some(JournalEvent::Closed { reason, requests: 3, in_flight: 0 }));
}

#[tokio::test]
async fn resets_and_farewells_are_noted_with_their_codes() {
    let server = Server::start(|stream, _| async move {
        let mut frames = Frames::accept(stream).await;
        // SETTINGS and the acknowledgement; then the first stream is reset, and GOAWAY says why.
        write(&mut frames.stream, b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0").await;
        while frames.next().await.expect("more frames") != (1, 1) {}
        write(&mut frames.stream, b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07").await;
        write(&mut frames.stream, b"\0\0\x0c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0bcalm").await;
        closed(&mut frames.stream).await;
    })
    .await;
    let (transport, journal) = noted(Upstream::auto(&server));
    let (reply, passage) = told(&transport, "question").await;
    assert!(reply.is_none());
    assert_eq!((passage.connection, passage.stream), (Some(1), Some(1)));
    let mut events: Vec<JournalEvent> = Vec::new();
    while !matches!(events.last(), Some(JournalEvent::Closed { .. })) {
        events.extend(journal.take().into_iter().map(|event| event.what));
        tokio::task::yield_now().await;
    }
    assert_eq!(events[2], JournalEvent::Reset { stream: 1, code: 7 });
    let debug = "calm".to_owned();
    assert_eq!(events[3], JournalEvent::Goaway { code: 11, last_stream: 0, debug });
}

#[tokio::test]
async fn what_tls_agreed_on_and_took_is_told() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(&["h2", "http/1.1"]);
    let server = Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move { echo_h2(acceptor.accept(stream).await.expect("a handshake")).await }
    })
    .await;
    let url = format!("https://localhost:{}/SECRET", server.address.port());
    let mut upstream = Upstream::new(&url, HttpVersion::Auto);
    authority.trusted_by(&mut upstream);
    let (transport, journal) = noted(upstream);
    let (reply, passage) = told(&transport, "question").await;
    assert_eq!(reply.map(|reply| reply.body), Some(Bytes::from("question")));
    let set_up = passage.set_up.expect("it waited for the connection");
    assert!(set_up.tls > Duration::ZERO && set_up.tcp > Duration::ZERO, "{set_up:?}");
    let opened = JournalEvent::Opened { protocol: Protocol::H2, alpn: Some(Protocol::H2), set_up };
    assert_eq!(journal.take()[0].what, opened);
}

#[tokio::test]
async fn without_a_journal_nothing_is_told() {
    let server = Server::start(|stream, _| echo_h2(stream)).await;
    let (reply, passage) = told(&Upstream::auto(&server).transport(), "question").await;
    assert!(reply.is_some());
    assert_eq!(passage, ExchangeTimeline { stream: Some(1), ..passage.clone() });
    assert_eq!((passage.connection, passage.limits.len()), (None, 0));
}
