//! Settings written back as YAML: the answer of `wellhead check`.
//!
//! Values that are decided at run time stand as comments. Text is quoted whenever
//! a YAML reader, of whichever version, could take it for something else.

/// A value on its way to text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Yaml {
    /// A value that needs no quotes: numbers, durations, flags.
    Plain(String),
    /// Any text; quoted where needed.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// A map.
    Map(Vec<(String, Self)>),
    /// A text, and a comment behind it where it stands on a line of its own.
    Noted(String, String),
    /// Not given, and nothing takes its place.
    Absent,
    /// Not given: these words say what takes its place.
    Derived(&'static str),
}

impl Yaml {
    /// On one line, as in the reference.
    pub(super) fn inline(&self) -> String {
        match self {
            Self::Plain(text) => text.clone(),
            Self::Text(text) | Self::Noted(text, _) => quoted(text),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::inline).collect::<Vec<_>>().join(", "))
            }
            Self::Map(entries) => {
                let shown: Vec<_> = entries
                    .iter()
                    .filter(|(_, value)| !matches!(value, Self::Absent | Self::Derived(_)))
                    .map(|(key, value)| format!("{}: {}", quoted(key), value.inline()))
                    .collect();
                if shown.is_empty() {
                    "{}".to_owned()
                } else {
                    format!("{{ {} }}", shown.join(", "))
                }
            }
            Self::Absent => "none".to_owned(),
            Self::Derived(words) => (*words).to_owned(),
        }
    }

    /// What stands below these keys of maps.
    pub(super) fn at(&mut self, keys: &[&str]) -> Option<&mut Self> {
        let Some((first, rest)) = keys.split_first() else { return Some(self) };
        let Self::Map(entries) = self else { return None };
        entries.iter_mut().find(|(key, _)| key == first)?.1.at(rest)
    }

    /// Adds a comment to a map: what holds of `key`, which is no setting there.
    pub(super) fn note(&mut self, key: &str, words: &'static str) {
        if let Self::Map(entries) = self {
            entries.push((key.to_owned(), Self::Derived(words)));
        }
    }

    /// As a document.
    pub(super) fn document(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Map(entries) => write_map(&mut out, entries, 0),
            Self::Plain(_)
            | Self::Text(_)
            | Self::Noted(..)
            | Self::List(_)
            | Self::Absent
            | Self::Derived(_) => {
                out.push_str(&self.inline());
                out.push('\n');
            }
        }
        out
    }

    fn is_simple(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Text(_) | Self::Noted(..) => true,
            Self::List(items) => {
                items.iter().all(|item| matches!(item, Self::Plain(_) | Self::Text(_)))
            }
            Self::Map(entries) => entries.is_empty(),
            Self::Absent | Self::Derived(_) => true,
        }
    }
}

fn write_map(out: &mut String, entries: &[(String, Yaml)], indent: usize) {
    for (key, value) in entries {
        match value {
            Yaml::Absent => continue,
            Yaml::Derived(words) => {
                pad(out, indent);
                out.push_str(&format!("# {key}: {words}\n"));
                continue;
            }
            Yaml::Plain(_) | Yaml::Text(_) | Yaml::Noted(..) | Yaml::List(_) | Yaml::Map(_) => {}
        }
        pad(out, indent);
        out.push_str(&quoted(key));
        out.push(':');
        write_value(out, value, indent);
    }
}

fn write_value(out: &mut String, value: &Yaml, indent: usize) {
    match value {
        simple if simple.is_simple() => {
            out.push(' ');
            out.push_str(&simple.inline());
            if let Yaml::Noted(_, note) = simple {
                // No break in it can end the comment.
                out.push_str(" # ");
                out.extend(note.chars().filter(|c| !c.is_control()));
            }
            out.push('\n');
        }
        Yaml::Map(entries) => {
            out.push('\n');
            write_map(out, entries, indent + 2);
        }
        Yaml::List(items) => {
            out.push('\n');
            for item in items {
                pad(out, indent + 2);
                out.push('-');
                match item {
                    Yaml::Map(entries) => write_item(out, entries, indent + 4),
                    other => write_value(out, other, indent + 2),
                }
            }
        }
        Yaml::Plain(_) | Yaml::Text(_) | Yaml::Noted(..) | Yaml::Absent | Yaml::Derived(_) => {
            out.push('\n');
        }
    }
}

/// A map as list item: its first given key follows the dash.
fn write_item(out: &mut String, entries: &[(String, Yaml)], indent: usize) {
    let given = |value: &Yaml| !matches!(value, Yaml::Absent | Yaml::Derived(_));
    let Some(first) = entries.iter().position(|(_, value)| given(value)) else {
        out.push_str(" {}\n");
        return;
    };
    let mut entries = entries.to_vec();
    // Comments about derived values follow the first given key.
    entries[..=first].rotate_right(1);
    let mut text = String::new();
    write_map(&mut text, &entries, indent);
    out.push(' ');
    out.push_str(text.trim_start());
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Quoted unless every YAML reader takes it for the same plain text.
pub(super) fn quoted(text: &str) -> String {
    let plain_start = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'/');
    let plain_rest = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/' | b':' | b'='));
    let reserved = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
    );
    if plain_start && plain_rest && !reserved && !text.ends_with(':') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // What comes from here is read again, references included.
            '$' => out.push_str("$$"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Yaml {
        Yaml::Text(text.to_owned())
    }

    fn map(entries: &[(&str, Yaml)]) -> Yaml {
        Yaml::Map(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }

    #[test]
    fn text_is_quoted_where_a_reader_could_err() {
        for (plain, written) in [
            ("geth-a", "geth-a"),
            ("http://h:80/x", "http://h:80/x"),
            ("eth_*", "\"eth_*\""),
            ("off", "\"off\""),
            ("True", "\"True\""),
            ("1", "\"1\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a:", "\"a:\""),
            ("$x", "\"$$x\""),
            ("é\n\"\\", "\"é\\n\\\"\\\\\""),
        ] {
            assert_eq!(quoted(plain), written);
        }
    }

    #[test]
    fn documents_are_block_yaml() {
        let item = map(&[
            ("id", Yaml::Derived("the host")),
            ("url", text("http://h")),
            ("ws", Yaml::Absent),
        ]);
        let document = map(&[
            ("listen", text("127.0.0.1:1")),
            ("none", map(&[])),
            (
                "chains",
                map(&[(
                    "a",
                    map(&[("list", Yaml::List(vec![item])), ("ids", Yaml::List(vec![text("x")]))]),
                )]),
            ),
        ]);
        assert_eq!(
            document.document(),
            "listen: \"127.0.0.1:1\"\n\
             none: {}\n\
             chains:\n  \
               a:\n    \
                 list:\n      \
                   - url: http://h\n        \
                     # id: the host\n    \
                 ids: [x]\n"
        );
    }
}
