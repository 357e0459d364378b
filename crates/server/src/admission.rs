//! Which connections are open: each holds a place from `accept` to its end. When all places are
//! taken, a newcomer may have that of another connection (`peers` says of which).

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;

use crate::HttpRefusal;
use crate::count::ServerCounters;
use crate::link::ClientLink;
use crate::peers::{PeerAddress, Peers};
use crate::protocol::ClientProtocol;
use crate::shared::ServerShared;

/// The places for connections of one listener.
#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<ServerShared>,
    peers: Peers,
}

/// A place among the open connections, given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    admission: Arc<Admission>,
    link: Arc<ClientLink>,
}

impl ConnectionPermit {
    pub(crate) fn link(&self) -> &Arc<ClientLink> {
        &self.link
    }

    /// Counts the connection under the protocol that its first bytes told.
    pub(crate) fn speak(&self, protocol: ClientProtocol) {
        self.link.speak(protocol);
        self.link.shared.counters.open(protocol);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(protocol) = self.link.protocol() {
            self.link.shared.counters.close(protocol);
        }
        self.admission.leave(&self.link);
    }
}

impl Admission {
    pub(crate) fn new(shared: Arc<ServerShared>) -> Self {
        Self { shared, peers: Peers::default() }
    }

    /// Admits one more connection from `peer`, or says which bound is reached.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
    ) -> Result<ConnectionPermit, HttpRefusal> {
        let link = self.enter(peer)?;
        Ok(ConnectionPermit { admission: Arc::clone(self), link })
    }

    /// Takes a place for one more connection from `peer`, or says which bound is reached.
    fn enter(&self, peer: SocketAddr) -> Result<Arc<ClientLink>, HttpRefusal> {
        let settings = &self.shared.settings;
        let open = self.shared.counters.connections_open.raise(1);
        let refused = |refusal| {
            self.shared.counters.connections_open.lower(1);
            Err(refusal)
        };
        let now = Instant::now();
        let link = |share| Arc::new(ClientLink::new(Arc::clone(&self.shared), peer, share, now));
        let is_full = open > settings.connections_max;
        let most = settings.connections_per_peer_max;
        if !settings.shares && most.is_none() {
            return if is_full { refused(HttpRefusal::ConnectionsFull) } else { Ok(link(None)) };
        }
        let share = |share| link(Some(share).filter(|_| settings.shares));
        let entered =
            self.peers.enter(PeerAddress::of(peer.ip()), most.unwrap_or(usize::MAX), share);
        let Some(link) = entered else { return refused(HttpRefusal::PeerFull) };
        if is_full { self.squeeze_in(link, now) } else { Ok(link) }
    }

    /// Has `newcomer` stay in the place of another connection, if there is one that gives way.
    fn squeeze_in(
        &self,
        newcomer: Arc<ClientLink>,
        now: Instant,
    ) -> Result<Arc<ClientLink>, HttpRefusal> {
        if self.shared.settings.shares && self.make_room(&newcomer, now) {
            return Ok(newcomer);
        }
        // Another newcomer may have displaced this one by now, and has counted that.
        self.leave(&newcomer);
        Err(HttpRefusal::ConnectionsFull)
    }

    /// Has another connection end, so that `newcomer` may stay.
    fn make_room(&self, newcomer: &Arc<ClientLink>, now: Instant) -> bool {
        let places = self.shared.settings.connections_max;
        let Some(displaced) = self.peers.displace(newcomer, places, now) else { return false };
        self.shared.counters.connections_open.lower(1);
        ServerCounters::add(&self.shared.counters.displaced_total);
        displaced.displace();
        true
    }

    /// Gives the place back, unless another connection has it already.
    fn leave(&self, link: &ClientLink) {
        if !link.release_place() {
            return;
        }
        if self.shared.settings.shares || self.shared.settings.connections_per_peer_max.is_some() {
            self.peers.leave(link);
        }
        self.shared.counters.connections_open.lower(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn admission(settings: Settings) -> Admission {
        Admission::new(Arc::new(ServerShared::new(settings)))
    }

    #[test]
    fn a_newcomer_that_is_displaced_before_it_has_room_is_counted_once() {
        let admission = admission(Settings { connections_max: 2, ..Settings::default() });
        let peer = |address: u8| SocketAddr::from(([10, 0, 0, address], 1));
        let open = || admission.shared.counters.connections_open.get();
        let now = Instant::now();
        // Entered, and the next moment another worker's newcomer takes its place.
        let first = admission.enter(peer(1)).expect("there is room");
        let own = admission.enter(peer(1)).expect("there is room");
        let other = admission.enter(peer(2)).expect("the first gives way");
        assert!(first.is_displaced());
        assert_eq!(open(), 2);
        let refused = admission.squeeze_in(Arc::clone(&first), now).map(|_| ());
        assert_eq!(refused, Err(HttpRefusal::ConnectionsFull));
        assert_eq!(open(), 2);
        admission.leave(&own);
        admission.leave(&other);
        assert_eq!(open(), 0);
    }
}
