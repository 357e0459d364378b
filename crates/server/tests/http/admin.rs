//! The admin listener's routes and headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use wellhead_server::{AdminHandler, Health, Listener, Metrics, Server, Settings, Shutdown};

use crate::wire::{Reply, Wire};

#[derive(Default)]
struct Well(AtomicBool);

impl AdminHandler for Well {
    fn metrics(&self) -> Metrics {
        let body = "wellhead_requests_total 1\n".repeat(1000).into();
        Metrics { content_type: "text/plain; version=0.0.4", body }
    }

    fn live(&self) -> Health {
        Health { well: true, body: Bytes::from_static(b"{}") }
    }

    fn ready(&self) -> Health {
        let well = self.0.load(Ordering::Relaxed);
        Health { well, body: Bytes::from_static(br#"{"why":"starting"}"#) }
    }

    fn status(&self) -> Bytes {
        Bytes::from_static(br#"{"version":"0.1.0"}"#)
    }

    fn explain(&self, query: &str) -> Health {
        Health { well: query == "method=a", body: Bytes::from_static(b"{}") }
    }
}

async fn open() -> (Wire, Arc<Well>, Shutdown) {
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    let server = Server::new(Settings::admin());
    let admin = Arc::new(Well::default());
    let shutdown = Shutdown::new();
    tokio::spawn({
        let (admin, shutdown) = (Arc::clone(&admin), shutdown.clone());
        async move { server.serve_admin(listener, admin, &shutdown).await }
    });
    (Wire::connect(address).await, admin, shutdown)
}

async fn get(wire: &mut Wire, target: &str) -> Reply {
    wire.ask(&format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await
}

#[tokio::test]
async fn routes() {
    let (mut wire, _, _) = open().await;
    for (target, status, content_type) in [
        ("/", 200, "text/html; charset=utf-8"),
        ("/?x", 200, "text/html; charset=utf-8"),
        ("/page.css", 200, "text/css; charset=utf-8"),
        ("/page.js", 200, "text/javascript; charset=utf-8"),
        ("/status", 200, "application/json"),
        ("/livez", 200, "application/json"),
        ("/explain?method=a", 200, "application/json"),
        ("/explain", 400, "application/json"),
        ("/readyz", 503, "application/json"),
        ("/metrics", 200, "text/plain; version=0.0.4"),
        ("/page.html", 404, "application/json"),
        ("/../status", 404, "application/json"),
    ] {
        let reply = get(&mut wire, target).await;
        assert_eq!(reply.status, status, "{target}");
        assert_eq!(reply.header("content-type"), Some(content_type), "{target}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"));
        assert!(!reply.body.is_empty(), "{target}");
    }
}

#[tokio::test]
async fn readiness_follows_the_admin() {
    let (mut wire, admin, _) = open().await;
    let reply = get(&mut wire, "/readyz").await;
    assert_eq!((reply.status, reply.json()["why"].as_str()), (503, Some("starting")));
    admin.0.store(true, Ordering::Relaxed);
    assert_eq!(get(&mut wire, "/readyz").await.status, 200);
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let (mut wire, _, _) = open().await;
    let full = get(&mut wire, "/metrics").await;
    wire.send("HEAD /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let head = wire.reply_to_head().await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), full.header("content-length"));
    assert_eq!(get(&mut wire, "/livez").await.status, 200);
}

#[tokio::test]
async fn nothing_can_be_written() {
    let (mut wire, _, _) = open().await;
    let reply =
        wire.ask("POST /status HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    let reply = wire.ask("DELETE /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn only_names_of_this_machine_are_answered() {
    let (mut wire, _, _) = open().await;
    for (host, status) in
        [("localhost:4546", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("evil.example", 403)]
    {
        let get = format!("GET /status HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let reply = wire.ask(&get).await;
        assert_eq!(reply.status, status, "{host}");
        if status == 403 {
            let why = reply.json()["error"].as_str().unwrap().to_owned();
            assert!(why.contains("`admin_hosts`"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_post() {
    let (mut wire, _, _) = open().await;
    for (origin, status) in
        [("http://localhost", 405), ("http://localhost:3000", 403), ("null", 403)]
    {
        let post = format!(
            "POST /status HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\ncontent-length: 0\r\n\r\n"
        );
        assert_eq!(wire.ask(&post).await.status, status, "{origin}");
    }
}

#[tokio::test]
async fn metrics_are_compressed_when_asked() {
    let (mut wire, _, _) = open().await;
    let get = "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip\r\n\r\n";
    let reply = wire.ask(get).await;
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    assert!(reply.body.len() < 1000);
}

/// The page promises to work without a network and without inline code.
#[tokio::test]
async fn the_page_asks_only_its_own_listener() {
    let (mut wire, _, _) = open().await;
    for target in ["/", "/page.css", "/page.js"] {
        let text = String::from_utf8(get(&mut wire, target).await.body).unwrap();
        for word in ["http:", "https:", "//cdn", "@import", "innerHTML", " style=", "onclick="] {
            assert!(!text.contains(word), "{target} has {word}");
        }
    }
}

#[tokio::test]
async fn it_drains_too() {
    let (mut wire, _, shutdown) = open().await;
    assert_eq!(get(&mut wire, "/livez").await.status, 200);
    shutdown.begin();
    wire.is_closed().await;
}
