//! Functions that are longer, or take more values, than a reader can hold at once.

use std::collections::BTreeMap;
use std::fmt;

use super::packages::Package;
use super::ratchet::{Breach, ListedValue};

/// Lines from `fn` to the closing brace: a screen.
const LINES_MAX: usize = 60;

/// Parameters without `self`, a tuple pattern counted out into its elements.
const PARAMETERS_MAX: usize = 6;

/// How far a function is over the limits; nothing where it is within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Rounded up to tens, so that not every change of a line is one of the list.
    lines: Option<usize>,
    parameters: Option<usize>,
}

impl Size {
    fn of(lines: usize, parameters: usize) -> Option<Self> {
        let lines = (lines > LINES_MAX).then(|| lines.next_multiple_of(10));
        let parameters = (parameters > PARAMETERS_MAX).then_some(parameters);
        (lines.is_some() || parameters.is_some()).then_some(Self { lines, parameters })
    }
}

impl ListedValue for Size {
    fn parse(text: &str) -> Option<Self> {
        let mut size = Self { lines: None, parameters: None };
        for part in text.split(", ") {
            match part.split_once(' ')? {
                (number, "lines") => size.lines = Some(number.parse().ok()?),
                (number, "parameters") => size.parameters = Some(number.parse().ok()?),
                _ => return None,
            }
        }
        Some(size)
    }

    fn tightened(&self, found: &Self) -> Option<Self> {
        // `None` is less than any number.
        (found.lines <= self.lines && found.parameters <= self.parameters).then_some(*found)
    }

    fn needs_reason(&self) -> bool {
        true
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lines, self.parameters) {
            (Some(lines), Some(parameters)) => write!(f, "{lines} lines, {parameters} parameters"),
            (Some(lines), None) => write!(f, "{lines} lines"),
            (None, Some(parameters)) => write!(f, "{parameters} parameters"),
            (None, None) => Ok(()),
        }
    }
}

/// Functions over a limit; of several with one name in a crate the second is `name#2`.
pub(super) fn find(packages: &[Package]) -> Vec<Breach<Size>> {
    let mut found = Vec::new();
    for package in packages {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for file in &package.files {
            for function in &file.outline.functions {
                let Some(value) = Size::of(function.lines, function.parameters) else { continue };
                let times = seen.entry(&function.name).or_default();
                *times += 1;
                let number = if *times > 1 { format!("#{times}") } else { String::new() };
                found.push(Breach {
                    key: format!("{} {}{number}", package.name, function.name),
                    value,
                    problem: format!(
                        "{}: `{}` has {} lines and {} parameters; at most {LINES_MAX} and {PARAMETERS_MAX}",
                        file.at(function.line),
                        function.name,
                        function.lines,
                        function.parameters,
                    ),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::packages::tests::one_package;
    use super::super::ratchet::compare;
    use super::*;

    fn check(text: &str, list: &str, problems: &[&str], stale: usize) {
        let compared = compare("list", list, &find(&one_package(&[("a.rs", text)])));
        assert_eq!(compared.problems, problems);
        assert_eq!(compared.stale.len(), stale);
    }

    fn long(name: &str, lines: usize) -> String {
        format!("fn {name}() {{{}}}\n", "\n".repeat(lines - 1))
    }

    #[test]
    fn function_of_a_screen() {
        check(&long("f", 60), "", &[], 0);
    }
    #[test]
    fn long_function() {
        check(
            &long("f", 61),
            "",
            &[
                "crates/x/src/a.rs:1: `f` has 61 lines and 0 parameters; at most 60 and 6 (list has no `x f: 70 lines`)",
            ],
            0,
        );
        check(&long("f", 61), "x f: 70 lines | a table\n", &[], 0);
        check(&long("f", 61), "x f: 80 lines | a table\n", &[], 1);
        check(&long("f", 60), "x f: 70 lines | a table\n", &[], 1);
    }
    #[test]
    fn entry_without_a_reason() {
        check(
            &long("f", 60),
            "x f: 70 lines\n",
            &["list:1: no entry, or without its reason: `x f: 70 lines`"],
            0,
        );
    }
    #[test]
    fn parameters_behind_a_tuple() {
        check("impl X { fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {} }", "", &[], 0);
        check(
            "fn f((a, b): (u8, u8), c: u8, d: u8, e: u8, f: u8, g: u8) {}",
            "",
            &[
                "crates/x/src/a.rs:1: `f` has 1 lines and 7 parameters; at most 60 and 6 (list has no `x f: 7 parameters`)",
            ],
            0,
        );
    }
    #[test]
    fn second_function_of_a_name() {
        let text = long("f", 61) + &long("f", 81);
        check(&text, "x f: 70 lines | a\nx f#2: 90 lines | b\n", &[], 0);
    }
}
