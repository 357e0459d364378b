//! What the kernel says of the target while an attack lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::time::{Duration, sleep};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Watches a process, on a thread of its own.
#[derive(Debug)]
pub(super) struct Watch {
    pid: u32,
    stop: Arc<AtomicBool>,
    descriptors: Arc<AtomicU64>,
    resident: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
    cpu_began: f64,
    machine_began: (u64, u64),
    began: tokio::time::Instant,
}

/// The most of what was seen.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    /// Resident memory.
    pub resident_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Processor time of the target by the time that passed: 2 is two cores.
    pub cores: f64,
    /// Share of all cores that did nothing, in per cent.
    pub machine_idle_percent: f64,
}

impl Watch {
    /// Begins to look.
    #[must_use]
    pub(super) fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (descriptors, resident) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let seen = (Arc::clone(&descriptors), Arc::clone(&resident), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (descriptors, resident, stop) = seen;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.expect("a thread can have a runtime").block_on(async {
                while !stop.load(Ordering::Relaxed) {
                    descriptors.fetch_max(descriptors_of(pid), Ordering::Relaxed);
                    resident.fetch_max(resident_kib(pid), Ordering::Relaxed);
                    sleep(LOOK_EVERY).await;
                }
            });
        });
        let (cpu_began, machine_began) = (cpu_seconds(pid), machine());
        let began = tokio::time::Instant::now();
        Self { pid, stop, descriptors, resident, thread, cpu_began, machine_began, began }
    }

    /// Stops to look.
    #[must_use]
    pub(super) fn finish(self) -> Peak {
        self.stop.store(true, Ordering::Relaxed);
        let cpu = cpu_seconds(self.pid) - self.cpu_began;
        let machine = machine();
        let _looked = self.thread.join();
        let all = machine.0.saturating_sub(self.machine_began.0).max(1);
        let idle = machine.1.saturating_sub(self.machine_began.1);
        Peak {
            resident_kib: self.resident.load(Ordering::Relaxed),
            descriptors: self.descriptors.load(Ordering::Relaxed),
            cores: cpu / self.began.elapsed().as_secs_f64().max(0.001),
            machine_idle_percent: idle as f64 * 100.0 / all as f64,
        }
    }
}

/// Descriptors that a process has open.
#[must_use]
pub(super) fn descriptors_of(pid: u32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// Resident memory of a process.
#[must_use]
pub(super) fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processor time of a process so far, in ticks of a hundredth.
fn cpu_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, fields)) = text.rsplit_once(')') else { return 0.0 };
    // After the name come the state (field 3) and so on: utime is 14, stime 15.
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// All ticks of all cores so far, and those of doing nothing.
fn machine() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).filter_map(|ticks| ticks.parse().ok()).collect();
    let idle = ticks.get(3).copied().unwrap_or(0) + ticks.get(4).copied().unwrap_or(0);
    // Guests' time is in the user's already.
    (ticks.iter().take(8).sum(), idle)
}
