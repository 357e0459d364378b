//! A response body of ready parts that may break off on purpose.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Parts sent one after the other.
#[derive(Debug, Default)]
pub(crate) struct PartedBody {
    parts: VecDeque<Bytes>,
    breaks: Option<Break>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    /// What was handed over has not had a turn to reach the socket yet.
    AfterATurn,
    Now,
}

impl PartedBody {
    /// Ends well.
    pub(crate) fn whole(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self { parts, breaks: None }
    }

    /// Sends `first`, then breaks the connection (or resets the HTTP/2 stream).
    pub(crate) fn broken_after(first: Bytes) -> Self {
        let mut body = Self::whole([first]);
        body.breaks = Some(Break::AfterATurn);
        body
    }

    fn left(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl Body for PartedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if let Some(part) = this.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        match this.breaks {
            None => Poll::Ready(None),
            Some(Break::AfterATurn) => {
                // hyper flushes when a body is not ready: otherwise the error
                // would overtake the bytes before it.
                this.breaks = Some(Break::Now);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Break::Now) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.breaks.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.breaks {
            None => SizeHint::with_exact(self.left()),
            Some(_) => SizeHint::default(),
        }
    }
}
