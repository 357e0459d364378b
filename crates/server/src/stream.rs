//! HTTP/2 streams whose client does not read are reset, one by one.
//!
//! The socket of such a client may be quick: it is the stream's window that
//! stays shut, and neither the socket nor the body sees that. So each stream's
//! task notes the frames that its answer was asked for, and gives up when none
//! was for the write timeout. Dropping the task resets the stream. That a stream waits is told
//! to its connection, which may be ended for it earlier ([`crate::backlog`]).

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join;
use tokio::time::Sleep;

use crate::count::ServerCounters;
use crate::link::ClientLink;
use crate::shared::ServerShared;

/// Answers go to a stream in pieces of this size, so that progress shows.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

tokio::task_local! {
    static PACE: Arc<StreamPace>;
}

/// How many pieces of its answer a stream has taken, and which side it waits for.
#[derive(Debug, Default)]
pub(crate) struct StreamPace {
    pieces: AtomicU32,
    /// The last piece was handed on: what is missing now is room for it.
    waits_for_client: AtomicBool,
    /// The connection, known when there is an answer.
    link: OnceLock<Arc<ClientLink>>,
}

impl StreamPace {
    /// The pace of the stream whose task this is.
    pub(crate) fn here() -> Option<Arc<Self>> {
        PACE.try_with(Arc::clone).ok()
    }

    pub(crate) fn is_of(&self, link: &Arc<ClientLink>) {
        self.link.get_or_init(|| Arc::clone(link));
    }

    pub(crate) fn note_asked(&self) {
        self.waits_for_client.store(false, Relaxed);
    }

    pub(crate) fn note_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
        self.waits_for_client.store(true, Relaxed);
    }
}

/// Runs the streams of HTTP/2 connections for hyper.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    pub(crate) shared: Arc<ServerShared>,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let shared = Arc::clone(&self.shared);
        let watched = watch(stream, shared.settings.write_timeout).map(move |has_ended| {
            if !has_ended {
                ServerCounters::add(&shared.counters.slow_reader_total);
            }
        });
        tokio::spawn(watched);
    }
}

/// Runs `stream` to its end (true), or until its answer stalls (false).
///
/// Put together of combinators: an `async` block that takes `stream` has room for it twice, and
/// each stream that waits for its client would hold that.
fn watch<F: Future<Output = ()>>(stream: F, write_timeout: Duration) -> impl Future<Output = bool> {
    let pace = Arc::new(StreamPace::default());
    let ended = PACE.scope(Arc::clone(&pace), stream).map(|()| Err::<Infallible, _>(true));
    let stalled = stall(pace, write_timeout).map(|()| Err::<Infallible, _>(false));
    // The stream first, so that what it has taken counts.
    try_join(ended, stalled).map(|first| match first {
        Err(has_ended) => has_ended,
        Ok((never, _)) => match never {},
    })
}

/// Ready when nothing of the answer was taken for the write timeout. Polled whenever the stream
/// was.
async fn stall(pace: Arc<StreamPace>, write_timeout: Duration) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let mut seen = 0;
    poll_fn(|cx| {
        if !pace.waits_for_client.load(Relaxed) {
            // Still being read or answered: no timer for the usual stream.
            return Poll::Pending;
        }
        let pieces = pace.pieces.load(Relaxed);
        if pieces != seen {
            seen = pieces;
            if let Some(link) = pace.link.get() {
                link.note_shut();
            }
            timer = Some(Box::pin(tokio::time::sleep(write_timeout)));
        }
        match &mut timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_not_answering_yet_may_take_its_time() {
        assert!(watch(tokio::time::sleep(TIMEOUT * 10), TIMEOUT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_takes_nothing_is_given_up() {
        let begun = tokio::time::Instant::now();
        let stalled = async {
            tokio::time::sleep(TIMEOUT).await;
            StreamPace::here().unwrap().note_piece();
            std::future::pending::<()>().await;
        };
        assert!(!watch(stalled, TIMEOUT).await);
        assert_eq!(begun.elapsed(), TIMEOUT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_pauses_is_not_the_clients_fault() {
        let flowing = async {
            for _ in 0..3 {
                StreamPace::here().unwrap().note_piece();
                tokio::time::sleep(TIMEOUT / 2).await;
                StreamPace::here().unwrap().note_asked();
                tokio::time::sleep(TIMEOUT * 2).await;
            }
        };
        assert!(watch(flowing, TIMEOUT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn every_piece_gives_new_time() {
        let slow = async {
            for _ in 0..5 {
                StreamPace::here().unwrap().note_piece();
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            }
        };
        assert!(watch(slow, TIMEOUT).await);
    }
}
