//! TLS handshakes under way: how many at once, which gives way to another, and whose step is
//! next.
//!
//! A place is held from the first bytes of a client to the end of its handshake, so clients that
//! begin handshakes and say no more could hold all of them. When all are taken, or the address of
//! a newcomer has its share, a handshake of the address that has most of these places gives way:
//! the first that began of those that wait for their clients. A client that sends a byte now and
//! then gains nothing, and one that answers at once is displaced only by an address that has no
//! more places than its own. One that waits for its worker, as most do under a flood, gives way
//! only to an address that still has fewer places after that: its work is lost.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use wellhead_limit::fits;

use crate::link::ClientLink;
use crate::tls::{HandshakeFailure, Tls, TlsStream};

/// The handshakes of one listener, over all its workers.
#[derive(Debug)]
pub(crate) struct Handshakes {
    tls: Arc<Tls>,
    limiter: HandshakeLimiter,
}

impl Handshakes {
    pub(crate) fn new(tls: Arc<Tls>) -> Self {
        Self { tls, limiter: HandshakeLimiter::default() }
    }

    /// Shakes hands with a client, when it has something to say. A handshake that gives way to
    /// another is told so by the link.
    pub(crate) async fn shake_hands(
        &self,
        stream: TcpStream,
        link: &Arc<ClientLink>,
        turn: &Semaphore,
    ) -> Result<TlsStream<TcpStream>, HandshakeFailure> {
        // One that says nothing costs nothing, and must not take the place of others.
        stream.readable().await.map_err(|_| HandshakeFailure::Left)?;
        let place = self.limiter.begin(link).ok_or(HandshakeFailure::Full)?;
        let shaken = place.run(turn, self.tls.accept(stream)).await;
        // Its bytes may have come when another had its place already.
        if link.is_displaced() {
            return Err(HandshakeFailure::Full);
        }
        shaken.map_err(|error| {
            let failure = HandshakeFailure::of(&error);
            if failure == HandshakeFailure::Uncertified {
                link.shared.hint_at_certificate(link.peer, &error);
            }
            failure
        })
    }
}

/// All handshakes under way by the order in which they began.
#[derive(Debug, Default)]
struct HandshakeLimiter(Mutex<HandshakeTable>);

#[derive(Debug, Default)]
struct HandshakeTable {
    begun: u64,
    under_way: BTreeMap<u64, Handshake>,
}

#[derive(Debug)]
struct Handshake {
    link: Arc<ClientLink>,
    /// Its last step is done, and it needs bytes of its client for the next one.
    waits_for_client: bool,
}

impl HandshakeLimiter {
    /// Takes a place for a client that has said something; `None` where none is free and none
    /// gives way.
    fn begin(&self, link: &Arc<ClientLink>) -> Option<HandshakePermit<'_>> {
        let mut book = self.0.lock();
        let most = link.shared.settings.handshakes_max;
        let total = book.under_way.len();
        let held = book.held_beside(link);
        // As it was before: the last place may go to an address that holds nothing.
        let is_within_share = link.share.is_none() || fits(held, total, most);
        if total >= most || !is_within_share {
            let index = book.gives_way(held)?;
            book.end(index).inspect(|displaced| displaced.displace());
        }
        book.begun += 1;
        let index = book.begun;
        if let Some(share) = &link.share {
            share.handshakes.raise(1);
        }
        let handshake = Handshake { link: Arc::clone(link), waits_for_client: false };
        book.under_way.insert(index, handshake);
        Some(HandshakePermit { under_way: self, index })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().under_way.len()
    }
}

impl HandshakeTable {
    /// The places of the address of `link`. Without shares all addresses count as one.
    fn held_beside(&self, link: &ClientLink) -> usize {
        match &link.share {
            Some(share) => share.handshakes.get(),
            None => self.under_way.len(),
        }
    }

    /// The handshake that gives way to one of an address that holds `held`. Looks at all of
    /// them, which is little beside what a handshake costs.
    fn gives_way(&self, held: usize) -> Option<u64> {
        let of_address = |it: &Handshake| self.held_beside(&it.link);
        let mut waiting = None;
        let mut working = None;
        for (index, handshake) in &self.under_way {
            let candidate = (of_address(handshake), *index);
            if handshake.waits_for_client {
                // The first of those that have as many: it began before the others.
                let has_more = waiting.is_none_or(|(most, _)| candidate.0 > most);
                waiting = if has_more { Some(candidate) } else { waiting };
            } else {
                // The last of them: the least was done for it.
                working = working.max(Some(candidate));
            }
        }
        let waiting = waiting.filter(|(most, _)| *most >= held);
        let working = working.filter(|(most, _)| *most > held + 1);
        let (_, index) = match (waiting, working) {
            (Some((fewer, _)), Some((most, index))) if most > fewer => (most, index),
            (waiting, working) => waiting.or(working)?,
        };
        Some(index)
    }

    fn end(&mut self, index: u64) -> Option<Arc<ClientLink>> {
        let Handshake { link, .. } = self.under_way.remove(&index)?;
        if let Some(share) = &link.share {
            share.handshakes.lower(1);
        }
        Some(link)
    }
}

/// A place among the handshakes under way, given back when dropped, unless another has it.
#[derive(Debug)]
struct HandshakePermit<'a> {
    under_way: &'a HandshakeLimiter,
    index: u64,
}

impl HandshakePermit<'_> {
    /// Runs the handshake to its end, each step in `turn`.
    async fn run<F: Future>(&self, turn: &Semaphore, handshake: F) -> F::Output {
        in_turns(turn, handshake, |waits| self.note_waits_for_client(waits)).await
    }

    fn note_waits_for_client(&self, waits: bool) {
        let mut book = self.under_way.0.lock();
        if let Some(handshake) = book.under_way.get_mut(&self.index) {
            handshake.waits_for_client = waits;
        }
    }
}

impl Drop for HandshakePermit<'_> {
    fn drop(&mut self) {
        self.under_way.0.lock().end(self.index);
    }
}

/// Runs a handshake step by step, each when it has the worker's `turn`, and not before all tasks
/// that can go on have done so. A thousand handshakes that begin at once would otherwise hold up
/// each request for as long as all of their signatures take. `note_waits` is told when the
/// handshake begins, and ceases, to wait for its client.
async fn in_turns<F: Future>(
    turn: &Semaphore,
    handshake: F,
    note_waits: impl Fn(bool),
) -> F::Output {
    let mut handshake = pin!(handshake);
    loop {
        let step = {
            // Never closed. In the order in which they ask.
            let _turn = turn.acquire().await;
            tokio::task::yield_now().await;
            poll_fn(|cx| Poll::Ready(handshake.as_mut().poll(cx))).await
        };
        if let Poll::Ready(shaken) = step {
            return shaken;
        }
        note_waits(true);
        // The step has seen to it that this task is woken.
        let mut is_woken = false;
        poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        note_waits(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::time::Instant;

    use super::*;
    use crate::Settings;
    use crate::share::AddressShare;
    use crate::shared::ServerShared;

    /// However many handshakes are ready, of which each step is dear, a task that is ready too
    /// waits for one step at most.
    #[tokio::test]
    async fn others_come_between_the_steps_of_handshakes() {
        const HANDSHAKES: usize = 50;
        const STEPS: usize = 3;
        let turn = Arc::new(Semaphore::new(1));
        let made = Arc::new(AtomicUsize::new(0));
        for _ in 0..HANDSHAKES {
            let (turn, made) = (Arc::clone(&turn), Arc::clone(&made));
            let mut left = STEPS;
            let handshake = poll_fn(move |cx| {
                made.fetch_add(1, Relaxed);
                left -= 1;
                cx.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::spawn(async move { in_turns(&turn, handshake, |_| {}).await });
        }
        let mut seen = 0;
        while seen < HANDSHAKES * STEPS {
            tokio::task::yield_now().await;
            let now = made.load(Relaxed);
            assert!(now <= seen + 1, "{} steps in a row", now - seen);
            seen = now;
        }
    }

    /// Clients by a letter each, from at most 26 addresses.
    struct Stage {
        shared: Arc<ServerShared>,
        shares: Option<Vec<Arc<AddressShare>>>,
        limiter: HandshakeLimiter,
    }

    impl Stage {
        fn new(handshakes_max: usize, shares: bool) -> Self {
            let settings = Settings { handshakes_max, ..Settings::default() };
            Self {
                shared: Arc::new(ServerShared::new(settings)),
                shares: shares.then(|| (0..26).map(|_| Arc::default()).collect()),
                limiter: HandshakeLimiter::default(),
            }
        }

        fn link(&self, address: u8) -> Arc<ClientLink> {
            let peer = SocketAddr::from(([10, 0, 0, address], 1));
            let share =
                self.shares.as_ref().map(|shares| Arc::clone(&shares[usize::from(address - b'a')]));
            Arc::new(ClientLink::new(Arc::clone(&self.shared), peer, share, Instant::now()))
        }

        /// Has the clients of `addresses` begin a handshake each, one after the other, of which
        /// those of capital letters wait for their workers and all others for their clients.
        /// Says which were refused (`-`), displaced (`x`) or go on (`.`).
        fn play(&self, addresses: &str) -> String {
            let begun: Vec<_> = addresses
                .bytes()
                .map(|letter| {
                    let link = self.link(letter.to_ascii_lowercase());
                    let place = self.limiter.begin(&link);
                    if let Some(place) = &place {
                        place.note_waits_for_client(letter.is_ascii_lowercase());
                    }
                    (link, place)
                })
                .collect();
            assert!(self.limiter.len() <= self.shared.settings.handshakes_max);
            let fate = |(link, place): &(Arc<ClientLink>, Option<HandshakePermit<'_>>)| match place
            {
                None => '-',
                Some(_) if link.is_displaced() => 'x',
                Some(_) => '.',
            };
            let fates = begun.iter().map(fate).collect();
            drop(begun);
            assert_eq!(self.limiter.len(), 0);
            for share in self.shares.iter().flatten() {
                assert_eq!(share.handshakes.get(), 0);
            }
            fates
        }
    }

    fn check(handshakes_max: usize, addresses: &str, expected: &str) {
        let fates = Stage::new(handshakes_max, true).play(addresses);
        assert_eq!(fates, expected, "{handshakes_max}: {addresses}");
    }

    #[test]
    fn the_longest_under_way_of_the_address_that_has_most_gives_way() {
        check(4, "abcd", "....");
        check(4, "abcde", "x....");
        check(4, "abbcd", ".x...");
        check(4, "abbccd", ".x.x..");
        check(4, "abcdefgh", "xxxx....");
    }

    #[test]
    fn an_address_beyond_its_share_displaces_its_own() {
        check(16, "aaaaaaaaaaaaaaaa", "x...............");
        check(16, "aaaaaaaaaaaaaaab", "................");
        check(16, "baaaaaaaaaaaaaaaaa", ".xxx..............");
    }

    #[test]
    fn what_waits_for_its_worker_gives_way_only_to_an_address_that_has_fewer() {
        check(4, "ABCDe", "....-");
        check(4, "AABBc", "...x.");
        check(4, "AABBCc", "...x.-");
        check(4, "AABbc", "...x.");
        check(4, "AAbcd", ".x...");
        check(4, "ABcDe", "..x..");
        check(4, "AAbCd", ".x...");
    }

    #[test]
    fn an_address_that_has_more_displaces_none_that_has_fewer() {
        check(6, "AAAbccAA", "......--");
    }

    #[test]
    fn without_shares_the_longest_under_way_gives_way() {
        let stage = Stage::new(3, false);
        assert_eq!(stage.play("aaaaab"), "xxx...");
        assert_eq!(stage.play("AAab"), "..x.");
        assert_eq!(stage.play("AAAb"), "...-");
    }
}
