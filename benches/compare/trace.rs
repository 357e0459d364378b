//! System calls of a process, by name, while something else goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::time::sleep;
use wellhead_e2e::tool;

/// What strace takes to stop all threads; nothing tells when it has.
const ATTACHED_AFTER: Duration = Duration::from_millis(500);

/// A running count.
pub(crate) struct Trace {
    strace: Child,
    table: NamedTempFile,
}

impl Trace {
    /// Begins to count. The process is several times slower from now on.
    pub(crate) async fn start(pid: u32) -> Self {
        let table = NamedTempFile::new().expect("there is room for a table");
        let strace = Command::new(tool("strace"))
            .args(["-c", "-f", "-p", &pid.to_string(), "-o"])
            .arg(table.path())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace is there: scripts/setup looked");
        sleep(ATTACHED_AFTER).await;
        Self { strace, table }
    }

    /// Ends the count.
    pub(crate) fn finish(mut self) -> BTreeMap<String, u64> {
        let pid = self.strace.id().to_string();
        let _ended_already = Command::new("kill").args(["-INT", &pid]).status();
        let _ended = self.strace.wait();
        calls(self.table.path())
    }
}

/// Lines of `% time, seconds, usecs/call, calls, [errors], syscall`.
fn calls(table: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.last().filter(|name| **name != "total")?;
        let calls = words.get(3)?.parse().ok()?;
        Some(((*name).to_owned(), calls))
    });
    rows.collect()
}
