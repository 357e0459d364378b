//! The grammar of conditions.
//!
//! ```text
//! condition  = subject comparison number [unit]
//! subject    = [experiment "."] measure | "verdict" experiment "." figure
//! measure    = "p50" | "p90" | "p95" | "p99" | "max" | "errors" | "throttled" | "throughput" | "calls"
//! comparison = "<" | "<=" | ">" | ">=" | "==" | "!="
//! unit       = "us" | "ms" | "s" | "min" | "%" | "/s" | "/min"
//! ```
//!
//! A number has the unit of what it is compared with; none is assumed, so that `p95 > 200` is an
//! error and not a question of milliseconds or seconds.

use std::fmt;
use std::str::FromStr;

use super::measure::{MEASURES, Measure};
use crate::conclude::verdict::{Unit, figure_words};
use crate::experiment::EXPERIMENTS;

/// Whether a figure is to its limit as a sign says.
type IsCompared = fn(&f64, &f64) -> bool;

/// Longer signs first: some begin with another one.
const COMPARISONS: [(&str, IsCompared); 6] = [
    ("<=", f64::le),
    (">=", f64::ge),
    ("==", f64::eq),
    ("!=", f64::ne),
    ("<", f64::lt),
    (">", f64::gt),
];

/// Each with how many of the figure's own unit it is.
const UNITS: [(&str, Unit, f64); 8] = [
    ("us", Unit::Milliseconds, 0.001),
    ("ms", Unit::Milliseconds, 1.0),
    ("s", Unit::Milliseconds, 1_000.0),
    ("min", Unit::Milliseconds, 60_000.0),
    ("%", Unit::Percent, 1.0),
    ("/s", Unit::PerSecond, 1.0),
    ("/min", Unit::PerSecond, 1.0 / 60.0),
    ("B/s", Unit::BytesPerSecond, 1.0),
];

/// What a run must not be.
#[derive(Debug, Clone)]
pub struct GateCondition {
    text: String,
    pub(super) subject: ConditionSubject,
    pub(super) comparison: IsCompared,
    /// In `unit`.
    pub(super) limit: f64,
    pub(super) unit: Unit,
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConditionSubject {
    /// Over the calls of one experiment or of all.
    Calls { experiment: Option<&'static str>, measure: Measure },
    /// A figure of a verdict.
    Verdict { experiment: &'static str, figure: &'static str },
}

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {why}")]
pub struct ConditionError {
    /// Counted from 1, in characters.
    pub column: usize,
    /// What was found, what was expected, and a near name.
    pub why: String,
}

impl fmt::Display for GateCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for GateCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let mut cursor = ConditionCursor { text, at: 0 };
        let (subject, own_unit) = subject(&mut cursor)?;
        let comparison = comparison(&mut cursor)?;
        let number = number(&mut cursor)?;
        let (unit, factor) = unit(&mut cursor, own_unit)?;
        cursor.skip_space();
        if cursor.at < text.len() {
            let rest = &text[cursor.at..];
            return Err(
                cursor.error(format!("`{rest}` is too much: one condition for each `--fail-if`"))
            );
        }
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Self { text, subject, comparison, limit: number * factor, unit })
    }
}

/// A place in a text.
struct ConditionCursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> ConditionCursor<'a> {
    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The longest run of characters that `is`, from the next that is no space; the cursor is left
    /// behind it, and its begin is returned.
    fn take(&mut self, is: impl Fn(char) -> bool) -> (usize, &'a str) {
        self.skip_space();
        let rest = &self.text[self.at..];
        let length = rest.find(|letter| !is(letter)).unwrap_or(rest.len());
        let begin = self.at;
        self.at += length;
        (begin, &rest[..length])
    }

    fn error(&self, why: String) -> ConditionError {
        self.error_at(self.at, why)
    }

    fn error_at(&self, at: usize, why: String) -> ConditionError {
        ConditionError { column: self.text[..at].chars().count() + 1, why }
    }
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | '-')
}

/// What is compared, with its unit; that of a verdict is known when it is there.
fn subject(
    cursor: &mut ConditionCursor<'_>,
) -> Result<(ConditionSubject, Option<Unit>), ConditionError> {
    let (at, name) = cursor.take(is_name);
    let experiments = EXPERIMENTS.map(|(name, _)| name);
    if name == "verdict" {
        let (at, name) = cursor.take(is_name);
        let Some((experiment, figure)) = name.split_once('.') else {
            let why = "expected EXPERIMENT.FIGURE after `verdict`, such as `rate.limit`";
            return Err(cursor.error_at(at, why.to_owned()));
        };
        let after = at + experiment.len() + 1;
        let experiment = known(cursor, at, experiment, "experiment", &experiments)?;
        let figure = known(cursor, after, figure, "figure of a verdict", &figure_words())?;
        return Ok((ConditionSubject::Verdict { experiment, figure }, None));
    }
    let (experiment, at, name) = match name.split_once('.') {
        Some((experiment, rest)) => {
            let after = at + experiment.len() + 1;
            (Some(known(cursor, at, experiment, "experiment", &experiments)?), after, rest)
        }
        None => (None, at, name),
    };
    let names = MEASURES.map(|(name, _)| name);
    if experiment.is_none() && name.is_empty() {
        let names = names.join(", ");
        return Err(cursor.error_at(at, format!("expected one of {names}, or `verdict`")));
    }
    let name = known(cursor, at, name, "measure", &names)?;
    let measure = MEASURES.into_iter().find(|(word, _)| *word == name);
    let measure = measure.map_or(Measure::Calls, |(_, measure)| measure);
    Ok((ConditionSubject::Calls { experiment, measure }, Some(measure.unit())))
}

fn known<'n>(
    cursor: &ConditionCursor<'_>,
    at: usize,
    name: &str,
    what: &str,
    names: &[&'n str],
) -> Result<&'n str, ConditionError> {
    if let Some(found) = names.iter().find(|known| **known == name) {
        return Ok(found);
    }
    let hint = match near(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("expected one of {}", names.join(", ")),
    };
    Err(cursor.error_at(at, format!("`{name}` is no {what}: {hint}")))
}

fn comparison(cursor: &mut ConditionCursor<'_>) -> Result<IsCompared, ConditionError> {
    cursor.skip_space();
    let rest = &cursor.text[cursor.at..];
    match COMPARISONS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        Some((sign, comparison)) => {
            cursor.at += sign.len();
            Ok(comparison)
        }
        None => Err(cursor.error("expected one of <, <=, >, >=, ==, !=".to_owned())),
    }
}

fn number(cursor: &mut ConditionCursor<'_>) -> Result<f64, ConditionError> {
    let (at, text) = cursor.take(|letter| letter.is_ascii_digit() || matches!(letter, '.' | '-'));
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| match text {
        "" => cursor.error_at(at, "expected a number".to_owned()),
        _ => cursor.error_at(at, format!("`{text}` is no number")),
    })
}

/// The unit, and how many of the figure's own it is. That of a verdict's figure is checked again
/// when the figure is there.
fn unit(
    cursor: &mut ConditionCursor<'_>,
    own: Option<Unit>,
) -> Result<(Unit, f64), ConditionError> {
    let (at, word) = cursor.take(|letter| letter.is_alphabetic() || matches!(letter, '%' | '/'));
    let expected = |own: Unit| {
        let words: Vec<&str> =
            UNITS.iter().filter(|(_, unit, _)| *unit == own).map(|(word, ..)| *word).collect();
        if words.is_empty() { "no unit".to_owned() } else { words.join(", ") }
    };
    if word.is_empty() {
        return match own {
            None | Some(Unit::Count) => Ok((Unit::Count, 1.0)),
            Some(own) => {
                Err(cursor.error_at(at, format!("the unit is missing: expected {}", expected(own))))
            }
        };
    }
    let Some((_, found, factor)) = UNITS.into_iter().find(|(known, ..)| *known == word) else {
        let expected = own.map_or_else(|| UNITS.map(|(word, ..)| word).join(", "), expected);
        return Err(cursor.error_at(at, format!("`{word}` is no unit: expected {expected}")));
    };
    match own {
        Some(own) if own != found => {
            let expected = expected(own);
            Err(cursor.error_at(at, format!("`{word}` is another unit: expected {expected}")))
        }
        Some(_) | None => Ok((found, factor)),
    }
}

/// The name that was probably meant: at most a third of its letters are others.
fn near<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    const LETTERS_MAX: usize = 32;
    if name.is_empty() || name.len() > LETTERS_MAX {
        return None;
    }
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let own = letters(name);
    let distances = names.iter().map(|known| (edits(&own, &letters(known)), *known));
    let close = |(edits, known): &(usize, &str)| *edits <= (known.len() / 3).max(1);
    distances.filter(close).min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// Letters to insert, delete or replace (Levenshtein 1966).
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        match text.parse::<GateCondition>() {
            Ok(it) => {
                let (below, above) = (it.limit - 1.0, it.limit + 1.0);
                let holds =
                    [below, it.limit, above].map(|value| (it.comparison)(&value, &it.limit));
                let comparison = match holds {
                    [true, false, false] => "Below",
                    [true, true, false] => "AtMost",
                    [false, false, true] => "Above",
                    [false, true, true] => "AtLeast",
                    [false, true, false] => "Equal",
                    [true, false, true] => "Unequal",
                    all => panic!("{all:?}"),
                };
                format!("{comparison} {} {}", it.limit, it.unit.word())
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn conditions_are_read() {
        for (text, expected) in [
            ("p95 > 200ms", "Above 200 ms"),
            ("p95>0.2s", "Above 200 ms"),
            ("load.p99 >= 500 us", "AtLeast 0.5 ms"),
            ("errors > 1%", "Above 1 %"),
            ("throughput < 600/min", "Below 10 /s"),
            ("calls == 0", "Equal 0 "),
            ("replay.p95 > 1s", "Above 1000 ms"),
            ("verdict rate.limit < 100/s", "Below 100 /s"),
            ("verdict streams.cap <= 100", "AtMost 100 "),
            ("verdict connection.idle != 1min", "Unequal 60000 ms"),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_place_and_what_was_expected() {
        let measures = "p50, p90, p95, p99, max, errors, throttled, throughput, calls";
        for (text, expected) in [
            ("", format!("column 1: expected one of {measures}, or `verdict`")),
            ("p59 > 1ms", "column 1: `p59` is no measure: did you mean `p50`?".to_owned()),
            ("eror > 1%", "column 1: `eror` is no measure: did you mean `errors`?".to_owned()),
            ("lod.p95 > 1s", "column 1: `lod` is no experiment: did you mean `load`?".to_owned()),
            (
                "load.hugo > 1",
                format!("column 6: `hugo` is no measure: expected one of {measures}"),
            ),
            ("p95 200ms", "column 5: expected one of <, <=, >, >=, ==, !=".to_owned()),
            ("p95 >", "column 6: expected a number".to_owned()),
            ("p95 > 1.2.3ms", "column 7: `1.2.3` is no number".to_owned()),
            ("p95 > 200", "column 10: the unit is missing: expected us, ms, s, min".to_owned()),
            ("p95 > 200%", "column 10: `%` is another unit: expected us, ms, s, min".to_owned()),
            ("errors > 1 pct", "column 12: `pct` is no unit: expected %".to_owned()),
            ("calls > 1ms", "column 10: `ms` is another unit: expected no unit".to_owned()),
            (
                "p95 > 1s or errors > 1%",
                "column 10: `or errors > 1%` is too much: one condition for each `--fail-if`"
                    .to_owned(),
            ),
            (
                "verdict rate < 1/s",
                "column 9: expected EXPERIMENT.FIGURE after `verdict`, such as `rate.limit`"
                    .to_owned(),
            ),
            (
                "verdict rate.limits < 1/s",
                "column 14: `limits` is no figure of a verdict: did you mean `limit`?".to_owned(),
            ),
            (
                "verdict räte.limit < 1/s",
                "column 9: `räte` is no experiment: did you mean `rate`?".to_owned(),
            ),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
