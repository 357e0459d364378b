//! A provider's side of one connection: with or without TLS, and with an end that
//! reaches the client.
//!
//! A side that closes a socket with unread bytes in it sends a reset, and a reset may arrive
//! before what was written last. So a close here says goodbye, then reads and forgets
//! until the client has closed, as gateways do.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// How long a closed connection waits for the client to close it as well.
const LINGER_MAX: Duration = Duration::from_secs(2);
/// Bytes read and forgotten at once.
const FORGET_BYTES: usize = 4096;

/// What a provider needs to speak TLS.
#[derive(Clone)]
pub struct ProviderTls {
    both: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
}

impl fmt::Debug for ProviderTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderTls").finish_non_exhaustive()
    }
}

impl ProviderTls {
    /// With this certificate and its key. Fails when they do not fit together.
    pub fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut http1 = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut both = http1.clone();
        both.alpn_protocols.insert(0, b"h2".to_vec());
        Ok(Self { both: Arc::new(both), http1: Arc::new(http1) })
    }

    /// Shakes hands, and says whether HTTP/2 was agreed on.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        http2: bool,
    ) -> io::Result<(ProviderSocket, bool)> {
        let config = if http2 { &self.both } else { &self.http1 };
        let stream = TlsAcceptor::from(Arc::clone(config)).accept(stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((ProviderSocket::new(Layer::Right(Box::new(stream))), agreed))
    }
}

/// Without and with TLS.
type Layer = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// One connection.
#[derive(Debug)]
pub(super) struct ProviderSocket {
    layer: Layer,
    /// Read already, and put back.
    front: Bytes,
    /// Set once goodbye is said.
    linger: Option<Pin<Box<Sleep>>>,
}

impl ProviderSocket {
    fn new(layer: Layer) -> Self {
        Self { layer, front: Bytes::new(), linger: None }
    }

    /// Without TLS.
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self::new(Layer::Left(stream))
    }

    /// Lets the next reader see these bytes first.
    pub(super) fn put_back(&mut self, bytes: Bytes) {
        self.front = bytes;
    }

    fn layer(self: Pin<&mut Self>) -> Pin<&mut Layer> {
        Pin::new(&mut self.get_mut().layer)
    }
}

impl AsyncRead for ProviderSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.front.has_remaining() {
            let part = this.front.split_to(this.front.len().min(buffer.remaining()));
            buffer.put_slice(&part);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.layer).poll_read(context, buffer)
    }
}

impl AsyncWrite for ProviderSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.layer().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.layer().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.layer().poll_flush(context)
    }

    /// Says goodbye, then waits until the client has as well, for [`LINGER_MAX`] at most.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.layer).poll_shutdown(context))?;
        }
        let linger = this.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER_MAX)));
        let mut forgotten = [0; FORGET_BYTES];
        loop {
            if linger.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut forgotten);
            // An error ends the connection as well as its end does.
            let read = ready!(Pin::new(&mut this.layer).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
