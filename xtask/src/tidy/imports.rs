//! Which crate may import which: the table of ARCHITECTURE.md against the manifests.
//!
//! The table is a promise to the reader, so it must match both ways: an import
//! it does not grant is a problem, and so is a grant that is not used. Only
//! what a crate is built from counts; its tests may use any crate. What the
//! sources of a crate name is `sources`' business.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const BEGIN: &str = "<!-- imports:begin -->";
const END: &str = "<!-- imports:end -->";

/// Tools around the product: they may import anything, and nothing may import them.
const OUTSIDE: [&str; 4] = ["xtask", "wellhead-e2e", "wellhead-kit", "wellhead-simulation"];

/// Only these may be built with a socket library.
const SOCKET_CRATES: [&str; 4] = ["net", "server", "sim", "store"];

/// Libraries that open sockets, or speak a protocol over one.
const SOCKET_LIBRARIES: [&str; 9] = [
    "h2",
    "hyper",
    "hyper-util",
    "redis",
    "reqwest",
    "rustls-acme",
    "socket2",
    "tokio-rustls",
    "tokio-tungstenite",
];

/// One crate of the workspace and what it is built from.
#[derive(Debug)]
pub(super) struct Crate {
    /// As in the table: the package's name without its prefix.
    name: String,
    imports: BTreeSet<String>,
    libraries: BTreeSet<String>,
}

/// Reads the workspace's crates from the output of `cargo metadata --no-deps`.
pub(super) fn crates(metadata: &Value) -> Result<Vec<Crate>, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut crates = Vec::new();
    for package in packages {
        let package_name = package["name"].as_str().ok_or("a package without a name")?;
        if OUTSIDE.contains(&package_name) {
            continue;
        }
        let mut found = Crate {
            name: short(package_name).to_owned(),
            imports: BTreeSet::new(),
            libraries: BTreeSet::new(),
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let name = dependency["name"].as_str().ok_or("a dependency without a name")?;
            if dependency["path"].is_string() {
                found.imports.insert(short(name).to_owned());
            } else {
                found.libraries.insert(name.to_owned());
            }
        }
        crates.push(found);
    }
    Ok(crates)
}

/// Compares the table with the crates, and the layers with each other.
pub(super) fn check(architecture: &str, crates: &[Crate]) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(table) = table(architecture, &mut problems) else {
        return vec![format!("ARCHITECTURE.md: no table between `{BEGIN}` and `{END}`")];
    };
    let mut unseen: BTreeSet<&str> = table.keys().map(String::as_str).collect();
    for Crate { name, imports, libraries } in crates {
        unseen.remove(name.as_str());
        if !SOCKET_CRATES.contains(&name.as_str()) {
            for library in SOCKET_LIBRARIES.iter().filter(|library| libraries.contains(**library)) {
                problems.push(format!(
                    "crate `{name}`: depends on `{library}`; only {} open sockets",
                    list(SOCKET_CRATES),
                ));
            }
        }
        let Some(row) = table.get(name) else {
            problems.push(format!("ARCHITECTURE.md: crate `{name}` has no row in the table"));
            continue;
        };
        if row.imports != *imports {
            problems.push(format!(
                "ARCHITECTURE.md: `{name}` imports {}; the table says {}",
                list(imports),
                list(&row.imports),
            ));
        }
        for import in imports {
            if table.get(import).is_some_and(|imported| imported.layer >= row.layer) {
                problems.push(format!(
                    "crate `{name}` (layer {}): may not import `{import}` (layer {}): only lower layers",
                    row.layer, table[import].layer,
                ));
            }
        }
    }
    problems.extend(
        unseen.into_iter().map(|name| format!("ARCHITECTURE.md: there is no crate `{name}`")),
    );
    problems
}

struct TableRow {
    layer: u32,
    imports: BTreeSet<String>,
}

fn table(architecture: &str, problems: &mut Vec<String>) -> Option<BTreeMap<String, TableRow>> {
    let (_, rest) = architecture.split_once(BEGIN)?;
    let (text, _) = rest.split_once(END)?;
    let mut table = BTreeMap::new();
    // The first two lines of a Markdown table are its heading and the rule below it.
    let rows = text.lines().map(str::trim).filter(|line| line.starts_with('|')).skip(2);
    for line in rows {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, layer, imports, ..] = cells.as_slice() else {
            problems.push(format!("ARCHITECTURE.md: a row needs three cells: `{line}`"));
            continue;
        };
        let Ok(layer) = layer.parse() else {
            problems.push(format!("ARCHITECTURE.md: `{layer}` is no layer number: `{line}`"));
            continue;
        };
        let imports = imports.split([',', ' ']).map(plain).filter(|name| !name.is_empty());
        let row = TableRow { layer, imports: imports.map(str::to_owned).collect() };
        if table.insert(plain(name).to_owned(), row).is_some() {
            problems.push(format!("ARCHITECTURE.md: two rows for {name}"));
        }
    }
    (!table.is_empty()).then_some(table)
}

/// A cell's word without its Markdown; dashes stand for nothing.
fn plain(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, '`' | '*' | '-' | '–' | '—' | ' '))
}

fn short(package: &str) -> &str {
    package.strip_prefix("wellhead-").unwrap_or(package)
}

fn list<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `manifests`: "name: import import +library", one a line.
    fn check(rows: &str, manifests: &str, expected: &[&str]) {
        let architecture =
            format!("x\n{BEGIN}\n| crate | layer | may import |\n|---|---|---|\n{rows}\n{END}\n");
        let packages: Vec<Value> = manifests
            .lines()
            .map(|line| {
                let (name, imports) = line.split_once(':').unwrap();
                let dependencies: Vec<Value> = imports
                    .split_whitespace()
                    .map(|word| match word.strip_prefix('+') {
                        Some(library) => json!({ "name": library, "kind": null }),
                        None => match word.strip_prefix('?') {
                            Some(dev) => json!({ "name": dev, "kind": "dev", "path": "/x" }),
                            None => json!({ "name": word, "kind": null, "path": "/x" }),
                        },
                    })
                    .collect();
                json!({ "name": name, "dependencies": dependencies })
            })
            .collect();
        let crates = crates(&json!({ "packages": packages })).unwrap();
        assert_eq!(super::check(&architecture, &crates), expected);
    }

    const TWO_ROWS: &str = "| `eth` | 1 | |\n| `net` | 2 | `eth` |";

    #[test]
    fn table_and_manifests_agree() {
        check(TWO_ROWS, "wellhead-eth:\nwellhead-net: wellhead-eth +hyper", &[]);
    }
    #[test]
    fn the_binary_keeps_its_name() {
        check("| `wellhead` | 9 | — |", "wellhead:", &[]);
    }
    #[test]
    fn import_that_is_not_granted() {
        check(
            "| eth | 1 | |\n| net | 2 | |",
            "wellhead-eth:\nwellhead-net: wellhead-eth",
            &["ARCHITECTURE.md: `net` imports `eth`; the table says nothing"],
        );
    }
    #[test]
    fn grant_that_no_crate_uses() {
        check(
            TWO_ROWS,
            "wellhead-eth:\nwellhead-net:",
            &["ARCHITECTURE.md: `net` imports nothing; the table says `eth`"],
        );
    }
    #[test]
    fn import_from_the_same_layer() {
        check(
            "| eth | 2 | |\n| net | 2 | `eth` |",
            "wellhead-eth:\nwellhead-net: wellhead-eth",
            &["crate `net` (layer 2): may not import `eth` (layer 2): only lower layers"],
        );
    }
    #[test]
    fn tests_may_import_anything() {
        check("| eth | 1 | |\n| net | 2 | |", "wellhead-eth: ?wellhead-net\nwellhead-net:", &[]);
    }
    #[test]
    fn crate_without_a_row() {
        check(
            "| eth | 1 | |",
            "wellhead-eth:\nwellhead-net:",
            &["ARCHITECTURE.md: crate `net` has no row in the table"],
        );
    }
    #[test]
    fn row_without_a_crate() {
        check(TWO_ROWS, "wellhead-eth:", &["ARCHITECTURE.md: there is no crate `net`"]);
    }
    #[test]
    fn layer_that_is_no_number() {
        check(
            "| eth | low | |\n| net | 2 | |",
            "wellhead-net:",
            &["ARCHITECTURE.md: `low` is no layer number: `| eth | low | |`"],
        );
    }
    #[test]
    fn socket_library_in_the_wrong_place() {
        check(
            "| eth | 1 | |",
            "wellhead-eth: +hyper",
            &["crate `eth`: depends on `hyper`; only `net`, `server`, `sim`, `store` open sockets"],
        );
    }
    #[test]
    fn no_table_at_all() {
        assert_eq!(
            super::check("", &[]),
            [
                "ARCHITECTURE.md: no table between `<!-- imports:begin -->` and `<!-- imports:end -->`"
            ],
        );
    }
}
