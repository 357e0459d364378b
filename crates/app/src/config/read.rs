//! From the tree as written to settings as meant, with one table as the source.
//!
//! [`section!`] declares a group of settings once: key, type, rule (default, bounds)
//! and description. The struct, its reader, its writer, the JSON schema and the
//! reference page all come from that, so they cannot disagree. A key that the table lacks
//! is an error with a hint. A reader never stops: it reports, puts a blank in the place
//! and goes on, so that one run shows every problem. Settings with blanks never leave
//! `config`.
//!
//! What one value looks like is in `value`; what several say together in `check`.

use std::ops::Range;

use super::mask::{Hide, looks_like_key};
use super::near::{near, slip};
use super::problem::{PathStep, Problem, SettingPath, Wrong};
use super::rule::{Absent, Rule, ValueShape, paragraph};
use super::tree::{Node, NodeEntry, NodeKind};
use super::write::Yaml;

/// Something that can stand as the value of a key.
pub(super) trait Setting: Sized + Clone {
    /// What of it excerpts must not show, when it is a single value.
    const HIDE: Option<Hide> = None;
    /// What it looks like, for the schema and the reference.
    fn shape() -> ValueShape;
    /// Reads it; `None` after reporting why not.
    fn read(node: &Node, reader: &mut ConfigReader<'_>) -> Option<Self>;
    /// As it would be written, secrets hidden.
    fn write(&self) -> Yaml;
    /// Stands in for a value that could not be read.
    fn blank() -> Self;
}

/// A [`Setting`] that is one word.
pub(super) trait SettingWord: Sized + Clone {
    /// `a duration such as \`3s\``: follows "expected".
    const EXPECTED: &'static str;
    /// What of it excerpts must not show.
    const HIDE: Option<Hide> = None;
    /// What it looks like.
    const SHAPE: ValueShape;
    /// Reads the text; says what is wrong without quoting it.
    fn parse(text: &str) -> Result<Self, Wrong>;
    /// As it would be written, secrets hidden.
    fn write(&self) -> Yaml;
    /// Stands in for a value that could not be read.
    fn blank() -> Self;
    /// What is said of a text that is none.
    fn expected() -> String {
        format!("expected {}", Self::EXPECTED)
    }
}

impl<T: SettingWord> Setting for T {
    const HIDE: Option<Hide> = T::HIDE;

    fn shape() -> ValueShape {
        T::SHAPE
    }

    fn read(node: &Node, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let Some(hide) = <T as SettingWord>::HIDE {
            reader.hide(node, hide);
        }
        let (text, from_env) = match &node.kind {
            NodeKind::Broken => return None,
            NodeKind::Scalar { text, from_env } => (text, *from_env),
            NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => {
                let message = format!("{}, found {}", T::expected(), node.noun());
                reader.report(node, Wrong::new(message));
                return None;
            }
        };
        match T::parse(text) {
            Ok(value) => Some(value),
            // What a hint quotes of the text is not in the file then, and may be a secret.
            Err(_) if from_env => {
                let hint = "the value comes from the environment";
                reader.report(node, Wrong::hinted(T::expected(), hint));
                None
            }
            Err(wrong) => {
                reader.report(node, wrong);
                None
            }
        }
    }

    fn write(&self) -> Yaml {
        <T as SettingWord>::write(self)
    }

    fn blank() -> Self {
        <T as SettingWord>::blank()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn shape() -> ValueShape {
        T::shape()
    }

    fn read(node: &Node, reader: &mut ConfigReader<'_>) -> Option<Self> {
        T::read(node, reader).map(Some)
    }

    fn write(&self) -> Yaml {
        self.as_ref().map_or(Yaml::Absent, Setting::write)
    }

    fn blank() -> Self {
        None
    }
}

/// Items of one list; also in rules that copy them.
const ITEMS_MAX: usize = 10_000;

impl<T: Setting> Setting for Vec<T> {
    fn shape() -> ValueShape {
        ValueShape::List(Box::new(T::shape()))
    }

    fn read(node: &Node, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match &node.kind {
            NodeKind::Broken => None,
            NodeKind::List(items) if items.len() > ITEMS_MAX => {
                reader.report(node, Wrong::new(format!("a list may have {ITEMS_MAX} items")));
                None
            }
            NodeKind::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| {
                        // A blank keeps the positions of those after it.
                        reader
                            .within(PathStep::Item(index), |reader| reader.read_or(item, T::blank))
                    })
                    .collect(),
            ),
            other @ (NodeKind::Scalar { .. } | NodeKind::Null | NodeKind::Map(_)) => {
                let mut hint = "begin each item with `- `";
                if let NodeKind::Scalar { .. } = other {
                    reader.hide(node, Hide::Url);
                    hint = "write `[a, b]`, or each item on a line that begins with `- `";
                }
                let message = format!("expected a list, found {}", node.noun());
                reader.report(node, Wrong::hinted(message, hint));
                None
            }
        }
    }

    fn write(&self) -> Yaml {
        Yaml::List(self.iter().map(Setting::write).collect())
    }

    fn blank() -> Self {
        Self::new()
    }
}

/// A [`SettingWord`] that names the entries of a map.
pub(super) trait EntryName: SettingWord + AsRef<str> {
    /// Takes a name that is none, so that what stands under it is checked too.
    fn unchecked(text: &str) -> Self;
}

/// A map with names chosen by its writer, in the order written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map<K, V>(pub Vec<(K, V)>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Map<K, V> {
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: PartialEq<str>, V> Map<K, V> {
    /// The value of a name.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

impl<K: EntryName, V: Setting> Setting for Map<K, V> {
    fn shape() -> ValueShape {
        ValueShape::Map { key: Box::new(K::SHAPE), value: Box::new(V::shape()) }
    }

    fn read(node: &Node, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let entries = match &node.kind {
            NodeKind::Broken => return None,
            NodeKind::Null => return Some(Self::default()),
            NodeKind::Map(entries) => entries,
            NodeKind::Scalar { .. } | NodeKind::List(_) => {
                reader.hide(node, V::HIDE.unwrap_or(Hide::Url));
                let hint = format!("write each as {}, then `: ` and its value", K::EXPECTED);
                let message = format!("expected a map, found {}", node.noun());
                reader.report(node, Wrong::hinted(message, hint));
                return None;
            }
        };
        let mut map = Vec::with_capacity(entries.len());
        for entry in entries {
            // `{ SECRET }` reads as a key without value, so the key is not shown either.
            if V::HIDE.is_some() && matches!(entry.value.kind, NodeKind::Null) {
                reader.hidden.push((entry.key_span.clone(), Hide::Whole));
                let problem = Problem::error(&reader.path, "this has no value");
                let hint = format!("write {}, then `: ` and its value", K::EXPECTED);
                reader.problems.push(problem.at(Some(entry.key_span.clone())).hint(hint));
                continue;
            }
            let path = reader.path.key(&entry.key);
            let key = match K::parse(&entry.key) {
                Ok(key) => key,
                Err(wrong) => {
                    if V::HIDE.is_some() && !looks_like_key(&entry.key) {
                        reader.odd_key(entry);
                        continue;
                    }
                    let problem = Problem::wrong(&path, wrong);
                    reader.problems.push(problem.at(Some(entry.key_span.clone())));
                    K::unchecked(&entry.key)
                }
            };
            let step = PathStep::Key(entry.key.clone());
            let value = reader.within(step, |reader| reader.read_or(&entry.value, V::blank));
            map.push((key, value));
        }
        Some(Self(map))
    }

    fn write(&self) -> Yaml {
        let entry = |(key, value): &(K, V)| (key.as_ref().to_owned(), value.write());
        Yaml::Map(self.0.iter().map(entry).collect())
    }

    fn blank() -> Self {
        Self::default()
    }
}

/// Reads one config: where it is, and what was wrong so far.
#[derive(Debug)]
pub(super) struct ConfigReader<'a> {
    /// Where the reader is.
    pub path: SettingPath,
    /// What was wrong so far.
    pub problems: &'a mut Vec<Problem>,
    /// Where a blank stands for what could not be read.
    pub(super) blanks: Vec<SettingPath>,
    /// What excerpts must not show.
    pub hidden: Vec<(Range<usize>, Hide)>,
    /// Every key of the whole config and where it belongs, for hints.
    pub(super) known_keys: &'a [(&'static str, String)],
}

/// Keys whose values are secret, wherever they stand.
const SECRET_KEYS: [&str; 6] = ["headers", "auth", "basic", "bearer", "password", "user"];

/// Old names of keys, each with its new name.
const RENAMED: [(&str, &str); 10] = [
    ("answers_bytes", "answers_total_bytes"),
    ("bodies_bytes", "bodies_total_bytes"),
    ("every", "idle_interval"),
    ("get_within", "get_timeout"),
    ("head_min", "head_interval_min"),
    ("head_time", "head_ttl"),
    ("on_few", "on_low_participation"),
    ("rest", "open_for"),
    ("rest_max", "open_for_max"),
    ("unready", "shutdown_delay"),
];

/// Removed keys: the section, the key, and what applies instead.
const RETIRED: [(&str, &str, &str); 9] = [
    ("limits", "json_depth", "requests may be nested 128 levels deep"),
    ("limits", "batch_parallel", "32 calls of a batch run concurrently"),
    ("hedging", "delay_min", "a hedge starts after 20 ms at the earliest"),
    ("hedging", "delay_max", "a hedge starts after 1 s at the latest, 4 s for logs and traces"),
    ("cache", "null_time", "`null` is not cached"),
    ("compression", "min_bytes", "answers of less than 4 KiB are sent uncompressed"),
    ("searches", "parallel", "4 parts of a search run concurrently"),
    ("checks", "rise", "one good answer closes the breaker"),
    ("checks", "fall", "`health.failures` consecutive failures open the breaker"),
];

/// The hint for an old key, or one that only another section has: its new name if this section has it, or
/// what applies instead.
fn former(
    key: &str,
    section: &SettingPath,
    allowed: &[&'static str],
) -> Option<(String, Option<&'static str>)> {
    let renamed = RENAMED.iter().find(|(old, new)| *old == key && allowed.contains(new));
    if let Some((_, new)) = renamed {
        return Some((format!("it was renamed to `{new}`"), Some(new)));
    }
    if key == "acme" && *section == SettingPath::root().key("admin_access").key("tls") {
        let hint = "ACME servers verify `listen` only: name the files of a certificate for `admin`";
        return Some((hint.to_owned(), None));
    }
    let Some(PathStep::Key(section)) = section.steps().last() else { return None };
    let (_, _, holds) = RETIRED.iter().find(|(home, old, _)| *home == section && *old == key)?;
    Some((format!("this setting was removed: {holds}"), None))
}

/// The map of a section while it is read.
#[derive(Debug, Clone)]
pub(super) struct SectionNode<'n> {
    node: &'n Node,
    /// Keys that unknown ones were probably meant to be: not reported as missing.
    meant: Vec<&'static str>,
}

impl ConfigReader<'_> {
    /// Opens a section and reports its unknown keys.
    pub(super) fn section<'n>(
        &mut self,
        node: &'n Node,
        keys: &[&'static str],
    ) -> Option<SectionNode<'n>> {
        match &node.kind {
            NodeKind::Broken => None,
            // `limits:` with all its settings commented out.
            NodeKind::Null => Some(SectionNode { node, meant: Vec::new() }),
            NodeKind::Map(entries) => {
                let mut meant = Vec::new();
                for entry in entries {
                    if keys.contains(&entry.key.as_str()) {
                        continue;
                    }
                    let (hint, near) = self.hint_for_key(&entry.key, keys);
                    // `{ user: me, SECRET }` reads as a key without value.
                    let secret = keys.iter().any(|key| SECRET_KEYS.contains(key));
                    let lone = matches!(entry.value.kind, NodeKind::Null) && near.is_none();
                    if !looks_like_key(&entry.key) || (lone && secret) {
                        self.odd_key(entry);
                        continue;
                    }
                    // What a word means that we do not even guess at may be secret.
                    let harmless = near.is_some_and(|key| !SECRET_KEYS.contains(&key));
                    self.hide(&entry.value, if harmless { Hide::Url } else { Hide::Whole });
                    meant.extend(near);
                    let path = self.path.key(&entry.key);
                    let message = format!("unknown key `{}`", entry.key);
                    let span = Some(entry.key_span.clone());
                    self.problems.push(Problem::error(&path, message).at(span).hint(hint));
                }
                Some(SectionNode { node, meant })
            }
            NodeKind::Scalar { .. } | NodeKind::List(_) => {
                let secret = keys.iter().any(|key| SECRET_KEYS[1..].contains(key));
                let secret = secret && !keys.contains(&"url");
                self.hide(node, if secret { Hide::Whole } else { Hide::Url });
                let message = format!("expected a map, found {}", node.noun());
                let hint = match (&node.kind, keys.contains(&"url")) {
                    (NodeKind::Scalar { .. }, true) => "write `- url: ...`".to_owned(),
                    (_, _) => format!("its keys are {}", listed(keys)),
                };
                self.report(node, Wrong::hinted(message, hint));
                None
            }
        }
    }

    /// A key with blanks or colons: often key and value without the `: ` between, so
    /// it is neither quoted nor shown.
    fn odd_key(&mut self, entry: &NodeEntry) {
        self.hide(&entry.value, Hide::Whole);
        let hint = if entry.key == "<<" {
            "`<<` takes an alias of a map: `<<: *name`"
        } else {
            self.hidden.push((entry.key_span.clone(), Hide::Whole));
            "write a colon and a blank between key and value"
        };
        let problem = Problem::error(&self.path, "this is not a key");
        self.problems.push(problem.at(Some(entry.key_span.clone())).hint(hint));
    }

    /// Reads the value of a key by its rule.
    pub(super) fn take<T: Setting>(
        &mut self,
        section: &SectionNode<'_>,
        key: &'static str,
        about: &str,
        rule: Rule<T>,
    ) -> T {
        let Some(entry) = section.node.get(key) else {
            if matches!(rule.absent, Absent::Required) {
                self.missing(section, key, about);
            }
            return rule.absent();
        };
        self.within(PathStep::Key(key.to_owned()), |reader| {
            let Some(value) = T::read(&entry.value, reader) else {
                reader.blanks.push(reader.path.clone());
                return rule.absent();
            };
            if let Some(bounds) = &rule.bounds
                && !(bounds.hold)(&value, &bounds.low, &bounds.high)
            {
                let (low, high) = (bounds.low.write().inline(), bounds.high.write().inline());
                let message = format!("`{key}` must be between {low} and {high}");
                reader.report(&entry.value, Wrong::new(message));
            }
            value
        })
    }

    fn missing(&mut self, section: &SectionNode<'_>, key: &'static str, about: &str) {
        let path = self.path.key(key);
        self.blanks.push(path.clone());
        if section.meant.contains(&key) {
            return;
        }
        let span = section.node.first_key().cloned();
        let about = paragraph(about);
        let about = about.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let problem = Problem::error(&path, format!("the key `{key}` is missing")).at(span);
        self.problems.push(problem.hint(format!("`{key}`: {about}")));
    }

    /// Reads a value, or notes that a blank stands in for it.
    fn read_or<T: Setting>(&mut self, node: &Node, blank: impl FnOnce() -> T) -> T {
        T::read(node, self).unwrap_or_else(|| {
            self.blanks.push(self.path.clone());
            blank()
        })
    }

    /// Goes one step deeper for the time of `read`.
    pub(super) fn within<R>(&mut self, step: PathStep, read: impl FnOnce(&mut Self) -> R) -> R {
        self.path.push(step);
        let result = read(self);
        self.path.pop();
        result
    }

    /// Notes that excerpts must not show the values at or below `node`.
    pub(super) fn hide(&mut self, node: &Node, hide: Hide) {
        match &node.kind {
            // What is broken was a value with a bad reference.
            NodeKind::Scalar { .. } | NodeKind::Broken => {
                self.hidden.push((node.span.clone(), hide));
            }
            NodeKind::List(items) => items.iter().for_each(|item| self.hide(item, hide)),
            NodeKind::Map(entries) => {
                entries.iter().for_each(|entry| self.hide(&entry.value, hide));
            }
            NodeKind::Null => {}
        }
    }

    fn report(&mut self, node: &Node, wrong: Wrong) {
        let empty = matches!(node.kind, NodeKind::Null) && node.span.is_empty();
        // What is not there has no width: its key is pointed at, by path, later.
        let span = if empty { None } else { Some(node.span.clone()) };
        self.problems.push(Problem::wrong(&self.path, wrong).at(span));
    }

    /// The hint for an unknown key, and the key it was probably meant to be.
    fn hint_for_key(&self, key: &str, allowed: &[&'static str]) -> (String, Option<&'static str>) {
        if let Some(known) = former(key, &self.path, allowed) {
            return known;
        }
        // `header` is nearer to `headers` than to the key of that name elsewhere.
        if let Some(meant) = slip(key, allowed.iter().copied()) {
            return (format!("did you mean `{meant}`?"), Some(meant));
        }
        if let Some((known, home)) = self.known_keys.iter().find(|(known, _)| *known == key) {
            return (format!("`{key}` is a key of {home}"), Some(*known));
        }
        match near(key, allowed.iter().copied()) {
            Some(meant) => (format!("did you mean `{meant}`?"), Some(meant)),
            None => (format!("the keys here are {}", listed(allowed)), None),
        }
    }
}

/// `` `a`, `b` and `c` ``
pub(super) fn listed<'a>(
    words: impl IntoIterator<Item = &'a (impl AsRef<str> + ?Sized + 'a)>,
) -> String {
    let words: Vec<_> = words.into_iter().map(|word| format!("`{}`", word.as_ref())).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Declares a group of settings: see the module's words.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident {
            $( $(#[doc = $doc:literal])+ $key:ident : $type:ty = $rule:expr ),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $key: $type ),+
        }

        impl $crate::config::read::Setting for $name {
            fn shape() -> $crate::config::rule::ValueShape {
                $crate::config::rule::ValueShape::Section($crate::config::rule::SettingTable {
                    about: $crate::config::rule::paragraph(concat!($($about, "\n"),+)),
                    rows: vec![$({
                        let rule: $crate::config::rule::Rule<$type> = $rule;
                        rule.row(stringify!($key), concat!($($doc, "\n"),+))
                    }),+],
                })
            }

            fn read(
                node: &$crate::config::tree::Node,
                reader: &mut $crate::config::read::ConfigReader<'_>,
            ) -> Option<Self> {
                let section = reader.section(node, &[$(stringify!($key)),+])?;
                Some(Self {
                    $($key: {
                        let about = concat!($($doc, "\n"),+);
                        reader.take(&section, stringify!($key), about, $rule)
                    }),+
                })
            }

            fn write(&self) -> $crate::config::write::Yaml {
                $crate::config::write::Yaml::Map(vec![$({
                    let rule: $crate::config::rule::Rule<$type> = $rule;
                    (stringify!($key).to_owned(), rule.write(&self.$key))
                }),+])
            }

            fn blank() -> Self {
                Self { $($key: $crate::config::rule::Rule::absent($rule)),+ }
            }
        }
    };
}
pub(super) use section;

/// Gives `Default` to sections that need nothing.
macro_rules! with_defaults {
    ($($name:ident),+ $(,)?) => {
        $(impl Default for $name {
            fn default() -> Self {
                <Self as $crate::config::read::Setting>::blank()
            }
        })+
    };
}
pub(super) use with_defaults;
