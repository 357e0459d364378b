//! The connections of each client address, and which of them gives way to another.
//!
//! Looked at when a connection is opened and when it ends. An address is an IPv4 address, or
//! the /64 of an IPv6 one: a host with one address of such a network has all of them.
//!
//! When all places are taken, a connection that has been idle for longest gives way: one of the
//! address that has most connections where that has a large part of all, else of any address. One
//! that works gives way only when none is idle, and only if its address has most connections
//! and more than the newcomer's. So no number of connections of one address keeps another one
//! out, and no number of addresses with idle connections cuts the work of one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::link::{ClientLink, Worth};
use crate::share::AddressShare;

/// Addresses that are looked at for the one that has most, before others the next time: what a
/// newcomer costs must not grow with their number.
const PEERS_LOOKED_AT: usize = 1024;

/// Connections of that address that are looked at for the longest idle one.
const LINKS_LOOKED_AT: usize = 64;

/// Addresses of which one connection each is looked at for the longest idle one, others the
/// next time.
const IDLE_LOOKED_AT: usize = 64;

/// An address with more than this part of all places gives way before others.
const LARGE_PART: usize = 16;

/// A connection that has been idle for less may be between two calls.
const REST_TIME: Duration = Duration::from_secs(2);

/// Whose connections are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PeerAddress {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6(u64),
}

impl PeerAddress {
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
pub(crate) struct Peers(Mutex<PeerTable>);

#[derive(Debug, Default)]
struct PeerTable {
    indices: HashMap<PeerAddress, usize>,
    entries: Vec<PeerEntry>,
    /// The entry that is looked at next for the number of its connections.
    next: usize,
    /// The entry that is looked at next for an idle connection.
    next_idle: usize,
}

#[derive(Debug)]
struct PeerEntry {
    peer: PeerAddress,
    share: Arc<AddressShare>,
    links: Vec<Arc<ClientLink>>,
    /// The connection that is looked at next.
    next: usize,
}

impl Peers {
    /// Makes a link with the share of its address, unless that has `most` already.
    pub(crate) fn enter(
        &self,
        peer: PeerAddress,
        most: usize,
        link: impl FnOnce(Arc<AddressShare>) -> Arc<ClientLink>,
    ) -> Option<Arc<ClientLink>> {
        let mut book = self.0.lock();
        let entry = book.entry(peer);
        if entry.links.len() >= most {
            return None;
        }
        let link = link(Arc::clone(&entry.share));
        link.index.store(index_of(entry.links.len()), Relaxed);
        entry.links.push(Arc::clone(&link));
        Some(link)
    }

    /// Forgets a link that was entered, once.
    pub(crate) fn leave(&self, link: &ClientLink) {
        self.0.lock().leave(link);
    }

    /// Takes its place, one of `places`, from the connection that has to give way to `newcomer`, and
    /// forgets it.
    pub(crate) fn displace(
        &self,
        newcomer: &Arc<ClientLink>,
        places: usize,
        now: Instant,
    ) -> Option<Arc<ClientLink>> {
        let mut book = self.0.lock();
        // Another newcomer may have its place by now: nothing would be won for it.
        if !newcomer.has_place() {
            return None;
        }
        let own = book.indices.get(&PeerAddress::of(newcomer.peer.ip())).copied()?;
        let most = book.most(own);
        let link = book.least(newcomer, own, most, places, now)?;
        // It may be on its way out already, and then gives its place back itself.
        if !link.release_place() {
            return None;
        }
        book.leave(&link);
        Some(link)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().entries.len()
    }

    #[cfg(test)]
    fn links(&self) -> usize {
        self.0.lock().entries.iter().map(|entry| entry.links.len()).sum()
    }
}

fn index_of(links: usize) -> u32 {
    u32::try_from(links).expect("no machine has so many sockets")
}

impl PeerTable {
    fn entry(&mut self, peer: PeerAddress) -> &mut PeerEntry {
        let index = *self.indices.entry(peer).or_insert_with(|| {
            let share = Arc::default();
            self.entries.push(PeerEntry { peer, share, links: Vec::new(), next: 0 });
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    fn leave(&mut self, link: &ClientLink) {
        let peer = PeerAddress::of(link.peer.ip());
        let Some(index) = self.indices.get(&peer).copied() else { return };
        let links = &mut self.entries[index].links;
        let at = link.index.load(Relaxed) as usize;
        links.swap_remove(at);
        if let Some(moved) = links.get(at) {
            moved.index.store(index_of(at), Relaxed);
        }
        if links.is_empty() {
            self.indices.remove(&peer);
            self.entries.swap_remove(index);
            if let Some(moved) = self.entries.get(index) {
                self.indices.insert(moved.peer, index);
            }
        }
    }

    /// The entry with most connections of those that are looked at now; `own` where no other
    /// has more than that.
    fn most(&mut self, own: usize) -> usize {
        let count = self.entries.len();
        let first = self.next;
        self.next = (first + PEERS_LOOKED_AT) % count;
        let looked_at = (0..count.min(PEERS_LOOKED_AT)).map(|n| (first + n) % count);
        looked_at.fold(own, |most, index| {
            let more = self.entries[index].links.len() > self.entries[most].links.len();
            if more { index } else { most }
        })
    }

    /// The connection that gives way; `most` is the entry with most connections.
    fn least(
        &mut self,
        newcomer: &Arc<ClientLink>,
        own: usize,
        most: usize,
        places: usize,
        now: Instant,
    ) -> Option<Arc<ClientLink>> {
        let held = self.entries[most].links.len();
        let of_most = self.entries[most].least(newcomer);
        let is_large = held > (places / LARGE_PART).max(1);
        if let Some((Worth::Idle(_), link)) = &of_most
            && is_large
        {
            return Some(Arc::clone(link));
        }
        if is_large && most == own {
            return None;
        }
        let rests = |(worth, _): &(Worth, Arc<ClientLink>)| match worth {
            Worth::Idle(since) => now.saturating_duration_since(*since) >= REST_TIME,
            Worth::Busy(_) => false,
        };
        let resting = of_most.iter().cloned().chain(self.sample(newcomer)).filter(rests);
        if let Some((_, link)) = resting.min_by_key(|(worth, _)| *worth) {
            return Some(link);
        }
        let (worth, link) = of_most?;
        let gives_way = match worth {
            Worth::Idle(_) => true,
            Worth::Busy(_) => most != own,
        };
        gives_way.then_some(link)
    }

    /// One connection of each of some addresses.
    fn sample(&mut self, newcomer: &Arc<ClientLink>) -> Vec<(Worth, Arc<ClientLink>)> {
        let count = self.entries.len();
        let first = self.next_idle;
        self.next_idle = (first + IDLE_LOOKED_AT) % count;
        (0..count.min(IDLE_LOOKED_AT))
            .map(|n| self.entries[(first + n) % count].next_link())
            .filter(|link| !Arc::ptr_eq(link, newcomer))
            .map(|link| (link.worth(), link))
            .collect()
    }
}

impl PeerEntry {
    /// The connections in turn.
    fn next_link(&mut self) -> Arc<ClientLink> {
        let at = self.next % self.links.len();
        self.next = at + 1;
        Arc::clone(&self.links[at])
    }

    /// The connection that is worth least, the longest idle one first.
    fn least(&mut self, newcomer: &Arc<ClientLink>) -> Option<(Worth, Arc<ClientLink>)> {
        let count = self.links.len();
        let first = self.next;
        self.next = (first + LINKS_LOOKED_AT) % count;
        (0..count.min(LINKS_LOOKED_AT))
            .map(|n| &self.links[(first + n) % count])
            .filter(|link| !Arc::ptr_eq(link, newcomer))
            .map(|link| (link.worth(), link))
            .min_by_key(|(worth, _)| *worth)
            .map(|(worth, link)| (worth, Arc::clone(link)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::Settings;
    use crate::shared::ServerShared;

    #[test]
    fn addresses_that_are_one_peer() {
        let same = |one: &str, other: &str| {
            let of = |text: &str| PeerAddress::of(text.parse().expect("an address"));
            of(one) == of(other)
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(!same("0.0.0.0", "::"));
    }

    /// Connections by a letter each, whose addresses are told by digits.
    struct Stage {
        shared: Arc<ServerShared>,
        peers: Peers,
        links: Vec<Arc<ClientLink>>,
        began: Instant,
    }

    impl Stage {
        fn new() -> Self {
            Self {
                shared: Arc::new(ServerShared::new(Settings::default())),
                peers: Peers::default(),
                links: Vec::new(),
                began: Instant::now(),
            }
        }

        /// One connection from 10.0.0.`address`, idle since `second`.
        fn enter(&mut self, address: u8, second: u64) -> Arc<ClientLink> {
            let peer = SocketAddr::from(([10, 0, 0, address], 1));
            let at = self.began + Duration::from_secs(second);
            let link = self.peers.enter(PeerAddress::of(peer.ip()), 1000, |share| {
                Arc::new(ClientLink::new(Arc::clone(&self.shared), peer, Some(share), at))
            });
            let link = link.expect("there is room");
            self.links.push(Arc::clone(&link));
            link
        }

        /// Which one gives way to the next from 10.0.0.`address`.
        fn displaced(&mut self, address: u8) -> Option<usize> {
            let newcomer = self.enter(address, 1_000);
            let now = self.began + Duration::from_secs(1_000);
            let displaced = self.peers.displace(&newcomer, self.peers.links() - 1, now)?;
            self.links.iter().position(|link| Arc::ptr_eq(link, &displaced))
        }
    }

    #[test]
    fn each_has_its_own_count_and_leaves_nothing() {
        let mut stage = Stage::new();
        for address in [1, 1, 2, 3, 2, 1] {
            stage.enter(address, 0);
        }
        let peer = PeerAddress::V4(Ipv4Addr::new(10, 0, 0, 1));
        assert!(stage.peers.enter(peer, 3, |_| unreachable!("it has three")).is_none());
        assert_eq!(stage.peers.len(), 3);
        for (n, left) in [(0, 3), (5, 3), (2, 3), (1, 2), (3, 1), (4, 0)] {
            stage.peers.leave(&stage.links[n]);
            assert_eq!(stage.peers.len(), left, "after {n}");
        }
    }

    #[test]
    fn the_longest_idle_of_the_address_that_has_most_gives_way() {
        let mut stage = Stage::new();
        for (address, second) in [(1, 0), (2, 20), (2, 10), (2, 30), (3, 5), (3, 6)] {
            stage.enter(address, second);
        }
        assert_eq!(stage.displaced(4), Some(2));
        // All have two now but the newcomer: any of them.
        assert_eq!(stage.displaced(2), Some(1), "its own, as no other has more");
    }

    #[test]
    fn a_connection_that_works_gives_way_only_to_an_address_that_has_fewer() {
        let mut stage = Stage::new();
        let busy = [stage.enter(1, 0), stage.enter(1, 1)];
        let requests: Vec<_> = busy.iter().map(crate::ticket::Ticket::open).collect();
        assert_eq!(stage.displaced(1), None);
        stage.peers.leave(&stage.links[2]);
        assert_eq!(stage.displaced(2), Some(0));
        drop(requests);
    }

    #[test]
    fn idle_connections_of_many_addresses_give_way_before_one_that_works() {
        let mut stage = Stage::new();
        let busy: Vec<_> = (0..2).map(|_| stage.enter(1, 0)).collect();
        let requests: Vec<_> = busy.iter().map(crate::ticket::Ticket::open).collect();
        for address in 2..40 {
            stage.enter(address, if address == 7 { 10 } else { 20 });
        }
        assert_eq!(stage.displaced(99), Some(7), "the longest idle, of any address");
        for _ in 0..IDLE_LOOKED_AT {
            let displaced = stage.displaced(99).expect("one gives way");
            assert!(displaced >= busy.len(), "{displaced}");
        }
        drop(requests);
    }

    #[test]
    fn a_large_address_that_works_displaces_no_idle_connection_of_another() {
        let mut stage = Stage::new();
        let busy: Vec<_> = (0..20).map(|_| stage.enter(1, 0)).collect();
        let requests: Vec<_> = busy.iter().map(crate::ticket::Ticket::open).collect();
        stage.enter(2, 10);
        assert_eq!(stage.displaced(1), None);
        drop(requests);
    }

    #[test]
    fn one_alone_displaces_nothing() {
        let mut stage = Stage::new();
        assert_eq!(stage.displaced(1), None);
    }

    #[test]
    fn all_are_looked_at_in_turn() {
        let mut stage = Stage::new();
        let many = LINKS_LOOKED_AT * 3;
        for n in 0..many {
            stage.enter(1, if n == many - 1 { 0 } else { 10 });
        }
        let displaced: Vec<_> = (0..4).filter_map(|_| stage.displaced(2)).collect();
        assert_eq!(displaced.len(), 4);
        assert!(displaced.contains(&(many - 1)), "{displaced:?}");
    }
}
