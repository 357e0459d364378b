//! Stopping: answers under way arrive, idle connections close, the rest is cut.

use std::time::Duration;

use crate::site::{SOON, Site};
use crate::wire::Wire;
use tokio::net::TcpStream;
use wellhead_server::{Drained, Settings};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn an_answer_under_way_arrives_and_idle_connections_close() {
    let site = Site::open(Settings::default());
    let mut idle = site.connect().await;
    assert_eq!(idle.exchange("/", "", b"{}").await.status, 200);
    let mut silent = site.connect().await;
    let mut busy = site.connect().await;
    busy.post("/wait", "", b"{}").await;
    site.until_arrived(2).await;
    site.until("all are open", |counts| counts.connections_open == 3).await;

    site.shutdown.begin();
    idle.is_closed().await;
    silent.is_closed().await;
    site.until("only the busy one is left", |counts| counts.connections_open == 1).await;
    assert!(TcpStream::connect(site.address).await.is_err(), "the listener is closed");

    site.handler.gate.add_permits(1);
    let reply = busy.reply().await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers("connection").collect::<Vec<_>>(), ["close"]);
    busy.is_closed().await;
    assert_eq!(site.drained().await.dropped, 0);
}

/// Its client cannot know that the drain has begun.
#[tokio::test]
async fn what_an_idle_client_sends_after_a_hand_over_is_answered() {
    let settings = Settings { drain_timeout: HOUR, late_request_time: HOUR, ..Settings::default() };
    let site = Site::open(settings);
    let mut idle = site.connect().await;
    assert_eq!(idle.exchange("/", "", b"{}").await.status, 200);
    site.shutdown.begin_handed_over();
    // The connections hear of it.
    while TcpStream::connect(site.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let reply = idle.exchange("/", "", b"{}").await;
    assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    idle.is_closed().await;
    assert_eq!(site.drained().await.dropped, 0);
}

#[tokio::test]
async fn a_pipelined_second_call_is_not_answered_after_the_close() {
    let site = Site::open(Settings::default());
    let mut wire = site.connect().await;
    wire.post("/wait", "", b"{}").await;
    site.until_arrived(1).await;
    site.shutdown.begin();
    wire.post("/late", "", b"{}").await;
    site.handler.gate.add_permits(1);
    assert_eq!(wire.reply().await.header("connection"), Some("close"));
    wire.is_closed().await;
}

#[tokio::test]
async fn what_does_not_end_is_cut() {
    let site = Site::open(Settings { drain_timeout: SOON, ..Settings::default() });
    let mut stuck = site.connect().await;
    stuck.post("/wait", "", b"{}").await;
    site.until_arrived(1).await;
    let server = site.server.clone();
    assert_eq!(site.drained().await, Drained { finished: 0, dropped: 1 });
    stuck.is_closed().await;
    let counts = server.counts();
    assert_eq!((counts.connections_open, counts.requests_open), (0, 0));
    assert_eq!(counts.drain_dropped_total, 1);
    assert_eq!((counts.answered(503), counts.answered(499)), (1, 0), "its client did not leave");
}

#[tokio::test]
async fn a_server_without_clients_stops_at_once() {
    let site = Site::open(Settings { drain_timeout: HOUR, ..Settings::default() });
    site.shutdown.begin();
    site.shutdown.begin();
    site.shutdown.begun().await;
    assert_eq!(site.drained().await, Drained::default());
}

/// Connected before the drain, not accepted yet: the client believes it is served.
#[tokio::test]
async fn clients_in_the_accept_queue_are_served_once() {
    let site = Site::open(Settings::default());
    // The server's task has not run yet: a standard connect does not yield to it.
    let mut streams = Vec::new();
    for _ in 0..5 {
        let stream = std::net::TcpStream::connect(site.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        streams.push(TcpStream::from_std(stream).unwrap());
    }
    site.shutdown.begin();
    for stream in streams {
        let mut wire = Wire::over(stream);
        let reply = wire.exchange("/", "", b"{}").await;
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")));
    }
    assert_eq!(site.drained().await.dropped, 0);
}
