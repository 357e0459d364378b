//! Problems of a config: collected in one run, each with its place and a hint.
//!
//! A [`Problem`] knows its path (`chains.ethereum.upstreams[0].url`) and, when the
//! config came from a text, the bytes it speaks of. A [`ProblemReport`] holds all of them
//! with the masked text and renders excerpts with carets. Messages never quote a
//! value that may be a secret; what the excerpt may show is decided in `mask`.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// More are counted but not shown: a broken generator should not flood a log.
const SHOWN_MAX: usize = 100;

/// One step of a [`SettingPath`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// A key of a map.
    Key(String),
    /// The position in a list, from 0.
    Item(usize),
}

/// Where a setting stands: `chains.ethereum.upstreams[0].url`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettingPath(Vec<PathStep>);

impl SettingPath {
    /// The path of the whole config.
    pub fn root() -> Self {
        Self::default()
    }

    /// This path, one key deeper.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.push(PathStep::Key(key.to_owned()));
        path
    }

    /// This path, one list item deeper.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.push(PathStep::Item(index));
        path
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[PathStep] {
        &self.0
    }

    /// Whether `self` is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    pub(super) fn push(&mut self, step: PathStep) {
        self.0.push(step);
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }
}

impl fmt::Display for SettingPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if position == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Item(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Whether we can start with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The config cannot be used.
    Error,
    /// It can, but probably says something else than was meant.
    Warning,
}

/// One thing that is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether we can start with it.
    pub severity: Severity,
    /// The setting it is about.
    pub path: SettingPath,
    /// The bytes of the source, when there is one.
    pub span: Option<Range<usize>>,
    /// A second place that explains it, and what is there.
    pub other: Option<(Range<usize>, String)>,
    /// What is wrong: lower case, no full stop, no secret.
    pub message: String,
    /// What to try.
    pub hints: Vec<String>,
}

impl Problem {
    /// A problem that keeps the config from being used.
    pub fn error(path: &SettingPath, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.clone(),
            span: None,
            other: None,
            message: message.into(),
            hints: Vec::new(),
        }
    }

    /// A value that cannot be used.
    pub(super) fn wrong(path: &SettingPath, Wrong { message, hint }: Wrong) -> Self {
        Self { hints: hint.into_iter().collect(), ..Self::error(path, message) }
    }

    /// A problem that we can live with.
    pub fn warning(path: &SettingPath, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, message) }
    }

    /// Adds what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets the place in the source.
    #[must_use]
    pub fn at(mut self, span: Option<Range<usize>>) -> Self {
        self.span = span;
        self
    }

    /// Adds a second place and what is there.
    #[must_use]
    pub fn other(mut self, span: Option<Range<usize>>, label: &str) -> Self {
        self.other = span.map(|span| (span, label.to_owned()));
        self
    }
}

/// Why a text is not the wanted value: what happened, and what to write instead.
///
/// Never quotes the text unless it is a plain number, as it may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong, as one clause.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

impl Wrong {
    /// Without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// With a hint.
    pub fn hinted(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }
}

/// Every problem of one config, and the text to show them in.
#[derive(Debug, Clone, Default)]
pub struct ProblemReport {
    name: String,
    /// Secrets are masked already, at the same byte positions.
    masked: Option<String>,
    problems: Vec<Problem>,
}

impl ProblemReport {
    /// Orders the problems as they stand in the source; those without a place come last.
    pub(super) fn new(name: &str, masked: Option<String>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| {
            let start = problem.span.as_ref().map_or(usize::MAX, |span| span.start);
            (start, problem.severity)
        });
        problems.dedup();
        Self { name: name.to_owned(), masked, problems }
    }

    /// All problems, in the order of the source.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// How many problems keep the config from being used.
    pub fn errors(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    /// How many problems we can live with.
    pub fn warnings(&self) -> usize {
        self.problems.len() - self.errors()
    }

    /// The line and column (from 1, in characters) of a problem.
    pub fn line_and_column(&self, problem: &Problem) -> Option<(usize, usize)> {
        let (source, span) = (self.masked.as_deref()?, problem.span.as_ref()?);
        let before = source.get(..span.start.min(source.len()))?;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
    }

    /// Every problem with its excerpt, and a line that counts them.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for problem in self.problems.iter().take(SHOWN_MAX) {
            text.push_str(renderer.render(&[self.group(problem)]).trim_end());
            text.push_str("\n\n");
        }
        if self.problems.len() > SHOWN_MAX {
            text.push_str(&format!("... and {} more\n\n", self.problems.len() - SHOWN_MAX));
        }
        text.push_str(&self.summary());
        text.push('\n');
        text
    }

    /// `2 errors, 1 warning in wellhead.yaml`.
    pub fn summary(&self) -> String {
        let count = |n: usize, one: &str| match n {
            1 => format!("1 {one}"),
            n => format!("{n} {one}s"),
        };
        let counts = match (self.errors(), self.warnings()) {
            (errors, 0) => count(errors, "error"),
            (0, warnings) => count(warnings, "warning"),
            (errors, warnings) => {
                format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        };
        format!("{counts} in {}", self.name)
    }

    fn group<'a>(&'a self, problem: &'a Problem) -> Group<'a> {
        let level = match problem.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(problem.message.as_str()));
        match (self.masked.as_deref(), problem.span.clone()) {
            (Some(source), Some(span)) => {
                let span = first_line(source, span);
                let other = problem
                    .other
                    .as_ref()
                    .map(|(span, label)| (first_line(source, span.clone()), label));
                let (from, to) = match &other {
                    Some((other, _)) => (span.start.min(other.start), span.end.max(other.end)),
                    None => (span.start, span.end),
                };
                let window = lines_around(source, from..to);
                let moved = |span: Range<usize>| span.start - window.start..span.end - window.start;
                let mut snippet = Snippet::source(&source[window.clone()])
                    .line_start(source[..window.start].matches('\n').count() + 1)
                    .path(self.name.as_str())
                    .annotation(AnnotationKind::Primary.span(moved(span)));
                if let Some((other, label)) = other {
                    let note = AnnotationKind::Context.span(moved(other)).label(label.as_str());
                    snippet = snippet.annotation(note);
                }
                group = group.element(snippet);
            }
            (_, _) if !problem.path.steps().is_empty() => {
                group = group.element(Level::NOTE.message(format!("in `{}`", problem.path)));
            }
            (_, _) => {}
        }
        for hint in &problem.hints {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        group
    }
}

impl fmt::Display for ProblemReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for ProblemReport {}

/// Cuts a span to its first line: a caret below twenty lines points at nothing.
fn first_line(source: &str, span: Range<usize>) -> Range<usize> {
    let mut start = span.start.min(source.len());
    while !source.is_char_boundary(start) {
        start -= 1;
    }
    let line_end = source[start..].find(['\n', '\r']).map_or(source.len(), |at| start + at);
    let mut end = span.end.clamp(start, line_end);
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    let text = &source[start..end];
    start..start + text.trim_end().len()
}

/// The whole lines that hold `span`.
fn lines_around(source: &str, span: Range<usize>) -> Range<usize> {
    let start = source[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let end = source[span.end..].find('\n').map_or(source.len(), |at| span.end + at);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_like_code() {
        let path =
            SettingPath::root().key("chains").key("ethereum").key("upstreams").item(2).key("url");
        assert_eq!(path.to_string(), "chains.ethereum.upstreams[2].url");
        assert!(path.is_within(&SettingPath::root().key("chains")));
        assert!(!path.is_within(&SettingPath::root().key("limits")));
    }

    #[test]
    fn problems_stand_in_the_order_of_the_source() {
        let at = |start: usize, text: &str| {
            Problem::error(&SettingPath::root().key("x"), text).at(Some(start..start + 1))
        };
        let unplaced = Problem::warning(&SettingPath::root(), "no place");
        let source = "ä: 1\nb: 2\n".to_owned();
        let report = ProblemReport::new("f", Some(source), vec![unplaced, at(6, "b"), at(0, "a")]);
        let order: Vec<_> = report.problems().iter().map(|p| p.message.as_str()).collect();
        assert_eq!(order, ["a", "b", "no place"]);
        assert_eq!(report.line_and_column(&report.problems()[1]), Some((2, 1)));
        assert_eq!(report.summary(), "2 errors, 1 warning in f");
    }

    #[test]
    fn a_flood_is_cut() {
        let problems = (0..SHOWN_MAX + 7)
            .map(|n| Problem::error(&SettingPath::root(), format!("number {n}")))
            .collect();
        let text = ProblemReport::new("f", None, problems).render(false);
        assert!(text.contains("... and 7 more"), "{text}");
        assert!(text.ends_with("107 errors in f\n"), "{text}");
    }
}
