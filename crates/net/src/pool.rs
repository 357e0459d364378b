//! Which connection an exchange takes: one pool per upstream and worker thread.
//!
//! HTTP/1.1 connections are taken by one exchange at a time, the last one given
//! back first, so that those not needed fall idle and close. HTTP/2 connections
//! are shared, one filled before the next. One task per pool sweeps what is unused,
//! and is woken when the peer of an idle connection closes it. An exchange that finds no room waits in
//! one queue and takes whatever comes first, a connection given back or a new
//! one; new ones are opened by tasks of their own, bounded in number, so that
//! an abandoned exchange does not throw away a handshake half done.
//!
//! Nothing here knows what is sent: see `http` for the exchange and its one retry.

mod lease;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout_at};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::connect::{Connected, Connector};
use crate::h1::H1Connection;
use crate::h2::H2Connection;
use crate::protocol::{CloseReason, Protocol};
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;
use crate::waiters::{QueueLength, Waiters};

use lease::Pooled;
pub(crate) use lease::{H1Lease, H2Lease};

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
    connector: Connector,
    settings: ClientSettings,
    stats: Arc<ConnectionStats>,
    state: Mutex<State>,
    queue_length: QueueLength,
    /// Exchanges whose answers are likely to be long, those that wait included.
    bulky: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// Last in, first out.
    idle: Vec<Pooled>,
    /// Alive, in use or not.
    h1_open: usize,
    h2: Vec<Arc<H2Connection>>,
    connecting: usize,
    waiters: Waiters<GrantResult>,
    sweeping: bool,
    /// Wakes the sweeper when the peer of an idle connection closes it.
    watcher: Option<Waker>,
    /// Set after a failed attempt.
    no_growth_before: Option<Instant>,
}

type GrantResult = Result<Grant, TransportError>;

impl State {
    fn new(waiters: Waiters<GrantResult>) -> Self {
        Self {
            idle: Vec::new(),
            h1_open: 0,
            h2: Vec::new(),
            connecting: 0,
            waiters,
            sweeping: false,
            watcher: None,
            no_growth_before: None,
        }
    }
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
    /// When it was granted.
    pub(crate) at: Instant,
}

/// One exchange whose answer is likely to be long.
#[derive(Debug)]
pub(crate) struct Bulky(Arc<Pool>);

impl Drop for Bulky {
    fn drop(&mut self) {
        self.0.bulky.fetch_sub(1, Relaxed);
    }
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

impl Lease {
    /// Counts the exchange as one with a long answer for as long as it has the connection.
    pub(crate) fn carries(&mut self, bulky: Option<Bulky>) {
        match self {
            Self::H1(lease) => lease.bulky = bulky,
            Self::H2(lease) => lease.bulky = bulky,
        }
    }
}

impl Pool {
    pub(crate) fn new(
        connector: Connector,
        settings: ClientSettings,
        stats: Arc<ConnectionStats>,
    ) -> Arc<Self> {
        let waiters = Waiters::new(settings.queue_max, Arc::clone(&stats));
        Arc::new(Self {
            connector,
            settings,
            stats,
            queue_length: waiters.length().clone(),
            state: Mutex::new(State::new(waiters)),
            bulky: AtomicUsize::new(0),
        })
    }

    /// Whether one more exchange would get a connection, or a place on one, without waiting for
    /// another exchange to end. Those whose answers are likely to be long have half of all
    /// places: they may hang for four times as long as others, and must not keep these out.
    pub(crate) fn has_room(&self, bulky: bool) -> bool {
        let (free, all) = {
            let state = self.state.lock();
            let (free, all) = match state.h2.is_empty() {
                true => {
                    let taken = state.h1_open - state.idle.len();
                    let all = self.settings.connections_max;
                    (all.saturating_sub(taken), all)
                }
                false => self.h2_places(&state),
            };
            (free.saturating_sub(state.waiters.len()), all)
        };
        free > 0 && (!bulky || self.bulky.load(Relaxed) < all - all / 2)
    }

    /// Streams that are free or that another connection may bring, and how many there may be.
    fn h2_places(&self, state: &State) -> (usize, usize) {
        let usable = state.h2.iter().filter(|connection| !connection.is_leaving());
        let free: usize = usable.map(|it| it.cap().saturating_sub(it.in_flight())).sum();
        let more = self.settings.h2_connections_max.saturating_sub(state.h2.len());
        let each = self.settings.h2_streams_max;
        (free + more * each, self.settings.h2_connections_max * each)
    }

    /// Counts an exchange whose answer is likely to be long, until what is returned is dropped.
    pub(crate) fn enter_bulky(self: &Arc<Self>) -> Bulky {
        self.bulky.fetch_add(1, Relaxed);
        Bulky(Arc::clone(self))
    }

    /// A connection for one exchange; waits for one if it must.
    ///
    /// Until `deadline` at the latest; dropping the future leaves the queue as well.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        choice: Choice<'_>,
        now: Instant,
        deadline: Instant,
    ) -> Result<Grant, TransportError> {
        let (mut waiting, connects) = {
            let mut state = self.state.lock();
            let (taken, grow) = self.take(&mut state, choice, now);
            if let Some(lease) = taken {
                let connects = if grow { self.plan_connects(&mut state, true, now) } else { 0 };
                drop(state);
                self.start_connects(connects);
                return Ok(Grant { lease, connect: Duration::ZERO, at: now });
            }
            if state.waiters.is_full() {
                let detail = format!("{} exchanges wait already", state.waiters.len());
                return Err(TransportError::new(TransportErrorKind::PoolFull, Sent::No, detail));
            }
            let ticket = state.waiters.join();
            let connects = self.plan_connects(&mut state, grow, now);
            (ticket.at(&self.state, |state| &mut state.waiters, &self.queue_length), connects)
        };
        self.start_connects(connects);
        let granted = match timeout_at(deadline, &mut waiting.granted).await {
            Ok(Ok(granted)) => granted?,
            Ok(Err(_)) => {
                let detail = "the pool was dropped";
                return Err(TransportError::new(TransportErrorKind::Closed, Sent::No, detail));
            }
            Err(_) => {
                let detail = "while waiting for a connection";
                return Err(TransportError::new(TransportErrorKind::Timeout, Sent::No, detail));
            }
        };
        Ok(Grant { at: Instant::now(), ..granted })
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
            let best = best(&state.h2, avoid);
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
                self.end_closed(state);
                // At the bound, room for a new connection comes from the longest unused one.
                if state.h1_open >= self.settings.connections_max && !state.idle.is_empty() {
                    let oldest = state.idle.remove(0);
                    oldest.end_idle(&mut state.h1_open, CloseReason::Replaced);
                }
                return None;
            }
        }
        while let Some(pooled) = state.idle.pop() {
            match self.expiry(&pooled.connection, now) {
                Some(reason) => pooled.end_idle(&mut state.h1_open, reason),
                None => return Some(Lease::H1(H1Lease::new(self, pooled))),
            }
        }
        None
    }

    /// Why an idle connection is not to be used any more, if so.
    fn expiry(&self, connection: &H1Connection, now: Instant) -> Option<CloseReason> {
        if now >= connection.retire_at {
            Some(CloseReason::Replaced)
        } else if now.saturating_duration_since(connection.idle_since) >= self.settings.idle {
            Some(CloseReason::Idle)
        } else {
            None
        }
    }

    /// Ends the idle connections whose peers have closed them; the sweeper is
    /// woken when another one does.
    fn end_closed(&self, state: &mut State) {
        let State { idle, h1_open, watcher, .. } = state;
        let mut cx = Context::from_waker(watcher.as_ref().unwrap_or(Waker::noop()));
        for closed in idle.extract_if(.., |p| p.connection.poll_ended(&mut cx).is_ready()) {
            closed.end_idle(h1_open, CloseReason::Peer);
        }
    }

    fn wants_more_h2(&self, state: &State, best: Option<&Arc<H2Connection>>, now: Instant) -> bool {
        let paused = state.no_growth_before.is_some_and(|until| now < until);
        if paused || state.connecting > 0 || state.h2.iter().any(|c| c.is_warming()) {
            return false;
        }
        let few = state.h2.len() < self.settings.h2_connections_min;
        let old = best.is_some_and(|c| c.is_worn(now));
        let busy = best.is_none_or(|c| is_busy(c));
        few || old || (busy && state.h2.len() < self.settings.h2_connections_max)
    }

    /// How many connections to open now; counts them as under way.
    fn plan_connects(&self, state: &mut State, grow: bool, now: Instant) -> usize {
        let waiting = state.waiters.len();
        let wanted = match self.connector.expected(now) {
            // The first connection tells what to do with the others.
            None => usize::from(state.connecting == 0 && (waiting > 0 || grow)),
            Some(Protocol::H2) => {
                // While one warms up, waiting calls will find room in it.
                let coming = state.connecting > 0 || state.h2.iter().any(|c| c.is_warming());
                let room = state.h2.len() < self.settings.h2_connections_max;
                usize::from(!coming && (grow || (waiting > 0 && room)))
            }
            // WebSocket is never what HTTP is found to speak.
            Some(Protocol::H1 | Protocol::Ws) => waiting
                .saturating_sub(state.connecting)
                .min(self.settings.connects_max.saturating_sub(state.connecting))
                .min(
                    self.settings.connections_max.saturating_sub(state.h1_open + state.connecting),
                ),
        };
        debug_assert!(state.idle.len() <= state.h1_open, "an idle connection counts as open");
        state.connecting += wanted;
        wanted
    }

    /// Must be called without the lock: a runtime that shuts down drops tasks at once.
    fn start_connects(self: &Arc<Self>, how_many: usize) {
        for _ in 0..how_many {
            let attempt =
                ConnectAttempt { pool: Arc::clone(self), started: Instant::now(), finished: false };
            spawn(async move {
                let admit = |fate| attempt.pool.admit_h2(fate);
                let result = attempt.pool.connector.connect(admit).await;
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
                    let member = self.admit_h1(&mut state);
                    let lease = Lease::H1(H1Lease::new(self, Pooled { connection, member }));
                    offer(&mut state, Grant { lease, connect: took, at: now })
                }
                Connected::H2(connection) => {
                    // Room for this one was made for those that are worn.
                    for old in state.h2.extract_if(.., |c| c.is_worn(now)) {
                        old.will_close(CloseReason::Replaced);
                    }
                    state.h2.push(connection);
                    self.serve_h2(&mut state, took, now)
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
        // failure. Otherwise all waiting calls fail, and can go to another upstream.
        let hope = state.connecting > 0 || state.h1_open > 0 || !state.h2.is_empty();
        let failing = if hope { 1 } else { state.waiters.len() };
        for _ in 0..failing {
            let Some(grant) = state.waiters.pop() else { break };
            let _ = grant.send(Err(error.clone()));
        }
    }

    /// Lets as many of the queue in as there is room; what is returned must be
    /// dropped without the lock.
    fn serve_h2(
        self: &Arc<Self>,
        state: &mut State,
        connect: Duration,
        now: Instant,
    ) -> Option<Grant> {
        while !state.waiters.is_empty() {
            let best = best(&state.h2, None)?;
            let lease = Lease::H2(H2Lease::new(self, best));
            if let Some(unwanted) = offer(state, Grant { lease, connect, at: now }) {
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
            let left = self.serve_h2(&mut state, Duration::ZERO, now);
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

    /// Takes a connection back that is fit for another exchange.
    fn give_back(self: &Arc<Self>, mut pooled: Pooled, now: Instant) {
        if now >= pooled.connection.retire_at {
            pooled.end(CloseReason::Replaced);
            return;
        }
        let mut state = self.state.lock();
        if state.waiters.is_empty() {
            let waker = state.watcher.as_ref().unwrap_or(Waker::noop());
            if pooled.connection.poll_ended(&mut Context::from_waker(waker)).is_ready() {
                // No call waits, so it is not replaced.
                pooled.end_idle(&mut state.h1_open, CloseReason::Peer);
            } else {
                state.idle.push(pooled);
            }
            return;
        }
        let lease = Lease::H1(H1Lease::new(self, pooled));
        if let Some(Grant { lease: Lease::H1(mut lease), .. }) =
            offer(&mut state, Grant { lease, connect: Duration::ZERO, at: now })
        {
            state.idle.extend(lease.pooled.take());
        }
    }

    fn plan_sweep(&self, state: &mut State) -> bool {
        !std::mem::replace(&mut state.sweeping, true)
    }

    fn start_sweeping(self: &Arc<Self>) {
        let me = Arc::downgrade(self);
        let period = self.sweep_period();
        // Unconstrained: with a budget, the connections looked at last would never
        // be watched where there are many.
        spawn(unconstrained(async move {
            let mut timer = pin!(sleep(period));
            poll_fn(|cx| {
                let Some(pool) = me.upgrade() else { return Poll::Ready(()) };
                if timer.as_mut().poll(cx).is_ready() {
                    let now = Instant::now();
                    if !pool.sweep(now) {
                        return Poll::Ready(());
                    }
                    timer.as_mut().reset(now + pool.sweep_period());
                    // Registers for the next period.
                    if timer.as_mut().poll(cx).is_ready() {
                        cx.waker().wake_by_ref();
                    }
                }
                pool.watch(cx.waker());
                Poll::Pending
            })
            .await;
        }));
    }

    /// What was learnt may ask for shorter ones.
    fn sweep_period(&self) -> Duration {
        let idle = self.settings.idle.min(self.stats.caps.idle());
        (idle / SWEEPS_PER_IDLE).max(Duration::from_millis(1))
    }

    /// Ends idle connections whose peers have left; `waker` is woken when one does.
    fn watch(&self, waker: &Waker) {
        let mut state = self.state.lock();
        if !state.watcher.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.watcher = Some(waker.clone());
        }
        self.end_closed(&mut state);
    }

    /// Closes what is unused for too long or too old; `false` when nothing is left to watch.
    fn sweep(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let State { idle, h1_open, .. } = &mut *state;
        for unused in idle.extract_if(.., |p| self.expiry(&p.connection, now).is_some()) {
            let reason = self.expiry(&unused.connection, now).unwrap_or(CloseReason::Idle);
            unused.end_idle(h1_open, reason);
        }
        self.stats.caps.refresh(now);
        // A sweep late at the most when the peer does not mind, and early when it does:
        // the last use was up to a sweep before it was seen.
        let bound =
            self.settings.idle.min(self.stats.caps.idle().saturating_sub(2 * self.sweep_period()));
        for unused in state.h2.extract_if(.., |c| {
            let quiet = now.saturating_duration_since(c.quiet_since(now));
            !quiet.is_zero() && (c.is_worn(now) || quiet >= bound || c.is_leaving())
        }) {
            let old = unused.is_worn(now);
            unused.will_close(if old { CloseReason::Replaced } else { CloseReason::Idle });
        }
        state.sweeping = state.h1_open > 0 || !state.h2.is_empty() || state.connecting > 0;
        state.sweeping
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for pooled in state.idle.drain(..) {
            pooled.end_idle(&mut state.h1_open, CloseReason::Shutdown);
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

/// Whether one more exchange would leave little room for others.
fn is_busy(connection: &H2Connection) -> bool {
    (connection.in_flight() + 1) * 100 > connection.cap() * BUSY_PERCENT
}

/// The fullest connection that is not busy, or else the emptiest one with room.
///
/// What shares a connection is written and read together: few that are well
/// filled cost less than many, and those not needed fall idle and close.
fn best<'a>(
    connections: &'a [Arc<H2Connection>],
    avoid: Option<&Arc<H2Connection>>,
) -> Option<&'a Arc<H2Connection>> {
    let usable = || {
        let others =
            connections.iter().filter(|c| avoid.is_none_or(|avoid| !Arc::ptr_eq(avoid, c)));
        others.filter(|c| !c.is_leaving() && c.in_flight() < c.cap())
    };
    let filling = usable().filter(|c| !is_busy(c)).max_by_key(|c| c.in_flight());
    filling.or_else(|| usable().min_by_key(|c| c.in_flight()))
}

/// Hands `grant` to the first call in the queue; returns it if the queue is empty.
fn offer(state: &mut State, mut grant: Grant) -> Option<Grant> {
    while let Some(waiting) = state.waiters.pop() {
        match waiting.send(Ok(grant)) {
            Ok(()) => return None,
            Err(Ok(back)) => grant = back,
            Err(Err(_)) => return None,
        }
    }
    Some(grant)
}

/// A connection attempt under way; counts as failed when it is dropped unfinished.
struct ConnectAttempt {
    pool: Arc<Pool>,
    started: Instant,
    finished: bool,
}

impl ConnectAttempt {
    fn finish(mut self, result: Result<Connected, TransportError>) {
        self.finished = true;
        let now = Instant::now();
        match result {
            Ok(connection) => self.pool.connected(connection, now - self.started, now),
            Err(error) => self.pool.connect_failed(&error, now),
        }
    }
}

impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        if !self.finished {
            let detail = "the worker is stopping";
            let error = TransportError::new(TransportErrorKind::Connect, Sent::No, detail);
            self.pool.connect_failed(&error, self.started);
        }
    }
}
