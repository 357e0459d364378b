//! Leased tokens, each with the moment until which it may be spent.
//!
//! Two generations: the lease before and the newest. Were there one, each new lease would
//! prolong the life of what was left of the older ones, and no bound on it could be proven.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::nanos;

#[derive(Debug, Default)]
struct Generation {
    /// Thousandths of credits.
    tokens: AtomicU64,
    /// Nanoseconds since the epoch.
    expires: AtomicU64,
}

impl Generation {
    /// What is left after it was taken.
    fn take(&self, price: u64, now: u64) -> Option<u64> {
        if now >= self.expires.load(Relaxed) {
            return None;
        }
        let less = |tokens: u64| tokens.checked_sub(price);
        self.tokens.fetch_update(Relaxed, Relaxed, less).ok().map(|before| before - price)
    }

    fn held(&self, now: u64) -> u64 {
        if now < self.expires.load(Relaxed) { self.tokens.load(Relaxed) } else { 0 }
    }
}

/// Taken from by calls, filled by the one control loop.
#[derive(Debug, Default)]
pub(super) struct TokenPool {
    older: Generation,
    newer: Generation,
}

impl TokenPool {
    /// Takes the price out of one lease. Returns what is left in both.
    pub(super) fn take(&self, price: u64, now: u64) -> Option<u64> {
        if let Some(left) = self.older.take(price, now) {
            return Some(left + self.newer.held(now));
        }
        self.newer.take(price, now)
    }

    /// Takes the price out of both leases together, when neither has enough.
    pub(super) fn take_of_both(&self, price: u64, now: u64) -> bool {
        let part = self.older.held(now).min(price);
        if part == 0 || self.older.take(part, now).is_none() {
            return false;
        }
        let is_taken = self.newer.take(price - part, now).is_some();
        if !is_taken {
            self.older.tokens.fetch_add(part, Relaxed);
        }
        is_taken
    }

    /// Puts back what was taken for a call that was not made: it can be spent as long as the
    /// newest lease.
    pub(super) fn put_back(&self, price: u64) {
        self.newer.tokens.fetch_add(price, Relaxed);
    }

    /// What can be spent.
    pub(super) fn held(&self, now: u64) -> u64 {
        self.older.held(now) + self.newer.held(now)
    }

    /// Adds a lease; returns what was left of the one before the last.
    pub(super) fn add(&self, tokens: u64, expires: Duration) -> u64 {
        // In this order a call may find less than there is, for a moment, and never a token
        // past its time.
        let left = self.older.tokens.swap(0, Relaxed);
        self.older.expires.store(self.newer.expires.load(Relaxed), Relaxed);
        self.older.tokens.fetch_add(self.newer.tokens.swap(0, Relaxed), Relaxed);
        self.newer.expires.store(nanos(expires), Relaxed);
        self.newer.tokens.fetch_add(tokens, Relaxed);
        left
    }

    /// Takes away what is past its time, and returns it.
    pub(super) fn expire(&self, now: u64) -> u64 {
        let over = |generation: &Generation| {
            let over = now >= generation.expires.load(Relaxed);
            if over { generation.tokens.swap(0, Relaxed) } else { 0 }
        };
        over(&self.older) + over(&self.newer)
    }

    /// Takes away everything; returns it.
    pub(super) fn clear(&self) -> u64 {
        self.older.tokens.swap(0, Relaxed) + self.newer.tokens.swap(0, Relaxed)
    }

    /// When the first of what is held expires.
    pub(super) fn next_expiry(&self) -> Option<Duration> {
        let holds = |generation: &Generation| generation.tokens.load(Relaxed) > 0;
        [&self.older, &self.newer]
            .into_iter()
            .filter(|generation| holds(generation))
            .map(|generation| Duration::from_nanos(generation.expires.load(Relaxed)))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `at:take:N`, `at:add:N` (which lives for 100) and `at:expire`.
    fn check(script: &str, expected: &str) {
        let pool = TokenPool::default();
        let told = |step: &str| {
            let mut words = step.split(':');
            let at: u64 = words.next().and_then(|at| at.parse().ok()).expect("when");
            let act = words.next().expect("what");
            let number: u64 = words.next().map_or(0, |number| number.parse().expect("how many"));
            match act {
                "take" => pool.take(number, at).map_or("-".to_owned(), |left| left.to_string()),
                "both" => pool.take_of_both(number, at).to_string(),
                "add" => pool.add(number, Duration::from_nanos(at + 100)).to_string(),
                "expire" => pool.expire(at).to_string(),
                _ => panic!("no such act: {act}"),
            }
        };
        let found: Vec<_> = script.split_whitespace().map(told).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    #[test]
    fn the_older_is_spent_first() {
        check("0:add:5 50:add:5 60:take:3 60:take:2 60:take:5 60:take:1", "0 0 7 5 0 -");
    }
    #[test]
    fn each_lease_ends_in_its_own_time() {
        check("0:add:5 50:add:5 99:take:1 100:take:1 100:expire 149:take:4", "0 0 9 4 4 0");
        check("0:add:5 50:add:5 150:take:1 150:expire 150:expire", "0 0 - 10 0");
    }
    #[test]
    fn what_is_left_of_the_oldest_comes_back() {
        check("0:add:5 10:add:6 20:add:7 20:take:6 20:take:7", "0 0 5 7 0");
    }
    #[test]
    fn a_price_comes_out_of_one_lease_or_of_both() {
        check("0:add:5 10:add:7 20:take:6 20:take:5", "0 0 1 1");
        check("0:add:5 10:add:7 20:take:9 20:both:13 20:both:9 20:take:3", "0 0 - false true 0");
        check("0:add:5 10:add:7 100:both:9 100:take:7", "0 0 false 0");
    }
}
