//! What the analyser says, for a reviewer to read in one place: a sentence for each kind of findings, and
//! the help of each command.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};
use wellhead_analyze::conclude::verdict::sentences_page;

use super::Cli;

/// The first two parts of `docs/analyze-sentences.md`: verdicts and help. `cargo xtask docs` writes it.
pub fn analyze_sentences() -> String {
    let mut out = format!("## Verdicts\n\n{}## Help\n", sentences_page());
    let mut root = Cli::command().disable_help_subcommand(true).term_width(100);
    root.build();
    if let Some(analyze) = root.find_subcommand("analyze") {
        help(&mut out, analyze, "wellhead analyze");
    }
    out
}

fn help(out: &mut String, command: &Command, name: &str) {
    let text = command.clone().render_long_help().to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let _ = write!(out, "\n### `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        help(out, below, &format!("{name} {}", below.get_name()));
    }
}
