//! What is stored of a key, and the lines of a file of keys.
//!
//! A file of keys has one JSON object a line (JSONL). A record never holds the text of a key. Whether its
//! tenant and its names exist is for the table, which sees the other settings too.

use serde::{Deserialize, Serialize};

use crate::key::{KeyId, mask_keys};
use crate::key_hash::KeyHash;
use crate::rights_settings::RightsSettings;
use crate::unix_seconds::UnixSeconds;

/// Longest line of a file of keys. A longer one is a problem, and is not read.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;
/// Problems of one file that are told; the others are counted.
const PROBLEMS_MAX: usize = 20;

/// One stored key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// The public id.
    pub id: KeyId,
    /// The hash of its whole text.
    pub hash: KeyHash,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The named set of limits, in the place of its tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// What it may do of that which its tenant may.
    #[serde(default, skip_serializing_if = "RightsSettings::is_empty")]
    pub rights: RightsSettings,
    /// When it was made. For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<UnixSeconds>,
    /// It is not valid from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixSeconds>,
    /// The secret before the last rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<PreviousHash>,
    /// It is not valid from then on, for good. The record is kept so that its id is not used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<UnixSeconds>,
}

/// The hash of a secret that was replaced, valid for a while beside the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreviousHash {
    /// The hash of the whole text.
    pub hash: KeyHash,
    /// It is not valid from then on.
    pub valid_until: UnixSeconds,
}

impl KeyRecord {
    /// A record with nothing but what each has.
    pub fn new(id: KeyId, hash: KeyHash, tenant: impl Into<String>) -> Self {
        Self {
            id,
            hash,
            tenant: tenant.into(),
            note: None,
            quota: None,
            rights: RightsSettings::default(),
            created_at: None,
            expires_at: None,
            previous: None,
            revoked_at: None,
        }
    }

    /// Puts a new secret in the place of the present one, which stays valid until `old_until`.
    pub fn rotate(&mut self, hash: KeyHash, old_until: UnixSeconds) {
        self.previous = Some(PreviousHash { hash: self.hash, valid_until: old_until });
        self.hash = hash;
    }

    /// Reads one line of a file of keys. The problem quotes no key.
    pub fn parse(line: &str) -> Result<Self, String> {
        if line.len() > RECORD_BYTES_MAX {
            return Err(format!(
                "a record has at most {RECORD_BYTES_MAX} bytes, this one {}",
                line.len()
            ));
        }
        serde_json::from_str(line).map_err(|error| {
            // Its place within the line is kept; "line 1" would be taken for a line of the file.
            mask_keys(&error.to_string().replace(" at line 1 column ", " at column ")).into_owned()
        })
    }

    /// One line of a file of keys, without its end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a record has no map with keys that are not text")
    }

    /// Reads a file of keys, blank lines and lines that begin with `#` left out. All problems are
    /// collected, with their lines.
    pub fn read_file(text: &str) -> Result<Vec<Self>, Vec<String>> {
        let (mut records, mut problems, mut more) = (Vec::new(), Vec::new(), 0_usize);
        for (line, number) in text.lines().zip(1_usize..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Self::parse(line) {
                Ok(record) => records.push(record),
                Err(_) if problems.len() == PROBLEMS_MAX => more += 1,
                Err(problem) => problems.push(format!("line {number}: {problem}")),
            }
        }
        if more > 0 {
            problems.push(format!("and {more} more lines that cannot be read"));
        }
        if problems.is_empty() { Ok(records) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    /// `'` stands for `"`, and `H` for a hash.
    fn json(text: &str) -> String {
        text.replace('\'', "\"").replace("\"H\"", &format!("\"{HASH}\""))
    }

    #[track_caller]
    fn check(line: &str, want: Result<&str, &str>) {
        let read = KeyRecord::parse(&json(line));
        let written = read.map(|record| record.to_line());
        match (written, want) {
            (Ok(written), Ok(want)) => assert_eq!(written, json(want)),
            (Err(problem), Err(want)) => assert!(problem.contains(want), "{line}: {problem}"),
            (got, want) => panic!("{line}: {got:?}, not {want:?}"),
        }
    }

    #[test]
    fn a_record_is_written_as_it_was_read() {
        let least = "{'id':'7c9xk2ma','hash':'H','tenant':'acme'}";
        check(least, Ok(least));
        let all = "{'id':'7c9xk2ma','hash':'H','tenant':'acme','note':'ci','quota':'pro',\
            'rights':{'chains':['ethereum'],'methods':{'deny':['debug_*']},'trail':false},\
            'created_at':1,'expires_at':2,'previous':{'hash':'H','valid_until':3},'revoked_at':4}";
        check(all, Ok(all));
        check(
            "{'tenant':'a','hash':'H','id':'7c9xk2ma','note':null}",
            Ok("{'id':'7c9xk2ma','hash':'H','tenant':'a'}"),
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        check("{'id':'7c9xk2ma','hash':'H'}", Err("missing field `tenant`"));
        check("{'id':'7c9xk2ma','hash':'H','tenant':'a','tenat':1}", Err("unknown field `tenat`"));
        check(
            "{'id':'7c9xk2ma','hash':'H','tenant':'a','rights':{'chain':[]}}",
            Err("unknown field `chain`"),
        );
        check("{'id':'x','hash':'H','tenant':'a'}", Err("the id of a key is 8 characters"));
        check("{'id':'7c9xk2ma','hash':'00','tenant':'a'}", Err("not 64 hex digits"));
        check("{'id':'7c9xk2ma','hash':'H','tenant':'a','expires_at':'2027'}", Err("invalid type"));
        check("{'id':'7c9xk2ma','hash':'H','tenant':'a','expires_at':-1}", Err("invalid value"));
        check("nonsense", Err("expected"));
        check(&" ".repeat(RECORD_BYTES_MAX + 1), Err("at most 65536 bytes"));
    }

    #[test]
    fn no_problem_quotes_a_key() {
        let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_000000";
        for place in ["id", "hash", "expires_at", "rights", "previous", "KEY"] {
            let line = match place {
                "KEY" => format!("{{'{key}':1}}"),
                place => format!("{{'{place}':'{key}'}}"),
            };
            let problem = KeyRecord::parse(&json(&line)).unwrap_err();
            assert!(!problem.contains("0123456789abc"), "{place}: {problem}");
        }
    }

    #[test]
    fn a_file_tells_all_its_problems() {
        let good = json("{'id':'7c9xk2ma','hash':'H','tenant':'acme'}");
        let read = KeyRecord::read_file(&format!("# keys\n\n{good}\r\n  {good}\n"));
        assert_eq!(read.map(|records| records.len()), Ok(2));
        assert_eq!(KeyRecord::read_file(""), Ok(Vec::new()));
        let problems = KeyRecord::read_file(&format!("{{}}\n{good}\n[]\n")).unwrap_err();
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("line 1: missing field `id`"), "{problems:?}");
        assert!(problems[1].starts_with("line 3: "), "{problems:?}");
        let problems = KeyRecord::read_file(&"{}\n".repeat(30)).unwrap_err();
        assert_eq!(problems.len(), 21);
        assert_eq!(problems[20], "and 10 more lines that cannot be read");
    }

    #[test]
    fn a_rotated_key_keeps_its_old_hash_for_a_while() {
        let hash = HASH.parse().unwrap();
        let new = HASH.replace("00", "ff").parse().unwrap();
        let mut record = KeyRecord::new("7c9xk2ma".parse().unwrap(), hash, "acme");
        record.rotate(new, UnixSeconds(9));
        assert_eq!(record.hash, new);
        assert_eq!(record.previous, Some(PreviousHash { hash, valid_until: UnixSeconds(9) }));
    }
}
