//! Import circles among the modules of one crate.
//!
//! A module here is one of the top level, with all that is under it. It imports another when a
//! path in it begins with the other's name behind `crate` or `super`, or names something that the
//! crate's root passes on from there. What the root itself defines belongs to no module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::outline::ModulePath;
use super::packages::{Package, SourceFile};
use super::ratchet::{Breach, ListedValue};

/// Modules each of which leads to each other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circle(BTreeSet<String>);

impl ListedValue for Circle {
    fn parse(text: &str) -> Option<Self> {
        let modules: BTreeSet<String> = text.split(' ').map(str::to_owned).collect();
        (modules.len() > 1).then_some(Self(modules))
    }

    fn tightened(&self, found: &Self) -> Option<Self> {
        found.0.is_subset(&self.0).then(|| found.clone())
    }
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules: Vec<&str> = self.0.iter().map(String::as_str).collect();
        write!(f, "{}", modules.join(" "))
    }
}

/// What each module imports, and a place where it does so.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// All circles of all crates.
pub(super) fn find(packages: &[Package]) -> Vec<Breach<Circle>> {
    let mut found = Vec::new();
    for package in packages {
        let imports = imports(package);
        for circle in circles(&imports) {
            let way = shortest(&imports, &circle);
            let (name, value) = (&package.name, Circle(circle));
            let problem = format!("crate `{name}`: modules import each other in a circle: {way}");
            found.push(Breach { key: name.clone(), value, problem });
        }
    }
    found
}

fn imports(package: &Package) -> Imports {
    let is_module =
        |name: &String| package.files.iter().any(|file| file.module.first() == Some(name));
    let root = package.files.iter().filter(|file| file.module.is_empty());
    let mut passed_on: BTreeMap<&str, &str> = BTreeMap::new();
    for path in root.flat_map(|file| &file.outline.paths).filter(|path| path.inside.is_empty()) {
        let segments = match path.segments.as_slice() {
            [first, rest @ ..] if matches!(first.as_str(), "crate" | "self") => rest,
            segments => segments,
        };
        if let ([module, ..], Some(name)) = (segments, &path.alias) {
            passed_on.insert(name, module);
        }
    }
    let mut imports = Imports::new();
    for file in &package.files {
        let Some(module) = file.module.first() else { continue };
        for path in &file.outline.paths {
            let Some(name) = target(file, path) else { continue };
            let target = if is_module(&name) {
                name
            } else {
                match passed_on.get(name.as_str()) {
                    Some(module) => (*module).to_owned(),
                    None => continue,
                }
            };
            if target != *module && is_module(&target) {
                let targets = imports.entry(module.clone()).or_default();
                targets.entry(target).or_insert_with(|| file.at(path.line));
            }
        }
    }
    imports
}

/// The first name behind the crate's root of a path into the crate.
fn target(file: &SourceFile, path: &ModulePath) -> Option<String> {
    names_from_root(file, path)?.into_iter().next()
}

/// The names of a path into the crate, from the crate's root.
pub(super) fn names_from_root(file: &SourceFile, path: &ModulePath) -> Option<Vec<String>> {
    let mut base: Vec<&String> = file.module.iter().chain(&path.inside).collect();
    let mut rest = path.segments.as_slice();
    match rest.first()?.as_str() {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|first| first == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        _ => return None,
    }
    Some(base.into_iter().chain(rest).cloned().collect())
}

/// The sets of modules each of which reaches each other one.
pub(super) fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for module in imports.keys() {
        if found.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let targets = reached(imports, module);
        let circle: BTreeSet<String> = targets
            .keys()
            .filter(|other| reached(imports, other).contains_key(module))
            .cloned()
            .collect();
        if circle.contains(module) {
            found.push(circle);
        }
    }
    found
}

/// Each module that `start` leads to, and the one before it on a shortest way.
fn reached(imports: &Imports, start: &str) -> BTreeMap<String, String> {
    let mut before = BTreeMap::new();
    let mut open = VecDeque::from([start.to_owned()]);
    while let Some(module) = open.pop_front() {
        for target in imports.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if !before.contains_key(target) {
                before.insert(target.clone(), module.clone());
                open.push_back(target.clone());
            }
        }
    }
    before
}

/// A shortest way round within `circle`, with the places of its imports.
pub(super) fn shortest(imports: &Imports, circle: &BTreeSet<String>) -> String {
    let rounds = circle.iter().map(|start| {
        let before = reached(imports, start);
        let mut way = vec![start.clone()];
        loop {
            let last = way[way.len() - 1].clone();
            let Some(previous) = before.get(&last) else { break };
            way.push(previous.clone());
            if previous == start {
                break;
            }
        }
        way.reverse();
        way
    });
    let way = rounds.min_by_key(Vec::len).unwrap_or_default();
    let steps: Vec<String> = way
        .windows(2)
        .map(|step| format!("`{}` -> `{}` ({})", step[0], step[1], imports[&step[0]][&step[1]]))
        .collect();
    steps.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::packages::tests::one_package;
    use super::super::ratchet::compare;
    use super::*;

    fn check(sources: &[(&str, &str)], expected: &[&str]) {
        let found: Vec<String> =
            find(&one_package(sources)).into_iter().map(|found| found.problem).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn imports_in_one_direction() {
        check(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "")], &[]);
    }
    #[test]
    fn circle_of_three() {
        check(
            &[
                ("a.rs", "use crate::b::B;\nuse crate::d::D;"),
                ("b.rs", "\nuse super::c::C;"),
                ("c/e.rs", "fn f() { crate::a::g() }"),
                ("d.rs", ""),
            ],
            &["crate `x`: modules import each other in a circle: \
               `a` -> `b` (crates/x/src/a.rs:1), `b` -> `c` (crates/x/src/b.rs:2), \
               `c` -> `a` (crates/x/src/c/e.rs:1)"],
        );
    }
    #[test]
    fn shortest_way_round() {
        check(
            &[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "use crate::c::C;"),
                ("c.rs", "use crate::a::A; use crate::b::B;"),
            ],
            &["crate `x`: modules import each other in a circle: \
               `b` -> `c` (crates/x/src/b.rs:1), `c` -> `b` (crates/x/src/c.rs:1)"],
        );
    }
    #[test]
    fn circle_through_names_that_the_root_passes_on() {
        check(
            &[
                ("lib.rs", "mod a; mod b; pub use a::A; pub use crate::b::{B as C};"),
                ("a.rs", "use crate::C;"),
                ("b.rs", "impl crate::A {}"),
            ],
            &["crate `x`: modules import each other in a circle: \
               `a` -> `b` (crates/x/src/a.rs:1), `b` -> `a` (crates/x/src/b.rs:1)"],
        );
    }
    #[test]
    fn circle_below_the_top_level() {
        check(
            &[("a/b.rs", "use super::c::C; use crate::a::A;"), ("a/c.rs", "use super::b::B;")],
            &[],
        );
    }
    #[test]
    fn imports_of_tests_and_of_the_root() {
        check(
            &[
                ("lib.rs", "use a::A; fn f() { b::g() }"),
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; } use crate::f;"),
            ],
            &[],
        );
    }
    #[test]
    fn super_counts_from_where_it_stands() {
        check(
            &[
                ("a.rs", "mod m { use super::b::B; } use crate::b::B;"),
                ("a/b.rs", "use super::super::b::B;"),
                ("b.rs", "mod m { use super::super::a::A; }"),
            ],
            &["crate `x`: modules import each other in a circle: \
               `a` -> `b` (crates/x/src/a.rs:1), `b` -> `a` (crates/x/src/b.rs:1)"],
        );
    }
    #[test]
    fn circle_that_grew_or_shrank() {
        let sources = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ];
        let found = find(&one_package(&sources));
        let against = |list: &str| {
            let compared = compare("list", list, &found);
            (compared.problems.len(), compared.stale.len(), compared.shrunk)
        };
        assert_eq!(against("x: a b c\n"), (0, 0, "x: a b c\n".to_owned()));
        assert_eq!(against("x: a b\n"), (1, 1, String::new()));
        assert_eq!(against("x: a b c d\n"), (0, 1, "x: a b c\n".to_owned()));
        assert_eq!(against("y: a b c\n"), (1, 1, String::new()));
    }
}
