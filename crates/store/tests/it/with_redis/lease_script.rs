//! The script of shared limits against its arithmetic in Rust, on random traces.
//!
//! Each step tells the script the time, in place of the server's, and sets back that time now and
//! then.

use std::collections::HashMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use redis::aio::MultiplexedConnection;
use wellhead_kit::RedisServer;
use wellhead_limit::lease::{
    BucketTerms, CapTerms, GateAsk, LeaseAsk, LeaseGrant, WindowAsk, WindowGrant, WindowTerms,
};

use self::book::{GateBook, LeaseBook, WindowBook, chunk, left};

#[path = "../../../../limit/tests/support/book.rs"]
mod book;

const SCRIPT: &str = include_str!("../../../src/lease/script.lua");

/// The script with the time as its last argument, and without an expiry by the server's clock.
fn script() -> String {
    let replaced = [
        ("local time = redis.call('TIME')\n", ""),
        ("return tonumber(time[1]) * 1000000 + tonumber(time[2])", "return tonumber(ARGV[#ARGV])"),
        (", 'PX', number(math.ceil((full_at - now) / 1000))", ""),
        (", 'PX', number(math.ceil(ends_in / 1000))", ""),
    ];
    replaced.into_iter().fold(SCRIPT.to_owned(), |script, (from, to)| {
        assert!(script.contains(from), "the script has another text: {from}");
        script.replace(from, to)
    })
}

struct Trace {
    _redis: RedisServer,
    connection: MultiplexedConnection,
    script: String,
    rng: SmallRng,
    now: u64,
}

impl Trace {
    async fn start(seed: u64) -> Self {
        let redis = RedisServer::valkey();
        let connection = connect(&redis).await;
        let rng = SmallRng::seed_from_u64(seed);
        Self { _redis: redis, connection, script: script(), rng, now: 1_800_000_000_000_000 }
    }

    /// Time passes, mostly a little; now and then it goes back.
    fn step(&mut self) {
        let passed = 10_u64.pow(self.rng.random_range(0..7));
        let passed = self.rng.random_range(0..=passed);
        let is_back = self.rng.random_bool(0.02);
        self.now = if is_back { self.now - passed } else { self.now + passed };
    }

    async fn call(&mut self, keys: &[String], args: &[String]) -> Vec<i64> {
        let mut call = redis::cmd("EVAL");
        call.arg(&self.script).arg(keys.len()).arg(keys).arg(args).arg(self.now);
        let texts: Vec<String> =
            call.query_async(&mut self.connection).await.expect("the script runs");
        texts.iter().map(|text| text.parse().expect("a number")).collect()
    }
}

pub(super) async fn connect(redis: &RedisServer) -> MultiplexedConnection {
    let connecting = async {
        loop {
            let client = redis::Client::open(redis.url()).unwrap();
            if let Ok(connection) = client.get_multiplexed_async_connection().await {
                return connection;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::BROKEN, connecting).await.expect("the server starts")
}

fn texts(numbers: &[u64]) -> Vec<String> {
    numbers.iter().map(u64::to_string).collect()
}

/// Of asks that are never too late.
const ANY_TIME: u64 = 0;

/// The begin of the arguments: the part of the script, and the latest moment.
fn texts_of(part: &str, latest: u64) -> Vec<String> {
    vec![part.to_owned(), latest.to_string()]
}

#[tokio::test]
async fn what_comes_too_late_is_void_and_takes_nothing() {
    let mut trace = Trace::start(5).await;
    let now = trace.now;
    for (latest, expected) in [(now - 1, vec![]), (now, vec![7, 0]), (now + 1, vec![3, 0])] {
        let mut args = texts_of("rate", latest);
        let want = if expected == [7, 0] { 7 } else { 3 };
        args.extend(texts(&[1, 10, want, want, 0]));
        assert_eq!(trace.call(&["late".to_owned()], &args).await, expected);
    }
    for (part, numbers) in [
        ("cap", &[100, 100, 1, 1, 1, 0][..]),
        ("gate", &[1, 10, 1, 0, 1_000]),
        ("window", &[100, 1_000, 1, 0, 1, 1, 0]),
    ] {
        for (latest, is_void) in [(now - 1, true), (now, false)] {
            let mut args = texts_of(part, latest);
            args.extend(texts(numbers));
            let keys = [format!("late {part}"), format!("late {part} too")];
            assert_eq!(trace.call(&keys, &args).await.is_empty(), is_void, "{part}");
        }
    }
}

#[tokio::test]
async fn rates() {
    let mut trace = Trace::start(1).await;
    let mut books: HashMap<u64, LeaseBook> = HashMap::new();
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..6_000 {
        trace.step();
        let key = trace.rng.random_range(0..4);
        // Of a key the terms change now and then, as settings do.
        let rate = 10_u64.pow(trace.rng.random_range(0..9)) * trace.rng.random_range(1..10);
        let rate = if trace.rng.random_bool(0.9) { 1_000 * 10_u64.pow(key as u32) } else { rate };
        let depth = trace.rng.random_range(1..=rate * 2);
        let want = trace.rng.random_range(0..=depth);
        let need = trace.rng.random_range(0..=want);
        let back = if trace.rng.random_bool(0.2) { trace.rng.random_range(0..=depth) } else { 0 };
        let (terms, ask) = (BucketTerms { rate, depth }, LeaseAsk { want, need, back });
        let expected = books.entry(key).or_default().lease(terms, ask, trace.now);
        let mut args = texts_of("rate", ANY_TIME);
        args.extend(texts(&[rate, depth, want, need, back]));
        let found = trace.call(&[format!("rate{key}")], &args).await;
        let told = [expected.granted as i64, expected.wait.as_micros() as i64];
        assert_eq!(found, told, "{terms:?} {ask:?} at {}", trace.now);
        granted += u64::from(expected.granted > 0);
        refused += u64::from(expected.granted == 0 && want > 0);
    }
    println!("lease script: 6000 asks of rates alike, {granted} granted, {refused} refused");
    assert!(granted > 1_000 && refused > 500, "both are tried");
}

#[tokio::test]
async fn caps() {
    let mut trace = Trace::start(2).await;
    for round in 0..40 {
        let mut cap = |is: bool| is.then(|| trace.rng.random_range(1..10_u64.pow(9)));
        let terms = CapTerms { day: cap(round % 3 != 0), month: cap(round % 3 != 1) };
        let (mut day, mut month) = (0_u64, 0_u64);
        for _ in 0..100 {
            trace.step();
            let replicas = trace.rng.random_range(1..6);
            let largest = left(terms, 0, 0) / 10;
            let want = trace.rng.random_range(0..=largest.max(1));
            let need = trace.rng.random_range(0..=want);
            let back = if trace.rng.random_bool(0.3) { want / 3 } else { 0 };
            let ask = LeaseAsk { want, need, back };
            (day, month) = (day.saturating_sub(back), month.saturating_sub(back));
            let granted = chunk(left(terms, day, month), replicas, ask);
            (day, month) = (day + granted, month + granted);
            let rest =
                |cap: Option<u64>, used: u64| cap.map_or(-1, |cap| cap.saturating_sub(used) as i64);
            let written = |cap: Option<u64>| cap.map_or("-1".to_owned(), |cap| cap.to_string());
            let mut args = texts_of("cap", ANY_TIME);
            args.extend([written(terms.day), written(terms.month)]);
            args.extend(texts(&[u64::from(replicas), want, need, back]));
            let keys = [format!("day{round}"), format!("month{round}")];
            let found = trace.call(&keys, &args).await;
            let told = [granted as i64, rest(terms.day, day), rest(terms.month, month)];
            assert_eq!(found, told, "{terms:?} {ask:?} of {replicas}");
        }
    }
}

#[tokio::test]
async fn windows() {
    let mut trace = Trace::start(6).await;
    let (mut granted, mut opened) = (0, 0);
    for round in 0..30 {
        let credits = trace.rng.random_range(1..10_u64.pow(9));
        let length = 10_u64.pow(trace.rng.random_range(2..8));
        let terms = WindowTerms { credits, length };
        let (mut book, mut before) = (WindowBook::default(), 0);
        for _ in 0..100 {
            trace.step();
            let replicas = trace.rng.random_range(1..6);
            let want = trace.rng.random_range(0..=(credits / 10).max(1));
            let want = if trace.rng.random_bool(0.2) { 0 } else { want };
            let need = trace.rng.random_range(0..=want);
            let back = if trace.rng.random_bool(0.3) { want / 3 } else { 0 };
            // Now and then of the window before.
            let began = if trace.rng.random_bool(0.8) { book.began } else { before };
            let asked = WindowAsk { ask: LeaseAsk { want, need, back }, began };
            let was = book.began;
            let expected = book.lease(terms, replicas, asked, trace.now);
            if book.began != was {
                (before, opened) = (was, opened + 1);
            }
            let mut args = texts_of("window", ANY_TIME);
            args.extend(texts(&[credits, length, replicas.into(), began, want, need, back]));
            let found = trace.call(&[format!("window{round}")], &args).await;
            let ends_in = expected.ends_in.as_micros() as u64;
            let told = [expected.granted, expected.left, ends_in, expected.began];
            assert_eq!(found, told.map(|it| it as i64), "{terms:?} {asked:?} of {replicas}");
            granted += u64::from(expected.granted > 0);
        }
    }
    println!("lease script: 3000 asks of windows alike, {granted} granted, {opened} opened");
    assert!(granted > 500 && opened > 100, "both are tried");
}

#[tokio::test]
async fn gates() {
    let mut trace = Trace::start(3).await;
    let keep = Duration::from_secs(3600).as_micros() as u64;
    let mut book = GateBook::default();
    for _ in 0..4_000 {
        // Far steps, so that some are forgotten.
        trace.step();
        if trace.rng.random_bool(0.05) {
            trace.now += trace.rng.random_range(0..keep);
        }
        let replica = trace.rng.random_range(0..6_u64);
        let places = trace.rng.random_range(1..100);
        let want = trace.rng.random_range(0..=places);
        let ask = GateAsk { places, want, inside: trace.rng.random_range(0..=want) };
        let expected = book.divide(replica, ask, keep, trace.now);
        let mut args = texts_of("gate", ANY_TIME);
        let numbers = [replica, places.into(), want.into(), ask.inside.into(), keep];
        args.extend(texts(&numbers));
        let found = trace.call(&["gate".to_owned()], &args).await;
        assert_eq!(found, [i64::from(expected)], "{ask:?} of {replica} at {}", trace.now);
    }
}

#[tokio::test]
async fn replicas() {
    let mut trace = Trace::start(4).await;
    let keep = 6_000_000_u64;
    let mut last: HashMap<u64, u64> = HashMap::new();
    for _ in 0..2_000 {
        trace.step();
        let replica = trace.rng.random_range(0..8_u64);
        let now = trace.now;
        last.insert(replica, now);
        last.retain(|_, at| *at > now - keep && *at < now + keep);
        let mut args = texts_of("here", ANY_TIME);
        args.extend(texts(&[replica, keep]));
        let found = trace.call(&["replicas".to_owned()], &args).await;
        assert_eq!(found, [last.len() as i64, trace.now as i64]);
    }
}
