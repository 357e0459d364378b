//! A forward proxy on the way: tunnels, plain requests, refusals.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use wellhead_net::{ForwardProxy, HttpVersion, Protocol};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use crate::support::*;
use crate::tls::{Authority, echo_tls};

/// What clients sent to the proxy before anything went through it.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that tunnels, answers plain requests itself, and refuses tunnels to `refused`.
async fn proxy() -> (Server, Heads) {
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let server = Server::start(move |stream, _| serve(stream, Arc::clone(&seen))).await;
    (server, heads)
}

async fn serve(mut stream: TcpStream, heads: Heads) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).expect("text");
    heads.lock().push(head.clone());
    match head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) {
        Some("refused.test:443") => {
            write(&mut stream, "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
        }
        Some(place) => {
            let mut far = TcpStream::connect(place).await.expect("the endpoint listens");
            write(&mut stream, "HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n").await;
            let _ = copy_bidirectional(&mut stream, &mut far).await;
        }
        None => {
            write(&mut stream, ok("by the proxy")).await;
            let _ = stream.shutdown().await;
        }
    }
}

fn through(proxy: &Server, user: &str, mut upstream: Upstream) -> Upstream {
    let url = SecretUrl::parse(&format!("http://{user}{}", proxy.address)).expect("a URL");
    upstream.endpoint.proxy = Some(ForwardProxy::new(&url).expect("a proxy"));
    upstream
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_the_proxy_sees_no_key() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(&["h2", "http/1.1"]);
    let far = Server::start(move |stream, _| echo_tls(acceptor.clone(), stream)).await;
    let (proxy, heads) = proxy().await;
    let url = format!("https://localhost:{}/PATHKEY", far.address.port());
    let mut upstream = through(&proxy, "me:pass%21@", Upstream::new(&url, HttpVersion::Auto));
    authority.trusted_by(&mut upstream);
    let transport = upstream.transport();
    assert_eq!(answer(&transport, "question").await, "question");
    assert_eq!(transport.protocol(), Some(Protocol::H2));
    let place = format!("localhost:{}", far.address.port());
    // `me:pass!`
    let expected = format!(
        "CONNECT {place} HTTP/1.1\r\nhost: {place}\r\n\
         proxy-authorization: Basic bWU6cGFzcyE=\r\n\r\n"
    );
    assert_eq!(*heads.lock(), [expected]);
}

#[tokio::test]
async fn plain_requests_go_to_the_proxy_with_the_whole_url() {
    let (proxy, heads) = proxy().await;
    let url = "http://node.test:8545/v2?k=1";
    let transport = through(&proxy, "me:pass%21@", Upstream::new(url, HttpVersion::Auto));
    let transport = transport.transport();
    assert_eq!(answer(&transport, "question").await, "by the proxy");
    assert_eq!(transport.protocol(), Some(Protocol::H1));
    let head = heads.lock()[0].clone();
    let line = "POST http://node.test:8545/v2?k=1 HTTP/1.1\r\nhost: node.test:8545\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("\r\nproxy-authorization: Basic bWU6cGFzcyE=\r\n"), "{head}");
}

#[tokio::test]
async fn a_refused_tunnel_and_a_peer_that_is_no_proxy_fail_before_anything_is_sent() {
    let (proxy, _) = proxy().await;
    let upstream = Upstream::new("https://refused.test/", HttpVersion::Auto);
    let transport = through(&proxy, "", upstream).transport();
    let error = ask(&transport, "question").await.expect_err("refused");
    assert_eq!((error.kind, error.sent), (Kind::Connect, Sent::No));
    assert!(error.detail.contains("status 403"), "{}", error.detail);

    let other = Server::start(|mut stream, _| async move {
        write(&mut stream, "SSH-2.0-test\r\n\r\n").await;
        closed(&mut stream).await;
    })
    .await;
    let upstream = Upstream::new("https://refused.test/", HttpVersion::Auto);
    let transport = through(&other, "", upstream).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Connect, Sent::No));
}
