//! Rules for Rust files: headers, size, unfinished work, sockets, names.
//!
//! What a manifest may depend on is `imports`' business, and what holds for
//! every file alike is `texts`'.

use super::mask::Masked;

/// A file past this has more than one job. Tables of cases may be long, hence
/// the room over what we aim for.
const LINES_MAX: usize = 900;

/// Folders whose code may name a socket library; all tests may too.
const MAY_NAME_SOCKETS: [&str; 6] =
    ["crates/net/", "crates/server/", "crates/sim/", "crates/store/", "tests/", "benches/"];

/// Paths of libraries and modules that open sockets.
const SOCKET_PATHS: [&str; 9] = [
    "hyper::",
    "hyper_util::",
    "h2::",
    "redis::",
    "socket2::",
    "tokio::net",
    "tokio_tungstenite::",
    "std::net::Tcp",
    "std::net::Udp",
];

/// Words for things that have better ones here: upstream, candidate; and
/// modules whose real name has not been found.
const NAMES_NOT_USED: [(&str, &str); 6] = [
    ("struct Backend", "we say `upstream`"),
    ("enum Backend", "we say `upstream`"),
    ("mod utils", "name it for what it does"),
    ("mod common", "name it for what it does"),
    ("mod helpers", "name it for what it does"),
    ("mod manager", "name it for what it does"),
];

/// All rules for one Rust file.
pub(super) fn check(path: &str, text: &str, masked: &Masked) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("//!") {
        problems.push(format!("{path}:1: starts without `//!`: say what the file is for"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        problems
            .push(format!("{path}: {lines} lines; at most {LINES_MAX}: find the second job in it"));
    }
    for (line, marked) in numbered(&masked.code_and_comments) {
        for mark in ["TODO", "FIXME", "XXX"] {
            if has_word(marked, mark) {
                problems.push(format!("{path}:{line}: `{mark}`: a promise to return is an issue"));
            }
        }
    }
    let mut in_tests = is_test_file(path);
    // A file of helpers sleeps under the clock of the tests that call it.
    let has_tests = masked.code.contains("#[cfg(test)]")
        || masked.code.contains("test]")
        || masked.code.contains("::test(");
    let paused = masked.code.contains("start_paused") || masked.code.contains("time::pause");
    for (line, code) in numbered(&masked.code) {
        // A `mod tests` is the last thing of its file.
        in_tests |= code.contains("#[cfg(test)]");
        let mut say = |what: &str| problems.push(format!("{path}:{line}: {what}"));
        for (unfinished, why) in UNFINISHED {
            if code.contains(unfinished) {
                say(&format!("`{unfinished}`: {why}"));
            }
        }
        let explained = |line: usize| {
            line >= 2
                && text.lines().nth(line - 2).is_some_and(|above| above.trim().starts_with("//"))
        };
        if in_tests && has_tests && !paused && names_path(code, "sleep(") && !explained(line) {
            say(
                "`sleep` in a test: wait for what should happen, pause the clock, or say above why",
            );
        }
        if !in_tests && !may_name_sockets(path) {
            for socket in SOCKET_PATHS.iter().filter(|socket| names_path(code, socket)) {
                say(&format!(
                    "`{socket}`: only `net`, `server`, `sim` and `store` name a socket library"
                ));
            }
        }
        for (name, why) in NAMES_NOT_USED {
            if has_word(code, name) {
                say(&format!("`{name}`: {why}"));
            }
        }
    }
    problems
}

const UNFINISHED: [(&str, &str); 4] = [
    ("dbg!(", "for the desk, not for the repository"),
    ("todo!(", "finish it, or open an issue"),
    ("#[ignore", "a test that is not run proves nothing"),
    ("thread::sleep(", "nothing may block a worker, nor wait blindly"),
];

fn is_test_file(path: &str) -> bool {
    // The end-to-end harness polls other processes, which no clock of ours can pause.
    if path.starts_with("tests/e2e/src/") {
        return false;
    }
    path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "fuzz"))
        || path.ends_with("_tests.rs")
}

fn may_name_sockets(path: &str) -> bool {
    MAY_NAME_SOCKETS.iter().any(|folder| path.starts_with(folder))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// `word` with no letter, digit or underscore on either side.
fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word)
    })
}

/// `path` not as the end of a longer word: `h2::` is not in `auth2::`.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::super::mask::mask;

    fn problems(path: &str, text: &str) -> Vec<String> {
        super::check(path, text, &mask(text))
    }
    fn check_at(path: &str, body: &str, expected: &[&str]) {
        assert_eq!(problems(path, &format!("//! Header.\n{body}")), expected);
    }
    fn check(body: &str, expected: &[&str]) {
        check_at("crates/eth/src/tag.rs", body, expected);
    }

    #[test]
    fn plain_code() {
        check("use std::net::SocketAddr;\nfn f() { sleep(1) }", &[]);
    }
    #[test]
    fn no_header() {
        assert_eq!(
            problems("bin/src/main.rs", "fn main() {}"),
            ["bin/src/main.rs:1: starts without `//!`: say what the file is for"],
        );
    }
    #[test]
    fn long_file() {
        check(
            &"\n".repeat(900),
            &["crates/eth/src/tag.rs: 901 lines; at most 900: find the second job in it"],
        );
    }
    #[test]
    fn mark_in_a_comment() {
        check(
            "// TODO: later",
            &["crates/eth/src/tag.rs:2: `TODO`: a promise to return is an issue"],
        );
    }
    #[test]
    fn mark_in_a_string_or_word() {
        check("f(\"TODO\"); TODOS", &[]);
    }
    #[test]
    fn debugging_left_behind() {
        check(
            "dbg!(x);",
            &["crates/eth/src/tag.rs:2: `dbg!(`: for the desk, not for the repository"],
        );
    }
    #[test]
    fn unfinished_function() {
        check("todo!()", &["crates/eth/src/tag.rs:2: `todo!(`: finish it, or open an issue"]);
    }
    #[test]
    fn test_that_is_not_run() {
        check(
            "#[ignore]",
            &["crates/eth/src/tag.rs:2: `#[ignore`: a test that is not run proves nothing"],
        );
    }
    #[test]
    fn blocking_sleep() {
        check(
            "std::thread::sleep(d)",
            &[
                "crates/eth/src/tag.rs:2: `thread::sleep(`: nothing may block a worker, nor wait blindly",
            ],
        );
    }
    #[test]
    fn sleep_in_a_test() {
        check(
            "#[cfg(test)]\nmod tests { fn f() { time::sleep(d) } }",
            &[
                "crates/eth/src/tag.rs:3: `sleep` in a test: wait for what should happen, pause the clock, or say above why",
            ],
        );
    }
    #[test]
    fn sleep_in_a_file_of_tests() {
        check_at(
            "crates/eth/tests/x.rs",
            "#[tokio::test]\nasync fn f() { sleep(d) }",
            &[
                "crates/eth/tests/x.rs:3: `sleep` in a test: wait for what should happen, pause the clock, or say above why",
            ],
        );
    }
    #[test]
    fn sleep_in_a_helper() {
        check_at("crates/eth/tests/support/mod.rs", "async fn f() { sleep(d) }", &[]);
    }
    #[test]
    fn sleep_with_a_reason() {
        check(
            "#[cfg(test)]\nmod tests { fn f() {\n// Nothing may happen meanwhile.\nsleep(d) } }",
            &[],
        );
    }
    #[test]
    fn sleep_under_a_paused_clock() {
        check(
            "#[cfg(test)]\nmod tests { #[tokio::test(start_paused = true)] fn f() { sleep(d) } }",
            &[],
        );
    }
    #[test]
    fn socket_library_in_the_wrong_place() {
        check(
            "use tokio::net::TcpStream;",
            &[
                "crates/eth/src/tag.rs:2: `tokio::net`: only `net`, `server`, `sim` and `store` name a socket library",
            ],
        );
    }
    #[test]
    fn socket_library_where_it_belongs() {
        check_at("crates/net/src/pool.rs", "use tokio::net::TcpStream;", &[]);
    }
    #[test]
    fn socket_library_in_a_test() {
        check("#[cfg(test)]\nmod tests { use hyper::Request; }", &[]);
    }
    #[test]
    fn end_of_a_longer_path() {
        check("auth2::check(); // hyper::Request", &[]);
    }
    #[test]
    fn word_we_do_not_use() {
        check(
            "pub struct Backend;",
            &["crates/eth/src/tag.rs:2: `struct Backend`: we say `upstream`"],
        );
    }
}
