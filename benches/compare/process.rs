//! What the kernel says of a process.

use std::process::Command;
use std::sync::OnceLock;

/// User and system time so far, of all threads of the process.
pub(crate) fn cpu_seconds(pid: u32) -> (f64, f64) {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    // The program's name may hold anything, so count from its closing bracket:
    // state is field 3, utime 14, stime 15.
    let (_, fields) = text.rsplit_once(')').expect("the name stands in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |field: usize| fields[field - 3].parse::<f64>().expect("a count of ticks");
    let per_second = ticks_per_second();
    (ticks(14) / per_second, ticks(15) / per_second)
}

/// Resident memory now.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// Resident memory at its most, since the process began.
pub(crate) fn peak_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn ticks_per_second() -> f64 {
    static TICKS: OnceLock<f64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let output = Command::new("getconf").arg("CLK_TCK").output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.and_then(|text| text.parse().ok()).unwrap_or(100.0)
    })
}
