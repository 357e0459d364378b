//! The loops that follow upstreams and announce the blocks of chains, as the settings say now.
//!
//! When the settings change, a loop goes on if what it works with stays; the others end and begin anew. A loop
//! that begins anew for an upstream that is reached as before takes over its connections.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rand::Rng;
use tokio::task::{AbortHandle, JoinSet};
use wellhead_chain::Heads;
use wellhead_proxy::{Announcer, FilterStore, ProxyWorker, ServedChain};
use wellhead_transport::{MemoryBudget, Transport};
use wellhead_upstream::Upstream;
use wellhead_watch::{Pulse, Replicas, Watcher, WatcherParts};

use crate::assemble::{AssembleError, Assembly, ChainParts, UpstreamReach, WatchTerms};
use crate::shared;

/// The loops of all chains.
#[derive(Debug)]
pub(crate) struct ChainLoops {
    tasks: JoinSet<()>,
    watchers: Vec<RunningWatcher>,
    announcers: Vec<RunningAnnouncer>,
    /// By which announcers read.
    pub(crate) current: Arc<ArcSwap<ProxyWorker>>,
    /// Not the memory budget of clients' answers: a loop holds one answer, and is to go on when that is reached.
    answers: Arc<MemoryBudget>,
    /// Those that follow the chains, too, where they share.
    replicas: Option<Arc<Replicas>>,
    /// Where replicas share the filters of clients.
    filters: Option<Arc<dyn FilterStore>>,
}

#[derive(Debug)]
struct RunningWatcher {
    task: AbortHandle,
    followed: FollowedUpstream,
}

/// What the loop of one upstream works with.
#[derive(Debug)]
struct FollowedUpstream {
    upstream: Arc<Upstream>,
    heads: Arc<Heads>,
    pulse: Arc<Pulse>,
    watch: WatchTerms,
    reach: Arc<UpstreamReach>,
    transport: Arc<dyn Transport>,
}

#[derive(Debug)]
struct RunningAnnouncer {
    task: AbortHandle,
    /// As it was when the announcer began.
    chain: Arc<ServedChain>,
}

/// A loop that is about to run.
struct NextWatcher {
    watcher: Watcher,
    followed: FollowedUpstream,
}

impl ChainLoops {
    /// None yet.
    pub(crate) fn new(
        current: Arc<ArcSwap<ProxyWorker>>,
        replicas: Option<Arc<Replicas>>,
        filters: Option<Arc<dyn FilterStore>>,
    ) -> Self {
        Self {
            tasks: JoinSet::new(),
            watchers: Vec::new(),
            announcers: Vec::new(),
            current,
            answers: Arc::default(),
            replicas,
            filters,
        }
    }

    /// Runs the loops of this assembly, and ends those that are not among them. Needs a runtime. Where it fails, all
    /// goes on as before.
    pub(crate) fn follow(
        &mut self,
        assembly: &Assembly,
        rng: &mut impl Rng,
    ) -> Result<(), AssembleError> {
        // Those that were ended before are forgotten.
        while self.tasks.try_join_next().is_some() {}
        let mut begin = Vec::new();
        for chain in &assembly.chains {
            if let Some(replicas) = &self.replicas {
                shared::join(&chain.served.pulse, &chain.served.name.name, replicas);
            }
            if let Some(filters) = &self.filters {
                chain.served.share_filters(filters);
            }
            for place in 0..chain.upstreams.len() {
                if !self.watchers.iter().any(|it| it.followed.is_of(chain, place)) {
                    begin.push(self.next_watcher(chain, place, rng)?);
                }
            }
        }
        let is_kept = |it: &FollowedUpstream| {
            let is_of =
                |chain: &ChainParts| (0..chain.upstreams.len()).any(|at| it.is_of(chain, at));
            assembly.chains.iter().any(is_of)
        };
        for gone in self.watchers.extract_if(.., |it| !is_kept(&it.followed)) {
            gone.task.abort();
            gone.followed.pulse.end_feed(gone.followed.upstream.slot());
        }
        for NextWatcher { watcher, followed } in begin {
            let task = self.tasks.spawn(watcher.run());
            self.watchers.push(RunningWatcher { task, followed });
        }
        self.announce(assembly);
        Ok(())
    }

    fn next_watcher(
        &self,
        chain: &ChainParts,
        place: usize,
        rng: &mut impl Rng,
    ) -> Result<NextWatcher, AssembleError> {
        let (served, parts) = (&chain.served, &chain.upstreams[place]);
        let is_reached_so = |it: &&RunningWatcher| Arc::ptr_eq(&it.followed.reach, &parts.reach);
        let transport = match self.watchers.iter().find(is_reached_so) {
            Some(before) => Arc::clone(&before.followed.transport),
            None => parts.reach.transport(&self.answers, rng)?,
        };
        let followed = FollowedUpstream {
            upstream: Arc::clone(&served.roster.upstreams()[place]),
            heads: Arc::clone(&served.heads),
            pulse: Arc::clone(&served.pulse),
            watch: parts.watch,
            reach: Arc::clone(&parts.reach),
            transport,
        };
        let watcher = Watcher::new(
            WatcherParts {
                upstream: Arc::clone(&followed.upstream),
                transport: Arc::clone(&followed.transport),
                feed: parts.reach.feed()?,
                heads: Arc::clone(&followed.heads),
                pulse: Arc::clone(&followed.pulse),
                counts: Arc::clone(&served.asked[place]),
            },
            parts.watch.pace,
        );
        let beside = Arc::clone(served.heads.upstreams());
        let watcher = watcher.checking(parts.watch.checks).among(beside);
        Ok(NextWatcher { watcher, followed })
    }

    fn announce(&mut self, assembly: &Assembly) {
        let is_served = |chain: &Arc<ServedChain>| {
            assembly.chains.iter().any(|parts| Arc::ptr_eq(&parts.served.heads, &chain.heads))
        };
        for gone in self.announcers.extract_if(.., |it| !is_served(&it.chain)) {
            gone.task.abort();
            gone.chain.end_subscriptions();
        }
        for parts in &assembly.chains {
            if let Some(announcer) = Announcer::of(&parts.served, &self.current) {
                let task = self.tasks.spawn(announcer.run());
                self.announcers.push(RunningAnnouncer { task, chain: Arc::clone(&parts.served) });
            }
        }
    }

    /// Ends them all.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
        // Nothing is said after it.
        if let Some(replicas) = &self.replicas {
            shared::leave(replicas).await;
        }
    }
}

impl FollowedUpstream {
    /// Whether it is this upstream of the chain, followed as it has to be.
    fn is_of(&self, chain: &ChainParts, place: usize) -> bool {
        let parts = &chain.upstreams[place];
        Arc::ptr_eq(&self.upstream, &chain.served.roster.upstreams()[place])
            && Arc::ptr_eq(&self.heads, &chain.served.heads)
            && Arc::ptr_eq(&self.reach, &parts.reach)
            && self.watch == parts.watch
    }
}
