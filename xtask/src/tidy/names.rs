//! One type name once in the workspace, and questions that do not act.

use std::collections::BTreeMap;
use std::fmt;

use super::packages::Package;
use super::ratchet::{Breach, ListedValue, Unmeasured};

/// The crates that define a type of one name, each as often as it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// However many: the name is the usual one and its path tells which it is.
    Any,
    Crates(Vec<String>),
}

impl ListedValue for Owners {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "" => None,
            "any" => Some(Self::Any),
            crates => Some(Self::Crates(crates.split(' ').map(str::to_owned).collect())),
        }
    }

    fn tightened(&self, found: &Self) -> Option<Self> {
        let (Self::Crates(listed), Self::Crates(found)) = (self, found) else {
            return Some(self.clone());
        };
        let count = |owners: &[String], name| owners.iter().filter(|owner| *owner == name).count();
        let covers = found.iter().all(|name| count(found, name) <= count(listed, name));
        covers.then(|| Self::Crates(found.clone()))
    }

    fn needs_reason(&self) -> bool {
        *self == Self::Any
    }
}

impl fmt::Display for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(f, "any"),
            Self::Crates(crates) => write!(f, "{}", crates.join(" ")),
        }
    }
}

/// Names of types that are defined more than once, kits for tests left out.
pub(super) fn repeated_types(packages: &[Package]) -> Vec<Breach<Owners>> {
    let mut homes: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for package in packages.iter().filter(|package| !package.is_test_kit) {
        for file in &package.files {
            for found in &file.outline.types {
                homes.entry(&found.name).or_default().push((&package.name, file.at(found.line)));
            }
        }
    }
    let repeated = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
    let found = repeated.map(|(name, mut homes)| {
        homes.sort();
        let places: Vec<&str> = homes.iter().map(|(_, at)| at.as_str()).collect();
        Breach {
            key: name.to_owned(),
            problem: format!("type `{name}` is defined more than once: {}", places.join(", ")),
            value: Owners::Crates(homes.iter().map(|(owner, _)| (*owner).to_owned()).collect()),
        }
    });
    found.collect()
}

/// How the name of a question begins.
const QUESTIONS: [&str; 6] = ["is_", "has_", "may_", "must_", "can_", "worth_"];

/// Functions that are called like a question and wait, or change what they are asked of.
pub(super) fn questions_that_act(packages: &[Package]) -> Vec<Breach<Unmeasured>> {
    let mut found = Vec::new();
    for package in packages {
        for file in &package.files {
            for function in file.outline.functions.iter().filter(|function| function.acts) {
                let name = function.name.rsplit("::").next().unwrap_or_default();
                if QUESTIONS.iter().any(|question| name.starts_with(question)) {
                    found.push(Breach {
                        key: format!("{} {}", package.name, function.name),
                        value: Unmeasured,
                        problem: format!(
                            "{}: `{}` is called like a question, and is `async` or takes `&mut self`",
                            file.at(function.line),
                            function.name,
                        ),
                    });
                }
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

    #[test]
    fn type_defined_twice() {
        let packages = one_package(&[
            ("a.rs", "struct A; struct B;"),
            ("b.rs", "\ntype A = u8; #[cfg(test)] mod tests { struct B; }"),
        ]);
        let found = repeated_types(&packages);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].key, "A");
        assert_eq!(found[0].value.to_string(), "x x");
        assert_eq!(
            found[0].problem,
            "type `A` is defined more than once: crates/x/src/a.rs:1, crates/x/src/b.rs:2"
        );
    }
    #[test]
    fn type_defined_once_more_than_listed() {
        let sources = [("a.rs", "struct A;"), ("b.rs", "struct A;"), ("c.rs", "struct A;")];
        let problems = |list: &str, files: usize| {
            let found = repeated_types(&one_package(&sources[..files]));
            let compared = compare("list", list, &found);
            (compared.problems.len(), compared.stale.len())
        };
        assert_eq!(problems("A: x x\n", 2), (0, 0));
        assert_eq!(problems("A: x x\n", 3), (1, 1));
        assert_eq!(problems("A: x y\n", 2), (1, 1));
        assert_eq!(problems("A: x x x\n", 2), (0, 1));
        assert_eq!(problems("A: any | usual\n", 3), (0, 0));
        assert_eq!(problems("A: any\n", 3), (2, 0));
        assert_eq!(problems("A: any | usual\n", 1), (0, 1));
    }
    #[test]
    fn question_that_acts() {
        let text = "impl Run { fn is_well(&self) {} fn may_spend(&mut self) {} fn spend(&mut self) {} }\n\
                    async fn is_worth_waiting() {}";
        let found = questions_that_act(&one_package(&[("a.rs", text)]));
        let found: Vec<(&str, &str)> =
            found.iter().map(|found| (found.key.as_str(), found.problem.as_str())).collect();
        assert_eq!(
            found,
            [
                (
                    "x Run::may_spend",
                    "crates/x/src/a.rs:1: `Run::may_spend` is called like a question, and is `async` or takes `&mut self`"
                ),
                (
                    "x is_worth_waiting",
                    "crates/x/src/a.rs:2: `is_worth_waiting` is called like a question, and is `async` or takes `&mut self`"
                ),
            ]
        );
    }
}
