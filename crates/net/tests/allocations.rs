//! How often an exchange asks the allocator, and that a journal costs nothing where none is kept.
//! A bound that is too low for a change is raised here, in the change that says what it buys.

#![allow(clippy::print_stdout, reason = "the count is told as well as checked")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use wellhead_net::{
    ClientSettings, ConnectionStats, Endpoint, ExchangeTimeline, HttpTransport, HttpVersion,
    Journal, Resolver, TlsClient, TransportResources, TrustedRoots,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{Exchange, Transport as _};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nx-ratelimit-limit: 7\r\ncontent-length: 2\r\n\r\nok";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";

/// Answers on a thread of its own, whose allocations are not counted.
fn server(serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

/// A request is short enough to come at once.
fn http1(mut stream: TcpStream) {
    let mut read = [0; 4096];
    while let Ok(1..) = stream.read(&mut read) {
        if stream.write_all(ANSWER).is_err() {
            return;
        }
    }
}

/// Answers each stream when its data has ended: `:status 200` and two bytes.
fn http2(mut stream: TcpStream) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).is_err() || stream.write_all(SETTINGS).is_err() {
        return;
    }
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        if (head[3], head[4] & 1) == (0, 1) {
            let id = &head[5..9];
            let headers = [b"\0\0\x01\x01\x04", id, b"\x88"].concat();
            let data = [b"\0\0\x02\0\x01", id, b"ok"].concat();
            if stream.write_all(&[headers, data].concat()).is_err() {
                return;
            }
        }
    }
}

fn transport(
    runtime: &Runtime,
    address: SocketAddr,
    version: HttpVersion,
    journal: Option<Arc<Journal>>,
) -> HttpTransport {
    let url = SecretUrl::parse(&format!("http://{address}/")).expect("a URL");
    let endpoint = Endpoint { version, ..Endpoint::new(url) };
    let tls = TlsClient::new(TrustedRoots::Public).expect("a TLS client");
    let stats = journal.map_or_else(ConnectionStats::default, ConnectionStats::with_journal);
    let resources = TransportResources::new(Arc::new(Resolver::new()), Arc::new(tls));
    let shared = TransportResources { stats: Arc::new(stats), ..resources };
    let _inside = runtime.enter();
    HttpTransport::new(&endpoint, ClientSettings::default(), shared, 1).expect("a good endpoint")
}

fn exchange() -> Exchange {
    let deadline = (tokio::time::Instant::now() + Duration::from_secs(20)).into_std();
    let body = Bytes::from_static(b"question");
    Exchange { body, deadline, whole_max: usize::MAX, bulky: false, trace: None }
}

/// Exchanges a few times, so that what is made once is made, and counts the last.
fn counted(address: SocketAddr, version: HttpVersion, journal: Option<&Arc<Journal>>) -> u64 {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let transport = transport(&runtime, address, version, journal.cloned());
    let once = || {
        runtime.block_on(async {
            let reply = if journal.is_some() {
                transport.exchange_told(exchange(), &mut ExchangeTimeline::default()).await
            } else {
                transport.exchange(exchange()).await
            };
            assert_eq!(reply.expect("an answer").body, "ok");
        });
    };
    (0..16).for_each(|_| once());
    // Now and then a table or a queue grows; the least is what an exchange takes.
    let least = (0..8).map(|_| measure(once).count_total).min().unwrap_or(0);
    println!("{version:?}: {least} allocations");
    least
}

#[test]
fn an_exchange_over_http1() {
    let address = server(http1);
    // The future and the answer's body.
    assert!(counted(address, HttpVersion::H1, None) <= 2);
}

#[test]
fn an_exchange_over_http2() {
    let address = server(http2);
    // The future, and the answer's body with its handle.
    assert!(counted(address, HttpVersion::H2, None) <= 4);
}

#[test]
fn a_transport_that_keeps_a_journal_pays_for_it() {
    let address = server(http1);
    let told = counted(address, HttpVersion::H1, Some(&Arc::default()));
    assert!(told > counted(address, HttpVersion::H1, None), "{told} allocations");
}
