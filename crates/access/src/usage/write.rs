//! Rows as text: CSV, JSON lines, and the JSON lines of ClickHouse.
//!
//! CSV is that of RFC 4180 but for line ends, which are `\n` alone as in the JSON lines: a field with a
//! comma, a quote or a line break stands in quotes. A program for tables may take a name that begins
//! with `=` for a formula; names of tenants and keys are the operator's to choose.
//!
//! JSON lines are one object each with the fields of [`CSV_HEADER`] under their names. Numbers are
//! exact, credits with at most three decimals. ClickHouse gets the minute as seconds since 1970, which
//! is what its `DateTime` reads whatever its settings for dates are.

use std::io::Write as _;

use super::{UsageAmounts, UsageKey, UsageRow};

/// The first line of a CSV file, and the fields of each object.
pub const CSV_HEADER: &str = "id,replica,minute,tenant,kind,key,chain,method,source,outcome,\
    calls,credits_in,credits_out,bytes_in,bytes_out,time_us\n";

/// The fields of the amounts, in the order of all outlets.
pub(super) const AMOUNTS: [&str; 6] =
    ["calls", "credits_in", "credits_out", "bytes_in", "bytes_out", "time_us"];

/// Appends a line for each row, without the header.
pub fn write_csv(text: &mut Vec<u8>, replica: &str, rows: &[UsageRow]) {
    for row in rows {
        let UsageRow { id, minute, key, amounts } = row;
        put(text, format_args!("{id},"));
        csv_field(text, replica);
        put(text, format_args!(",{minute}"));
        for name in key.names() {
            text.push(b',');
            csv_field(text, name);
        }
        csv_amounts(text, amounts);
        text.push(b'\n');
    }
}

/// Appends a JSON object and a line end for each row.
pub fn write_jsonl(text: &mut Vec<u8>, replica: &str, rows: &[UsageRow]) {
    for row in rows {
        json_row(text, replica, row, format_args!("\"{}\"", row.minute));
    }
}

/// Appends the body of an `INSERT INTO … FORMAT JSONEachRow`.
pub fn write_clickhouse(text: &mut Vec<u8>, replica: &str, rows: &[UsageRow]) {
    for row in rows {
        json_row(text, replica, row, format_args!("{}", row.minute.unix_seconds()));
    }
}

fn json_row(text: &mut Vec<u8>, replica: &str, row: &UsageRow, minute: std::fmt::Arguments<'_>) {
    let UsageRow { id, minute: _, key, amounts } = row;
    put(text, format_args!("{{\"id\":\"{id}\",\"replica\":"));
    json_string(text, replica);
    put(text, format_args!(",\"minute\":{minute}"));
    for (field, name) in UsageKey::COLUMNS.iter().zip(key.names()) {
        put(text, format_args!(",\"{field}\":"));
        json_string(text, name);
    }
    json_amounts(text, amounts);
    text.extend_from_slice(b"}\n");
}

/// Appends `,` and the number for each.
pub(super) fn csv_amounts(text: &mut Vec<u8>, amounts: &UsageAmounts) {
    let UsageAmounts { calls, credits_in, credits_out, bytes_in, bytes_out, time_us } = amounts;
    put(text, format_args!(",{calls},{credits_in},{credits_out},{bytes_in},{bytes_out},{time_us}"));
}

/// Appends `,"name":number` for each.
pub(super) fn json_amounts(text: &mut Vec<u8>, amounts: &UsageAmounts) {
    let UsageAmounts { calls, credits_in, credits_out, bytes_in, bytes_out, time_us } = amounts;
    put(text, format_args!(",\"calls\":{calls},\"credits_in\":{credits_in}"));
    put(text, format_args!(",\"credits_out\":{credits_out},\"bytes_in\":{bytes_in}"));
    put(text, format_args!(",\"bytes_out\":{bytes_out},\"time_us\":{time_us}"));
}

pub(super) fn csv_field(text: &mut Vec<u8>, field: &str) {
    if !field.contains([',', '"', '\n', '\r']) {
        return text.extend_from_slice(field.as_bytes());
    }
    text.push(b'"');
    text.extend_from_slice(field.replace('"', "\"\"").as_bytes());
    text.push(b'"');
}

pub(super) fn json_string(text: &mut Vec<u8>, string: &str) {
    serde_json::to_writer(text, string).expect("a string is JSON, and a vector takes all");
}

pub(super) fn put(text: &mut Vec<u8>, words: std::fmt::Arguments<'_>) {
    text.write_fmt(words).expect("a vector takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{
        MilliCredits, UsageKey, UsageMinute, UsageOutcome, UsageRowId, UsageSource,
    };

    fn row(tenant: &str, key: &str) -> UsageRow {
        let key = UsageKey {
            tenant: tenant.into(),
            kind: "key",
            key: key.into(),
            chain: "ethereum".into(),
            method: "eth_call",
            source: UsageSource::Upstream,
            outcome: UsageOutcome::Answered,
        };
        let amounts = UsageAmounts {
            calls: 2,
            credits_in: MilliCredits(2_600),
            credits_out: MilliCredits::whole(52),
            bytes_in: 300,
            bytes_out: u64::MAX,
            time_us: 1_234,
        };
        let minute = UsageMinute(29_926_506);
        UsageRow { id: UsageRowId::new("r", 0, minute, &key), minute, key, amounts }
    }

    /// A plain reader of RFC 4180.
    fn csv_fields(line: &str) -> Vec<String> {
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = line.chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                other => field.push(other),
            }
        }
        fields.push(field);
        fields
    }

    #[test]
    fn a_row_reads_as_its_header_says() {
        let row = row("acme", "k1");
        let mut text = Vec::new();
        write_csv(&mut text, "replica-a", std::slice::from_ref(&row));
        let line = String::from_utf8(text).expect("text");
        let expected = format!(
            "{},replica-a,2026-11-25T07:06:00Z,acme,key,k1,ethereum,eth_call,upstream,answered,\
             2,2.6,52,300,18446744073709551615,1234\n",
            row.id
        );
        assert_eq!(line, expected);
        assert_eq!(csv_fields(&line).len(), csv_fields(CSV_HEADER).len());
        assert!(CSV_HEADER.trim_end().ends_with(&AMOUNTS.join(",")));
    }

    #[test]
    fn names_come_back_as_they_were() {
        for name in ["plain", "a,b", "say \"x\"", "two\nlines", "\r", "", "é\u{1}", "\"", "\\"] {
            let row = row(name, name);
            let mut text = Vec::new();
            write_csv(&mut text, name, std::slice::from_ref(&row));
            let line = String::from_utf8(text).expect("text");
            let fields = csv_fields(line.strip_suffix('\n').expect("a line"));
            assert_eq!([&fields[1], &fields[3], &fields[5]], [name; 3], "CSV");
            for write in [write_jsonl, write_clickhouse] {
                let mut text = Vec::new();
                write(&mut text, name, std::slice::from_ref(&row));
                assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
                let value: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
                for field in ["replica", "tenant", "key"] {
                    assert_eq!(value[field], name, "{field}");
                }
            }
        }
    }

    #[test]
    fn objects_have_the_fields_of_the_header() {
        let row = row("acme", "k1");
        let check = |write: fn(&mut Vec<u8>, &str, &[UsageRow]), minute: &str| {
            let mut text = Vec::new();
            write(&mut text, "replica-a", std::slice::from_ref(&row));
            let line = String::from_utf8(text).expect("text");
            let expected = format!(
                "{{\"id\":\"{}\",\"replica\":\"replica-a\",\"minute\":{minute},\"tenant\":\"acme\",\
                 \"kind\":\"key\",\"key\":\"k1\",\"chain\":\"ethereum\",\"method\":\"eth_call\",\
                 \"source\":\"upstream\",\"outcome\":\"answered\",\"calls\":2,\"credits_in\":2.6,\
                 \"credits_out\":52,\"bytes_in\":300,\"bytes_out\":18446744073709551615,\
                 \"time_us\":1234}}\n",
                row.id
            );
            assert_eq!(line, expected);
        };
        check(write_jsonl, "\"2026-11-25T07:06:00Z\"");
        check(write_clickhouse, "1795590360");
        let mut text = Vec::new();
        write_jsonl(&mut text, "r", std::slice::from_ref(&row));
        let value: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).expect("JSON");
        let mut header: Vec<_> = CSV_HEADER.trim_end().split(',').collect();
        header.sort_unstable();
        let mut fields: Vec<_> = value.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, header);
    }
}
