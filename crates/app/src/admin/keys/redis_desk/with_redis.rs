//! Two replicas that change one key in a real Redis.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::{SmallRng, StdRng};
use tokio::task::JoinSet;
use wellhead_access::{Pepper, UnixSeconds};
use wellhead_kit::RedisServer;

use super::*;
use crate::access::{directory, plan};
use crate::config::{self, Settings};
use crate::key::{KeyRules, ROTATION_OVERLAP};

struct RedisScene {
    redis: RedisServer,
    desks: [RedisDesk; 2],
    rules: KeyRules,
    _followers: JoinSet<()>,
}

fn settings(redis: &RedisServer) -> Settings {
    config::sound(&format!(
        "shared: {{ redis: \"{}\" }}\naccess: {{ keys: {{ redis: true }} }}\ntenants: {{ acme: {{}} }}\n\
         chains: {{ main: {{ id: 1, upstreams: [{{ url: \"http://a\" }}] }} }}",
        redis.url()
    ))
}

/// Two replicas that have read an empty Redis.
async fn scene() -> RedisScene {
    let redis = RedisServer::valkey();
    let settings = settings(&redis);
    let (store, mut followers) = (settings.shared.as_ref().expect("set"), JoinSet::new());
    let mut desk = |seed| {
        let planned = plan(&settings, None, wellhead_dispatch::now()).unwrap().expect("keys");
        let keys = Arc::<RedisKeys>::default();
        keys.open(store, SmallRng::seed_from_u64(seed)).expect("a Redis");
        let (control, followed) = (Arc::clone(&planned.control), Arc::clone(&keys));
        followers.spawn(directory::follow(control, followed, Duration::from_secs(60)));
        RedisDesk::new(keys, &planned.control)
    };
    let desks = [desk(1), desk(2)];
    for desk in &desks {
        while !desk.keys.until_taken(|_| true).await {}
    }
    let keys = settings.access.keys.as_ref().expect("set");
    let rules = super::super::rules_of(&settings, keys, &desks[0].control);
    RedisScene { redis, desks, rules, _followers: followers }
}

fn record(id: &str) -> KeyRecord {
    KeyRecord::new(id.parse().unwrap(), Pepper::well_known().hash("first"), "acme")
}

impl RedisDesk {
    fn in_use(&self, id: KeyId) -> Option<KeyRecord> {
        let records = self.control.records(|record| record.id == id);
        records.into_iter().next().map(|(_, record)| record)
    }
}

/// Writes an entry at once, as another replica does that nothing is waited for.
fn write_entry(redis: &RedisServer, record: &KeyRecord) {
    let (id, line) = (record.id, record.to_line());
    redis.obey(&format!("HSET wh:{{wellhead}}:keys {id} '{line}'"));
}

#[tokio::test]
async fn a_change_is_in_use_when_it_is_done() {
    let RedisScene { desks: [one, other], rules, .. } = &scene().await;
    let first = record("7c9xk2ma");
    let id = first.id;
    one.add(&first).await.unwrap();
    assert_eq!(one.in_use(id), Some(first.clone()));
    let problem = other.add(&first).await.unwrap_err();
    assert_eq!(problem.to_string(), "the id that was drawn is taken: try again");
    let mut rng = StdRng::seed_from_u64(7);
    let rotate =
        |list: &mut KeyList| change::rotate(list, id, ROTATION_OVERLAP, rules, 50, &mut rng);
    let rotated = other.change(id, rotate).await.unwrap().record;
    assert_eq!(other.in_use(id), Some(rotated.clone()));
    assert!(rotated.previous.is_some_and(|previous| previous.hash == first.hash));
    for now in [100, 200] {
        let ended = one.change(id, |list| change::revoke(list, id, now)).await.unwrap();
        assert_eq!(ended, KeyRecord { revoked_at: Some(UnixSeconds(100)), ..rotated.clone() });
        assert_eq!(one.in_use(id), Some(ended));
    }
    let unknown = "00000001".parse().unwrap();
    let problem = one.change(unknown, |list| change::revoke(list, unknown, 1)).await.unwrap_err();
    assert_eq!(problem, KeyProblem::NotFound("there is no key 00000001".to_owned()));
}

/// The revocation comes between what a rotation reads and what it writes: the key stays revoked.
#[tokio::test]
async fn a_rotation_does_not_undo_a_revocation() {
    let RedisScene { redis, desks: [one, _], rules, .. } = &scene().await;
    let first = record("7c9xk2ma");
    let id = first.id;
    one.add(&first).await.unwrap();
    let (mut rng, mut attempts) = (StdRng::seed_from_u64(7), 0);
    let rotate = |list: &mut KeyList| {
        attempts += 1;
        write_entry(redis, &KeyRecord { revoked_at: Some(UnixSeconds(9)), ..first.clone() });
        change::rotate(list, id, ROTATION_OVERLAP, rules, 50, &mut rng)
    };
    let problem = one.change(id, rotate).await.unwrap_err();
    assert_eq!(problem, change::revoked(id));
    assert_eq!(attempts, 2);
}

/// A rotation comes between what a revocation reads and what it writes: the key is revoked with its new secret.
#[tokio::test]
async fn a_revocation_does_not_undo_a_rotation() {
    let RedisScene { redis, desks: [one, _], .. } = &scene().await;
    let first = record("7c9xk2ma");
    let id = first.id;
    one.add(&first).await.unwrap();
    let mut rotated = first.clone();
    rotated.rotate(Pepper::well_known().hash("second"), UnixSeconds(99));
    let revoke = |list: &mut KeyList| {
        write_entry(redis, &rotated);
        change::revoke(list, id, 9)
    };
    let ended = one.change(id, revoke).await.unwrap();
    assert_eq!(ended, KeyRecord { revoked_at: Some(UnixSeconds(9)), ..rotated.clone() });
    assert_eq!(one.in_use(id), Some(ended));
}

#[tokio::test]
async fn a_key_that_others_change_all_the_time_is_given_up() {
    let RedisScene { redis, desks: [one, _], .. } = &scene().await;
    let first = record("7c9xk2ma");
    let id = first.id;
    one.add(&first).await.unwrap();
    let mut attempts = 0;
    let revoke = |list: &mut KeyList| {
        attempts += 1;
        let note = Some(format!("note {attempts}"));
        write_entry(redis, &KeyRecord { note, ..first.clone() });
        change::revoke(list, id, 9)
    };
    let problem = one.change(id, revoke).await.unwrap_err();
    assert_eq!(
        (problem.status(), &*problem.to_string()),
        (
            503,
            "other changes of the key 7c9xk2ma came between, 8 times: nothing was changed; try again"
        )
    );
    assert_eq!(attempts, ATTEMPTS_MAX);
    assert_eq!(one.in_use(id), Some(first));
}

/// What cannot be read is not replaced by something else.
#[tokio::test]
async fn an_entry_that_cannot_be_read_is_left_as_it_is() {
    let RedisScene { redis, desks: [one, _], .. } = &scene().await;
    redis.obey("HSET wh:{wellhead}:keys 7c9xk2ma '{}'");
    let id = "7c9xk2ma".parse().unwrap();
    let problem = one.change(id, |list| change::revoke(list, id, 9)).await.unwrap_err();
    let words = problem.to_string();
    let begin =
        "the key 7c9xk2ma cannot be read in Redis, so it is left as it is: missing field `id`";
    assert!(problem.status() == 500 && words.starts_with(begin), "{words}");
}
