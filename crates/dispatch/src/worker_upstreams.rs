//! What one worker thread uses to reach the upstreams of one chain.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_eth::MethodRow;
use wellhead_limit::{Permits, RetryBudget};
use wellhead_transport::{MemoryBudget, Transport};
use wellhead_upstream::{Bound, ClientHash, InFlight, LimitedBy, Slot, Upstream};

use crate::client_id::ClientId;
use crate::flows::Flows;
use crate::inspect::Inspect;
use crate::wait_queue::WaitQueue;

/// Answers of one upstream that flow to clients at a time, unless the settings say
/// otherwise: a quarter of the connections that an upstream has by default.
const FLOWS_MAX: usize = 64;
/// Searches in parts that flow to clients at a time: each holds what it found and its client has
/// not taken, and goes on asking.
const SEARCH_FLOWS_MAX: usize = 64;
/// The interval of checks for a free connection: one that is freed by itself, for example because
/// its call was dropped, wakes no waiting call.
const CONNECTION_LOOK: Duration = Duration::from_millis(10);
/// Attempts of a broadcast that may be in progress, even after their call was answered.
const OUTLIVING_MAX: usize = 256;

/// The transports of one chain, and a source of chance. Each worker has
/// its own, so that its connections and its lock are never fought over.
pub struct WorkerUpstreams {
    /// In the order of the roster, as are the flows.
    transports: Box<[Arc<dyn Transport>]>,
    flows: Box<[Flows]>,
    /// By slot, the place in that order; empty where it is the slot.
    places: Box<[u8]>,
    search_flows: Flows,
    outliving: Arc<Permits>,
    retry_budget: Arc<RetryBudget>,
    answers: Arc<MemoryBudget>,
    inspect: Option<Arc<dyn Inspect>>,
    rng: Mutex<SmallRng>,
    wait_queue: Arc<WaitQueue>,
}

impl fmt::Debug for WorkerUpstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerUpstreams")
            .field("transports", &self.transports.len())
            .finish_non_exhaustive()
    }
}

impl WorkerUpstreams {
    /// Those that are reached over `transports`, which must be in the order of the roster; the slot of each
    /// is its place there, unless [`Self::placed`] says otherwise.
    pub fn new(transports: Vec<Arc<dyn Transport>>, seed: u64) -> Self {
        Self {
            flows: transports.iter().map(|_| Flows::new(FLOWS_MAX)).collect(),
            search_flows: Flows::new(SEARCH_FLOWS_MAX),
            transports: transports.into(),
            places: Box::default(),
            outliving: Arc::new(Permits::new(OUTLIVING_MAX)),
            retry_budget: Arc::default(),
            answers: Arc::default(),
            inspect: None,
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
            wait_queue: Arc::default(),
        }
    }

    /// With these slots, in the order of the roster.
    #[must_use]
    pub fn placed(self, slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut places = Vec::new();
        for (place, slot) in (0..=u8::MAX).zip(slots) {
            places.resize(places.len().max(slot.index() + 1), u8::MAX);
            places[slot.index()] = place;
        }
        Self { places: places.into(), ..self }
    }

    /// After the settings changed: calls that wait are in one line with those that waited at `old`, and calls
    /// that outlive their answers have one bound.
    #[must_use]
    pub fn succeeding(self, old: &Self) -> Self {
        Self {
            wait_queue: Arc::clone(&old.wait_queue),
            outliving: Arc::clone(&old.outliving),
            ..self
        }
    }

    fn place(&self, slot: Slot) -> usize {
        self.places.get(slot.index()).map_or(slot.index(), |place| usize::from(*place))
    }

    /// With the budget that all workers of the chain spend from.
    #[must_use]
    pub fn spending(self, retry_budget: Arc<RetryBudget>) -> Self {
        Self { retry_budget, ..self }
    }

    /// With the memory budget of all answers that the process holds.
    #[must_use]
    pub fn holding(self, answers: Arc<MemoryBudget>) -> Self {
        Self { answers, ..self }
    }

    /// With a bound on the large answers of each upstream that flow at a time, in the order
    /// of the roster. Each holds a connection for as long as its client takes.
    #[must_use]
    pub fn flowing(self, flows_max: impl IntoIterator<Item = usize>) -> Self {
        Self { flows: flows_max.into_iter().map(Flows::new).collect(), ..self }
    }

    /// With an inspector that checks all answers before they are used; by default there is none.
    #[must_use]
    pub fn inspecting(self, inspect: Option<Arc<dyn Inspect>>) -> Self {
        Self { inspect, ..self }
    }

    /// The transport of one upstream.
    pub fn transport(&self, slot: Slot) -> &dyn Transport {
        &*self.transports[self.place(slot)]
    }

    /// Lets calls of these methods go to `upstream` in one exchange, or says what holds them: our
    /// connections to it, or a bound of its own. Waiting for a connection is no part of an
    /// attempt: it would be blamed on an upstream that was not even asked, and while others hang
    /// on all connections the call could have gone elsewhere.
    pub(crate) fn try_admit<'a>(
        &self,
        upstream: &Arc<Upstream>,
        rows: impl Iterator<Item = &'a MethodRow> + Clone,
        bulky: bool,
        client: Option<ClientId>,
        now: Instant,
    ) -> Result<InFlight, LimitedBy> {
        let transport = self.transport(upstream.slot());
        if transport.has_room(bulky) {
            let client = client.map(|client| ClientHash(client.number()));
            return upstream.try_admit(rows, bulky, client, now);
        }
        let is_share = bulky && transport.has_room(false);
        let bound = if is_share { Bound::BulkyShare } else { Bound::Connections };
        Err(LimitedBy { bound, wait: CONNECTION_LOOK, pace: Duration::ZERO })
    }

    /// Where answers are counted while they are held.
    pub fn answers(&self) -> &Arc<MemoryBudget> {
        &self.answers
    }

    /// What inspects answers.
    pub(crate) fn inspect(&self) -> Option<&dyn Inspect> {
        self.inspect.as_deref()
    }

    /// What inspects answers, for an attempt that may outlive its call.
    pub(crate) fn shared_inspect(&self) -> Option<Arc<dyn Inspect>> {
        self.inspect.clone()
    }

    /// The transport of one upstream, to be kept.
    pub fn shared_transport(&self, slot: Slot) -> Arc<dyn Transport> {
        Arc::clone(&self.transports[self.place(slot)])
    }

    /// Large answers of one upstream on their way.
    pub(crate) fn flows(&self, slot: Slot) -> Option<&Flows> {
        self.flows.get(self.place(slot))
    }

    /// Searches in parts on their way.
    pub fn search_flows(&self) -> &Flows {
        &self.search_flows
    }

    /// Attempts that may outlive their call.
    pub(crate) fn outliving(&self) -> &Arc<Permits> {
        &self.outliving
    }

    /// Where calls wait for their turn.
    pub(crate) fn wait_queue(&self) -> &WaitQueue {
        &self.wait_queue
    }

    pub(crate) fn retry_budget(&self) -> &RetryBudget {
        &self.retry_budget
    }

    /// Uses its source of chance. Held for the moment of a plan or a draw only.
    pub fn with_rng<T>(&self, draw: impl FnOnce(&mut SmallRng) -> T) -> T {
        draw(&mut self.rng.lock())
    }
}
