//! Keys over the admin listener, on a file, and as far as it goes without a Redis.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wellhead_access::{AccessTable, ApiKey, KeyReturn, Pepper, UnixSeconds};

use super::*;
use crate::access::plan;
use crate::config;

const NO_PLACE: &str =
    "there is no place to write keys to: set `access.keys.file`, or `access.keys.redis`";
const AWAY: &str = "Redis cannot be reached, or is too slow: nothing was changed; try again later";

struct Bench {
    desk: Arc<KeyDesk>,
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
}

fn bench(keys: &str) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let keys = keys.replace("FILE", &path.display().to_string());
    let shared = if keys.contains("redis") { "shared: { redis: \"redis://a\" }\n" } else { "" };
    let yaml = format!(
        "{shared}chains: {{ ethereum: {{ id: 1, upstreams: [{{ url: \"http://a\" }}] }} }}\n\
         tenants: {{ acme: {{}} }}\naccess: {{ keys: {{ {keys} }} }}"
    );
    let settings = config::sound(&yaml);
    let planned =
        plan(&settings, None, wellhead_dispatch::now()).unwrap().expect("keys are set up");
    let KeyAdmin(desk) = KeyAdmin::new(&settings, Some(planned.control));
    Bench { desk: desk.expect("keys are set up"), _folder: folder, path }
}

impl Bench {
    /// The status and the body of an answer.
    fn act(&self, action: &str, subject: Option<&str>, query: &str, body: &str) -> (u16, Value) {
        let body = body.replace('\'', "\"");
        let now = clock::unix_seconds();
        let answer = match self.desk.act(action, subject, query, body.as_bytes(), now) {
            Ok(KeyStep::Done(answer)) => Ok(answer),
            Ok(KeyStep::InRedis(change)) => {
                let done = pin!(self.desk.change_in_redis(change, now));
                let Poll::Ready(answer) = done.poll(&mut Context::from_waker(Waker::noop())) else {
                    panic!("Redis is not waited for before the control loops start");
                };
                answer
            }
            Err(problem) => Err(problem),
        };
        match answer {
            Ok(answer) => (answer.status, answer.body),
            Err(problem) => (problem.status(), json!({ "error": problem.to_string() })),
        }
    }

    #[track_caller]
    fn check(&self, action: &str, subject: &str, body: &str, want: (u16, &str)) {
        let (status, answer) = self.act(action, Some(subject), "", body);
        assert_eq!((status, answer["error"].as_str().unwrap_or_default()), want);
    }

    fn table(&self) -> Arc<AccessTable> {
        self.desk.control.table()
    }
}

#[test]
fn a_change_is_in_the_file_and_in_use_when_it_is_answered() {
    let bench = bench("file: \"FILE\", env: test");
    let (status, made) = bench.act(
        "key.create",
        None,
        "",
        "{'tenant':'acme','note':'n','expires':'90d','rights':{'methods':{'deny':['debug_*']}}}",
    );
    assert_eq!(status, 201, "{made}");
    let key = made["key"].as_str().unwrap().to_owned();
    let id = made["id"].as_str().unwrap().to_owned();
    assert!(key.starts_with(&format!("wh_test_{id}_")));
    assert_eq!(bench.table().keys(), 1);
    assert!(bench.table().grant_of(id.parse().unwrap()).is_some());
    assert!(std::fs::read_to_string(&bench.path).unwrap().contains(&id));

    let (status, rotated) = bench.act("key.rotate", Some(&id), "", "{'overlap':'1h'}");
    assert_eq!(status, 200, "{rotated}");
    let next = rotated["key"].as_str().unwrap();
    assert!(next != key && ApiKey::parse(next).unwrap().id().as_str() == id);
    assert!(rotated["previous"]["valid_until"].is_u64());

    let (status, revoked) = bench.act("key.revoke", Some(&id), "", "");
    assert_eq!((status, revoked["state"].as_str()), (200, Some("revoked")));
    let (_, shown) = bench.act("key.show", Some(&id), "", "");
    let (_, list) = bench.act("key.list", None, "", "");
    assert_eq!(list["keys"][0], shown);
    assert_eq!((shown["source"].as_str(), shown["note"].as_str()), (Some("file"), Some("n")));
    let file = std::fs::read_to_string(&bench.path).unwrap();
    for page in [revoked.to_string(), shown.to_string(), list.to_string(), file] {
        assert!(!page.contains(&key[17..]) && !page.contains(&next[17..]), "{page}");
    }
    let conflict = format!("the key {id} is revoked: make a new one");
    bench.check("key.rotate", &id, "", (409, &conflict));
}

/// A backup of the file is put back: what was revoked since stays revoked, and is revoked in the file again.
#[test]
fn a_file_that_is_rolled_back_revives_no_key() {
    let bench = bench("file: \"FILE\"");
    let id = bench.act("key.create", None, "", "{'tenant':'acme'}").1["id"].clone();
    let id = id.as_str().unwrap();
    let backup = std::fs::read_to_string(&bench.path).unwrap();
    bench.act("key.revoke", Some(id), "", "");
    std::fs::write(&bench.path, backup).unwrap();
    let control = &bench.desk.control;
    let take = || {
        let records = crate::config::read_keys(&bench.path).unwrap();
        assert_eq!(control.take_keys(KeyOrigin::File, records), [""; 0]);
    };
    let state = || bench.act("key.show", Some(id), "", "").1["state"].clone();
    let returned = || KeyReturn::ALL.map(|why| control.returned().of(why));
    take();
    assert_eq!((state(), returned()), (json!("revoked"), [1, 0, 0]));
    take();
    assert_eq!((state(), returned()), (json!("revoked"), [1, 0, 0]), "told once");
    bench.check("key.rotate", id, "", (409, &format!("the key {id} is revoked: make a new one")));
    assert!(!std::fs::read_to_string(&bench.path).unwrap().contains("revoked_at"));
    assert_eq!(bench.act("key.revoke", Some(id), "", "").0, 200);
    assert!(std::fs::read_to_string(&bench.path).unwrap().contains("revoked_at"));
    take();
    assert_eq!((state(), returned()), (json!("revoked"), [1, 0, 0]));
}

#[test]
fn what_cannot_be_is_told() {
    let bench = bench("file: \"FILE\"");
    bench.check(
        "key.create",
        "",
        "{'tenant':'acne'}",
        (400, "tenant: there is no tenant `acne`: there are acme"),
    );
    bench.check(
        "key.create",
        "",
        "",
        (400, "the body is not JSON: EOF while parsing a value at line 1 column 0"),
    );
    bench.check("key.show", "00000000", "", (404, "there is no key 00000000"));
    bench.check("key.revoke", "00000000", "", (404, "there is no key 00000000"));
    bench.check(
        "key.rotate",
        "00000000",
        "{'overlap':'1'}",
        (400, "`overlap`: expected a time such as `90d`, `12h` or `1h30m`"),
    );
    let key = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey";
    let (status, answer) = bench.act("key.revoke", Some(key), "", "");
    assert!(status == 400 && !answer.to_string().contains("0123456789"), "{answer}");
    let (status, answer) = bench.act("key.list", None, "limit=0", "");
    assert_eq!(
        (status, answer["error"].as_str()),
        (400, Some("`limit` is a number from 1 to 10000"))
    );
    assert!(!bench.path.exists(), "nothing was written");
}

#[test]
fn keys_of_the_config_are_shown_and_changed_there() {
    let hash = "00".repeat(32);
    let bench = bench(&format!("list: [{{ id: \"00000001\", hash: \"{hash}\", tenant: acme }}]"));
    let (_, list) = bench.act("key.list", None, "", "");
    assert_eq!(list["keys"][0]["source"], "config");
    bench.check(
        "key.revoke",
        "00000001",
        "",
        (409, "the key 00000001 stands in the config: change it in `access.keys.list`"),
    );
    bench.check("key.create", "", "{'tenant':'acme'}", (409, NO_PLACE));
}

#[test]
fn a_long_list_has_pages() {
    let bench = bench("file: \"FILE\"");
    let ids: Vec<_> = (0..3)
        .map(|_| bench.act("key.create", None, "", "{'tenant':'acme'}").1["id"].clone())
        .collect();
    let mut found = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let (_, page) = bench.act("key.list", None, &query, "");
        found.extend(page["keys"].as_array().unwrap().iter().map(|key| key["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("limit=2&after={next}");
    }
    let mut sorted = ids;
    sorted.sort_by_key(|id| id.as_str().unwrap().to_owned());
    assert_eq!(found, sorted);
    let (_, none) = bench.act("key.list", None, "tenant=other", "");
    assert_eq!(none["keys"], json!([]));
}

#[test]
fn without_keys_the_answer_says_what_to_set() {
    let reply = failed(&no_place());
    assert_eq!(reply.status, 409);
    assert_eq!(reply.body, json!({ "error": NO_PLACE }).to_string());
}

/// The record of a key of the tenant that there is.
fn record(id: &str) -> KeyRecord {
    KeyRecord::new(id.parse().unwrap(), Pepper::well_known().hash("x"), "acme")
}

#[test]
fn without_a_redis_that_answers_nothing_is_changed() {
    let bench = bench("redis: true");
    let known = record("00000001");
    assert_eq!(bench.desk.control.take_keys(KeyOrigin::Redis, vec![known.clone()]), [""; 0]);
    bench.check("key.create", "", "{'tenant':'acme'}", (503, AWAY));
    // It may be one that another replica has made just now.
    for id in ["00000001", "00000002"] {
        bench.check("key.revoke", id, "", (503, AWAY));
        bench.check("key.rotate", id, "", (503, AWAY));
    }
    bench.check(
        "key.create",
        "",
        "{'tenant':'acne'}",
        (400, "tenant: there is no tenant `acne`: there are acme"),
    );
    let records = bench.desk.control.records(|_| true);
    assert_eq!(records, [(KeyOrigin::Redis, known)]);
    assert_eq!(bench.act("key.show", Some("00000001"), "", "").1["source"], "redis");
}

/// New keys go to where all replicas read them; those that there are stay where they are.
#[test]
fn with_a_file_and_redis_a_key_is_changed_where_it_is() {
    let bench = bench("file: \"FILE\", redis: true");
    let ended = KeyRecord { revoked_at: Some(UnixSeconds(1)), ..record("00000003") };
    let _ = bench.desk.control.take_keys(KeyOrigin::Redis, vec![record("00000002"), ended]);
    let (in_file, unread) = (record("00000001"), record("00000004"));
    let lines = format!("{}\n{}\n", in_file.to_line(), unread.to_line());
    std::fs::write(&bench.path, &lines).unwrap();
    let _ = bench.desk.control.take_keys(KeyOrigin::File, vec![in_file]);
    bench.check("key.create", "", "{'tenant':'acme'}", (503, AWAY));
    bench.check("key.revoke", "00000002", "", (503, AWAY));
    bench.check("key.rotate", "00000003", "", (409, "the key 00000003 is revoked: make a new one"));
    bench.check("key.revoke", "00000005", "", (503, AWAY));
    assert_eq!(std::fs::read_to_string(&bench.path).unwrap(), lines);
    for id in ["00000001", "00000004"] {
        assert_eq!(bench.act("key.rotate", Some(id), "", "").0, 200);
        let (status, answer) = bench.act("key.revoke", Some(id), "", "");
        assert_eq!((status, answer["source"].as_str()), (200, Some("file")));
    }
}
