//! Patterns over method names, for routes and permissions: `eth_*`, `*_trace*`.
//!
//! `*` stands for any run of characters, also none; everything else is itself.
//! No `?`, sets or braces: a rule about access should be readable at a glance.

use std::fmt;
use std::str::FromStr;

/// Longest pattern accepted, in bytes: several times the longest method name.
pub const GLOB_BYTES_MAX: usize = 128;

/// A pattern over method names. Case matters, as it does in method names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodGlob {
    pattern: Box<str>,
}

impl MethodGlob {
    /// Whether the pattern covers this name, all of it.
    pub fn matches(&self, name: &str) -> bool {
        self.covers(name, |one, other| one == other)
    }

    /// Like [`Self::matches`], but ignores letter case. For rules that forbid methods: some nodes
    /// ignore case, and would serve `Debug_traceBlock` where `debug_*` is denied.
    pub fn matches_ignoring_case(&self, name: &str) -> bool {
        self.covers(name, u8::eq_ignore_ascii_case)
    }

    fn covers(&self, name: &str, is_same: impl Fn(&u8, &u8) -> bool) -> bool {
        let (pattern, name) = (self.pattern.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where to go on when a character does not fit: give the last star one
        // more character. Going back to earlier stars could not help.
        let mut retry: Option<(usize, usize)> = None;
        while n < name.len() {
            if pattern.get(p) == Some(&b'*') {
                retry = Some((p + 1, n));
                p += 1;
            } else if pattern.get(p).is_some_and(|byte| is_same(byte, &name[n])) {
                (p, n) = (p + 1, n + 1);
            } else if let Some((after_star, taken)) = retry {
                retry = Some((after_star, taken + 1));
                (p, n) = (after_star, taken + 1);
            } else {
                return false;
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }
}

impl fmt::Display for MethodGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

/// Why a text is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MethodGlobError {
    /// Nothing was written.
    #[error("an empty method pattern matches nothing; `*` matches all")]
    Empty,
    /// More than [`GLOB_BYTES_MAX`] bytes.
    #[error("a method pattern has at most {GLOB_BYTES_MAX} bytes, this one {bytes}")]
    TooLong {
        /// Bytes written.
        bytes: usize,
    },
    /// A character that no method name has.
    #[error(
        "{found:?} at character {at}: a method pattern has letters, digits, `_`, `.`, `-`, `/`, and `*` for anything"
    )]
    OddCharacter {
        /// The character.
        found: char,
        /// Its place, counted in characters from 1.
        at: usize,
    },
}

impl FromStr for MethodGlob {
    type Err = MethodGlobError;

    fn from_str(text: &str) -> Result<Self, MethodGlobError> {
        if text.is_empty() {
            return Err(MethodGlobError::Empty);
        }
        if text.len() > GLOB_BYTES_MAX {
            return Err(MethodGlobError::TooLong { bytes: text.len() });
        }
        let odd = |c: &char| !(c.is_ascii_alphanumeric() || "_.-/*".contains(*c));
        match text.chars().enumerate().find(|(_, c)| odd(c)) {
            Some((index, found)) => Err(MethodGlobError::OddCharacter { found, at: index + 1 }),
            None => Ok(Self { pattern: text.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let glob: MethodGlob = pattern.parse().unwrap();
        for name in yes {
            assert!(glob.matches(name), "`{pattern}` should match `{name}`");
        }
        for name in no {
            assert!(!glob.matches(name), "`{pattern}` should not match `{name}`");
        }
        assert_eq!(glob.to_string(), pattern);
    }

    #[test]
    fn exact() {
        check("eth_call", &["eth_call"], &["eth_callMany", "eth_cal", "Eth_call", ""]);
    }
    #[test]
    fn family() {
        check("eth_*", &["eth_call", "eth_"], &["eth", "debug_eth_x"]);
    }
    #[test]
    fn everything() {
        check("*", &["eth_call", ""], &[]);
    }
    #[test]
    fn several_stars() {
        check("*_trace*", &["debug_traceCall", "ots_traceTransaction"], &["trace_call", "debug_x"]);
        check("a*b*c", &["abc", "aXbYc", "abbcc"], &["ab", "acb"]);
        check("**", &["", "x"], &[]);
    }
    #[test]
    fn a_star_gives_back_what_it_took_too_early() {
        check("*ByHash", &["eth_getBlockByHash", "ByByHash"], &["ByHashByNumber"]);
    }

    #[test]
    fn bad_patterns_say_why() {
        let cases = [
            ("", MethodGlobError::Empty),
            ("eth call", MethodGlobError::OddCharacter { found: ' ', at: 4 }),
            ("eth_?", MethodGlobError::OddCharacter { found: '?', at: 5 }),
            ("é", MethodGlobError::OddCharacter { found: 'é', at: 1 }),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<MethodGlob>(), Err(error), "{text:?}");
        }
        assert_eq!(
            "a".repeat(129).parse::<MethodGlob>(),
            Err(MethodGlobError::TooLong { bytes: 129 })
        );
        let message = "eth call".parse::<MethodGlob>().unwrap_err().to_string();
        assert!(message.starts_with("' ' at character 4"), "{message}");
    }

    /// The obvious way, too slow for hostile patterns.
    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                slow(rest, name) || (!name.is_empty() && slow(pattern, &name[1..]))
            }
            (Some((p, pattern)), Some((n, name))) => p == n && slow(pattern, name),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_obvious_way(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
            let glob: MethodGlob = pattern.parse().unwrap();
            prop_assert_eq!(glob.matches(&name), slow(pattern.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn any_text_is_survived(pattern: String, name: String) {
            if let Ok(glob) = pattern.parse::<MethodGlob>() {
                let _ = glob.matches(&name);
                prop_assert_eq!(glob.as_str(), pattern);
            }
        }
    }
}
