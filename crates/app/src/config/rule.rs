//! How a key is treated, and what its value looks like to a schema and a page.
//!
//! A [`Rule`] says what holds when a key is absent and what bounds its value; it is
//! given once, in the table of a section, and read here by the reader, the writer,
//! the schema and the reference page alike. Reads nothing itself: see `read`.

use std::time::Duration;

use super::read::Setting;
use super::write::Yaml;

/// What a value looks like.
#[derive(Debug, Clone)]
pub(super) enum ValueShape {
    /// `true` or `false`.
    Flag,
    /// A whole number, also as `1_000` or `30M`.
    Count,
    /// One of a few words.
    Choice(fn() -> Vec<&'static str>),
    /// A word with a form: its name, a regular expression, examples.
    Text {
        /// What the reference calls it: `duration`.
        name: &'static str,
        /// What it matches, anchored; `None` for any text.
        pattern: Option<&'static str>,
    },
    /// A group of settings.
    Section(SettingTable),
    /// A list of these.
    List(Box<Self>),
    /// Names to these.
    Map {
        /// What the names look like.
        key: Box<Self>,
        /// What they name.
        value: Box<Self>,
    },
}

impl ValueShape {
    /// A word that is called `name` and matches `pattern`.
    pub(super) const fn word(name: &'static str, pattern: &'static str) -> Self {
        Self::Text { name, pattern: Some(pattern) }
    }
}

/// A group of settings, as the schema and the reference see it.
#[derive(Debug, Clone)]
pub(super) struct SettingTable {
    /// What the group is for.
    pub about: String,
    /// Its settings in order.
    pub rows: Vec<SettingRow>,
}

/// One setting, as the schema and the reference see it.
#[derive(Debug, Clone)]
pub(super) struct SettingRow {
    /// The key.
    pub key: &'static str,
    /// What it says.
    pub about: String,
    /// What its value looks like.
    pub shape: ValueShape,
    /// What holds when the key is absent.
    pub absent: Absent<Yaml>,
    /// Lowest and highest value, as a sentence that follows another.
    pub bounds: Option<String>,
}

/// What holds when a key is absent.
#[derive(Debug, Clone)]
pub(super) enum Absent<T> {
    /// It may not be.
    Required,
    /// This value.
    Default(T),
    /// What these words say.
    Derived(&'static str),
}

/// How a key is treated: what holds when it is absent, and its bounds.
pub(super) struct Rule<T> {
    pub(super) absent: Absent<T>,
    pub(super) bounds: Option<RuleBounds<T>>,
}

/// Seconds, in the rules of times.
pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Milliseconds, likewise.
pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Lowest and highest value of a rule.
pub(super) struct RuleBounds<T> {
    pub(super) low: T,
    pub(super) high: T,
    pub(super) hold: fn(&T, &T, &T) -> bool,
}

/// The key must be given.
pub(super) fn required<T>() -> Rule<T> {
    Rule { absent: Absent::Required, bounds: None }
}

/// This value when the key is absent.
pub(super) fn default<T>(value: T) -> Rule<T> {
    Rule { absent: Absent::Default(value), bounds: None }
}

/// When the key is absent, what these words say; decided later.
pub(super) fn derived<T>(words: &'static str) -> Rule<T> {
    Rule { absent: Absent::Derived(words), bounds: None }
}

impl<T: PartialOrd> Rule<T> {
    /// Lowest and highest allowed value.
    pub(super) fn within(self, low: T, high: T) -> Self {
        let hold = |value: &T, low: &T, high: &T| low <= value && value <= high;
        Self { bounds: Some(RuleBounds { low, high, hold }), ..self }
    }
}

impl<T: PartialOrd + Clone> Rule<Option<T>> {
    /// Lowest and highest allowed value, where one is given.
    pub(super) fn if_given_within(self, low: T, high: T) -> Self {
        let hold = |value: &Option<T>, low: &Option<T>, high: &Option<T>| match value {
            Some(_) => low <= value && value <= high,
            None => true,
        };
        Self { bounds: Some(RuleBounds { low: Some(low), high: Some(high), hold }), ..self }
    }
}

impl<T: Setting> Rule<T> {
    /// The row of the table.
    pub(super) fn row(&self, key: &'static str, about: &str) -> SettingRow {
        SettingRow {
            key,
            about: paragraph(about),
            shape: T::shape(),
            absent: match &self.absent {
                Absent::Required => Absent::Required,
                Absent::Default(value) => Absent::Default(value.write()),
                Absent::Derived(words) => Absent::Derived(words),
            },
            bounds: self.bounds.as_ref().map(|bounds| {
                let (low, high) = (bounds.low.write().inline(), bounds.high.write().inline());
                format!(" From {low} to {high}.")
            }),
        }
    }

    /// What holds when the key is absent; a blank where that is not allowed, or is decided later.
    pub(super) fn absent(self) -> T {
        match self.absent {
            Absent::Required | Absent::Derived(_) => T::blank(),
            Absent::Default(value) => value,
        }
    }

    /// A value as written, or the words of what is derived.
    pub(super) fn write(&self, value: &T) -> Yaml {
        match (value.write(), &self.absent) {
            (Yaml::Absent, Absent::Derived(words)) => Yaml::Derived(words),
            (yaml, _) => yaml,
        }
    }
}

/// Doc comments as one paragraph.
pub(super) fn paragraph(about: &str) -> String {
    about.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
