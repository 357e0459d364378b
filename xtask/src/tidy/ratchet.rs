//! Lists of what a rule does not yet hold for: each can shrink, none can grow.
//!
//! A list is a text file, one entry a line: `key: value | reason`, or `key` alone where the rule
//! knows no more or less. What is found and not listed is a problem; so is what is listed and no
//! longer found, or no longer that much. `cargo xtask tidy --shrink` takes such entries out.

use std::collections::BTreeSet;
use std::fmt;

/// How far an entry lets its key break the rule.
pub(super) trait ListedValue: fmt::Display + PartialEq + Sized {
    fn parse(text: &str) -> Option<Self>;

    /// What is still needed of it for `found`; none where `found` goes beyond it.
    fn tightened(&self, found: &Self) -> Option<Self>;

    /// Whether an entry has to say why.
    fn needs_reason(&self) -> bool {
        false
    }
}

/// Something that breaks a rule.
#[derive(Debug)]
pub(super) struct Breach<V> {
    pub(super) key: String,
    pub(super) value: V,
    pub(super) problem: String,
}

/// What comparing a list with what was found gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListReport {
    /// What is not listed, and lines that are no entries.
    pub(super) problems: Vec<String>,
    /// Entries that are no longer needed, or no longer as they are.
    pub(super) stale: Vec<String>,
    /// The list without those.
    pub(super) shrunk: String,
}

/// Compares the list `name`, whose text is `text`, with all that was found.
pub(super) fn compare<V: ListedValue>(name: &str, text: &str, found: &[Breach<V>]) -> ListReport {
    let mut compared = ListReport::default();
    let mut covered = vec![false; found.len()];
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            compared.shrunk += &format!("{line}\n");
            continue;
        }
        let (entry, reason) = line.split_once(" | ").unwrap_or((line, ""));
        let (key, value) = entry.split_once(": ").unwrap_or((entry, ""));
        let Some(value) =
            V::parse(value).filter(|value| !value.needs_reason() || !reason.is_empty())
        else {
            compared
                .problems
                .push(format!("{name}:{}: no entry, or without its reason: `{line}`", index + 1));
            compared.shrunk += &format!("{line}\n");
            continue;
        };
        let mut needed = BTreeSet::new();
        for (found, covered) in found.iter().zip(&mut covered).filter(|(found, _)| found.key == key)
        {
            if let Some(rest) = value.tightened(&found.value) {
                *covered = true;
                needed.insert(line_of(key, &rest, reason));
            }
        }
        if needed.iter().ne([line]) {
            let now: Vec<String> = needed.iter().map(|line| format!("`{line}`")).collect();
            let now = if now.is_empty() {
                "no longer needed".to_owned()
            } else {
                format!("now {}", now.join(", "))
            };
            compared.stale.push(format!(
                "{name}:{}: `{line}` is {now}: run `cargo xtask tidy --shrink`",
                index + 1
            ));
        }
        compared.shrunk.extend(needed.iter().map(|line| format!("{line}\n")));
    }
    for (found, _) in found.iter().zip(covered).filter(|(_, covered)| !covered) {
        let line = line_of(&found.key, &found.value, "");
        compared.problems.push(format!("{} ({name} has no `{line}`)", found.problem));
    }
    compared
}

fn line_of(key: &str, value: &impl fmt::Display, reason: &str) -> String {
    let value = value.to_string();
    let colon = if value.is_empty() { "" } else { ": " };
    let bar = if reason.is_empty() { "" } else { " | " };
    format!("{key}{colon}{value}{bar}{reason}")
}

/// A number of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommentCount(pub(super) usize);

impl ListedValue for CommentCount {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    fn tightened(&self, found: &Self) -> Option<Self> {
        (found.0 <= self.0).then_some(*found)
    }
}

impl fmt::Display for CommentCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// That it is so, without more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unmeasured;

impl ListedValue for Unmeasured {
    fn parse(text: &str) -> Option<Self> {
        text.is_empty().then_some(Self)
    }

    fn tightened(&self, _: &Self) -> Option<Self> {
        Some(*self)
    }
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `found`: (key, count). `expected`: problems, then stale entries, then the shrunk list.
    fn check(text: &str, found: &[(&str, usize)], problems: &[&str], stale: &[&str], shrunk: &str) {
        let found: Vec<Breach<CommentCount>> = found
            .iter()
            .map(|(key, count)| Breach {
                key: (*key).to_owned(),
                value: CommentCount(*count),
                problem: format!("bad {key}"),
            })
            .collect();
        let compared = compare("list", text, &found);
        assert_eq!(compared.problems, problems);
        assert_eq!(compared.stale, stale);
        assert_eq!(compared.shrunk, shrunk);
    }

    #[test]
    fn list_that_fits() {
        let text = "# Why.\n\na: 2 | because\nb: 1\n";
        check(text, &[("b", 1), ("a", 2)], &[], &[], text);
    }
    #[test]
    fn found_and_not_listed() {
        check("a: 2\n", &[("a", 2), ("b", 1)], &["bad b (list has no `b: 1`)"], &[], "a: 2\n");
    }
    #[test]
    fn more_than_listed() {
        check(
            "a: 2\n",
            &[("a", 3)],
            &["bad a (list has no `a: 3`)"],
            &["list:1: `a: 2` is no longer needed: run `cargo xtask tidy --shrink`"],
            "",
        );
    }
    #[test]
    fn less_than_listed() {
        check(
            "# Why.\na: 2 | because\n",
            &[("a", 1)],
            &[],
            &["list:2: `a: 2 | because` is now `a: 1 | because`: run `cargo xtask tidy --shrink`"],
            "# Why.\na: 1 | because\n",
        );
    }
    #[test]
    fn listed_and_not_found() {
        check(
            "a: 2\n",
            &[],
            &[],
            &["list:1: `a: 2` is no longer needed: run `cargo xtask tidy --shrink`"],
            "",
        );
    }
    #[test]
    fn line_that_is_no_entry() {
        check(
            "a: two\n",
            &[],
            &["list:1: no entry, or without its reason: `a: two`"],
            &[],
            "a: two\n",
        );
    }
    #[test]
    fn entry_without_a_value() {
        let found = [Breach { key: "a b".to_owned(), value: Unmeasured, problem: String::new() }];
        assert_eq!(compare("list", "a b\n", &found).stale, [""; 0]);
        assert_eq!(compare::<Unmeasured>("list", "a b\n", &[]).stale.len(), 1);
    }
}
