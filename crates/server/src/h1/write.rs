//! An answer as bytes on an HTTP/1.1 connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;
use wellhead_telemetry::clock;
use wellhead_transport::Rest;

use super::H1Wire;
use crate::AnswerBody;
use crate::answer::HttpResponse;
use crate::socket::ClientStream;

/// Bodies up to this size are copied behind their head: that costs less than to have
/// the kernel gather them.
const JOINED_BYTES_MAX: usize = 4096;

/// Stands for the end of what is sent, which is not taken before all of it is flushed: TLS
/// takes more than it can send.
const END_BYTES: usize = 1;

/// Room for a usual head.
const HEAD_BYTES: usize = 384;

/// How an answer has to be sent to this client.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseMode {
    /// The connection goes on afterwards.
    pub(super) keeps_open: bool,
    /// HTTP/1.1, not 1.0.
    pub(super) newest: bool,
    /// Only the head is sent.
    pub(super) to_head: bool,
}

impl<S: ClientStream> H1Wire<'_, S> {
    /// Sends an answer. An error means that the client cannot have taken it for whole.
    pub(super) async fn send(
        &mut self,
        mut reply: HttpResponse,
        manner: ResponseMode,
    ) -> io::Result<()> {
        let rest = reply.rest.take();
        let pieces = if manner.to_head { &[] } else { reply.body.pieces() };
        let length = reply.body.len();
        let mut head = Vec::with_capacity(HEAD_BYTES + length.min(JOINED_BYTES_MAX));
        let now = self.link.note_answered();
        write_head(&mut head, &reply, rest.is_none().then_some(length), manner, now);
        let chunked = rest.is_some() && manner.newest;
        if chunked && length > 0 {
            head.extend_from_slice(format!("{length:x}\r\n").as_bytes());
        }
        let body_bytes: usize = pieces.iter().map(Bytes::len).sum();
        reply.ticket.send(head.len() + body_bytes + END_BYTES);
        if length <= JOINED_BYTES_MAX {
            pieces.iter().for_each(|piece| head.extend_from_slice(piece));
            self.write_bytes(&head).await?;
        } else {
            let slices = [&head[..]].into_iter().chain(pieces.iter().map(|piece| &piece[..]));
            let mut slices: Vec<_> = slices.map(IoSlice::new).collect();
            self.write_slices(&mut slices).await?;
        }
        drop(head);
        reply.body = AnswerBody::default();
        if let Some(rest) = rest {
            self.link.note_all_taken();
            let end: &[u8] = if length > 0 { b"\r\n" } else { b"" };
            if let Err(error) = Box::pin(self.flow(rest, chunked.then_some(end))).await {
                if !chunked {
                    // The end of such an answer is the end of the connection, so it
                    // must not look like a good one.
                    self.stream.reset_when_dropped();
                }
                return Err(error);
            }
            self.link.note_answered();
        }
        // The ticket is given back with the reply: the last byte is out.
        Ok(())
    }

    /// Sends what follows, piece by piece: in chunks after the `end` of the one before,
    /// or as it is.
    async fn flow(&mut self, mut rest: Box<dyn Rest>, end: Option<&[u8]>) -> io::Result<()> {
        let mut before = end.unwrap_or_default();
        while let Some(piece) = rest.next().await {
            let piece: Bytes = piece.map_err(io::Error::other)?;
            if piece.is_empty() {
                continue;
            }
            if end.is_some() {
                let size = format!("{:x}\r\n", piece.len());
                let bytes = before.len() + size.len() + piece.len();
                self.link.note_more(bytes + END_BYTES);
                let mut slices = [before, size.as_bytes(), &piece].map(IoSlice::new);
                self.write_slices(&mut slices).await?;
                before = b"\r\n";
            } else {
                self.link.note_more(piece.len() + END_BYTES);
                self.write_bytes(&piece).await?;
            }
            // From here on it is the upstream that is waited for.
            self.link.note_all_taken();
        }
        if end.is_some() {
            let last: &[u8] = b"0\r\n\r\n";
            self.link.note_more(before.len() + last.len() + END_BYTES);
            self.write_slices(&mut [before, last].map(IoSlice::new)).await?;
        }
        Ok(())
    }

    async fn write_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        poll_fn(|cx| {
            while !bytes.is_empty() {
                let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
                bytes = &bytes[ready!(self.link.note_some(written))?..];
            }
            self.poll_flush(cx)
        })
        .await
    }

    async fn write_slices(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Those without bytes would look like a socket that takes nothing.
        IoSlice::advance_slices(&mut slices, 0);
        poll_fn(|cx| {
            while !slices.is_empty() {
                let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
                IoSlice::advance_slices(&mut slices, ready!(self.link.note_some(written))?);
            }
            self.poll_flush(cx)
        })
        .await
    }

    /// Has TLS send what the socket did not take at once. Bare TCP keeps nothing back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.note_flush(Pin::new(&mut self.stream).poll_flush(cx))
    }
}

/// Writes the head of an answer of `length` bytes, or of unknown length.
fn write_head(
    head: &mut Vec<u8>,
    reply: &HttpResponse,
    length: Option<usize>,
    manner: ResponseMode,
    now: Instant,
) {
    let status = reply.status;
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    head.extend_from_slice(b"\r\n");
    for (name, value) in &reply.fields {
        line(head, name.as_str(), value.as_bytes());
    }
    match length {
        // Neither has a body (RFC 9110, section 8.6).
        _ if status == StatusCode::NO_CONTENT || status.is_informational() => {}
        Some(length) => {
            line(head, "content-length", itoa::Buffer::new().format(length).as_bytes());
        }
        None if manner.newest => line(head, "transfer-encoding", b"chunked"),
        None => {}
    }
    match (manner.keeps_open, manner.newest) {
        (false, _) => line(head, "connection", b"close"),
        (true, false) => line(head, "connection", b"keep-alive"),
        (true, true) => {}
    }
    with_date(now, |date| line(head, "date", date));
    head.extend_from_slice(b"\r\n");
}

fn line(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// The time of day as HTTP writes it, made anew once a second.
fn with_date(now: Instant, mut write: impl FnMut(&[u8])) {
    struct Date {
        until: Instant,
        text: String,
    }
    thread_local! {
        static DATE: RefCell<Option<Date>> = const { RefCell::new(None) };
    }
    DATE.with_borrow_mut(|date| {
        if date.as_ref().is_none_or(|date| now >= date.until) {
            let time = UNIX_EPOCH + Duration::from_secs(clock::unix_seconds());
            let text = httpdate::fmt_http_date(time);
            *date = Some(Date { until: now + Duration::from_secs(1), text });
        }
        if let Some(date) = date {
            write(date.text.as_bytes());
        }
    });
}
