//! The rules of the house that neither compiler nor clippy knows.
//!
//! Each rule is a plain function from text to problems, with tests that show
//! it fail; only this file touches the disk. A rule that could cry wolf is
//! worse than none, so each looks for something that has no good use here.

mod circles;
mod comments;
mod imports;
pub(crate) mod mask;
mod names;
mod outline;
mod packages;
mod ratchet;
mod rooms;
mod sizes;
mod sources;
mod texts;
mod tokens;

use std::fs;
use std::path::Path;
use std::process::Command;

use ratchet::{Breach, ListedValue};

/// Runs every rule over every file that git knows or would take in.
///
/// With `shrink` the lists of what a rule does not yet hold for lose what they no longer need.
pub(crate) fn run(root: &Path, shrink: bool) -> Result<Vec<String>, String> {
    let metadata = metadata(root)?;
    let mut problems = imports::check(&architecture(root), &imports::crates(&metadata)?);
    let mut files = 0;
    let mut outlines = Vec::new();
    for path in listed_files(root)? {
        // A file may be listed and yet deleted, or not be text at all.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        files += 1;
        problems.extend(texts::check(&path, &text));
        if path.ends_with(".rs") {
            let masked = mask::mask(&text);
            problems.extend(sources::check(&path, &text, &masked));
            outlines.push((path.clone(), outline::outline(&masked)));
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
    let mut lists = Lists { root, shrink, problems };
    lists.compare("comments.txt", &comments::find(&outlines))?;
    let packages = packages::packages(&folders(root, &metadata)?, outlines);
    lists.problems.extend(rooms::check(&list(root, ROOMS)?, &packages));
    lists.compare("circles.txt", &circles::find(&packages))?;
    lists.compare("type-names.txt", &names::repeated_types(&packages))?;
    lists.compare("predicates.txt", &names::questions_that_act(&packages))?;
    lists.compare("functions.txt", &sizes::find(&packages))?;
    println!("{files} files read");
    Ok(lists.problems)
}

/// The rooms of crates, and the arrows between them.
const ROOMS: &str = "xtask/lists/rooms.txt";

fn list(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|why| format!("{path}: {why}"))
}

/// The lists of what a rule does not yet hold for.
struct Lists<'a> {
    root: &'a Path,
    shrink: bool,
    problems: Vec<String>,
}

impl Lists<'_> {
    fn compare<V: ListedValue>(&mut self, name: &str, found: &[Breach<V>]) -> Result<(), String> {
        let path = format!("xtask/lists/{name}");
        let file = self.root.join(&path);
        let text = list(self.root, &path)?;
        let compared = ratchet::compare(&path, &text, found);
        self.problems.extend(compared.problems);
        if !self.shrink {
            self.problems.extend(compared.stale);
        } else if compared.shrunk != text {
            fs::write(&file, compared.shrunk).map_err(|why| format!("{path}: {why}"))?;
        }
        Ok(())
    }
}

/// Name and folder of each package, the folder from the root.
fn folders(root: &Path, metadata: &serde_json::Value) -> Result<Vec<(String, String)>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let folder = |package: &serde_json::Value| {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(root).ok()?;
        Some((package["name"].as_str()?.to_owned(), folder.to_str()?.to_owned()))
    };
    let folders: Option<Vec<(String, String)>> = packages.iter().map(folder).collect();
    folders.ok_or_else(|| "cargo metadata names a package without a folder".to_owned())
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
