//! What is done to keys: made, revoked, rotated, taken from elsewhere. Opens nothing, and reads no clock.

use std::time::Duration;

use rand::CryptoRng;
use wellhead_access::{ApiKey, KEY_PREFIX, KeyId, KeyRecord, UnixSeconds};
use wellhead_telemetry::Secret;

use super::list::KeyList;
use super::order::{KeyOrder, KeyRules};
use super::problem::KeyProblem;
use crate::config::ForeignEntry;

/// Ids that are drawn for one key. Two of a million keys that have one are rare, ten in a row do not happen.
const DRAWS_MAX: usize = 10;

/// A key whose text is shown once.
#[derive(Debug)]
pub(crate) struct ShownKey {
    pub(crate) record: KeyRecord,
    pub(crate) text: Secret,
}

/// What was taken from a file of another proxy.
#[derive(Debug, Default)]
pub(crate) struct ImportedKeys {
    pub(crate) added: usize,
    /// Already there, from an earlier import.
    pub(crate) known: usize,
    /// With their lines. Those keys are left out.
    pub(crate) problems: Vec<String>,
}

/// A new key as ordered, whose id `is_taken` does not have.
pub(crate) fn make(
    order: &KeyOrder,
    rules: &KeyRules,
    is_taken: impl Fn(KeyId) -> bool,
    now: u64,
    rng: &mut impl CryptoRng,
) -> Result<ShownKey, KeyProblem> {
    let env = order.env.as_deref().unwrap_or(&rules.env);
    let wrong_env = |_| {
        KeyProblem::Wrong(
        "env: expected 1 to 8 small letters and digits that begin with a letter, such as `live`"
            .to_owned(),
    )
    };
    for _ in 0..DRAWS_MAX {
        let new = ApiKey::generate(env, rng).map_err(wrong_env)?;
        if is_taken(new.id) {
            continue;
        }
        let hash = rules.pepper.hash(new.text.expose());
        let expires_at = order.lifetime.map(|span| UnixSeconds(now + span.as_secs()));
        let record = KeyRecord {
            quota: order.quota.clone(),
            note: order.note.clone(),
            rights: order.rights.clone(),
            created_at: Some(UnixSeconds(now)),
            expires_at,
            ..KeyRecord::new(new.id, hash, order.tenant.as_str())
        };
        rules.check(&record)?;
        return Ok(ShownKey { record, text: new.text });
    }
    Err(KeyProblem::System("no id is free: try again".to_owned()))
}

/// Makes a key and adds it.
pub(crate) fn create(
    list: &mut KeyList,
    order: &KeyOrder,
    rules: &KeyRules,
    now: u64,
    rng: &mut impl CryptoRng,
) -> Result<ShownKey, KeyProblem> {
    let shown = make(order, rules, |id| list.get(id).is_some(), now, rng)?;
    list.push(shown.record.clone());
    Ok(shown)
}

/// Ends a key for good; one that was ended before stays as it is.
pub(crate) fn revoke(list: &mut KeyList, id: KeyId, now: u64) -> Result<KeyRecord, KeyProblem> {
    let record = list.get_mut(id).ok_or_else(|| no_key(id))?;
    record.revoked_at.get_or_insert(UnixSeconds(now));
    Ok(record.clone())
}

/// Gives a key a new secret; the old one stays valid for `overlap`. One that was still valid from the
/// rotation before is not any longer: a key has two secrets at most.
pub(crate) fn rotate(
    list: &mut KeyList,
    id: KeyId,
    overlap: Duration,
    rules: &KeyRules,
    now: u64,
    rng: &mut impl CryptoRng,
) -> Result<ShownKey, KeyProblem> {
    let record = list.get_mut(id).ok_or_else(|| no_key(id))?;
    let since = Duration::from_secs(now);
    if record.revoked_at.is_some() {
        return Err(revoked(id));
    }
    if record.expires_at.is_some_and(|end| end.is_over(since)) {
        return Err(KeyProblem::Conflict(format!("the key {id} has expired: make a new one")));
    }
    let new = ApiKey::generate_for(id, &rules.env, rng)
        .map_err(|error| KeyProblem::Wrong(format!("env: {error}")))?;
    record.rotate(rules.pepper.hash(new.text.expose()), UnixSeconds(now + overlap.as_secs()));
    Ok(ShownKey { record: record.clone(), text: new.text })
}

/// Takes keys of another proxy in, those with a problem left out. Keys of ours stay what they are.
pub(crate) fn import(
    list: &mut KeyList,
    entries: Vec<ForeignEntry>,
    order: &KeyOrder,
    rules: &KeyRules,
    now: u64,
) -> ImportedKeys {
    let mut imported = ImportedKeys::default();
    for entry in entries {
        let line = entry.line;
        match import_one(list, entry, order, rules, now) {
            Ok(true) => imported.added += 1,
            Ok(false) => imported.known += 1,
            Err(problem) => imported.problems.push(format!("line {line}: {problem}")),
        }
    }
    imported
}

/// Whether it is a new one.
fn import_one(
    list: &mut KeyList,
    entry: ForeignEntry,
    order: &KeyOrder,
    rules: &KeyRules,
    now: u64,
) -> Result<bool, String> {
    let text = entry.secret.expose();
    let (id, hash) = match text.starts_with(KEY_PREFIX) {
        true => {
            let key = ApiKey::parse(text).map_err(|error| error.to_string())?;
            (key.id(), rules.pepper.hash(text))
        }
        false => rules.pepper.hash_foreign(text).map_err(|error| error.to_string())?,
    };
    if let Some(known) = list.get(id) {
        return match known.hash == hash {
            true => Ok(false),
            false => Err(format!("another key has the id {id} that this one would have")),
        };
    }
    let record = KeyRecord {
        quota: order.quota.clone(),
        note: entry.note,
        rights: entry.rights,
        created_at: Some(UnixSeconds(now)),
        ..KeyRecord::new(id, hash, order.tenant.as_str())
    };
    rules.check(&record).map_err(|problem| problem.to_string().replace('\n', "; "))?;
    list.push(record);
    Ok(true)
}

/// There is one, which is revoked for good.
pub(crate) fn revoked(id: KeyId) -> KeyProblem {
    KeyProblem::Conflict(format!("the key {id} is revoked: make a new one"))
}

/// There is no such key.
pub(crate) fn no_key(id: KeyId) -> KeyProblem {
    KeyProblem::NotFound(format!("there is no key {id}"))
}

/// Reads the id of a key. Quotes nothing of what is none: it may be a whole key.
pub(crate) fn key_id(text: &str) -> Result<KeyId, KeyProblem> {
    text.parse().map_err(|_| {
        let hint = match text.starts_with(KEY_PREFIX) {
            true => "; the id of a key is its third part: wh_live_ID_...",
            false => "",
        };
        KeyProblem::Wrong(format!(
            "the id of a key is 8 characters of `0-9a-z` without `i`, `l`, `o` and `u`{hint}"
        ))
    })
}
