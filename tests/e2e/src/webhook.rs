//! A receiver of webhooks: it takes every JSON body that is sent to it by POST.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What was sent to a port of the loopback.
#[derive(Debug)]
pub struct Webhook {
    /// Where it listens.
    pub port: u16,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    /// Listens until the runtime of the test ends.
    ///
    /// # Panics
    /// Without a free port.
    pub async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let bodies = Arc::default();
        let taken = Arc::clone(&bodies);
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let taken = Arc::clone(&taken);
                let service = service_fn(move |request| take_in(Arc::clone(&taken), request));
                connections.spawn(async move {
                    let server = http1::Builder::new();
                    let _closed = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, bodies }
    }

    /// The bodies so far, in the order in which they came; `null` for one that is no JSON.
    ///
    /// # Panics
    /// Where the receiver panicked.
    pub fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().expect("nothing panics with it").clone()
    }
}

async fn take_in(
    taken: Arc<Mutex<Vec<Value>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    taken.lock().expect("nothing panics with it").push(body);
    Ok(Response::new(Full::default()))
}
