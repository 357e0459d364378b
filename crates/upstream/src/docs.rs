//! The reference page of verdicts, written from the rules themselves.
//!
//! `docs/verdicts.md` is this text; a test compares them.

mod providers;

pub use providers::providers_page;

use std::fmt::Write;

use crate::judge::{BUILT_IN, Judge};
use crate::rule::{Recorded, RuleSet, VerdictRule};
use crate::verdict::VerdictClass;

/// Errors shown for each rule; the rule file has them all.
const EXAMPLE_CHARACTERS_MAX: usize = 110;

/// The page `docs/verdicts.md`. `cargo xtask docs` writes it.
pub fn verdicts_page() -> String {
    let rules = Judge::standard().rules();
    let mut page = String::new();
    write(&mut page, rules).expect("writing to a String does not fail");
    page
}

fn write(page: &mut String, rules: &RuleSet) -> std::fmt::Result {
    let recorded: usize = rules.rules.iter().map(|rule| rule.recorded.len()).sum();
    let is_seen = |recorded: &&Recorded| recorded.seen.is_some();
    let seen = rules.rules.iter().flat_map(|rule| &rule.recorded).filter(is_seen).count();
    writeln!(
        page,
        "# Verdicts

<!-- Generated from crates/upstream/data/rules by `cargo xtask docs`. Do not edit. -->

Every reply of an upstream becomes a verdict before a client, the cache or a quorum gets it. The
verdict decides whether the reply is final, whether another upstream is called, and what it means
for the upstream's health. {count} rules classify errors. They are applied in the order below; the
first one that matches decides. The name of the rule is in the trail and in the metrics.

A reply with a `result` under wellhead's id is an answer, and no rule applies to it. Texts are
compared without regard to case. The rules are data, in `crates/upstream/data/rules`, and each
contains the errors for which it was written, as its test: {recorded} in all. {seen} of these are
published bodies, with their source, with the id replaced and keys removed. For the others only the
text is known, and the body around it was reconstructed.

## Classes

| class | meaning | caused by | try another upstream | health | code |
| --- | --- | --- | --- | --- | --- |",
        count = rules.rules.len(),
    )?;
    write_classes(page)?;
    writeln!(
        page,
        "
*Try another upstream* says whether another one may do better; the method table decides whether a
call may be repeated at all. *Code* is used if the proxy has to write the error itself. An upstream's
own error object goes to the client unchanged, except for `auth` and `billing`, whose text may quote
a key.

## Verdicts without a rule

| verdict | class | when |
| --- | --- | --- |"
    )?;
    for (name, class, about) in BUILT_IN {
        writeln!(page, "| `{name}` | `{class}` | {about} |")?;
    }
    write_rules(page, rules)
}

/// A section for each stage, and a row for each of its rules.
fn write_rules(page: &mut String, rules: &RuleSet) -> std::fmt::Result {
    for (index, stage) in rules.stages.iter().enumerate() {
        writeln!(page, "\n## {}\n\n{}\n", title(stage.name), stage.about)?;
        writeln!(page, "| rule | class | condition | example | source |")?;
        writeln!(page, "| --- | --- | --- | --- | --- |")?;
        for rule in rules.rules.iter().filter(|rule| rule.stage == index) {
            row(page, rule)?;
        }
    }
    Ok(())
}

/// The rows of the table of classes.
fn write_classes(page: &mut String) -> std::fmt::Result {
    for class in VerdictClass::ALL {
        let code = match class.client_code() {
            0 => "–".to_owned(),
            code => code.to_string(),
        };
        writeln!(
            page,
            "| `{class}` | {} | {} | {} | {} | {code} |",
            class.about(),
            class.doing().word(),
            class.try_elsewhere().word(),
            class.health().word(),
        )?;
    }
    Ok(())
}

fn row(page: &mut String, rule: &VerdictRule) -> std::fmt::Result {
    let mut class = format!("`{}`", rule.class);
    if rule.elsewhere != rule.class.try_elsewhere() {
        write!(class, "; try another upstream: {}", rule.elsewhere.word())?;
    }
    if rule.health != rule.class.health() {
        write!(class, "; health: {}", rule.health.word())?;
    }
    let example = rule.recorded.first().map_or("", |recorded| recorded.body.as_str());
    let mut source = rule.source.clone();
    if let Some(note) = &rule.note {
        write!(source, ". *{note}*")?;
    }
    writeln!(
        page,
        "| `{}` | {class} | {} | {} | {} |",
        rule.name,
        cell(&rule.conditions),
        code(example),
        cell(&source),
    )
}

fn title(stage: &str) -> String {
    let words = stage.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Text that neither ends the cell nor becomes HTML.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace("<h", "&lt;h").replace("<!", "&lt;!")
}

fn code(text: &str) -> String {
    if text.is_empty() {
        return "an empty body".to_owned();
    }
    let mut short: String = text.chars().take(EXAMPLE_CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("`{}`", short.replace('|', "\\|").replace('`', "'"))
}
