//! One look at an endpoint: what is seen of good ones, and how far each bad one lets it come.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wellhead_net::{CertificateFault, Endpoint, EndpointReport, Resolver, TrustedRoots, inspect};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::TransportErrorKind as Kind;

use crate::support::*;
use crate::tls::Authority;

async fn look(url: &str, roots: TrustedRoots<'_>, within: Duration) -> EndpointReport {
    let endpoint = Endpoint::new(SecretUrl::parse(url).expect("a good URL"));
    let deadline = Instant::now() + within;
    let resolver = Arc::new(Resolver::new());
    inspect(&endpoint, roots, None, resolver, deadline).await.expect("a good endpoint")
}

/// A server under TLS that answers each request with this date; `None` for one that closes.
async fn secure(authority: &Authority, date: Option<&'static str>) -> (Server, String) {
    let acceptor = authority.acceptor(&["h2", "http/1.1"]);
    let server = Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if let (Some(_), Some(date)) = (read_request(&mut stream).await, date) {
                let head = format!("HTTP/1.1 405 No\r\ndate: {date}\r\ncontent-length: 0\r\n\r\n");
                write(&mut stream, head).await;
            }
        }
    })
    .await;
    let url = format!("https://localhost:{}/SECRET", server.address.port());
    (server, url)
}

fn kind(report: &EndpointReport) -> Option<Kind> {
    report.failure.as_ref().map(|failure| failure.kind)
}

fn fault(report: &EndpointReport) -> Option<CertificateFault> {
    report.certificate.as_ref().and_then(|shown| shown.fault)
}

#[tokio::test]
async fn a_good_endpoint_shows_address_certificate_and_clock() {
    let authority = Authority::new();
    let (server, url) = secure(&authority, Some("Thu, 01 Jan 1970 00:01:40 GMT")).await;
    let roots = TrustedRoots::Only(authority.pem.as_bytes());
    let report = look(&url, roots, PATIENCE).await;
    assert_eq!(kind(&report), None, "{report:?}");
    assert_eq!(report.peer, Some(server.address));
    assert!(report.addresses.contains(&server.address));
    let shown = report.certificate.as_ref().expect("a certificate");
    assert!(shown.fault.is_none() && !shown.der.is_empty());
    let clock = report.clock.expect("a date");
    assert_eq!(
        clock.ahead_seconds as u64 / 60,
        (wellhead_telemetry::clock::unix_seconds() - 100) / 60
    );
    assert_eq!(server.accepted(), 1);
    assert!(!format!("{report:?}").contains("SECRET"));
}

#[tokio::test]
async fn without_a_date_only_the_clock_is_missing() {
    let authority = Authority::new();
    for date in [None, Some("yesterday")] {
        let (_server, url) = secure(&authority, date).await;
        let report = look(&url, TrustedRoots::Only(authority.pem.as_bytes()), PATIENCE).await;
        assert_eq!((kind(&report), report.clock), (None, None), "{date:?}");
    }
    let silent = Server::start(|mut stream, _| async move { closed(&mut stream).await }).await;
    let report = look(&silent.url(), TrustedRoots::Public, Duration::from_millis(100)).await;
    assert_eq!((kind(&report), report.clock), (None, None));
}

#[tokio::test]
async fn a_refused_certificate_is_shown_with_its_fault() {
    let past = Authority::with(|leaf| leaf.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let future = Authority::with(|leaf| leaf.not_before = rcgen::date_time_ymd(4000, 1, 1));
    let good = Authority::new();
    for (authority, trusted, host, expected) in [
        (&past, Some(&past), "localhost", CertificateFault::Expired),
        (&future, Some(&future), "localhost", CertificateFault::NotYetValid),
        (&good, None, "localhost", CertificateFault::UnknownIssuer),
        (&good, Some(&good), "127.0.0.1", CertificateFault::OtherName),
    ] {
        let (server, _) = secure(authority, None).await;
        let url = format!("https://{host}:{}/SECRET", server.address.port());
        let roots =
            trusted.map_or(TrustedRoots::Public, |it| TrustedRoots::Only(it.pem.as_bytes()));
        let report = look(&url, roots, PATIENCE).await;
        assert_eq!((kind(&report), fault(&report)), (Some(Kind::Tls), Some(expected)));
        assert!(report.peer.is_some() && report.clock.is_none());
    }
}

#[tokio::test]
async fn a_look_ends_at_the_step_that_fails() {
    let dead = DeadPort::new();
    let url = format!("http://{}/SECRET", dead.address);
    let report = look(&url, TrustedRoots::Public, PATIENCE).await;
    assert_eq!((kind(&report), report.addresses), (Some(Kind::Connect), vec![dead.address]));
    let report = look("http://no-such-host.invalid/", TrustedRoots::Public, PATIENCE).await;
    assert!(matches!(kind(&report), Some(Kind::Dns | Kind::ConnectTimeout)), "{report:?}");
    // It takes the connection, and never shakes hands.
    let silent = Server::start(|mut stream, _| async move { closed(&mut stream).await }).await;
    let url = format!("wss://localhost:{}/", silent.address.port());
    let report = look(&url, TrustedRoots::Public, Duration::from_millis(100)).await;
    assert_eq!(kind(&report), Some(Kind::ConnectTimeout));
    assert!(report.peer.is_some());
}
