//! CPU time to the nanosecond.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// What each thread of a process has run so far, to the nanosecond; `/proc/PID/stat` counts in hundredths of a second.
pub(crate) struct ThreadTimes(HashMap<String, u64>);

impl ThreadTimes {
    pub(crate) fn read(pid: u32) -> Self {
        let path = format!("/proc/{pid}/task");
        let threads = fs::read_dir(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
        let time = |thread: fs::DirEntry| {
            // The first number is the time on a core. The thread may have ended since.
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanos = text.split(' ').next()?.parse().ok()?;
            Some((thread.file_name().to_string_lossy().into_owned(), nanos))
        };
        Self(threads.flatten().filter_map(time).collect())
    }

    /// What the threads have run since, those that ended meanwhile left out.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        let before = |thread: &String| earlier.0.get(thread).copied().unwrap_or(0);
        let run = self.0.iter().map(|(thread, nanos)| nanos.saturating_sub(before(thread)));
        Duration::from_nanos(run.sum())
    }
}
