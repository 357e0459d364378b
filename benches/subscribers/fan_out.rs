//! One head for all subscribers: what it costs, and when it arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wellhead_e2e::{Block, ConsensusDriver, Transactions};

use crate::calls::{Call, CallLoop};
use crate::crowd::Crowd;
use crate::raw::Floor;
use crate::thread_times::ThreadTimes;

/// Subscribers at which arrivals are timed.
const TIMED: usize = 101;
/// Between two heads nothing is under way.
const PAUSE: Duration = Duration::from_millis(300);

/// A geth that is told its heads.
pub(crate) struct HeadMaker {
    driver: ConsensusDriver,
    head: Block,
}

impl HeadMaker {
    pub(crate) async fn start() -> Self {
        let driver = ConsensusDriver::start(1).await;
        let head = driver.genesis().clone();
        let mut maker = Self { driver, head };
        for _ in 0..2 {
            maker.make_one().await;
        }
        maker
    }

    pub(crate) fn port(&self) -> u16 {
        self.driver.node(0).port
    }

    pub(crate) fn ws_port(&self) -> u16 {
        self.driver.node(0).ws_port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.driver.node(0).process.pid()
    }

    async fn make_one(&mut self) {
        self.head = self.driver.mine_on(&self.head, Transactions::None).await;
        self.driver.set_head(0, &self.head).await;
    }

    /// Makes heads, each told before the next one is made.
    pub(crate) async fn make(&mut self, crowd: &mut Crowd, heads: usize) {
        for _ in 0..heads {
            self.make_one().await;
            crowd.wait_for_last();
            crowd.drain();
        }
    }
}

/// What heads came to.
#[derive(Debug, Clone)]
pub(crate) struct FanOut {
    /// CPU of the server for each notification, in µs; the median of the heads.
    pub(crate) cpu_micros: f64,
    /// The loop of writes beside it.
    pub(crate) beside_floor: Option<BesideFloor>,
    /// From the first subscriber to the last; the median of the heads.
    pub(crate) last: Duration,
    /// Within this after the first, 99 of 100 subscribers had it; of all heads.
    pub(crate) p99: Duration,
    /// How long plain calls took beside.
    pub(crate) calls: Option<Spread>,
}

/// What the loop of writes took between two heads, and the server in its multiples; medians of the heads.
///
/// A machine that others use, too, is slower by half for seconds at a time. Where each head is compared with the writes
/// just before it, both are slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BesideFloor {
    pub(crate) floor_micros: f64,
    pub(crate) ratio: f64,
}

/// The 99th of 100 calls, without heads and while they were written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) idle: Duration,
    pub(crate) busy: Duration,
}

/// Makes heads and watches the process of the server, with plain calls to `calls_to` beside, and the loop of writes
/// between two heads.
pub(crate) async fn measure(
    maker: &mut HeadMaker,
    crowd: &mut Crowd,
    pid: u32,
    heads: usize,
    calls_to: Option<u16>,
    mut floor: Option<&mut Floor>,
) -> FanOut {
    let (mut costs, mut lasts, mut arrivals) = (Vec::new(), Vec::new(), Vec::new());
    let (mut floors, mut ratios, mut windows) = (Vec::new(), Vec::new(), Vec::new());
    let is_over = Arc::new(AtomicBool::new(false));
    let calls = calls_to.map(|port| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || calls_until(port, &is_over))
    });
    for _ in 0..heads {
        let floor = floor.as_mut().map(|floor| floor.turn());
        tokio::time::sleep(PAUSE).await;
        let before = ThreadTimes::read(pid);
        let timed = crowd.sample(TIMED);
        let (arrived, ()) = tokio::join!(arrivals_at(timed), maker.make_one());
        let first = arrived.iter().min().copied().expect("some are timed");
        let last = arrived.iter().max().copied().expect("some are timed");
        windows.push((first, last));
        lasts.push(last - first);
        arrivals.extend(arrived.iter().map(|at| *at - first));
        tokio::time::sleep(PAUSE).await;
        let run = ThreadTimes::read(pid).since(&before);
        costs.push(run.as_secs_f64() * 1e6 / crowd.len() as f64);
        floors.extend(floor);
        ratios.extend(floor.and_then(|floor| Some(costs.last()? / floor)));
        crowd.drain();
    }
    is_over.store(true, Ordering::Relaxed);
    let calls = calls.map(|thread| spread(&thread.join().expect("the calls end"), &windows));
    lasts.sort_unstable();
    let beside_floor = (!floors.is_empty())
        .then(|| BesideFloor { floor_micros: median(floors), ratio: median(ratios) });
    FanOut {
        cpu_micros: median(costs),
        beside_floor,
        last: lasts[lasts.len() / 2],
        p99: p99(arrivals),
        calls,
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// When the next bytes came at each.
async fn arrivals_at(streams: Vec<tokio::net::TcpStream>) -> Vec<Instant> {
    let waits = streams.iter().map(|stream| async {
        loop {
            stream.readable().await.expect("a socket");
            match stream.try_read(&mut [0; 4096]) {
                Ok(read) => {
                    assert!(read > 0, "the connection was closed");
                    return Instant::now();
                }
                // It was writable or readable before.
                Err(why) => assert_eq!(why.kind(), std::io::ErrorKind::WouldBlock, "{why}"),
            }
        }
    });
    futures_util::future::join_all(waits).await
}

/// Plain calls, one after the other: when each began, and how long it took.
fn calls_until(port: u16, is_over: &AtomicBool) -> Vec<(Instant, Duration)> {
    let mut calls = CallLoop::http(port, 1);
    let mut seen = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        calls.play(Call::Local);
        seen.push((began, began.elapsed()));
    }
    seen
}

fn spread(calls: &[(Instant, Duration)], windows: &[(Instant, Instant)]) -> Spread {
    let is_busy = |began: Instant, took: Duration| {
        windows.iter().any(|(first, last)| began < *last && began + took > *first)
    };
    let (busy, idle): (Vec<_>, Vec<_>) =
        calls.iter().partition(|(began, took)| is_busy(*began, *took));
    let times = |calls: Vec<&(Instant, Duration)>| calls.iter().map(|(_, took)| *took).collect();
    Spread { idle: p99(times(idle)), busy: p99(times(busy)) }
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let place = times.len() * 99 / 100;
    times.get(place.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
