//! The PROXY protocol: which client a connection is said to come from, and by which peers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use wellhead_access::{NetworkSet, ProxyTrust, ProxyTrustHeader, parse_network};
use wellhead_server::{
    HandshakeFailure, HttpRefusal, ProxyFailure, ProxyMode, ProxyProtocol, Settings, Tls,
};

use crate::site::{GUARD, Site};
use crate::tls::{Folder, Pair};
use crate::wire::Wire;

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n";
const V1_UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const CLIENT: &str = "192.0.2.7:4711";

/// Version 2: a command, an address family, and what follows.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}

/// From [`CLIENT`], with as many bytes of extensions.
fn v2_tcp4(extensions: usize) -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 1, 187];
    v2(0x21, 0x11, &[&addresses[..], &vec![4; extensions]].concat())
}

fn v2_tcp6() -> Vec<u8> {
    let source: [u8; 16] = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    v2(0x21, 0x21, &[&source[..], &[0; 16], &[0x12, 0x67, 1, 187]].concat())
}

fn settings(mode: ProxyMode, trusted: &[&str]) -> Settings {
    let trusted = trusted.iter().map(|text| (parse_network(text).unwrap(), ()));
    let trusted = NetworkSet::new(trusted).unwrap();
    let trusted = Arc::new(ProxyTrust::new(trusted, ProxyTrustHeader::XForwardedFor));
    Settings { proxy_protocol: ProxyProtocol { mode, trusted }, ..Settings::default() }
}

const LOOPBACK: &[&str] = &["127.0.0.0/8"];
const NOBODY: &[&str] = &["10.0.0.0/8"];

/// What became of a connection.
#[derive(Debug, PartialEq)]
enum Fate {
    /// A call was answered, and its client was this one.
    Client(SocketAddr),
    /// A call was answered, and its client was the peer of the socket.
    Socket,
    /// The first bytes were no HTTP.
    NotHttp,
    Failed(ProxyFailure),
}

fn client(text: &str) -> Fate {
    Fate::Client(text.parse().unwrap())
}

/// Sends these bytes and a request behind them.
async fn fate(site: &Site, first: &[u8]) -> Fate {
    let mut wire = site.connect().await;
    let socket = wire.stream.local_addr().unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    wire.send([first, request].concat()).await;
    match wire.any_reply(false).await {
        Some(reply) if reply.status == 200 => {
            let (peer, _) = site.handler.client.lock().unwrap().take().unwrap();
            if peer == socket { Fate::Socket } else { Fate::Client(peer) }
        }
        Some(reply) => {
            assert_eq!(reply.status, 400);
            Fate::NotHttp
        }
        None => {
            let counts = site.server.counts();
            let failures = ProxyFailure::ALL.into_iter().filter(|it| counts.proxy_failed(*it) > 0);
            let failures: Vec<_> = failures.collect();
            assert_eq!(failures.len(), 1, "{counts:?}");
            assert_eq!(counts.connections_open, 0);
            Fate::Failed(failures[0])
        }
    }
}

async fn check(mode: ProxyMode, trusted: &[&str], first: &[u8], expected: Fate) {
    let site = Site::open(settings(mode, trusted));
    assert_eq!(fate(&site, first).await, expected, "{mode:?} {trusted:?} {first:?}");
}

#[tokio::test]
async fn trusted_proxies_name_the_client() {
    for mode in [ProxyMode::Accept, ProxyMode::Require] {
        check(mode, LOOPBACK, V1, client(CLIENT)).await;
        check(mode, LOOPBACK, &v2_tcp4(0), client(CLIENT)).await;
        check(mode, LOOPBACK, &v2_tcp4(500), client(CLIENT)).await;
        check(mode, LOOPBACK, &v2_tcp6(), client("[2001:db8::7]:4711")).await;
        check(mode, LOOPBACK, b"PROXY TCP6 ::1 ::2 5 6\r\n", client("[::1]:5")).await;
        // A check of the proxy itself, and a proxy that does not know.
        check(mode, LOOPBACK, &v2(0x20, 0, b""), Fate::Socket).await;
        check(mode, LOOPBACK, &v2(0x20, 0x11, &[9; 12]), Fate::Socket).await;
        check(mode, LOOPBACK, V1_UNKNOWN, Fate::Socket).await;
    }
}

#[tokio::test]
async fn others_are_not_believed() {
    for header in [V1, &v2_tcp4(0), &v2(0x20, 0, b"")] {
        check(ProxyMode::Off, LOOPBACK, header, Fate::NotHttp).await;
        check(ProxyMode::Accept, NOBODY, header, Fate::NotHttp).await;
        check(ProxyMode::Require, NOBODY, header, Fate::Failed(ProxyFailure::Untrusted)).await;
    }
    check(ProxyMode::Off, LOOPBACK, b"", Fate::Socket).await;
    check(ProxyMode::Accept, NOBODY, b"", Fate::Socket).await;
    check(ProxyMode::Require, NOBODY, b"", Fate::Failed(ProxyFailure::Untrusted)).await;
}

#[tokio::test]
async fn without_a_header_a_proxy_is_a_client_or_nothing() {
    check(ProxyMode::Accept, LOOPBACK, b"", Fate::Socket).await;
    check(ProxyMode::Require, LOOPBACK, b"", Fate::Failed(ProxyFailure::Missing)).await;
}

#[tokio::test]
async fn what_begins_like_a_header_must_be_one() {
    let malformed = || Fate::Failed(ProxyFailure::Malformed);
    let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 120], b"\r\n"].concat();
    for mode in [ProxyMode::Accept, ProxyMode::Require] {
        check(mode, LOOPBACK, b"PROXY TCP4 nobody 192.0.2.1 1 2\r\n", malformed()).await;
        check(mode, LOOPBACK, b"PROXY TCP4 192.0.2.7 192.0.2.1 99999 2\r\n", malformed()).await;
        check(mode, LOOPBACK, &long, malformed()).await;
        check(mode, LOOPBACK, &v2(0x31, 0x11, &[9; 12]), malformed()).await;
        check(mode, LOOPBACK, &v2(0x21, 0x11, &[9; 11]), malformed()).await;
        check(mode, LOOPBACK, &v2_tcp4(501), malformed()).await;
    }
}

/// Sends the bytes one by one, each when the server has had time to read the one before.
async fn drip(wire: &mut Wire, bytes: &[u8]) {
    wire.stream.set_nodelay(true).unwrap();
    for byte in bytes {
        wire.send([*byte]).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn headers_arrive_in_pieces() {
    for (header, expected) in [
        (V1.to_vec(), Some(CLIENT)),
        (V1_UNKNOWN.to_vec(), None),
        (v2_tcp4(20), Some(CLIENT)),
        (v2_tcp6(), Some("[2001:db8::7]:4711")),
    ] {
        let site = Site::open(settings(ProxyMode::Require, LOOPBACK));
        let mut wire = site.connect().await;
        let own = wire.stream.local_addr().unwrap();
        drip(&mut wire, &header).await;
        assert_eq!(wire.exchange("/", "", b"{}").await.body, b"{}");
        let (peer, _) = site.handler.client.lock().unwrap().take().unwrap();
        assert_eq!(peer, expected.map_or(own, |text| text.parse().unwrap()));
    }
}

/// Requests begin with the letters of a header, and the preface of HTTP/2 with two of them.
#[tokio::test]
async fn a_request_in_pieces_is_no_header() {
    let site = Site::open(settings(ProxyMode::Accept, LOOPBACK));
    for beginning in ["P", "PO", "\r\nPOST"] {
        let mut wire = site.connect().await;
        drip(&mut wire, beginning.as_bytes()).await;
        let rest = "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        wire.send(&rest[beginning.trim_start().len()..]).await;
        assert_eq!(wire.reply().await.status, 200, "{beginning:?}");
    }
    let mut wire = site.connect().await;
    drip(&mut wire, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let settings = wire.bytes(9).await;
    assert_eq!(settings[3], 4, "a frame of SETTINGS");
    assert_eq!(site.server.counts().http2_total, 1);
}

async fn expect_failure(site: &Site, failure: ProxyFailure) {
    site.until("it is counted", |counts| counts.proxy_failed(failure) == 1).await;
    let counts = site.server.counts();
    assert_eq!(counts.proxy_failed.iter().sum::<u64>(), 1, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_header_has_its_time() {
    for begun in [&b""[..], b"PROXY TCP4 192.0", &SIGNATURE[..11]] {
        for mode in [ProxyMode::Accept, ProxyMode::Require] {
            let site = Site::open(settings(mode, LOOPBACK));
            let mut stream = TcpStream::connect(site.address).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, begun).await.unwrap();
            let began = tokio::time::Instant::now();
            // Without a guard of its own: it would fire first.
            assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
            let took = began.elapsed();
            assert!(took >= Settings::default().head_timeout, "{took:?}");
            assert!(took < Settings::default().head_timeout + Duration::from_secs(1), "{took:?}");
            expect_failure(&site, ProxyFailure::Slow).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_within_the_header_is_counted() {
    for begun in [&b""[..], b"PROXY", &v2_tcp4(9)[..20]] {
        let site = Site::open(settings(ProxyMode::Require, LOOPBACK));
        let mut wire = site.connect().await;
        wire.send(begun).await;
        drop(wire);
        expect_failure(&site, ProxyFailure::Left).await;
    }
}

#[tokio::test]
async fn tls_follows_the_header() {
    let pair = Pair::new();
    let folder = Folder::new(&pair);
    for (mode, header, expected) in [
        (ProxyMode::Require, &v2_tcp4(0)[..], Some(CLIENT)),
        (ProxyMode::Accept, V1, Some(CLIENT)),
        (ProxyMode::Accept, b"", None),
        (ProxyMode::Require, &v2(0x20, 0, b""), None),
    ] {
        let tls = Tls::load(folder.files()).unwrap();
        let site = Site::open_with(settings(mode, LOOPBACK), Some(tls));
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        let own = stream.local_addr().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, header).await.unwrap();
        let stream = pair.client(&["http/1.1"], None).connect_over(stream).await.unwrap();
        let mut wire = Wire::over(stream);
        assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
        let (peer, _) = site.handler.client.lock().unwrap().take().unwrap();
        assert_eq!(peer, expected.map_or(own, |text| text.parse().unwrap()));
    }
    let tls = Tls::load(folder.files()).unwrap();
    let site = Site::open_with(settings(ProxyMode::Accept, LOOPBACK), Some(tls));
    let mut wire = site.connect().await;
    drip(&mut wire, b"PO").await;
    wire.is_closed().await;
    let is_counted =
        |counts: &wellhead_server::ServerCounts| counts.tls_failed(HandshakeFailure::NotTls) == 1;
    site.until("it is counted", is_counted).await;
}

/// Bounds go by the client that was announced, not by the proxy.
#[tokio::test]
async fn connections_are_counted_by_their_clients() {
    let bound =
        Settings { connections_per_peer_max: Some(1), ..settings(ProxyMode::Require, LOOPBACK) };
    let site = Site::open(bound);
    let open = async |address: u8| {
        let mut wire = site.connect().await;
        wire.send(format!("PROXY TCP4 192.0.2.{address} 192.0.2.99 1 2\r\n")).await;
        wire.post("/", "", b"{}").await;
        let status = wire.reply().await.status;
        (wire, status)
    };
    let (first, status) = open(1).await;
    assert_eq!(status, 200);
    assert_eq!(open(1).await.1, 429);
    assert_eq!(site.server.counts().refused(HttpRefusal::PeerFull), 1);
    let (_second, status) = open(2).await;
    assert_eq!(status, 200);
    drop(first);
    site.until("its place is free", |counts| counts.connections_open == 1).await;
    assert_eq!(open(1).await.1, 200);
}

#[tokio::test]
async fn draining_ends_connections_without_a_header() {
    let site = Site::open(settings(ProxyMode::Require, LOOPBACK));
    let mut silent = site.connect().await;
    site.until("it is accepted", |counts| counts.accepted_total == 1).await;
    site.shutdown.begin();
    silent.is_closed().await;
    let drained = tokio::time::timeout(GUARD, site.serving).await.unwrap().unwrap();
    assert_eq!(drained.dropped, 0);
}
