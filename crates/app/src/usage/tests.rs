//! From the table to stores that fail, hang and refuse, and to what is told of quotas.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::iter::repeat_n;
use std::net::TcpListener;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use wellhead_access::usage::{MilliCredits, UsageAmounts, UsageOutcome, UsageRecord, UsageSource};
use wellhead_access::{AccessGrant, GrantKind, Quota, QuotaPlan, QuotaSubject, Tenant};
use wellhead_kit::{ScriptedTransport, Step, status};
use wellhead_limit::Caps;
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::{Sent, TransportErrorKind};

use super::deliver::{DeliverySettings, PushBody};
use super::settings::target;
use super::*;
use crate::config::{
    Auth, Basic, ByteSize, ClickHouseTable, ReplicaName, TextLine, UsageConfig, UsageFileConfig,
    UsageFormat, UsagePushConfig, UsageWebhookConfig,
};

/// 2026-11-25 12:00:00.
const NOON: u64 = 1_795_608_000;

impl Usage {
    /// One that nothing leaves.
    fn idle() -> Arc<Self> {
        let (settings, transports) = (UsageSettings::default(), UsageTransports::default());
        Self::with_transports(&settings, Arc::new(|| 0), &transports)
    }
}

/// A store that does this, step by step, and then takes everything.
fn store(steps: impl IntoIterator<Item = Step>) -> Arc<ScriptedTransport> {
    Arc::new(ScriptedTransport::playing(steps, answer(200)))
}

fn answer(code: u16) -> Step {
    status(code, "words")
}

fn answer_to_wait(status: u16, seconds: u64) -> Step {
    let retry_after = Some(Duration::from_secs(seconds));
    Step::Status { status, body: Bytes::from_static(b"words"), retry_after }
}

/// The lines of each body, also of those that were not taken.
fn lines(store: &ScriptedTransport) -> Vec<usize> {
    let lines = |body: &Bytes| body.iter().filter(|it| **it == b'\n').count();
    store.arrivals().iter().map(|it| lines(&it.body)).collect()
}

fn url(text: &str) -> SecretUrl {
    SecretUrl::parse(text).expect("a URL")
}

fn push_config() -> UsagePushConfig {
    let (url, timeout) = (url("http://localhost/"), Duration::from_secs(10));
    UsagePushConfig { url, auth: None, clickhouse_table: None, timeout }
}

fn of_push(push: UsagePushConfig) -> UsageSettings {
    of_config(UsageConfig { push: Some(push), ..UsageConfig::default() })
}

fn of_config(config: UsageConfig) -> UsageSettings {
    UsageSettings { config, ..UsageSettings::default() }
}

fn push_settings() -> UsageSettings {
    of_push(push_config())
}

/// A clock that goes with tokio's.
fn unix_clock() -> Arc<UnixClock> {
    let began = Instant::now();
    Arc::new(move || NOON + began.elapsed().as_secs())
}

/// Usage that is pushed to `store`, under way.
fn pushing(settings: &UsageSettings, store: &Arc<ScriptedTransport>) -> Arc<Usage> {
    let transports = UsageTransports { push: Some(Arc::clone(store) as _), webhook: None };
    let usage = Usage::with_transports(settings, unix_clock(), &transports);
    tokio::spawn(Arc::clone(&usage).run());
    usage
}

/// Counts one call under each of `keys` keys.
fn record(usage: &Usage, keys: usize) {
    let tenant = Arc::new(Tenant::new("acme"));
    let chain = Arc::from("ethereum");
    for key in 0..keys {
        let grant = AccessGrant::new(GrantKind::Key, format!("k{key}"), Arc::clone(&tenant));
        let credits_in = MilliCredits::whole(1);
        let record = UsageRecord {
            grant: &grant,
            chain: &chain,
            method: "eth_call",
            source: UsageSource::Upstream,
            outcome: UsageOutcome::Answered,
            amounts: UsageAmounts { calls: 1, credits_in, ..UsageAmounts::default() },
        };
        usage.table().record(&record, usage.minute());
    }
}

fn count(usage: &Usage, outlet: &str, what: &str) -> u64 {
    let all = usage.counts().all();
    all.iter().find(|it| (it.0, it.1) == (outlet, what)).expect("a count").2
}

fn ids(body: &Bytes) -> Vec<String> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let id = |line: &[u8]| {
        let row: Value = serde_json::from_slice(line).expect("JSON");
        row["id"].as_str().expect("an id").to_owned()
    };
    lines.map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn each_minute_is_pushed_when_it_is_over() {
    let store = store([]);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 3);
    tokio::time::sleep(Duration::from_secs(61)).await;
    record(&usage, 1);
    assert_eq!(lines(&store), [0; 0], "calls of the minute may be under way");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lines(&store), [3]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(lines(&store), [3, 1], "and nothing for a minute without calls");
    assert_eq!(count(&usage, "push", "written"), 4);
    let rows: Vec<Vec<String>> = store.arrivals().iter().map(|it| ids(&it.body)).collect();
    let different: HashSet<_> = rows.iter().flatten().collect();
    assert_eq!(different.len(), 4, "each row has an id of its own");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_taken_is_sent_again_with_equal_ids() {
    let reset = Step::Fail(TransportErrorKind::Closed, Sent::Maybe);
    let wait = answer_to_wait(429, 30);
    let script = [answer(500), Step::Hang, reset, wait, answer(401), answer(307)];
    let failures = script.len();
    let store = store(script);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let got = store.arrivals();
    assert_eq!(got.len(), failures + 1);
    assert!(got.iter().all(|it| ids(&it.body) == ids(&got[0].body)), "doubles can be told");
    let gaps: Vec<f64> =
        got.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs_f64()).collect();
    // Each pause is half by chance; the second has the ten seconds of an attempt before it.
    let bounds = [(0.5, 1.1), (11.0, 12.1), (2.0, 4.1), (30.0, 30.1), (8.0, 16.1), (16.0, 32.1)];
    for (gap, (least, most)) in gaps.iter().zip(bounds) {
        assert!((least..=most).contains(gap), "{gaps:?}");
    }
    assert_eq!(count(&usage, "push", "written"), 2);
    assert_eq!(count(&usage, "push_and_webhook", "failed_attempts"), failures as u64);
    assert_eq!(count(&usage, "push", "dropped"), 0);
}

#[tokio::test(start_paused = true)]
async fn many_rows_are_several_requests() {
    let store = store([]);
    let usage = pushing(&UsageSettings { batch_rows: 2, ..push_settings() }, &store);
    record(&usage, 5);
    tokio::time::sleep(Duration::from_secs(63)).await;
    assert_eq!(lines(&store), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_halved() {
    let store = store([answer(413), answer(413)]);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 5);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(lines(&store), [5, 3, 2, 1, 2]);
    let got = store.arrivals();
    let taken: HashSet<_> = got[2..].iter().flat_map(|it| ids(&it.body)).collect();
    assert_eq!((taken.len(), count(&usage, "push", "written")), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_refused_again_and_again_holds_nothing_up_for_ever() {
    let store = store(repeat_n(answer(400), 10));
    let usage = pushing(&push_settings(), &store);
    record(&usage, 1);
    tokio::time::sleep(Duration::from_secs(70)).await;
    record(&usage, 2);
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert_eq!(lines(&store), [[1; 10].as_slice(), &[2]].concat());
    assert_eq!((count(&usage, "push", "dropped"), count(&usage, "push", "written")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_and_the_oldest_goes() {
    let store = store(repeat_n(answer(503), 16));
    let usage = pushing(&UsageSettings { backlog_rows: 5, ..push_settings() }, &store);
    let mut recorded = 0;
    for keys in [1, 2, 3, 4] {
        record(&usage, keys);
        recorded += keys as u64;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    let (written, dropped) = (count(&usage, "push", "written"), count(&usage, "push", "dropped"));
    assert_eq!((written, dropped), (5, 5), "that under way, and the newest");
    assert_eq!(written + dropped, recorded);
    let answer = usage.page("from=-7200");
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(answer["rows"][0]["calls"], recorded, "memory has all");
}

#[tokio::test(start_paused = true)]
async fn the_end_hands_out_what_is_left() {
    let store = store([answer_to_wait(503, 300)]);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 3);
    let began = Instant::now();
    usage.end(Duration::ZERO).await;
    assert_eq!(count(&usage, "push", "written"), 3);
    assert!(began.elapsed() <= Duration::from_secs(1), "there is no time for long pauses");
    assert_eq!(usage.table().rows(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_cuts_a_long_pause_short() {
    let store = store([answer_to_wait(503, 300)]);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 3);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(lines(&store), [3], "refused, and waiting");
    usage.end(Duration::ZERO).await;
    assert_eq!(lines(&store), [3, 3]);
    assert_eq!(count(&usage, "push", "written"), 3);
}

#[tokio::test(start_paused = true)]
async fn the_end_does_not_wait_for_a_store_that_hangs() {
    let store = store(repeat_n(Step::Hang, 100));
    let usage = pushing(&push_settings(), &store);
    record(&usage, 3);
    let began = Instant::now();
    usage.end(Duration::ZERO).await;
    assert_eq!(began.elapsed().as_secs(), 10, "the time to drain");
    assert_eq!(count(&usage, "push", "written"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_told_once_at_each_share() {
    let hook = store([answer(500)]);
    let (url, timeout) = (url("http://localhost/hook"), Duration::from_secs(5));
    let webhook = Some(UsageWebhookConfig { url, auth: None, timeout });
    let settings = of_config(UsageConfig { webhook, ..UsageConfig::default() });
    let transports = UsageTransports { push: None, webhook: Some(Arc::clone(&hook) as _) };
    let usage = Usage::with_transports(&settings, unix_clock(), &transports);
    let (book, acme) = (Arc::new(MeterBook::default()), Arc::from("acme"));
    usage.watch(&book);
    let caps = Caps { day: None, month: Some(10) };
    let plan = Arc::new(QuotaPlan::new(Quota { caps, ..Quota::default() }));
    let meter = book.named(&QuotaSubject::Tenant(Arc::clone(&acme)), &acme, &plan);
    tokio::spawn(Arc::clone(&usage).run());
    let mut told = Vec::new();
    for credits in [7, 1, 1, 5, 5] {
        meter.ledger().spend(credits, (NOON / 86_400) as u32);
        tokio::time::sleep(Duration::from_secs(70)).await;
        let percents = hook.arrivals().into_iter().map(|it| {
            let event: Value = serde_json::from_slice(&it.body).expect("JSON");
            assert_eq!((&event["tenant"], &event["of"]), (&"acme".into(), &"2026-11".into()));
            event["percent"].as_u64().expect("a number")
        });
        told.push(percents.collect::<Vec<_>>());
    }
    // The first attempt failed.
    let expected: [&[u64]; 5] = [&[], &[80, 80], &[80, 80], &[80, 80, 100], &[80, 80, 100]];
    assert_eq!(told, expected);
    assert_eq!(count(&usage, "webhook", "written"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_page_says_what_was_used() {
    let store = store([]);
    let usage = pushing(&push_settings(), &store);
    record(&usage, 2);
    tokio::time::sleep(Duration::from_secs(70)).await;
    let report = usage.page("by=tenant&format=csv");
    let text = "tenant,calls,credits_in,credits_out,bytes_in,bytes_out,time_us\nacme,2,2,0,0,0,0\n";
    assert_eq!((report.well, &*report.body), (true, text.as_bytes()));
    let report = usage.page("by=key&from=-120");
    let body: Value = serde_json::from_slice(&report.body).expect("JSON");
    assert_eq!(
        (body["rows"].as_array().map(Vec::len), &body["resolution"]),
        (Some(2), &"minute".into())
    );
    let report = usage.page("by=colour");
    assert!(!report.well && report.body.starts_with(b"{\"error\":"));
}

#[tokio::test]
async fn files_have_the_sums_of_what_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = Some(UsageFileConfig {
        folder: folder.path().to_owned(),
        format: UsageFormat::Csv,
        bytes: ByteSize::mib(1),
        files: 3,
    });
    let settings = of_config(UsageConfig { file, ..UsageConfig::default() });
    let usage = Usage::with_transports(&settings, Arc::new(|| NOON), &UsageTransports::default());
    record(&usage, 4);
    usage.end(Duration::ZERO).await;
    let text = std::fs::read_to_string(folder.path().join("usage-2026-11-25.csv")).expect("text");
    assert_eq!(text.lines().count(), 5);
    assert_eq!(count(&usage, "file", "written"), 4);
    assert_eq!(text.matches("2026-11-25T12:00:00Z,acme,key,k").count(), 4);
}

/// What a real server does with the next connection; `None` ends it without an answer.
type Answers = Vec<Option<&'static str>>;

/// Serves one request per connection, and returns what came: the head, and the body.
fn real_server(answers: Answers) -> (SecretUrl, std::thread::JoinHandle<Vec<(String, String)>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("bound");
    let address = listener.local_addr().expect("an address");
    let serve = move || {
        let mut got = Vec::new();
        for answer in answers {
            let (stream, _) = listener.accept().expect("a connection");
            let mut reader = BufReader::new(&stream);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            got.push((head, String::from_utf8(body).expect("text")));
            if let Some(answer) = answer {
                (&stream).write_all(answer.as_bytes()).expect("answered");
            }
        }
        got
    };
    (url(&format!("http://{address}/in?x=1")), std::thread::spawn(serve))
}

const OK: Option<&str> = Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
const BUSY: Option<&str> =
    Some("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nconnection: close\r\n\r\nbusy");

/// Pushes the rows of two keys over sockets until they are taken, and returns what the server got.
async fn pushed(push: UsagePushConfig, answers: Answers) -> Vec<(String, String)> {
    let (url, server) = real_server(answers);
    let settings = of_push(UsagePushConfig { url, ..push });
    let transport = settings.transports().expect("usable").push.expect("a client");
    let usage = Usage::idle();
    record(&usage, 2);
    let rows: Arc<[UsageRow]> = usage.table().take_minute(UsageMinute::MAX).into();
    let backlog = Arc::new(OutletBacklog::new(100));
    backlog.push(UsageParcel::Rows { range: 0..rows.len(), rows }, 2);
    let settings = settings.push_delivery().expect("settings");
    let delivery = Delivery {
        backlog,
        transport,
        settings: DeliverySettings { pause_min: Duration::from_millis(1), ..settings },
        replica: "r".into(),
        counts: Arc::default(),
        rng: SmallRng::seed_from_u64(1),
    };
    let closing = watch::Sender::new(true);
    delivery.run(closing.subscribe()).await;
    server.join().expect("served")
}

#[tokio::test]
async fn a_server_that_restarts_and_is_busy_gets_the_rows() {
    let auth = Some(Auth { basic: None, bearer: Some(Secret::new("TOKEN")) });
    let got = pushed(UsagePushConfig { auth, ..push_config() }, vec![None, BUSY, OK]).await;
    assert_eq!(got.len(), 3);
    let (head, body) = &got[2];
    assert!(got.iter().all(|(_, other)| other == body));
    assert_eq!(ids(&Bytes::from(body.clone())).len(), 2);
    assert!(head.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer TOKEN\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-ndjson\r\n"), "{head}");
}

#[tokio::test]
async fn clickhouse_gets_an_insert() {
    let basic = Basic { user: TextLine("user".to_owned()), password: Secret::new("pass") };
    let auth = Some(Auth { basic: Some(basic), bearer: None });
    let clickhouse_table = Some(ClickHouseTable("billing.usage".to_owned()));
    let push = UsagePushConfig { auth, clickhouse_table, ..push_config() };
    let got = pushed(push, vec![OK]).await;
    let (head, body) = &got[0];
    let line = "POST /in?x=1&query=INSERT%20INTO%20billing.usage%20FORMAT%20JSONEachRow\
                &async_insert=1&wait_for_async_insert=1 HTTP/1.1\r\n";
    assert!(head.starts_with(line), "{head}");
    assert!(head.contains("authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    for line in body.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        assert!(row["minute"].is_u64(), "seconds since 1970: {row}");
    }
}

#[test]
fn tables_are_names() {
    let check = |table: &str, is_good: bool| {
        let clickhouse_table = Some(ClickHouseTable(table.to_owned()));
        let target = target(&UsagePushConfig { clickhouse_table, ..push_config() });
        assert_eq!(target.is_ok(), is_good, "{table}: {target:?}");
    };
    check("usage", true);
    check("billing._usage2", true);
    for bad in ["", "a.b.c", "a.", "1a", "a b", "a;DROP TABLE b", "a)", "a&b", "ä"] {
        check(bad, false);
    }
}

#[test]
fn settings_say_how_rows_are_written() {
    let clickhouse_table = Some(ClickHouseTable("usage".to_owned()));
    let body = |push| of_push(push).push_delivery().expect("settings").body;
    assert_eq!(body(push_config()), PushBody::Jsonl);
    let clickhouse = UsagePushConfig { clickhouse_table, ..push_config() };
    assert_eq!(body(clickhouse), PushBody::ClickHouse);
}

#[test]
fn each_run_has_a_name_of_its_own() {
    let replica = Some(ReplicaName("a ".to_owned()));
    let settings = of_config(UsageConfig { replica, ..UsageConfig::default() });
    let (first, second) = (settings.run_name(255), settings.run_name(255));
    assert!(first.starts_with("a/ff-") && second.starts_with("a/ff-"), "{first}");
    assert_ne!(first, second);
}
