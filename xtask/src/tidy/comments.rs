//! Doc comments that begin with "The same": what a reader of a hover sees says nothing then.

use std::collections::BTreeMap;

use super::outline::Outline;
use super::ratchet::{Breach, CommentCount};

/// Counts them by crate, or by the first folder outside `crates`; tests count as well.
pub(super) fn find(files: &[(String, Outline)]) -> Vec<Breach<CommentCount>> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, outline) in files {
        let folder = path.strip_prefix("crates/").unwrap_or(path).split('/').next();
        for comment in &outline.doc_beginnings {
            if comment.name.starts_with("The same") {
                let at = format!("{path}:{}", comment.line);
                places.entry(folder.unwrap_or_default()).or_default().push(at);
            }
        }
    }
    let found = places.into_iter().map(|(folder, places)| Breach {
        key: folder.to_owned(),
        value: CommentCount(places.len()),
        problem: format!(
            "`{folder}`: doc comments that begin with \"The same\", say what it is: {}",
            places.join(", "),
        ),
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::super::outline::tests::outline;
    use super::*;

    #[test]
    fn comments_are_counted_by_crate() {
        let files = [
            (
                "crates/net/src/a.rs",
                "/// The same, later.\nfn f() {}\n/// One.\n/// The same.\nfn g() {}",
            ),
            ("crates/net/tests/b.rs", "// The same.\n/// The same.\nfn f() {}"),
            ("fuzz/a.rs", "//! The same"),
        ]
        .map(|(path, text)| (path.to_owned(), outline(text)));
        let found: Vec<(String, CommentCount, String)> =
            find(&files).into_iter().map(|found| (found.key, found.value, found.problem)).collect();
        let say = |folder: &str, places: &str| {
            format!(
                "`{folder}`: doc comments that begin with \"The same\", say what it is: {places}"
            )
        };
        let net = say("net", "crates/net/src/a.rs:1, crates/net/tests/b.rs:2");
        assert_eq!(
            found,
            [
                ("fuzz".to_owned(), CommentCount(1), say("fuzz", "fuzz/a.rs:1")),
                ("net".to_owned(), CommentCount(2), net)
            ]
        );
    }
}
