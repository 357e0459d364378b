//! The arrows between the rooms of a crate, and circles within a room.
//!
//! A room is a top-level module with modules of its own. What a room may import of the other rooms is
//! listed; everything beside the rooms is what they share, and imports none of them.

use std::collections::{BTreeMap, BTreeSet};

use super::circles::{Imports, circles, names_from_root, shortest};
use super::packages::Package;

/// By crate and room, the rooms that it may import.
type Rooms<'a> = BTreeMap<&'a str, BTreeMap<&'a str, BTreeSet<&'a str>>>;

/// Compares the crates with the list.
pub(super) fn check(list: &str, packages: &[Package]) -> Vec<String> {
    let mut rooms = Rooms::new();
    let mut problems = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts = line.split_once(':').and_then(|(key, may)| Some((key.split_once(' ')?, may)));
        let Some(((name, room), may)) = parts else {
            problems.push(format!("rooms.txt: `{line}` is not `crate room: rooms`"));
            continue;
        };
        rooms.entry(name).or_default().insert(room, may.split_whitespace().collect());
    }
    for (name, rooms) in &rooms {
        match packages.iter().find(|package| package.name == *name) {
            Some(package) => problems.extend(arrows(package, rooms)),
            None => problems.push(format!("rooms.txt: there is no crate `{name}`")),
        }
    }
    problems
}

fn arrows(package: &Package, rooms: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        rooms.iter().flat_map(|(room, may)| may.iter().map(|other| (*room, *other))).collect();
    let mut inside: BTreeMap<&str, Imports> = BTreeMap::new();
    for file in &package.files {
        let Some(from) = file.module.first().map(String::as_str) else { continue };
        for path in &file.outline.paths {
            let Some(names) = names_from_root(file, path) else { continue };
            let Some(to) = names.first().map(String::as_str) else { continue };
            if to == from {
                if let ([_, child, ..], [_, other, ..]) = (file.module.as_slice(), &names[..])
                    && child != other
                    && rooms.contains_key(from)
                    && package.files.iter().any(|it| it.module.get(..2) == Some(&names[..2]))
                {
                    let room = rooms.get_key_value(from).map_or("", |(room, _)| *room);
                    let imports = inside.entry(room).or_default();
                    let targets = imports.entry(child.clone()).or_default();
                    targets.entry(other.clone()).or_insert_with(|| file.at(path.line));
                }
                continue;
            }
            if !rooms.contains_key(to) {
                continue;
            }
            if rooms.get(from).is_some_and(|may| may.contains(to)) {
                unused.retain(|arrow| *arrow != (from, to));
            } else {
                let (name, place) = (&package.name, file.at(path.line));
                problems
                    .push(format!("{place}: in crate `{name}`, `{from}` may not import `{to}`"));
            }
        }
    }
    for (from, to) in unused {
        problems
            .push(format!("rooms.txt: in crate `{}`, `{from}` imports no `{to}`", package.name));
    }
    for (room, imports) in inside {
        for circle in circles(&imports) {
            let way = shortest(&imports, &circle);
            problems.push(format!("crate `{}`, room `{room}`: circle: {way}", package.name));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::packages::tests::one_package;
    use super::check as rooms;

    const LIST: &str = "# Rooms.\nx low:\nx high: low\n";
    const USED: (&str, &str) = ("high/a.rs", "use crate::low::a::A;");

    fn check(sources: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<_> = [("low/a.rs", ""), USED].iter().chain(sources).copied().collect();
        assert_eq!(rooms(LIST, &one_package(&sources)), expected);
    }

    #[test]
    fn along_the_arrow() {
        check(&[("high/b.rs", "use crate::low::b; use crate::ground::G;"), ("ground.rs", "")], &[]);
    }
    #[test]
    fn against_the_arrow() {
        check(
            &[("low/b.rs", "\nfn f() { crate::high::a::g() }")],
            &["crates/x/src/low/b.rs:2: in crate `x`, `low` may not import `high`"],
        );
    }
    #[test]
    fn what_rooms_share_imports_none() {
        check(
            &[("ground.rs", "use crate::low::a::A;")],
            &["crates/x/src/ground.rs:1: in crate `x`, `ground` may not import `low`"],
        );
    }
    #[test]
    fn circle_in_a_room() {
        check(
            &[("low/b.rs", "use super::c::C;"), ("low/c.rs", "use crate::low::b::B;")],
            &["crate `x`, room `low`: circle: `b` -> `c` (crates/x/src/low/b.rs:1), \
               `c` -> `b` (crates/x/src/low/c.rs:1)"],
        );
    }
    #[test]
    fn arrow_without_an_import() {
        let problems = rooms(LIST, &one_package(&[("low/a.rs", "")]));
        assert_eq!(problems, ["rooms.txt: in crate `x`, `high` imports no `low`"]);
    }
    #[test]
    fn list_that_names_nothing() {
        assert_eq!(rooms("y a:\n", &[]), ["rooms.txt: there is no crate `y`"]);
        assert_eq!(rooms("y\n", &[]), ["rooms.txt: `y` is not `crate room: rooms`"]);
    }
}
