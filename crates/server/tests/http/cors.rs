//! Web pages that call.

use crate::site::Site;
use crate::wire::Reply;
use wellhead_server::Settings;

const PREFLIGHT: &str = "OPTIONS /1 HTTP/1.1\r\nhost: a\r\norigin: https://app.example\r\n\
    access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n\r\n";

async fn preflight(origins: &[&str]) -> Reply {
    let cors_origins = origins.iter().map(|&origin| origin.to_owned()).collect();
    let site = Site::open(Settings { cors_origins, ..Settings::default() });
    site.connect().await.ask(PREFLIGHT).await
}

#[tokio::test]
async fn off_by_default() {
    let reply = preflight(&[]).await;
    reply.is_refusal(403, -32600);
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn an_allowed_page_may_ask_and_call_and_read_refusals() {
    for (origins, allowed) in [(["*"], "*"), (["https://app.example"], "https://app.example")] {
        let reply = preflight(&origins).await;
        assert_eq!(reply.status, 204);
        assert_eq!(reply.header("access-control-allow-origin"), Some(allowed));
        assert_eq!(reply.header("access-control-allow-methods"), Some("POST, OPTIONS"));
        assert_eq!(reply.header("access-control-allow-headers"), Some("content-type"));
        assert!(reply.header("access-control-allow-credentials").is_none());
    }
    let site = Site::open(Settings { cors_origins: vec!["*".into()], ..Settings::default() });
    let mut wire = site.connect().await;
    let origin = "origin: https://app.example\r\n";
    for (target, status) in [("/", 200), ("/1/2", 404)] {
        let reply = wire.exchange(target, origin, b"{}").await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    }
    assert_eq!(wire.exchange("/", "", b"{}").await.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn another_page_may_not() {
    let reply = preflight(&["https://other.example"]).await;
    reply.is_refusal(403, -32600);
    assert_eq!(reply.header("access-control-allow-origin"), None);
    assert_eq!(reply.header("access-control-allow-methods"), None);
    assert_eq!(reply.header("vary"), Some("origin"));
}
