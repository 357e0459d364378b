//! Plain clients: HTTP/1.1 by hyper, HTTP/2 by `h2` itself, which shows the frames.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use wellhead_sim::provider::{ProviderCounts, ProviderTls};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

/// Nothing here takes long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// The head of [`world`].
pub(crate) const HEAD: u64 = 16;

pub(crate) fn world() -> Arc<World> {
    World::new(WorldConfig::seeded(7))
}

pub(crate) fn provider(dials: ProviderDials) -> FakeProvider {
    FakeProvider::start("provider", world(), dials).unwrap()
}

pub(crate) fn call(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

pub(crate) fn block_number() -> String {
    call("eth_blockNumber", &json!([]))
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("took far too long")
}

/// Waits until the provider has counted so.
pub(crate) async fn until(provider: &FakeProvider, what: impl Fn(ProviderCounts) -> bool) {
    within(async {
        while !what(provider.counts()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What came back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<String>,
    /// `connection: close`.
    pub(crate) closes: bool,
    pub(crate) body: Value,
}

impl Told {
    fn new(parts: &hyper::http::response::Parts, body: &[u8]) -> Self {
        let header = |name| parts.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
        Self {
            status: parts.status,
            retry_after: header("retry-after"),
            closes: header("connection").as_deref() == Some("close"),
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        }
    }

    pub(crate) fn code(&self) -> Option<i64> {
        self.body["error"]["code"].as_i64()
    }
}

/// One HTTP/1.1 connection.
pub(crate) struct Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>);

impl Http1 {
    pub(crate) async fn open(provider: &FakeProvider) -> Self {
        Self::over(TcpStream::connect(provider.addr()).await.unwrap()).await
    }

    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    pub(crate) async fn try_ask(&mut self, body: &str) -> Result<Told, hyper::Error> {
        within(async {
            self.0.ready().await?;
            let (parts, body) = self.0.send_request(request(body)).await?.into_parts();
            Ok(Told::new(&parts, &body.collect().await?.to_bytes()))
        })
        .await
    }

    pub(crate) async fn ask(&mut self, body: &str) -> Told {
        self.try_ask(body).await.unwrap()
    }
}

fn request(body: &str) -> Request<Full<Bytes>> {
    Request::post("/key")
        .header("host", "provider")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

/// One HTTP/2 connection, and how it ends.
pub(crate) struct Http2 {
    pub(crate) client: SendRequest<Bytes>,
    pub(crate) ended: JoinHandle<Result<(), h2::Error>>,
}

/// A stream whose request is not complete, so that it stays under way.
pub(crate) struct Open {
    response: h2::client::ResponseFuture,
    body: h2::SendStream<Bytes>,
}

impl Http2 {
    pub(crate) async fn open(provider: &FakeProvider) -> Self {
        Self::over(TcpStream::connect(provider.addr()).await.unwrap()).await
    }

    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let (client, connection): (_, Connection<_, Bytes>) =
            h2::client::handshake(stream).await.unwrap();
        Self { client, ended: tokio::spawn(connection) }
    }

    pub(crate) async fn try_begin(&mut self) -> Result<Open, h2::Error> {
        let mut client = within(self.client.clone().ready()).await?;
        let request = Request::post("http://provider/key").body(()).unwrap();
        let (response, body) = client.send_request(request, false)?;
        Ok(Open { response, body })
    }

    pub(crate) async fn try_ask(&mut self, body: &str) -> Result<Told, h2::Error> {
        self.try_begin().await?.finish(body).await
    }

    pub(crate) async fn ask(&mut self, body: &str) -> Told {
        self.try_ask(body).await.unwrap()
    }

    /// How the connection ended: the code of its GOAWAY, or `None` without one.
    pub(crate) async fn end(self) -> Option<u32> {
        drop(self.client);
        match within(self.ended).await.unwrap() {
            Ok(()) => None,
            Err(error) if error.is_go_away() => error.reason().map(Into::into),
            Err(_) => None,
        }
    }
}

impl Open {
    /// Sends the rest and waits for the answer.
    pub(crate) async fn finish(mut self, body: &str) -> Result<Told, h2::Error> {
        self.body.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
        let (parts, body) = self.headers().await?.into_parts();
        Ok(Told::new(&parts, &frames(body).await?.concat()))
    }

    /// Sends the rest and waits for the frames of the answer's body.
    pub(crate) async fn frames(mut self, body: &str) -> Vec<Bytes> {
        self.body.send_data(Bytes::copy_from_slice(body.as_bytes()), true).unwrap();
        frames(self.headers().await.unwrap().into_body()).await.unwrap()
    }

    /// Sends the rest.
    pub(crate) fn send(&mut self, body: &str) {
        self.body.send_data(Bytes::copy_from_slice(body.as_bytes()), true).unwrap();
    }

    /// Waits for the answer's headers, with the request as complete as it is.
    pub(crate) async fn headers(&mut self) -> Result<Response<h2::RecvStream>, h2::Error> {
        within(&mut self.response).await
    }
}

/// All frames of a body.
pub(crate) async fn frames(mut body: h2::RecvStream) -> Result<Vec<Bytes>, h2::Error> {
    within(async {
        let mut frames = Vec::new();
        while let Some(frame) = body.data().await {
            let frame = frame?;
            body.flow_control().release_capacity(frame.len())?;
            frames.push(frame);
        }
        Ok(frames)
    })
    .await
}

/// What a provider needs for TLS, and a client that trusts it.
pub(crate) fn tls() -> (ProviderTls, impl Fn(&[&[u8]]) -> TlsConnector) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let connector = {
        let certificate = certificate.clone();
        move |protocols: &[&[u8]]| {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificate.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        }
    };
    (ProviderTls::new(certificate, key).unwrap(), connector)
}
