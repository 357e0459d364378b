//! Calls of one's own: read from a file of requests or from the log of the proxy, with their times
//! where it has them.
//!
//! | a line | becomes |
//! |---|---|
//! | `{"method":"eth_call","params":[...]}`, a whole JSON-RPC request | that call |
//! | an array of these | its calls |
//! | a request line of wellhead's log | a call of its method: the log has no params, so they are drawn |
//!
//! A line may have a `timestamp`: RFC 3339 in UTC, or seconds since 1970. Nothing is sent that
//! changes anything, and lines that cannot be played are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};
use wellhead_eth::{Effect, MethodTable};

/// The message and target of a request line in wellhead's log.
const LOG_MESSAGE: &str = "request";
const LOG_TARGET: &str = "wellhead::request";

/// One call of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCall {
    /// The method.
    pub method: &'static str,
    /// Its parameters, as JSON; `None` to have them drawn.
    pub params: Option<String>,
    /// When it was made, since the first call with a time.
    pub at: Option<Duration>,
}

/// Why a file is no list of calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallListError {
    /// A line is neither a request nor a line of the log.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A call would change something.
    #[error("line {line}: `{method}` is not a read, and only reads are sent")]
    Write {
        /// From 1.
        line: usize,
        /// Which.
        method: String,
    },
    /// There is no call in it.
    #[error("it has no call that can be sent")]
    Empty,
}

/// Calls, at least one, in the order of their times where they have any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallList {
    calls: Vec<ListedCall>,
    left_out: u64,
}

/// A name that lives as long as the process: records and tables name methods by `&'static str`.
fn kept(names: &mut BTreeSet<&'static str>, name: &str) -> &'static str {
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}

impl CallList {
    /// Reads the lines of a file. Of a line of the log, calls of the methods in `drawn` are taken.
    ///
    /// # Errors
    ///
    /// At the first line that is no request, or whose call would change something.
    pub fn parse(text: &str, drawn: &[&'static str]) -> Result<Self, CallListError> {
        let mut names = BTreeSet::new();
        let (mut calls, mut left_out) = (Vec::new(), 0);
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line_number = index + 1;
            let failed = |why| CallListError::Line { line: line_number, why };
            let value: Value = serde_json::from_str(line).map_err(|_| failed("it is not JSON"))?;
            let items = match value {
                Value::Array(items) => items,
                other => vec![other],
            };
            for item in items {
                let Value::Object(item) = item else { return Err(failed("it is no request")) };
                if item.contains_key("message") {
                    match logged(&item, drawn) {
                        Some(call) => calls.push(call),
                        None => left_out += 1,
                    }
                    continue;
                }
                calls.push(requested(&item, line_number, &mut names)?);
            }
        }
        if calls.is_empty() {
            return Err(CallListError::Empty);
        }
        Ok(Self { calls: from_the_first(calls), left_out })
    }

    /// The calls.
    pub fn calls(&self) -> &[ListedCall] {
        &self.calls
    }

    /// Lines of a log that are not played: batches, methods without known params, and lines of
    /// something else.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The methods with their shares.
    pub fn methods(&self) -> Vec<(&'static str, f64)> {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for call in &self.calls {
            *counts.entry(call.method).or_default() += 1;
        }
        let all = self.calls.len() as f64;
        counts.into_iter().map(|(method, count)| (method, count as f64 / all)).collect()
    }

    /// When its calls are due at `speed` times the recorded pace; `None` unless each has a time.
    pub fn times(&self, speed: f64) -> Option<Vec<Duration>> {
        let scaled = |at: Duration| at.div_f64(speed);
        self.calls.iter().map(|call| call.at.map(scaled)).collect()
    }
}

/// A request line of wellhead's log, if it can be played.
fn logged(line: &Map<String, Value>, drawn: &[&'static str]) -> Option<ListedCall> {
    let text = |key: &str| line.get(key).and_then(Value::as_str);
    let is_request = text("message") == Some(LOG_MESSAGE) && text("target") == Some(LOG_TARGET);
    let name = text("method").filter(|_| is_request)?;
    let method = *drawn.iter().find(|known| **known == name)?;
    Some(ListedCall { method, params: None, at: line.get("timestamp").and_then(time) })
}

fn requested(
    item: &Map<String, Value>,
    line: usize,
    names: &mut BTreeSet<&'static str>,
) -> Result<ListedCall, CallListError> {
    let failed = |why| CallListError::Line { line, why };
    let method = item.get("method").and_then(Value::as_str).ok_or(failed("it has no `method`"))?;
    match MethodTable::standard().row(method).effect {
        Effect::Read | Effect::Local => {}
        Effect::Broadcast | Effect::Write | Effect::Subscribe | Effect::Filter | Effect::Sticky => {
            return Err(CallListError::Write { line, method: method.to_owned() });
        }
    }
    let params = match item.get("params") {
        None => "[]".to_owned(),
        Some(params @ (Value::Array(_) | Value::Object(_))) => params.to_string(),
        Some(_) => return Err(failed("`params` is neither an array nor an object")),
    };
    let at = match item.get("timestamp") {
        None => None,
        Some(value) => {
            Some(time(value).ok_or(failed("`timestamp` is neither RFC 3339 in UTC nor seconds"))?)
        }
    };
    Ok(ListedCall { method: kept(names, method), params: Some(params), at })
}

/// In the order of their times, which are counted from the first. A log has lines in the order in
/// which requests ended.
fn from_the_first(mut calls: Vec<ListedCall>) -> Vec<ListedCall> {
    calls.sort_by_key(|call| call.at);
    let first = calls.iter().find_map(|call| call.at).unwrap_or_default();
    for call in &mut calls {
        call.at = call.at.map(|at| at.saturating_sub(first));
    }
    calls
}

/// Time since 1970.
fn time(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(seconds) => Duration::try_from_secs_f64(seconds.as_f64()?).ok(),
        Value::String(text) => rfc3339(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `2026-11-25T16:42:53.174902Z`.
fn rfc3339(text: &str) -> Option<Duration> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let part = |text: &str, at: usize, mark: char| -> Option<i64> {
        text.split(mark).nth(at)?.parse().ok()
    };
    let (year, month, day) = (part(date, 0, '-')?, part(date, 1, '-')?, part(date, 2, '-')?);
    let (hour, minute) = (part(time, 0, ':')?, part(time, 1, ':')?);
    let second: f64 = time.split(':').nth(2)?.parse().ok()?;
    let is_date = (1970..10_000).contains(&year) && (1..=12).contains(&month);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
    if !(is_date && is_time && (1..=31).contains(&day) && (0.0..61.0).contains(&second)) {
        return None;
    }
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": days_from_civil.
    let shifted = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (shifted / 400, shifted % 400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    let whole = u64::try_from(days * 86_400 + hour * 3_600 + minute * 60).ok()?;
    Some(Duration::from_secs(whole) + Duration::from_secs_f64(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWN: [&str; 2] = ["eth_call", "eth_getBalance"];

    /// Each call as `method params milliseconds`.
    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let list = CallList::parse(text, &DRAWN).map_err(|error| error.to_string())?;
        let told = |call: &ListedCall| {
            let at = call.at.map_or("-".to_owned(), |at| at.as_millis().to_string());
            format!("{} {} {at}", call.method, call.params.as_deref().unwrap_or("drawn"))
        };
        Ok(list.calls().iter().map(told).collect())
    }

    #[test]
    fn requests_are_calls_in_the_order_of_their_times() {
        let text = r#"
            {"jsonrpc":"2.0","id":9,"method":"eth_call","params":[{"to":"0x01"},"latest"],"timestamp":12.5}
            {"method":"my_method","timestamp":11}
            [{"method":"eth_chainId","params":[],"timestamp":"1970-01-01T00:00:13.000001Z"}]"#;
        let expected =
            ["my_method [] 0", r#"eth_call [{"to":"0x01"},"latest"] 1500"#, "eth_chainId [] 2000"];
        assert_eq!(parsed(text), Ok(expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn lines_of_the_log_are_calls_without_params() {
        let line = |method: &str, second: u32, target: &str| {
            format!(
                r#"{{"timestamp":"2026-11-25T16:42:{second}.25Z","level":"INFO","message":"request","method":"{method}","ms":2.4,"target":"{target}"}}"#
            )
        };
        let text = [
            line("eth_call", 53, LOG_TARGET),
            line("eth_getBalance", 52, LOG_TARGET),
            line("eth_sendRawTransaction", 54, LOG_TARGET),
            line("eth_call", 55, "wellhead_app::serve"),
        ]
        .join("\n");
        let expected = ["eth_getBalance drawn 0", "eth_call drawn 1000"].map(str::to_owned);
        assert_eq!(parsed(&text), Ok(expected.to_vec()));
        let list = CallList::parse(&text, &DRAWN).expect("a list");
        assert_eq!(list.left_out(), 2);
        assert_eq!(list.methods(), [("eth_call", 0.5), ("eth_getBalance", 0.5)]);
        let halved = [Duration::ZERO, Duration::from_millis(500)];
        assert_eq!(list.times(2.0).as_deref(), Some(&halved[..]));
    }

    #[test]
    fn what_is_no_list_is_told() {
        for (text, why) in [
            ("", "it has no call that can be sent"),
            ("{\"method\":\"eth_call\"}\nPOST /", "line 2: it is not JSON"),
            ("7", "line 1: it is no request"),
            ("{\"id\":1}", "line 1: it has no `method`"),
            (
                "{\"method\":\"eth_call\",\"params\":1}",
                "line 1: `params` is neither an array nor an object",
            ),
            (
                "{\"method\":\"eth_sendRawTransaction\",\"params\":[\"0x\"]}",
                "line 1: `eth_sendRawTransaction` is not a read, and only reads are sent",
            ),
            (
                "{\"method\":\"eth_call\",\"timestamp\":\"yesterday\"}",
                "line 1: `timestamp` is neither RFC 3339 in UTC nor seconds",
            ),
        ] {
            assert_eq!(parsed(text), Err(why.to_owned()), "{text}");
        }
        // Without a time for each call there is nothing to replay.
        let list = CallList::parse("{\"method\":\"eth_call\"}", &DRAWN).expect("a list");
        assert_eq!(list.times(1.0), None);
    }

    #[test]
    fn times_are_utc() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("2000-02-29T12:30:15.5Z", Some(951_827_415.5)),
            ("2026-11-22T00:15:00Z", Some(1_795_306_500.0)),
            ("2026-11-22T00:15:00+01:00", None),
            ("2026-13-22T00:15:00Z", None),
            ("2026-11-22", None),
        ] {
            assert_eq!(rfc3339(text).map(|time| time.as_secs_f64()), seconds, "{text}");
        }
    }
}
