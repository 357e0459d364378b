//! Bodies that did not arrive with their head.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;
use wellhead_http1::{ChunkStep, Chunked};

use super::H1Wire;
use crate::HttpRefusal;
use crate::read_buffer::with_read_buffer;
use crate::request::ROOM_BYTES_MAX;
use crate::socket::ClientStream;
use crate::ticket::Ticket;

/// Reads between two looks at the other tasks: tiny chunks are much work for few bytes.
const READS_A_TURN: usize = 4;

/// What is known of a body when its head is read.
pub(super) enum BodyStart {
    /// All of it, or why it is refused unread.
    Whole(Result<Bytes, HttpRefusal>),
    /// The beginning.
    Length {
        so_far: BytesMut,
        length: usize,
    },
    Chunked,
    /// It is not wanted, and not all there.
    Unread,
}

impl<S: ClientStream> H1Wire<'_, S> {
    /// Reads what is missing of a body, within the bounds.
    pub(super) async fn read_body(
        &mut self,
        body: BodyStart,
        expects_continue: bool,
        ticket: &mut Ticket,
    ) -> Result<Bytes, HttpRefusal> {
        if expects_continue {
            let told = self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
            told.map_err(|_| HttpRefusal::BodyBroken)?;
            // TLS may keep it back, and the client waits for it.
            self.stream.flush().await.map_err(|_| HttpRefusal::BodyBroken)?;
        }
        let time = self.settings().body_timeout;
        let mut timer = Box::pin(tokio::time::sleep(time));
        match body {
            BodyStart::Whole(body) => body,
            BodyStart::Length { so_far, length } => {
                self.read_length(so_far, length, ticket, timer.as_mut()).await
            }
            BodyStart::Chunked => self.read_chunks(ticket, timer.as_mut()).await,
            BodyStart::Unread => Ok(Bytes::new()),
        }
    }

    async fn read_length(
        &mut self,
        mut so_far: BytesMut,
        length: usize,
        ticket: &mut Ticket,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<Bytes, HttpRefusal> {
        poll_fn(|cx| {
            loop {
                ticket.hold(so_far.len())?;
                let missing = length - so_far.len();
                if missing == 0 {
                    return Poll::Ready(Ok(()));
                }
                if so_far.len() == so_far.capacity() {
                    // As much again as was sent: an announcement alone gets no memory.
                    so_far.reserve(missing.min(so_far.len().max(ROOM_BYTES_MAX)));
                }
                let mut room = (&mut so_far).limit(missing);
                let read = poll_read_buf(Pin::new(&mut self.stream), cx, &mut room);
                if read.is_ready() {
                    self.link.note_read();
                }
                ready!(in_time(&read, cx, &mut timer))?;
            }
        })
        .await?;
        Ok(so_far.freeze())
    }

    async fn read_chunks(
        &mut self,
        ticket: &mut Ticket,
        mut timer: Pin<&mut Sleep>,
    ) -> Result<Bytes, HttpRefusal> {
        let bytes_max = self.settings().body_bytes_max;
        let mut chunked = Chunked::of_request();
        let mut data = BytesMut::new();
        for turn in 1_usize.. {
            let mut at = 0;
            loop {
                let rest = &self.unread[at..];
                let (used, next) = chunked.advance(rest).map_err(|_| HttpRefusal::BodyBroken)?;
                at += used;
                match next {
                    ChunkStep::More => break,
                    ChunkStep::End => {
                        self.unread.drain(..at);
                        return Ok(data.freeze());
                    }
                    ChunkStep::Data(left) => {
                        if left > (bytes_max - data.len()) as u64 {
                            return Err(HttpRefusal::BodyTooLarge);
                        }
                        let rest = &self.unread[at..];
                        let some = rest.len().min(left as usize);
                        ticket.hold(data.len() + some)?;
                        data.extend_from_slice(&rest[..some]);
                        chunked.passed(some as u64);
                        at += some;
                        if (some as u64) < left {
                            break;
                        }
                    }
                }
            }
            self.unread.clear();
            if turn % READS_A_TURN == 0 {
                tokio::task::yield_now().await;
            }
            poll_fn(|cx| {
                let read = with_read_buffer(|shared| {
                    let read = self.poll_read(cx, shared);
                    if let Poll::Ready(Ok(bytes)) = read {
                        self.unread.extend_from_slice(&shared[..bytes]);
                    }
                    read
                });
                in_time(&read, cx, &mut timer)
            })
            .await?;
        }
        unreachable!("the loop has no end but a return")
    }
}

/// The outcome of a read that must bring something before the timer ends.
fn in_time(
    read: &Poll<std::io::Result<usize>>,
    cx: &mut Context<'_>,
    timer: &mut Pin<&mut Sleep>,
) -> Poll<Result<(), HttpRefusal>> {
    match read {
        Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(HttpRefusal::BodyBroken)),
        Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
        Poll::Pending => {
            ready!(timer.as_mut().poll(cx));
            Poll::Ready(Err(HttpRefusal::BodySlow))
        }
    }
}
