//! The secrets of clients, looked for in all that the tests see of wellhead.
//!
//! Each key that a test hands to a client is guarded from then on: what wellhead prints, answers, and asks of the
//! upstreams of this harness is searched for it, in every test of the run and without a word of it. A secret
//! that is found fails the test whose process ends next, with the place where it was.

use std::sync::{Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem::Finder;

/// Secrets that are found are told up to this count; the first ones say what is wrong.
const FOUND_MAX: usize = 10;

/// Bytes around a secret that is found, to be told.
const AROUND: usize = 200;

/// A secret, in one of the forms in which an output might hold it.
struct GuardedForm {
    /// Of what: no secret.
    owner: String,
    finder: Finder<'static>,
}

static GUARDED: Mutex<Vec<GuardedForm>> = Mutex::new(Vec::new());
static FOUND: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

/// From now on this text of a key of a client, or another secret, may be in no output.
///
/// A key is known by its secret part alone: its id is in outputs, and has to be.
pub fn guard_secret(text: &str) {
    let parts: Vec<_> = text.split('_').collect();
    let (owner, secret) = match parts[..] {
        ["wh", _, id, secret, _] => (format!("the key {id}"), secret),
        _ => (format!("a secret of {} bytes", text.len()), text),
    };
    let mut guarded = lock(&GUARDED);
    for form in secret_forms(secret) {
        let is_known = guarded.iter().any(|it| it.finder.needle() == form.as_bytes());
        if !is_known {
            let finder = Finder::new(form.as_bytes()).into_owned();
            guarded.push(GuardedForm { owner: owner.clone(), finder });
        }
    }
}

/// What a secret may look like in an output: as it is, in capitals, and within base64.
#[must_use]
pub fn secret_forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned(), secret.to_ascii_uppercase()];
    // Each of the three places at which it may begin within groups of base64; the first and the last digits
    // depend on what is beside it.
    for before in ["", "x", "xx"] {
        let encoded = STANDARD.encode(format!("{before}{secret}"));
        forms.push(encoded[4..encoded.len() - 4].to_owned());
    }
    forms
}

/// Looks for all guarded secrets in an output of wellhead. What is found is told by [`assert_none_found`].
pub(crate) fn look_for_secrets(place: &str, output: &[u8]) {
    for GuardedForm { owner, finder } in lock(&GUARDED).iter() {
        let Some(at) = finder.find(output) else { continue };
        let around = &output[at.saturating_sub(AROUND)..output.len().min(at + AROUND)];
        let mut found = lock(&FOUND);
        if found.len() < FOUND_MAX {
            found.push(format!("{owner} is in {place}: …{}…", String::from_utf8_lossy(around)));
        }
    }
}

/// Fails if a secret was found since the last time, in whatever test.
///
/// # Panics
/// If one was.
pub(crate) fn assert_none_found() {
    let found = std::mem::take(&mut *lock(&FOUND));
    assert!(found.is_empty(), "secrets of clients were told:\n{}", found.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, as what is guarded and found belongs to the whole process.
    #[test]
    fn a_guarded_secret_is_found_in_each_of_its_forms_and_told_once() {
        let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey";
        look_for_secrets("a log", key.as_bytes());
        assert_none_found();
        guard_secret(key);
        guard_secret(key);
        look_for_secrets("a log", b"the key 7c9xk2ma was used; 6axtey is its check sum");
        assert_none_found();
        let secret = "0123456789abcdefghjkmnpqrs";
        for output in [
            key.to_owned(),
            format!("GET /main/{}", key.to_ascii_uppercase()),
            format!("authorization: Basic {}", STANDARD.encode(format!(":{key}"))),
            format!("x{secret}x"),
        ] {
            look_for_secrets("an answer", output.as_bytes());
            let told = std::panic::catch_unwind(assert_none_found);
            let told = *told.expect_err(&output).downcast::<String>().expect("words");
            assert!(told.contains("the key 7c9xk2ma is in an answer"), "{told}");
            assert_none_found();
        }
    }
}
