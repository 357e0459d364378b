//! `docs/logging.md`: every line that wellhead writes to its log, found in the sources.
//!
//! A reading of tokens, not a parser: a call of one of tracing's macros is its level, its target, its fields and its
//! message. What a field means is said once, in [`FIELDS`], whichever line has it; a test fails where a field has no
//! meaning there, or a meaning no field. Tests and the simulation write lines of their own, which are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use crate::tidy::mask::mask;

const INTRO: &str = include_str!("log_events/intro.md");

/// What fields mean, in the order of the alphabet.
const FIELDS: &[(&str, &str)] = &[
    ("action", "of the admin listener: `log.set`, `key.revoke`; `key.return` of a source of keys"),
    (
        "actor",
        "the name of the token or certificate of the request; `nobody` if it has none, `anyone` if none is needed; of `key.return` the source",
    ),
    ("admin", "the address of the admin listener"),
    ("attempts", "exchanges with upstreams that were begun"),
    ("block", "a block number"),
    ("bytes_in", "bytes of the body"),
    ("bytes_out", "bytes of the answer, before compression; of one that flows its beginning"),
    ("calls", "calls in the body: more than one in a batch"),
    ("cause", "what asked for a reload: `signal`, `file` or `request`"),
    ("chain", "the name of the chain; in a request without one what the client called it"),
    ("chains", "names of chains, with commas"),
    ("change", "`+` added, `-` removed, `~` changed: a setting with its old and its new value"),
    ("changes", "settings that differ from those before"),
    (
        "channel",
        "what replicas tell each other there: `pauses` of upstreams, or all else as `replicas`",
    ),
    ("check", "the check of the answer that failed (docs/verify.md)"),
    ("class", "the cost class of the calls (docs/methods.md)"),
    ("delay_ms", "how long until the listeners close"),
    ("depth", "blocks that were replaced"),
    ("detail", "what the upstream said, without secrets"),
    ("directory", "where it is"),
    ("domains", "names of the certificate"),
    ("dropped", "requests that were ended"),
    ("entries", "keys that were read"),
    ("error", "what the system or a library says"),
    ("expected", "the chain id of the config, or of the other upstreams"),
    ("failed", "calls of the body that were answered with an error"),
    ("failure", "what went wrong with the order"),
    ("failures", "attempts that failed before"),
    ("file_rows", "rows for files"),
    ("filter", "a filter as in `log.level`"),
    ("finding", "what a study of an upstream found (docs/analyze.md)"),
    ("finished", "requests that ended in order"),
    ("flowing", "whether the answer is forwarded while it arrives"),
    ("folder", "where it is"),
    ("from", "the block number before"),
    ("generation", "how often settings were applied, the start included"),
    ("host", "a host name; of an upstream without labels that look like keys"),
    ("is_final", "whether the answer was about a final block"),
    ("issuer", "the issuer of tokens"),
    ("jwks", "where its keys are"),
    ("kept", "where a file is from now on"),
    ("key", "the id of the key; never its text"),
    ("keys", "how many keys"),
    ("left_out", "lines of this kind that were left out since the last one"),
    ("left_out_failed", "lines of failed requests that were left out in the last second"),
    ("left_out_ok", "lines of successful requests that were left out in the last second"),
    ("listen", "the address for clients"),
    ("method", "the method, or `batch`, or `-` for a body that is no call"),
    ("methods", "of a batch: the methods and how often each is in it, eight at most"),
    ("more", "how many more are not shown"),
    ("ms", "milliseconds from the head of the request to its answer"),
    ("name", "of a target of usage: `push` or `webhook`"),
    ("next_order_in_s", "seconds until the next order"),
    ("order_in_h", "hours until the certificate is renewed"),
    ("origin", "the origin of the web page"),
    ("orphaned", "blocks that were known of the replaced branch"),
    ("other", "the other upstream"),
    ("outcome", "`done`, `failed`, `denied` or `abandoned`"),
    ("path", "of a file"),
    ("peer", "address and port of the client, or of the proxy in front of it"),
    ("percent", "share of the quota that is used"),
    ("period", "the day or month of the quota"),
    ("pid", "the process that takes over"),
    ("places", "entries that were lost"),
    ("problem", "what is wrong with it"),
    ("problems", "how many keys are invalid"),
    ("push_rows", "rows for a store"),
    (
        "reason",
        "why, as a word or in words; of a request `client_closed`, `drain_cut` or the reason of a refusal",
    ),
    ("redis", "host and port of the store"),
    ("rejected", "spans that the collector did not take"),
    ("replicas", "wellheads that share"),
    ("reported", "the chain id that the upstream reports"),
    ("restored", "how many"),
    ("retry_in_s", "seconds until the next attempt"),
    ("role", "that the action needs"),
    ("rows", "rows of usage"),
    ("rule", "the rule that judged the answer (docs/verdicts.md)"),
    ("segments", "files that were lost"),
    ("source", "where keys come from: `file` or `redis`"),
    ("status", "the HTTP status; 499 for a client that disconnected before its answer"),
    ("subject", "what the action was done to; never a secret"),
    ("tenant", "the tenant that pays"),
    ("to", "the block number after"),
    ("trace", "the id of its trace, if that is kept (docs/traces.md)"),
    ("traces", "how many are lost on their way"),
    ("unlogged", "further ones of the last minute, which left no line"),
    (
        "upstream",
        "the id of the upstream; of a request the one that answered, or `cache`, `view`, `-`",
    ),
    ("upstreams", "how many upstreams"),
    ("valid_h", "hours that the certificate is still valid"),
    ("valid_s", "seconds that the keys may still be used"),
    ("version", "of the software"),
    ("warning", "what is wrong and can be lived with"),
    ("what", "what is damaged"),
    ("why", "why, in words"),
];

/// What the lines of a level are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventLevel {
    Error,
    Warn,
    Info,
    /// `debug` and `trace`: for developers.
    Fine,
}

const MACROS: [(&str, EventLevel); 5] = [
    ("error", EventLevel::Error),
    ("warn", EventLevel::Warn),
    ("info", EventLevel::Info),
    ("debug", EventLevel::Fine),
    ("trace", EventLevel::Fine),
];

/// One line of the log, as the source writes it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogEvent {
    target: String,
    level: EventLevel,
    /// The macro's name.
    word: &'static str,
    message: String,
    fields: Vec<String>,
}

/// The page, for the checkout that this program was built from.
pub(crate) fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let events = root.map(events).unwrap_or_default();
    let mut text = INTRO.to_owned();
    let plain = |event: &&LogEvent| event.level != EventLevel::Fine;
    let mut crates: BTreeMap<&str, Vec<&LogEvent>> = BTreeMap::new();
    for event in events.iter().filter(plain) {
        crates.entry(event.target.split("::").next().unwrap_or_default()).or_default().push(event);
    }
    for (name, events) in crates {
        // Writing to a string cannot fail, here and below.
        let _ = write!(
            text,
            "\n### {name}\n\n| level | target | message | fields |\n|---|---|---|---|\n"
        );
        for LogEvent { target, word, message, fields, .. } in events {
            let fields: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
            let message = message.replace('|', "\\|");
            let _ = writeln!(text, "| {word} | `{target}` | {message} | {} |", fields.join(", "));
        }
    }
    text += "\n## Fields\n\n| field | what it is |\n|---|---|\n";
    for (field, meaning) in FIELDS {
        let _ = writeln!(text, "| `{field}` | {meaning} |");
    }
    let fine: BTreeSet<_> = events.iter().filter(|it| !plain(it)).map(|it| &*it.target).collect();
    let fine: Vec<_> = fine.into_iter().map(|target| format!("`{target}`")).collect();
    let _ = write!(
        text,
        "\n## For developers\n\nLines of the levels `debug` and `trace` have no promised form. These targets have some:\n{}.\n",
        fine.join(", ")
    );
    text
}

/// All events of the sources below `root`, sorted.
fn events(root: &Path) -> Vec<LogEvent> {
    let mut found = Vec::new();
    // What cannot be read makes a page that differs, which is told.
    let _ = read_folder(&root.join("crates"), &mut |path| {
        let inside = path.strip_prefix(root).ok()?.to_str()?;
        let module = module_path(inside)?;
        found.extend(events_of(&module, &fs::read_to_string(path).ok()?));
        Some(())
    });
    found.sort();
    found.dedup();
    found
}

fn read_folder(folder: &Path, read: &mut impl FnMut(&Path) -> Option<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(&path, read)?;
        } else {
            // Files that are none of ours are passed by.
            let _ = read(&path);
        }
    }
    Ok(())
}

/// The target of a file's lines; `None` for files whose lines are not told.
fn module_path(path: &str) -> Option<String> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let is_test = inside.split('/').any(|part| part == "tests" || part.ends_with("_tests"));
    if name == "sim" || is_test {
        return None;
    }
    let module = inside.strip_suffix("/mod").unwrap_or(inside).replace('/', "::");
    Some(match module.as_str() {
        "lib" => format!("wellhead_{name}"),
        module => format!("wellhead_{name}::{module}"),
    })
}

/// The events of one file.
fn events_of(module: &str, text: &str) -> Vec<LogEvent> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    // Blanked characters keep their places.
    let code: Vec<char> = mask(text).code.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    for (word, level) in MACROS {
        let begin: Vec<char> = format!("{word}!(").chars().collect();
        for at in 0..code.len().saturating_sub(begin.len()) {
            let is_longer = at > 0 && (code[at - 1].is_alphanumeric() || code[at - 1] == '_');
            if is_longer || code[at..at + begin.len()] != begin {
                continue;
            }
            let arguments = arguments(&code, &text, at + begin.len());
            found.push(event(module, word, level, &arguments));
        }
    }
    found
}

/// The arguments of a call whose bracket opens before `from`.
fn arguments(code: &[char], text: &[char], from: usize) -> Vec<String> {
    let (mut depth, mut begin, mut found) = (0_usize, from, Vec::new());
    for at in from..code.len() {
        let is_end = depth == 0 && code[at] == ')';
        if is_end || (depth == 0 && code[at] == ',') {
            let argument: String = text[begin..at].iter().collect();
            found.push(argument.trim().to_owned());
            begin = at + 1;
        }
        match code[at] {
            _ if is_end => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    found
}

fn event(module: &str, word: &'static str, level: EventLevel, arguments: &[String]) -> LogEvent {
    let mut event = LogEvent {
        target: module.to_owned(),
        level,
        word,
        message: String::new(),
        fields: Vec::new(),
    };
    for argument in arguments {
        if let Some(target) = argument.strip_prefix("target:") {
            event.target = target.trim().trim_matches('"').to_owned();
        } else if argument.starts_with('"') {
            event.message = message(argument);
        } else if !argument.is_empty() && event.message.is_empty() {
            event.fields.push(field(argument));
        }
    }
    event
}

/// A literal without its quotes, and without the breaks that continue it on the next line.
fn message(literal: &str) -> String {
    let mut lines = literal.trim_matches('"').split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

/// `%error`, `?why`, `upstream = %id` and `path` by their names.
fn field(argument: &str) -> String {
    let name = argument.split_once('=').map_or(argument, |(name, _)| name);
    name.trim().trim_start_matches(['%', '?']).trim_start_matches("r#").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_from_calls_of_the_macros() {
        let source = r#"
            // warn!("a comment is none")
            fn f() {
                tracing::warn!(upstream = %id, ?why, ms = f(a, b)[1], "gone: \
                                                         {words}, really");
                info!(target: "audit", keys, "done");
                my_info!("none"); let text = "error!(none)";
                debug!("fine");
            }
            #[cfg(test)]
mod tests { fn g() { error!("in a test") } }
        "#;
        let found = events_of("wellhead_x::y", source);
        let shown: Vec<_> = found
            .iter()
            .map(|it| format!("{} {} {} [{}]", it.word, it.target, it.message, it.fields.join(" ")))
            .collect();
        assert_eq!(
            shown,
            [
                "warn wellhead_x::y gone: {words}, really [upstream why ms]",
                "info audit done [keys]",
                "debug wellhead_x::y fine []",
            ]
        );
    }

    #[test]
    fn targets_follow_the_modules() {
        for (path, expected) in [
            ("crates/net/src/lib.rs", Some("wellhead_net")),
            ("crates/net/src/carrier/ws_pool.rs", Some("wellhead_net::carrier::ws_pool")),
            ("crates/sim/src/fake/mod.rs", None),
            ("crates/app/src/usage/tests.rs", None),
            ("crates/app/tests/it.rs", None),
            ("crates/app/src/admin/page.js", None),
        ] {
            assert_eq!(module_path(path).as_deref(), expected, "{path}");
        }
    }

    /// Each field of a line that is promised has its meaning, and each meaning a field.
    #[test]
    fn fields_are_those_that_have_a_meaning() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let events = events(root);
        assert!(events.len() > 100, "{} events", events.len());
        let plain = events.iter().filter(|event| event.level != EventLevel::Fine);
        let used: BTreeSet<&str> = plain.flat_map(|event| &event.fields).map(|it| &**it).collect();
        let told: BTreeSet<&str> = FIELDS.iter().map(|(field, _)| *field).collect();
        let missing: Vec<_> = used.difference(&told).collect();
        assert!(missing.is_empty(), "fields without a meaning in `FIELDS`: {missing:?}");
        let stale: Vec<_> = told.difference(&used).collect();
        assert!(stale.is_empty(), "meanings without a field: {stale:?}");
        assert!(FIELDS.is_sorted_by_key(|(field, _)| *field), "in the order of the alphabet");
    }

    #[test]
    fn each_promised_line_has_a_message() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        for event in events(root) {
            assert!(!event.message.is_empty(), "{event:?}");
        }
    }
}
