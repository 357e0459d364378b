//! `cargo xtask sim`: builds the runner of simulated scenarios and runs it.
//!
//! Everything after `sim` is the runner's: see `tests/simulation/src/main.rs`.

use std::path::Path;
use std::process::Command;

/// Builds and runs; says what went wrong, which is the runner's to explain.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<Vec<String>, String> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--profile", "sim", "-p", "wellhead-simulation", "--"])
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(|why| format!("cargo run: {why}"))?;
    if status.success() { Ok(Vec::new()) } else { Err("the simulation failed".to_owned()) }
}
