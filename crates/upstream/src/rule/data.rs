//! A rule file: as written, then as meant.
//!
//! TOML with `about` and a list of `[[rule]]`. Nothing is optional that matters: a
//! rule without a condition, a source or an example is a problem, as is an unknown
//! key. Problems are collected, so that one run shows them all.

use std::collections::HashSet;

use serde::Deserialize;
use wellhead_eth::MethodGlob;
use wellhead_jsonrpc::write;

use super::learn::{FactKind, FactPattern};
use super::matcher::{Fragment, Fragments, Matcher};
use super::{CALL_ID, Recorded, VerdictRule, When};
use crate::verdict::{HealthEffect, TryElsewhere, VerdictClass};

/// What an example calls when it does not say.
const METHOD_DEFAULT: &str = "eth_call";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    pub(super) about: String,
    pub(super) rule: Vec<RuleText>,
}

/// A rule as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleText {
    name: String,
    class: String,
    /// Overrides the class's.
    elsewhere: Option<String>,
    /// Overrides the class's.
    health: Option<String>,
    learn: Option<String>,
    #[serde(default)]
    learn_after: Vec<String>,
    when: WhenText,
    source: String,
    note: Option<String>,
    recorded: Vec<RecordedText>,
}

/// Conditions as written. Texts are lower case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WhenText {
    /// HTTP status is one of these.
    status: Vec<u16>,
    /// HTTP status is from the first to the second.
    status_range: Option<(u16, u16)>,
    /// JSON-RPC code is one of these.
    codes: Vec<i64>,
    /// JSON-RPC code is from the first to the second.
    code_range: Option<(i64, i64)>,
    /// JSON-RPC code is none of these.
    not_codes: Vec<i64>,
    /// The message holds one of these.
    any: Vec<String>,
    /// The message holds all of these.
    all: Vec<String>,
    /// The message begins with one of these.
    starts: Vec<String>,
    /// The message is one of these, but for a final full stop.
    exact: Vec<String>,
    /// The message holds none of these.
    not: Vec<String>,
    /// `data` holds one of these.
    data_any: Vec<String>,
    /// `data` is a text that begins with one of these.
    data_starts: Vec<String>,
    /// The method is one of these (globs).
    methods: Vec<String>,
    /// The method is none of these (globs).
    not_methods: Vec<String>,
}

/// An example as written: a whole `body`, or the `code` and `message` to put into one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedText {
    status: Option<u16>,
    method: Option<String>,
    body: Option<String>,
    seen: Option<String>,
    code: Option<i64>,
    message: Option<String>,
    data: Option<String>,
}

impl RuleFile {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

/// Turns rules as written into rules as meant.
#[derive(Debug, Default)]
pub(super) struct RuleResolver {
    fragments: Fragments,
    names: HashSet<String>,
}

impl RuleResolver {
    pub(super) fn matcher(self) -> Result<Matcher, String> {
        self.fragments.matcher()
    }

    /// The rule as meant; none, and at least one more problem, when it means nothing.
    pub(super) fn resolve(
        &mut self,
        stage: usize,
        text: RuleText,
        problems: &mut Vec<String>,
    ) -> Option<VerdictRule> {
        let before = problems.len();
        let name = text.name.clone();
        let mut complain = |what: String| problems.push(format!("rule `{name}`: {what}"));

        if !self.names.insert(text.name.clone()) {
            complain("there is another rule of this name".into());
        }
        if text.source.trim().is_empty() {
            complain("no source".into());
        }
        let class = VerdictClass::from_word(&text.class);
        if class.is_none() {
            complain(format!("`{}` is no class", text.class));
        }
        let elsewhere = text.elsewhere.as_deref().map(TryElsewhere::from_word);
        if elsewhere == Some(None) {
            complain("`elsewhere` is one of no, once, yes".into());
        }
        let health = text.health.as_deref().map(HealthEffect::from_word);
        if health == Some(None) {
            complain("`health` is no effect on health".into());
        }
        let learn = lesson(text.learn.as_deref(), text.learn_after, &mut complain);
        let conditions = text.when.words();
        if conditions.is_empty() {
            complain("no condition: it would fit everything".into());
        }
        let when = self.when(text.when, &mut complain);
        let recorded: Vec<_> =
            text.recorded.into_iter().filter_map(|it| it.resolve(&mut complain)).collect();
        if recorded.is_empty() {
            complain("no recorded error: a rule without one cannot be tested".into());
        }

        if problems.len() > before {
            return None;
        }
        let class = class?;
        Some(VerdictRule {
            // Rules are read once and live as long as the process.
            name: text.name.leak(),
            stage,
            class,
            elsewhere: elsewhere.flatten().unwrap_or_else(|| class.try_elsewhere()),
            health: health.flatten().unwrap_or_else(|| class.health()),
            conditions,
            when,
            learn,
            source: text.source,
            note: text.note,
            recorded,
        })
    }

    fn when(&mut self, text: WhenText, complain: &mut impl FnMut(String)) -> When {
        let mut status: Vec<_> = text.status.iter().map(|it| (*it, *it)).collect();
        status.extend(text.status_range);
        let mut codes: Vec<_> = text.codes.iter().map(|it| (*it, *it)).collect();
        codes.extend(text.code_range);
        When {
            status,
            codes,
            not_codes: text.not_codes,
            any: self.fragments(&text.any, complain),
            all: self.fragments(&text.all, complain),
            starts: self.fragments(&text.starts, complain),
            exact: self.fragments(&text.exact, complain),
            not: self.fragments(&text.not, complain),
            data_any: self.fragments(&text.data_any, complain),
            data_starts: self.fragments(&text.data_starts, complain),
            methods: globs(&text.methods, complain),
            not_methods: globs(&text.not_methods, complain),
        }
    }

    fn fragments(&mut self, texts: &[String], complain: &mut impl FnMut(String)) -> Vec<Fragment> {
        let mut fragments = Vec::with_capacity(texts.len());
        for text in texts {
            if text.is_empty() || *text != text.to_ascii_lowercase() {
                complain(format!("`{text}` has to be lower case and not empty"));
            }
            match self.fragments.add(text) {
                Some(fragment) => fragments.push(fragment),
                None => complain("too many texts in all rules together".into()),
            }
        }
        fragments
    }
}

fn globs(texts: &[String], complain: &mut impl FnMut(String)) -> Vec<MethodGlob> {
    let mut globs = Vec::with_capacity(texts.len());
    for text in texts {
        match text.parse() {
            Ok(glob) => globs.push(glob),
            Err(_) => complain(format!("`{text}` is no pattern of methods")),
        }
    }
    globs
}

fn lesson(
    word: Option<&str>,
    after: Vec<String>,
    complain: &mut impl FnMut(String),
) -> Option<FactPattern> {
    let Some(word) = word else {
        if !after.is_empty() {
            complain("`learn_after` without `learn`".into());
        }
        return None;
    };
    let Some(kind) = FactKind::from_word(word) else {
        complain(format!("`{word}` is nothing to learn"));
        return None;
    };
    if kind.reads_numbers() == after.is_empty() {
        complain(format!("`learn_after` does not fit `{word}`"));
    }
    if after.iter().any(|text| *text != text.to_ascii_lowercase()) {
        complain("`learn_after` has to be lower case".into());
    }
    Some(FactPattern { kind, after })
}

impl RecordedText {
    fn resolve(self, complain: &mut impl FnMut(String)) -> Option<Recorded> {
        let body = match (self.body, self.message) {
            (Some(body), None) => body,
            (None, Some(message)) => {
                let mut out = Vec::new();
                let id = CALL_ID.to_string();
                let data = self.data.as_deref().map(str::as_bytes);
                let code = self.code.unwrap_or(-32000);
                write::error(&mut out, Some(id.as_bytes()), code, &message, data);
                String::from_utf8(out).ok()?
            }
            (Some(_), Some(_)) | (None, None) => {
                complain("a recorded error has a `body`, or a `message`".into());
                return None;
            }
        };
        Some(Recorded {
            status: self.status.unwrap_or(200),
            method: self.method.unwrap_or_else(|| METHOD_DEFAULT.to_owned()),
            body,
            seen: self.seen,
        })
    }
}

impl WhenText {
    /// The conditions for the reference page.
    fn words(&self) -> String {
        let mut words = Vec::new();
        let mut numbers: Vec<String> = self.status.iter().map(u16::to_string).collect();
        numbers.extend(self.status_range.map(|(low, high)| format!("{low}–{high}")));
        if !numbers.is_empty() {
            words.push(format!("HTTP {}", numbers.join(", ")));
        }
        let mut numbers: Vec<String> = self.codes.iter().map(i64::to_string).collect();
        numbers.extend(self.code_range.map(|(low, high)| format!("{low} to {high}")));
        if !numbers.is_empty() {
            words.push(format!("code {}", numbers.join(", ")));
        }
        let texts = [
            ("text has", " or ", &self.any),
            ("text has", " and ", &self.all),
            ("text begins", " or ", &self.starts),
            ("text is", " or ", &self.exact),
            ("data has", " or ", &self.data_any),
            ("data begins", " or ", &self.data_starts),
            ("method", ", ", &self.methods),
            ("not method", ", ", &self.not_methods),
            ("text has not", ", ", &self.not),
        ];
        for (what, join, list) in texts {
            if !list.is_empty() {
                let list: Vec<_> = list.iter().map(|text| format!("`{text}`")).collect();
                words.push(format!("{what} {}", list.join(join)));
            }
        }
        if !words.is_empty() && !self.not_codes.is_empty() {
            let list: Vec<_> = self.not_codes.iter().map(i64::to_string).collect();
            words.push(format!("code not {}", list.join(", ")));
        }
        words.join("; ")
    }
}
