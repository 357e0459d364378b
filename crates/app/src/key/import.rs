//! Files of other proxies with keys in them: proxyd's TOML, nodecore's YAML, or a plain list.
//!
//! Of TOML the table `[authentication]` alone is read, line by line, as proxyd writes it: `"secret" =
//! "alias"`. Problems have the line and quote nothing, as what stands there is a secret.

use wellhead_access::{KeyRecord, RightsSettings};
use wellhead_telemetry::Secret;

use crate::cli::key::ImportFormat;
use crate::config::{ForeignEntry, nodecore_keys};

/// A larger file is none of keys.
pub(crate) const IMPORT_BYTES_MAX: u64 = 64 << 20;

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct ForeignKeys {
    pub(crate) entries: Vec<ForeignEntry>,
    pub(crate) problems: Vec<String>,
}

/// How a file is written, by the end of its name.
pub(crate) fn guess_format(path: &std::path::Path) -> ImportFormat {
    match path.extension().and_then(|end| end.to_str()) {
        Some("toml") => ImportFormat::Proxyd,
        Some("yaml" | "yml") => ImportFormat::Nodecore,
        Some(_) | None => ImportFormat::Plain,
    }
}

/// Reads a file. `lookup` is the environment, which proxyd's `$NAME` stands for.
pub(crate) fn read(
    format: ImportFormat,
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> ForeignKeys {
    let mut keys = ForeignKeys::default();
    match format {
        ImportFormat::Proxyd => read_proxyd(text, lookup, &mut keys),
        ImportFormat::Nodecore => (keys.entries, keys.problems) = nodecore_keys(text),
        ImportFormat::Plain => read_plain(text, &mut keys),
    }
    if keys.entries.is_empty() && keys.problems.is_empty() {
        let what = match format {
            ImportFormat::Proxyd => "there is no key in it: `[authentication]` is missing or empty",
            ImportFormat::Nodecore => {
                "there is no key in it: `auth.key-management` is missing or empty"
            }
            ImportFormat::Plain => "there is no key in it",
        };
        keys.problems.push(what.to_owned());
    }
    keys
}

impl ForeignKeys {
    fn add(&mut self, line: usize, secret: &str, note: &str) {
        let note = Some(note.trim()).filter(|note| !note.is_empty()).map(str::to_owned);
        let (secret, rights) = (Secret::new(secret), RightsSettings::default());
        self.entries.push(ForeignEntry { line, secret, note, rights });
    }
}

fn read_plain(text: &str, keys: &mut ForeignKeys) {
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // A file of keys of ours has hashes, and would make keys of its lines.
        if KeyRecord::parse(line).is_ok() {
            keys.problems.push(format!("line {number}: this is a record of a key, not a secret"));
            continue;
        }
        let (secret, note) = line.split_once(',').unwrap_or((line, ""));
        keys.add(number, secret.trim(), note);
    }
}

fn read_proxyd(text: &str, lookup: &dyn Fn(&str) -> Option<String>, keys: &mut ForeignKeys) {
    let mut is_inside = false;
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let name = header.split(']').next().unwrap_or_default().trim();
            is_inside = name == "authentication" && !header.starts_with('[');
            continue;
        }
        if !is_inside {
            continue;
        }
        let Some((secret, alias)) = toml_pair(line) else {
            keys.problems.push(format!("line {number}: expected `\"secret\" = \"alias\"`"));
            continue;
        };
        match secret.strip_prefix('$') {
            None => keys.add(number, secret, alias),
            Some(name) => match lookup(name) {
                Some(secret) => keys.add(number, &secret, alias),
                None => keys.problems.push(format!(
                    "line {number}: the secret is in an environment variable that is not set here"
                )),
            },
        }
    }
}

/// `key = "value"`, the key bare or in quotes; without escapes, which no secret needs.
fn toml_pair(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = match line.chars().next()? {
        quote @ ('"' | '\'') => line[1..].split_once(quote)?,
        _ => {
            let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)))?;
            line.split_at(end)
        }
    };
    let value = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let (value, rest) = value[1..].split_once(quote)?;
    let rest = rest.trim_start();
    let is_whole = rest.is_empty() || rest.starts_with('#');
    (is_whole && !key.is_empty() && !key.contains('\\') && !value.contains('\\'))
        .then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys as `line secret note`, and the problems.
    #[track_caller]
    fn check(format: ImportFormat, text: &str, want: &[&str]) -> ForeignKeys {
        let lookup = |name: &str| (name == "SECRET").then(|| "from-environment".to_owned());
        let keys = read(format, text, &lookup);
        let shown = keys.entries.iter().map(|entry| {
            let note = entry.note.as_deref().unwrap_or("-");
            format!("{} {} {note}", entry.line, entry.secret.expose())
        });
        let found: Vec<_> = shown.chain(keys.problems.iter().cloned()).collect();
        assert_eq!(found, want);
        keys
    }

    #[test]
    fn plain_lists() {
        check(
            ImportFormat::Plain,
            "# keys\nfirst-secret\n\n second , team a, and b \n",
            &["2 first-secret -", "4 second team a, and b"],
        );
        check(ImportFormat::Plain, "#\n", &["there is no key in it"]);
        let hash = "00".repeat(32);
        check(
            ImportFormat::Plain,
            &format!(r#"{{"id":"7c9xk2ma","hash":"{hash}","tenant":"acme"}}"#),
            &["line 1: this is a record of a key, not a secret"],
        );
    }

    #[test]
    fn proxyd() {
        check(
            ImportFormat::Proxyd,
            "[server]\nrpc_port = 8080\n[authentication]\n\"secret one\" = \"a\"\nbare_2 = 'b' # x\n\
             \"$SECRET\" = \"c\"\n\"$NONE\" = \"d\"\nopen\n\"e\" = 1\n[backends]\nx = \"y\"\n[[authentication]]\nx = \"y\"\n",
            &[
                "4 secret one a",
                "5 bare_2 b",
                "6 from-environment c",
                "line 7: the secret is in an environment variable that is not set here",
                "line 8: expected `\"secret\" = \"alias\"`",
                "line 9: expected `\"secret\" = \"alias\"`",
            ],
        );
        check(
            ImportFormat::Proxyd,
            "[server]\n",
            &["there is no key in it: `[authentication]` is missing or empty"],
        );
    }

    #[test]
    fn nodecore() {
        let keys = check(
            ImportFormat::Nodecore,
            "auth:\n  key-management:\n    - id: one\n      type: local\n      local:\n        key: first-secret\n        settings:\n          \
             allowed-ips: [\"192.0.2.1\"]\n          methods: { allowed: [eth_call], forbidden: [eth_syncing] }\n          \
             contracts: { allowed: [\"0x00000000000000000000000000000000000000aa\"] }\n    - { id: two, type: local, local: { key: second } }\n",
            &["6 first-secret one", "11 second two"],
        );
        let rights = &keys.entries[0].rights;
        assert_eq!(rights.networks.as_deref(), Some(&["192.0.2.1".to_owned()][..]));
        assert_eq!(rights.methods.allow.as_deref(), Some(&["eth_call".to_owned()][..]));
        assert_eq!(rights.methods.deny, ["eth_syncing"]);
        assert_eq!(rights.contracts.as_ref().map(Vec::len), Some(1));
        assert!(keys.entries[1].rights.is_empty());
        check(
            ImportFormat::Nodecore,
            "auth:\n  key-management:\n    - id: one\n      type: drpc\n    - [x]\n",
            &[
                "line 3: there is no `local.key`: keys of another type are not in the file",
                "line 5: there is no `local.key`: keys of another type are not in the file",
            ],
        );
        check(
            ImportFormat::Nodecore,
            "server: {}\n",
            &["there is no key in it: `auth.key-management` is missing or empty"],
        );
        let broken = read(ImportFormat::Nodecore, "a: [\n", &|_| None);
        assert_eq!(broken.problems, ["line 1: this is not valid YAML: unclosed bracket '['"]);
    }
}
