//! Rust code as words and signs, each with its line.
//!
//! The input is what `mask` calls code: strings, character literals and comments are gone.

/// A word, a lifetime, a number, `::`, `->`, `=>`, or any other single sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Splits `code` into its tokens.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (text, after) = rest.split_at(length(rest));
            found.push(Token { text, line: index + 1 });
            rest = after.trim_start();
        }
    }
    found
}

/// The length in bytes of the token at the start of `rest`, which is not empty.
fn length(rest: &str) -> usize {
    if ["::", "->", "=>"].iter().any(|sign| rest.starts_with(sign)) {
        return 2;
    }
    let quote = usize::from(rest.starts_with('\''));
    let word = rest[quote..].find(|c| !is_word(c)).unwrap_or(rest.len() - quote);
    if word > 0 { quote + word } else { rest.chars().next().map_or(1, char::len_utf8) }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `token` is a name or a keyword, as opposed to a sign or a number.
pub(super) fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The index after the bracket that closes the one at `open`; the end where none does.
///
/// Counts `(`, `[` and `{` alike, and `<` where the bracket at `open` is one.
pub(super) fn after_group(tokens: &[Token<'_>], open: usize) -> usize {
    let counts_angles = tokens.get(open).is_some_and(|token| token.text == "<");
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            "<" if counts_angles => depth += 1,
            ">" if counts_angles => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &str) {
        let texts: Vec<&str> = tokens(code).iter().map(|token| token.text).collect();
        assert_eq!(texts.join(" "), expected);
    }

    #[test]
    fn words_and_signs() {
        check("fn f<'a>(x:&'a u8)->crate::Y{}", "fn f < 'a > ( x : & 'a u8 ) -> crate :: Y { }");
    }
    #[test]
    fn lines_are_counted() {
        assert_eq!(tokens("a\n\n b"), [Token { text: "a", line: 1 }, Token { text: "b", line: 3 }]);
    }
    #[test]
    fn end_of_a_group() {
        assert_eq!(after_group(&tokens("( a [ b ] ) c"), 0), 6);
        assert_eq!(after_group(&tokens("< F : Fn ( ) -> X > ( )"), 0), 9);
        assert_eq!(after_group(&tokens("( a"), 0), 2);
    }
}
