//! The rest of a large answer on its way to the client.
//!
//! It is not held, so what bounds it is not memory: it keeps a connection to its upstream
//! for as long as the client takes, and those are few: [`crate::flows`]. While the client takes what
//! it was handed the upstream is not at work for it, so it takes no place of the limit that is
//! learnt, and its pace says nothing of the upstream. What judged its beginning is `attempt`; what
//! writes it to the client is the listener.

use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_jsonrpc::Nesting;
use wellhead_transport::{BoxFuture, Rest, Sent, TransportError, TransportErrorKind};

use crate::flow_account::FlowAccount;
use crate::flows::{FlowPlace, Parked};
use crate::now;

/// No answer is longer. As much as `limits.answer_bytes` can be set to: an upstream that
/// never ends its answer would otherwise be listened to for ever.
const BYTES_MAX: u64 = 4 << 30;
/// An answer may take so long at any pace.
const GRACE: Duration = Duration::from_secs(30);
/// After that it must have come, and been taken, so quickly on average: half a megabit.
/// A few hundred clients that read a byte now and then would otherwise hold all
/// connections to an upstream, and it could serve no other client.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;
/// The time that it may take at any pace.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// After a client took no piece for so long, an upstream that hangs up is not blamed.
const CLIENT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The call counts as under way until it is read or dropped. A piece that does not come
/// in time, or an end before the brace that closes the reply, is an error, so that what is
/// cut never looks whole, wherever it was cut and however it was framed.
#[derive(Debug)]
pub(crate) struct Flowing {
    /// Where the rest waits between the pieces.
    place: FlowPlace,
    began: Instant,
    reading: FlowReading,
    /// The longest that the client took for a piece.
    client_pause: Duration,
}

/// The rest while a piece is read from it; it waits for the client again when this is dropped.
struct AtWork<'a> {
    place: &'a FlowPlace,
    parked: Option<Parked>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if let Some(parked) = self.parked.take() {
            self.place.park(parked);
        }
    }
}

impl Flowing {
    /// What follows `beginning`, the result as far as it came, which was judged at `began`,
    /// which is now. The brace that closes the reply may be in the beginning, and only white
    /// space follow.
    pub(crate) fn new(
        rest: Box<dyn Rest>,
        beginning: &[u8],
        piece_timeout: Duration,
        account: Option<FlowAccount>,
        place: FlowPlace,
        began: Instant,
    ) -> Self {
        let mut nesting = Nesting::in_object();
        nesting.read(beginning);
        place.park(Parked { rest, account, since: began });
        let reading = FlowReading { piece_timeout, bytes: 0, bytes_max: BYTES_MAX, nesting };
        Self { place, began, reading, client_pause: Duration::ZERO }
    }

    async fn piece(&mut self) -> Option<Result<Bytes, TransportError>> {
        let asked_at = now();
        let error = |what: &str| {
            // The client's doing.
            Some(Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, what)))
        };
        let Some(parked) = self.place.resume() else {
            return error("a large answer that its client did not read gave way to another");
        };
        let pause = asked_at.saturating_duration_since(parked.since);
        self.client_pause = self.client_pause.max(pause);
        if asked_at > self.due() {
            return error("a large answer was taken too slowly");
        }
        let mut work = AtWork { place: &self.place, parked: Some(parked) };
        let parked = work.parked.as_mut()?;
        let piece = self.reading.next(&mut *parked.rest).await;
        parked.since = now();
        match (&piece, parked.account.take()) {
            (Some(Ok(_)), account) => parked.account = account,
            (None, Some(account)) => account.was_whole(),
            (Some(Err(error)), Some(account)) if self.client_pause < CLIENT_PAUSE_MAX => {
                account.failed(error);
            }
            (Some(Err(_)) | None, _) => {}
        }
        piece
    }

    /// When the next piece has to be asked for at the latest.
    fn due(&self) -> Instant {
        let paced = GRACE + Duration::from_secs(self.reading.bytes / BYTES_PER_SECOND_MIN);
        self.began + paced.min(TIME_MAX)
    }
}

/// What is counted of an answer while it is read.
#[derive(Debug)]
struct FlowReading {
    piece_timeout: Duration,
    bytes: u64,
    bytes_max: u64,
    nesting: Nesting,
}

impl FlowReading {
    async fn next(&mut self, rest: &mut dyn Rest) -> Option<Result<Bytes, TransportError>> {
        let error = |kind, what: &str| Some(Err(TransportError::new(kind, Sent::Maybe, what)));
        match tokio::time::timeout(self.piece_timeout, rest.next()).await {
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
}

/// An answer that is put together while it flows, with the least pace that all that flow have;
/// `rest` is a result and the brace that ends its envelope, and no piece of it takes longer
/// than `piece_timeout`. No upstream is blamed when it fails.
pub fn paced(rest: Box<dyn Rest>, piece_timeout: Duration, place: FlowPlace) -> Box<dyn Rest> {
    Box::new(Flowing::new(rest, b"", piece_timeout, None, place, now()))
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
    use crate::client_id::ClientId;
    use crate::flows::Flows;

    const PIECE: usize = 64 << 10;
    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);
    const SHORT_MAX: u64 = 8 << 20;

    /// A place for one.
    fn place() -> FlowPlace {
        Flows::new(1).enter(ClientId::V6(1), now()).expect("the first")
    }

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
        let mut flowing = Flowing::new(endless, b"", SECOND, None, place(), now());
        // The real one takes minutes to be read without optimisation.
        flowing.reading.bytes_max = SHORT_MAX;
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
            let mut flowing =
                Flowing::new(pieces, beginning.as_bytes(), SECOND, None, place(), now());
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

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_at_the_least_pace_ends_after_an_hour() {
        let endless = Box::new(Endless(Bytes::from(vec![b'0'; 1 << 20])));
        let mut flowing = Flowing::new(endless, b"", SECOND, None, place(), now());
        let began = now();
        while flowing.next().await.expect("no end").is_ok() {
            // The real number takes minutes to be read without optimisation.
            flowing.reading.bytes += 64 << 20;
            tokio::time::sleep(SECOND * 60).await;
        }
        assert_eq!(now() - began, HOUR + SECOND * 60);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_gave_way_ends_with_an_error() {
        let flows = Flows::new(2);
        let mut flowing: Vec<Flowing> = Vec::new();
        for _ in 0..2 {
            let place = flows.enter(ClientId::V6(1), now()).expect("a place");
            let rest = Box::new(Pieces::of(Bytes::from_static(b"[]}")));
            flowing.push(Flowing::new(rest, b"", SECOND, None, place, now()));
        }
        tokio::time::sleep(SECOND * 5).await;
        let other = flows.enter(ClientId::V6(2), now());
        assert!(other.is_some());
        let given_way = flowing[0].next().await.expect("no end");
        assert_eq!(given_way.expect_err("cut").kind, TransportErrorKind::Timeout);
        assert!(matches!(flowing[1].next().await, Some(Ok(_))));
        assert!(flowing[1].next().await.is_none());
    }
}
