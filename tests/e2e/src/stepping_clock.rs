//! The wall clock of a process, which steps when told to, as a clock that is set does.
//!
//! libfaketime is loaded into the process. Its monotonic clock stays as it is: no step of a wall clock moves
//! that.

use std::process::Command;

use tempfile::TempDir;

/// A clock that is right until it is set.
#[derive(Debug)]
pub struct SteppingClock {
    folder: TempDir,
    library: String,
}

impl SteppingClock {
    /// A clock that is right.
    ///
    /// # Panics
    /// When `faketime` is not installed.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it writes a file")]
    pub fn new() -> Self {
        // It knows where its library is: the variant for programs with several threads.
        let told =
            Command::new("faketime").args(["-m", "-f", "+0", "printenv", "LD_PRELOAD"]).output();
        let told = told.expect("`faketime` is not here; `scripts/setup test` installs it").stdout;
        let library = String::from_utf8(told).expect("a path").trim().to_owned();
        let folder = tempfile::tempdir().expect("there is room for a file");
        let clock = Self { folder, library };
        clock.set(0);
        clock
    }

    /// The words by way of which a program is started that has this clock.
    #[must_use]
    pub fn launcher(&self) -> Vec<String> {
        let file = self.folder.path().join("offset");
        vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.library),
            format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            // Steps are seen at once.
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }

    /// Sets it this many milliseconds ahead of the right time, or behind it.
    pub fn set(&self, ahead_ms: i64) {
        // Replaced as a whole: half a file is never read.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{:+.3}\n", ahead_ms as f64 / 1e3))
            .expect("the folder is ours");
        std::fs::rename(new, self.folder.path().join("offset")).expect("the folder is ours");
    }
}
