//! The first bytes of a connection, which tell its protocol, and the stream under
//! hyper, which gives them back and notes the client's pace.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::count::Protocol;
use crate::link::Link;

/// What an HTTP/2 client with prior knowledge says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first bytes of a connection, read to tell its protocol.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) protocol: Protocol,
    bytes: [u8; PREFACE.len()],
    filled: usize,
}

impl Opening {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Reads until the protocol is certain. `None` when the client closed first.
    pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Option<Self>> {
        let mut bytes = [0; PREFACE.len()];
        let mut filled = 0;
        loop {
            let more = stream.read(&mut bytes[filled..]).await?;
            if more == 0 {
                return Ok(None);
            }
            filled += more;
            let protocol = if bytes[..filled] != PREFACE[..filled] {
                Protocol::Http1
            } else if filled == PREFACE.len() {
                Protocol::Http2
            } else {
                continue;
            };
            return Ok(Some(Self { protocol, bytes, filled }));
        }
    }
}

/// A client's socket, as hyper sees it.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: TokioIo<TcpStream>,
    link: Arc<Link>,
    opening: Opening,
    given: usize,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, opening: Opening, link: Arc<Link>) -> Self {
        Self { inner: TokioIo::new(stream), link, opening, given: 0 }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.link.note_written(*bytes),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.link.note_stalled(),
        }
        written
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.opening.bytes()[this.given..];
        if !left.is_empty() {
            let some = left.len().min(buf.remaining());
            buf.put_slice(&left[..some]);
            this.given += some;
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        this.link.note_read();
        Poll::Ready(Ok(()))
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.link.note_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
