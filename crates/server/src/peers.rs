//! The connections of each client address, and which of them gives way to another.
//!
//! Looked at when a connection is opened and when it ends. An address is an IPv4 address, or
//! the /64 of an IPv6 one: whoever has one address of such a network has all of them.
//!
//! When all places are taken, the address that has most connections gives one up: the one
//! that has been idle for longest, or, where the newcomer's address has fewer, even one that
//! works. So no number of connections of one address keeps another one out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use crate::link::{Link, Worth};
use crate::share::Share;

/// Addresses that are looked at for the one that has most, before others the next time: what a
/// newcomer costs must not grow with their number.
const PEERS_LOOKED_AT: usize = 1024;

/// Connections of that address that are looked at for the longest idle one.
const LINKS_LOOKED_AT: usize = 64;

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
pub(crate) struct Peers(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    indices: HashMap<Peer, usize>,
    entries: Vec<Entry>,
    /// The entry that is looked at next.
    next: usize,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    share: Arc<Share>,
    links: Vec<Arc<Link>>,
    /// The connection that is looked at next.
    next: usize,
}

impl Peers {
    /// Makes a link with the share of its address, unless that has `most` already.
    pub(crate) fn enter(
        &self,
        peer: Peer,
        most: usize,
        link: impl FnOnce(Arc<Share>) -> Arc<Link>,
    ) -> Option<Arc<Link>> {
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
    pub(crate) fn leave(&self, link: &Link) {
        self.0.lock().leave(link);
    }

    /// Takes its seat from the connection that has to give way to `newcomer`, and forgets it.
    pub(crate) fn displace(&self, newcomer: &Arc<Link>) -> Option<Arc<Link>> {
        let mut book = self.0.lock();
        let own = book.indices.get(&Peer::of(newcomer.peer.ip())).copied()?;
        let most = book.most(own);
        let link = book.entries[most].least(newcomer, most != own)?;
        // It may be on its way out already, and then gives its seat back itself.
        if !link.leave_seat() {
            return None;
        }
        book.leave(&link);
        Some(link)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().entries.len()
    }
}

fn index_of(links: usize) -> u32 {
    u32::try_from(links).expect("no machine has so many sockets")
}

impl Book {
    fn entry(&mut self, peer: Peer) -> &mut Entry {
        let index = *self.indices.entry(peer).or_insert_with(|| {
            let share = Arc::default();
            self.entries.push(Entry { peer, share, links: Vec::new(), next: 0 });
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    fn leave(&mut self, link: &Link) {
        let peer = Peer::of(link.peer.ip());
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
}

impl Entry {
    /// The connection that is worth least; only an idle one unless `may_be_busy`.
    fn least(&mut self, newcomer: &Arc<Link>, may_be_busy: bool) -> Option<Arc<Link>> {
        let count = self.links.len();
        let first = self.next;
        self.next = (first + LINKS_LOOKED_AT) % count;
        let (_, link) = (0..count.min(LINKS_LOOKED_AT))
            .map(|n| &self.links[(first + n) % count])
            .filter(|link| !Arc::ptr_eq(link, newcomer))
            .map(|link| (link.worth(), link))
            .filter(|(worth, _)| match worth {
                Worth::Idle(_) => true,
                Worth::Busy(_) => may_be_busy,
            })
            .min_by_key(|(worth, _)| *worth)?;
        Some(Arc::clone(link))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{Server, Settings};

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

    /// Connections by a letter each, whose addresses are told by digits.
    struct Stage {
        server: Arc<Server>,
        peers: Peers,
        links: Vec<Arc<Link>>,
        began: Instant,
    }

    impl Stage {
        fn new() -> Self {
            Self {
                server: Server::new(Settings::default()),
                peers: Peers::default(),
                links: Vec::new(),
                began: Instant::now(),
            }
        }

        /// One connection from 10.0.0.`address`, idle since `second`.
        fn enter(&mut self, address: u8, second: u64) -> Arc<Link> {
            let peer = SocketAddr::from(([10, 0, 0, address], 1));
            let at = self.began + Duration::from_secs(second);
            let link = self.peers.enter(Peer::of(peer.ip()), 1000, |share| {
                Arc::new(Link::new(Arc::clone(&self.server), peer, Some(share), at))
            });
            let link = link.expect("there is room");
            self.links.push(Arc::clone(&link));
            link
        }

        /// Which one gives way to the next from 10.0.0.`address`.
        fn displaced(&mut self, address: u8) -> Option<usize> {
            let newcomer = self.enter(address, 1_000);
            let displaced = self.peers.displace(&newcomer)?;
            self.links.iter().position(|link| Arc::ptr_eq(link, &displaced))
        }
    }

    #[test]
    fn each_has_its_own_count_and_leaves_nothing() {
        let mut stage = Stage::new();
        for address in [1, 1, 2, 3, 2, 1] {
            stage.enter(address, 0);
        }
        let peer = Peer::V4(Ipv4Addr::new(10, 0, 0, 1));
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
