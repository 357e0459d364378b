//! `${VAR}` and `${VAR:-default}` inside the values of a config file.
//!
//! Works on one value after YAML has been read, so that what a variable holds can
//! never add a key or an item. Nothing is nested, nothing is run: `$(...)` and
//! `$VAR` without braces stay as they are. `$$` is one dollar sign. A variable that is set to
//! nothing is a mistake like one that is not set, unless a default stands for it: a URL or a token
//! that lacks its key would look sound until the first call.

use super::problem::Wrong;

/// Looks a variable up. The process's environment, or a table in tests.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What went wrong with one reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadReference {
    /// The reference as written, to find its place: `${VAR}`.
    pub written: String,
    /// What is wrong with it.
    pub wrong: Wrong,
}

/// A text with its references replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Substituted {
    /// The text as meant.
    pub text: String,
    /// Whether any part of it came from the environment.
    pub from_env: bool,
}

/// Replaces each reference in `text`; reports every bad one, not only the first.
pub(super) fn substitute(
    text: &str,
    lookup: EnvLookup<'_>,
) -> Result<Substituted, Vec<BadReference>> {
    let mut out = String::with_capacity(text.len());
    let mut from_env = false;
    let mut bad = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some(inside) = after.strip_prefix('{') {
            let Some(end) = inside.find('}') else {
                let hint = "write `${NAME}`, or `$$` for a dollar sign";
                let wrong = Wrong::hinted("`${` is never closed", hint);
                bad.push(BadReference { written: "${".to_owned(), wrong });
                break;
            };
            match resolve(&inside[..end], lookup) {
                Ok(Some(value)) => {
                    from_env = true;
                    out.push_str(&value);
                }
                Ok(None) => out.push_str(default_of(&inside[..end]).unwrap_or_default()),
                Err(wrong) => {
                    let written = format!("${{{}}}", &inside[..end]);
                    bad.push(BadReference { written, wrong });
                }
            }
            rest = &inside[end + 1..];
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    if bad.is_empty() { Ok(Substituted { text: out, from_env }) } else { Err(bad) }
}

/// The variable's value; `None` means its default stands.
fn resolve(inside: &str, lookup: EnvLookup<'_>) -> Result<Option<String>, Wrong> {
    let name = inside.split(':').next().unwrap_or_default();
    let default = default_of(inside);
    if !is_name(name) || (default.is_none() && name != inside) {
        let hint = "write `${NAME}` or `${NAME:-default}`, or `$$` for a dollar sign";
        return Err(Wrong::hinted("this is not a reference to a variable", hint));
    }
    if default.is_some_and(|default| default.contains("${")) {
        let hint = format!("write a plain text after `{name}:-`");
        return Err(Wrong::hinted("a default cannot refer to another variable", hint));
    }
    match lookup(name) {
        // As in the shell, `:-` also covers a variable that is set to nothing.
        Some(value) if value.is_empty() && default.is_some() => Ok(None),
        Some(value) if value.is_empty() => Err(Wrong::hinted(
            format!("the environment variable `{name}` is empty"),
            format!("set it, or give a default, which may be empty: `${{{name}:-}}`"),
        )),
        Some(value) => Ok(Some(value)),
        None if default.is_some() => Ok(None),
        None => Err(Wrong::hinted(
            format!("the environment variable `{name}` is not set"),
            format!("set it, or give a default: `${{{name}:-...}}`"),
        )),
    }
}

fn default_of(inside: &str) -> Option<&str> {
    inside.split_once(":-").map(|(_, default)| default)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("k3y".to_owned()),
            "EMPTY" => Some(String::new()),
            "YAML" => Some("a: [b".to_owned()),
            "REF" => Some("${KEY}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_are_replaced() {
        for (text, meant, from_env) in [
            ("plain", "plain", false),
            ("https://h/${KEY}/x", "https://h/k3y/x", true),
            ("${KEY}${KEY}", "k3yk3y", true),
            ("${NONE:-8080}", "8080", false),
            ("${NONE:-}", "", false),
            ("${NONE:-a:-b}", "a:-b", false),
            ("${EMPTY:-x}", "x", false),
            ("${EMPTY:-}", "", false),
            ("$$", "$", false),
            ("$${KEY}", "${KEY}", false),
            ("$$$KEY", "$$KEY", false),
            ("pa$$word", "pa$word", false),
            ("pa$word$", "pa$word$", false),
            ("${YAML}", "a: [b", true),
            // A value is never read again: what it holds is only text.
            ("${REF}", "${KEY}", true),
        ] {
            let expected = Substituted { text: meant.to_owned(), from_env };
            assert_eq!(substitute(text, &lookup), Ok(expected), "{text}");
        }
    }

    #[test]
    fn every_bad_reference_is_reported() {
        for (text, messages) in [
            ("${NONE}", vec!["the environment variable `NONE` is not set"]),
            ("https://h/v2/${EMPTY}", vec!["the environment variable `EMPTY` is empty"]),
            (
                "${A} ${B}",
                vec![
                    "the environment variable `A` is not set",
                    "the environment variable `B` is not set",
                ],
            ),
            ("${KEY", vec!["`${` is never closed"]),
            ("${}", vec!["this is not a reference to a variable"]),
            ("${1A}", vec!["this is not a reference to a variable"]),
            ("${A-b}", vec!["this is not a reference to a variable"]),
            ("${A:b}", vec!["this is not a reference to a variable"]),
            ("${A:-${B}}", vec!["a default cannot refer to another variable"]),
        ] {
            let bad = substitute(text, &lookup).expect_err(text);
            let found: Vec<_> = bad.iter().map(|bad| bad.wrong.message.as_str()).collect();
            assert_eq!(found, messages, "{text}");
        }
    }
}
