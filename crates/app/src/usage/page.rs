//! `GET /usage`: what was used lately, summed.

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use url::form_urlencoded;
use wellhead_access::usage::{UsageBy, UsageHistory, UsageQuery};
use wellhead_server::UsageReport;

/// Where the query does not say from when.
const SPAN_SECONDS: u64 = 3_600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFormat {
    Json,
    Csv,
}

/// Answers `GET /usage?from=&to=&by=tenant,method&format=json|csv`. All are optional: by default one
/// sum over the last hour, as JSON. Instants are seconds since 1970, or seconds before now if negative.
pub(super) fn page(history: &Mutex<UsageHistory>, now: u64, query: &str) -> UsageReport {
    match parse(query, now) {
        Ok((query, format)) => {
            let answer = history.lock().query(&query);
            let (content_type, body) = match format {
                PageFormat::Json => ("application/json", answer.to_json()),
                PageFormat::Csv => ("text/csv; charset=utf-8; header=present", answer.to_csv()),
            };
            UsageReport { well: true, content_type, body: body.into() }
        }
        Err(why) => {
            // A key may stand where a parameter should.
            let why = wellhead_access::mask_keys(&why);
            let body = Bytes::from(json!({ "error": why }).to_string());
            UsageReport { well: false, content_type: "application/json", body }
        }
    }
}

fn parse(query: &str, now: u64) -> Result<(UsageQuery, PageFormat), String> {
    let (mut from, mut to, mut by) = (None, None, UsageBy::default());
    let mut format = PageFormat::Json;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "from" => from = Some(instant("from", &value, now)?),
            "to" => to = Some(instant("to", &value, now)?),
            "by" => by = UsageBy::parse(&value).map_err(|error| error.to_string())?,
            "format" => {
                format = match &*value {
                    "json" => PageFormat::Json,
                    "csv" => PageFormat::Csv,
                    other => return Err(format!("`format` is `json` or `csv`, not `{other}`")),
                }
            }
            other => {
                let known = "`from`, `to`, `by` and `format`";
                return Err(format!("`{other}` is unknown; known parameters are {known}"));
            }
        }
    }
    let to = to.unwrap_or(now);
    let from = from.unwrap_or_else(|| to.saturating_sub(SPAN_SECONDS));
    if from > to {
        return Err("`from` is later than `to`".to_owned());
    }
    Ok((UsageQuery { from, to, by }, format))
}

fn instant(name: &str, value: &str, now: u64) -> Result<u64, String> {
    let seconds = match value.strip_prefix('-') {
        Some(ago) => ago.parse().map(|ago| now.saturating_sub(ago)),
        None => value.parse(),
    };
    seconds.map_err(|_| {
        format!(
            "`{name}` is in seconds since 1970, or seconds before now as `-3600`: not `{value}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_told_why_not() {
        let check = |query: &str, expected: Result<(u64, u64, PageFormat), &str>| {
            let parsed = parse(query, 100_000);
            let parsed = parsed.map(|(query, format)| (query.from, query.to, format));
            match (parsed, expected) {
                (Err(why), Err(part)) => assert!(why.contains(part), "{query}: {why}"),
                (parsed, expected) => {
                    assert_eq!(parsed, expected.map_err(str::to_owned), "{query}");
                }
            }
        };
        check("", Ok((96_400, 100_000, PageFormat::Json)));
        check("from=5&to=60&format=csv", Ok((5, 60, PageFormat::Csv)));
        check("from=-60&by=tenant%2Cmethod", Ok((99_940, 100_000, PageFormat::Json)));
        check("to=7", Ok((0, 7, PageFormat::Json)));
        check("from=-200000", Ok((0, 100_000, PageFormat::Json)));
        check("from=9&to=8", Err("later"));
        check("from=yesterday", Err("not `yesterday`"));
        check("to=-", Err("`to`"));
        check("by=when", Err("summed by `when`"));
        check("format=xml", Err("not `xml`"));
        check("since=1", Err("`since` is unknown"));
    }
}
