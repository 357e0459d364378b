//! The scripts under `clients/`, each run with the packages that `scripts/setup test` installs.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

use crate::cache;

/// A script that can be run. It is killed when its child is dropped.
#[derive(Debug)]
pub struct Script {
    /// Runs it; the caller adds arguments, environment and pipes.
    pub command: Command,
    /// Holds the script, and whatever the caller puts beside it.
    pub folder: TempDir,
}

impl Script {
    /// The script with this file name. node finds packages beside a script only, so the script is
    /// copied to a folder in which they are linked.
    ///
    /// # Panics
    /// When there is no such script.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a script");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name);
        let file = folder.path().join(name);
        std::fs::copy(source, &file).expect("the script exists");
        let modules = cache().join("npm/node_modules");
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules"))
            .expect("the folder is ours");
        let program = match file.extension().and_then(|extension| extension.to_str()) {
            Some("mjs") => "node".into(),
            _ => cache().join("venv/bin/python"),
        };
        let mut command = Command::new(program);
        command.arg(&file).kill_on_drop(true);
        Self { command, folder }
    }
}
