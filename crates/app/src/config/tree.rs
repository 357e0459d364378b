//! The config as written: YAML as a tree of nodes that know their bytes.
//!
//! Reads everything it can and reports what is not sound YAML for us: duplicate
//! keys, unknown anchors, tags, several documents. A syntax error is the one thing
//! that ends the reading, since nothing after it has a known meaning. Values stay
//! texts: `1.1`, `off` and `0x1` mean what the key they stand under says, and no
//! YAML version decides otherwise. Anchors, aliases and `<<` work as usual.
//!
//! The parser is wrapped here alone, so that it can be exchanged.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use super::env::{EnvLookup, substitute};
use super::problem::{PathStep, Problem, SettingPath, Wrong};

/// A larger file is not a config written by people.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;

/// Aliases can multiply a small text into a huge tree.
const NODES_MAX: usize = 100_000;

/// The deepest sensible setting stands at 7; more is a mistake or an attack on the stack.
const DEPTH_MAX: usize = 32;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Its bytes in the source.
    pub span: Range<usize>,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    /// Nothing was written.
    Null,
    /// One value.
    Scalar {
        /// The text, unquoted, with references replaced.
        text: String,
        /// Whether part of it came from the environment.
        from_env: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the source. Keys are unique.
    Map(Vec<NodeEntry>),
    /// Could not be read; a problem says why. Readers pass over it in silence.
    Broken,
}

/// One key of a map and its value.
#[derive(Debug, Clone)]
pub(super) struct NodeEntry {
    /// The key.
    pub key: String,
    /// The key's bytes.
    pub key_span: Range<usize>,
    /// The value.
    pub value: Node,
}

impl Node {
    /// What it is, in words.
    pub(super) fn noun(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Scalar { .. } => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
            NodeKind::Broken => "something broken",
        }
    }

    /// The value of a key, when this is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&NodeEntry> {
        let NodeKind::Map(entries) = &self.kind else { return None };
        entries.iter().find(|entry| entry.key == key)
    }

    /// The bytes of its first key, when this is a map that has one.
    pub(super) fn first_key(&self) -> Option<&Range<usize>> {
        let NodeKind::Map(entries) = &self.kind else { return None };
        entries.first().map(|entry| &entry.key_span)
    }

    /// The bytes of the value at `path`, or of the nearest thing above it that was
    /// written: of that, its key when it has one.
    pub(super) fn span_of(&self, path: &SettingPath) -> Range<usize> {
        let mut node = self;
        let mut span = self.span.start..self.span.start;
        let steps = path.steps();
        for (depth, step) in steps.iter().enumerate() {
            let Some(next) = node.step(step) else { return span };
            let is_value = depth + 1 == steps.len() && matches!(next.kind, NodeKind::Scalar { .. });
            let key = match step {
                PathStep::Key(key) => node.get(key).map(|entry| &entry.key_span),
                PathStep::Item(_) => next.first_key(),
            };
            span = key.filter(|_| !is_value).unwrap_or(&next.span).clone();
            node = next;
        }
        span
    }

    /// The bytes of the key at `path`, when exactly that was written.
    pub(super) fn key_span_of(&self, path: &SettingPath) -> Option<Range<usize>> {
        let (last, parents) = path.steps().split_last()?;
        let node = parents.iter().try_fold(self, |node, step| node.step(step))?;
        match last {
            PathStep::Key(key) => node.get(key).map(|entry| entry.key_span.clone()),
            PathStep::Item(_) => None,
        }
    }

    fn step(&self, step: &PathStep) -> Option<&Self> {
        match (step, &self.kind) {
            (PathStep::Key(key), _) => self.get(key).map(|entry| &entry.value),
            (PathStep::Item(index), NodeKind::List(items)) => items.get(*index),
            (PathStep::Item(_), _) => None,
        }
    }

    /// Whether something was written at exactly this path.
    pub(super) fn has(&self, path: &SettingPath) -> bool {
        path.steps().iter().try_fold(self, |node, step| node.step(step)).is_some()
    }

    fn count(&self) -> usize {
        match &self.kind {
            NodeKind::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            NodeKind::Map(entries) => {
                1 + entries.iter().map(|e| 1 + e.value.count()).sum::<usize>()
            }
            NodeKind::Null | NodeKind::Scalar { .. } | NodeKind::Broken => 1,
        }
    }
}

/// Reads a text. `None` when nothing of it can be used; `problems` then says why.
///
/// `dropped` are the bytes of values that are not in the tree, so that no reader
/// will say whether they are secret.
pub(super) fn parse(
    source: &str,
    problems: &mut Vec<Problem>,
    dropped: &mut Vec<Range<usize>>,
) -> Option<Node> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("the file is larger than {} KiB", SOURCE_BYTES_MAX >> 10);
        problems.push(Problem::error(&SettingPath::root(), message));
        return None;
    }
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let mut builder = Builder {
        source,
        open: Vec::new(),
        anchors: HashMap::new(),
        nodes: 0,
        root: None,
        documents: 0,
        problems,
        dropped,
    };
    for next in Parser::new_from_str_with_options(source, options) {
        match next {
            Ok((event, span)) => {
                if !builder.take(event, &span) {
                    return None;
                }
            }
            Err(error) => {
                let problem = syntax(source, &error);
                builder.problems.push(problem);
                return None;
            }
        }
    }
    builder.root
}

/// A list or map that is not closed yet.
struct Open {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<NodeEntry>, key: Option<(Node, bool)> },
}

struct Builder<'a> {
    source: &'a str,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    root: Option<Node>,
    documents: usize,
    problems: &'a mut Vec<Problem>,
    dropped: &'a mut Vec<Range<usize>>,
}

impl Builder<'_> {
    /// Takes one event in; `false` ends the reading.
    fn take(&mut self, event: Event<'_>, span: &Span) -> bool {
        let bytes = self.bytes(span);
        if let Some(tag) = event.tag()
            && !tag.is_yaml_core_schema()
        {
            let tag = span.tag_span().map_or(bytes.clone(), |tag| self.bytes(&tag));
            self.report(tag, "tags have no meaning here", "remove the word after `!`");
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = match null {
                    true => NodeKind::Null,
                    false => NodeKind::Scalar { text: text.into_owned(), from_env: false },
                };
                self.place(Node { span: bytes, kind }, anchor, plain)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open(bytes.start, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                self.open(bytes.start, anchor, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(bytes.end),
            Event::Alias(id) => self.alias(id, bytes),
            Event::UnresolvedAlias(_) => {
                let hint = "define it before its use, as `&name`, or quote the value if it begins with `*`";
                self.broken(bytes, "no anchor has this name", hint)
            }
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents == 2 {
                    let hint = "keep one, without `---` lines between settings";
                    self.report(bytes, "the file holds more than one document", hint);
                    return false;
                }
                true
            }
            // Events without a node. New ones of the parser are metadata too.
            _ => true,
        }
    }

    fn open(&mut self, start: usize, anchor: usize, content: Content) -> bool {
        self.open.push(Open { start, anchor, content });
        true
    }

    fn close(&mut self, end: usize) -> bool {
        let open = self.open.pop().expect("the parser closes what it opened");
        let kind = match open.content {
            Content::List(items) => NodeKind::List(items),
            Content::Map { entries, .. } => NodeKind::Map(merge(entries)),
        };
        let span = open.start..end.max(open.start);
        self.place(Node { span, kind }, open.anchor, false)
    }

    fn alias(&mut self, id: usize, bytes: Range<usize>) -> bool {
        match self.anchors.get(&id).cloned() {
            Some(node) => {
                // The alias is where the reader looks; what it names is only copied.
                self.nodes += node.count();
                self.place(node, 0, false)
            }
            None => {
                let hint = "an anchor cannot stand inside itself";
                self.broken(bytes, "this alias names what is not complete yet", hint)
            }
        }
    }

    /// Reports what cannot be read, and puts a node there that says so.
    fn broken(&mut self, span: Range<usize>, message: &str, hint: &str) -> bool {
        self.report(span.clone(), message, hint);
        self.place(Node { span, kind: NodeKind::Broken }, 0, false)
    }

    /// Puts a finished node where it belongs.
    fn place(&mut self, node: Node, anchor: usize, plain: bool) -> bool {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            let hint = "remove aliases that copy large parts into each other";
            self.report(node.span, "the file unfolds into too many values", hint);
            return false;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return true;
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key } => match key.take() {
                None => *key = Some((node, plain)),
                Some((name, name_plain)) => {
                    let NodeKind::Scalar { text, .. } = name.kind else {
                        let hint = "write one word before the `:`";
                        self.dropped.extend([name.span.clone(), node.span]);
                        let message = format!("a key must be a plain word, found {}", name.noun());
                        self.report(name.span, &message, hint);
                        return true;
                    };
                    let entry = NodeEntry { key: text, key_span: name.span, value: node };
                    let merging = name_plain && entry.key == "<<";
                    let first = entries.iter().find(|other| other.key == entry.key && !merging);
                    match first.map(|first| first.key_span.clone()) {
                        Some(first) => {
                            self.dropped.push(entry.value.span);
                            let message = format!("the key `{}` is given twice", entry.key);
                            self.problems.push(
                                Problem::error(&SettingPath::root(), message)
                                    .at(Some(entry.key_span))
                                    .other(Some(first), "first given here")
                                    .hint("keep one of them"),
                            );
                        }
                        None => entries.push(entry),
                    }
                }
            },
        }
        true
    }

    fn report(&mut self, span: Range<usize>, message: &str, hint: &str) {
        let problem = Problem::error(&SettingPath::root(), message).at(Some(span));
        self.problems.push(problem.hint(hint));
    }

    fn bytes(&self, span: &Span) -> Range<usize> {
        let range = span.byte_range().unwrap_or_default();
        range.start.min(self.source.len())..range.end.min(self.source.len())
    }
}

/// Adds the entries of `<<: *anchor`; a key that is written here wins.
fn merge(entries: Vec<NodeEntry>) -> Vec<NodeEntry> {
    if !entries.iter().any(|entry| entry.key == "<<") {
        return entries;
    }
    let (merged, mut own): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.key == "<<");
    for entry in merged {
        let sources = match entry.value.kind {
            NodeKind::List(items) => items,
            NodeKind::Map(_) | NodeKind::Null | NodeKind::Scalar { .. } | NodeKind::Broken => {
                vec![entry.value]
            }
        };
        for source in sources {
            match source.kind {
                NodeKind::Map(more) => {
                    for entry in more {
                        if !own.iter().any(|known| known.key == entry.key) {
                            own.push(entry);
                        }
                    }
                }
                NodeKind::Broken | NodeKind::Null => {}
                // Left in place: the reader then reports `<<` as an unknown key.
                NodeKind::Scalar { .. } | NodeKind::List(_) => own.push(NodeEntry {
                    key: "<<".to_owned(),
                    key_span: entry.key_span.clone(),
                    value: source,
                }),
            }
        }
    }
    own
}

/// Replaces `${VAR}` in every value of the tree; keys stay as they are.
pub(super) fn fill(
    node: &mut Node,
    source: &str,
    lookup: EnvLookup<'_>,
    problems: &mut Vec<Problem>,
) {
    match &mut node.kind {
        NodeKind::Null | NodeKind::Broken => {}
        NodeKind::List(items) => {
            for item in items {
                fill(item, source, lookup, problems);
            }
        }
        NodeKind::Map(entries) => {
            for entry in entries {
                fill(&mut entry.value, source, lookup, problems);
            }
        }
        NodeKind::Scalar { text, from_env } => match substitute(text, lookup) {
            Ok(substituted) => {
                *text = substituted.text;
                *from_env = substituted.from_env;
            }
            Err(references) => {
                for bad in references {
                    let within =
                        source.get(node.span.clone()).and_then(|raw| raw.find(&bad.written));
                    let span = match within {
                        Some(at) => {
                            let start = node.span.start + at;
                            start..start + bad.written.len()
                        }
                        None => node.span.clone(),
                    };
                    problems.push(Problem::wrong(&SettingPath::root(), bad.wrong).at(Some(span)));
                }
                node.kind = NodeKind::Broken;
            }
        },
    }
}

/// A syntax error in our words, with what usually causes it.
fn syntax(source: &str, error: &ScanError) -> Problem {
    let mut at = error.marker().byte_offset().unwrap_or(source.len()).min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    let line_start = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = source[line_start..].lines().next().unwrap_or_default();
    let hint = match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => Some("indent with spaces"),
        ErrorKind::UnclosedQuotedScalar => Some("close the quote on the same line"),
        ErrorKind::InvalidQuotedScalarIndent => Some("a quote before this line is not closed"),
        ErrorKind::MissingAnchorOrAliasName => Some("quote a value that begins with `*` or `&`"),
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::MismatchedFlowCollectionEnd { .. }
        | ErrorKind::MisplacedFlowCollectionEnd => Some(if line.contains("${") {
            "quote a value that holds `${...}` inside `{ }` or `[ ]`"
        } else {
            "check that each `{` and `[` is closed and that commas stand between the items"
        }),
        ErrorKind::MappingValueNotAllowed => {
            Some("quote a value that holds `: `, or check the indentation of this line")
        }
        ErrorKind::SimpleKeyExpected
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidIndentation
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::MappingKeyNotAllowed => {
            Some("keys of one map start in the same column, each followed by `: `")
        }
        ErrorKind::UnexpectedCharacter { .. } => {
            Some("quote a value that begins with this character")
        }
        ErrorKind::RecursionLimitExceeded => Some("no setting is nested this deeply"),
        _ => None,
    };
    let message = format!("this is not valid YAML: {}", error.kind());
    let wrong = Wrong { message, hint: hint.map(str::to_owned) };
    Problem::wrong(&SettingPath::root(), wrong).at(Some(at..at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> (Option<Node>, Vec<String>) {
        let mut problems = Vec::new();
        let node = parse(source, &mut problems, &mut Vec::new());
        (node, problems.into_iter().map(|problem| problem.message).collect())
    }

    /// The tree as one line, to compare.
    fn show(node: &Node) -> String {
        match &node.kind {
            NodeKind::Null => "~".to_owned(),
            NodeKind::Broken => "?".to_owned(),
            NodeKind::Scalar { text, .. } => text.clone(),
            NodeKind::List(items) => {
                format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
            }
            NodeKind::Map(entries) => {
                let inner: Vec<_> =
                    entries.iter().map(|e| format!("{}:{}", e.key, show(&e.value))).collect();
                format!("{{{}}}", inner.join(" "))
            }
        }
    }

    #[test]
    fn yaml_becomes_a_tree_of_texts() {
        for (source, tree) in [
            ("a: 1\nb: [x, 'y z']\n", "{a:1 b:[x y z]}"),
            ("a: off\nb: 0x1\nc: 1.10\n", "{a:off b:0x1 c:1.10}"),
            ("a:\nb: ~\nc: ''\n", "{a:~ b:~ c:}"),
            ("a: &x { p: 1 }\nb: *x\n", "{a:{p:1} b:{p:1}}"),
            ("a: &x { p: 1, q: 2 }\nb: { <<: *x, q: 3 }\n", "{a:{p:1 q:2} b:{q:3 p:1}}"),
            ("a: 1\r\nb: 2\r\n", "{a:1 b:2}"),
            ("\u{feff}a: 1\n", "{a:1}"),
            ("a: |\n  x\n  y\n", "{a:x\ny\n}"),
        ] {
            let (node, problems) = read(source);
            assert_eq!(problems, Vec::<String>::new(), "{source}");
            assert_eq!(show(&node.expect(source)), tree, "{source}");
        }
    }

    #[test]
    fn spans_are_the_bytes_of_the_source() {
        let source = "ä: 1\nlist:\n  - url: \"x\"\n    id: é\n";
        let (node, _) = read(source);
        let node = node.expect("sound");
        let list = SettingPath::root().key("list").item(0);
        for (path, text) in [
            (SettingPath::root().key("ä"), "1"),
            (list.key("url"), "\"x\""),
            (list.key("id"), "é"),
            (list.key("missing"), "url"),
            (SettingPath::root().key("list"), "list"),
        ] {
            assert_eq!(&source[node.span_of(&path)], text, "{path}");
        }
        assert!(node.has(&list.key("id")));
        assert!(!node.has(&list.key("ws")));
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut source = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}", level - 1);
            source.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
        }
        let (node, problems) = read(&source);
        assert!(node.is_none());
        assert_eq!(problems, ["the file unfolds into too many values"]);
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let (node, problems) = read(&"[".repeat(1000));
        assert!(node.is_none());
        assert_eq!(problems, ["this is not valid YAML: recursion limit exceeded"]);
        let (node, problems) = read(&"#".repeat(SOURCE_BYTES_MAX + 1));
        assert!(node.is_none());
        assert_eq!(problems, ["the file is larger than 1024 KiB"]);
    }
}
