//! Many clients at once. A file of its own, because it needs a thousand file descriptors.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use wellhead_server::{
    ClientHead, Handler, HttpAnswer, HttpRefusal, HttpRequest, Identified, Listener, Server,
    SessionHead, Settings, Shutdown,
};

const CLIENTS: usize = 500;
const ROUNDS: usize = 4;

struct Echo;

impl Handler for Echo {
    type Session = ();
    type Caller = ();

    fn identify(&self, _head: &ClientHead<'_>) -> Result<Identified<()>, HttpRefusal> {
        Ok(Identified::as_it_came(()))
    }

    fn open_session(&self, _caller: &(), _head: SessionHead<'_>) {}

    async fn handle_message(&self, _session: &Arc<()>, request: HttpRequest<()>) -> HttpAnswer {
        self.handle(request).await
    }

    async fn handle(&self, request: HttpRequest<()>) -> HttpAnswer {
        // Other requests are interleaved.
        tokio::task::yield_now().await;
        HttpAnswer { status: 200, body: request.body.into(), ..HttpAnswer::default() }
    }
}

async fn client(address: std::net::SocketAddr, number: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    for round in 0..ROUNDS {
        let body = format!("{{\"id\":\"{number:04}-{round}\"}}");
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(body.as_bytes()) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0, "closed in round {round}");
        }
        assert!(read.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn each_client_gets_its_own_answer_and_everything_is_given_back() {
    let server = Server::new(Settings::default());
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    let shutdown = Shutdown::new();
    let serving = tokio::spawn({
        let (server, shutdown) = (Arc::clone(&server), shutdown.clone());
        async move { server.serve(listener, Arc::new(Echo), &shutdown).await }
    });
    let mut clients: JoinSet<()> = (0..CLIENTS).map(|number| client(address, number)).collect();
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    shutdown.begin();
    let drained = serving.await.unwrap().unwrap();
    assert_eq!(drained.dropped, 0);
    let counts = server.counts();
    assert_eq!(counts.accepted_total, CLIENTS as u64);
    assert_eq!(counts.http1_total, CLIENTS as u64);
    assert_eq!((counts.connections_open, counts.requests_open, counts.http1_open), (0, 0, 0));
    assert_eq!(counts.refused, [0; wellhead_server::HttpRefusal::ALL.len()]);
}

#[tokio::test]
async fn silence_is_not_a_way_to_keep_others_out_for_ever() {
    let settings = Settings {
        connections_max: 100,
        head_timeout: std::time::Duration::from_millis(40),
        ..Settings::default()
    };
    let server = Server::new(settings);
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
    let address = listener.address();
    let shutdown = Shutdown::new();
    tokio::spawn({
        let (server, shutdown) = (Arc::clone(&server), shutdown.clone());
        async move { server.serve(listener, Arc::new(Echo), &shutdown).await }
    });
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"{}") {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0);
    }
    assert_eq!(Bytes::from(read).slice(..12), "HTTP/1.1 200");
}

/// As `app` runs it: threads, each with a runtime and a listener of its own.
#[test]
fn workers_share_an_address_and_its_counts() {
    const WORKERS: usize = 2;
    let server = Server::new(Settings::default());
    let shutdown = Shutdown::new();
    let listeners = Listener::bind_workers(([127, 0, 0, 1], 0).into(), WORKERS).unwrap();
    let address = listeners[0].address();
    let handler = Arc::new(Echo);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let workers: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let (server, handler) = (Arc::clone(&server), Arc::clone(&handler));
            let shutdown = shutdown.clone();
            std::thread::spawn(move || {
                runtime().block_on(server.serve(listener, handler, &shutdown)).unwrap()
            })
        })
        .collect();
    runtime().block_on(async {
        let mut clients: JoinSet<()> = (0..60).map(|number| client(address, number)).collect();
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
    });
    shutdown.begin();
    for worker in workers {
        assert_eq!(worker.join().unwrap().dropped, 0);
    }
    assert_eq!(server.counts().accepted_total, 60);
    assert_eq!(server.counts().connections_open, 0);
}
