//! Times of keys, on the command line and in the admin API: `90d`, or a duration as in the settings.

use std::time::Duration;

use super::read::SettingWord as _;

/// Longest life of a key: longer is for ever.
const LIFETIME_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);

/// Reads how long a key is valid: `90d`, or a duration as in the settings.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    let span = overlap(text)?;
    match span.is_zero() {
        true => Err("a key is valid for some time: write `90d` or `12h`".to_owned()),
        false => Ok(span),
    }
}

/// Reads how long a secret stays valid beside the next one; `0s` ends it at once.
pub fn overlap(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let span = match days {
        Some(days) => DAY * days,
        None => Duration::parse(text)
            .map_err(|_| "expected a time such as `90d`, `12h` or `1h30m`".to_owned())?,
    };
    match span > LIFETIME_MAX {
        true => Err("at most 100 years; without it a key is valid for ever".to_owned()),
        false => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<u64, &str>) {
        let read = lifetime(text).map(|span| span.as_secs());
        assert_eq!(
            read.as_ref().map_err(String::as_str),
            want.as_ref().map_err(|it| *it),
            "{text}"
        );
    }

    #[test]
    fn lifetimes() {
        check("90d", Ok(90 * 86_400));
        check("1h30m", Ok(5_400));
        for bad in ["", "90", "d", "-1d", "1.5d", "90 d", "1w"] {
            check(bad, Err("expected a time such as `90d`, `12h` or `1h30m`"));
        }
        check("0d", Err("a key is valid for some time: write `90d` or `12h`"));
        check("36601d", Err("at most 100 years; without it a key is valid for ever"));
        assert_eq!(overlap("0s"), Ok(Duration::ZERO));
    }
}
