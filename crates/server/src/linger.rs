//! Closing so that the client can read the last that was sent: a socket closed with unread bytes in
//! it resets the connection. `link` bounds the time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncWriteExt as _, ReadBuf};

use crate::link::ClientLink;
use crate::read_buffer::with_read_buffer;
use crate::socket::ClientStream;

/// Closes our direction, and reads and forgets at most `bytes_max` until the client closes its own.
pub(crate) async fn linger(stream: &mut impl ClientStream, link: &ClientLink, bytes_max: usize) {
    link.note_lingering();
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut forgotten = 0;
    poll_fn(|cx| {
        while forgotten < bytes_max {
            let read = with_read_buffer(|buffer| {
                let mut buf = ReadBuf::new(buffer);
                let read = Pin::new(&mut *stream).poll_read(cx, &mut buf);
                read.map_ok(|()| buf.filled().len())
            });
            match ready!(read) {
                Ok(0) | Err(_) => break,
                Ok(read) => forgotten += read,
            }
        }
        Poll::Ready(())
    })
    .await;
}
