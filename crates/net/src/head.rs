//! What the head of an answer says, over HTTP/1.1 and HTTP/2 alike.
//!
//! Of the headers only those that callers decide by: the body's length and encoding, and
//! `Retry-After`. `h1` and `h2` read them from the wire.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::inflate::Encoding;

/// Longest `Retry-After` believed; a larger one is a broken server.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// What the head of an answer says.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: BodyHead,
    /// When it had arrived.
    pub(crate) at: Instant,
}

/// What the head says about the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyHead {
    /// Bytes on the wire, where announced.
    pub(crate) length: Option<u64>,
    pub(crate) encoding: Encoding,
}

/// `Retry-After` as a duration. A date counts from the `Date` of the same
/// answer, whose clock it was written by, or else from `now_unix`.
pub(crate) fn retry_after(
    value: Option<&[u8]>,
    date: Option<&[u8]>,
    now_unix: impl FnOnce() -> u64,
) -> Option<Duration> {
    let value = std::str::from_utf8(value?).ok()?.trim();
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        let seconds: f64 = value.parse().ok()?;
        return Some(Duration::try_from_secs_f64(seconds).map_or(RETRY_AFTER_MAX, bounded));
    }
    let then = httpdate::parse_http_date(value).ok()?;
    let sent = date.and_then(|date| std::str::from_utf8(date).ok());
    let sent = sent.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    let now: SystemTime = sent.unwrap_or_else(|| UNIX_EPOCH + Duration::from_secs(now_unix()));
    Some(then.duration_since(now).map_or(Duration::ZERO, bounded))
}

fn bounded(wait: Duration) -> Duration {
    wait.min(RETRY_AFTER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'static str, &'a str)];

    fn waits(pairs: Pairs<'_>) -> Option<f64> {
        let value =
            |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes());
        let (wait, date) = (value("retry-after"), value("date"));
        // 2015-10-21 07:28:00 UTC.
        retry_after(wait, date, || 1_445_412_480).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn retry_after_in_all_its_forms() {
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&[("retry-after", "2")]), Some(2.0));
        assert_eq!(waits(&[("retry-after", " 0.5 ")]), Some(0.5));
        assert_eq!(waits(&[("retry-after", "soon")]), None);
        assert_eq!(waits(&[("retry-after", "-1")]), None);
        assert_eq!(waits(&[("retry-after", "2 minutes")]), None);
        assert_eq!(waits(&[("retry-after", "99999999999999999999999")]), Some(86400.0));
        let date = ("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT");
        assert_eq!(waits(&[date]), Some(30.0));
        assert_eq!(waits(&[date, ("date", "Wed, 21 Oct 2015 07:28:20 GMT")]), Some(10.0));
        assert_eq!(waits(&[date, ("date", "Wed, 21 Oct 2015 07:30:00 GMT")]), Some(0.0));
        assert_eq!(waits(&[date, ("date", "nonsense")]), Some(30.0));
    }
}
