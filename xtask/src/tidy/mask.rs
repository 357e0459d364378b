//! Rust source with the parts blanked out that a rule must not look at.
//!
//! A scanner, not a parser: it knows comments, strings and character literals,
//! which is all that telling code from prose needs. Line numbers stay.

/// The source twice: as code alone, and as everything but strings.
#[derive(Debug)]
pub(crate) struct Masked {
    /// Comments and the insides of strings are spaces.
    pub(crate) code: String,
    /// The insides of strings are spaces; comments are there.
    pub(crate) code_and_comments: String,
}

/// Splits `text`; a file that does not compile gives a poor split, never a panic.
pub(crate) fn mask(text: &str) -> Masked {
    let mut masked = Masked { code: String::new(), code_and_comments: String::new() };
    let mut rest = text;
    while !rest.is_empty() {
        let (kind, length) = next_piece(rest);
        let (piece, after) = rest.split_at(length);
        if kind == PieceKind::Code {
            masked.code.push_str(piece);
            masked.code_and_comments.push_str(piece);
        } else {
            let blank: String = piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            masked.code.push_str(&blank);
            masked.code_and_comments.push_str(if kind == PieceKind::Text { &blank } else { piece });
        }
        rest = after;
    }
    masked
}

/// The strings of `text` as written, quotes and all, each with where it begins.
pub(crate) fn strings(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let (kind, length) = next_piece(&text[at..]);
        if kind == PieceKind::Text {
            found.push((at, &text[at..at + length]));
        }
        at += length;
    }
    found
}

#[derive(Debug, PartialEq, Eq)]
enum PieceKind {
    Code,
    Comment,
    Text,
}

/// The kind and length in bytes of the piece at the start of `rest`, which is not empty.
fn next_piece(rest: &str) -> (PieceKind, usize) {
    // Spaces and most signs begin nothing: all that follow each other at once, for speed.
    let plain =
        |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"_/\"'".contains(byte);
    let plain = rest.bytes().take_while(plain).count();
    if plain > 0 {
        return (PieceKind::Code, plain);
    }
    if rest.starts_with("//") {
        return (PieceKind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (PieceKind::Comment, block_comment(rest));
    }
    if rest.starts_with('"') {
        return (PieceKind::Text, quoted(rest));
    }
    if let Some(length) = raw_string(rest) {
        return (PieceKind::Text, length);
    }
    if let Some(length) = character(rest) {
        return (PieceKind::Text, length);
    }
    // A whole word at once, so that the `r` of `for "x"` does not start a raw string.
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    let length = if word > 0 { word } else { rest.chars().next().map_or(1, char::len_utf8) };
    (PieceKind::Code, length)
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"]
        .into_iter()
        .find(|prefix| rest.strip_prefix(prefix).is_some_and(|t| t.starts_with(['"', '#'])))?;
    let after = &rest[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = inside.find(&close).map_or(inside.len(), |at| at + close.len());
    Some(prefix.len() + hashes + 1 + length)
}

/// `'x'` and `'\n'`, but not the lifetime `'x`.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    if let Some(escape) = inside.strip_prefix('\\') {
        let skipped = escape.chars().next()?.len_utf8();
        return Some(2 + skipped + escape[skipped..].find('\'')? + 1);
    }
    let length = inside.chars().next()?.len_utf8();
    inside[length..].starts_with('\'').then_some(1 + length + 1)
}

#[cfg(test)]
mod tests {
    use super::mask;

    fn check(text: &str, code: &str, code_and_comments: &str) {
        let masked = mask(text);
        assert_eq!(masked.code, code);
        assert_eq!(masked.code_and_comments, code_and_comments);
    }

    #[test]
    fn line_comment() {
        check("a // b\nc", "a     \nc", "a // b\nc");
    }
    #[test]
    fn nested_block_comment() {
        check("a /* /* b\n*/ */ c", "a        \n      c", "a /* /* b\n*/ */ c");
    }
    #[test]
    fn string_with_escaped_quote() {
        check(r#"f("a\"//b") g"#, "f(        ) g", "f(        ) g");
    }
    #[test]
    fn raw_string() {
        check(r##"r#"a"b"# c"##, "         c", "         c");
    }
    #[test]
    fn word_before_a_string_is_no_prefix() {
        check(r#"for"a""#, "for   ", "for   ");
    }
    #[test]
    fn lifetimes_are_code() {
        check("<'a> 'b' '\\'' 'c", "<'a>          'c", "<'a>          'c");
    }
    #[test]
    fn unclosed_string_ends_with_the_file() {
        check("\"abc", "    ", "    ");
    }
}
