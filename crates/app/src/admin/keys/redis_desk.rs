//! Keys in Redis, changed there one by one.
//!
//! Another replica may change the key at the same time: what was read is replaced only as long as it is as it was
//! read, and the change is made anew otherwise. So of a revocation and a rotation at once, the key stays
//! revoked in either order.

use std::sync::Arc;

use wellhead_access::{KeyId, KeyRecord};
use wellhead_front::{CallerControl, KeyOrigin};
use wellhead_store::{
    DirectoryBounds, DirectoryEntry, DirectoryError, DirectoryWrite, KeySnapshot,
};

use crate::access::RedisKeys;
use crate::key::{KeyList, KeyProblem, change};

/// Changes of one key that may come between before a change gives up. People make them, some in an hour.
const ATTEMPTS_MAX: usize = 8;
/// What a rotation and the revocation add to a key, in bytes. A key without that room could not be revoked.
const GROWTH_BYTES_MAX: usize = 256;

/// Changes keys in Redis, and sees to it that a change is in use here.
#[derive(Debug)]
pub(super) struct RedisDesk {
    keys: Arc<RedisKeys>,
    control: Arc<CallerControl>,
}

impl RedisDesk {
    pub(super) fn new(keys: Arc<RedisKeys>, control: &Arc<CallerControl>) -> Self {
        Self { keys, control: Arc::clone(control) }
    }

    pub(super) fn keys(&self) -> &Arc<RedisKeys> {
        &self.keys
    }

    /// Adds a key.
    pub(super) async fn add(&self, record: &KeyRecord) -> Result<(), KeyProblem> {
        check_length(record)?;
        self.change(record.id, |list| {
            if list.get(record.id).is_some() {
                // Drawn by another replica at the same moment.
                return Err(KeyProblem::Conflict(
                    "the id that was drawn is taken: try again".to_owned(),
                ));
            }
            list.push(record.clone());
            Ok(())
        })
        .await
    }

    /// Changes the list of this key alone, and takes it into use. Redis is not changed where `change` fails;
    /// it is called again where another change came between.
    pub(super) async fn change<T>(
        &self,
        id: KeyId,
        mut change: impl FnMut(&mut KeyList) -> Result<T, KeyProblem>,
    ) -> Result<T, KeyProblem> {
        let failed = |error| problem(id, error);
        let mut writer = self.keys.writer().await.map_err(failed)?;
        for _ in 0..ATTEMPTS_MAX {
            let entry = writer.read(id.as_str()).await.map_err(failed)?;
            let mut list = list_of(id, &entry)?;
            let outcome = change(&mut list)?;
            let record = list.get(id).ok_or_else(|| change::no_key(id))?;
            let line = record.to_line();
            let has_line = |keys: &KeySnapshot| keys.get(id.as_str()).is_some_and(|it| *it == line);
            if entry.value.as_ref().is_some_and(|value| *value == line) {
                self.take(record, has_line).await;
                return Ok(outcome);
            }
            match writer.replace(&entry, line.as_bytes()).await {
                Ok(DirectoryWrite::Changed) => {}
                Ok(DirectoryWrite::Made(version)) => {
                    self.take(record, |keys| keys.version() >= version).await;
                    return Ok(outcome);
                }
                // It is not lost with its answer, if it is there.
                Err(DirectoryError::Unanswered) if self.keys.until_taken(has_line).await => {
                    return Ok(outcome);
                }
                Err(error) => return Err(problem(id, error)),
            }
        }
        Err(KeyProblem::Unavailable(format!(
            "other changes of the key {id} came between, {ATTEMPTS_MAX} times: nothing was changed; try again"
        )))
    }

    /// Waits until a key that was changed in Redis is in use as it is there. Where it is not heard of, since the
    /// connection on which Redis is read broke, it is taken by itself.
    async fn take(&self, record: &KeyRecord, is_taken: impl Fn(&KeySnapshot) -> bool) {
        if !self.keys.until_taken(is_taken).await {
            self.control.take_key(KeyOrigin::Redis, record.clone());
        }
    }
}

fn check_length(record: &KeyRecord) -> Result<(), KeyProblem> {
    let (length, most) =
        (record.to_line().len(), DirectoryBounds::default().value_bytes_max - GROWTH_BYTES_MAX);
    if length <= most {
        return Ok(());
    }
    Err(KeyProblem::Wrong(format!(
        "rights: the key takes {length} bytes with them, and at most {most} in Redis: put them into its tenant"
    )))
}

/// The key as it is in Redis, if it is there.
fn list_of(id: KeyId, entry: &DirectoryEntry) -> Result<KeyList, KeyProblem> {
    let mut list = KeyList::default();
    if let Some(value) = &entry.value {
        let text = std::str::from_utf8(value).map_err(|_| "it is no text".to_owned());
        let record = text.and_then(KeyRecord::parse).and_then(|record| match record.id == id {
            true => Ok(record),
            false => Err("its value is a key of another id".to_owned()),
        });
        list.push(record.map_err(|problem| {
            KeyProblem::System(format!(
                "the key {id} cannot be read in Redis, so it is left as it is: {problem}"
            ))
        })?);
    }
    Ok(list)
}

fn problem(id: KeyId, error: DirectoryError) -> KeyProblem {
    match error {
        DirectoryError::Away => KeyProblem::Unavailable(
            "Redis cannot be reached, or is too slow: nothing was changed; try again later".to_owned(),
        ),
        DirectoryError::Unanswered => KeyProblem::Unavailable(format!(
            "Redis did not answer in time, and may have changed the key {id}: look at it (GET /keys/{id}) before you try again"
        )),
        DirectoryError::Lost => KeyProblem::Unavailable(
            "Redis has lost the keys, and those in use are from before: nothing was changed; restore the data of Redis"
                .to_owned(),
        ),
        DirectoryError::Refused(why) => KeyProblem::Unavailable(format!(
            "Redis refuses the change, because {why}: nothing was changed"
        )),
        DirectoryError::Full => KeyProblem::Conflict(format!(
            "there are {} keys in Redis, which is the most: nothing was changed",
            DirectoryBounds::default().entries_max
        )),
        DirectoryError::TooLarge => KeyProblem::Wrong(format!(
            "the key {id} is too large for Redis: nothing was changed; make its rights shorter"
        )),
    }
}

#[cfg(test)]
mod tests {
    use wellhead_access::{Pepper, RightsSettings, UnixSeconds};

    use super::*;

    fn record(tenant: &str) -> KeyRecord {
        let id = "7c9xk2ma".parse().unwrap();
        KeyRecord::new(id, Pepper::well_known().hash("first"), tenant)
    }

    #[track_caller]
    fn check(error: DirectoryError, status: u16, words: &str) {
        let problem = problem("7c9xk2ma".parse().unwrap(), error);
        assert_eq!((problem.status(), &*problem.to_string()), (status, words));
    }

    #[test]
    fn what_redis_does_is_told() {
        let nothing = "nothing was changed";
        check(
            DirectoryError::Away,
            503,
            &format!("Redis cannot be reached, or is too slow: {nothing}; try again later"),
        );
        check(
            DirectoryError::Unanswered,
            503,
            "Redis did not answer in time, and may have changed the key 7c9xk2ma: look at it (GET /keys/7c9xk2ma) before you try again",
        );
        check(
            DirectoryError::Lost,
            503,
            &format!(
                "Redis has lost the keys, and those in use are from before: {nothing}; restore the data of Redis"
            ),
        );
        check(
            DirectoryError::Refused("its memory is full"),
            503,
            &format!("Redis refuses the change, because its memory is full: {nothing}"),
        );
        check(
            DirectoryError::Full,
            409,
            &format!("there are 100000 keys in Redis, which is the most: {nothing}"),
        );
        check(
            DirectoryError::TooLarge,
            400,
            &format!("the key 7c9xk2ma is too large for Redis: {nothing}; make its rights shorter"),
        );
    }

    /// A key that may be added has room for its rotation and its end.
    #[test]
    fn a_key_can_always_be_revoked() {
        let mut record = record("acme");
        let before = record.to_line().len();
        record.rotate(Pepper::well_known().hash("next"), UnixSeconds(u64::MAX));
        record.revoked_at = Some(UnixSeconds(u64::MAX));
        assert!(record.to_line().len() - before <= GROWTH_BYTES_MAX);
    }

    #[test]
    fn rights_may_be_too_long() {
        assert_eq!(check_length(&record("acme")), Ok(()));
        let contracts = vec!["0x00000000000000000000000000000000000000aa".to_owned(); 90];
        let rights = RightsSettings { contracts: Some(contracts), ..RightsSettings::default() };
        let long = KeyRecord { rights, ..record("acme") };
        let problem = check_length(&long).unwrap_err();
        assert_eq!(
            (problem.status(), &*problem.to_string()),
            (
                400,
                &*format!(
                    "rights: the key takes {} bytes with them, and at most 3840 in Redis: put them into its tenant",
                    long.to_line().len()
                )
            )
        );
    }
}

#[cfg(test)]
mod with_redis;
