//! A TCP stream that can be told to end with a reset instead of a goodbye.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Set to make the stream end with RST when it is dropped.
pub(super) type ResetFlag = Arc<AtomicBool>;

#[derive(Debug)]
pub(super) struct FakeSocket {
    stream: TcpStream,
    reset: ResetFlag,
}

impl FakeSocket {
    pub(super) fn new(stream: TcpStream, reset: ResetFlag) -> Self {
        Self { stream, reset }
    }

    fn pinned(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Drop for FakeSocket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // Failing leaves an orderly close, which a caller must survive as well.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for FakeSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pinned().poll_read(context, buffer)
    }
}

impl AsyncWrite for FakeSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pinned().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            // A shutdown would send the goodbye that the reset must replace.
            return Poll::Ready(Ok(()));
        }
        self.pinned().poll_shutdown(context)
    }
}
