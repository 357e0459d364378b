//! What a new key should be, as the command line and the admin API say it, and the rules for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wellhead_access::{
    GrantKind, GrantTerms, KeyRecord, Pepper, RightsSettings, TenantDirectory, mask_keys,
};

use super::problem::KeyProblem;
use crate::config::{Settings, lifetime, overlap};

/// Longest note of a key, in bytes.
const NOTE_BYTES_MAX: usize = 256;

/// What a new key should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyOrder {
    pub(crate) tenant: String,
    pub(crate) quota: Option<String>,
    pub(crate) note: Option<String>,
    /// The first word of its text; that of the settings if none.
    pub(crate) env: Option<String>,
    /// How long it is valid; for ever if none.
    pub(crate) lifetime: Option<Duration>,
    pub(crate) rights: RightsSettings,
}

/// What the settings allow of keys.
#[derive(Debug, Clone)]
pub(crate) struct KeyRules {
    pub(crate) tenants: Arc<TenantDirectory>,
    pub(crate) pepper: Pepper,
    /// The first word of new keys.
    pub(crate) env: String,
    /// The names of the chains, with the name of each other one; `None` where they are not known.
    pub(crate) chains: Option<ChainNames>,
    /// Whether it is known which quotas there are.
    pub(crate) knows_quotas: bool,
}

/// What the chains of the settings are called.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChainNames {
    /// One of them has to be named where there are several.
    pub(super) names: Vec<String>,
    /// Aliases and ids, which rights do not have.
    others: BTreeMap<String, String>,
}

impl ChainNames {
    /// Those of the settings.
    pub(crate) fn of(settings: &Settings) -> Self {
        let mut chains = Self::default();
        for (name, chain) in settings.chains.iter() {
            let name = name.as_ref().to_owned();
            chains.others.extend(chain.other_names().map(|other| (other, name.clone())));
            chains.names.push(name);
        }
        chains
    }

    fn check(&self, chain: &str) -> Result<(), String> {
        if self.names.iter().any(|name| name == chain) {
            return Ok(());
        }
        Err(match self.others.get(chain) {
            Some(name) => format!("the chain `{chain}` is named `{name}` here: write that"),
            None => format!("there is no chain `{chain}`: there are {}", self.names.join(", ")),
        })
    }
}

impl KeyRules {
    /// Says all that is wrong with a record. The id of the record should be a new one.
    pub(crate) fn check(&self, record: &KeyRecord) -> Result<(), KeyProblem> {
        let mut problems = Vec::new();
        let terms = GrantTerms {
            rights: Some(&record.rights),
            quota: record.quota.as_deref().filter(|_| self.knows_quotas),
            ..GrantTerms::new(GrantKind::Key, record.id.as_str(), &record.tenant)
        };
        problems.extend(self.tenants.grant(&terms).err().unwrap_or_default());
        if let (Some(chains), Some(named)) = (&self.chains, &record.rights.chains) {
            let checked = named.iter().filter_map(|chain| chains.check(chain).err());
            problems.extend(checked.map(|problem| format!("rights.chains: {problem}")));
        }
        problems.extend(record.note.as_deref().and_then(|note| check_note(note).err()));
        // Names and patterns may be keys that were put there by mistake.
        let masked = problems.iter().map(|problem| mask_keys(problem).into_owned());
        let problems: Vec<_> = masked.collect();
        if problems.is_empty() { Ok(()) } else { Err(KeyProblem::wrong(&problems)) }
    }
}

fn check_note(note: &str) -> Result<(), String> {
    if note.is_empty() || note.len() > NOTE_BYTES_MAX || note.contains(char::is_control) {
        return Err(format!("note: a note is one line of 1 to {NOTE_BYTES_MAX} bytes"));
    }
    // Notes are listed and logged.
    match mask_keys(note) == note {
        true => Ok(()),
        false => Err("note: there is a key in it, which would be shown".to_owned()),
    }
}

impl KeyOrder {
    /// Reads the body of `POST /keys`.
    pub(crate) fn from_json(body: &[u8]) -> Result<Self, KeyProblem> {
        let mut order = Self::default();
        let mut problems = Vec::new();
        for (name, value) in fields(body)? {
            match name.as_str() {
                "tenant" => order.tenant = text(&name, value, &mut problems).unwrap_or_default(),
                "quota" => order.quota = text(&name, value, &mut problems),
                "note" => order.note = text(&name, value, &mut problems),
                "env" => order.env = text(&name, value, &mut problems),
                "expires" => order.lifetime = span(&name, value, lifetime, &mut problems),
                "rights" => match serde_json::from_value(value) {
                    Ok(rights) => order.rights = rights,
                    Err(error) => problems.push(mask_keys(&format!("rights: {error}")).into()),
                },
                _ => problems.push(unknown(
                    &name,
                    "`tenant`, `quota`, `note`, `env`, `expires` and `rights`",
                )),
            }
        }
        if order.tenant.is_empty() && problems.is_empty() {
            problems.push("`tenant` is missing".to_owned());
        }
        if problems.is_empty() { Ok(order) } else { Err(KeyProblem::wrong(&problems)) }
    }
}

/// Reads the body of `POST /keys/ID/rotate`: how long the old secret stays valid, if it says.
pub(crate) fn overlap_from_json(body: &[u8]) -> Result<Option<Duration>, KeyProblem> {
    let (mut found, mut problems) = (None, Vec::new());
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    for (name, value) in fields(body)? {
        match name.as_str() {
            "overlap" => found = span(&name, value, overlap, &mut problems),
            _ => problems.push(unknown(&name, "`overlap`")),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(KeyProblem::wrong(&problems)) }
}

fn fields(body: &[u8]) -> Result<serde_json::Map<String, Value>, KeyProblem> {
    let wrong = |why: String| KeyProblem::Wrong(mask_keys(&why).into_owned());
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(wrong("the body is not a JSON object".to_owned())),
        Err(error) => Err(wrong(format!("the body is not JSON: {error}"))),
    }
}

fn unknown(name: &str, known: &str) -> String {
    mask_keys(&format!("`{name}` is unknown; known fields are {known}")).into_owned()
}

/// The text of a field; `null` is none.
fn text(name: &str, value: Value, problems: &mut Vec<String>) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Null => None,
        _ => {
            problems.push(format!("`{name}` is not a text"));
            None
        }
    }
}

fn span(
    name: &str,
    value: Value,
    read: fn(&str) -> Result<Duration, String>,
    problems: &mut Vec<String>,
) -> Option<Duration> {
    let text = text(name, value, problems)?;
    read(&text).map_err(|problem| problems.push(format!("`{name}`: {problem}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_body(body: &str, want: &str) {
        let read = KeyOrder::from_json(body.replace('\'', "\"").as_bytes());
        let problem = read.err().map(|problem| problem.to_string()).unwrap_or_default();
        assert_eq!(problem, want, "{body}");
    }

    #[test]
    fn bodies_of_the_admin_api() {
        check_body("{'tenant':'acme','expires':'90d','rights':{'chains':['a']},'note':null}", "");
        check_body("[]", "the body is not a JSON object");
        check_body("", "the body is not JSON: EOF while parsing a value at line 1 column 0");
        check_body("{}", "`tenant` is missing");
        check_body(
            "{'tenant':1,'expires':'x','quotas':'pro'}",
            "`expires`: expected a time such as `90d`, `12h` or `1h30m`\n\
             `quotas` is unknown; known fields are `tenant`, `quota`, `note`, `env`, `expires` and `rights`\n\
             `tenant` is not a text",
        );
        check_body(
            "{'tenant':'acme','rights':{'chain':['a']}}",
            "rights: unknown field `chain`, expected one of `chains`, `methods`, `effects`, `contracts`, `origins`, `networks`, `select`, `trail`, `logs_range_max`, `batch_items_max`, `expires_at`",
        );
        let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey";
        let problem = KeyOrder::from_json(format!(r#"{{"{key}":1}}"#).as_bytes()).unwrap_err();
        assert!(!problem.to_string().contains("0123456789"), "{problem}");
        assert_eq!(overlap_from_json(b" "), Ok(None));
        assert_eq!(
            overlap_from_json(br#"{"overlap":"24h"}"#),
            Ok(Some(Duration::from_secs(86_400)))
        );
        let problem = overlap_from_json(br#"{"over":"24h"}"#).unwrap_err();
        assert_eq!(
            problem,
            KeyProblem::Wrong("`over` is unknown; known fields are `overlap`".to_owned())
        );
    }
}
