//! The rules: provider dialects as data.
//!
//! A rule says which errors it means, what they are, where that is known from, and
//! shows at least one such error, which is its test. Rules are asked in the order
//! of [`STAGES`] and of each file, and the first that fits decides; all texts of all
//! rules are found in one pass before any rule is asked, so a rule costs a few bit
//! tests. To teach the proxy a new error, add a rule: no code.
//!
//! See [`data`] for the shape of the files, [`matcher`] for the search, [`learn`]
//! for the facts read out of a text.

mod data;
pub(crate) mod learn;
mod matcher;

use wellhead_eth::MethodGlob;

use crate::verdict::{HealthEffect, Learnt, TryElsewhere, VerdictClass};
use data::{RuleFile, RuleResolver};
use matcher::{Fragment, Hits, Matcher};

/// The id that the proxy puts on a single call of its own; the recorded bodies of the rules carry
/// it too.
pub const CALL_ID: u64 = 1;

/// The rule files in the order in which they are asked.
///
/// The order is the heart of it. HTTP's 401, 402 and 403 outrank any body. Then
/// what a contract may have written, so that its words meet no other rule; then
/// what quotes the caller's words. From there on the special comes before the
/// general: sizes before rates ("limit exceeded" means both), plans before rates,
/// rates before keys, missing data before "bad request".
const STAGES: &[(&str, &str)] = &[
    ("http", include_str!("../data/rules/http.toml")),
    ("execution", include_str!("../data/rules/execution.toml")),
    ("caller", include_str!("../data/rules/caller.toml")),
    ("transaction", include_str!("../data/rules/transaction.toml")),
    ("too_large", include_str!("../data/rules/too_large.toml")),
    ("billing", include_str!("../data/rules/billing.toml")),
    ("rate", include_str!("../data/rules/rate.toml")),
    ("auth", include_str!("../data/rules/auth.toml")),
    ("unsupported", include_str!("../data/rules/unsupported.toml")),
    ("missing", include_str!("../data/rules/missing.toml")),
    ("request", include_str!("../data/rules/request.toml")),
    ("gateway", include_str!("../data/rules/gateway.toml")),
];

/// What a rule looks at.
#[derive(Debug, Clone, Copy)]
pub struct ErrorSubject<'a> {
    /// HTTP status.
    pub status: u16,
    /// JSON-RPC code; none when the body was no JSON-RPC error.
    pub code: Option<i64>,
    /// The message, or the beginning of a page.
    pub message: &'a str,
    /// The raw JSON of `data`.
    pub data: Option<&'a [u8]>,
    /// The method as the method table names it.
    pub method: &'a str,
}

/// What may be believed of the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// A JSON-RPC error: everything.
    Reply,
    /// Anything else: only what a gateway says of itself.
    Page,
}

/// One rule, as meant.
#[derive(Debug)]
pub struct VerdictRule {
    /// Its stable name.
    pub name: &'static str,
    /// The index of its file in [`RuleSet::stages`].
    pub stage: usize,
    /// What it says that an error is.
    pub class: VerdictClass,
    /// Whether another upstream may do better.
    pub elsewhere: TryElsewhere,
    /// What it says about health.
    pub health: HealthEffect,
    /// When it fits, in words.
    pub conditions: String,
    when: When,
    learn: Option<learn::FactPattern>,
    /// The upstreams that send such errors, and the source.
    pub source: String,
    /// What surprises about it.
    pub note: Option<String>,
    /// Errors that it means.
    pub recorded: Vec<Recorded>,
}

/// When a rule fits: every condition that is not empty has to hold.
#[derive(Debug, Default)]
struct When {
    status: Vec<(u16, u16)>,
    codes: Vec<(i64, i64)>,
    not_codes: Vec<i64>,
    any: Vec<Fragment>,
    all: Vec<Fragment>,
    starts: Vec<Fragment>,
    exact: Vec<Fragment>,
    not: Vec<Fragment>,
    data_any: Vec<Fragment>,
    data_starts: Vec<Fragment>,
    methods: Vec<MethodGlob>,
    not_methods: Vec<MethodGlob>,
}

/// One error that a rule means: its example and its test.
#[derive(Debug)]
pub struct Recorded {
    /// HTTP status.
    pub status: u16,
    /// The method that was called.
    pub method: String,
    /// The body, under our id.
    pub body: String,
    /// Where the whole body was published. Without it the text is known, and the
    /// body around it is ours.
    pub seen: Option<String>,
}

/// Every rule, and the search for all their texts.
#[derive(Debug)]
pub struct RuleSet {
    /// The rule files, in the order in which they are asked.
    pub stages: Vec<RuleStage>,
    /// The rules, in the order in which they are asked.
    pub rules: Vec<VerdictRule>,
    matcher: Matcher,
    /// The texts that come before a contract's own words.
    reverts: Vec<Fragment>,
}

/// One rule file.
#[derive(Debug)]
pub struct RuleStage {
    /// Its name.
    pub name: &'static str,
    /// What its rules are about.
    pub about: String,
}

impl RuleSet {
    /// Reads the rules that are compiled in.
    pub fn standard() -> Result<Self, Vec<String>> {
        Self::read(STAGES)
    }

    /// Reads rule files, in the order in which they are to be asked.
    ///
    /// # Errors
    /// Every problem in every file, not the first.
    pub fn read(files: &[(&'static str, &str)]) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let mut resolver = RuleResolver::default();
        let mut stages = Vec::new();
        let mut rules = Vec::new();
        for (stage, (name, text)) in files.iter().enumerate() {
            match RuleFile::read(text) {
                Ok(file) => {
                    for rule in file.rule {
                        rules.extend(resolver.resolve(stage, rule, &mut problems));
                    }
                    stages.push(RuleStage { name, about: file.about });
                }
                Err(error) => problems.push(format!("`{name}`: {error}")),
            }
        }
        let matcher = match resolver.matcher() {
            Ok(matcher) => matcher,
            Err(problem) => {
                problems.push(problem);
                return Err(problems);
            }
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let reverts = rules
            .iter()
            .filter(|rule: &&VerdictRule| rule.class == VerdictClass::Reverted)
            .flat_map(|rule| rule.when.any.iter().chain(&rule.when.starts).copied())
            .collect();
        Ok(Self { stages, rules, matcher, reverts })
    }

    /// The first rule that fits.
    pub fn find(&self, subject: &ErrorSubject<'_>, scope: RuleScope) -> Option<&VerdictRule> {
        let mut message = self.matcher.message(subject.message);
        let data = subject.data.map_or_else(Hits::none, |data| self.matcher.data(data));
        if scope == RuleScope::Page && self.reverts.iter().any(|it| message.anywhere(*it)) {
            // Whatever this is, a contract may have had a hand in it.
            message = Hits::none();
        }
        self.rules.iter().find(|rule| {
            let believed = scope == RuleScope::Reply
                || rule.class.is_about_upstream()
                || matches!(
                    rule.class,
                    VerdictClass::Unsupported
                        | VerdictClass::RangeTooLarge
                        | VerdictClass::FilterTooLarge
                );
            believed && rule.when.fits(subject, &message, &data)
        })
    }

    /// Every text that any rule looks for, lower case.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.matcher.texts()
    }
}

impl When {
    fn fits(&self, subject: &ErrorSubject<'_>, message: &Hits, data: &Hits) -> bool {
        within(&self.status, Some(subject.status))
            && within(&self.codes, subject.code)
            && subject.code.is_none_or(|code| !self.not_codes.contains(&code))
            && some(&self.any, |it| message.anywhere(it))
            && self.all.iter().all(|it| message.anywhere(*it))
            && some(&self.starts, |it| message.at_start(it))
            && some(&self.exact, |it| message.whole(it))
            && !self.not.iter().any(|it| message.anywhere(*it))
            && some(&self.data_any, |it| data.anywhere(it))
            && some(&self.data_starts, |it| data.at_start(it))
            && (self.methods.is_empty() || self.methods.iter().any(|it| it.matches(subject.method)))
            && !self.not_methods.iter().any(|it| it.matches(subject.method))
    }
}

fn within<T: PartialOrd>(spans: &[(T, T)], value: Option<T>) -> bool {
    spans.is_empty()
        || value
            .is_some_and(|value| spans.iter().any(|(low, high)| *low <= value && value <= *high))
}

fn some(fragments: &[Fragment], hit: impl Fn(Fragment) -> bool) -> bool {
    fragments.is_empty() || fragments.iter().any(|it| hit(*it))
}

impl VerdictRule {
    pub(crate) fn learn(&self, subject: &ErrorSubject<'_>) -> Option<Learnt> {
        self.learn.as_ref()?.learn(subject)
    }
}
