//! Names: several addresses, dead ones among them, and no name at all.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::sync::Semaphore;
use wellhead_net::{HttpVersion, Resolver};
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use crate::support::*;

/// An upstream at `node.test`, which has these addresses.
fn upstream_at(addresses: Vec<SocketAddr>) -> Upstream {
    let mut upstream = Upstream::new("http://node.test:1/SECRET", HttpVersion::H1);
    let resolver = Resolver::with_lookup(Box::new(move |host, port| {
        assert_eq!((host.as_str(), port), ("node.test", 1));
        let addresses = addresses.clone();
        Box::pin(async move {
            match addresses.is_empty() {
                true => Err(io::Error::other("no such name")),
                false => Ok(addresses),
            }
        })
    }));
    upstream.shared.resolver = Arc::new(resolver);
    upstream
}

/// Answers once per connection, so that each exchange needs a new one.
async fn once() -> Server {
    Server::start(|mut stream, _| async move {
        read_request(&mut stream).await.expect("a request");
        write(&mut stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
    })
    .await
}

#[tokio::test]
async fn connections_take_turns_among_the_addresses() {
    let (a, b) = (once().await, once().await);
    let transport = upstream_at(vec![a.address, b.address]).transport();
    for _ in 0..6 {
        ask(&transport, "").await.expect("an answer");
    }
    assert_eq!((a.accepted(), b.accepted()), (3, 3));
}

#[tokio::test]
async fn dead_addresses_are_passed_over() {
    let alive = once().await;
    let dead_port = DeadPort::new();
    let dead = dead_port.address;
    let transport = upstream_at(vec![dead, alive.address, dead]).transport();
    for _ in 0..6 {
        ask(&transport, "").await.expect("an answer");
    }
    assert_eq!(alive.accepted(), 6);
    assert_eq!(transport.stats().connect_failed(), 0);
    let transport = upstream_at(vec![dead, dead]).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Connect, Sent::No));
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_dns_error() {
    let transport = upstream_at(Vec::new()).transport();
    assert_eq!(fails(&transport, "question").await, (Kind::Dns, Sent::No));
}

#[tokio::test]
async fn a_burst_is_no_storm_of_connection_attempts() {
    let server = Server::start(|stream, _| echo(stream)).await;
    let address = server.address;
    let (gate, now) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (opened, counted) = (Arc::clone(&gate), Arc::clone(&now));
    let mut upstream = Upstream::new("http://node.test:1/", HttpVersion::H1);
    upstream.settings.connects_max = 4;
    upstream.shared.resolver = Arc::new(Resolver::with_lookup(Box::new(move |_, _| {
        let (gate, now) = (Arc::clone(&opened), Arc::clone(&counted));
        Box::pin(async move {
            now.fetch_add(1, SeqCst);
            gate.acquire().await.expect("never closed").forget();
            Ok(vec![address])
        })
    })));
    let transport = upstream.transport();
    let asked: Vec<_> = (0..50).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    let stats = transport.stats();
    until("all wait", || stats.waiting() == 50).await;
    until("four look the name up", || now.load(SeqCst) == 4).await;
    gate.add_permits(50);
    for (n, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.expect("no panic").expect("an answer").body, format!("q{n}"));
    }
    assert!(server.accepted() <= 50);
}
