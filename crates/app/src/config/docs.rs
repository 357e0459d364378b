//! The reference page `docs/config.md`, made from the tables of the settings.
//!
//! The page is checked in, so that it can be read without building; a test fails
//! when it is stale, and `cargo xtask docs` writes it anew.

use std::fmt::Write as _;
use std::sync::LazyLock;

use super::changes::NEEDS_RESTART;
use super::read::Setting;
use super::rule::{Absent, SettingRow, SettingTable, ValueShape};
use super::settings::Settings;
use super::write::Yaml;

const INTRO: &str = "# Configuration

<!-- Generated from crates/app/src/config by `cargo xtask docs`. Do not edit. -->

`wellhead serve` reads the file that `-c` names, or else `./wellhead.yaml`, or else
`/etc/wellhead/wellhead.yaml`. Ten lines are enough:

```yaml
chains:
  ethereum:
    id: 1
    upstreams:
      - url: http://geth:8545
        ws: ws://geth:8546
      - url: https://eth.example/v2/${ETH_KEY}
        tier: fallback
```

`wellhead check` prints the resolved settings, with defaults filled in and secrets
hidden, or every problem in the file with its line. For completion in an editor,
write the schema next to the file and name it in the first line of the file:

```sh
wellhead schema > wellhead.schema.json
```

```yaml
# yaml-language-server: $schema=wellhead.schema.json
```

## Values

| Kind | Examples | |
|---|---|---|
| duration | `500ms`, `3s`, `1m30s`, `2h` | whole numbers, always with a unit |
| size | `512B`, `64KiB`, `5MB`, `1GiB` | `KiB`, `MiB`, `GiB` are powers of 1024; `KB`, `MB`, `GB` powers of 1000 |
| count | `100`, `1_000`, `30M` | `K`, `M`, `G` are powers of 1000 |
| method | `eth_call`, `debug_*`, `*` | `*` matches any characters. Case matters, except in `deny`, because some nodes ignore it |
| `${VAR}` | `https://eth.example/v2/${ETH_KEY}` | an environment variable, inside any value; it is an error if it is unset or empty |
| `${VAR:-default}` | `0.0.0.0:${PORT:-4545}` | with a default, which may be empty, for a variable that is unset or empty |
| `$$` | `pa$$word` | a dollar sign |

Variables are substituted after the YAML is parsed: a value may contain any character
and never adds settings. Inside `{ }` and `[ ]`, quote values that contain `${...}`.
Unknown keys are errors. Anchors, aliases and `<<` work.

wellhead reads the file again when it changes ([operation.md](operation.md#change-settings)). Settings that are
marked *Needs a restart* stay as they are until then.

";

/// The whole page.
pub fn page() -> String {
    let mut out = INTRO.to_owned();
    visit(&Settings::shape(), "", &mut |path, table| section(&mut out, path, table));
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

/// Every key and the section it belongs to, in words: for hints.
pub(super) fn homes() -> &'static [(&'static str, String)] {
    static HOMES: LazyLock<Vec<(&'static str, String)>> = LazyLock::new(|| {
        let mut homes = Vec::new();
        visit(&Settings::shape(), "", &mut |path, table| {
            let home = match path {
                "" => "the top level".to_owned(),
                path => format!("`{path}`"),
            };
            homes.extend(table.rows.iter().map(|row| (row.key, home.clone())));
        });
        homes
    });
    &HOMES
}

fn section(out: &mut String, path: &str, table: &SettingTable) {
    let _ = match path {
        "" => write!(out, "## Top level\n\n"),
        path => write!(out, "## `{path}`\n\n{}\n\n", table.about),
    };
    out.push_str("| Key | Value | Default | |\n|---|---|---|---|\n");
    for row in &table.rows {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} |",
            row.key,
            kind(&row.shape).replace('|', "\\|"),
            absent(row),
            about(row, &join(path, row.key)).replace('|', "\\|")
        );
    }
    out.push('\n');
}

/// Calls `each` for every section, outer ones first.
fn visit(shape: &ValueShape, path: &str, each: &mut impl FnMut(&str, &SettingTable)) {
    let ValueShape::Section(table) = shape else { return };
    each(path, table);
    for row in &table.rows {
        if let Some((path, shape)) = inner(&row.shape, &join(path, row.key)) {
            visit(&shape, &path, each);
        }
    }
}

/// The section inside a shape and its path.
fn inner(shape: &ValueShape, path: &str) -> Option<(String, ValueShape)> {
    match shape {
        ValueShape::Section(_) => Some((path.to_owned(), shape.clone())),
        ValueShape::List(item) => inner(item, &format!("{path}[]")),
        ValueShape::Map { value, .. } => inner(value, &format!("{path}.NAME")),
        ValueShape::Flag | ValueShape::Count | ValueShape::Choice(_) | ValueShape::Text { .. } => {
            None
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn kind(shape: &ValueShape) -> String {
    match shape {
        ValueShape::Flag => "`true` or `false`".to_owned(),
        ValueShape::Count => "count".to_owned(),
        ValueShape::Choice(words) => {
            words().iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        ValueShape::Text { name, .. } => (*name).to_owned(),
        ValueShape::Section(_) => "map".to_owned(),
        ValueShape::List(item) => match &**item {
            ValueShape::Section(_) => "list of maps".to_owned(),
            item @ ValueShape::Choice(_) => format!("list of {}", kind(item)),
            item => format!("list of {}s", kind(item)),
        },
        ValueShape::Map { key, value } => format!("map of {} to {}", kind(key), kind(value)),
    }
}

fn absent(row: &SettingRow) -> String {
    match &row.absent {
        Absent::Required => "**required**".to_owned(),
        Absent::Default(Yaml::Map(_)) => String::new(),
        Absent::Default(Yaml::List(items)) if items.is_empty() => "empty".to_owned(),
        Absent::Default(value) => format!("`{}`", value.inline()),
        Absent::Derived(words) => (*words).to_owned(),
    }
}

fn about(row: &SettingRow, path: &str) -> String {
    let restart = if NEEDS_RESTART.contains(&path) { " *Needs a restart.*" } else { "" };
    format!("{}{}{restart}", row.about, row.bounds.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_need_a_restart_are_settings() {
        let mut known = Vec::new();
        visit(&Settings::shape(), "", &mut |path, table| {
            known.extend(table.rows.iter().map(|row| join(path, row.key)));
        });
        for path in NEEDS_RESTART {
            assert!(known.iter().any(|it| it == path), "{path}");
        }
    }
}
