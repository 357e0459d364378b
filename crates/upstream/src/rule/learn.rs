//! Facts read out of an upstream's own words.
//!
//! Best effort: a text that does not say it in the expected place teaches nothing.

use std::time::Duration;

use wellhead_jsonrpc::raw;

use super::ErrorSubject;
use super::matcher::MESSAGE_BYTES_MAX;
use crate::verdict::Learnt;

/// A rate limit that asks for a longer rest than this is believed to mean this.
const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// What to learn when a rule fits.
#[derive(Debug)]
pub(super) struct FactPattern {
    pub(super) kind: FactKind,
    /// The texts before the number, lower case; the first that is followed by one counts.
    pub(super) after: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FactKind {
    RangeHint,
    RangeMax,
    AddressesMax,
    PrunedBelow,
    Fixed(Learnt),
}

impl FactKind {
    pub(super) fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "range_hint" => Self::RangeHint,
            "range_max" => Self::RangeMax,
            "pruned_below" => Self::PrunedBelow,
            "range_refused" => Self::Fixed(Learnt::RangeRefused),
            "addresses_max" => Self::AddressesMax,
            "no_history" => Self::Fixed(Learnt::NoHistory),
            "method_offered" => Self::Fixed(Learnt::MethodOffered),
            "maybe_mined" => Self::Fixed(Learnt::MaybeMined),
            _ => return None,
        })
    }

    /// Whether it needs a text to look behind.
    pub(super) fn reads_numbers(self) -> bool {
        match self {
            Self::RangeHint | Self::RangeMax | Self::AddressesMax | Self::PrunedBelow => true,
            Self::Fixed(_) => false,
        }
    }
}

impl FactPattern {
    pub(super) fn learn(&self, subject: &ErrorSubject<'_>) -> Option<Learnt> {
        match self.kind {
            FactKind::Fixed(learnt) => Some(learnt),
            FactKind::RangeHint => {
                let (from, to) = self
                    .find(subject, |text| {
                        let (from, rest) = number(text)?;
                        Some((from, number(rest)?.0))
                    })
                    .or_else(|| suggested(subject.data?))?;
                (from <= to).then_some(Learnt::RangeHint { from, to })
            }
            FactKind::RangeMax => {
                // Without a number the words still say that it is the length of the range.
                match self.find(subject, |text| Some(number(text)?.0)) {
                    Some(blocks) if blocks > 0 => Some(Learnt::RangeMax { blocks }),
                    Some(_) | None => Some(Learnt::RangeRefused),
                }
            }
            FactKind::AddressesMax => {
                let addresses = self.find(subject, |text| Some(number(text)?.0))?;
                (addresses > 0).then_some(Learnt::AddressesMax { addresses })
            }
            FactKind::PrunedBelow => {
                let number = self.find(subject, |text| Some(number(text)?.0))?;
                Some(Learnt::PrunedBelow { number })
            }
        }
    }

    /// Looks behind each text, in the message and then in a textual `data`.
    fn find<T>(&self, subject: &ErrorSubject<'_>, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let message = lower(subject.message.as_bytes());
        let data = subject.data.map(lower).unwrap_or_default();
        self.after.iter().find_map(|after| {
            [&message, &data].into_iter().find_map(|text| {
                let (_, behind) = text.split_once(after.as_str())?;
                read(behind)
            })
        })
    }
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(MESSAGE_BYTES_MAX)]).to_ascii_lowercase()
}

/// `{"from":"0x..","to":"0x.."}` as Infura sends beside its message.
fn suggested(data: &[u8]) -> Option<(u64, u64)> {
    let block = |key| raw::field(data, key).and_then(raw::quantity);
    Some((block("from")?, block("to")?))
}

/// The number that `text` begins with, and what follows it. Takes hex with `0x`,
/// decimal, thousands with commas, and "2k"; passes over brackets, quotes and signs.
fn number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start_matches([' ', '[', '(', ',', '#', ':', '=', '-', '`', '"']);
    if let Some(hex) = text.strip_prefix("0x") {
        let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        return Some((u64::from_str_radix(&hex[..end], 16).ok()?, &hex[end..]));
    }
    let mut value: Option<u64> = None;
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        // A comma only belongs to the number when exactly three digits follow.
        if end == 0 || (value.is_some() && end != 3) {
            break;
        }
        let digits: u64 = rest[..end].parse().ok()?;
        value = Some(match value {
            Some(value) => value.checked_mul(1000)?.checked_add(digits)?,
            None => digits,
        });
        rest = &rest[end..];
        let Some(next) = rest.strip_prefix(',') else { break };
        if next.as_bytes().iter().take_while(|b| b.is_ascii_digit()).count() != 3 {
            break;
        }
        rest = next;
    }
    let value = value?;
    match rest.strip_prefix('k') {
        Some(rest) => Some((value.checked_mul(1000)?, rest)),
        None => Some((value, rest)),
    }
}

/// The rest that Infura asks for: `data.rate.backoff_seconds`, or beside it.
pub(crate) fn backoff(data: &[u8]) -> Option<Duration> {
    let value = raw::field(data, "backoff_seconds")
        .or_else(|| raw::field(raw::field(data, "rate")?, "backoff_seconds"))?;
    let seconds: f64 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    let rest = Duration::try_from_secs_f64(seconds).ok()?;
    (!rest.is_zero()).then(|| rest.min(BACKOFF_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(u64, &str)>) {
        assert_eq!(number(text), expected, "{text}");
    }

    #[test]
    fn numbers_as_upstreams_write_them() {
        check(" [0x87fe9]", Some((0x87fe9, "]")));
        check("5000", Some((5000, "")));
        check("10,000 blocks", Some((10_000, " blocks")));
        check("100, 200", Some((100, ", 200")));
        check("2k block range", Some((2000, " block range")));
        for no_number in ["many", "", "99999999999999999999999", "0x"] {
            check(no_number, None);
        }
    }

    fn check_backoff(data: &str, expected: Option<u64>) {
        assert_eq!(backoff(data.as_bytes()), expected.map(Duration::from_secs), "{data}");
    }

    #[test]
    fn a_backoff_in_the_data_is_bounded() {
        let in_rate = r#"{"rate":{"allowed_rps":1,"backoff_seconds":30,"current_rps":1.4}}"#;
        check_backoff(in_rate, Some(30));
        check_backoff(r#"{"backoff_seconds":30.0}"#, Some(30));
        check_backoff(r#"{"backoff_seconds":1e9}"#, Some(300));
        check_backoff(r#"{"rate":{"backoff_seconds":0}}"#, None);
        check_backoff(r#"{"backoff_seconds":-1}"#, None);
        check_backoff(r#""wait""#, None);
    }
}
