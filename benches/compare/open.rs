//! An open load: requests leave when they are due, not when others are answered.
//!
//! Connections take turns, each with a thread that sleeps until its next request
//! is due. A late answer makes its connection's next request late, and that
//! counts too: latency runs from when a request was due.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::{Client, Request, run_digits};
use crate::closed::Seen;
use crate::sample::Latency;

const CONNECTIONS: u32 = 64;
const BUFFER_BYTES: usize = 16 * 1024;
/// Unmeasured, at the same rate.
const WARM_UP: Duration = Duration::from_millis(500);
/// From the last connection's opening to the first request.
const BREATH: Duration = Duration::from_millis(20);
const STACK_BYTES: usize = 256 * 1024;

/// So many requests a second, for this long.
pub(crate) fn open(port: u16, request: &Request, per_second: u32, turn: Duration) -> Seen {
    let run_digits = run_digits();
    open_each(port, per_second, (WARM_UP, turn), &|client, number| {
        client.call_numbered(request, &run_digits, number)
    })
}

/// Runs an open loop that calls `ask` with a client when the request of that number is due.
/// Requests due within the first of the two times are not measured.
pub(crate) fn open_each(
    port: u16,
    per_second: u32,
    (warm_up, turn): (Duration, Duration),
    ask: &(dyn Fn(&mut Client, u32) -> io::Result<()> + Sync),
) -> Seen {
    let slack = Slack::none();
    let (waits, errors) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let ready = Barrier::new(CONNECTIONS as usize);
    let start = Mutex::new(None);
    let every = Duration::from_secs(1) / per_second;
    let requests = per_second
        * u32::try_from((warm_up + turn).as_millis()).unwrap_or(u32::MAX / per_second)
        / 1000;
    let one = |index: u32| {
        let mut client = Client::connect(port, BUFFER_BYTES);
        ready.wait();
        let start = *start
            .lock()
            .expect("no holder of this lock panics")
            .get_or_insert_with(|| Instant::now() + BREATH);
        let mut own = Vec::new();
        for number in (index..requests).step_by(CONNECTIONS as usize) {
            let due = start + every * number;
            sleep_until(due);
            let answered = match &mut client {
                Ok(client) => ask(client, number).is_ok(),
                Err(_) => false,
            };
            if !answered {
                errors.fetch_add(1, Ordering::Relaxed);
                client = Client::connect(port, BUFFER_BYTES);
            } else if due >= start + warm_up {
                own.push(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
        }
        waits.lock().expect("no holder of this lock panics").extend(own);
    };
    std::thread::scope(|scope| {
        let one = &one;
        for index in 0..CONNECTIONS {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn_scoped(scope, move || one(index)).expect("there is room for threads");
        }
    });
    drop(slack);
    let waits = waits.into_inner().expect("no holder of this lock panics");
    Seen {
        requests: requests.into(),
        errors: errors.into_inner(),
        seconds: (warm_up + turn).as_secs_f64(),
        latency: Some(Latency::of(waits)),
    }
}

fn sleep_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        // May wake early, and then parks again.
        std::thread::park_timeout(left);
    }
}

/// The kernel may wake a thread 50 µs late, to save power; what we measure is
/// not much more. Threads take the slack of the one that starts them. Where it
/// cannot be set, the direct calls are as late as the others.
struct Slack;

impl Slack {
    fn none() -> Self {
        let _best_effort = std::fs::write("/proc/self/timerslack_ns", "1");
        Self
    }
}

impl Drop for Slack {
    fn drop(&mut self) {
        // Zero stands for the default. Contenders must not start without it.
        let _best_effort = std::fs::write("/proc/self/timerslack_ns", "0");
    }
}
