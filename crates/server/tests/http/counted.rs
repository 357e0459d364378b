//! Every request is counted once, by its status, and leaves one line.

use std::sync::atomic::Ordering;

use wellhead_server::{Hosts, STATUSES, Settings};

use crate::log::Lines;
use crate::site::Site;

/// What a client sends in one connection, and the status that is counted.
const REFUSED: [(&str, u16, &str); 10] = [
    ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", 405, "method_not_allowed"),
    ("POST /1/2 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n", 404, "not_found"),
    ("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\n", 413, "body_too_large"),
    (
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n",
        415,
        "not_json",
    ),
    (
        "POST / HTTP/1.1\r\nhost: localhost\r\nx-wellhead-block: latest\r\ncontent-length: 0\r\n\r\n",
        400,
        "bad_block",
    ),
    (
        "OPTIONS / HTTP/1.1\r\nhost: localhost\r\norigin: https://app.example\r\naccess-control-request-method: POST\r\n\r\n",
        403,
        "origin_refused",
    ),
    ("POST / HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 0\r\n\r\n", 403, "wrong_host"),
    (
        "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n",
        426,
        "bad_upgrade",
    ),
    ("\u{1}\r\n\r\n", 400, "not_http"),
    ("POST / HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n", 431, "head_too_long"),
];

fn settings() -> Settings {
    Settings {
        head_bytes_max: 1024,
        body_bytes_max: 1000,
        hosts: Hosts::LOCAL,
        ..Settings::default()
    }
}

#[tokio::test]
async fn what_is_refused_is_counted_and_told() {
    let lines = Lines::collect();
    let site = Site::open(settings());
    for (request, status, reason) in REFUSED {
        let before = site.server.counts();
        let mut wire = site.connect().await;
        wire.send(request.replace("{long}", &"y".repeat(2000))).await;
        assert_eq!(wire.reply().await.status, status, "{reason}");
        drop(wire);
        site.until("it ends", |counts| counts.requests_open == 0).await;
        let after = site.server.counts();
        assert_eq!(after.answered(status), before.answered(status) + 1, "{reason}");
        assert_eq!(after.statuses.iter().sum::<u64>(), before.statuses.iter().sum::<u64>() + 1);
        let line = format!("status={status} reason=\"{reason}\"");
        assert_eq!(lines.with(&line), 1, "{line}");
    }
    let hint = "refused a call from a web page: add its origin to `cors.origins` \
                origin=\"https://app.example\"";
    assert_eq!(lines.with(hint), 1, "at once");
    let hint =
        "refused a request for this host name: add the name to `hosts` host=\"evil.example\"";
    assert_eq!(lines.with(hint), 1, "at once");
}

#[tokio::test]
async fn answers_and_clients_that_left_are_counted() {
    let lines = Lines::collect();
    let site = Site::open(settings());
    let mut wire = site.connect().await;
    let host = "host: localhost\r\n";
    for (target, status) in [("/", 200), ("/full", 429), ("/empty", 204)] {
        wire.send(format!("POST {target} HTTP/1.1\r\n{host}content-length: 2\r\n\r\n{{}}")).await;
        assert_eq!(wire.reply().await.status, status);
    }
    wire.send(format!("POST /wait HTTP/1.1\r\n{host}content-length: 2\r\n\r\n{{}}")).await;
    site.until_arrived(4).await;
    drop(wire);
    site.until("it is counted", |counts| counts.answered(499) == 1).await;
    assert_eq!(site.handler.abandoned.load(Ordering::Relaxed), 1);
    let counts = site.server.counts();
    let counted: Vec<_> =
        STATUSES.iter().map(|status| counts.answered(*status)).zip(STATUSES).collect();
    let seen: Vec<u16> = counted.iter().filter(|(count, _)| *count > 0).map(|(_, s)| *s).collect();
    assert_eq!(seen, [200, 204, 429, 499]);
    assert_eq!(lines.with("wellhead"), 0, "the handler leaves the lines of what it got");
}

/// A flood of bad requests costs a bounded number of lines, and the counts stay exact.
#[tokio::test]
async fn a_flood_is_counted_and_not_written() {
    let lines = Lines::collect();
    let site = Site::open(settings());
    let mut wire = site.connect().await;
    for _ in 0..200 {
        wire.ask("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    }
    site.until("they are counted", |counts| counts.answered(405) == 200).await;
    let told = lines.with("method_not_allowed");
    assert!((20..200).contains(&told), "{told}");
}
