//! What replicas tell each other of their clients, so that one that changes replica finds what it was shown and
//! what it sent: see [`crate::state::sessions`] and [`crate::state::sent`].
//!
//! - Each tells the newest block that it answers with. The others answer with none below, as far as one of their
//!   upstreams claims to hold it.
//! - A client that was shown a block above that is told of by its hash.
//! - A transaction that an upstream took is told of with its sender and nonce.
//!
//! A word takes about a millisecond. *Not promised*: that a client which is quicker than that finds the block, and
//! anything while replicas cannot hear each other.

use std::time::Instant;

use wellhead_chain::{News, Observation, Source};
use wellhead_eth::{BlockNumber, TransactionHash};
use wellhead_upstream::{Slot, Standing};
use wellhead_watch::{ChainWord, HeadWord, SentWord, UpstreamWord};

use crate::state::chain::ServedChain;
use crate::state::sent::Sender;

impl ServedChain {
    /// Takes in what another replica, `from`, says of this chain.
    pub fn hear(&self, from: u64, says: ChainWord, now: Instant) {
        match says {
            ChainWord::Demand(demand) => self.pulse.hear_demand(demand, now),
            ChainWord::Upstream { upstream, says } => {
                if let Some(peers) = self.pulse.peers() {
                    peers.hear(from, &upstream, says, now);
                }
            }
            ChainWord::Latest(number) => self.sessions.note_latest_elsewhere(number, now),
            ChainWord::Shown { client, number } => {
                self.sessions.note_shown_elsewhere(client, number, now);
            }
            ChainWord::Sent(sent) => self.hear_sent(&sent, now),
        }
    }

    fn hear_sent(&self, sent: &SentWord, now: Instant) {
        let mut upstreams = self.roster.upstreams().iter();
        let upstream = upstreams.find(|it| it.identity().id.as_str() == sent.upstream);
        let (Some(upstream), Ok(hash)) = (upstream, sent.hash.parse()) else { return };
        let sender = sent.sender.as_ref().and_then(|(address, nonce)| {
            let address = address.parse().ok()?;
            Some((address, *nonce))
        });
        self.sent.note(hash, sender, upstream.slot(), now);
    }

    /// Notes that the upstream in `slot` took a transaction, here and in the other replicas.
    pub(crate) fn note_sent(
        &self,
        hash: TransactionHash,
        sender: Option<Sender>,
        slot: Slot,
        now: Instant,
    ) {
        self.sent.note(hash, sender, slot, now);
        if let Some(peers) = self.pulse.peers() {
            peers.tell(ChainWord::Sent(SentWord {
                hash: hash.to_string(),
                upstream: self.roster.upstream(slot).identity().id.to_string(),
                sender: sender.map(|(address, nonce)| (address.to_string(), nonce)),
            }));
        }
    }

    /// Notes that an answer of the upstream in `slot` shows a block, here and in the other replicas.
    pub(crate) fn note_answered(&self, slot: Slot, seen: Observation, now: Instant) {
        let upstream = self.roster.upstream(slot);
        // Refused while the call was under way: its blocks are another chain's.
        if upstream.standing() != Standing::Verified {
            return;
        }
        let news = self.heads.observe(slot, seen, Source::Answer, now);
        if let Some(peers) = self.pulse.peers().filter(|_| news != News::Known) {
            let says = UpstreamWord::Head(HeadWord::answered(&seen));
            peers.tell(ChainWord::Upstream { upstream: upstream.identity().id.to_string(), says });
        }
    }

    /// Tells the other replicas that a client was shown a block above the agreed one.
    pub(crate) fn tell_shown(&self, client: u64, number: BlockNumber) {
        if let Some(peers) = self.pulse.peers() {
            peers.tell(ChainWord::Shown { client, number: number.0 });
        }
    }
}
