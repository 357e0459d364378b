//! What one HTTP/2 stream holds while it waits for its client. A file of its own, because its
//! allocator counts.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]
#![allow(clippy::print_stdout, reason = "the count is told as well as checked")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use allocation_counter::measure;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use wellhead_server::{
    ClientHead, Handler, HttpAnswer, HttpRefusal, HttpRequest, Identified, Listener, Server,
    SessionHead, Settings, Shutdown,
};

const STREAMS: usize = 32;

/// The state of a handler of this size is alive until its answer is there.
const STATE_BYTES: usize = 16 * 1024;

/// Of a stream, its client's part included, the state of its handler apart.
const BYTES_MAX: usize = 4 * 1024;

#[derive(Default)]
struct Large {
    answered: AtomicUsize,
}

impl Handler for Large {
    type Session = ();
    type Caller = ();

    fn identify(&self, _head: &ClientHead<'_>) -> Result<Identified<()>, HttpRefusal> {
        Ok(Identified::as_it_came(()))
    }

    fn open_session(&self, _caller: &(), _head: SessionHead<'_>) {}

    async fn handle_message(&self, _session: &Arc<()>, request: HttpRequest<()>) -> HttpAnswer {
        Box::pin(self.handle(request)).await
    }

    async fn handle(&self, request: HttpRequest<()>) -> HttpAnswer {
        let state = black_box([0_u8; STATE_BYTES]);
        tokio::task::yield_now().await;
        black_box(&state);
        self.answered.fetch_add(1, Relaxed);
        HttpAnswer { status: 200, body: request.body.into(), ..HttpAnswer::default() }
    }
}

/// A client whose windows stay shut, and its server, on one thread.
struct Site {
    runtime: Runtime,
    server: Arc<Server>,
    handler: Arc<Large>,
    client: SendRequest<Bytes>,
    streams: Vec<(ResponseFuture, SendStream<Bytes>)>,
}

impl Site {
    fn open() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = Server::new(Settings::default());
        let handler = Arc::new(Large::default());
        let client = runtime.block_on(async {
            let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).unwrap();
            let address = listener.address();
            let (server, handler) = (Arc::clone(&server), Arc::clone(&handler));
            tokio::spawn(async move { server.serve(listener, handler, &Shutdown::new()).await });
            let stream = TcpStream::connect(address).await.unwrap();
            let (client, connection) = h2::client::Builder::new()
                .initial_window_size(0)
                .handshake::<_, Bytes>(stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            client
        });
        Self { runtime, server, handler, client, streams: Vec::new() }
    }

    /// Begins so many requests; with `body` they are complete.
    fn ask(&mut self, streams: usize, body: bool) {
        self.runtime.block_on(async {
            let open = self.server.counts().requests_open + streams;
            for _ in 0..streams {
                self.client = self.client.clone().ready().await.unwrap();
                let request = Request::post("http://test/").body(()).unwrap();
                let (answer, mut upload) = self.client.send_request(request, false).unwrap();
                if body {
                    upload.send_data(Bytes::from_static(b"[0,1,2]"), true).unwrap();
                }
                self.streams.push((answer, upload));
            }
            let answered = self.handler.answered.load(Relaxed) + if body { streams } else { 0 };
            while self.handler.answered.load(Relaxed) < answered
                || (!body && self.server.counts().requests_open < open)
            {
                tokio::task::yield_now().await;
            }
            // The last answers are handed on.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        });
    }
}

fn check(what: &str, body: bool) {
    let mut site = Site::open();
    // Tables that grow do so before.
    site.ask(STREAMS, body);
    let counted = measure(|| site.ask(STREAMS, body));
    let bytes = usize::try_from(counted.bytes_current).unwrap() / STREAMS;
    println!(
        "{what}: {bytes} bytes a stream, {} allocations",
        counted.count_total / STREAMS as u64
    );
    assert!(bytes <= BYTES_MAX, "{what}: {bytes} bytes");
}

#[test]
fn a_stream_whose_window_is_shut_does_not_hold_the_state_of_its_handler() {
    check("answer waits", true);
}

#[test]
fn a_stream_whose_body_is_not_there_does_not_hold_the_state_of_its_handler() {
    check("body awaited", false);
}
