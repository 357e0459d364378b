//! Keys over the admin listener: listed, shown, made, revoked, rotated.
//!
//! A change is written to where the key is kept, the file or Redis (`redis_desk`), and is in use when it is answered.
//! New keys are kept in Redis where keys are read from there: one in the file is known to this replica alone. The
//! secret of a key is in the answer to its making and to its rotation, and nowhere else.

mod redis_desk;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use url::form_urlencoded;
use wellhead_access::{KeyId, KeyRecord};
use wellhead_front::{CallerControl, KeyOrigin};
use wellhead_server::{AdminAction, AdminCall, AdminReply, AdminRole};
use wellhead_telemetry::clock;

use crate::access::RedisKeys;
use crate::config::{AccessKeys, Settings};
use crate::key::{
    ChainNames, ChangedKeys, KeyList, KeyOrder, KeyProblem, KeyRules, KeyStore, ROTATION_OVERLAP,
    ShownKey, change, key_id, overlap_from_json, view,
};
use redis_desk::RedisDesk;

const fn row(name: &'static str, method: &'static str, path: &'static str) -> AdminAction {
    AdminAction { name, method, path, role: AdminRole::Keys }
}

/// What can be done: a row here, and an arm in [`KeyDesk::act`].
pub(super) const ACTIONS: [AdminAction; 5] = [
    row("key.list", "GET", "/keys"),
    row("key.create", "POST", "/keys"),
    row("key.show", "GET", "/keys/*"),
    row("key.revoke", "DELETE", "/keys/*"),
    row("key.rotate", "POST", "/keys/*/rotate"),
];

/// Keys of one page of the list, if the query does not say.
const PAGE_KEYS: usize = 1000;
/// Keys of one page at most.
const PAGE_KEYS_MAX: usize = 10_000;

/// The actions on keys; without callers that are told apart there are none.
#[derive(Debug, Clone)]
pub(crate) struct KeyAdmin(Option<Arc<KeyDesk>>);

/// All that is needed to change keys.
#[derive(Debug)]
struct KeyDesk {
    control: Arc<CallerControl>,
    rules: ArcSwap<KeyRules>,
    /// The file in which keys are written. Without it and without Redis they can be looked at.
    store: Option<KeyStore>,
    redis: Option<RedisDesk>,
}

/// What is left to do of an action when its request was understood.
enum KeyStep {
    Done(KeyAnswer),
    InRedis(RedisChange),
}

/// A change of a key in Redis.
enum RedisChange {
    Create(Box<ShownKey>),
    Revoke(KeyId),
    Rotate { id: KeyId, overlap: Duration },
}

/// What becomes of an action, and the key that it was done to. The body may have a secret.
struct KeyAnswer {
    status: u16,
    body: Value,
    id: Option<KeyId>,
}

impl KeyAdmin {
    /// Without callers that are told apart.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// As the settings say.
    pub(crate) fn new(settings: &Settings, control: Option<Arc<CallerControl>>) -> Self {
        Self(settings.access.keys.as_ref().zip(control).map(|(keys, control)| {
            let rules = ArcSwap::from_pointee(rules_of(settings, keys, &control));
            let store = keys.file.clone().map(KeyStore);
            let redis = keys.redis.then(|| RedisDesk::new(Arc::default(), &control));
            Arc::new(KeyDesk { control, rules, store, redis })
        }))
    }

    /// The keys in Redis, to be opened and followed, if keys are kept there.
    pub(super) fn redis_keys(&self) -> Option<&Arc<RedisKeys>> {
        Some(self.0.as_ref()?.redis.as_ref()?.keys())
    }

    /// As other settings say from now on; to be called when the policy of callers was replaced.
    pub(super) fn change(&self, settings: &Settings) {
        if let (Some(desk), Some(keys)) = (&self.0, &settings.access.keys) {
            desk.rules.store(Arc::new(rules_of(settings, keys, &desk.control)));
        }
    }

    /// Carries out one of [`ACTIONS`].
    pub(super) async fn act(&self, call: AdminCall) -> AdminReply {
        let Some(desk) = self.0.clone() else { return failed(&no_place()) };
        match desk.answer(call).await {
            Ok(KeyAnswer { status, body, id }) => {
                let subject = id.map(|id| id.to_string());
                AdminReply { status, body: Bytes::from(body.to_string()), subject }
            }
            Err(problem) => failed(&problem),
        }
    }
}

fn rules_of(settings: &Settings, keys: &AccessKeys, control: &CallerControl) -> KeyRules {
    let policy = control.policy();
    KeyRules {
        tenants: Arc::clone(policy.tenants()),
        pepper: policy.pepper().clone(),
        env: keys.env.as_ref().to_owned(),
        chains: Some(ChainNames::of(settings)),
        knows_quotas: true,
    }
}

fn failed(problem: &KeyProblem) -> AdminReply {
    let body = json!({ "error": problem.to_string() });
    AdminReply { status: problem.status(), body: Bytes::from(body.to_string()), subject: None }
}

fn no_place() -> KeyProblem {
    let words =
        "there is no place to write keys to: set `access.keys.file`, or `access.keys.redis`";
    KeyProblem::Conflict(words.to_owned())
}

impl KeyDesk {
    async fn answer(self: Arc<Self>, call: AdminCall) -> Result<KeyAnswer, KeyProblem> {
        let now = clock::unix_seconds();
        let AdminCall { action, subject, query, body, .. } = call;
        let desk = Arc::clone(&self);
        let act = move || {
            desk.act(
                action.name,
                subject.as_deref(),
                query.as_deref().unwrap_or_default(),
                &body,
                now,
            )
        };
        // Files may lie on a disk that hangs.
        let step = tokio::task::spawn_blocking(act).await;
        match step.map_err(|error| KeyProblem::System(error.to_string()))?? {
            KeyStep::Done(answer) => Ok(answer),
            KeyStep::InRedis(change) => self.change_in_redis(change, now).await,
        }
    }

    fn act(
        &self,
        action: &str,
        subject: Option<&str>,
        query: &str,
        body: &[u8],
        now: u64,
    ) -> Result<KeyStep, KeyProblem> {
        let id = || key_id(subject.unwrap_or_default());
        match action {
            "key.list" => self.list(query, now).map(KeyStep::Done),
            "key.show" => self.show(id()?, now).map(KeyStep::Done),
            "key.create" => self.create(body, now),
            "key.revoke" => self.revoke(id()?, now),
            "key.rotate" => self.rotate(id()?, body, now),
            other => {
                let words = format!("the admin action `{other}` has no code");
                Err(KeyProblem::System(words))
            }
        }
    }

    fn list(&self, query: &str, now: u64) -> Result<KeyAnswer, KeyProblem> {
        let (mut tenant, mut after, mut limit) = (None, None, PAGE_KEYS);
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "tenant" => tenant = Some(value.into_owned()),
                "after" => after = Some(key_id(&value)?),
                "limit" => match value.parse() {
                    Ok(number) if (1..=PAGE_KEYS_MAX).contains(&number) => limit = number,
                    Ok(_) | Err(_) => {
                        let words = format!("`limit` is a number from 1 to {PAGE_KEYS_MAX}");
                        return Err(KeyProblem::Wrong(words));
                    }
                },
                _ => {
                    let words = "known parameters are `tenant`, `after` and `limit`";
                    return Err(KeyProblem::Wrong(words.to_owned()));
                }
            }
        }
        let mut records = self.control.records(|record| {
            tenant.as_ref().is_none_or(|tenant| record.tenant == *tenant)
                && after.is_none_or(|after| record.id > after)
        });
        // Stable: of two keys with one id the one that counts stays first.
        records.sort_by_key(|(_, record)| record.id);
        records.dedup_by_key(|(_, record)| record.id);
        let next = records.get(limit).is_some().then(|| records[limit - 1].1.id);
        let keys: Vec<_> =
            records.iter().take(limit).map(|(source, it)| shown(*source, it, now)).collect();
        let mut body = json!({ "keys": keys });
        if let Some(next) = next {
            body["next"] = json!(next);
        }
        Ok(KeyAnswer { status: 200, body, id: None })
    }

    fn show(&self, id: KeyId, now: u64) -> Result<KeyAnswer, KeyProblem> {
        let (source, record) = self.known(id).ok_or_else(|| change::no_key(id))?;
        Ok(KeyAnswer { status: 200, body: shown(source, &record, now), id: Some(id) })
    }

    fn known(&self, id: KeyId) -> Option<(KeyOrigin, KeyRecord)> {
        self.control.records(|record| record.id == id).into_iter().next()
    }

    fn create(&self, body: &[u8], now: u64) -> Result<KeyStep, KeyProblem> {
        let order = KeyOrder::from_json(body)?;
        let (mut rng, rules) = (StdRng::from_os_rng(), self.rules.load());
        if self.redis.is_some() {
            let is_taken = |id| self.known(id).is_some();
            let made = change::make(&order, &rules, is_taken, now, &mut rng)?;
            return Ok(KeyStep::InRedis(RedisChange::Create(Box::new(made))));
        }
        let made = self.change(|list| change::create(list, &order, &rules, now, &mut rng))?;
        Ok(KeyStep::Done(with_secret(201, KeyOrigin::File, &made, now)))
    }

    fn revoke(&self, id: KeyId, now: u64) -> Result<KeyStep, KeyProblem> {
        if self.is_in_redis(id)? {
            return Ok(KeyStep::InRedis(RedisChange::Revoke(id)));
        }
        let record = self.change(|list| change::revoke(list, id, now))?;
        Ok(KeyStep::Done(revoked(KeyOrigin::File, &record, now)))
    }

    fn rotate(&self, id: KeyId, body: &[u8], now: u64) -> Result<KeyStep, KeyProblem> {
        let is_in_redis = self.is_in_redis(id)?;
        // Of one that its source brings back from an earlier time, the new secret would not be valid.
        if self.known(id).is_some_and(|(_, record)| record.revoked_at.is_some()) {
            return Err(change::revoked(id));
        }
        let overlap = overlap_from_json(body)?.unwrap_or(ROTATION_OVERLAP);
        if is_in_redis {
            return Ok(KeyStep::InRedis(RedisChange::Rotate { id, overlap }));
        }
        let mut rng = StdRng::from_os_rng();
        let rules = self.rules.load();
        let made = self.change(|list| change::rotate(list, id, overlap, &rules, now, &mut rng))?;
        Ok(KeyStep::Done(with_secret(200, KeyOrigin::File, &made, now)))
    }

    /// Whether a key is to be changed in Redis; else in the file. A key of the settings is changed there.
    fn is_in_redis(&self, id: KeyId) -> Result<bool, KeyProblem> {
        match self.known(id) {
            Some((KeyOrigin::Settings, _)) => Err(KeyProblem::Conflict(format!(
                "the key {id} stands in the config: change it in `access.keys.list`"
            ))),
            Some((KeyOrigin::File, _)) => Ok(false),
            Some((KeyOrigin::Redis, _)) => Ok(true),
            // It may have been made just now, by another replica or by a command.
            None => {
                let is_in_file =
                    |store: &KeyStore| store.read().is_ok_and(|it| it.get(id).is_some());
                Ok(self.redis.is_some() && !self.store.as_ref().is_some_and(is_in_file))
            }
        }
    }

    async fn change_in_redis(
        &self,
        change: RedisChange,
        now: u64,
    ) -> Result<KeyAnswer, KeyProblem> {
        let (redis, source) = (self.redis.as_ref().ok_or_else(no_place)?, KeyOrigin::Redis);
        match change {
            RedisChange::Create(made) => {
                redis.add(&made.record).await?;
                Ok(with_secret(201, source, &made, now))
            }
            RedisChange::Revoke(id) => {
                let record = redis.change(id, |list| change::revoke(list, id, now)).await?;
                Ok(revoked(source, &record, now))
            }
            RedisChange::Rotate { id, overlap } => {
                let (mut rng, rules) = (StdRng::from_os_rng(), self.rules.load_full());
                let rotate =
                    |list: &mut KeyList| change::rotate(list, id, overlap, &rules, now, &mut rng);
                let made = redis.change(id, rotate).await?;
                Ok(with_secret(200, source, &made, now))
            }
        }
    }

    /// Changes the file, and takes its keys into use.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut KeyList) -> Result<T, KeyProblem>,
    ) -> Result<T, KeyProblem> {
        let store = self.store.as_ref().ok_or_else(no_place)?;
        let _turn = self.control.file_turn();
        let ChangedKeys { outcome, records } = store.change(change)?;
        for problem in self.control.take_keys(KeyOrigin::File, records) {
            tracing::error!(%problem, "a key of the file is invalid and not used");
        }
        Ok(outcome)
    }
}

fn shown(source: KeyOrigin, record: &KeyRecord, now: u64) -> Value {
    let mut value = view::json(record, now);
    value["source"] = json!(source.word());
    value
}

fn revoked(source: KeyOrigin, record: &KeyRecord, now: u64) -> KeyAnswer {
    KeyAnswer { status: 200, body: shown(source, record, now), id: Some(record.id) }
}

fn with_secret(status: u16, source: KeyOrigin, made: &ShownKey, now: u64) -> KeyAnswer {
    let mut body = shown(source, &made.record, now);
    body["key"] = json!(made.text.expose());
    KeyAnswer { status, body, id: Some(made.record.id) }
}

#[cfg(test)]
mod tests;
