//! The machine beside what the settings ask of it: open files, memory, time.
//!
//! Each part has facts, which are read once, and a judgement of them. The limits are those of this process:
//! a service that a manager starts may have others.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{ByteSize, Settings};
use crate::doctor::diagnosis::{Diagnosis, HealthCheck};

/// Open files beside connections: libraries, log, runtime, state, control loops.
const FILES_BESIDE: u64 = 128;
/// Connections to one upstream that a worker needs to serve at all.
const FILES_PER_UPSTREAM_MIN: u64 = 4;

/// What the settings may have open at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileDemand {
    workers: u64,
    upstreams: u64,
    /// Connections to all upstreams, of one worker.
    connections: u64,
    /// Connections of clients.
    clients: u64,
}

impl FileDemand {
    pub(crate) fn of(settings: &Settings) -> Self {
        let upstreams = || settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams);
        Self {
            workers: settings.workers() as u64,
            upstreams: upstreams().count() as u64,
            connections: upstreams().map(|upstream| upstream.connections_max as u64).sum(),
            clients: settings.limits.connections as u64,
        }
    }

    fn most(&self) -> u64 {
        FILES_BESIDE + self.clients + self.workers * self.connections
    }

    fn least(&self) -> u64 {
        FILES_BESIDE + self.workers * self.upstreams * FILES_PER_UPSTREAM_MIN
    }
}

/// The hard limit of this process, to which `wellhead serve` raises its own; `None` where there is none.
pub(crate) fn open_files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum
}

pub(crate) fn judge_files(limit: Option<u64>, demand: FileDemand) -> Diagnosis {
    const CHECK: HealthCheck<'_> = HealthCheck::new("machine", "open files");
    let FileDemand { workers, connections, clients, .. } = demand;
    let (least, most) = (demand.least(), demand.most());
    let needs = format!(
        "{clients} clients and {workers} workers with {connections} connections to upstreams each"
    );
    let advice = format!(
        "set `LimitNOFILE={most}` in the unit, or `ulimit -n {most}`, or lower `limits.connections` and `connections_max`"
    );
    match limit {
        None => CHECK.well("no limit"),
        Some(limit) if limit >= most => {
            CHECK.well(format!("the limit is {limit}, enough for {needs}"))
        }
        Some(limit) if limit >= least => {
            let reason = format!("the limit is {limit}; {needs} need up to {most}");
            CHECK.doubtful(reason, advice)
        }
        Some(limit) => {
            let reason = format!("the limit is {limit}; {least} are needed to serve at all");
            CHECK.failed(reason, advice)
        }
    }
}

/// Memory of a process that serves nothing yet.
const MEMORY_BASE: u64 = 24 << 20;
/// An idle connection of a client, with TLS.
const MEMORY_PER_CLIENT: u64 = 15 << 10;
/// An idle upstream.
const MEMORY_PER_UPSTREAM: u64 = 43 << 10;

/// What the settings bound, summed up.
pub(crate) fn memory_most(settings: &Settings) -> u64 {
    let limits = &settings.limits;
    let upstreams: usize = settings.chains.iter().map(|(_, chain)| chain.upstreams.len()).sum();
    let cache = if settings.cache.enabled { settings.cache.bytes.0 } else { 0 };
    MEMORY_BASE
        + limits.bodies_total_bytes.0
        + limits.answers_total_bytes.0
        + cache
        + limits.connections as u64 * MEMORY_PER_CLIENT
        + upstreams as u64 * MEMORY_PER_UPSTREAM
}

/// The memory that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MemoryFacts {
    /// Of the machine.
    total: Option<u64>,
    /// What the cgroup allows.
    cgroup: Option<u64>,
}

impl MemoryFacts {
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let total = mem_total(&text("/proc/meminfo"));
        let files = cgroup_files(&text("/proc/self/cgroup"));
        let limits = files.iter().filter_map(|file| cgroup_limit(&fs::read_to_string(file).ok()?));
        // Version 1 writes a number near 2^63 where there is no limit.
        let cgroup = limits.min().filter(|limit| total.is_none_or(|total| *limit < total));
        Self { total, cgroup }
    }
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The files of limits of the group that `/proc/self/cgroup` names, and of those above it.
fn cgroup_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let groups = Path::new(path).ancestors();
        let below = groups.map(|group| group.strip_prefix("/").unwrap_or(group));
        files.extend(below.map(|group| Path::new(mount).join(group).join(file)));
    }
    files
}

fn cgroup_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

pub(crate) fn judge_memory(facts: MemoryFacts, most: u64) -> Diagnosis {
    const CHECK: HealthCheck<'_> = HealthCheck::new("machine", "memory");
    let advice = "lower `limits.answers_total_bytes`, `limits.bodies_total_bytes`, `cache.bytes` or `limits.connections`, or give it more memory";
    let bounded = format!("the settings bound wellhead to {}", mebibytes(most));
    let (limit, of) = match facts {
        MemoryFacts { cgroup: Some(limit), .. } => (limit, "the cgroup allows"),
        MemoryFacts { total: Some(total), .. } => (total, "the machine has"),
        MemoryFacts { total: None, cgroup: None } => {
            let reason = format!("{bounded}; how much there is cannot be read");
            return CHECK.well(reason);
        }
    };
    let reason = format!("{bounded}; {of} {}", mebibytes(limit));
    match (facts.cgroup, most > limit, most > limit / 5 * 4) {
        // The kernel kills what goes beyond.
        (Some(_), true, _) => CHECK.failed(reason, advice),
        (_, true, _) | (_, _, true) => CHECK.doubtful(reason, advice),
        (_, false, false) => CHECK.well(reason),
    }
}

/// `512 MiB`.
pub(crate) fn mebibytes(bytes: u64) -> String {
    ByteSize::mib(bytes >> 20).to_string()
}

/// What keeps the clock of this machine, as far as it leaves traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeSync {
    /// systemd-timesyncd, which has found a server.
    Synchronized,
    /// systemd-timesyncd, which has not.
    Searching,
    /// Nothing that can be read.
    Unknown,
}

impl TimeSync {
    pub(crate) fn read() -> Self {
        let folder = Path::new("/run/systemd/timesync");
        match (folder.exists(), folder.join("synchronized").exists()) {
            (_, true) => Self::Synchronized,
            (true, false) => Self::Searching,
            (false, false) => Self::Unknown,
        }
    }
}

/// How far this clock is ahead of one other, and how exactly that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) ahead_seconds: i64,
    pub(crate) unsure_seconds: u64,
}

/// Both clocks count whole seconds.
const CLOCK_EXACT_SECONDS: u64 = 2;
/// Leases, tokens and the age of blocks bear less.
const CLOCK_DOUBTFUL_SECONDS: u64 = 5;
/// Tokens are refused and all blocks look old, or are of the future.
const CLOCK_WRONG_SECONDS: u64 = 30;

/// By the median: one upstream may be wrong itself. `newest_block` is the newest timestamp, as seconds that it is
/// ahead of this clock.
pub(crate) fn judge_clock(
    mut readings: Vec<ClockReading>,
    newest_block: Option<i64>,
    sync: TimeSync,
) -> Diagnosis {
    const CHECK: HealthCheck<'_> = HealthCheck::new("machine", "clock");
    readings.sort_by_key(|reading| reading.ahead_seconds);
    let advice = "set the clock and keep it by NTP: `timedatectl set-ntp true`, or chrony";
    let reading = readings.get(readings.len() / 2);
    let off = reading.map_or(0, |reading| {
        let unsure = reading.unsure_seconds + CLOCK_EXACT_SECONDS;
        reading.ahead_seconds.unsigned_abs().saturating_sub(unsure)
    });
    let reason = match (reading, newest_block) {
        (Some(reading), _) if off > CLOCK_DOUBTFUL_SECONDS => {
            let way = if reading.ahead_seconds > 0 { "ahead of" } else { "behind" };
            format!(
                "this clock is {} s {way} those of {} upstreams (median)",
                reading.ahead_seconds.unsigned_abs(),
                readings.len()
            )
        }
        (Some(_), _) => {
            let plural = if readings.len() == 1 { "" } else { "s" };
            format!("agrees with {} upstream{plural}, to some seconds", readings.len())
        }
        (None, Some(ahead)) if ahead > CLOCK_WRONG_SECONDS as i64 => {
            let reason = format!("the newest block is {ahead} s in the future of this clock");
            return CHECK.doubtful(reason, advice);
        }
        (None, _) => "no upstream told its time".to_owned(),
    };
    match (off, sync) {
        (off, _) if off > CLOCK_WRONG_SECONDS => CHECK.failed(reason, advice),
        (off, _) if off > CLOCK_DOUBTFUL_SECONDS => CHECK.doubtful(reason, advice),
        (_, TimeSync::Searching) => {
            let reason = format!("{reason}; systemd-timesyncd has found no server yet");
            CHECK.doubtful(reason, "see `timedatectl timesync-status`")
        }
        (_, TimeSync::Synchronized) => CHECK.well(format!("{reason}; kept by systemd-timesyncd")),
        (_, TimeSync::Unknown) => CHECK.well(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::CheckHealth::{Doubtful, Failed, Well};

    #[test]
    fn open_files_are_compared_with_what_may_be_open() {
        let demand = FileDemand { workers: 4, upstreams: 3, connections: 768, clients: 10_000 };
        assert_eq!((demand.least(), demand.most()), (176, 13_200));
        for (limit, expected) in [
            (None, Well),
            (Some(1_048_576), Well),
            (Some(13_200), Well),
            (Some(13_199), Doubtful),
            (Some(1024), Doubtful),
            (Some(176), Doubtful),
            (Some(64), Failed),
        ] {
            let found = judge_files(limit, demand);
            assert_eq!(found.health, expected, "{found:?}");
            let advice = found.advice.unwrap_or_default();
            assert_eq!(advice.contains("LimitNOFILE=13200"), expected != Well, "{advice}");
        }
    }

    #[test]
    fn memory_is_compared_with_the_group_and_then_with_the_machine() {
        const MIB: u64 = 1 << 20;
        let facts = |total, cgroup| MemoryFacts { total, cgroup };
        for (facts, most, expected) in [
            (facts(None, None), 700, Well),
            (facts(Some(8192 * MIB), None), 700, Well),
            (facts(Some(800 * MIB), None), 700, Doubtful),
            (facts(Some(512 * MIB), None), 700, Doubtful),
            (facts(Some(8192 * MIB), Some(1024 * MIB)), 700, Well),
            (facts(Some(8192 * MIB), Some(800 * MIB)), 700, Doubtful),
            (facts(Some(8192 * MIB), Some(512 * MIB)), 700, Failed),
        ] {
            let found = judge_memory(facts, most * MIB);
            assert_eq!(found.health, expected, "{found:?}");
        }
    }

    #[test]
    fn limits_of_groups_of_both_versions_are_found() {
        let found = |text| {
            let files = cgroup_files(text).into_iter();
            files.map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            found("0::/system.slice/wellhead.service\n"),
            [
                "/sys/fs/cgroup/system.slice/wellhead.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        let old = "11:cpu,cpuacct:/a\n4:memory:/a\n";
        assert_eq!(
            found(old),
            [
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert_eq!((cgroup_limit("max\n"), cgroup_limit("1048576\n")), (None, Some(1 << 20)));
        assert_eq!(mem_total("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(mem_total("nothing"), None);
    }

    #[track_caller]
    fn check_clock(
        ahead: &[i64],
        newest: Option<i64>,
        sync: TimeSync,
        health: super::super::diagnosis::CheckHealth,
        part: &str,
    ) {
        let reading = |ahead: &i64| ClockReading { ahead_seconds: *ahead, unsure_seconds: 0 };
        let found = judge_clock(ahead.iter().map(reading).collect(), newest, sync);
        assert_eq!(found.health, health, "{found:?}");
        assert!(found.reason.contains(part), "{found:?}");
    }

    #[test]
    fn the_clock_is_compared_with_most_upstreams() {
        use TimeSync::{Searching, Synchronized, Unknown};
        check_clock(&[0, 1, -1], None, Unknown, Well, "agrees with 3 upstreams");
        check_clock(&[0], None, Synchronized, Well, "kept by systemd-timesyncd");
        check_clock(&[0], None, Searching, Doubtful, "has found no server");
        check_clock(&[0, 0, 900], None, Unknown, Well, "3 upstreams");
        check_clock(&[12, 11, 0], None, Unknown, Doubtful, "11 s ahead of");
        check_clock(&[-900], None, Synchronized, Failed, "900 s behind");
        check_clock(&[], None, Unknown, Well, "no upstream told its time");
        check_clock(&[], Some(5), Unknown, Well, "no upstream told its time");
        check_clock(&[], Some(100), Unknown, Doubtful, "100 s in the future");
    }
}
