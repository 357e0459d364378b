//! How keys are shown: as JSON, as a table, as settings. Never their secrets or hashes, but for the hash
//! that the settings need.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use wellhead_access::{KeyRecord, UnixSeconds};
use wellhead_limit::civil;

/// Whether a key is valid, in a word.
pub(crate) fn state(record: &KeyRecord, now: u64) -> &'static str {
    let now = Duration::from_secs(now);
    let is_over = |end: Option<UnixSeconds>| end.is_some_and(|end| end.is_over(now));
    if is_over(record.revoked_at) {
        "revoked"
    } else if is_over(record.expires_at) {
        "expired"
    } else {
        "valid"
    }
}

/// A key for programs.
pub(crate) fn json(record: &KeyRecord, now: u64) -> Value {
    // Plain data with keys that are text always serializes.
    let mut value = serde_json::to_value(record).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.remove("hash");
        if let Some(Value::Object(previous)) = fields.get_mut("previous") {
            previous.remove("hash");
        }
        fields.insert("state".to_owned(), json!(state(record, now)));
    }
    value
}

/// An instant for people, in UTC.
pub(crate) fn instant(at: UnixSeconds) -> String {
    let (days, second) = (at.0 / 86_400, at.0 % 86_400);
    // Such an instant is a mistake, and is shown as it is.
    let Some(day) = u32::try_from(days).ok().filter(|day| *day < 4_000_000) else {
        return at.to_string();
    };
    let (year, month, day) = civil(day);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// All keys for people, in columns.
pub(crate) fn table<'a>(records: impl Iterator<Item = &'a KeyRecord>, now: u64) -> String {
    const HEAD: [&str; 7] = ["ID", "TENANT", "STATE", "CREATED", "EXPIRES", "QUOTA", "NOTE"];
    let optional = |at: Option<UnixSeconds>| at.map_or("-".to_owned(), instant);
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(records.map(|record| {
        [
            record.id.to_string(),
            plain(&record.tenant),
            state(record, now).to_owned(),
            optional(record.created_at),
            optional(record.expires_at),
            record.quota.as_deref().map_or("-".to_owned(), plain),
            record.note.as_deref().map_or("-".to_owned(), plain),
        ]
    }));
    if rows.len() == 1 {
        return "no keys".to_owned();
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One key for people.
pub(crate) fn page(record: &KeyRecord, now: u64) -> String {
    let mut lines = vec![
        ("id", record.id.to_string()),
        ("tenant", plain(&record.tenant)),
        ("state", state(record, now).to_owned()),
    ];
    let previous = record.previous.map(|previous| previous.valid_until);
    let optional = [
        ("quota", record.quota.as_deref().map(plain)),
        ("note", record.note.as_deref().map(plain)),
        ("created", record.created_at.map(instant)),
        ("expires", record.expires_at.map(instant)),
        ("revoked", record.revoked_at.map(instant)),
        ("old secret until", previous.map(instant)),
        ("rights", rights(record)),
    ];
    lines.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:<18}{value}");
        text
    })
}

/// A key as an item of `access.keys.list`, with the settings above it.
pub(crate) fn yaml(record: &KeyRecord) -> String {
    let mut text = format!(
        "access:\n  keys:\n    list:\n      - id: \"{}\"\n        hash: \"{}\"\n        tenant: \"{}\"",
        record.id,
        record.hash.to_hex(),
        plain(&record.tenant)
    );
    let quoted = |text: &String| json!(text).to_string();
    let optional = [
        ("quota", record.quota.as_ref().map(quoted)),
        ("note", record.note.as_ref().map(quoted)),
        ("rights", rights(record)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            let _ = write!(text, "\n        {name}: {value}");
        }
    }
    text
}

/// JSON, which is YAML too.
fn rights(record: &KeyRecord) -> Option<String> {
    (!record.rights.is_empty()).then(|| json!(record.rights).to_string())
}

/// What others wrote into a file must not steer the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use wellhead_access::{Pepper, PreviousHash};

    use super::*;

    fn record() -> KeyRecord {
        let hash = Pepper::well_known().hash("the secret");
        KeyRecord {
            note: Some("for \u{1b}[31mthem".to_owned()),
            created_at: Some(UnixSeconds(1_795_000_000)),
            expires_at: Some(UnixSeconds(1_795_000_100)),
            previous: Some(PreviousHash { hash, valid_until: UnixSeconds(5) }),
            ..KeyRecord::new("7c9xk2ma".parse().unwrap(), hash, "acme")
        }
    }

    #[test]
    fn a_key_is_shown_without_its_hash() {
        let record = record();
        let (now, hash) = (1_795_000_050, record.hash.to_hex());
        assert_eq!(
            json(&record, now).to_string(),
            r#"{"created_at":1795000000,"expires_at":1795000100,"id":"7c9xk2ma","note":"for \u001b[31mthem","previous":{"valid_until":5},"state":"valid","tenant":"acme"}"#
        );
        let list = table(std::iter::once(&record), now);
        assert_eq!(
            list,
            "ID        TENANT  STATE  CREATED           EXPIRES           QUOTA  NOTE\n\
             7c9xk2ma  acme    valid  2026-11-18 11:06  2026-11-18 11:08  -      for \u{fffd}[31mthem\n"
        );
        let page = page(&record, now);
        assert!(page.contains("\nold secret until  1970-01-01 00:00\n"), "{page}");
        assert!(!page.contains(&hash) && !list.contains(&hash));
        assert!(yaml(&record).contains(&hash));
    }

    #[test]
    fn states() {
        let mut record = record();
        assert_eq!(state(&record, 1_795_000_099), "valid");
        assert_eq!(state(&record, 1_795_000_100), "expired");
        record.revoked_at = Some(UnixSeconds(1));
        assert_eq!(state(&record, 1_795_000_000), "revoked");
        assert_eq!(instant(UnixSeconds(u64::MAX)), u64::MAX.to_string());
    }
}
