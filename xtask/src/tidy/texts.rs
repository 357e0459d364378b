//! Rules for every text file: no traces of one machine; manifests and changelog.
//!
//! Rust files have more rules, in `sources`.

/// Places that exist on one machine only, and hosts that packages are served
/// from: a mirror of a registry is set up outside the repository. Put
/// together here so that this file does not hold them.
const TRACES: [&str; 9] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("/wo", "rk/"),
    concat!("registry", ".npmjs.org"),
    concat!("index", ".crates.io"),
    concat!("proxy", ".golang.org"),
    concat!("files.python", "hosted.org"),
    concat!("deb.deb", "ian.org"),
];

/// All rules for one file of any kind.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for trace in TRACES {
            // After a letter it is part of a longer path, of a URL for example.
            let found = line.match_indices(trace).any(|(at, _)| {
                !trace.starts_with('/') || !line[..at].ends_with(|c: char| c.is_alphanumeric())
            });
            if found {
                problems.push(format!("{path}:{}: `{trace}` belongs to one machine", index + 1));
            }
        }
    }
    problems
}

/// Every crate takes its lints from the workspace.
pub(super) fn check_manifest(path: &str, text: &str) -> Vec<String> {
    // The workspace's own manifest, and the fuzz targets, which are a workspace of their own.
    if text.contains("[workspace]") {
        return Vec::new();
    }
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    match lines.next() {
        Some("workspace = true") => Vec::new(),
        _ => vec![format!("{path}: no `[lints]` with `workspace = true`")],
    }
}

/// What is not yet released has a place to be told.
pub(super) fn check_changelog(text: &str) -> Vec<String> {
    if text.lines().any(|line| line.trim() == "## Unreleased") {
        return Vec::new();
    }
    vec!["CHANGELOG.md: no section `## Unreleased`".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_one_machine() {
        let text = concat!("fine\nsee /ho", "me/ann/x");
        let expected = concat!("a.md:2: `/ho", "me/` belongs to one machine");
        assert_eq!(check("a.md", text), [expected]);
    }
    #[test]
    fn part_of_a_longer_path() {
        assert_eq!(
            check("a.md", concat!("https://example.org/net/wo", "rk/ and net/wo", "rk/x")),
            [""; 0]
        );
    }
    #[test]
    fn host_of_a_registry() {
        let text = concat!("https://registry", ".npmjs.org/x");
        let expected = concat!("a.json:1: `registry", ".npmjs.org` belongs to one machine");
        assert_eq!(check("a.json", text), [expected]);
    }
    #[test]
    fn manifest_with_lints() {
        assert_eq!(check_manifest("x", "[package]\n\n[lints]\nworkspace = true\n"), [""; 0]);
    }
    #[test]
    fn manifest_without_lints() {
        assert_eq!(
            check_manifest("x", "[package]\nworkspace = true\n"),
            ["x: no `[lints]` with `workspace = true`"]
        );
    }
    #[test]
    fn changelog_with_a_place_for_news() {
        assert_eq!(check_changelog("# Changelog\n\n## Unreleased\n"), [""; 0]);
    }
    #[test]
    fn changelog_without_one() {
        assert_eq!(check_changelog("## 0.1.0\n"), ["CHANGELOG.md: no section `## Unreleased`"]);
    }
}
