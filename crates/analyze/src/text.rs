//! Text from outside that people will read, and the words for calls that were not served.

/// Whether a character turns the text around it (a bidirectional control of Unicode), so that
/// one text could look like another.
pub(crate) fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A class of calls that were not served (`VerdictClass`), for people. A `fault` may have had a response or not.
pub(crate) fn class_words(class: &str) -> String {
    match class {
        "auth" => "unauthorized".to_owned(),
        "billing" => "quota spent".to_owned(),
        "fault" => "failed".to_owned(),
        other => other.replace('_', " "),
    }
}

/// How the transport failed (`TransportErrorKind`), for people: a connection that was cut is a reset, whenever that was.
pub(crate) fn transport_words(error: &str) -> String {
    match error {
        "closed" | "truncated" => "reset".to_owned(),
        other => format!("no response ({})", other.replace('_', " ")),
    }
}

/// Text as it may stand in HTML and in XML 1.0, in an attribute as well. Characters that neither takes, and those
/// that turn the text around them, become U+FFFD.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() || is_bidi_control(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
