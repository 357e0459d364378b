//! A client's bytes, over bare TCP or under TLS: the first ones, which tell the protocol,
//! and the stream under hyper, which gives them back and notes the client's pace.
//!
//! The handshake is in `tls`; HTTP/1.1 reads and writes a [`ClientStream`] itself (`h1`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::link::ClientLink;
use crate::protocol::ClientProtocol;
use crate::tls::TlsStream;

/// What an HTTP/2 client with prior knowledge says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// GOAWAY with ENHANCE_YOUR_CALM (RFC 9113, section 6.8), which hyper has no word for. As the
/// last stream it names the highest there can be: any call may have been carried out.
const CALM: &[u8; 17] = b"\0\0\x08\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0b";

/// A client's connection as bytes. A type and not an object: over bare TCP nothing of TLS
/// may cost anything.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether the client can tell an end from a cut, if it is told by `shutdown`.
    const SAYS_WHEN_IT_ENDS: bool;

    /// Has small pieces be sent at once. Fails when the client is gone, which the next read will tell.
    fn send_at_once(&self);

    /// Has the connection be reset when it is dropped, so that its end does not look like a good one.
    fn reset_when_dropped(&self);
}

impl ClientStream for TcpStream {
    const SAYS_WHEN_IT_ENDS: bool = false;

    fn send_at_once(&self) {
        let _ = self.set_nodelay(true);
    }

    fn reset_when_dropped(&self) {
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

/// Of programs on this machine: pieces are sent at once, and there are no resets.
impl ClientStream for UnixStream {
    const SAYS_WHEN_IT_ENDS: bool = false;

    fn send_at_once(&self) {}

    fn reset_when_dropped(&self) {}
}

/// Boxed: a session is a KiB, and what serves a connection moves its stream several times,
/// each of which would keep that room for as long as the connection lasts.
impl ClientStream for Box<TlsStream<TcpStream>> {
    const SAYS_WHEN_IT_ENDS: bool = true;

    fn send_at_once(&self) {
        self.socket().send_at_once();
    }

    fn reset_when_dropped(&self) {
        self.socket().reset_when_dropped();
    }
}

/// The first bytes of a connection, read to tell its protocol.
#[derive(Debug)]
pub(crate) struct FirstBytes {
    pub(crate) protocol: ClientProtocol,
    bytes: [u8; PREFACE.len()],
    filled: usize,
}

impl FirstBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Reads until the protocol is certain. `None` when the client closed first. At most 24 bytes
    /// are `unread`: they came before and are the first ones.
    pub(crate) async fn read(
        stream: &mut impl ClientStream,
        unread: &[u8],
    ) -> io::Result<Option<Self>> {
        let mut bytes = [0; PREFACE.len()];
        let mut filled = unread.len();
        bytes[..filled].copy_from_slice(unread);
        loop {
            let protocol = if bytes[..filled] != PREFACE[..filled] {
                ClientProtocol::Http1
            } else if filled == PREFACE.len() {
                ClientProtocol::Http2
            } else {
                let more = stream.read(&mut bytes[filled..]).await?;
                if more == 0 {
                    return Ok(None);
                }
                filled += more;
                continue;
            };
            return Ok(Some(Self { protocol, bytes, filled }));
        }
    }
}

/// The socket of a client that speaks HTTP/2, as hyper sees it.
#[derive(Debug)]
pub(crate) struct ClientSocket<S> {
    inner: S,
    link: Arc<ClientLink>,
    opening: FirstBytes,
    given: usize,
}

impl<S: ClientStream> ClientSocket<S> {
    pub(crate) fn new(stream: S, opening: FirstBytes, link: Arc<ClientLink>) -> Self {
        Self { inner: stream, link, opening, given: 0 }
    }

    /// Tells the client why its connection ends, if it can be told.
    fn say_calm(&mut self, cx: &mut Context<'_>) {
        // What was written before was taken whole, so that a frame may begin.
        if self.link.is_flushed() {
            // If the peer cannot be told, the close does not wait.
            let _ = Pin::new(&mut self.inner).poll_write(cx, CALM);
            let _ = Pin::new(&mut self.inner).poll_flush(cx);
        }
    }
}

impl<S: ClientStream> AsyncRead for ClientSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.link.is_hoarder() {
            // Nothing more is read: for hyper this is the end.
            this.say_calm(cx);
            return Poll::Ready(Ok(()));
        }
        let left = &this.opening.bytes()[this.given..];
        if !left.is_empty() {
            let some = left.len().min(buf.remaining());
            buf.put_slice(&left[..some]);
            this.given += some;
            return Poll::Ready(Ok(()));
        }
        if this.link.is_turn_over() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.link.note_turn_bytes(buf.filled().len() - before);
        this.link.note_read();
        Poll::Ready(Ok(()))
    }
}

impl<S: ClientStream> AsyncWrite for ClientSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.link.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.link.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.link.note_flush(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
