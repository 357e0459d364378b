//! The tasks of the house that need more than a shell: `cargo xtask TASK`.
//!
//! `tidy` holds the rules that no lint knows, `pages` the documents that are
//! written from the code, `dashboards`, `log_events` and `sentences` some of them, `simulate` the way to the simulation's runner.
//! Nothing else here builds or tests the product: that is cargo's work, and `scripts/` puts the two
//! together.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the command line")]

mod dashboards;
mod log_events;
mod pages;
mod sentences;
mod simulate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK
  tidy           check the import table and the rules of the house
  tidy --shrink  check, and take out of xtask/lists what is no longer needed
  docs           write the generated pages under docs/ and files under deploy/
  docs --check   fail when one of them is not what the code would write
  sim            play simulated scenarios: --seeds N --from N, or --seed N with its log";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    let problems = match arguments.as_slice() {
        ["tidy"] => tidy::run(&root, false),
        ["tidy", "--shrink"] => tidy::run(&root, true),
        ["docs"] => pages::write(&root),
        ["docs", "--check"] => pages::check(&root),
        ["sim", arguments @ ..] => simulate::run(&root, arguments),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match problems {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("{} problem(s)", problems.len());
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a folder of the workspace").to_path_buf()
}
