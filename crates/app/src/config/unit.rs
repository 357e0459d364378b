//! Durations, sizes and counts as people write them: `1m30s`, `64KiB`, `30M`.
//!
//! A bare number is refused for durations and sizes: `5` has meant seconds to one
//! reader and milliseconds to the next. Fractions are refused too: the smaller
//! unit says the same without rounding. What is written back reads back as the same
//! value.

use std::fmt;
use std::time::Duration;

use super::problem::Wrong;
use super::read::SettingWord;
use super::rule::ValueShape;
use super::write::Yaml;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` x 1024 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` x 1024² bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` x 1024³ bytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// As the type that buffers are measured in; a larger one saturates.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = SIZES.iter().find(|(_, unit)| self.0 != 0 && self.0.is_multiple_of(*unit));
        match whole {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// A part of a whole, from 0 to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent {
    /// Ten-thousandths of a percent.
    millionths: u32,
}

/// The digits after the point of a percentage.
const PERCENT_DIGITS: usize = 4;

impl Percent {
    /// `n` %.
    pub const fn whole(n: u32) -> Self {
        Self { millionths: n * 10_000 }
    }

    /// From 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.millionths / 10_000, self.millionths % 10_000);
        match rest {
            0 => write!(f, "{whole}%"),
            _ => write!(f, "{whole}.{}%", format!("{rest:04}").trim_end_matches('0')),
        }
    }
}

/// Largest first, so that the shortest spelling is found first.
const SIZES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Largest first: also the order in which the parts of a duration must stand.
const SPANS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const COUNTS: [(&str, u64); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("K", 1_000)];

/// Reads `100`, `1_000`, `30M`.
fn count(text: &str) -> Result<u64, Wrong> {
    if text.starts_with('-') {
        return Err(Wrong::new(format!("{}, found a negative one", u64::expected())));
    }
    let (digits, factor) = COUNTS
        .iter()
        .find_map(|(name, factor)| text.strip_suffix(name).map(|digits| (digits, *factor)))
        .unwrap_or((text, 1));
    let tidy = !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__");
    if digits.is_empty() || !tidy || digits.bytes().any(|b| !b.is_ascii_digit() && b != b'_') {
        return Err(Wrong::new(u64::expected()));
    }
    digits
        .replace('_', "")
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| Wrong::new("the number is too large to count"))
}

macro_rules! counts {
    ($($type:ty),+) => {$(
        impl SettingWord for $type {
            const EXPECTED: &'static str = "a whole number such as `100`, `1_000` or `30M`";
            const SHAPE: ValueShape = ValueShape::Count;

            fn parse(text: &str) -> Result<Self, Wrong> {
                let count = count(text)?;
                Self::try_from(count).map_err(|_| Wrong::new("the number is too large"))
            }

            fn write(&self) -> Yaml {
                Yaml::Plain(self.to_string())
            }

            fn blank() -> Self {
                1
            }
        }
    )+};
}
counts!(u32, u64, usize);

impl SettingWord for Duration {
    const EXPECTED: &'static str = "a duration such as `500ms`, `3s` or `1m30s`";
    const SHAPE: ValueShape =
        ValueShape::word("duration", "([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?");

    fn parse(text: &str) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new(format!("{}, found an empty text", Self::expected())));
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let hint = format!("write `{text}s` for seconds or `{text}ms` for milliseconds");
            return Err(Wrong::hinted("a duration needs a unit", hint));
        }
        if text.starts_with('-') {
            return Err(Wrong::new("a duration cannot be negative"));
        }
        if text.contains('.') {
            return Err(Wrong::hinted(
                "a duration is written in whole numbers",
                "write `1500ms` or `1m30s` instead of a fraction",
            ));
        }
        let mut rest = text;
        let mut total: u64 = 0;
        let mut largest_allowed = 0;
        while !rest.is_empty() {
            let (number, unit, tail) = split(rest).ok_or_else(|| Wrong::new(Self::expected()))?;
            let found = SPANS.iter().enumerate().find(|(_, (name, _))| *name == unit);
            let Some((position, (_, factor))) = found else {
                return Err(Wrong::hinted(
                    format!("{}, found an unknown unit", Self::expected()),
                    "the units are `ms`, `s`, `m` and `h`",
                ));
            };
            if position < largest_allowed {
                return Err(Wrong::hinted(
                    "each unit of a duration may stand once, largest first",
                    "write `1h30m`, not `30m1h`",
                ));
            }
            largest_allowed = position + 1;
            let part = number.and_then(|number| number.checked_mul(*factor));
            total = part
                .and_then(|part| total.checked_add(part))
                .ok_or_else(|| Wrong::new("the duration is too long to count"))?;
            rest = tail;
        }
        Ok(Self::from_millis(total))
    }

    fn write(&self) -> Yaml {
        let mut rest = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return Yaml::Plain("0s".to_owned());
        }
        let mut text = String::new();
        for (name, factor) in SPANS {
            if rest >= factor {
                text.push_str(&format!("{}{name}", rest / factor));
                rest %= factor;
            }
        }
        Yaml::Plain(text)
    }

    fn blank() -> Self {
        Self::ZERO
    }
}

impl SettingWord for ByteSize {
    const EXPECTED: &'static str = "a size such as `64KiB`, `5MB` or `1GiB`";
    const SHAPE: ValueShape = ValueShape::word("size", "[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)");

    fn parse(text: &str) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new(format!("{}, found an empty text", Self::expected())));
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let hint = format!("write `{text}B`, `{text}KiB` or `{text}MiB`");
            return Err(Wrong::hinted("a size needs a unit", hint));
        }
        if text.contains('.') {
            return Err(Wrong::hinted(
                "a size is written in whole numbers",
                "write `1536MiB` for `1.5GiB`, for example",
            ));
        }
        let Some((number, unit, "")) = split(text) else {
            return Err(Wrong::new(Self::expected()));
        };
        let Some((_, factor)) = SIZES.iter().find(|(name, _)| *name == unit) else {
            let digits = &text[..text.len() - unit.len()];
            let hint = match unit.bytes().next().map(|first| first.to_ascii_uppercase()) {
                Some(first @ (b'K' | b'M' | b'G')) => {
                    let first = char::from(first);
                    format!("write `{digits}{first}iB` (x 1024) or `{digits}{first}B` (x 1000)")
                }
                Some(_) | None => {
                    "the units are `B`, `KiB`, `MiB`, `GiB` (x 1024) and `KB`, `MB`, `GB` (x 1000)"
                        .to_owned()
                }
            };
            return Err(Wrong::hinted(
                format!("{}, found an unknown unit", Self::expected()),
                hint,
            ));
        };
        number
            .and_then(|number| number.checked_mul(*factor))
            .map(Self)
            .ok_or_else(|| Wrong::new("the size is too large"))
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(self.to_string())
    }

    fn blank() -> Self {
        Self(0)
    }
}

impl SettingWord for Percent {
    const EXPECTED: &'static str = "a percentage such as `1%` or `0.05%`";
    const SHAPE: ValueShape = ValueShape::word("percentage", r"[0-9]{1,3}(\.[0-9]{1,4})?%");

    fn parse(text: &str) -> Result<Self, Wrong> {
        let Some(number) = text.strip_suffix('%') else {
            let is_number = text.parse::<f64>().is_ok();
            let hint = "end it with `%`: `1%` is one of a hundred";
            return Err(match is_number {
                true => Wrong::hinted("a percentage needs its sign", hint),
                false => Wrong::new(Self::expected()),
            });
        };
        let (whole, rest) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(rest) || whole.len() > 3 || rest.len() > PERCENT_DIGITS {
            let hint = "it has at most four digits after the point";
            return Err(Wrong::hinted(Self::expected(), hint));
        }
        let millionths = format!("{whole}{rest:0<PERCENT_DIGITS$}").parse::<u32>();
        match millionths {
            Ok(millionths) if millionths <= 1_000_000 => Ok(Self { millionths }),
            Ok(_) | Err(_) => Err(Wrong::new("a percentage is at most `100%`")),
        }
    }

    fn write(&self) -> Yaml {
        Yaml::Plain(self.to_string())
    }

    fn blank() -> Self {
        Self::whole(0)
    }
}

/// `1m30s` -> (1, "m", "30s"). The number is `None` when it does not fit.
fn split(text: &str) -> Option<(Option<u64>, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    if number.is_empty() {
        return None;
    }
    let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok(), unit, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write() {
        for (text, millis, written) in [
            ("500ms", 500, "500ms"),
            ("3s", 3_000, "3s"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("2h", 7_200_000, "2h"),
            ("1h1m1s1ms", 3_661_001, "1h1m1s1ms"),
            ("0s", 0, "0s"),
        ] {
            let read = Duration::parse(text).expect(text);
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(read.write().inline(), written);
            assert_eq!(Duration::parse(written), Ok(read));
        }
    }

    #[test]
    fn sizes_read_and_write() {
        for (text, bytes, written) in [
            ("512B", 512, "512B"),
            ("64KiB", 65_536, "64KiB"),
            ("5MB", 5_000_000, "5MB"),
            ("5MiB", 5_242_880, "5MiB"),
            ("1GiB", 1 << 30, "1GiB"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("0B", 0, "0B"),
        ] {
            let read = ByteSize::parse(text).expect(text);
            assert_eq!(read, ByteSize(bytes), "{text}");
            assert_eq!(read.to_string(), written);
            assert_eq!(ByteSize::parse(written), Ok(read));
        }
    }

    #[test]
    fn counts_read() {
        for (text, number) in
            [("0", 0), ("100", 100), ("1_000", 1_000), ("30M", 30_000_000), ("5K", 5_000)]
        {
            assert_eq!(count(text), Ok(number), "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        for text in ["", "5", "s", "5x", "1.5s", "-3s", "3s1m", "1s1s", "3 s", "99999999999999999h"]
        {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        for text in ["", "5", "KiB", "5kb", "5k", "1.5MB", "5MiB5B", "99999999999GiB", "5 MB"] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
        }
        for text in ["", "-1", "_1", "1_", "1__0", "1.5", "M", "0x10", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_near_unit_is_suggested() {
        for (text, hint) in [
            ("5kb", "write `5KiB` (x 1024) or `5KB` (x 1000)"),
            ("128M", "write `128MiB` (x 1024) or `128MB` (x 1000)"),
            (
                "5 bytes",
                "the units are `B`, `KiB`, `MiB`, `GiB` (x 1024) and `KB`, `MB`, `GB` (x 1000)",
            ),
        ] {
            let wrong = ByteSize::parse(text).expect_err(text);
            assert_eq!(wrong.hint.as_deref(), Some(hint));
        }
    }
}
