//! How many connections each client address holds.
//!
//! Looked at only where a bound is set, when a connection is opened and when it ends. An
//! address is an IPv4 address, or the /64 of an IPv6 one: whoever has one address of such a
//! network has all of them. Behind a balancer that hides its clients there is one address,
//! so nothing here may be bounded by default.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use parking_lot::Mutex;

/// Whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6(u64),
}

impl Peer {
    pub(crate) fn of(address: IpAddr) -> Self {
        // A socket for both families sees IPv4 clients as `::ffff:a.b.c.d`.
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((u128::from(address) >> 64) as u64),
        }
    }
}

/// Open connections by address; an address without any is not remembered, so there are
/// never more of them than connections.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<HashMap<Peer, usize>>);

impl Peers {
    /// Counts one more, unless it has `most` already.
    pub(crate) fn enter(&self, peer: Peer, most: usize) -> bool {
        let mut open = self.0.lock();
        let count = open.entry(peer).or_default();
        let fits = *count < most;
        *count += usize::from(fits);
        fits
    }

    pub(crate) fn leave(&self, peer: Peer) {
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&peer);
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_one_peer() {
        let same = |one: &str, other: &str| {
            let of = |text: &str| Peer::of(text.parse().expect("an address"));
            of(one) == of(other)
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(!same("0.0.0.0", "::"));
    }

    #[test]
    fn each_has_its_own_count_and_leaves_nothing() {
        let peers = Peers::default();
        let (one, other) = (Peer::V4(Ipv4Addr::LOCALHOST), Peer::V6(7));
        assert!(peers.enter(one, 2) && peers.enter(one, 2) && peers.enter(other, 2));
        assert!(!peers.enter(one, 2));
        peers.leave(one);
        assert!(peers.enter(one, 2));
        for peer in [one, one, other] {
            peers.leave(peer);
        }
        assert_eq!(peers.len(), 0);
    }
}
