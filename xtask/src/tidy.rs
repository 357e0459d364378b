//! The rules of the house that neither compiler nor clippy knows.
//!
//! Each rule is a plain function from text to problems, with tests that show
//! it fail; only this file touches the disk. A rule that could cry wolf is
//! worse than none, so each looks for something that has no good use here.

mod imports;
mod mask;
mod sources;
mod texts;

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs every rule over every file that git knows or would take in.
pub(crate) fn run(root: &Path) -> Result<Vec<String>, String> {
    let mut problems = imports::check(&architecture(root), &imports::crates(&metadata(root)?)?);
    let mut files = 0;
    for path in listed_files(root)? {
        // A file may be listed and yet deleted, or not be text at all.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        files += 1;
        problems.extend(texts::check(&path, &text));
        if path.ends_with(".rs") {
            problems.extend(sources::check(&path, &text));
        }
        if path.ends_with("Cargo.toml") {
            problems.extend(texts::check_manifest(&path, &text));
        }
    }
    if files == 0 {
        return Err("no file was read: is this a checkout?".to_owned());
    }
    problems.extend(texts::check_changelog(
        &fs::read_to_string(root.join("CHANGELOG.md")).unwrap_or_default(),
    ));
    println!("{files} files read");
    Ok(problems)
}

/// Without the file the import check says that the table is missing.
fn architecture(root: &Path) -> String {
    fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default()
}

fn metadata(root: &Path) -> Result<serde_json::Value, String> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1"];
    let text = output(Command::new("cargo").args(arguments).current_dir(root))?;
    serde_json::from_str(&text).map_err(|why| format!("cargo metadata: {why}"))
}

fn listed_files(root: &Path) -> Result<Vec<String>, String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let text = output(Command::new("git").args(arguments).current_dir(root))?;
    let mut files: Vec<String> = text.lines().map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|why| format!("{command:?}: {why}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|why| format!("{command:?}: {why}"))
}
