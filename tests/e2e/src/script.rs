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
    /// Holds a script for node, and whatever the caller puts beside it.
    pub folder: TempDir,
}

impl Script {
    /// The script of this name: `viem.mjs`, or `web3js/subscribe.mjs`, whose folder has packages of its
    /// own. node finds packages beside a script only, so the script is copied to a folder in which they
    /// are linked. `go-ethereum` and `alloy` are the programs that are built from the folders of these names.
    ///
    /// # Panics
    /// When there is no such script.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a script");
        if matches!(name, "go-ethereum" | "alloy") {
            let mut command = Command::new(cache().join(name).join("client"));
            command.kill_on_drop(true);
            return Self { command, folder };
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name);
        if !name.ends_with(".mjs") {
            let mut command = Command::new(cache().join("venv/bin/python"));
            // It imports what is beside it, and leaves no bytecode there.
            command.arg("-B").arg(source).kill_on_drop(true);
            return Self { command, folder };
        }
        let (packages, name) = name.split_once('/').unwrap_or(("npm", name));
        let file = folder.path().join(name);
        std::fs::copy(source, &file).expect("the script exists");
        let modules = cache().join(packages).join("node_modules");
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules"))
            .expect("the folder is ours");
        let mut command = Command::new("node");
        command.arg(&file).kill_on_drop(true);
        Self { command, folder }
    }
}
