//! Which large answers may flow to their clients, and which gives way when all places are taken.
//!
//! An answer that flows keeps a connection to its upstream for as long as its client takes to read
//! it, so at most [`Flows::new`]'s number of them flow from one upstream at a time, in each worker.
//! A client that reads slowly would keep a place for itself, and one that opens many connections
//! all of them. So when all places are taken, a further answer is given the place of one that has
//! waited for its client for [`STALLED_MIN`], if that client holds more places than the newcomer's;
//! of the client that holds most, the one that has waited longest. Its client finds the answer cut,
//! as HTTP shows. Where no answer has to give way the further one is read whole.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_transport::Rest;
use wellhead_upstream::{FlowShare, Upstream};

use crate::client_id::ClientId;
use crate::flow_account::FlowAccount;

/// An answer whose client took no piece for this long may have to give way.
const STALLED_MIN: Duration = Duration::from_secs(2);

/// What waits for a client, or has to be read from the upstream.
pub(crate) struct Parked {
    pub(crate) rest: Box<dyn Rest>,
    /// `None` once it was settled.
    pub(crate) account: Option<FlowAccount>,
    /// When the client was handed the piece before.
    pub(crate) since: Instant,
}

/// One large answer on its way.
struct Flow {
    client: ClientId,
    /// `None` while it is read from the upstream, and for good once it gave way.
    parked: Mutex<Option<Parked>>,
}

impl Flow {
    /// How long it has waited for its client, if that is long.
    fn stalled_for(&self, now: Instant) -> Option<Duration> {
        let parked = self.parked.lock();
        let waited = now.saturating_duration_since(parked.as_ref()?.since);
        (waited >= STALLED_MIN).then_some(waited)
    }
}

type FlowTable = Mutex<Vec<Arc<Flow>>>;

/// Places for large answers on their way to clients.
pub struct Flows {
    max: usize,
    table: Arc<FlowTable>,
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("max", &self.max).finish_non_exhaustive()
    }
}

impl Flows {
    /// At most `max` at a time.
    pub fn new(max: usize) -> Self {
        Self { max, table: Arc::default() }
    }

    /// A place for an answer to `client`; `None` when all are taken and none has to give way.
    pub fn enter(&self, client: ClientId, now: Instant) -> Option<FlowPlace> {
        let flow = Arc::new(Flow { client, parked: Mutex::new(None) });
        // Ended after the lock: that closes its connection.
        let mut given_way = None;
        {
            let mut flows = self.table.lock();
            if flows.len() >= self.max {
                let place = gives_way(&flows, client, now)?;
                let loser = flows.swap_remove(place);
                given_way = loser.parked.lock().take();
            }
            flows.push(Arc::clone(&flow));
        }
        drop(given_way);
        Some(FlowPlace { table: Arc::clone(&self.table), flow })
    }
}

/// Which of these gives way to an answer for `client`.
fn gives_way(flows: &[Arc<Flow>], client: ClientId, now: Instant) -> Option<usize> {
    let held = |client: ClientId| flows.iter().filter(|it| it.client == client).count();
    let ours = held(client);
    let stalled = flows.iter().enumerate().filter_map(|(place, flow)| {
        let waited = flow.stalled_for(now)?;
        let theirs = held(flow.client);
        (theirs > ours + 1).then_some((theirs, waited, Reverse(place)))
    });
    stalled.max().map(|(_, _, Reverse(place))| place)
}

/// The place of one answer, free when dropped.
pub struct FlowPlace {
    table: Arc<FlowTable>,
    flow: Arc<Flow>,
}

impl fmt::Debug for FlowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowPlace").field("client", &self.flow.client).finish_non_exhaustive()
    }
}

impl FlowPlace {
    /// Leaves the answer here while its client takes what it was handed.
    pub(crate) fn park(&self, mut parked: Parked) {
        if let Some(account) = &mut parked.account {
            account.park();
        }
        *self.flow.parked.lock() = Some(parked);
    }

    /// Takes the answer up again; `None` when it had to give way.
    pub(crate) fn resume(&self) -> Option<Parked> {
        let mut parked = self.flow.parked.lock().take()?;
        if let Some(account) = &mut parked.account {
            account.resume();
        }
        Some(parked)
    }
}

impl Drop for FlowPlace {
    fn drop(&mut self) {
        self.table.lock().retain(|it| !Arc::ptr_eq(it, &self.flow));
    }
}

/// What an answer that flows holds.
#[derive(Debug)]
pub(crate) struct FlowPermit {
    /// In this worker.
    pub(crate) place: FlowPlace,
    /// At its upstream.
    pub(crate) share: FlowShare,
}

/// Where an answer may flow from, and to which client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MayFlow<'a> {
    pub(crate) flows: &'a Flows,
    pub(crate) upstream: &'a Arc<Upstream>,
    pub(crate) client: ClientId,
}

impl MayFlow<'_> {
    pub(crate) fn enter(&self, now: Instant) -> Option<FlowPermit> {
        let share = FlowShare::begin(self.upstream)?;
        let place = self.flows.enter(self.client, now)?;
        Some(FlowPermit { place, share })
    }
}

#[cfg(test)]
mod tests {
    use wellhead_transport::Pieces;

    use super::*;

    const ONE: ClientId = ClientId::V6(1);
    const OTHER: ClientId = ClientId::V6(2);

    fn park(place: &FlowPlace, since: Instant) {
        let rest = Box::new(Pieces::default());
        place.park(Parked { rest, account: None, since });
    }

    /// Plays `1 1 2` (a place for a client, whose answer then waits for it) with one second
    /// between steps; a place is refused where `x` follows.
    #[track_caller]
    fn check(max: usize, script: &str, given_way: &[usize]) {
        let flows = Flows::new(max);
        let mut now = crate::now();
        let mut places = Vec::new();
        for step in script.split_whitespace() {
            let (client, is_refused) = match step.strip_suffix('x') {
                Some(client) => (client, true),
                None => (step, false),
            };
            let client = ClientId::V6(client.parse().expect("a client"));
            let place = flows.enter(client, now);
            assert_eq!(place.is_none(), is_refused, "{script} at {step}");
            if let Some(place) = place {
                park(&place, now);
                places.push(place);
            }
            now += Duration::from_secs(1);
        }
        let gone = |place: &FlowPlace| place.resume().is_none();
        let gone: Vec<usize> =
            places.iter().enumerate().filter(|(_, it)| gone(it)).map(|(place, _)| place).collect();
        assert_eq!(gone, given_way, "{script}");
    }

    #[test]
    fn the_client_with_most_gives_way_and_of_its_answers_the_one_that_waits_longest() {
        check(4, "1 1 1 1 2", &[0]);
        check(4, "1 1 1 1 2 2", &[0, 1]);
        check(5, "3 1 1 1 1 2", &[1]);
        // No more than half goes to the second client.
        check(4, "1 1 1 1 2 2 2x 2x", &[0, 1]);
        check(4, "1 1 1 1 1x", &[]);
        check(0, "1x", &[]);
    }

    #[test]
    fn a_place_is_free_when_its_answer_ends_or_is_dropped() {
        let flows = Flows::new(2);
        let now = crate::now();
        let (first, second) = (flows.enter(ONE, now), flows.enter(ONE, now));
        assert!(first.is_some() && second.is_some() && flows.enter(OTHER, now).is_none());
        drop(first);
        assert!(flows.enter(OTHER, now).is_some());
    }

    #[test]
    fn one_that_is_read_does_not_give_way() {
        let flows = Flows::new(3);
        let now = crate::now();
        let places: Vec<_> = (0..3).filter_map(|_| flows.enter(ONE, now)).collect();
        let later = now + STALLED_MIN * 10;
        assert!(flows.enter(OTHER, later).is_none());
        park(&places[1], now);
        assert!(flows.enter(OTHER, later).is_some());
        assert!(places[1].resume().is_none());
    }
}
