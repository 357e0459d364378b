//! Which connection an exchange takes: one pool per upstream and worker thread.
//!
//! HTTP/1.1 connections are taken by one exchange at a time, the last one given
//! back first, so that those not needed fall idle and close. HTTP/2 connections
//! are shared, the least loaded first. An exchange that finds no room waits in
//! one queue and takes whatever comes first, a connection given back or a new
//! one; new ones are opened by tasks of their own, bounded in number, so that
//! an abandoned exchange does not throw away a handshake half done.
//!
//! Nothing here knows what is sent: see `http` for the exchange and its one retry.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::connect::{Connected, Connector, Registry};
use crate::h1::{Fate, H1Connection};
use crate::h2::{H2Connection, Observer};
use crate::settings::ClientSettings;
use crate::stats::{CloseReason, ConnectionStats, Protocol};

/// How long a connection may take to become ready again after its answer was
/// complete. A peer that answered early and never reads the rest of the request
/// would otherwise keep it for ever (hyper issue 4176).
const SETTLE_MAX: Duration = Duration::from_secs(2);
/// After a failed attempt, nothing is opened for this long just to have more.
/// Without it each exchange on an old connection would knock at a closed door.
const GROW_PAUSE: Duration = Duration::from_secs(1);
/// Sweeps within one idle period.
const SWEEPS_PER_IDLE: u32 = 8;
/// Share of an HTTP/2 connection's streams in flight from which another one is opened.
const BUSY_PERCENT: usize = 80;

/// The connections of one upstream within one worker.
#[derive(Debug)]
pub(crate) struct Pool {
    me: Weak<Self>,
    connector: Connector,
    settings: ClientSettings,
    stats: Arc<ConnectionStats>,
    state: Mutex<State>,
    /// Length of the queue, readable without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// Last in, first out.
    idle: Vec<H1Connection>,
    /// Alive, in use or not.
    h1_open: usize,
    h2: Vec<Arc<H2Connection>>,
    connecting: usize,
    waiters: VecDeque<Waiter>,
    next_waiter: u64,
    sweeping: bool,
    /// Set after a failed attempt.
    no_growth_before: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    grant: oneshot::Sender<Result<Grant, TransportError>>,
}

/// A connection, for one exchange.
#[derive(Debug)]
pub(crate) enum Lease {
    H1(H1Lease),
    H2(H2Lease),
}

/// A lease and how it came about.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) lease: Lease,
    /// How long opening the connection took; zero when it was open already.
    pub(crate) connect: Duration,
}

/// Which connections an exchange will take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice<'a> {
    /// Any.
    Any,
    /// None that lies idle: the last one did, and was dead.
    NotIdle,
    /// Not this one: it refused the exchange.
    NotThis(&'a Arc<H2Connection>),
}

impl Pool {
    pub(crate) fn new(
        connector: Connector,
        settings: ClientSettings,
        stats: Arc<ConnectionStats>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            connector,
            settings,
            stats,
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// A connection for one exchange; waits for one if it must.
    ///
    /// Unbounded in time: the caller drops the future at its deadline, which
    /// takes it out of the queue.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        choice: Choice<'_>,
        now: Instant,
    ) -> Result<Grant, TransportError> {
        let (mut waiting, connects) = {
            let mut state = self.state.lock();
            let (taken, grow) = self.take(&mut state, choice, now);
            if let Some(lease) = taken {
                let connects = if grow { self.plan_connects(&mut state, true, now) } else { 0 };
                drop(state);
                self.start_connects(connects);
                return Ok(Grant { lease, connect: Duration::ZERO });
            }
            if state.waiters.len() >= self.settings.queue_max {
                let detail = format!("{} exchanges wait already", state.waiters.len());
                return Err(TransportError::new(TransportErrorKind::PoolFull, Sent::No, detail));
            }
            let (grant, granted) = oneshot::channel();
            let id = state.next_waiter;
            state.next_waiter += 1;
            state.waiters.push_back(Waiter { id, grant });
            self.note_queue(&state);
            self.stats.note_waiting();
            let connects = self.plan_connects(&mut state, grow, now);
            (Waiting { pool: self, id, granted }, connects)
        };
        self.start_connects(connects);
        (&mut waiting.granted).await.unwrap_or_else(|_| {
            Err(TransportError::new(TransportErrorKind::Closed, Sent::No, "the pool was dropped"))
        })
    }

    /// The best connection that has room, and whether another one should be opened.
    fn take(
        self: &Arc<Self>,
        state: &mut State,
        choice: Choice<'_>,
        now: Instant,
    ) -> (Option<Lease>, bool) {
        if !state.h2.is_empty() {
            let avoid = match choice {
                Choice::NotThis(refused) => Some(refused),
                Choice::Any | Choice::NotIdle => None,
            };
            let best = least_loaded(&state.h2, avoid);
            let grow = self.wants_more_h2(state, best, now);
            if let Some(best) = best {
                let lease = H2Lease::new(self, best);
                return (Some(Lease::H2(lease)), grow);
            }
            // Room elsewhere must be made, whatever the load says.
            if avoid.is_some() || grow {
                return (self.take_h1(state, choice, now), true);
            }
        }
        (self.take_h1(state, choice, now), false)
    }

    fn take_h1(
        self: &Arc<Self>,
        state: &mut State,
        choice: Choice<'_>,
        now: Instant,
    ) -> Option<Lease> {
        match choice {
            Choice::Any | Choice::NotThis(_) => {}
            Choice::NotIdle => {
                state.idle.retain(|connection| !connection.is_closed());
                // At the bound, room for a new connection comes from the longest unused one.
                if state.h1_open >= self.settings.connections_max && !state.idle.is_empty() {
                    state.idle.remove(0).close(CloseReason::Replaced);
                }
                return None;
            }
        }
        while let Some(connection) = state.idle.pop() {
            if connection.is_closed() {
                continue;
            }
            if now >= connection.retire_at {
                connection.close(CloseReason::Replaced);
            } else if now.saturating_duration_since(connection.idle_since) >= self.settings.idle {
                connection.close(CloseReason::Idle);
            } else {
                return Some(Lease::H1(H1Lease::new(self, connection)));
            }
        }
        None
    }

    fn wants_more_h2(&self, state: &State, best: Option<&Arc<H2Connection>>, now: Instant) -> bool {
        let paused = state.no_growth_before.is_some_and(|until| now < until);
        if paused || state.connecting > 0 || state.h2.iter().any(|c| c.is_warming()) {
            return false;
        }
        let few = state.h2.len() < self.settings.h2_connections_min;
        let old = best.is_some_and(|c| now >= c.retire_at);
        let busy = best.is_none_or(|c| (c.in_flight() + 1) * 100 > c.cap() * BUSY_PERCENT);
        few || old || (busy && state.h2.len() < self.settings.h2_connections_max)
    }

    /// How many connections to open now; counts them as under way.
    fn plan_connects(&self, state: &mut State, grow: bool, now: Instant) -> usize {
        let waiting = state.waiters.len();
        let wanted = match self.connector.expected(now) {
            // The first connection tells what to do with the others.
            None => usize::from(state.connecting == 0 && (waiting > 0 || grow)),
            Some(Protocol::H2) => {
                // While one warms up, those who wait will find room in it.
                let coming = state.connecting > 0 || state.h2.iter().any(|c| c.is_warming());
                let room = state.h2.len() < self.settings.h2_connections_max;
                usize::from(!coming && (grow || (waiting > 0 && room)))
            }
            Some(Protocol::H1) => waiting
                .saturating_sub(state.connecting)
                .min(self.settings.connects_max.saturating_sub(state.connecting))
                .min(
                    self.settings.connections_max.saturating_sub(state.h1_open + state.connecting),
                ),
        };
        state.connecting += wanted;
        wanted
    }

    /// Must be called without the lock: a runtime that shuts down drops tasks at once.
    fn start_connects(self: &Arc<Self>, how_many: usize) {
        for _ in 0..how_many {
            let attempt =
                Attempt { pool: Arc::clone(self), started: Instant::now(), finished: false };
            spawn(async move {
                let result = attempt.pool.connector.connect(&*attempt.pool).await;
                attempt.finish(result);
            });
        }
    }

    fn connected(self: &Arc<Self>, connection: Connected, took: Duration, now: Instant) {
        if let Connected::H2(connection) = &connection
            && connection.is_leaving()
        {
            // Counted as a failure, or a peer that always does this would be asked for ever.
            let detail = "the peer left at once";
            let error = TransportError::new(TransportErrorKind::Connect, Sent::No, detail);
            return self.connect_failed(&error, now);
        }
        let (connects, sweep, left) = {
            let mut state = self.state.lock();
            state.connecting -= 1;
            let left = match connection {
                Connected::H1(connection) => {
                    let lease = Lease::H1(H1Lease::new(self, connection));
                    self.offer(&mut state, Grant { lease, connect: took })
                }
                Connected::H2(connection) => {
                    // Room for this one was made for those that are too old.
                    for old in state.h2.extract_if(.., |c| now >= c.retire_at) {
                        old.will_close(CloseReason::Replaced);
                    }
                    state.h2.push(connection);
                    self.serve_h2(&mut state, took)
                }
            };
            let connects = self.plan_connects(&mut state, false, now);
            (connects, self.plan_sweep(&mut state), left)
        };
        // Outside the lock: dropping a lease gives the connection back.
        drop(left);
        self.start_connects(connects);
        if sweep {
            self.start_sweeping();
        }
    }

    fn connect_failed(&self, error: &TransportError, now: Instant) {
        let mut state = self.state.lock();
        state.connecting -= 1;
        state.no_growth_before = Some(now + GROW_PAUSE);
        // While something is alive or on its way, only one exchange pays for one
        // failure. Otherwise nobody can hope, and whoever waits should go elsewhere.
        let hope = state.connecting > 0 || state.h1_open > 0 || !state.h2.is_empty();
        let failing = if hope { 1 } else { state.waiters.len() };
        for _ in 0..failing {
            let Some(waiter) = self.next_waiter(&mut state) else { break };
            let _ = waiter.grant.send(Err(error.clone()));
        }
    }

    fn next_waiter(&self, state: &mut State) -> Option<Waiter> {
        let waiter = state.waiters.pop_front()?;
        self.note_queue(state);
        self.stats.note_waited(1);
        Some(waiter)
    }

    fn note_queue(&self, state: &State) {
        self.waiting.store(state.waiters.len(), Relaxed);
    }

    /// Hands `grant` to the first in the queue; returns it when nobody waits.
    fn offer(&self, state: &mut State, mut grant: Grant) -> Option<Grant> {
        while let Some(waiter) = self.next_waiter(state) {
            match waiter.grant.send(Ok(grant)) {
                Ok(()) => return None,
                Err(Ok(back)) => grant = back,
                Err(Err(_)) => return None,
            }
        }
        Some(grant)
    }

    /// Lets as many of the queue in as there is room; what is returned must be
    /// dropped without the lock.
    fn serve_h2(self: &Arc<Self>, state: &mut State, connect: Duration) -> Option<Grant> {
        while !state.waiters.is_empty() {
            let best = least_loaded(&state.h2, None)?;
            let lease = Lease::H2(H2Lease::new(self, best));
            if let Some(unwanted) = self.offer(state, Grant { lease, connect }) {
                return Some(unwanted);
            }
        }
        None
    }

    /// Room or usability of an HTTP/2 connection changed.
    fn h2_changed(self: &Arc<Self>) {
        let now = Instant::now();
        let (left, connects) = {
            let mut state = self.state.lock();
            state.h2.retain(|connection| !connection.is_leaving());
            let left = self.serve_h2(&mut state, Duration::ZERO);
            (left, self.plan_connects(&mut state, false, now))
        };
        drop(left);
        self.start_connects(connects);
    }

    fn h1_ended(self: &Arc<Self>) {
        let now = Instant::now();
        let connects = {
            let mut state = self.state.lock();
            state.h1_open -= 1;
            self.plan_connects(&mut state, false, now)
        };
        self.start_connects(connects);
    }

    /// Takes a connection back after a complete exchange.
    fn give_back(self: &Arc<Self>, mut connection: H1Connection, now: Instant) {
        if connection.is_closed() {
            connection.close(CloseReason::Replaced);
            return;
        }
        if !connection.is_ready() {
            let pool = Arc::clone(self);
            spawn(async move {
                match timeout(SETTLE_MAX, connection.becomes_ready()).await {
                    Ok(true) => pool.give_back_ready(connection, Instant::now()),
                    Ok(false) => connection.close(CloseReason::Replaced),
                    Err(_) => connection.abort(CloseReason::Stuck),
                }
            });
            return;
        }
        self.give_back_ready(connection, now);
    }

    fn give_back_ready(self: &Arc<Self>, mut connection: H1Connection, now: Instant) {
        if now >= connection.retire_at {
            connection.close(CloseReason::Replaced);
            return;
        }
        connection.idle_since = now;
        let mut state = self.state.lock();
        if state.waiters.is_empty() {
            state.idle.push(connection);
            return;
        }
        let lease = Lease::H1(H1Lease::new(self, connection));
        if let Some(Grant { lease: Lease::H1(mut lease), .. }) =
            self.offer(&mut state, Grant { lease, connect: Duration::ZERO })
        {
            state.idle.extend(lease.connection.take());
        }
    }

    fn plan_sweep(&self, state: &mut State) -> bool {
        !std::mem::replace(&mut state.sweeping, true)
    }

    fn start_sweeping(&self) {
        let me = Weak::clone(&self.me);
        let period = (self.settings.idle / SWEEPS_PER_IDLE).max(Duration::from_millis(1));
        spawn(async move {
            loop {
                sleep(period).await;
                let Some(pool) = me.upgrade() else { break };
                if !pool.sweep(Instant::now()) {
                    break;
                }
            }
        });
    }

    /// Closes what is unused for too long or too old; `false` when nothing is left to watch.
    fn sweep(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        for unused in state.idle.extract_if(.., |c| {
            c.is_closed()
                || now >= c.retire_at
                || now.saturating_duration_since(c.idle_since) >= self.settings.idle
        }) {
            let old = now >= unused.retire_at;
            unused.close(if old { CloseReason::Replaced } else { CloseReason::Idle });
        }
        for unused in state.h2.extract_if(.., |c| {
            if c.was_used() {
                c.quiet_sweeps.store(0, Relaxed);
                return false;
            }
            let quiet = c.quiet_sweeps.fetch_add(1, Relaxed) + 1;
            now >= c.retire_at || quiet >= SWEEPS_PER_IDLE as usize || c.is_leaving()
        }) {
            let old = now >= unused.retire_at;
            unused.will_close(if old { CloseReason::Replaced } else { CloseReason::Idle });
        }
        state.sweeping = state.h1_open > 0 || !state.h2.is_empty() || state.connecting > 0;
        state.sweeping
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for connection in state.idle.drain(..) {
            connection.close(CloseReason::Shutdown);
        }
        for connection in state.h2.drain(..) {
            connection.will_close(CloseReason::Shutdown);
        }
    }
}

/// Runs `task` aside; drops it when the runtime is gone, as happens when a worker
/// ends with connections open.
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(task);
    }
}

/// The connection with room that has the fewest exchanges in flight.
fn least_loaded<'a>(
    connections: &'a [Arc<H2Connection>],
    avoid: Option<&Arc<H2Connection>>,
) -> Option<&'a Arc<H2Connection>> {
    connections
        .iter()
        .filter(|c| avoid.is_none_or(|avoid| !Arc::ptr_eq(avoid, c)))
        .filter(|c| !c.is_leaving() && c.in_flight() < c.cap())
        .min_by_key(|c| c.in_flight())
}

/// A place in the queue, left when dropped.
struct Waiting<'a> {
    pool: &'a Arc<Pool>,
    id: u64,
    granted: oneshot::Receiver<Result<Grant, TransportError>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.pool.waiting.load(Relaxed) == 0 {
            return;
        }
        let mut state = self.pool.state.lock();
        if let Ok(at) = state.waiters.binary_search_by_key(&self.id, |waiter| waiter.id) {
            state.waiters.remove(at);
            self.pool.note_queue(&state);
            self.pool.stats.note_waited(1);
        }
    }
}

/// A connection attempt under way; counts as failed when it is dropped unfinished.
struct Attempt {
    pool: Arc<Pool>,
    started: Instant,
    finished: bool,
}

impl Attempt {
    fn finish(mut self, result: Result<Connected, TransportError>) {
        self.finished = true;
        let now = Instant::now();
        match result {
            Ok(connection) => self.pool.connected(connection, now - self.started, now),
            Err(error) => self.pool.connect_failed(&error, now),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.finished {
            let detail = "the worker is stopping";
            let error = TransportError::new(TransportErrorKind::Connect, Sent::No, detail);
            self.pool.connect_failed(&error, self.started);
        }
    }
}

/// Counts one HTTP/1.1 connection while its task lives.
pub(crate) struct H1Member {
    pool: Weak<Pool>,
    stats: Arc<ConnectionStats>,
    fate: Fate,
}

impl Drop for H1Member {
    fn drop(&mut self) {
        self.stats.note_closed(Protocol::H1, self.fate.get());
        if let Some(pool) = self.pool.upgrade() {
            pool.h1_ended();
        }
    }
}

/// Counts one HTTP/2 connection while its task lives.
pub(crate) struct H2Member {
    pool: Weak<Pool>,
    stats: Arc<ConnectionStats>,
    fate: Fate,
}

impl Observer for H2Member {
    fn changed(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.h2_changed();
        }
    }
}

impl Drop for H2Member {
    fn drop(&mut self) {
        self.stats.note_closed(Protocol::H2, self.fate.get());
        self.changed();
    }
}

impl Registry for Pool {
    type H1Member = H1Member;
    type H2Member = H2Member;

    fn admit_h1(&self, fate: Fate) -> H1Member {
        self.stats.note_opened(Protocol::H1);
        self.state.lock().h1_open += 1;
        H1Member { pool: Weak::clone(&self.me), stats: Arc::clone(&self.stats), fate }
    }

    fn admit_h2(&self, fate: Fate) -> H2Member {
        self.stats.note_opened(Protocol::H2);
        H2Member { pool: Weak::clone(&self.me), stats: Arc::clone(&self.stats), fate }
    }
}

/// An HTTP/1.1 connection for one exchange.
///
/// Dropped before it was used, it goes back; dropped during use, it is ended,
/// so that a late answer can reach nobody.
#[derive(Debug)]
pub(crate) struct H1Lease {
    pool: Arc<Pool>,
    connection: Option<H1Connection>,
    used: bool,
}

impl H1Lease {
    fn new(pool: &Arc<Pool>, connection: H1Connection) -> Self {
        Self { pool: Arc::clone(pool), connection: Some(connection), used: false }
    }

    /// The connection, for use.
    pub(crate) fn connection(&mut self) -> &mut H1Connection {
        self.used = true;
        self.connection.as_mut().expect("taken only by those who consume the lease")
    }

    /// Gives the connection back after a complete exchange.
    pub(crate) fn finish(mut self, now: Instant) {
        if let Some(mut connection) = self.connection.take() {
            connection.reused = true;
            self.pool.give_back(connection, now);
        }
    }

    /// Ends the connection.
    pub(crate) fn discard(mut self, reason: CloseReason) {
        if let Some(connection) = self.connection.take() {
            connection.abort(reason);
        }
    }
}

impl Drop for H1Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.used {
            connection.abort(CloseReason::Abandoned);
        } else {
            self.pool.give_back(connection, Instant::now());
        }
    }
}

/// A place on an HTTP/2 connection for one exchange, given back when dropped.
#[derive(Debug)]
pub(crate) struct H2Lease {
    pool: Arc<Pool>,
    connection: Arc<H2Connection>,
}

impl H2Lease {
    fn new(pool: &Arc<Pool>, connection: &Arc<H2Connection>) -> Self {
        connection.enter();
        Self { pool: Arc::clone(pool), connection: Arc::clone(connection) }
    }

    pub(crate) fn connection(&self) -> &Arc<H2Connection> {
        &self.connection
    }
}

impl Drop for H2Lease {
    fn drop(&mut self) {
        self.connection.leave();
        if self.pool.waiting.load(Relaxed) > 0 {
            self.pool.h2_changed();
        }
    }
}
