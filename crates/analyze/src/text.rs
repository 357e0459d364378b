//! Text from outside that people will read.

/// Whether a character turns the text around it (a bidirectional control of Unicode), so that
/// one text could look like another.
pub(crate) fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
