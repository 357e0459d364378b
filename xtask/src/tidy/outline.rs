//! What a Rust file defines and names: its types, functions, modules and paths into its crate.
//!
//! A reading of tokens, not a parser: enough for the rules of the house, and quick. Code under
//! `#[cfg(test)]` is left out; what a `macro_rules!` body would define is, too, while the paths
//! in it count. Items inside the braces of a macro call (`section! { .. }`) count as written.

use super::mask::Masked;
use super::tokens::{Token, after_group, is_name, tokens};

/// One file, read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) types: Vec<NamedLine>,
    pub(super) functions: Vec<Function>,
    pub(super) paths: Vec<ModulePath>,
    /// Modules that the file declares for its tests alone.
    pub(super) test_modules: Vec<String>,
    /// First lines of doc comments.
    pub(super) doc_beginnings: Vec<NamedLine>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedLine {
    pub(super) name: String,
    pub(super) line: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// `Type::name` in an `impl` or a trait, else the name alone.
    pub(super) name: String,
    pub(super) line: usize,
    /// From `fn` to the closing brace.
    pub(super) lines: usize,
    /// Without `self`; a tuple pattern counts as many as it has elements.
    pub(super) parameters: usize,
    /// Whether it is `async`, or takes `self` to change it.
    pub(super) acts: bool,
}

/// A path that a `use` or an expression names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModulePath {
    /// With `crate`, `super` or `self` in front, or whatever else it begins with.
    pub(super) segments: Vec<String>,
    /// The name that a `use` gives it in the file.
    pub(super) alias: Option<String>,
    /// Modules of the file that it stands in, from the outside.
    pub(super) inside: Vec<String>,
    /// Whether it is passed on by a `pub use`.
    pub(super) is_reexport: bool,
    pub(super) line: usize,
}

/// Reads one file.
pub(super) fn outline(masked: &Masked) -> Outline {
    let tokens = tokens(&masked.code);
    let mut reader = OutlineReader {
        tokens: &tokens,
        at: 0,
        scopes: Vec::new(),
        next_scope: None,
        found: Outline::default(),
    };
    while reader.at < tokens.len() {
        reader.step();
    }
    let mut found = reader.found;
    found.doc_beginnings = doc_beginnings(&masked.code_and_comments);
    found
}

/// What a brace encloses.
#[derive(Debug, PartialEq, Eq)]
enum BraceScope {
    Module(String),
    /// An `impl` or a trait, by the type's name.
    Type(String),
    /// The braces of a macro call: what stands there stands outside of it.
    MacroCall,
    MacroRules,
    /// A function's body, an expression, a list of fields.
    Other,
}

struct OutlineReader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    scopes: Vec<BraceScope>,
    /// What the next brace will open.
    next_scope: Option<BraceScope>,
    found: Outline,
}

impl OutlineReader<'_> {
    /// Reads the token at hand, and as many more as belong to it.
    fn step(&mut self) {
        let token = self.tokens[self.at];
        match token.text {
            "#" => return self.attribute(),
            "{" => {
                let scope = self.next_scope.take().unwrap_or(BraceScope::Other);
                self.scopes.push(scope);
            }
            "}" => {
                self.scopes.pop();
            }
            ";" => self.next_scope = None,
            "mod" if self.is_name_at(1) => {
                self.next_scope = Some(BraceScope::Module(self.text(1).to_owned()));
            }
            "use" if self.text(1) != "<" => return self.import(),
            "macro_rules" => self.next_scope = Some(BraceScope::MacroRules),
            "!" if self.text(1) == "{" && self.is_item_level() && self.next_scope.is_none() => {
                self.next_scope = Some(BraceScope::MacroCall);
            }
            "struct" | "enum" | "trait" | "type" if self.is_name_at(1) => self.named_type(),
            "impl" if self.starts_item() => {
                self.next_scope = Some(BraceScope::Type(self.impl_name()));
            }
            "fn" if self.is_name_at(1) => self.function(),
            name if is_name(name) && self.text(1) == "::" => return self.path(),
            _ => {}
        }
        self.at += 1;
    }

    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |token| token.text)
    }

    fn before(&self) -> &str {
        self.at.checked_sub(1).map_or("", |at| self.tokens[at].text)
    }

    fn is_name_at(&self, ahead: usize) -> bool {
        is_name(self.text(ahead))
    }

    /// Whether the place at hand belongs to the module, not to a function or a type.
    fn is_item_level(&self) -> bool {
        self.scopes
            .iter()
            .all(|scope| matches!(scope, BraceScope::Module(_) | BraceScope::MacroCall))
    }

    /// Whether an item begins here, as opposed to the `impl Trait` of a type.
    fn starts_item(&self) -> bool {
        matches!(self.before(), "" | ";" | "{" | "}" | "]" | "unsafe")
    }

    fn modules(&self) -> Vec<String> {
        let name = |scope: &BraceScope| match scope {
            BraceScope::Module(name) => Some(name.clone()),
            BraceScope::Type(_)
            | BraceScope::MacroCall
            | BraceScope::MacroRules
            | BraceScope::Other => None,
        };
        self.scopes.iter().filter_map(name).collect()
    }

    /// Skips an attribute, and what follows it where that is for tests alone.
    fn attribute(&mut self) {
        let is_inner = self.text(1) == "!";
        let open = self.at + 1 + usize::from(is_inner);
        if self.tokens.get(open).is_none_or(|token| token.text != "[") {
            self.at += 1;
            return;
        }
        let end = after_group(self.tokens, open);
        let words: Vec<&str> = self.tokens[open..end].iter().map(|token| token.text).collect();
        let is_for_tests =
            words.get(1) == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not");
        self.at = end;
        if is_for_tests && is_inner {
            self.at = self.tokens.len();
        } else if is_for_tests {
            self.skip_item();
        }
    }

    /// Goes on after the item at hand, and remembers its name where it is a module elsewhere.
    fn skip_item(&mut self) {
        const TO_SEMICOLON: [&str; 4] = ["use", "const", "static", "let"];
        const TO_BRACE: [&str; 7] = ["fn", "mod", "impl", "struct", "enum", "trait", "macro_rules"];
        while self.text(0) == "#" {
            self.at = after_group(self.tokens, self.at + 1);
        }
        let mut keyword = "";
        while let Some(&Token { text, .. }) = self.tokens.get(self.at) {
            let is_keyword = TO_SEMICOLON.contains(&text) || TO_BRACE.contains(&text);
            if text == "fn" || keyword.is_empty() && is_keyword {
                keyword = text;
            }
            if text == "mod" && self.text(2) == ";" {
                let name = self.text(1).to_owned();
                self.found.test_modules.push(name);
            }
            let is_group = matches!(text, "(" | "[" | "{");
            self.at = match text {
                "}" => return,
                _ if is_group => after_group(self.tokens, self.at),
                _ => self.at + 1,
            };
            // A comma ends a field, a variant or an arm.
            let is_end = match text {
                ";" => true,
                "," => keyword.is_empty(),
                "{" => !TO_SEMICOLON.contains(&keyword),
                _ => false,
            };
            if is_end {
                return;
            }
        }
    }

    fn named_type(&mut self) {
        let name = self.text(1).to_owned();
        if self.text(0) == "trait" {
            self.next_scope = Some(BraceScope::Type(name.clone()));
        }
        if self.is_item_level() {
            self.found.types.push(NamedLine { name, line: self.tokens[self.at].line });
        }
    }

    /// The name of the type that the `impl` at hand is for.
    fn impl_name(&self) -> String {
        let mut at = self.at + 1;
        if self.tokens.get(at).is_some_and(|token| token.text == "<") {
            at = after_group(self.tokens, at);
        }
        let mut name = "";
        while let Some(token) = self.tokens.get(at) {
            match token.text {
                "{" | "where" | ";" => break,
                "<" => {
                    at = after_group(self.tokens, at);
                    continue;
                }
                "for" | "dyn" | "mut" => {}
                text if is_name(text) => name = text,
                _ => {}
            }
            at += 1;
        }
        name.to_owned()
    }

    /// Notes the function at hand; its body is read as everything else is.
    fn function(&mut self) {
        let start = self.at;
        let open = if self.text(2) == "<" { self.after(start + 2) } else { start + 2 };
        if self.scopes.contains(&BraceScope::MacroRules) || !self.is(open, "(") {
            return;
        }
        let body = self.body(self.after(open));
        let end = if self.is(body, "{") { self.after(body) } else { body };
        let last = self.tokens[start..end].last().map_or(0, |token| token.line);
        let parameters = split(inner(&self.tokens[open..self.after(open)]));
        let words = self.tokens[..start].iter().rev().take_while(|token| is_name(token.text));
        let is_async = words.map(|token| token.text).any(|word| word == "async")
            || self.tokens[open..body].iter().any(|token| token.text == "Future");
        let owner = self.scopes.iter().rev().find_map(|scope| match scope {
            BraceScope::Type(name) => Some(format!("{name}::")),
            BraceScope::Module(_)
            | BraceScope::MacroCall
            | BraceScope::MacroRules
            | BraceScope::Other => None,
        });
        let function = Function {
            name: owner.unwrap_or_default() + self.text(1),
            line: self.tokens[start].line,
            lines: last + 1 - self.tokens[start].line,
            parameters: parameters.iter().filter(|one| !is_self(one)).map(|one| values(one)).sum(),
            acts: is_async || parameters.first().is_some_and(|first| changes_self(first)),
        };
        self.found.functions.push(function);
    }

    fn after(&self, open: usize) -> usize {
        after_group(self.tokens, open)
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.text == text)
    }

    /// Where the body of a function begins, or its semicolon, from the end of its parameters.
    fn body(&self, mut at: usize) -> usize {
        while at < self.tokens.len() && !self.is(at, "{") && !self.is(at, ";") {
            at = if self.is(at, "(") || self.is(at, "[") { self.after(at) } else { at + 1 };
        }
        at
    }

    /// Reads a `use` to its end.
    fn import(&mut self) {
        let is_reexport = matches!(self.before(), "pub" | ")");
        let mut end = self.at + 1;
        while self.tokens.get(end).is_some_and(|token| token.text != ";") {
            end += 1;
        }
        let mut leaves = Vec::new();
        leaves_of(&self.tokens[self.at + 1..end], &[], &mut leaves);
        let inside = self.modules();
        self.found.paths.extend(leaves.into_iter().map(|(segments, alias, line)| ModulePath {
            segments,
            alias,
            inside: inside.clone(),
            is_reexport,
            line,
        }));
        self.at = end;
    }

    /// Reads a path in code, `pub(in path)` left out.
    fn path(&mut self) {
        let is_visibility =
            self.before() == "in" && self.at >= 2 && self.tokens[self.at - 2].text == "(";
        let line = self.tokens[self.at].line;
        let mut segments = vec![self.text(0).to_owned()];
        while self.text(1) == "::" && self.is_name_at(2) {
            segments.push(self.text(2).to_owned());
            self.at += 2;
        }
        self.at += 1;
        if !is_visibility && segments[0].starts_with(char::is_lowercase) {
            let inside = self.modules();
            self.found.paths.push(ModulePath {
                segments,
                alias: None,
                inside,
                is_reexport: false,
                line,
            });
        }
    }
}

type Leaf = (Vec<String>, Option<String>, usize);

/// The paths of a `use` tree, `a::{b, c as d, self}`.
fn leaves_of(tree: &[Token<'_>], prefix: &[String], leaves: &mut Vec<Leaf>) {
    for branch in split(tree) {
        let mut segments = prefix.to_vec();
        let mut alias = None;
        let mut at = 0;
        while let Some(token) = branch.get(at) {
            match token.text {
                "{" => {
                    leaves_of(inner(&branch[at..after_group(branch, at)]), &segments, leaves);
                    segments.clear();
                    break;
                }
                "as" => {
                    alias = branch.get(at + 1).map(|token| token.text.to_owned());
                    break;
                }
                "self" if !prefix.is_empty() => {}
                "*" => segments.push("*".to_owned()),
                text if is_name(text) => segments.push(text.to_owned()),
                _ => {}
            }
            at += 1;
        }
        if let (Some(first), false) = (branch.first(), segments.is_empty()) {
            let alias = alias.or_else(|| segments.last().cloned());
            leaves.push((segments, alias, first.line));
        }
    }
}

/// The parts between the commas that stand in no bracket.
fn split<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let mut parts = Vec::new();
    let mut depth = 0_usize;
    let mut start = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                parts.push(&tokens[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// What a group encloses: its tokens without the brackets.
fn inner<'a, 'b>(group: &'b [Token<'a>]) -> &'b [Token<'a>] {
    group.get(1..group.len().saturating_sub(1)).unwrap_or_default()
}

fn is_self(parameter: &[Token<'_>]) -> bool {
    parameter.iter().take_while(|token| token.text != ":").any(|token| token.text == "self")
}

/// Whether a parameter is `&mut self`, however it is written.
fn changes_self(parameter: &[Token<'_>]) -> bool {
    let has = |text: &str| parameter.iter().any(|token| token.text == text);
    is_self(parameter) && has("&") && has("mut")
}

/// How many values a pattern binds apart: 1, or as many as its tuple has.
fn values(parameter: &[Token<'_>]) -> usize {
    let start = parameter.iter().position(|token| !matches!(token.text, "&" | "mut"));
    let Some(open) = start.filter(|at| parameter[*at].text == "(") else { return 1 };
    let tuple = inner(&parameter[open..after_group(parameter, open)]);
    split(tuple).into_iter().map(values).sum::<usize>().max(1)
}

/// The first line of each doc comment, without its slashes.
fn doc_beginnings(code_and_comments: &str) -> Vec<NamedLine> {
    let mut found = Vec::new();
    let mut was_doc = false;
    for (index, line) in code_and_comments.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let (Some(doc), false) = (doc, was_doc) {
            found.push(NamedLine { name: doc.trim().to_owned(), line: index + 1 });
        }
        was_doc = doc.is_some();
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::mask::mask;
    use super::*;

    pub(in crate::tidy) fn outline(text: &str) -> Outline {
        super::outline(&mask(text))
    }

    fn types(text: &str, expected: &str) {
        let names: Vec<String> = outline(text).types.into_iter().map(|found| found.name).collect();
        assert_eq!(names.join(" "), expected);
    }

    /// `expected`: name, lines, parameters, and `acts` where it does.
    fn functions(text: &str, expected: &[&str]) {
        let found: Vec<String> = outline(text)
            .functions
            .into_iter()
            .map(|Function { name, lines, parameters, acts, .. }| {
                format!("{name} {lines} {parameters}{}", if acts { " acts" } else { "" })
            })
            .collect();
        assert_eq!(found, expected);
    }

    fn paths(text: &str, expected: &[&str]) {
        let found: Vec<String> = outline(text)
            .paths
            .into_iter()
            .map(|path| {
                let inside: String = path.inside.iter().map(|name| format!("{name} > ")).collect();
                let reexport = if path.is_reexport { "pub " } else { "" };
                let alias = path.alias.filter(|alias| path.segments.last() != Some(alias));
                let alias = alias.map(|alias| format!(" as {alias}")).unwrap_or_default();
                format!("{inside}{reexport}{}{alias}", path.segments.join("::"))
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn types_of_a_module() {
        types(
            "struct A; pub(crate) enum B<T> { C(T) } trait D { type E; } type F = u8; mod m { struct G(u8); }",
            "A B D F G",
        );
    }
    #[test]
    fn types_in_functions_and_impls_are_private_words() {
        types("fn f() { struct A; } impl X for Y { type B = u8; }", "");
    }
    #[test]
    fn types_of_tests() {
        types("#[cfg(test)] mod tests { struct A; } #[cfg(test)] struct B; struct C;", "C");
        types(
            "#[cfg(not(test))] struct A; #[cfg(all(test, unix))] #[derive(X)] struct B {} struct C;",
            "A C",
        );
        types("#![cfg(test)] struct A;", "");
        types("struct A { #[cfg(test)] x: u8, y: u8 } struct B;", "A B");
        types(
            "#[cfg(test)] const fn f() {} struct A; #[cfg(test)] use a::{b, c}; struct B;",
            "A B",
        );
    }
    #[test]
    fn types_in_macros() {
        types("section! { pub struct A { x: u8 } } struct B;", "A B");
        types("macro_rules! m { () => { struct A; }; } struct B;", "B");
    }
    #[test]
    fn size_of_a_function() {
        functions("fn f(a: u8, b: &[u8]) -> [u8; 2] {\n\n}", &["f 3 2"]);
        functions(
            "impl<T> From<X> for a::Y<T> { fn f<F: Fn(u8) -> u8>(self, f: F) {} }",
            &["Y::f 1 1"],
        );
        functions("trait T { fn f(&self); }", &["T::f 1 0"]);
        functions(
            "fn f(x: impl Fn(u8, u8), y: HashMap<u8, u8>) { fn g() {} }",
            &["f 1 2", "g 1 0"],
        );
    }
    #[test]
    fn tuples_are_counted_out() {
        functions("fn f((a, b): (u8, u8), &(c, (d, e)): &X, g: (u8, u8)) {}", &["f 1 6"]);
    }
    #[test]
    fn functions_that_act() {
        functions(
            "impl X { pub async fn f(&self) {} fn g(&mut self) {} }",
            &["X::f 1 0 acts", "X::g 1 0 acts"],
        );
        functions(
            "impl X { fn f(mut self, x: &mut u8) {} fn g(&'a self) {} }",
            &["X::f 1 1", "X::g 1 0"],
        );
        functions("fn f() -> impl Future<Output = ()> {}", &["f 1 0 acts"]);
        functions("impl X { fn f(self: Pin<&mut Self>) {} }", &["X::f 1 0 acts"]);
    }
    #[test]
    fn paths_of_imports() {
        paths(
            "use crate::{a::{self, B as C}, d::*};\npub(crate) use super::e::F;",
            &["crate::a", "crate::a::B as C", "crate::d::*", "pub super::e::F"],
        );
    }
    #[test]
    fn paths_in_code() {
        paths(
            "mod m { fn f() { crate::a::b(); Vec::new(); super::c::<u8>() } } pub(in crate::x) fn g() {}",
            &["m > crate::a::b", "m > super::c"],
        );
        paths("macro_rules! m { () => { $crate::a::b() }; }", &["crate::a::b"]);
        paths("fn f() -> impl Sized + use<'_> {} // crate::a::b", &[]);
    }
    #[test]
    fn modules_of_tests() {
        assert_eq!(
            outline("#[cfg(test)] mod a; mod b; #[cfg(test)] mod c { }").test_modules,
            ["a"]
        );
    }
    #[test]
    fn beginnings_of_comments() {
        let found = outline("//! One\n//! two.\n\n/// Three.\n#[x]\n// no\n/// Four.\nfn f() {}");
        let found: Vec<(String, usize)> =
            found.doc_beginnings.into_iter().map(|named| (named.name, named.line)).collect();
        let expected = [("One", 1), ("Three.", 4), ("Four.", 7)];
        assert_eq!(found, expected.map(|(text, line)| (text.to_owned(), line)));
    }
    #[test]
    fn text_that_is_no_rust() {
        for text in
            ["fn f(", "use a::{", "#[", "impl<", "mod", "fn f<", "}}}", "#[cfg(test)]", "use"]
        {
            let _ = outline(text);
        }
    }
}
