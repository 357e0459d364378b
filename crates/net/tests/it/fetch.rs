//! Single documents: what comes whole, and each way in which one does not.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use wellhead_net::{
    DocumentFetcher, Endpoint, EndpointError, FetchError, FetchLimits, Resolver, TlsClient,
    TrustedRoots,
};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::TransportErrorKind as Kind;

use crate::support::*;
use crate::tls::Authority;

/// Small enough that a test can send more.
const LIMITS: FetchLimits = FetchLimits { bytes_max: 1000, timeout: PATIENCE };
/// For servers that never come to an end.
const SHORT: FetchLimits = FetchLimits { timeout: Duration::from_millis(300), ..LIMITS };

fn fetcher(url: &str, limits: FetchLimits, roots: TrustedRoots<'_>) -> DocumentFetcher {
    let endpoint = Endpoint::new(SecretUrl::parse(url).expect("a good URL"));
    let tls = TlsClient::new(roots).expect("good roots");
    let resolver = Arc::new(Resolver::new());
    DocumentFetcher::new(&endpoint, limits, resolver, &tls, 1).expect("a good endpoint")
}

/// What comes of a server that writes `answer` and, if it `leaves`, closes.
async fn fetch(limits: FetchLimits, answer: String, leaves: bool) -> Result<String, FetchError> {
    let answer = Arc::<str>::from(answer);
    let server = Server::start(move |mut stream: TcpStream, _| {
        let answer = Arc::clone(&answer);
        async move {
            if read_request(&mut stream).await.is_some() {
                write(&mut stream, &*answer).await;
            }
            if !leaves {
                closed(&mut stream).await;
            }
        }
    })
    .await;
    let url = format!("{}SECRET", server.url());
    let fetched = fetcher(&url, limits, TrustedRoots::Public).fetch().await;
    assert_eq!(server.accepted(), 1, "there is no second attempt");
    fetched.map(|document| String::from_utf8_lossy(&document.body).into_owned())
}

async fn check(answer: &str, expected: Result<&str, &str>) {
    let fetched = fetch(LIMITS, answer.to_owned(), true).await.map_err(|error| error.to_string());
    assert_eq!(fetched, expected.map(str::to_owned).map_err(str::to_owned), "{answer}");
}

#[tokio::test]
async fn a_document_comes_whole_whatever_its_framing() {
    check(&ok("{}"), Ok("{}")).await;
    check(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
        Ok("{}"),
    )
    .await;
    check("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", Ok("{}")).await;
    check("HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Ok("")).await;
    // What it is, is for the caller to say.
    let page = "<html>Sign in</html>";
    check(
        &format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 20\r\n\r\n{page}"),
        Ok(page),
    )
    .await;
    let whole = "x".repeat(LIMITS.bytes_max);
    check(&ok(&whole), Ok(&whole)).await;
}

#[tokio::test]
async fn other_answers_are_errors_that_name_their_status() {
    for status in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: http://127.0.0.1:1/?SECRET\r\ncontent-length: 0\r\n\r\n"
        );
        let expected = format!("the server redirects (HTTP {status}), which is not followed");
        check(&answer, Err(&expected)).await;
    }
    for status in [201, 204, 400, 401, 404, 500, 503] {
        let answer = format!("HTTP/1.1 {status} Other\r\ncontent-length: 0\r\n\r\n");
        check(&answer, Err(&format!("the server answered with HTTP {status}"))).await;
    }
}

#[tokio::test]
async fn codings_that_were_not_asked_for_are_refused() {
    let text = "the document has a content coding that was not asked for";
    for coding in ["gzip", "br", "deflate", "zstd"] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n");
        check(&format!("{head}content-length: 2\r\n\r\n{{}}"), Err(text)).await;
    }
    check("HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-length: 2\r\n\r\n{}", Ok("{}"))
        .await;
}

#[tokio::test]
async fn too_much_is_refused_announced_or_sent() {
    let text = "the document is longer than 1000 bytes";
    // Nothing of it has to come.
    check("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n", Err(text)).await;
    check("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n", Err(text)).await;
    let long = "x".repeat(1001);
    check(
        &format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{long}\r\n0\r\n\r\n"),
        Err(text),
    )
    .await;
    check(&format!("HTTP/1.1 200 OK\r\n\r\n{long}"), Err(text)).await;
}

#[tokio::test]
async fn what_is_cut_short_is_no_document() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
    ] {
        let fetched = fetch(LIMITS, answer.to_owned(), true).await;
        let Err(FetchError::Transport(error)) = fetched else { panic!("{answer}: {fetched:?}") };
        assert_eq!(error.kind, Kind::Truncated, "{answer}");
    }
    let fetched = fetch(LIMITS, String::new(), true).await;
    assert!(
        matches!(&fetched, Err(FetchError::Transport(error)) if error.kind == Kind::Closed),
        "{fetched:?}"
    );
    let fetched = fetch(LIMITS, "SSH-2.0-OpenSSH_9.2\r\n".to_owned(), false).await;
    assert!(
        matches!(&fetched, Err(FetchError::Transport(error)) if error.kind == Kind::Protocol),
        "{fetched:?}"
    );
}

#[tokio::test]
async fn a_server_that_hangs_costs_no_more_than_the_time() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ] {
        let fetched = fetch(SHORT, answer.to_owned(), false).await;
        assert!(matches!(fetched, Err(FetchError::Timeout(_))), "{answer}: {fetched:?}");
    }
}

#[tokio::test]
async fn one_bare_get_is_sent_and_the_connection_closed() {
    let (told, mut heard) = mpsc::unbounded_channel();
    let server = Server::start(move |mut stream: TcpStream, _| {
        let told = told.clone();
        async move {
            let request = read_request(&mut stream).await.expect("a request");
            write(&mut stream, ok("{}")).await;
            closed(&mut stream).await;
            told.send(request).expect("the test listens");
        }
    })
    .await;
    let url = format!("{}keys.json?a=SECRET", server.url().replace("://", "://user:SECRET@"));
    let fetcher = fetcher(&url, LIMITS, TrustedRoots::Public);
    assert!(!format!("{fetcher:?}").contains("SECRET"));
    for _ in 0..2 {
        fetcher.fetch().await.expect("a document");
        let request = heard.recv().await.expect("it was closed by the client");
        let head = request.head.to_ascii_lowercase();
        assert!(head.starts_with("get /keys.json?a=secret http/1.1\r\n"), "{head}");
        for line in ["accept-encoding: identity", "connection: close", "authorization: basic "] {
            assert_eq!(head.matches(&format!("\r\n{line}")).count(), 1, "{line}: {head}");
        }
        assert!(!head.contains("content-length") && !head.contains("content-type"), "{head}");
        assert_eq!(request.body, "");
    }
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_without_the_url() {
    let port = DeadPort::new();
    let url = format!("http://{}/SECRET", port.address);
    let error = fetcher(&url, LIMITS, TrustedRoots::Public).fetch().await.expect_err("refused");
    assert!(error.to_string().starts_with("could not connect"), "{error}");
    assert!(!error.to_string().contains("SECRET"));
    let endpoint = Endpoint::new(SecretUrl::parse("wss://localhost/SECRET").expect("a URL"));
    let tls = TlsClient::new(TrustedRoots::Public).expect("good roots");
    let refused = DocumentFetcher::new(&endpoint, LIMITS, Arc::default(), &tls, 1);
    assert!(matches!(refused, Err(EndpointError::Scheme(..))));
}

#[tokio::test]
async fn certificates_are_checked_before_anything_is_asked() {
    let authority = Authority::new();
    // One that speaks HTTP/2 as well is asked in HTTP/1.1.
    let acceptor = authority.acceptor(&["h2", "http/1.1"]);
    let server = Server::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if read_request(&mut stream).await.is_some() {
                write(&mut stream, ok("{}")).await;
                closed(&mut stream).await;
            }
        }
    })
    .await;
    let url = format!("https://localhost:{}/SECRET", server.address.port());
    let known = TrustedRoots::Only(authority.pem.as_bytes());
    let document = fetcher(&url, LIMITS, known).fetch().await.expect("a document");
    assert_eq!(document.body, "{}");
    let other_name = url.replace("localhost", "127.0.0.1");
    let other = Authority::new();
    for (url, roots) in [
        (&url, TrustedRoots::Public),
        (&url, TrustedRoots::Only(other.pem.as_bytes())),
        (&other_name, known),
    ] {
        let error = fetcher(url, LIMITS, roots).fetch().await.expect_err("refused");
        let FetchError::Transport(inner) = &error else { panic!("{error:?}") };
        assert_eq!(inner.kind, Kind::Tls, "{error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
}
