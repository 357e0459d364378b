//! Targets that mean no good: what they send is bounded, and no part of their URL that they
//! repeat is kept or told.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use wellhead_analyze::conclude::verdict::{Finding, verdicts};
use wellhead_analyze::measure::client::{
    ConnectionNumbers, ConnectionSettings, TargetClient, TargetEndpoint,
};
use wellhead_analyze::measure::inquiry::agree;
use wellhead_analyze::measure::plan::{FixedPlan, LoadTerms, Stage};
use wellhead_analyze::measure::run::{
    CallBudget, Finished, Greeting, PanelMember, Player, RunError, StopSignal, Unwatched,
};
use wellhead_analyze::record::{RECORDS_SCHEMA, RUN_SCHEMA, Record, RunRecord};
use wellhead_analyze::stored::REPORT_FILES;
use wellhead_analyze::work::{WorkCall, WorkKind};
use wellhead_net::HttpVersion;
use wellhead_telemetry::SecretUrl;

use super::schema::problems;
use super::support::{read, terms};

const SECOND: Duration = Duration::from_secs(1);

/// What is sent back to a request, given its head and body.
type Script = dyn Fn(&str, &str) -> String + Send + Sync;

/// A server of HTTP/1.1 that answers by a script; its URL has a key in each of its parts.
pub(super) async fn target(
    script: impl Fn(&str, &str) -> String + Send + Sync + 'static,
) -> TargetEndpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    let script: Arc<Script> = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&script)));
        }
    });
    let url = format!("http://me:PASSKEY@{addr}/v2/PATHKEYPATHKEY99?k=QUERYKEY1");
    TargetEndpoint::new("target-1".to_owned(), SecretUrl::parse(&url).expect("a URL"))
}

async fn serve(mut socket: TcpStream, script: Arc<Script>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = text.split_once("\r\n\r\n").filter(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length.and_then(|length| length.parse().ok()) == Some(body.len())
        });
        if let Some((head, body)) = whole {
            socket.write_all(script(head, body).as_bytes()).await.ok()?;
            bytes.clear();
        } else if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

pub(super) fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// An answer to a call, in which `result` is JSON.
pub(super) fn answer(result: &str) -> String {
    http("200 OK", "", &format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#))
}

async fn greet(endpoint: &TargetEndpoint, stop: &StopSignal) -> Greeting {
    let dir = TempDir::new().expect("a directory");
    let budget = CallBudget::new(10);
    let endpoints = [endpoint.clone()];
    let mut player =
        Player::begin(dir.path(), terms(), &endpoints, &budget, stop).expect("it begins");
    player.greet(0, endpoint).await.expect("it is written")
}

/// What a load of ten calls leaves in its directory: all files as one text, and the records.
pub(super) async fn played(endpoint: &TargetEndpoint) -> (String, RunRecord, Vec<Record>) {
    let dir = TempDir::new().expect("a directory");
    let (budget, stop, endpoints) =
        (CallBudget::new(100), StopSignal::default(), [endpoint.clone()]);
    let player = Player::begin(dir.path(), terms(), &endpoints, &budget, &stop).expect("it begins");
    let mut player = player.stamping("00ff".to_owned(), 1_000 * SECOND).expect("it is written");
    let terms = LoadTerms::new(vec![Stage::Rate(10.0)], SECOND, WorkKind::Cheap, 1);
    let mut plan = FixedPlan::load(&terms);
    let greeting = Greeting::default();
    player.play(&mut plan, 0, endpoint, &greeting, &mut Unwatched).await.expect("it is written");
    let file = |name: &str| fs::read_to_string(dir.path().join(name)).expect("a file");
    let (run, records) = read(dir.path());
    (file("records.jsonl") + &file("run.json"), run, records)
}

#[tokio::test]
async fn keys_that_are_sent_back_are_not_kept() {
    let endpoint = target(|head, body| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let authorization = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        let authorization = authorization.unwrap_or("no user");
        if body.contains("web3_clientVersion") {
            return answer(&format!("\"{path}\""));
        }
        let headers = format!(
            "retry-after: 1\r\nx-ratelimit-limit: 100\r\nx-ratelimit-key: QUERYKEY1\r\n\
             ratelimit-policy: \"PATHKEYPATHKEY\"\r\nx-ratelimit-pathkeypathke: 1\r\n\
             x-ratelimit-user: {authorization}\r\nlocation: {path}\r\n"
        );
        let error = format!(r#"{{"code":-32005,"message":"{path} {authorization}"}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
        http("429 PATHKEYPATHKEY99", &headers, &body)
    })
    .await;
    let greeting = format!("{:?}", greet(&endpoint, &StopSignal::default()).await);
    assert!(greeting.contains("not kept: it may hold a key"), "{greeting}");
    let (files, ..) = played(&endpoint).await;
    for text in [greeting, files.clone()] {
        let small = text.to_lowercase();
        for key in ["passkey", "pathkey", "querykey", "bwu6ueft"] {
            assert!(!small.contains(key), "{key}: {text}");
        }
    }
    // What is no key is kept.
    assert!(files.contains(r#""limits":{"retry-after":"1","x-ratelimit-limit":"100"}"#), "{files}");
}

/// Of two that differ both values are kept, and neither holds what the other one's URL hides.
#[tokio::test]
async fn a_value_that_holds_a_key_is_not_kept() {
    let told = |text: &str| format!(r#"{{"who":"{text}"}}"#);
    let (one, other) = (told("/v2/PATHKEYPATHKEY99"), told("username"));
    let says = |value: String| {
        target(move |_, body| match body.contains("eth_chainId") {
            true => answer("\"0x1\""),
            false => answer(&value),
        })
    };
    let endpoints = [says(one).await, says(other).await];
    let dir = TempDir::new().expect("a directory");
    let (budget, stop) = (CallBudget::new(100), StopSignal::default());
    let mut player =
        Player::begin(dir.path(), terms(), &endpoints, &budget, &stop).expect("it begins");
    let mut members = Vec::new();
    for (target, endpoint) in (0..).zip(&endpoints) {
        player.greet(target, endpoint).await.expect("it is written");
        members.push(PanelMember { target, endpoint });
    }
    let mut watch = Unwatched;
    let mut panel = player
        .panel(agree::NAME, agree::VERSION, &members, Duration::ZERO, &mut watch)
        .expect("it is seated");
    let asked = panel.ask_all(&WorkCall::bare("net_version")).await;
    let answers = asked.expect("it is written, and there is budget");
    let said = |answer: &Finished| {
        String::from_utf8_lossy(&answer.last().expect("a try").body).into_owned()
    };
    let factors = || [("own", said(&answers[0])), ("other", said(&answers[1]))];
    for who in 0..2 {
        let factors = factors().map(|(name, text)| (name.to_owned(), text)).into();
        panel.close(who, factors, Vec::new(), None).expect("it is written");
    }
    drop(panel);
    let files = fs::read_to_string(dir.path().join("records.jsonl")).expect("records");
    assert!(!files.contains("PATHKEY") && files.contains("username"), "{files}");
    assert_eq!(files.matches("not kept: it may hold a key").count(), 2, "{files}");
}

#[tokio::test]
async fn a_greeting_takes_numbers_and_texts_and_nothing_else() {
    for (result, chain_id, trouble) in [
        ("\"0x10\"", Some(16), None),
        ("\"0xffffffffffffffff\"", Some(u64::MAX), None),
        ("\"0x10000000000000000\"", None, Some("that is no hexadecimal number of 64 bits")),
        ("\"-0x5\"", None, Some("that is no hexadecimal number of 64 bits")),
        ("1.5e300", None, Some("that is no hexadecimal number of 64 bits")),
        ("[[],[],{}]", None, Some("that is no hexadecimal number of 64 bits")),
        ("null", None, Some("null")),
    ] {
        let endpoint = target(move |_, _| answer(result)).await;
        let greeting = greet(&endpoint, &StopSignal::default()).await;
        assert_eq!((greeting.chain_id, greeting.block), (chain_id, chain_id), "{result}");
        let told = greeting.trouble.unwrap_or_default();
        match trouble {
            Some(trouble) => assert!(told.contains(trouble), "{result}: {told}"),
            None => assert_eq!(told, "", "{result}"),
        }
    }
}

#[tokio::test]
async fn a_run_that_is_to_end_does_not_wait_for_a_greeting() {
    let stop = Arc::new(StopSignal::default());
    let own = Arc::clone(&stop);
    // It takes the call, and never answers.
    let endpoint = target(move |_, _| {
        own.set();
        String::new()
    })
    .await;
    // A call that was waited for would have timed out, and been told.
    assert_eq!(greet(&endpoint, &stop).await.trouble, None);
}

#[tokio::test]
async fn files_of_others_are_not_written_over() {
    let endpoint = [target(|_, _| answer("\"0x10\"")).await];
    for name in ["records.jsonl", "run.json"].into_iter().chain(REPORT_FILES) {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join(name);
        fs::write(&path, "mine").expect("it can be written");
        let (budget, stop) = (CallBudget::new(1), StopSignal::default());
        let begun = Player::begin(dir.path(), terms(), &endpoint, &budget, &stop);
        assert!(matches!(begun, Err(RunError::Taken(taken)) if taken == path), "{name}");
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
        assert_eq!(fs::read_dir(dir.path()).map(Iterator::count).ok(), Some(1), "{name}");
    }
}

#[tokio::test]
async fn null_from_a_target_that_must_know_is_no_answer() {
    let endpoint = target(|_, _| answer("null")).await;
    let (_, run, records) = played(&endpoint).await;
    let told = verdicts(&run, &records);
    assert!(matches!(told[0].finding, Finding::CannotTell { .. }), "{told:?}");
}

#[tokio::test]
async fn answers_that_are_held_at_once_are_bounded() {
    // Each announces 120 MiB and begins to come, and the room is for four of them.
    let begin = " ".repeat(20 << 10);
    let begin = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{begin}", 120 << 20);
    let endpoint = target(move |_, _| begin.clone()).await;
    let transport =
        ConnectionSettings { version: HttpVersion::H1, connections: 5, ..ConnectionSettings::ONE };
    let client = TargetClient::new(&endpoint, transport, &ConnectionNumbers::default(), 1)
        .expect("a client");
    let mut calls = JoinSet::new();
    (0..5).for_each(|_| drop(calls.spawn(client.call(WorkCall::bare("eth_call")))));
    let first = calls.join_next().await.expect("five").expect("no panic");
    assert_eq!(first.call.error.as_deref(), Some("no_room"));
}

#[tokio::test]
async fn what_a_run_writes_is_what_the_schemas_say() {
    let endpoint = target(|_, _| answer("\"0x10\"")).await;
    let (files, run, records) = played(&endpoint).await;
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    let (lines, of_run) = files.split_at(files.find("{\n").expect("run.json"));
    let mut origins = BTreeSet::new();
    for line in lines.lines() {
        let line = json(line);
        assert_eq!(problems(&json(RECORDS_SCHEMA), &line), Vec::<String>::new());
        assert_eq!((&line["run"], &line["target_id"]), (&"00ff".into(), &"target-1".into()));
        let at = ["begun_at_us", "at_us"].into_iter().find_map(|name| line[name].as_u64());
        let since = line["unix_us"].as_u64().expect("a time") - at.expect("a time");
        origins.insert(since);
    }
    // All times count from one moment, which is not after the one that was given.
    assert!(origins.len() == 1 && origins.first() <= Some(&1_000_000_000), "{origins:?}");
    assert_eq!(lines.lines().count(), records.len());
    assert_eq!(problems(&json(RUN_SCHEMA), &json(of_run)), Vec::<String>::new());
    assert_eq!(run.id, "00ff");
}
