//! The state file over restarts, of two processes, and damaged.

use wellhead_access::{
    EndedKey, KeyRecord, MeterBook, Pepper, Quota, QuotaPlan, QuotaSubject, SubjectKind,
    UnixSeconds,
};
use wellhead_front::KeyOrigin;
use wellhead_limit::Caps;
use wellhead_telemetry::clock;

use super::*;
use crate::assemble::{Assembly, Recorders};
use crate::config;
use wellhead_dispatch::now;

const UPSTREAMS: &str = r#"
      - { id: a, url: "http://a", budget: { credits_per_month: 1000 } }
      - { id: b, url: "http://b", budget: { credits_per_day: 100 } }
      - { id: free, url: "http://c" }
"#;

fn proxy() -> Arc<Proxy> {
    proxy_with(UPSTREAMS)
}

fn proxy_with(upstreams: &str) -> Arc<Proxy> {
    let source = format!("chains:\n  ethereum:\n    id: 1\n    upstreams:{upstreams}");
    let settings = config::sound(&source);
    Assembly::new(&Arc::new(settings), Recorders::default(), now()).expect("parts").proxy
}

/// Makes so many calls at the upstream at `place`.
fn spend(proxy: &Proxy, place: usize, calls: usize) {
    let (_, upstream) = upstreams(proxy).nth(place).expect("an upstream");
    let row = wellhead_eth::MethodTable::standard().row("eth_call");
    for _ in 0..calls {
        drop(upstream.begin_call(row, now()));
    }
}

/// Credits of the day and the month, of each.
fn spent(proxy: &Proxy) -> Vec<(Option<u64>, Option<u64>)> {
    let of = |(_, upstream): (&str, &Arc<Upstream>)| {
        let spending = upstream.spending(now());
        (spending.day, spending.month)
    };
    upstreams(proxy).map(of).collect()
}

#[tokio::test]
async fn what_was_spent_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let before = proxy();
    let state = State::restore(&path, &before.replaceable(), None, now());
    spend(&before, 0, 7);
    spend(&before, 1, 3);
    spend(&before, 2, 5);
    Arc::clone(&state).end().await;
    assert_eq!(state.writes(), (1, 0));
    let after = proxy();
    let state = State::restore(&path, &after.replaceable(), None, now());
    assert_eq!(spent(&after), [(Some(7), Some(7)), (Some(3), Some(3)), (None, None)]);
    spend(&after, 0, 1);
    state.end().await;
    let last = proxy();
    State::restore(&path, &last.replaceable(), None, now());
    assert_eq!(spent(&last)[0], (Some(8), Some(8)));
    let left = fs::read_dir(folder.path()).expect("a folder");
    let mut left: Vec<_> = left.map(|it| it.expect("an entry").file_name()).collect();
    left.sort();
    assert_eq!(left, ["state", "state.lock"], "nothing else is left beside it");
}

#[tokio::test]
async fn what_callers_spent_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let acme: Arc<str> = "acme".into();
    let meter = |book: &MeterBook| {
        let caps = Caps { day: Some(100), month: None };
        let plan = QuotaPlan::new(Quota { caps, ..Quota::default() });
        book.named(&QuotaSubject::Tenant(Arc::clone(&acme)), &acme, &Arc::new(plan))
    };
    let today = (clock::unix_seconds() / 86_400) as u32;
    let spent = |book: &MeterBook| meter(book).ledger().in_month(today);
    let controls = [(); 3].map(|()| control());
    let restore = |callers: &Arc<CallerControl>| {
        State::restore(&path, &proxy().replaceable(), Some(Arc::clone(callers)), now())
    };
    let books = controls.each_ref().map(|it| it.book());
    let state = restore(&controls[0]);
    meter(books[0]).ledger().spend(7, today);
    state.end().await;
    let state = restore(&controls[1]);
    assert_eq!(spent(books[1]), 7);
    meter(books[1]).ledger().spend(2, today);
    state.end().await;
    // A process that tells no callers apart leaves them in the file.
    let state = State::restore(&path, &proxy().replaceable(), None, now());
    state.end().await;
    restore(&controls[2]);
    assert_eq!(spent(books[2]), 9);
}

fn control() -> Arc<CallerControl> {
    let source = "access: { keys: { file: keys.jsonl } }\nchains: { main: { id: 1, upstreams: [{ url: 'http://a' }] } }";
    let settings = config::sound(source);
    crate::access::plan(&settings, None, now()).expect("fits").expect("callers").control
}

#[tokio::test]
async fn a_key_that_was_revoked_is_not_valid_after_a_restart_with_an_old_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let record = |id: &str| {
        let hash = Pepper::well_known().hash(id);
        KeyRecord::new(id.parse().expect("an id"), hash, "acme")
    };
    let backup = vec![record("aaaaaaaa"), record("bbbbbbbb")];
    let mut newer = backup.clone();
    newer[0].revoked_at = Some(UnixSeconds(9));
    let restore = |control: &Arc<CallerControl>| {
        State::restore(&path, &proxy().replaceable(), Some(Arc::clone(control)), now())
    };
    let valid = |control: &CallerControl| {
        let records = control.records(|record| record.revoked_at.is_none());
        records.iter().map(|(_, record)| record.id.to_string()).collect::<Vec<_>>()
    };
    let (first, second, third) = (control(), control(), control());
    let state = restore(&first);
    let _ = first.take_keys(KeyOrigin::File, backup.clone());
    let _ = first.take_keys(KeyOrigin::File, newer);
    // It takes over when the first has ended, and has the old copy in use by then.
    let waiting = restore(&second);
    let _ = second.take_keys(KeyOrigin::File, backup.clone());
    assert_eq!(valid(&second), ["aaaaaaaa", "bbbbbbbb"], "not written yet");
    state.end().await;
    waiting.end().await;
    assert_eq!(valid(&second), ["bbbbbbbb"]);
    // One that tells no callers apart leaves them in the file.
    State::restore(&path, &proxy().replaceable(), None, now()).end().await;
    let state = restore(&third);
    let _ = third.take_keys(KeyOrigin::File, backup);
    assert_eq!(valid(&third), ["bbbbbbbb"]);
    state.end().await;
}

#[test]
fn a_file_of_the_version_without_filters_is_read() {
    let row = r#"{"chain":"ethereum","upstream":"a","day":1,"day_credits":2,"month":3,"month_credits":4}"#;
    let body = format!("[{row}]");
    let text = format!("{MAGIC_OF_SPENDING} {}\n{body}", checksum(body.as_bytes()));
    let content = parse(text.as_bytes()).expect("read");
    let pages = Pages { day: 1, day_credits: 2, month: 3, month_credits: 4 };
    assert_eq!((content.spending[0].pages, content.filters), (pages, Vec::new()));
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_not_written_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let newer = b"wellhead state 3 00000000\n{}";
    fs::write(&path, newer).expect("written");
    let (first, second) = (proxy(), proxy());
    let state = State::restore(&path, &first.replaceable(), None, now());
    spend(&first, 0, 5);
    // One that does not hold the lock moves nothing.
    fs::write(&path, "of the first").expect("written");
    State::restore(&path, &second.replaceable(), None, now());
    assert_eq!(fs::read(&path).expect("there"), b"of the first");
    state.end().await;
    assert_eq!(read(&path).expect("good").spending[0].pages.month_credits, 5);
    assert_eq!(fs::read(beside(&path, ".unreadable")).expect("kept"), newer);
}

#[tokio::test]
async fn of_two_processes_one_writes_and_the_other_adds_its_own_when_that_one_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let written = |path: &Path| {
        let content = read(path).expect("written");
        content.spending.iter().map(|row| row.pages.month_credits).collect::<Vec<_>>()
    };
    let (old, new) = (proxy(), proxy());
    let first = State::restore(&path, &old.replaceable(), None, now());
    spend(&old, 0, 5);
    let wrote = first.write_aside(first.content(false)).await;
    assert!(matches!(wrote, Some(Turnout::Written)), "{wrote:?}");
    let second = State::restore(&path, &new.replaceable(), None, now());
    assert_eq!(spent(&new)[0], (Some(5), Some(5)), "it knows what was spent");
    spend(&new, 0, 2);
    spend(&old, 0, 10);
    let turned_away = second.write_aside(second.content(false)).await;
    assert!(matches!(turned_away, Some(Turnout::Taken)), "{turned_away:?}");
    assert_eq!(written(&path), [5, 0], "nothing was written over");
    Arc::clone(&first).end().await;
    assert_eq!(written(&path), [15, 0]);
    Arc::clone(&second).end().await;
    assert_eq!(written(&path), [17, 0], "what both spent");
    assert_eq!((spent(&new)[0], second.writes()), ((Some(17), Some(17)), (1, 0)));
}

#[tokio::test]
async fn what_a_removed_upstream_spent_is_added_when_the_file_is_free() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let (first_proxy, old) = (proxy(), proxy());
    let first = State::restore(&path, &first_proxy.replaceable(), None, now());
    spend(&first_proxy, 0, 5);
    assert!(matches!(first.write_aside(first.content(false)).await, Some(Turnout::Written)));
    let current = old.replaceable();
    let second = State::restore(&path, &current, None, now());
    spend(&old, 0, 2);
    let new = proxy_with("\n      - { id: free, url: \"http://c\" }\n");
    current.store(Arc::clone(&new));
    second.note_change(&old, now());
    spend(&first_proxy, 0, 10);
    first.end().await;
    second.end().await;
    let content = read(&path).expect("written");
    let row = content.spending.iter().find(|row| row.upstream == "a").expect("kept");
    assert_eq!(row.pages.month_credits, 17, "what both spent");
}

#[test]
fn the_default_path_is_that_of_systemd_or_of_the_user() {
    let check = |environment: &[(&str, &str)], expected: Option<&str>| {
        let of = |name: &str| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        assert_eq!(default_path(&of), expected.map(PathBuf::from), "{environment:?}");
    };
    let (home, xdg) = (("HOME", "/users/ann"), ("XDG_STATE_HOME", "/users/ann/state"));
    check(&[], None);
    check(&[home], Some("/users/ann/.local/state/wellhead/wellhead.state"));
    check(&[home, xdg], Some("/users/ann/state/wellhead/wellhead.state"));
    let systemd = ("STATE_DIRECTORY", "/var/lib/wellhead:/var/lib/other");
    check(&[home, xdg, systemd], Some("/var/lib/wellhead/wellhead.state"));
    check(&[home, ("XDG_STATE_HOME", "")], Some("/users/ann/.local/state/wellhead/wellhead.state"));
    check(&[("HOME", "here")], None);
}

#[test]
fn a_default_folder_is_made_where_that_is_possible() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state/wellhead").join(DEFAULT_NAME);
    prepare(&path).expect("made");
    assert!(path.parent().is_some_and(Path::is_dir));
    // Below what is no folder.
    fs::write(&path, "").expect("written");
    assert!(prepare(&path.join("deeper").join(DEFAULT_NAME)).is_err());
}

#[tokio::test]
async fn an_upstream_that_is_gone_for_a_while_is_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let pages = Pages { day: 1, day_credits: 2, month: 3, month_credits: 4 };
    let gone = SpendingRow { chain: "base".to_owned(), upstream: "z".to_owned(), pages };
    let content = StateContent { spending: vec![gone.clone()], ..StateContent::default() };
    write(&path, &content).expect("written");
    State::restore(&path, &proxy().replaceable(), None, now()).end().await;
    assert!(read(&path).expect("good").spending.contains(&gone));
}

#[test]
fn every_damage_is_noticed_and_none_stops_us() {
    let pages = Pages { day: 20_777, day_credits: 5, month: 682, month_credits: 9 };
    let row = SpendingRow { chain: "ethereum".to_owned(), upstream: "a".to_owned(), pages };
    let filters = vec![json!({ "id": "0x1" })];
    let filters = vec![FilterRow { chain: "ethereum".to_owned(), filters }];
    let callers = vec![CallerRow { kind: SubjectKind::Tenant, name: "acme".into(), pages }];
    let key = EndedKey {
        id: "7c9xk2ma".parse().expect("an id"),
        revoked_at: Some(UnixSeconds(1_795_000_000)),
        replaced: vec![serde_json::from_str("\"00ff00ff00ff00ff\"").expect("a mark")],
    };
    let never_revoked = EndedKey { revoked_at: None, ..key.clone() };
    let ended = vec![
        EndedRow { source: KeyOrigin::File, key },
        EndedRow { source: KeyOrigin::Redis, key: never_revoked },
    ];
    let content = StateContent { spending: vec![row], callers, ended, filters };
    let good = render(&content).expect("plain data");
    assert_eq!(parse(&good).expect("good"), content);
    for cut in 0..good.len() {
        assert!(parse(&good[..cut]).is_err(), "cut at {cut}");
    }
    for place in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            // Only blanks before the checksum may differ and mean the same.
            assert!(
                parse(&bad).is_err() || bad[place].is_ascii_whitespace(),
                "bit {bit} of byte {place}"
            );
        }
    }
    let sealed = |body: &str| format!("{MAGIC} {}\n{body}", checksum(body.as_bytes()));
    for body in ["", "{}", "[1]", r#"[{"chain":"a"}]"#, "[\u{0}]", r#"{"spending":[]}"#] {
        assert!(parse(sealed(body).as_bytes()).is_err(), "{body}");
    }
    for callers in ["1", "[1]", r#"[{"kind":"address","name":"a"}]"#] {
        let body = format!(r#"{{"spending":[],"callers":{callers},"filters":[]}}"#);
        assert!(parse(sealed(&body).as_bytes()).is_err(), "{body}");
    }
    for keys in [
        "1",
        "[1]",
        r#"[{"source":"config","id":"7c9xk2ma","replaced":[]}]"#,
        r#"[{"source":"file","id":"7c9xk2m","replaced":[]}]"#,
        r#"[{"source":"file","id":"7c9xk2ma","replaced":["x"]}]"#,
        r#"[{"source":"file","id":"7c9xk2ma","revoked_at":"now","replaced":[]}]"#,
    ] {
        let body = format!(r#"{{"spending":[],"keys":{keys},"filters":[]}}"#);
        assert!(parse(sealed(&body).as_bytes()).is_err(), "{body}");
    }
    for filters in ["1", "[1]", r#"[{"chain":"a"}]"#, r#"[{"filters":[]}]"#] {
        let body = format!(r#"{{"spending":[],"filters":{filters}}}"#);
        assert!(parse(sealed(&body).as_bytes()).is_err(), "{body}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    for bytes in [&b""[..], b"\xff\xff", b"wellhead state 3 00000000\n[]", &good[..40]] {
        fs::write(&path, bytes).expect("written");
        let proxy = proxy();
        State::restore(&path, &proxy.replaceable(), None, now());
        assert_eq!(spent(&proxy)[0], (Some(0), Some(0)));
    }
    // The last one may be of use to another version.
    let kept = fs::read(beside(&path, ".unreadable")).expect("kept");
    assert_eq!(kept, good[..40]);
    // What is no file at all.
    State::restore(folder.path(), &proxy().replaceable(), None, now());
}

#[tokio::test]
async fn a_path_that_cannot_be_written_is_counted_and_harms_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let state =
        State::restore(&folder.path().join("no/such/folder"), &proxy().replaceable(), None, now());
    for _ in 0..2 {
        Arc::clone(&state).end().await;
    }
    assert_eq!(state.writes(), (0, 2));
}
