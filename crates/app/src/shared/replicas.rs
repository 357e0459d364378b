//! What replicas tell each other of chains and upstreams: the way between the store's messages and the chains.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use wellhead_proxy::Proxy;
use wellhead_store::{ReplicaChannel, ReplicaMessage};
use wellhead_transport::feed::BoxFuture;
use wellhead_watch::{BEAT, ChainPeers, PeerOutlet, Pulse, ReplicaWord, Replicas};

/// Carries words over a channel of the store.
#[derive(Debug)]
struct ChannelOutlet(ReplicaChannel);

impl PeerOutlet for ChannelOutlet {
    fn is_linked(&self) -> bool {
        self.0.is_here()
    }

    fn tell(&self, text: String) {
        self.0.publish(text);
    }

    fn tell_acked(&self, text: String) -> BoxFuture<'static, ()> {
        let acked = self.0.publish_acked(text);
        Box::pin(async move {
            let _not_passed_on = acked.await;
        })
    }
}

/// The replicas of this cluster, and what the others say.
#[derive(Debug)]
pub(crate) struct StartedReplicas {
    pub(crate) replicas: Arc<Replicas>,
    pub(super) messages: mpsc::Receiver<ReplicaMessage>,
}

/// The replicas that speak over `channel`.
pub(super) fn replicas(channel: &ReplicaChannel) -> Arc<Replicas> {
    let outlet = Arc::new(ChannelOutlet(channel.clone()));
    Arc::new(Replicas::new(channel.id().0, outlet))
}

/// Has a chain followed by all replicas from now on. Must come before its loops begin.
pub(crate) fn join(pulse: &Pulse, chain: &Arc<str>, replicas: &Arc<Replicas>) {
    if pulse.peers().is_none() {
        pulse.join(ChainPeers::new(Arc::clone(chain), Arc::clone(replicas)));
    }
}

/// Hands the words of other replicas to the chains, and says each [`BEAT`] that this one is there and what its
/// clients need. Ends with the channel.
pub(crate) async fn follow_replicas(started: StartedReplicas, proxy: Arc<ArcSwap<Proxy>>) {
    let StartedReplicas { replicas, mut messages } = started;
    let mut beats = tokio::time::interval(BEAT);
    beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => hear(&message, &replicas, &proxy.load()),
                None => return,
            },
            _ = beats.tick() => {
                replicas.tell(&ReplicaWord::Here);
                let now = wellhead_dispatch::now();
                for chain in proxy.load().chains() {
                    chain.pulse.tell_demand(now);
                }
            }
        }
    }
}

fn hear(message: &ReplicaMessage, replicas: &Replicas, proxy: &Proxy) {
    let (from, now) = (message.from.0, wellhead_dispatch::now());
    match ReplicaWord::read(&message.text) {
        Some(ReplicaWord::Leaving) => replicas.note_leaving(from),
        Some(ReplicaWord::Here) => replicas.note_heard(from, now),
        Some(ReplicaWord::Chain { chain, says }) => {
            replicas.note_heard(from, now);
            // One that is served only there is nothing to this one.
            if let Some(served) = proxy.chains().iter().find(|it| *it.name.name == *chain) {
                served.hear(from, says, now);
            }
        }
        // Of another version.
        None => tracing::trace!(from = %message.from, "a word of another replica is unknown"),
    }
}

/// The time that the last word of a replica has to leave.
const LAST_WORD_WITHIN: Duration = Duration::from_millis(100);

/// Says that this replica is about to end, so that the others take over what it probes at once.
pub(crate) async fn leave(replicas: &Replicas) {
    let told = replicas.tell_last(&ReplicaWord::Leaving);
    let _gone_all_the_same = tokio::time::timeout(LAST_WORD_WITHIN, told).await;
}
