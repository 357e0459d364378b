//! The rest of a large answer on its way to the client.
//!
//! It is not held, so what bounds it is not memory: it keeps a connection to its upstream
//! for as long as the client takes, and those are few. Who judged its beginning is
//! `attempt`; who writes it to the client is the listener.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_eth::{MethodRow, MethodTable};
use wellhead_jsonrpc::Nesting;
use wellhead_transport::{BoxFuture, Rest, Sent, TransportError, TransportErrorKind};
use wellhead_upstream::{Change, InFlight, Judge};

use crate::attempt::note;
use crate::lane::Place;
use crate::now;

/// No answer is longer. As much as `limits.answer_bytes` can be set to: an upstream that
/// never ends its answer would otherwise be listened to for ever.
const BYTES_MAX: u64 = 4 << 30;
/// An answer may take so long at any pace.
const GRACE: Duration = Duration::from_secs(30);
/// After that it must have come, and been taken, so quickly on average: half a megabit.
/// A few hundred clients that read a byte now and then would otherwise hold all
/// connections to an upstream, and nobody else could be served from it.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// After a client took no piece for so long, an upstream that hangs up is not blamed.
const CLIENT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Whom a flowing answer is put down to: it was a good one only when it came to its end.
#[derive(Debug)]
pub(crate) struct Account {
    in_flight: InFlight,
    row: &'static MethodRow,
    #[allow(dead_code, reason = "held for its drop")]
    place: Place,
}

impl Account {
    pub(crate) fn new(in_flight: InFlight, row: &MethodRow, place: Place) -> Self {
        // The same row, for as long as the answer takes.
        let row = &MethodTable::standard().rows()[row.index.get()];
        Self { in_flight, row, place }
    }

    fn was_whole(self) {
        let upstream = self.in_flight.upstream();
        if upstream.ended_well(self.row, self.in_flight.began(), now()) == Change::Recovered {
            tracing::info!(upstream = %upstream.identity().id, "upstream recovered");
        }
    }

    fn failed(self, error: &TransportError) {
        let (upstream, began, now) = (self.in_flight.upstream(), self.in_flight.began(), now());
        let verdict = upstream.masked(Judge::standard().transport(error));
        let was_unwell = upstream.probe_due(began).is_some();
        let change = upstream.settle(self.row, &verdict, began, now);
        note(upstream, self.row, &verdict, change, was_unwell, now);
    }
}

/// The call counts as in flight until it is read or dropped. A piece that does not come
/// in time, or an end before the brace that closes the reply, is an error, so that what is
/// cut never looks whole, wherever it was cut and however it was framed.
#[derive(Debug)]
pub(crate) struct Flowing {
    rest: Box<dyn Rest>,
    piece_timeout: Duration,
    began: Instant,
    bytes: u64,
    bytes_max: u64,
    nesting: Nesting,
    /// When the client last was handed a piece, and the longest that it then took.
    handed_at: Instant,
    client_pause: Duration,
    /// `None` once it was settled.
    account: Option<Account>,
}

impl Flowing {
    /// What follows `beginning`, the result as far as it came, which was judged at `began`,
    /// which is now. The brace that closes the reply may be in the beginning, and only white
    /// space follow.
    pub(crate) fn new(
        rest: Box<dyn Rest>,
        beginning: &[u8],
        piece_timeout: Duration,
        account: Option<Account>,
        began: Instant,
    ) -> Self {
        let mut nesting = Nesting::in_object();
        nesting.read(beginning);
        Self {
            rest,
            piece_timeout,
            began,
            bytes: 0,
            bytes_max: BYTES_MAX,
            nesting,
            handed_at: began,
            client_pause: Duration::ZERO,
            account,
        }
    }

    async fn piece(&mut self) -> Option<Result<Bytes, TransportError>> {
        let asked_at = now();
        let pause = asked_at.saturating_duration_since(self.handed_at);
        self.client_pause = self.client_pause.max(pause);
        if asked_at > self.due() {
            // The client's doing.
            let what = "a large answer was taken too slowly";
            return Some(Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, what)));
        }
        let piece = self.next_piece().await;
        self.handed_at = now();
        match (&piece, self.account.take()) {
            (Some(Ok(_)), account) => self.account = account,
            (None, Some(account)) => account.was_whole(),
            (Some(Err(error)), Some(account)) if self.client_pause < CLIENT_PAUSE_MAX => {
                account.failed(error);
            }
            (Some(Err(_)) | None, _) => {}
        }
        piece
    }

    async fn next_piece(&mut self) -> Option<Result<Bytes, TransportError>> {
        let error = |kind, what: &str| Some(Err(TransportError::new(kind, Sent::Maybe, what)));
        match tokio::time::timeout(self.piece_timeout, self.rest.next()).await {
            Err(_elapsed) => error(TransportErrorKind::Timeout, "inside a large answer"),
            Ok(Some(Ok(piece))) => {
                self.bytes += piece.len() as u64;
                if self.bytes > self.bytes_max {
                    return error(TransportErrorKind::TooLarge, "the answer does not end");
                }
                self.nesting.read(&piece);
                if self.nesting.has_overrun() {
                    return error(TransportErrorKind::Protocol, "the reply goes on after its end");
                }
                Some(Ok(piece))
            }
            Ok(Some(Err(error))) => Some(Err(error)),
            Ok(None) if self.nesting.is_whole() => None,
            Ok(None) => error(TransportErrorKind::Truncated, "the reply does not end"),
        }
    }

    /// When the next piece has to be asked for at the latest.
    fn due(&self) -> Instant {
        self.began + GRACE + Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN)
    }
}

/// An answer that is put together while it flows, with the least pace that all that flow have;
/// `rest` is a result and the brace that ends its envelope, and no piece of it takes longer
/// than `piece_timeout`. Nobody is blamed when it fails.
pub fn paced(rest: Box<dyn Rest>, piece_timeout: Duration) -> Box<dyn Rest> {
    Box::new(Flowing::new(rest, b"", piece_timeout, None, now()))
}

impl Rest for Flowing {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(self.piece())
    }
}

#[cfg(test)]
mod tests {
    use wellhead_transport::Pieces;

    use super::*;

    const PIECE: usize = 64 << 10;
    const SECOND: Duration = Duration::from_secs(1);
    const SHORT_MAX: u64 = 8 << 20;

    /// Says the same piece for ever.
    #[derive(Debug)]
    struct Endless(Bytes);

    impl Rest for Endless {
        fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
            let piece = self.0.clone();
            Box::pin(async move { Some(Ok(piece)) })
        }
    }

    /// Takes pieces of an answer that does not end, one each `pace`, until it fails.
    async fn check(piece_bytes: usize, pace: Duration, expected: TransportErrorKind, pieces: u64) {
        let endless = Box::new(Endless(Bytes::from(vec![b'0'; piece_bytes])));
        let mut flowing = Flowing::new(endless, b"", SECOND, None, now());
        // The real one takes minutes to be read without optimisation.
        flowing.bytes_max = SHORT_MAX;
        let mut taken = 0;
        let error = loop {
            match flowing.next().await.expect("no end") {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
        };
        assert_eq!((error.kind, taken), (expected, pieces), "{pace:?}: {error}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_ends_with_its_brace_ends_well() {
        let check = async |beginning: &str, rest: &str, is_whole| {
            let pieces = Box::new(Pieces::of(Bytes::from(rest.to_owned())));
            let mut flowing = Flowing::new(pieces, beginning.as_bytes(), SECOND, None, now());
            let end = loop {
                match flowing.next().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => break false,
                    None => break true,
                }
            };
            assert_eq!(end, is_whole, "{beginning:?} {rest:?}");
        };
        check("\"0x", "1\"}", true).await;
        check("\"0x", "1\"}\r\n", true).await;
        check("\"0x", "1\"", false).await;
        // Cut by us between the brace and the end of the line.
        check("\"0x1\"}", "\n", true).await;
        check("\"0x1\" } ", " \n", true).await;
        check("\"0x1\"", "\n", false).await;
        // A gateway cut it behind a brace, and framed what was left as if it were whole.
        check("[{\"a\":\"0x\"", "},{}", false).await;
        check("[{\"a\":\"0x\"", "},{}]", false).await;
        check("[{\"a\":\"0x\"", "},{}]}", true).await;
        check("\"}", "}", false).await;
        check("\"}", "}\"}", true).await;
        // What follows the end is none of it.
        check("\"0x", "1\"}}", false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_quickly_ends_only_at_the_bound_on_bytes() {
        let pieces = SHORT_MAX / (1 << 20);
        check(1 << 20, Duration::ZERO, TransportErrorKind::TooLarge, pieces).await;
        // At exactly the least pace the grace is never used up.
        check(1 << 20, SECOND * 16, TransportErrorKind::TooLarge, pieces).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_slowly_has_its_grace_and_no_more() {
        // Each piece earns one second and takes two.
        check(PIECE, SECOND * 2, TransportErrorKind::Timeout, 31).await;
        check(1, SECOND * 10, TransportErrorKind::Timeout, 4).await;
    }
}
