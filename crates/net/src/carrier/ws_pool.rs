//! Which WebSocket connection a call gets on: a few per upstream and worker thread, one
//! filled before the next.
//!
//! A call that finds no room waits in one bounded queue. Connections are opened by tasks of
//! their own, one at a time and only when a call asks for one; after a failure not before a
//! pause that doubles. Until then, and while the next attempt is under way, calls are told
//! that there is no way here ([`Refused::Down`]), and go another one.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use super::socket::{Socket, WsStream};
use crate::connect::Jitter;
use crate::settings::ClientSettings;
use crate::stats::ConnectionStats;
use crate::waiters::{QueueLength, Waiters};
use crate::ws::WsClient;

/// Read at a time: the answers of a burst.
const READ_BUFFER: usize = 32 << 10;
/// Messages are gathered up to this size before they are written. One that waits for a
/// peer that reads slowly stays with its call.
const WRITE_BUFFER: usize = 64 << 10;
/// Share of a connection's room taken from which another one is opened.
const BUSY_PERCENT: usize = 80;
/// The pause after a first failure; doubles.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And its bound. Meanwhile calls go by HTTP, so that nothing waits for its end.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The WebSocket connections to one upstream within one worker.
#[derive(Debug)]
pub(super) struct WsPool {
    client: WsClient,
    settings: ClientSettings,
    stats: Arc<ConnectionStats>,
    state: Mutex<State>,
    queue_length: QueueLength,
}

#[derive(Debug)]
struct State {
    sockets: Vec<Arc<Socket>>,
    connecting: bool,
    waiters: Waiters<PermitResult>,
    /// Connections that could not be opened, or were of no use, one after the other.
    failures: u32,
    /// None is opened before.
    retry_at: Option<Instant>,
    jitter: Jitter,
}

type PermitResult = Result<SocketPermit, Refused>;

/// Why a call got on no connection.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is none, and none can be opened now.
    Down,
    /// No room came in time, or too many wait for it.
    Full(TransportError),
}

/// A place on a connection for one call, given back when dropped.
#[derive(Debug)]
pub(super) struct SocketPermit {
    pool: Arc<WsPool>,
    socket: Arc<Socket>,
}

impl SocketPermit {
    fn new(pool: &Arc<WsPool>, socket: &Arc<Socket>) -> Self {
        socket.enter();
        Self { pool: Arc::clone(pool), socket: Arc::clone(socket) }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Drop for SocketPermit {
    fn drop(&mut self) {
        self.socket.leave();
        if !self.pool.queue_length.is_zero() {
            self.pool.changed();
        }
    }
}

impl WsPool {
    pub(super) fn new(
        client: WsClient,
        settings: ClientSettings,
        stats: Arc<ConnectionStats>,
        seed: u64,
    ) -> Arc<Self> {
        let waiters = Waiters::new(settings.queue_max, Arc::clone(&stats));
        Arc::new(Self {
            client,
            settings,
            stats,
            queue_length: waiters.length().clone(),
            state: Mutex::new(State::new(waiters, seed)),
        })
    }

    /// A place for one call; waits for one if it must, until `deadline` at the latest.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        now: Instant,
        deadline: Instant,
    ) -> Result<SocketPermit, Refused> {
        let mut waiting = {
            let mut state = self.state.lock();
            let found = best(&state.sockets).map(|best| SocketPermit::new(self, best));
            let connect = state.wants_one(self.settings.ws_connections_max, now);
            state.connecting |= connect;
            if found.is_some() || state.is_down() {
                drop(state);
                self.connect_if(connect);
                return found.ok_or(Refused::Down);
            }
            if state.waiters.is_full() {
                let detail = format!("{} calls wait already", state.waiters.len());
                let kind = TransportErrorKind::PoolFull;
                return Err(Refused::Full(TransportError::new(kind, Sent::No, detail)));
            }
            let ticket = state.waiters.join();
            drop(state);
            self.connect_if(connect);
            ticket.at(&self.state, |state| &mut state.waiters, &self.queue_length)
        };
        match timeout_at(deadline, &mut waiting.granted).await {
            Ok(Ok(granted)) => granted,
            Ok(Err(_)) => Err(Refused::Down),
            Err(_) => {
                let detail = "while waiting for a WebSocket connection";
                let kind = TransportErrorKind::Timeout;
                Err(Refused::Full(TransportError::new(kind, Sent::No, detail)))
            }
        }
    }

    /// How many more calls would get on a connection, open or still to be opened, without
    /// waiting for another call to end; `None` while there is no way here.
    pub(super) fn free_places(&self) -> Option<usize> {
        let state = self.state.lock();
        if state.is_down() {
            return None;
        }
        let calls_max = self.settings.ws_calls_max.max(1);
        let usable = state.sockets.iter().filter(|socket| !socket.is_over());
        let free: usize = usable.map(|socket| calls_max.saturating_sub(socket.load())).sum();
        let more = self.settings.ws_connections_max.max(1).saturating_sub(state.sockets.len());
        let places = free + more * calls_max;
        Some(places.saturating_sub(state.waiters.len()))
    }

    /// Must be called without the lock: a runtime that shuts down drops tasks at once.
    fn connect_if(self: &Arc<Self>, wanted: bool) {
        if !wanted {
            return;
        }
        let attempt = WsConnectAttempt { pool: Arc::clone(self), finished: false };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let config = WebSocketConfig::default()
                    .read_buffer_size(READ_BUFFER)
                    .write_buffer_size(WRITE_BUFFER);
                let opened = attempt.pool.client.open_stream(config).await;
                attempt.finish(opened);
            });
        }
    }

    fn connected(self: &Arc<Self>, stream: WsStream) {
        let now = Instant::now();
        let me = Arc::downgrade(self);
        let ended = move |was_well| {
            if let Some(pool) = me.upgrade() {
                pool.ended(was_well);
            }
        };
        let mut state = self.state.lock();
        // Up to a tenth earlier, so that connections opened together are not replaced together.
        let age = self.settings.age_max;
        let retire_at = now + age - age.mul_f64(state.jitter.next_fraction() / 10.0);
        let socket = Socket::open(stream, ended, &self.settings, &self.stats, retire_at);
        state.connecting = false;
        for worn in state.sockets.extract_if(.., |socket| socket.is_worn(now)) {
            worn.retire();
        }
        state.sockets.push(Arc::new(socket));
        drop(state);
        if self.stats.note_without_sockets(false) {
            let host = self.client.host();
            tracing::info!(host, "a WebSocket connection is open; sending calls over it");
        }
        self.changed();
    }

    fn failed(self: &Arc<Self>, error: &TransportError) {
        self.stats.note_connect_failed(error.kind);
        let is_down = {
            let mut state = self.state.lock();
            state.connecting = false;
            state.fall(Instant::now());
            state.is_down()
        };
        if is_down && self.stats.note_without_sockets(true) {
            let host = self.client.host();
            tracing::warn!(host, %error, "no WebSocket connection can be opened; sending calls over HTTP");
        }
        self.changed();
    }

    /// A connection has ended, well or not.
    fn ended(self: &Arc<Self>, was_well: bool) {
        let mut state = self.state.lock();
        if was_well {
            state.failures = 0;
            state.retry_at = None;
        } else {
            // Or a peer that opens and closes at once would be knocked at without end.
            state.fall(Instant::now());
        }
        drop(state);
        self.changed();
    }

    /// Room or usability of a connection changed: lets as many of the queue in as there is
    /// room for, and sends them away when none is to be expected.
    fn changed(self: &Arc<Self>) {
        let mut served = Vec::new();
        let connect = {
            let mut state = self.state.lock();
            state.sockets.retain(|socket| !socket.is_over());
            while !state.waiters.is_empty()
                && let Some(best) = best(&state.sockets)
            {
                let place = SocketPermit::new(self, best);
                served.extend(state.waiters.pop().map(|grant| (grant, Ok(place))));
            }
            let connections_max = self.settings.ws_connections_max;
            let connect =
                !state.waiters.is_empty() && state.wants_one(connections_max, Instant::now());
            state.connecting |= connect;
            while state.is_down()
                && let Some(grant) = state.waiters.pop()
            {
                served.push((grant, Err(Refused::Down)));
            }
            connect
        };
        // Without the lock: a grant that is not taken is returned at once.
        for (grant, granted) in served {
            let _ = grant.send(granted);
        }
        self.connect_if(connect);
    }
}

impl State {
    fn new(waiters: Waiters<PermitResult>, seed: u64) -> Self {
        Self {
            sockets: Vec::new(),
            connecting: false,
            waiters,
            failures: 0,
            retry_at: None,
            jitter: Jitter(seed),
        }
    }

    /// Whether a connection is to be opened for the call that comes now.
    fn wants_one(&self, connections_max: usize, now: Instant) -> bool {
        if self.connecting || self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        let few = self.sockets.len() < connections_max.max(1);
        let busy = best(&self.sockets).is_none_or(|best| best.is_filled(BUSY_PERCENT));
        // Room for it is made by those that are worn.
        (few && busy) || self.sockets.iter().any(|socket| socket.is_worn(now))
    }

    /// Counts a failure and lets none be opened for a while.
    fn fall(&mut self, now: Instant) {
        let doubled = PAUSE_MIN.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        let share = 0.5 + self.jitter.next_fraction() / 2.0;
        self.retry_at = Some(now + doubled.mul_f64(share));
    }

    /// Whether there is nothing to wait for: no connection, and the last one failed.
    fn is_down(&self) -> bool {
        self.failures > 0 && self.sockets.iter().all(|socket| socket.is_over())
    }
}

/// The fullest connection that is not busy, or else the emptiest one with room.
///
/// What shares a connection is written and read together: few that are well filled cost
/// less than many, and those not needed fall idle and close.
fn best(sockets: &[Arc<Socket>]) -> Option<&Arc<Socket>> {
    let usable = || sockets.iter().filter(|socket| !socket.is_over() && socket.has_room());
    let filling = usable().filter(|it| !it.is_filled(BUSY_PERCENT)).max_by_key(|it| it.load());
    filling.or_else(|| usable().min_by_key(|it| it.load()))
}

/// A connection attempt under way; counts as failed when it is dropped unfinished.
struct WsConnectAttempt {
    pool: Arc<WsPool>,
    finished: bool,
}

impl WsConnectAttempt {
    fn finish(mut self, opened: Result<WsStream, TransportError>) {
        self.finished = true;
        match opened {
            Ok(stream) => self.pool.connected(stream),
            Err(error) => self.pool.failed(&error),
        }
    }
}

impl Drop for WsConnectAttempt {
    fn drop(&mut self) {
        if !self.finished {
            let error = TransportError::new(
                TransportErrorKind::Connect,
                Sent::No,
                "the worker is stopping",
            );
            self.pool.failed(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new(Waiters::new(0, Arc::default()), 7)
    }

    #[test]
    fn pauses_double_within_their_bounds() {
        let now = Instant::now();
        let mut state = state();
        for failure in 0..40 {
            state.fall(now);
            let pause = state.retry_at.expect("a pause") - now;
            let doubled = PAUSE_MIN.saturating_mul(1 << failure.min(20)).min(PAUSE_MAX);
            assert!(pause >= doubled / 2 && pause < doubled, "{failure}: {pause:?}");
        }
        assert!(state.is_down());
    }

    #[test]
    fn nothing_is_opened_before_the_pause_is_over() {
        let now = Instant::now();
        let mut state = state();
        let wants_one = |state: &State, now| state.wants_one(4, now);
        assert!(wants_one(&state, now) && !state.is_down());
        state.fall(now);
        let retry_at = state.retry_at.expect("a pause");
        assert!(!wants_one(&state, now));
        assert!(!wants_one(&state, retry_at - Duration::from_nanos(1)));
        assert!(wants_one(&state, retry_at));
        state.connecting = true;
        assert!(!wants_one(&state, retry_at), "one at a time");
    }
}
