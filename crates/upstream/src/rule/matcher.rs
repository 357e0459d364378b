//! Finds every text of every rule in one pass.
//!
//! Case is ignored for ASCII, as in the rules; no copy of the message is made. Only
//! the beginning of a message is searched: what matters is said first, and an
//! upstream must not buy our time with a long one.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;

/// How much of a message is searched.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096;
/// How much of `data` is searched: reverts show in the first bytes, and stack
/// traces name their exception in the first line.
pub(super) const DATA_BYTES_MAX: usize = 1024;
/// Bounds the size of [`Hits`], which lives on the stack.
const FRAGMENTS_MAX: usize = 64 * WORDS;
const WORDS: usize = 12;

/// A text that some rule looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment(u16);

/// Collects texts while the rules are read; equal ones are one.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    texts: Vec<String>,
    known: HashMap<String, Fragment>,
}

#[derive(Debug)]
pub(super) struct Matcher {
    automaton: AhoCorasick,
    texts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Set([u64; WORDS]);

/// Which texts were found, and where.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hits {
    anywhere: Set,
    at_start: Set,
    whole: Set,
}

impl Fragments {
    /// The fragment for `text`; none when there are too many.
    pub(super) fn add(&mut self, text: &str) -> Option<Fragment> {
        if let Some(known) = self.known.get(text) {
            return Some(*known);
        }
        if self.texts.len() >= FRAGMENTS_MAX {
            return None;
        }
        let fragment = Fragment(u16::try_from(self.texts.len()).ok()?);
        self.texts.push(text.to_owned());
        self.known.insert(text.to_owned(), fragment);
        Some(fragment)
    }

    pub(super) fn matcher(self) -> Result<Matcher, String> {
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(&self.texts)
            .map_err(|error| format!("the texts make no search: {error}"))?;
        Ok(Matcher { automaton, texts: self.texts })
    }
}

impl Matcher {
    pub(super) fn message(&self, message: &str) -> Hits {
        let text = message.trim_start().as_bytes();
        self.search(&text[..text.len().min(MESSAGE_BYTES_MAX)])
    }

    /// Searches raw JSON: a text from its opening quote on, anything else as it is.
    pub(super) fn data(&self, data: &[u8]) -> Hits {
        let data = data.trim_ascii_start();
        let data = data.strip_prefix(b"\"").unwrap_or(data);
        self.search(&data[..data.len().min(DATA_BYTES_MAX)])
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    fn search(&self, text: &[u8]) -> Hits {
        let mut hits = Hits::default();
        let whole = text.trim_ascii_end();
        let whole = whole.strip_suffix(b".").unwrap_or(whole).len();
        for found in self.automaton.find_overlapping_iter(text) {
            let index = found.pattern().as_usize();
            hits.anywhere.insert(index);
            if found.start() == 0 {
                hits.at_start.insert(index);
                if found.end() >= whole {
                    hits.whole.insert(index);
                }
            }
        }
        hits
    }
}

impl Hits {
    pub(super) fn none() -> Self {
        Self::default()
    }

    pub(super) fn anywhere(&self, fragment: Fragment) -> bool {
        self.anywhere.contains(fragment)
    }

    pub(super) fn at_start(&self, fragment: Fragment) -> bool {
        self.at_start.contains(fragment)
    }

    pub(super) fn whole(&self, fragment: Fragment) -> bool {
        self.whole.contains(fragment)
    }
}

impl Set {
    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn contains(&self, fragment: Fragment) -> bool {
        let index = usize::from(fragment.0);
        self.0[index / 64] & (1 << (index % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` lists each text as found: `*` anywhere, `^` at the start, `=` whole.
    fn check(texts: &[&str], message: &str, expected: &str) {
        let mut fragments = Fragments::default();
        let all: Vec<_> =
            texts.iter().map(|text| fragments.add(text).expect("few enough")).collect();
        let hits = fragments.matcher().expect("a search").message(message);
        let found: Vec<_> = all
            .iter()
            .map(|it| match (hits.anywhere(*it), hits.at_start(*it), hits.whole(*it)) {
                (true, true, true) => "=",
                (true, true, false) => "^",
                (true, false, false) => "*",
                (false, false, false) => "-",
                odd => panic!("{odd:?} cannot be"),
            })
            .collect();
        assert_eq!(found.join(" "), expected, "{message}");
    }

    #[test]
    fn case_is_ignored() {
        check(&["rate limit"], "Your RATE Limit is reached", "*");
    }
    #[test]
    fn overlapping_texts_are_all_found() {
        check(&["limit exceeded", "rate limit", "limit"], "rate limit exceeded", "* ^ *");
    }
    #[test]
    fn a_final_full_stop_does_not_count() {
        check(&["unknown block"], " Unknown block.", "=");
    }
    #[test]
    fn more_than_the_text_is_not_the_whole() {
        check(&["unknown block"], "Unknown blocks", "^");
    }
    #[test]
    fn nothing_in_nothing() {
        check(&["a", "b"], "", "- -");
    }
    #[test]
    fn only_the_beginning_is_searched() {
        let long = format!("{}needle", "x".repeat(MESSAGE_BYTES_MAX));
        check(&["needle"], &long, "-");
    }
}
