//! Hides secrets in the text that excerpts are cut from.
//!
//! Works on bytes and keeps their positions, so that carets still point right. Two
//! sieves: the values that the typed readers know to be secret, and, since a
//! misspelled key or a syntax error keeps those readers from seeing a value, rules
//! on the bare text: what follows the host of a URL, what follows a key such as
//! `password`, and long runs of letters and digits as API keys are. References such
//! as `${KEY}` stay readable: they are what the reader must mend.
//!
//! Where not even the structure is known, after a syntax error, the second sieve is
//! turned around: [`mask_all_but`] shows known words, numbers and hosts alone.
//!
//! Does not hide how long a secret is.

use std::ops::Range;

use wellhead_telemetry::key_in_host;

/// What is secret about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hide {
    /// All of it.
    Whole,
    /// Of a URL: user info, path and query.
    Url,
}

/// What follows one of these words and `:` is hidden to the end of the line.
const SECRET_WORDS: [&str; 11] = [
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "headers",
    "key",
    "passwd",
    "password",
    "secret",
    "token",
];

/// A run of letters and digits this long, with some of both, looks like a key.
const RUN_LEN_MIN: usize = 12;

/// A longer word is no key.
const KEY_LEN_MAX: usize = 32;

/// An IPv4 address with a port: longer numbers may be account numbers.
const NUMBER_LEN_MAX: usize = 21;

/// `source` with secrets starred out, byte for byte.
pub(super) fn mask(source: &str, known: &[(Range<usize>, Hide)]) -> String {
    let mut bytes = source.as_bytes().to_vec();
    for (span, hide) in known {
        let span = span.start.min(bytes.len())..span.end.min(bytes.len());
        match hide {
            Hide::Whole => star(&mut bytes, source, span),
            Hide::Url => star_url(&mut bytes, source, span),
        }
    }
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        star_line(&mut bytes, source, start..start + line.len());
        start += line.len();
    }
    String::from_utf8(bytes).expect("whole characters are replaced by stars")
}

/// `source` with everything starred out, byte for byte, but `words`, the key that
/// begins a line, numbers, hosts and YAML's own signs.
pub(super) fn mask_all_but(source: &str, words: &[&str]) -> String {
    let mut bytes = source.as_bytes().to_vec();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let mut first = true;
        let mut at = 0;
        while at < line.len() {
            let rest = &line[at..];
            let len = piece_len(rest);
            let piece = &rest[..len];
            if !piece.is_empty() {
                let leads = first && rest[len..].starts_with(':') && looks_like_key(piece);
                first &= piece == "-";
                let range = start + at..start + at + len;
                if piece.contains("://") {
                    star_url(&mut bytes, source, range);
                } else if !leads && !words.contains(&piece) && !is_plain_number(piece) {
                    star(&mut bytes, source, range);
                }
            }
            // The sign that ended the piece stays.
            at += len + rest[len..].chars().next().map_or(0, char::len_utf8);
        }
        start += line.len();
    }
    String::from_utf8(bytes).expect("whole characters are replaced by stars")
}

/// Whether a word that stands where a key should may be shown as one.
pub(super) fn looks_like_key(word: &str) -> bool {
    let first = word.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphabetic())
        && word.len() <= KEY_LEN_MAX
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && !word.split(['_', '-', '.']).any(is_opaque)
}

/// Up to the next blank, bracket, comma, quote, or colon that ends a key.
fn piece_len(text: &str) -> usize {
    let ends = |(at, c): &(usize, char)| match c {
        ':' => text[at + 1..].starts_with(char::is_whitespace) || at + 1 == text.len(),
        '{' => !text[..*at].ends_with('$'),
        '}' => !text[..*at].contains("${"),
        c => c.is_whitespace() || matches!(c, '[' | ']' | ',' | '"' | '\''),
    };
    text.char_indices().find(ends).map_or(text.len(), |(at, _)| at)
}

fn is_plain_number(piece: &str) -> bool {
    let sign = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b':' | b'-' | b'#' | b'&');
    piece.len() <= NUMBER_LEN_MAX && piece.bytes().all(sign)
}

fn is_opaque(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    word.len() >= RUN_LEN_MIN && digits > 0 && digits < word.len()
}

fn star_line(bytes: &mut [u8], source: &str, line: Range<usize>) {
    let text = &source[line.clone()];
    for (at, _) in text.match_indices("://") {
        let rest = &text[at..];
        // The brackets of an IPv6 address are its own.
        let host =
            rest.starts_with("://[").then(|| rest.find(']')).flatten().map_or(0, |at| at + 1);
        let ends = [' ', '"', '\'', ',', '}', ']', '\r', '\n'];
        let end = rest[host..].find(ends).map_or(rest.len(), |end| host + end);
        // A reference ends with `}` too: what follows it still belongs to the URL.
        let end = if rest[..end].contains("${") {
            rest.find([' ', '"', '\'', '\r', '\n']).unwrap_or(rest.len())
        } else {
            end
        };
        star_url(bytes, source, line.start + at..line.start + at + end);
    }
    star_values(bytes, source, line.clone());
    let mut run = 0;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if c.is_ascii_alphanumeric() {
            continue;
        }
        let word = &text[run..at];
        if is_opaque(word) {
            star(bytes, source, line.start + run..line.start + at);
        }
        run = at + c.len_utf8();
    }
}

/// Stars out what follows telling keys; the keys inside `headers: { }` are all telling.
fn star_values(bytes: &mut [u8], source: &str, line: Range<usize>) {
    let text = &source[line.clone()];
    let mut depth: usize = 0;
    // The depth of the flow map that a telling key opened.
    let mut inside: Option<usize> = None;
    let mut past = 0;
    for (at, c) in text.char_indices() {
        if at < past {
            continue;
        }
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                inside = inside.filter(|opened| *opened <= depth);
            }
            ':' if text[at + 1..].starts_with([' ', '\t', '"', '\'', '\r', '\n']) => {
                let key = text[..at].trim_end_matches(['"', '\'', ' ']);
                let word = key.rsplit([' ', '"', '\'', '{', ',', '\t']).next().unwrap_or_default();
                let word = word.to_ascii_lowercase();
                let telling = SECRET_WORDS.iter().any(|secret| word.ends_with(secret));
                let value = text[at + 1..].trim_start_matches([' ', '\t']);
                let start = text.len() - value.len();
                if value.starts_with('{') {
                    inside = if telling { inside.or(Some(depth + 1)) } else { inside };
                } else if telling || inside.is_some() {
                    past = start + value_len(value, depth > 0);
                    star(bytes, source, line.start + start..line.start + past);
                }
            }
            _ => {}
        }
    }
}

/// Where a value ends on its line; unsure, it takes all of the rest.
fn value_len(value: &str, flow: bool) -> usize {
    let end = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].find(quote).map(|end| end + 2),
        Some(_) if flow && !value.contains("${") => value.find([',', '}']),
        Some(_) | None => None,
    };
    end.unwrap_or(value.len())
}

/// Stars out what is not scheme, host and port.
fn star_url(bytes: &mut [u8], source: &str, span: Range<usize>) {
    let text = &source[span.clone()];
    let place = text.find("://").map_or(0, |at| at + 3);
    let path = text[place..].find(['/', '?', '#']).map_or(text.len(), |at| place + at);
    if let Some(at) = text[place..path].rfind('@') {
        star(bytes, source, span.start + place..span.start + place + at);
    }
    if path < text.len() {
        star(bytes, source, span.start + path + 1..span.end);
    }
    // What follows the host is only a port if it is a number: a cut URL ends in a password.
    let host = text[place..path].rfind('@').map_or(place, |at| place + at + 1);
    let authority = text[host..path].trim_end_matches(['"', '\'']);
    let name = authority.split(':').next().unwrap_or_default();
    if !name.contains("${") {
        for label in key_in_host(name) {
            star(bytes, source, span.start + host + label.start..span.start + host + label.end);
        }
    }
    if let Some(colon) = authority.rfind(':')
        && !authority.ends_with(']')
        && authority[colon + 1..].bytes().any(|b| !b.is_ascii_digit())
    {
        star(bytes, source, span.start + host + colon + 1..span.start + path);
    }
}

/// Stars out everything but blanks, quotes, brackets and the names of references.
fn star(bytes: &mut [u8], source: &str, span: Range<usize>) {
    let mut at = span.start;
    while at < span.end {
        let rest = &source[at..span.end];
        if rest.starts_with("${") {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            // The default of a reference is a value like any other.
            match rest[..end].find(":-") {
                Some(default) => {
                    let close = usize::from(rest[..end].ends_with('}'));
                    bytes[at + default + 2..at + end - close].fill(b'*');
                }
                None if rest[..end].ends_with('}') => {}
                None => bytes[at + 2..at + end].fill(b'*'),
            }
            at += end;
            continue;
        }
        let Some(c) = rest.chars().next() else { return };
        let shape = c.is_whitespace() || matches!(c, '"' | '\'' | '{' | '}' | '[' | ']' | ',');
        if !shape {
            bytes[at..at + c.len_utf8()].fill(b'*');
        }
        at += c.len_utf8();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, masked: &str) {
        let found = mask(line, &[]);
        assert_eq!(found, masked);
        assert_eq!(found.len(), line.len(), "positions must stay");
    }

    #[test]
    fn urls_show_their_place_only() {
        check("url: https://eth.example/v2/abc", "url: https://eth.example/******");
        check("  - http://u:p@host:80/?key=x # c", "  - http://***@host:80/****** # c");
        check("{ url: \"wss://h/ab\", id: a }", "{ url: \"wss://h/**\", id: a }");
        check("url: https://h/${KEY}/ab", "url: https://h/${KEY}***");
        check("url: https://h/${KEY:-abc}", "url: https://h/${KEY:-***}");
        check("url: http://127.0.0.1:8545", "url: http://127.0.0.1:8545");
        check("url: http://[::1]:8545/x", "url: http://[::1]:8545/*");
        check("url: http://[::1]", "url: http://[::1]");
        check("url: https://me:abc", "url: https://me:***");
        check("url: https://deadbeefcafe.h.io:1/a", "url: https://************.h.io:1/*");
        check("url: https://${KEY}.eth-main.h.io", "url: https://${KEY}.eth-main.h.io");
    }

    #[test]
    fn telling_keys_hide_their_values() {
        check("password: abc", "password: ***");
        check("  x-api-key: 'ab c'", "  x-api-key: '** *'");
        check("headers: { a: b, c: \"d e\" }, x: y", "headers: { a: *, c: \"* *\" }, x: y");
        check("auth: { bearer: ${T} }", "auth: { bearer: ${T} }");
        check(
            "auth: { basic: { user: a, password: b } }",
            "auth: { basic: { user: *, password: * } }",
        );
        check("{ auth: abc, url: \"http://h\" }", "{ auth: ***, url: \"http://h\" }");
        check("headers: [abc]", "headers: [***]");
        check("bearer: ä", "bearer: **");
    }

    #[test]
    fn long_opaque_runs_are_hidden() {
        check("urls: eth.example/abcdef123456", "urls: eth.example/************");
        check("id: eth-mainnet-archive-2", "id: eth-mainnet-archive-2");
        check("batch_items: 1000000000000", "batch_items: 1000000000000");
        check("limits: averyveryverylongword", "limits: averyveryverylongword");
    }

    #[test]
    fn without_structure_only_known_words_stay() {
        let words = ["url", "https", "tier", "fallback", "password"];
        for (line, masked) in [
            ("listen: \"127.0.0.1:80\n", "listen: \"127.0.0.1:80\n"),
            ("  my-chain:\n", "  my-chain:\n"),
            ("  - url https//me:x@h/k", "  - url ***************"),
            (
                "{ url: http://h/${KEY}/x, tier: fallback ",
                "{ url: http://h/${KEY}**, tier: fallback ",
            ),
            ("{ password abc }", "{ password *** }"),
            ("password:abc", "************"),
            ("abc\", x: [y", "***\", *: [*"),
            ("k1k2k3k4k5k6: x", "************: *"),
        ] {
            assert_eq!(mask_all_but(line, &words), masked);
        }
    }

    #[test]
    fn known_values_are_hidden() {
        let source = "a: geheim b: h/ab";
        assert_eq!(mask(source, &[(3..9, Hide::Whole), (13..17, Hide::Url)]), "a: ****** b: h/**");
    }
}
