//! HTTP/2: sharing, limits, refusals, GOAWAY, resets, silence.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Response;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use wellhead_net::{CloseReason, Protocol};
use wellhead_transport::{Sent, Transport as _, TransportErrorKind as Kind};

use crate::support::*;

/// A request on its way in, and the handle to answer it.
pub(crate) struct Call {
    body: RecvStream,
    pub(crate) reply: SendResponse<Bytes>,
}

impl Call {
    /// The whole body; `None` when the peer reset the stream meanwhile.
    pub(crate) async fn body(&mut self) -> Option<Bytes> {
        let mut whole = Vec::new();
        while let Some(data) = self.body.data().await {
            let data = data.ok()?;
            let _ = self.body.flow_control().release_capacity(data.len());
            whole.extend_from_slice(&data);
        }
        Some(whole.into())
    }

    /// Answers 200 with `body`.
    pub(crate) fn answer(mut self, body: impl Into<Bytes>) {
        // Fails when the peer has left, which is the peer's affair.
        if let Ok(mut stream) = self.reply.send_response(Response::new(()), false) {
            let _ = stream.send_data(body.into(), true);
        }
    }
}

/// Serves HTTP/2: each request goes to `handle`, as a task. After `leave_after`
/// requests it says GOAWAY, sparing those.
pub(crate) async fn serve_h2<F, Fut>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    handle: F,
    build: impl FnOnce(&mut h2::server::Builder),
    leave_after: Option<usize>,
) where
    F: Fn(Call) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut builder = h2::server::Builder::new();
    build(&mut builder);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else { return };
    let mut taken = 0;
    if leave_after == Some(0) {
        connection.graceful_shutdown();
    }
    let mut tasks = tokio::task::JoinSet::new();
    while let Some(Ok((request, reply))) = connection.accept().await {
        tasks.spawn(handle(Call { body: request.into_body(), reply }));
        taken += 1;
        if leave_after == Some(taken) {
            connection.graceful_shutdown();
        }
    }
}

/// Answers each request with its own body.
pub(crate) async fn echo_h2(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let handle = |mut call: Call| async move {
        if let Some(body) = call.body().await {
            call.answer(body);
        }
    };
    serve_h2(stream, handle, |_| {}, None).await;
}

/// Counts what is in flight and answers only when a permit is given.
#[derive(Clone)]
struct Gate {
    permits: Arc<Semaphore>,
    now: Arc<AtomicUsize>,
    peak: Arc<AtomicUsize>,
}

impl Gate {
    fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), now: Arc::default(), peak: Arc::default() }
    }

    async fn handle(self, mut call: Call) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.peak.fetch_max(now, SeqCst);
        let body = call.body().await;
        self.permits.acquire().await.expect("never closed").forget();
        self.now.fetch_sub(1, SeqCst);
        if let Some(body) = body {
            call.answer(body);
        }
    }
}

async fn gated(streams_max: u32) -> (Server, Gate) {
    let gate = Gate::new();
    let handler = gate.clone();
    let server = Server::start(move |stream, _| {
        let gate = handler.clone();
        async move {
            let handle = move |call| gate.clone().handle(call);
            serve_h2(stream, handle, |b| _ = b.max_concurrent_streams(streams_max), None).await;
        }
    })
    .await;
    (server, gate)
}

async fn all_answered(
    asked: Vec<
        tokio::task::JoinHandle<
            Result<wellhead_transport::WireReply, wellhead_transport::TransportError>,
        >,
    >,
) {
    for (n, asked) in asked.into_iter().enumerate() {
        let reply = asked.await.expect("no panic").expect("an answer");
        assert_eq!(reply.body, format!("q{n}"));
    }
}

#[tokio::test]
async fn exchanges_share_a_connection() {
    let (server, gate) = gated(1000).await;
    let upstream = Upstream::auto(&server).set(|s| s.h2_connections_max = 1);
    let transport = upstream.transport();
    let asked: Vec<_> = (0..50).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    until("all are in flight", || gate.now.load(SeqCst) == 50).await;
    gate.permits.add_permits(50);
    all_answered(asked).await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn announced_streams_are_respected() {
    let (server, gate) = gated(5).await;
    let upstream = Upstream::auto(&server).set(|s| s.h2_connections_max = 1);
    let transport = upstream.transport();
    let asked: Vec<_> = (0..40).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = transport.stats();
    until("the rest waits", || gate.now.load(SeqCst) == 5 && stats.waiting() == 35).await;
    gate.permits.add_permits(40);
    all_answered(asked).await;
    assert_eq!(gate.peak.load(SeqCst), 5);
    assert_eq!((server.accepted(), stats.waiting()), (1, 0));
}

#[tokio::test]
async fn the_cap_of_the_settings_holds_where_nothing_is_announced() {
    let gate = Gate::new();
    let handler = gate.clone();
    let server = Server::start(move |stream, _| {
        let gate = handler.clone();
        async move { serve_h2(stream, move |call| gate.clone().handle(call), |_| {}, None).await }
    })
    .await;
    let upstream = Upstream::auto(&server).set(|s| {
        s.h2_connections_max = 1;
        s.h2_streams_max = 20;
    });
    let transport = upstream.transport();
    let asked: Vec<_> = (0..30).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = transport.stats();
    until("ten wait", || gate.now.load(SeqCst) == 20 && stats.waiting() == 10).await;
    assert!(!transport.has_room(false));
    gate.permits.add_permits(30);
    all_answered(asked).await;
    assert_eq!(gate.peak.load(SeqCst), 20);
    assert!(transport.has_room(false) && transport.has_room(true));
}

#[tokio::test]
async fn load_opens_more_connections_up_to_the_bound() {
    let (server, gate) = gated(10).await;
    let upstream = Upstream::auto(&server).set(|s| s.h2_connections_max = 3);
    let transport = upstream.transport();
    let asked: Vec<_> = (0..40).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = transport.stats();
    until("three are full", || gate.now.load(SeqCst) == 30 && stats.waiting() == 10).await;
    assert_eq!(stats.open(Protocol::H2), 3);
    gate.permits.add_permits(40);
    all_answered(asked).await;
    assert_eq!(server.accepted(), 3);
}

const SETTINGS_FRAME: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const ACK_FRAME: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];

fn goaway(last_stream: u8) -> [u8; 17] {
    [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, last_stream, 0, 0, 0, 0]
}

/// Reads frames by hand after the preface: HTTP/2 as no library would do it.
pub(crate) struct Frames<S> {
    pub(crate) stream: S,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Takes the preface.
    pub(crate) async fn accept(mut stream: S) -> Self {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.expect("a preface");
        assert!(preface.starts_with(b"PRI * HTTP/2.0"));
        Self { stream }
    }

    /// The kind and stream of the next frame.
    pub(crate) async fn next(&mut self) -> Option<(u8, u32)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
    }
}

/// What becomes of an exchange when the first connection answers its HEADERS
/// (stream 1) with `frame` and closes; later connections echo.
async fn after_first(frame: Vec<u8>) -> (Result<String, (Kind, Sent)>, u64) {
    let server = Server::start(move |stream, nth| {
        let frame = frame.clone();
        async move {
            if nth > 0 {
                return echo_h2(stream).await;
            }
            let mut frames = Frames::accept(stream).await;
            write(&mut frames.stream, [SETTINGS_FRAME, ACK_FRAME].concat()).await;
            while frames.next().await.expect("more frames") != (1, 1) {}
            write(&mut frames.stream, frame).await;
        }
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let outcome = match ask(&transport, "question").await {
        Ok(reply) => Ok(String::from_utf8(reply.body.to_vec()).expect("text")),
        Err(error) => Err((error.kind, error.sent)),
    };
    (outcome, transport.stats().resent())
}

fn reset(reason: Reason) -> Vec<u8> {
    let mut frame = vec![0, 0, 4, 3, 0, 0, 0, 0, 1];
    frame.extend(u32::from(reason).to_be_bytes());
    frame
}

#[tokio::test]
async fn what_was_certainly_not_processed_is_sent_again_once() {
    let again = (Ok("question".to_owned()), 1);
    assert_eq!(after_first(goaway(0).to_vec()).await, again);
    assert_eq!(after_first(reset(Reason::REFUSED_STREAM)).await, again);
}

#[tokio::test]
async fn what_may_have_been_processed_is_not_sent_again() {
    let closed = (Err((Kind::Closed, Sent::Maybe)), 0);
    assert_eq!(after_first(Vec::new()).await, closed);
    assert_eq!(after_first(goaway(1).to_vec()).await, closed);
    assert_eq!(after_first(reset(Reason::INTERNAL_ERROR)).await, closed);
    assert_eq!(after_first(reset(Reason::CANCEL)).await, closed);
}

#[tokio::test]
async fn a_whole_answer_before_the_request_was_read_counts() {
    const HEAD: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
    const DATA: &[u8] = b"\0\0\x02\0\x01\0\0\0\x01ok";
    let early = [HEAD, DATA, &reset(Reason::NO_ERROR)].concat();
    assert_eq!(after_first(early).await, (Ok("ok".to_owned()), 0));
}

#[tokio::test]
async fn an_old_connection_serves_on_while_no_new_one_can_be_had() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let url = format!("http://{address}/");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        drop(listener);
        let _dead = DeadPort::at(address);
        echo_h2(stream).await;
    });
    let upstream = Upstream::new(&url, wellhead_net::HttpVersion::Auto)
        .set(|s| s.age_max = Duration::from_nanos(1));
    let transport = upstream.transport();
    for _ in 0..100 {
        assert_eq!(answer(&transport, "question").await, "question");
    }
    let failed = transport.stats().connect_failed();
    assert!((1..100).contains(&failed), "{failed} attempts");
}

#[tokio::test]
async fn a_refusal_without_another_connection_is_told_as_not_sent() {
    let server = Server::start(|stream, _| async move {
        let refuse = |mut call: Call| async move { call.reply.send_reset(Reason::REFUSED_STREAM) };
        serve_h2(stream, refuse, |_| {}, None).await;
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Closed, Sent::No));
    assert_eq!((transport.stats().resent(), server.accepted()), (1, 2), "twice, not for ever");
}

#[tokio::test]
async fn a_caller_that_wants_to_see_a_refusal_is_told_of_the_first() {
    let server = Server::start(|stream, _| async move {
        let refuse = |mut call: Call| async move { call.reply.send_reset(Reason::REFUSED_STREAM) };
        serve_h2(stream, refuse, |_| {}, None).await;
    })
    .await;
    let transport = Upstream::auto(&server).set(|s| s.resend = false).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Closed, Sent::No));
    let stats = transport.stats();
    assert_eq!((stats.refused(), stats.resent(), server.accepted()), (1, 0, 1));
}

#[tokio::test]
async fn goaway_lets_what_is_under_way_finish_and_moves_on() {
    let gate = Gate::new();
    let handler = gate.clone();
    let server = Server::start(move |stream, nth| {
        let gate = handler.clone();
        async move {
            if nth > 0 {
                return echo_h2(stream).await;
            }
            let first = AtomicUsize::new(0);
            let handle = move |mut call: Call| {
                let gate = gate.clone();
                let nth = first.fetch_add(1, SeqCst);
                async move {
                    if nth == 0 {
                        return gate.handle(call).await;
                    }
                    if let Some(body) = call.body().await {
                        call.answer(body);
                    }
                }
            };
            serve_h2(stream, handle, |_| {}, Some(1)).await;
        }
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let under_way = ask_aside(&transport, "under way");
    until("it is there", || gate.now.load(SeqCst) == 1).await;
    // A graceful server still serves what crossed its GOAWAY.
    for _ in 0..100 {
        assert_eq!(answer(&transport, "next").await, "next");
        if server.accepted() == 2 {
            break;
        }
    }
    assert_eq!(server.accepted(), 2);
    gate.permits.add_permits(1);
    assert_eq!(under_way.await.expect("no panic").expect("an answer").body, "under way");
    let stats = transport.stats();
    until("the first is gone", || stats.open(Protocol::H2) == 1).await;
    assert_eq!(stats.closed(Protocol::H2, CloseReason::Replaced), 1);
    assert_eq!(answer(&transport, "and on").await, "and on");
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn an_abandoned_exchange_resets_its_stream_only() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start(move |stream, _| {
        let tell = tell.clone();
        async move {
            let handle = move |mut call: Call| {
                let tell = tell.clone();
                async move {
                    let body = call.body().await.expect("whole");
                    if body != "abandoned" {
                        return call.answer(body);
                    }
                    tell.send(None).expect("listening");
                    let reset = std::future::poll_fn(|cx| call.reply.poll_reset(cx)).await;
                    tell.send(reset.ok()).expect("listening");
                }
            };
            serve_h2(stream, handle, |_| {}, None).await;
        }
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    let abandoned = ask_aside(&transport, "abandoned");
    assert_eq!(told.recv().await, Some(None));
    abandoned.abort();
    assert_eq!(told.recv().await, Some(Some(Reason::CANCEL)));
    assert_eq!(answer(&transport, "next").await, "next");
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn bodies_cut_short_are_told_apart_from_whole_ones() {
    let server = Server::start(|stream, _| async move {
        let handle = |mut call: Call| async move {
            let how = call.body().await.expect("whole");
            let head = Response::builder();
            let head = if how == "reset" { head } else { head.header("content-length", "10") };
            let head = head.body(()).expect("a head");
            let mut body = call.reply.send_response(head, false).expect("sent");
            match &how[..] {
                b"short" => body.send_data("abc".into(), true).expect("sent"),
                b"long" => body.send_data("more than ten".into(), true).expect("sent"),
                b"large" => body.send_data("0123456789".into(), true).expect("sent"),
                _ => {
                    body.send_data("abc".into(), false).expect("sent");
                    tokio::task::yield_now().await;
                    body.send_reset(Reason::INTERNAL_ERROR);
                }
            }
        };
        serve_h2(stream, handle, |_| {}, None).await;
    })
    .await;
    let upstream = Upstream::auto(&server).set(|s| s.answer_bytes_max = 10);
    let transport = upstream.transport();
    let cut = (Kind::Truncated, Sent::Maybe);
    assert_eq!(fails(&transport, "short").await, cut);
    assert_eq!(fails(&transport, "long").await, cut);
    assert_eq!(answer(&transport, "large").await, "0123456789");
    assert!(matches!(
        fails(&transport, "reset").await,
        (Kind::Truncated | Kind::Closed, Sent::Maybe)
    ));
    let narrow = upstream.set(|s| s.answer_bytes_max = 9).transport();
    assert_eq!(fails(&narrow, "large").await, (Kind::TooLarge, Sent::Maybe));
}

/// The library packs its headers and refers to earlier ones: ours must keep the
/// same table over many answers, whatever they say and whichever are not read.
#[tokio::test]
async fn headers_are_understood_however_they_vary() {
    let server = Server::start(|stream, _| async move {
        stream.set_nodelay(true).expect("set");
        let handle = |mut call: Call| async move {
            let body = call.body().await.expect("whole");
            let mut rng = SmallRng::seed_from_u64(body.len() as u64 * 1000 + u64::from(body[0]));
            let mut head = Response::builder().status(200 + body.len() as u16);
            head = head.header("retry-after", body.len().to_string());
            for _ in 0..rng.random_range(0..6) {
                let name = format!("x-{}", rng.random_range(0..20u8));
                let value: String = (0..rng.random_range(0..300))
                    .map(|_| char::from(rng.random_range(b' '..=b'~')))
                    .collect();
                head = head.header(name, value.trim());
            }
            head = head.header("content-length", body.len());
            let mut stream = call.reply.send_response(head.body(()).expect("a head"), false)?;
            stream.send_data(body, true)
        };
        let handle = move |call| async move {
            // Fails for those that were abandoned.
            let _: Result<(), h2::Error> = handle(call).await;
        };
        serve_h2(stream, handle, |_| {}, None).await;
    })
    .await;
    let transport = Upstream::auto(&server).transport();
    for nth in 0..500 {
        let question = char::from(b'a' + (nth % 26) as u8).to_string().repeat(1 + nth % 299);
        let abandoned = ask_aside(&transport, &question);
        tokio::task::yield_now().await;
        if nth % 3 == 0 {
            abandoned.abort();
        }
        let reply = ask(&transport, &question).await.expect("an answer");
        assert_eq!(
            (usize::from(reply.status), reply.body.len()),
            (200 + question.len(), question.len())
        );
        assert_eq!(reply.retry_after, Some(Duration::from_secs(question.len() as u64)));
        assert!(reply.body == question);
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn large_bodies_pass_both_ways_through_flow_control() {
    let server = Server::start(|stream, _| echo_h2(stream)).await;
    let transport = Upstream::auto(&server).transport();
    let question: String = (0..1_500_000).map(|n: u32| n.to_string()).collect();
    assert!(question.len() > 9_000_000);
    let (one, two) = tokio::join!(answer(&transport, &question), answer(&transport, "small"));
    assert!(one == question);
    assert_eq!(two, "small");
    assert_eq!((server.accepted(), transport.stats().opened(Protocol::H2)), (1, 1));
}

#[tokio::test]
async fn requests_carry_what_the_endpoint_says() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::start(move |stream, _| {
        let tell = tell.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.expect("a handshake");
            while let Some(Ok((request, mut reply))) = connection.accept().await {
                tell.send(request.into_parts().0).expect("listening");
                reply.send_response(Response::new(()), true).expect("sent");
            }
        }
    })
    .await;
    let url = format!("http://user:pass@{}/v2/key?a=b", server.address);
    let mut upstream = Upstream::auto(&server);
    upstream.endpoint.url = wellhead_telemetry::SecretUrl::parse(&url).expect("a URL");
    let secret = wellhead_telemetry::Secret::new("k");
    upstream.endpoint.headers = vec![("X-Api-Key".to_owned(), secret)];
    ask(&upstream.transport(), "body!").await.expect("an answer");
    let request = told.recv().await.expect("a request");
    assert_eq!(request.method, http::Method::POST);
    assert_eq!(request.uri.to_string(), format!("http://{}/v2/key?a=b", server.address));
    for (name, value) in [
        ("content-type", "application/json"),
        ("content-length", "5"),
        ("authorization", "Basic dXNlcjpwYXNz"),
        ("x-api-key", "k"),
    ] {
        assert_eq!(request.headers[name], value);
    }
    assert!(!request.headers.contains_key("host"));

    // A trace goes along to a peer that may know of it, also behind headers that are in a table.
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    ask_in_trace(&upstream.transport(), "body!", traceparent).await.expect("an answer");
    assert!(!told.recv().await.expect("a request").headers.contains_key("traceparent"));
    upstream.settings.propagate_trace = true;
    let transport = upstream.transport();
    for _ in 0..2 {
        ask_in_trace(&transport, "body!", traceparent).await.expect("an answer");
        let request = told.recv().await.expect("a request");
        assert_eq!(request.headers["traceparent"], traceparent);
        assert_eq!(request.headers["x-api-key"], "k");
    }
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_left() {
    let server = Server::start(|stream, nth| async move {
        if nth > 0 {
            return echo_h2(stream).await;
        }
        let mut frames = Frames::accept(stream).await;
        write(&mut frames.stream, [SETTINGS_FRAME, ACK_FRAME].concat()).await;
        while frames.next().await.is_some() {}
    })
    .await;
    let upstream = Upstream::auto(&server).set(|s| {
        s.h2_ping_interval = Duration::from_millis(20);
        s.h2_ping_timeout = Duration::from_millis(20);
    });
    let transport = upstream.transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Closed, Sent::Maybe));
    assert_eq!(transport.stats().closed(Protocol::H2, CloseReason::Stuck), 1);
    assert_eq!(answer(&transport, "next").await, "next");
}

#[tokio::test]
async fn a_peer_that_answers_pings_may_take_its_time() {
    let (server, gate) = gated(100).await;
    let upstream = Upstream::auto(&server).set(|s| {
        s.h2_ping_interval = Duration::from_millis(5);
        s.h2_ping_timeout = PATIENCE;
    });
    let transport = upstream.transport();
    let slow = ask_aside(&transport, "slow");
    until("it is there", || gate.now.load(SeqCst) == 1).await;
    // Time for several pings.
    let start = std::time::Duration::from_millis(60);
    let error = ask_within(&transport, "slower", start).await.expect_err("not let through");
    assert_eq!(error.kind, Kind::Timeout);
    gate.permits.add_permits(2);
    assert_eq!(slow.await.expect("no panic").expect("an answer").body, "slow");
    assert_eq!(transport.stats().closed(Protocol::H2, CloseReason::Stuck), 0);
}

async fn closes_after(wait: Duration, idle: Duration, age_max: Duration) -> CloseReason {
    let server = Server::start(|stream: TcpStream, _| echo_h2(stream)).await;
    let upstream = Upstream::auto(&server).set(|s| {
        s.idle = idle;
        s.age_max = age_max;
    });
    let transport = upstream.transport();
    assert_eq!(answer(&transport, "question").await, "question");
    let stats = transport.stats();
    tokio::time::pause();
    for _ in 0..200 {
        tokio::time::advance(wait / 100).await;
        if stats.open(Protocol::H2) == 0 {
            break;
        }
    }
    tokio::time::resume();
    until("closed", || stats.open(Protocol::H2) == 0).await;
    let mut reasons = CloseReason::ALL.into_iter();
    reasons.find(|r| stats.closed(Protocol::H2, *r) == 1).expect("one reason")
}

#[tokio::test]
async fn unused_and_old_connections_are_closed() {
    let minute = Duration::from_secs(60);
    assert_eq!(closes_after(minute * 2, minute, minute * 60).await, CloseReason::Idle);
    assert_eq!(closes_after(minute * 60, minute * 60, minute).await, CloseReason::Replaced);
}

#[tokio::test]
async fn an_old_connection_is_replaced_while_it_serves() {
    let server = Server::start(|stream, _| echo_h2(stream)).await;
    let upstream = Upstream::auto(&server).set(|s| s.age_max = Duration::from_millis(1));
    let transport = upstream.transport();
    let stats = transport.stats();
    for n in 0..2000 {
        assert_eq!(answer(&transport, "question").await, "question");
        if server.accepted() > 2 {
            assert!(n > 0);
            break;
        }
    }
    assert!(server.accepted() > 2, "never replaced");
    until("one is left", || stats.open(Protocol::H2) <= 1).await;
    assert!(stats.closed(Protocol::H2, CloseReason::Replaced) >= 1);
}
