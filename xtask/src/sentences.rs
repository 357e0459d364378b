//! `docs/analyze-sentences.md`: everything that the analyser says, for a reviewer to read in one place.
//!
//! Verdicts and help are rendered by the code itself. Evidence, reasons, the report and what the
//! commands print are listed as the sources have them, with their placeholders.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::mask::strings;

/// Sources whose texts people read.
const SOURCES: [&str; 6] = [
    "crates/analyze/src/conclude",
    "crates/analyze/src/report",
    "crates/analyze/src/report.rs",
    "crates/analyze/src/gate",
    "crates/app/src/analyze",
    "crates/app/src/analyze.rs",
];

/// What is rendered above, or is no text of the product.
const LEFT_OUT: [&str; 2] = ["samples.rs", "kind.rs"];

/// The page.
pub(crate) fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut out = format!(
        "# What the analyser says\n\n<!-- Generated from the sources by `cargo xtask docs`. Do not edit. -->\n\n\
         Each sentence of verdicts, of the help and of the report. In the last part `{{}}` stands for a \
         figure or a name.\n\n{}\n## Evidence, report and messages\n",
        wellhead_app::cli::sentences::analyze_sentences(),
    );
    let mut files = Vec::new();
    SOURCES.iter().for_each(|source| list(&root.join(source), &mut files));
    files.sort();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let texts = texts(&text);
        if !texts.is_empty() {
            let name = file.strip_prefix(&root).unwrap_or(&file).display();
            let _ = write!(out, "\n### `{name}`\n\n");
            for text in texts {
                let _ = writeln!(out, "- {text}");
            }
        }
    }
    out
}

fn list(path: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else { return out.push(path.to_owned()) };
    for entry in entries.flatten().map(|entry| entry.path()) {
        let name = entry.file_name().map_or_else(String::new, |it| it.to_string_lossy().into());
        let is_test = name.contains("tests.rs") || LEFT_OUT.contains(&name.as_str());
        if entry.is_dir() || (name.ends_with(".rs") && !is_test) {
            list(&entry, out);
        }
    }
}

/// The texts of a source, each once: strings of words, without those of tests, of attributes and of
/// facts that an `expect` names.
fn texts(source: &str) -> Vec<String> {
    let production = &source[..source.find("#[cfg(test)]").unwrap_or(source.len())];
    let mut found = Vec::new();
    for (at, string) in strings(production) {
        let before = production[..at].trim_end();
        let line = before.lines().last().unwrap_or_default().trim_start();
        if before.ends_with("expect(") || line.starts_with("#[") {
            continue;
        }
        let text = unescaped(string);
        let is_text = text.split_whitespace().filter(|word| is_word(word)).count() > 1;
        let is_code = text.starts_with('<') && text.ends_with('>') && !text.contains("</");
        if is_text && !is_code && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

fn is_word(word: &str) -> bool {
    word.chars().filter(|c| c.is_alphabetic()).count() > 1 && !word.contains(['=', '<', '"'])
}

/// On one line, without its quotes.
fn unescaped(string: &str) -> String {
    let inside = string.trim_start_matches(['b', 'r', '#']).trim_end_matches('#');
    let inside = inside.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(inside);
    let mut lines = inside.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let joined = lines.fold(first, |text, line| text + line.trim_start());
    let spaced = joined.replace("\\n", " ").replace("\\\"", "\"");
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[&str]) {
        assert_eq!(texts(source), expected);
    }

    #[test]
    fn strings_of_words() {
        check(
            "f(\"one call of {}\"); g(\"key\", \"one call of {}\", \"a{}b\");",
            &["one call of {}"],
        );
        check("f(\"broken \\\n    in two\"); // \"not this one\"", &["broken in two"]);
        check("f(r#\"says \"so\" here\"#)", &["says \"so\" here"]);
    }
    #[test]
    fn what_nobody_reads() {
        check(
            "#[expect(lint, reason = \"of the code\")] fn f() { x.expect(\"a fact of the code\") }",
            &[],
        );
        check("f(\"<div class=\\\"a b\\\">\");\n#[cfg(test)] mod tests { f(\"of a test\") }", &[]);
    }
}
