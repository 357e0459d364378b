//! Recently sent transactions, so that their senders can read them at once.
//!
//! An upstream that accepted a transaction knows it at once, the others only after it has
//! propagated, and the sender's next call may go to one of those. So for a minute this stores which
//! upstream accepted which transaction, and which nonces a sender used:
//!
//! - the pending nonce is raised by nonces that were sent and continue it without a gap;
//! - a transaction that is not found is looked up at the upstream that accepted it.
//!
//! The sender is recovered from the signature, which takes some hundred microseconds per
//! transaction. Transactions of unknown types are found by hash alone.
//!
//! Not guaranteed: that a nonce stays used. A transaction that was dropped or replaced within the
//! minute still counts, as it does at an upstream that does not know of that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_eth::{TransactionHash, raw_transaction};
use wellhead_jsonrpc::raw;
use wellhead_upstream::Slot;
use wellhead_verify::{Address, RawTransaction};

/// Five blocks of the slowest chains; what is told around takes a second or two.
const LASTS: Duration = Duration::from_secs(60);
/// More are not remembered: the oldest is forgotten.
const SENT_MAX: usize = 8192;

/// The sender and nonce of a transaction, if they could be read.
pub(crate) type Sender = (Address, u64);

/// The sender and nonce of the transaction in the parameters of `eth_sendRawTransaction`.
pub(crate) fn sender(params: &[u8]) -> Option<Sender> {
    let transaction = RawTransaction::read(&raw_transaction(params)?)?;
    Some((transaction.sender()?, transaction.nonce))
}

/// The address in the first parameter.
pub(crate) fn address(params: &[u8]) -> Option<Address> {
    raw::string(raw::item(raw::trim(params), 0)?)?.parse().ok()
}

/// The transactions of one chain that were sent lately.
#[derive(Debug, Default)]
pub(crate) struct SentTransactions {
    state: Mutex<State>,
    /// How many there are, readable without the lock: mostly none.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first; what was sent again is there again.
    order: VecDeque<(Instant, TransactionHash, Option<Sender>)>,
    /// The upstream that accepted it, and when last.
    taken_by: HashMap<TransactionHash, (Slot, Instant)>,
    /// When each nonce was last sent.
    nonces: HashMap<Address, BTreeMap<u64, Instant>>,
}

impl SentTransactions {
    /// Notes that the upstream in `slot` took a transaction.
    pub(crate) fn note(
        &self,
        hash: TransactionHash,
        sender: Option<Sender>,
        slot: Slot,
        now: Instant,
    ) {
        let mut state = self.state.lock();
        state.forget(now, SENT_MAX - 1);
        state.order.push_back((now, hash, sender));
        state.taken_by.insert(hash, (slot, now));
        if let Some((address, nonce)) = sender {
            state.nonces.entry(address).or_default().insert(nonce, now);
        }
        self.len.store(state.order.len(), Relaxed);
    }

    /// The upstream that accepted a transaction.
    pub(crate) fn taken_by(&self, hash: &TransactionHash, now: Instant) -> Option<Slot> {
        self.look(now, |state| state.taken_by.get(hash).map(|(slot, _)| *slot))
    }

    /// The first nonce from `told` on that was not sent.
    pub(crate) fn next_nonce(&self, sender: &Address, told: u64, now: Instant) -> u64 {
        let next = self.look(now, |state| {
            let sent = state.nonces.get(sender)?;
            (told..=u64::MAX).find(|nonce| !sent.contains_key(nonce))
        });
        next.unwrap_or(told)
    }

    fn look<T>(&self, now: Instant, look: impl FnOnce(&State) -> Option<T>) -> Option<T> {
        if self.len.load(Relaxed) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        state.forget(now, SENT_MAX);
        self.len.store(state.order.len(), Relaxed);
        look(&state)
    }
}

impl State {
    /// Forgets what was sent too long ago, and the oldest of more than `keep`.
    fn forget(&mut self, now: Instant, keep: usize) {
        while let Some((at, hash, sender)) = self.order.front().copied()
            && (self.order.len() > keep || now.saturating_duration_since(at) > LASTS)
        {
            self.order.pop_front();
            // It, or another one with its nonce, may have been sent since.
            if self.taken_by.get(&hash).is_some_and(|(_, last)| *last == at) {
                self.taken_by.remove(&hash);
            }
            let Some((address, nonce)) = sender else { continue };
            if let Some(nonces) = self.nonces.get_mut(&address) {
                if nonces.get(&nonce) == Some(&at) {
                    nonces.remove(&nonce);
                }
                if nonces.is_empty() {
                    self.nonces.remove(&address);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: Address = Address::repeat_byte(7);

    fn hash(number: u64) -> TransactionHash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        TransactionHash(bytes)
    }

    fn start() -> Instant {
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        Instant::now()
    }

    #[test]
    fn nonces_are_raised_up_to_the_first_gap() {
        let (sent, now) = (SentTransactions::default(), start());
        assert_eq!(sent.next_nonce(&SENDER, 5, now), 5);
        for nonce in [5, 6, 8] {
            sent.note(hash(nonce), Some((SENDER, nonce)), Slot(0), now);
        }
        let next = |told| sent.next_nonce(&SENDER, told, now);
        assert_eq!([next(4), next(5), next(6), next(7), next(8), next(9)], [4, 7, 7, 7, 9, 9]);
        assert_eq!(sent.next_nonce(&Address::repeat_byte(8), 5, now), 5);
    }

    #[test]
    fn an_upstream_that_took_it_is_known_for_a_minute() {
        let (sent, now) = (SentTransactions::default(), start());
        sent.note(hash(1), Some((SENDER, 1)), Slot(2), now);
        // Sent again and taken by another: that one has it, too.
        sent.note(hash(1), Some((SENDER, 1)), Slot(3), now);
        assert_eq!(sent.taken_by(&hash(1), now + LASTS), Some(Slot(3)));
        assert_eq!(sent.taken_by(&hash(2), now), None);
        let later = now + LASTS + Duration::from_millis(1);
        assert_eq!(sent.taken_by(&hash(1), later), None);
        assert_eq!(sent.next_nonce(&SENDER, 1, later), 1);
        assert!(sent.state.lock().nonces.is_empty());
    }

    #[test]
    fn what_was_sent_again_lasts_for_longer() {
        let (sent, now) = (SentTransactions::default(), start());
        let later = now + Duration::from_secs(50);
        sent.note(hash(1), Some((SENDER, 5)), Slot(0), now);
        // The same nonce at a higher price, and the same transaction.
        sent.note(hash(2), Some((SENDER, 5)), Slot(0), later);
        sent.note(hash(1), Some((SENDER, 5)), Slot(1), later);
        let at = now + LASTS + Duration::from_secs(1);
        assert_eq!(sent.next_nonce(&SENDER, 5, at), 6);
        assert_eq!(sent.taken_by(&hash(1), at), Some(Slot(1)));
        let at = later + LASTS + Duration::from_secs(1);
        assert_eq!((sent.next_nonce(&SENDER, 5, at), sent.taken_by(&hash(1), at)), (5, None));
        assert!(sent.state.lock().taken_by.is_empty());
    }

    #[test]
    fn they_are_bounded() {
        let (sent, now) = (SentTransactions::default(), start());
        for nonce in 0..2 * SENT_MAX as u64 {
            sent.note(hash(nonce), Some((SENDER, nonce)), Slot(0), now);
        }
        let state = sent.state.lock();
        assert_eq!((state.order.len(), state.taken_by.len()), (SENT_MAX, SENT_MAX));
        assert_eq!(state.nonces[&SENDER].len(), SENT_MAX);
    }
}
