//! The process itself: its build, and what it takes of the machine.
//!
//! The names are those of Prometheus' own clients. Most figures are read from `/proc` at each scrape; a system without
//! it gets their heads alone.

use std::fs;

use prometheus_client::encoding::DescriptorEncoder;
use rustix::process::{Resource, getrlimit};
use wellhead_telemetry::series::{EncodeResult, NO_LABELS, counter, gauge};

/// `/proc` counts time in hundredths of a second, whatever the kernel's own clock is.
const TICKS_PER_SECOND: f64 = 100.0;
/// Descriptors that a scrape counts at most: beyond it the figure is this one.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// The series of the process.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("os", std::env::consts::OS),
        ("arch", std::env::consts::ARCH),
    ];
    let help = "1, with what was built as labels";
    gauge(encoder, "wellhead_build_info", help, [(build, 1_u64)])?;
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let stat = ProcessStat::parse(&read("/proc/self/stat"));
    let status = read("/proc/self/status");
    let started = stat.as_ref().zip(boot_seconds(&read("/proc/stat")));
    let rows = [
        (
            "process_resident_memory_bytes",
            "Memory of the process that is in RAM",
            kib(&status, "VmRSS:").map(|kib| kib * 1_024.0),
        ),
        (
            "process_virtual_memory_bytes",
            "Address space of the process",
            kib(&status, "VmSize:").map(|kib| kib * 1_024.0),
        ),
        ("process_open_fds", "Open file descriptors", open_descriptors()),
        (
            "process_max_fds",
            "Limit on open file descriptors",
            getrlimit(Resource::Nofile).current.map(|most| most as f64),
        ),
        ("process_threads", "Threads of the process", stat.as_ref().map(|it| it.threads)),
        (
            "process_start_time_seconds",
            "When the process started, as seconds since 1970",
            started.map(|(stat, boot)| boot + stat.started_ticks / TICKS_PER_SECOND),
        ),
    ];
    for (name, help, value) in rows {
        gauge(encoder, name, help, value.map(|value| (NO_LABELS, value)))?;
    }
    let seconds = stat.map(|stat| (NO_LABELS, stat.cpu_ticks / TICKS_PER_SECOND));
    counter(encoder, "process_cpu_seconds", "CPU time of the process", seconds)
}

/// What `/proc/self/stat` says.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    cpu_ticks: f64,
    threads: f64,
    started_ticks: f64,
}

impl ProcessStat {
    /// The fields after the name of the program, which may hold spaces and brackets.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // The first of them is the third of the manual page.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
        })
    }
}

fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn kib(status: &str, key: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    value.split_whitespace().next()?.parse().ok()
}

fn open_descriptors() -> Option<f64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.take(DESCRIPTORS_MAX);
    let count = entries.map(|_| 1_u32).sum::<u32>();
    // One of them is that of this look.
    Some(f64::from(count.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let text = "7 (a) b) c) S 1 7 7 0 -1 0 1 0 2 0 250 50 0 0 20 0 9 0 12345 4096 300 1";
        let expected = ProcessStat { cpu_ticks: 300.0, threads: 9.0, started_ticks: 12_345.0 };
        assert_eq!(ProcessStat::parse(text), Some(expected));
    }

    #[test]
    fn what_proc_says() {
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1.7e9));
        assert_eq!(kib("Name:\tx\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2_048.0));
        assert_eq!(ProcessStat::parse(""), None);
    }
}
