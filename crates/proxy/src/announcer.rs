//! Writes the journal of one chain: what is agreed becomes what subscribers are told.
//!
//! A loop of the control plane. It runs while something subscribes, and for a while after that, as
//! clients come back. Headers between two agreed heads are fetched by hash like the reads of
//! clients: with retries, by the upstreams' condition and price. The view is stored before the
//! journal grows, and the journal before a client is told, so that a client that hears of block N
//! can read block N at once, over any connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_dispatch::now;
use wellhead_subscribe::{
    ChainJournal, HeadWalk, Header, NumberedBlock, Publication, WalkBounds, WalkStep,
};

use crate::journey::{Proxy, WorkerChains};
use crate::state::chain::ServedChain;
use crate::state::directory::ChainIndex;

/// So long after the last subscriber the journal is written on.
const LINGER: Duration = Duration::from_secs(30);
/// While something subscribes the chain is in use, though no client calls.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// The first pause after a header could not be fetched; doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// And its bound.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Announces the blocks of one chain.
#[derive(Debug)]
pub struct Announcer {
    proxy: Arc<Proxy>,
    worker: Arc<WorkerChains>,
    index: ChainIndex,
    journal: ChainJournal,
    walk: HeadWalk,
    /// When there was a subscriber last.
    wanted_at: Instant,
}

impl Announcer {
    /// One for each chain, which reach upstreams with `worker`. Only once for a proxy.
    pub fn all(proxy: &Arc<Proxy>, worker: WorkerChains) -> Vec<Self> {
        let worker = Arc::new(worker);
        let chains = proxy.chains().iter().enumerate();
        let announcers = chains.filter_map(|(index, chain)| {
            let journal = chain.subscriptions.take_journal()?;
            Some(Self {
                proxy: Arc::clone(proxy),
                worker: Arc::clone(&worker),
                index: ChainIndex(index),
                journal,
                walk: HeadWalk::new(WalkBounds::default()),
                wanted_at: now(),
            })
        });
        announcers.collect()
    }

    fn chain(&self) -> &Arc<ServedChain> {
        &self.proxy.chains()[self.index.0]
    }

    /// Announces for ever.
    pub async fn run(mut self) {
        loop {
            while self.chain().subscriptions.count() == 0 {
                self.chain().subscriptions.news().await;
            }
            self.begin().await;
            while self.check_demand() {
                self.announce().await;
            }
        }
    }

    /// Begins the journal at the agreed head, as soon as there is one.
    async fn begin(&mut self) {
        self.walk = HeadWalk::new(WalkBounds::default());
        loop {
            self.chain().pulse.note_call(now());
            if let Some(head) = self.agreed().await {
                self.journal.begin(head);
                self.wanted_at = now();
                return self.chain().subscriptions.note_written();
            }
            self.wait(PAUSE_MAX).await;
        }
    }

    /// Whether there is a subscriber, or was lately. If not, the journal rests.
    fn check_demand(&mut self) -> bool {
        let at = now();
        if self.chain().subscriptions.count() > 0 {
            self.wanted_at = at;
            return true;
        }
        let is_over = at.saturating_duration_since(self.wanted_at) >= LINGER;
        !(is_over && self.chain().subscriptions.may_rest())
    }

    /// Publishes what is agreed, or makes one step towards that, or waits for news.
    async fn announce(&mut self) {
        self.chain().pulse.note_call(now());
        if let Some(head) = self.agreed().await {
            self.walk.agree(head);
        }
        let pause = match self.walk.step(&self.journal) {
            WalkStep::Publish(publication) => return self.publish(publication),
            WalkStep::Resync(block) => return self.resync(block),
            WalkStep::Idle | WalkStep::Wait => NOTE_EVERY,
            WalkStep::Fetch(block) => {
                let params = format!(r#"["{}",false]"#, block.hash);
                let header = self.fetch("eth_getBlockByHash", &params).await;
                match header.filter(|header| header.id.hash == block.hash) {
                    Some(header) => return self.walk.supply(header),
                    None => {
                        self.walk.fail(block.hash);
                        let doublings = self.walk.failures().min(10);
                        (PAUSE * 2_u32.pow(doublings)).min(PAUSE_MAX)
                    }
                }
            }
        };
        self.wait(pause).await;
    }

    fn publish(&mut self, publication: Publication) {
        let tip = publication.added.last().map(|header| header.id);
        match self.journal.publish(publication) {
            Ok(()) => self.chain().subscriptions.tell(),
            // The walk went down to this journal, which this loop alone writes.
            Err(error) => {
                tracing::error!(%error, "the journal of blocks cannot be continued; it begins anew");
                if let Some(tip) = tip {
                    self.resync(tip);
                }
            }
        }
    }

    fn resync(&mut self, block: NumberedBlock) {
        let chain = &self.chain().name.name;
        tracing::warn!(%chain, %block, "subscribers have missed blocks; their connections are closed");
        self.journal.begin(block);
        self.chain().subscriptions.tell();
    }

    async fn wait(&self, most: Duration) {
        tokio::select! {
            // In this order, so that a simulated world has no chance but its own.
            biased;
            () = self.chain().subscriptions.news() => {}
            () = tokio::time::sleep(most) => {}
        }
    }

    /// The newest agreed block.
    async fn agreed(&mut self) -> Option<NumberedBlock> {
        let (head, known) = self.chain().heads.look(|view| {
            let head = view.latest?;
            Some((head, head.hash.or_else(|| view.hash_at(head.number))))
        })?;
        if let Some(hash) = known {
            return Some(NumberedBlock { number: head.number, hash });
        }
        // Heard of from an answer that named only a number.
        let params = format!(r#"["{}",false]"#, head.number.hex());
        let header = self.fetch("eth_getBlockByNumber", &params).await?;
        let id = header.id;
        self.walk.supply(header);
        Some(id)
    }

    /// Asks for a block as clients do, and counts it for none of them.
    async fn fetch(&self, method: &'static str, params: &str) -> Option<Header> {
        let block =
            self.proxy.own_call(&self.worker, self.index, method, params.as_bytes()).await?;
        Header::read(&block).inspect_err(|error| tracing::debug!(%error, "not a header")).ok()
    }
}
