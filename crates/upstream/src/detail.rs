//! A verdict in words for logs, the trail and the status page.

use wellhead_jsonrpc::scan_error;

use crate::verdict::{Payload, Verdict};

/// An upstream's own words are cut after this many characters.
const WORDS_MAX: usize = 160;

impl Verdict {
    /// What happened, for a person, without secrets and in bounded length.
    pub fn detail(&self) -> String {
        match &self.payload {
            Payload::None { detail } => cut(detail),
            Payload::Result(_) => self.class.about().to_owned(),
            Payload::Error(raw) => match scan_error(raw) {
                Some(error) => format!("{} (code {})", cut(&error.message), error.code),
                None => self.class.about().to_owned(),
            },
        }
    }
}

fn cut(words: &str) -> String {
    let plain = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = plain.take(WORDS_MAX).collect();
    if words.chars().nth(WORDS_MAX).is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::VerdictClass;

    fn check(payload: Payload, expected: &str) {
        assert_eq!(Verdict::new(VerdictClass::Fault, "test", payload).detail(), expected);
    }

    #[test]
    fn the_upstreams_words_are_told_in_short() {
        let error = |text: &str| Payload::Error(Bytes::from(text.to_owned()));
        check(error(r#"{"code":-32000,"message":"no\nluck"}"#), "no luck (code -32000)");
        check(error("7"), "the upstream failed");
        check(Payload::None { detail: "HTTP 502".into() }, "HTTP 502");
        let long = format!(r#"{{"code":1,"message":"{}"}}"#, "x".repeat(500));
        check(error(&long), &format!("{}… (code 1)", "x".repeat(160)));
    }
}
