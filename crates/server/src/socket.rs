//! The stream under hyper: gives back the bytes that were read to tell the
//! protocol, notes the client's pace, and closes so that a refusal is not lost.

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

/// After a refusal we read and forget at most this much. A client that still
/// sends then gets a reset, which is all that can be told it.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The first bytes of a connection, read to tell its protocol.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) protocol: Protocol,
    bytes: [u8; PREFACE.len()],
    filled: usize,
}

impl Opening {
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
    lingered: usize,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, opening: Opening, link: Arc<Link>) -> Self {
        Self { inner: TokioIo::new(stream), link, opening, given: 0, lingered: 0 }
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
        if this.given < this.opening.filled {
            let end = this.opening.filled.min(this.given + buf.remaining());
            buf.put_slice(&this.opening.bytes[this.given..end]);
            this.given = end;
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
        let this = &mut *self;
        if this.lingered == 0 {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        }
        if !this.link.begin_linger() {
            return Poll::Ready(Ok(()));
        }
        let stream = this.inner.inner();
        let mut waste = [0; 8 * 1024];
        while this.lingered < LINGER_BYTES_MAX {
            ready!(stream.poll_read_ready(cx))?;
            match stream.try_read(&mut waste) {
                Ok(0) => break,
                Ok(bytes) => this.lingered += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
