//! What one client may hold while others want it: connections, places, bodies and answers
//! that it does not take.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::site::{GUARD, Site};
use wellhead_server::Settings;

const OTHER: [u8; 4] = [127, 0, 0, 2];

/// A client of HTTP/2 whose windows stay shut: of each answer it gets the head.
pub(crate) struct Shut {
    client: h2::client::SendRequest<Bytes>,
    pub(crate) ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
    answers: Vec<h2::client::ResponseFuture>,
}

impl Shut {
    pub(crate) async fn connect(site: &Site, window: u32) -> Self {
        let stream = TcpStream::connect(site.address).await.unwrap();
        let (client, connection) = h2::client::Builder::new()
            .initial_window_size(window)
            .handshake::<_, Bytes>(stream)
            .await
            .unwrap();
        Self { client, ended: tokio::spawn(connection), answers: Vec::new() }
    }

    pub(crate) async fn ask(&mut self, path: &str, calls: usize) {
        for _ in 0..calls {
            self.client = self.client.clone().ready().await.unwrap();
            let request = Request::post(format!("http://test{path}")).body(()).unwrap();
            let (answer, mut body) = self.client.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"[0,1,2]"), true).unwrap();
            self.answers.push(answer);
        }
    }
}

#[tokio::test]
async fn answers_that_wait_for_shut_windows_hold_no_place() {
    let site = Site::open(Settings { requests_max: 64, ..Settings::default() });
    let mut hogs = Vec::new();
    let mut other = site.connect_from(OTHER).await;
    for n in 1..=10 {
        let mut hog = Shut::connect(&site, 0).await;
        hog.ask("/", 16).await;
        hogs.push(hog);
        site.until_arrived(n * 16 + n - 1).await;
        // At each moment, as well as when all of them wait.
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200, "after {n} connections");
    }
    site.until("no place is held", |counts| counts.requests_open == 0).await;
}

/// HTTP/1.1 too: it is the window of TCP that is shut.
#[tokio::test]
async fn answers_that_wait_for_a_reader_hold_no_place() {
    let site = Site::open(Settings { requests_max: 2, ..Settings::default() });
    let mut hogs = Vec::new();
    let mut other = site.connect_from(OTHER).await;
    for n in 1..=3 {
        let mut hog = site.connect().await;
        hog.post("/endless", "", b"{}").await;
        hogs.push(hog);
        site.until_arrived(n * 2 - 1).await;
        site.until("it holds no place", |counts| counts.requests_open == 0).await;
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200, "after {n} connections");
    }
}

#[tokio::test]
async fn a_client_that_reads_on_gets_all_that_waited() {
    let site = Site::open(Settings { requests_max: 64, ..Settings::default() });
    for (path, window) in [("/", 3), ("/big", 3000)] {
        let stream = TcpStream::connect(site.address).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(window)
                .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let body = Full::new(Bytes::from_static(b"{\"id\":1}"));
        let request = Request::post(format!("http://test{path}")).body(body).unwrap();
        client.ready().await.unwrap();
        let answer = client.send_request(request).await.unwrap();
        let body = tokio::time::timeout(GUARD, answer.into_body().collect()).await.unwrap();
        let expected = match path {
            "/" => b"{\"id\":1}".to_vec(),
            _ => crate::site::big().concat(),
        };
        assert!(body.unwrap().to_bytes() == expected, "{path}");
    }
    site.until("all is given back", |counts| counts.requests_open == 0).await;
}

/// The whole pool but for its last byte belongs to one address; another one still has room.
#[tokio::test]
async fn one_address_cannot_hold_all_bytes_of_bodies() {
    let settings =
        Settings { body_bytes_max: 200_000, bodies_bytes_max: 1_000_000, ..Settings::default() };
    let site = Site::open(settings);
    let mut hogs = Vec::new();
    for _ in 0..12 {
        let mut hog = site.connect().await;
        hog.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n").await;
        hog.send(vec![b' '; 90_000]).await;
        hogs.push(hog);
    }
    site.until("what they may hold is held", |counts| {
        counts.refused(wellhead_server::HttpRefusal::BodiesFull) > 0
    })
    .await;
    let mut other = site.connect_from(OTHER).await;
    assert_eq!(other.exchange("/", "", &[b' '; 100_000]).await.status, 200);
    drop(hogs);
    site.until("all is given back", |counts| counts.bodies_bytes == 0).await;
}

#[tokio::test]
async fn one_address_cannot_hold_all_places() {
    let site = Site::open(Settings { requests_max: 32, ..Settings::default() });
    let mut hogs = Vec::new();
    for _ in 0..40 {
        let mut hog = site.connect().await;
        hog.post("/wait", "", b"{}").await;
        hogs.push(hog);
    }
    site.until("some are refused", |counts| {
        counts.refused(wellhead_server::HttpRefusal::RequestsFull) > 0
            && counts.accepted_total == 40
    })
    .await;
    let mut other = site.connect_from(OTHER).await;
    for _ in 0..10 {
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    }
    site.handler.gate.add_permits(40);
    site.until("all is given back", |counts| counts.requests_open == 0).await;
    // Once there is room, the first address is served as ever.
    let mut again = site.connect().await;
    assert_eq!(again.exchange("/", "", b"{}").await.status, 200);
}

#[tokio::test]
async fn idle_connections_of_one_address_give_way_to_another() {
    let site = Site::open(Settings { connections_max: 20, ..Settings::default() });
    let mut idle = Vec::new();
    for n in 0..20 {
        let mut wire = site.connect().await;
        // One says nothing at all, one stays within its head, the others were served.
        match n {
            18 => {}
            19 => wire.send("POST / HTTP/1.1\r\nho").await,
            _ => assert_eq!(wire.exchange("/", "", b"{}").await.status, 200),
        }
        idle.push(wire);
        site.until("it is accepted", |counts| counts.accepted_total == n + 1).await;
    }
    let mut others = Vec::new();
    for n in 0..5 {
        let mut other = site.connect_from(OTHER).await;
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
        others.push(other);
        let counts = site.server.counts();
        assert_eq!(counts.displaced_total, n + 1);
    }
    site.until("the bound holds", |counts| counts.connections_open == 20).await;
    // Those that came later stay.
    for other in &mut others {
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    }
    // A further one of the address that holds most takes the place of one of its own.
    let mut again = site.connect().await;
    assert_eq!(again.exchange("/", "", b"{}").await.status, 200);
    for other in &mut others {
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    }
}

#[tokio::test]
async fn the_longest_idle_goes_first() {
    let site = Site::open(Settings { connections_max: 3, ..Settings::default() });
    let mut wires = Vec::new();
    for _ in 0..3 {
        let mut wire = site.connect().await;
        assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
        wires.push(wire);
    }
    // Now the second is the one that said nothing for longest.
    assert_eq!(wires[0].exchange("/", "", b"{}").await.status, 200);
    let mut other = site.connect_from(OTHER).await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    wires[1].is_closed().await;
    for kept in [0, 2] {
        assert_eq!(wires[kept].exchange("/", "", b"{}").await.status, 200);
    }
}

#[tokio::test]
async fn an_idle_http_2_connection_that_gives_way_is_told_so() {
    let site = Site::open(Settings { connections_max: 1, ..Settings::default() });
    let idle = Shut::connect(&site, 0).await;
    site.until("it speaks", |counts| counts.http2_open == 1).await;
    let mut other = site.connect().await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    let ended = tokio::time::timeout(GUARD, idle.ended).await.expect("it ends").unwrap();
    assert!(ended.is_ok(), "without an error: {ended:?}");
}

#[tokio::test]
async fn connections_that_work_are_not_cut_for_their_own_address() {
    let site = Site::open(Settings { connections_max: 2, ..Settings::default() });
    let mut busy = Vec::new();
    for n in 1..=2 {
        let mut wire = site.connect().await;
        wire.post("/wait", "", b"{}").await;
        site.until_arrived(n).await;
        busy.push(wire);
    }
    let mut third = site.connect().await;
    third.post("/", "", b"{}").await;
    third.reply().await.is_refusal(503, -32005);
    site.handler.gate.add_permits(2);
    for wire in &mut busy {
        assert_eq!(wire.reply().await.status, 200);
    }
}

#[tokio::test]
async fn without_shares_all_addresses_are_one() {
    let site = Site::open(Settings { connections_max: 1, shares: false, ..Settings::default() });
    let _first = site.connect().await;
    site.until("it has a seat", |counts| counts.connections_open == 1).await;
    let mut other = site.connect_from(OTHER).await;
    other.post("/", "", b"{}").await;
    other.reply().await.is_refusal(503, -32005);
}

/// Ends a connection that does not take its answers, and says why.
async fn is_told_to_calm_down(hog: Shut) {
    let ended = tokio::time::timeout(GUARD, hog.ended).await.expect("it ends").unwrap();
    let reason = ended.expect_err("an error").reason();
    assert_eq!(reason, Some(h2::Reason::ENHANCE_YOUR_CALM));
}

const STALL: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_connection_with_many_stalled_streams_is_ended() {
    let site = Site::open(Settings { stall_timeout: STALL, ..Settings::default() });
    let mut hog = Shut::connect(&site, 0).await;
    hog.ask("/", 100).await;
    is_told_to_calm_down(hog).await;
    site.until("it is counted", |counts| counts.hoarders_total == 1).await;
    site.until("all is given back", |counts| counts.requests_open == 0).await;
    assert_eq!(site.server.counts().answers_waiting, 0);
    assert_eq!(site.server.counts().answers_waiting_bytes, 0);
}

#[tokio::test]
async fn a_few_stalled_streams_have_the_usual_time() {
    let site = Site::open(Settings { stall_timeout: STALL, ..Settings::default() });
    let mut hog = Shut::connect(&site, 0).await;
    hog.ask("/", 10).await;
    site.until("they wait", |counts| counts.answers_waiting == 10).await;
    // Proves that nothing happens.
    tokio::time::sleep(STALL * 5).await;
    assert_eq!(site.server.counts().answers_waiting, 10);
    assert!(!hog.ended.is_finished());
}

/// What is refused for want of a place holds none, however little of it is taken.
#[tokio::test]
async fn refusals_that_are_not_taken_hold_no_place() {
    for window in [0, 1] {
        let settings = Settings {
            requests_max: 32,
            waiting_max: 1,
            // Longer than the test takes: the connections are there to the end.
            stall_timeout: GUARD * 5,
            ..Settings::default()
        };
        let site = Site::open(settings);
        let mut hogs = Vec::new();
        let mut other = site.connect_from(OTHER).await;
        for n in 1..=4 {
            let mut hog = Shut::connect(&site, window).await;
            hog.ask("/", 50).await;
            hogs.push(hog);
            site.until("all are answered or refused", |counts| {
                let refused = counts.refused(wellhead_server::HttpRefusal::RequestsFull);
                let arrived = site.handler.arrived.load(std::sync::atomic::Ordering::Relaxed);
                refused as usize + arrived >= n * 50 + n - 1
            })
            .await;
            let reply = other.exchange("/", "", b"{}").await;
            assert_eq!(reply.status, 200, "after {n} connections with a window of {window}");
        }
    }
}

/// A byte of window for each stream takes the answer out of the hands of its task.
#[tokio::test]
async fn answers_that_were_handed_on_still_count() {
    let site = Site::open(Settings { stall_timeout: STALL, ..Settings::default() });
    let mut hog = Shut::connect(&site, 1).await;
    hog.ask("/", 100).await;
    is_told_to_calm_down(hog).await;
    site.until("all is given back", |counts| counts.requests_open == 0).await;
}

/// Only so many answers may wait; those beyond keep their places, and their address ends first.
#[tokio::test]
async fn the_client_that_lets_too_many_answers_wait_is_ended_first() {
    let settings = Settings {
        requests_max: 128,
        waiting_max: 16,
        stall_timeout: STALL,
        ..Settings::default()
    };
    let site = Site::open(settings);
    let mut hogs = Vec::new();
    let mut other = site.connect_from(OTHER).await;
    for n in 1..=4 {
        // Too few streams each to be ended for their number.
        let mut hog = Shut::connect(&site, 0).await;
        hog.ask("/", 20).await;
        hogs.push(hog);
        assert_eq!(other.exchange("/", "", b"{}").await.status, 200, "after {n} connections");
    }
    site.until("those beyond the bound are ended", |counts| counts.hoarders_total >= 3).await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
}

/// As many streams as may be open come at once, each a whole request of 220 bytes.
#[tokio::test]
async fn streams_that_come_at_once_leave_others_their_turn() {
    const STREAMS: u32 = 1000;
    const VALUE: [u8; 100] = [b'a'; 100];
    let site = Site::open(Settings { streams_max: STREAMS, ..Settings::default() });
    let mut other = site.connect_from(OTHER).await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    let mut hog = site.connect().await;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (1..).step_by(2).take(STREAMS as usize) {
        // HEADERS with END_STREAM and END_HEADERS: POST, http, `/`, authority `test`, and two
        // fields that are not indexed.
        bytes.extend_from_slice(b"\0\0\xd9\x01\x05");
        bytes.extend_from_slice(&u32::to_be_bytes(stream));
        bytes.extend_from_slice(b"\x83\x86\x84\x01\x04test");
        for name in [b'b', b'c'] {
            bytes.extend_from_slice(&[0, 1, name, 100]);
            bytes.extend_from_slice(&VALUE);
        }
    }
    hog.send(bytes).await;
    site.until_arrived(2).await;
    eprintln!("{}", site.handler.arrived.load(Ordering::Relaxed));
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    let before = site.handler.arrived.load(Ordering::Relaxed) - 2;
    assert!(before < STREAMS as usize / 2, "{before} streams were answered first");
    site.until_arrived(STREAMS as usize + 2).await;
}
