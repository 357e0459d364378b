//! What it costs to tell what a request comes from, in nanoseconds, and how long a table of keys takes to
//! build and how much memory it holds.
//!
//! `cargo bench -p wellhead-access` prints the median and the best of many rounds. It asserts nothing: on a
//! busy machine only the best means anything. The goal is 300 ns with one of 100,000 keys. Heads are those of
//! an SDK behind a proxy, 8 fields; keys are taken at random, so that the table is not in the caches because
//! the bench is small. "The walk" is over the fields alone, as any reader of a head does.
//!
//! A word on the command line leaves out the cases whose names do not contain it.

#![allow(clippy::print_stdout, reason = "a bench prints what it found")]

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use wellhead_access::{
    AccessPolicy, AccessSettings, AccessTable, AnonymousRule, ApiKey, CallCharge, ClientFacts,
    CredentialSources, KeyRecord, MeterTime, MeteredCall, NetworkSet, Pepper, ProxyTrust,
    ProxyTrustHeader, Quota, QuotaBounds, QuotaRate, RightsSettings, TenantDirectory,
    TenantSettings, parse_network,
};
use wellhead_eth::{MethodRow, MethodTable};
use wellhead_telemetry::Secret;

const KEYS: usize = 100_000;
const TENANTS: usize = 1_000;
/// One in this many keys has limits of its own: with those of the tenants 10,000 rates.
const LIMITED_KEYS_EVERY: usize = 25;
const ROUNDS: usize = 101;
const ROUND_CALLS: usize = 2_000;
const NOW: Duration = Duration::from_secs(1_800_000_000);

/// One request: the path, and the value of `x-api-key` or `authorization`.
struct Head {
    path: String,
    field: Option<(&'static str, String)>,
}

fn main() {
    let mut rng = StdRng::seed_from_u64(1);
    let pepper = Pepper::parse(&Secret::new("01".repeat(32))).expect("64 digits");
    let (keys, records) = keys(&pepper, &mut rng);
    let unknown: Vec<_> = (0..KEYS).map(|_| generate(&mut rng)).collect();
    let pepper_hash = pepper.hash("");
    let table = build(&pepper, &records, ProxyTrust::default());
    let limited = limited(&pepper, &records);
    let proxies = NetworkSet::new([(parse_network("10.0.0.0/8").expect("a network"), ())]);
    let trust = ProxyTrust::new(proxies.expect("one network"), ProxyTrustHeader::XForwardedFor);
    let behind = AccessTable::build(policy(&pepper, trust), &records).table;

    let in_path = |key: &str| Head { path: format!("/ethereum/{key}"), field: None };
    let as_field = |key: &str| Head {
        path: "/ethereum".to_owned(),
        field: Some(("x-api-key", key.to_owned())),
    };
    let as_bearer = |key: &str| Head {
        path: "/ethereum".to_owned(),
        field: Some(("authorization", format!("Bearer {key}"))),
    };
    let without = |_: &str| Head { path: "/ethereum".to_owned(), field: None };
    let mut many = |keys: &[String], head: &dyn Fn(&str) -> Head| -> Vec<Head> {
        let calls = ROUNDS * ROUND_CALLS;
        (0..calls).map(|_| head(&keys[rng.random_range(0..keys.len())])).collect()
    };
    measure("the walk alone", &many(&keys, &without), walk);
    let text = |head: &Head| head.path["/ethereum/".len()..].to_owned();
    let texts: Vec<_> = many(&keys, &in_path).iter().map(text).collect();
    measure("the check sum alone", &texts, |text| ApiKey::parse(text).is_ok());
    measure("the hash alone", &texts, |text| pepper.hash(text) == pepper_hash);
    let ask = |head: &Head| identify(&table, head);
    measure("anonymous", &many(&keys, &without), ask);
    measure("a key in the path", &many(&keys, &in_path), ask);
    measure("a key in x-api-key", &many(&keys, &as_field), ask);
    measure("a key as bearer", &many(&keys, &as_bearer), ask);
    measure("an unknown key in the path", &many(&unknown, &in_path), ask);
    measure("an unknown key in x-api-key", &many(&unknown, &as_field), ask);
    measure("one of 1,000 keys of them", &many(&keys[..1_000], &as_field), ask);
    measure("one key again and again", &many(&keys[..1], &as_field), ask);
    let row = MethodTable::standard().row("eth_call");
    let charge = |head: &Head| identify_and_charge(&limited, head, row);
    measure("anonymous, with limits", &many(&keys, &without), charge);
    measure("a key in x-api-key, with limits", &many(&keys, &as_field), charge);
    measure("an unknown key in x-api-key, with limits", &many(&unknown, &as_field), charge);
    let ask = |head: &Head| identify(&behind, head);
    measure("a key, behind a proxy", &many(&keys, &as_field), ask);
}

fn generate(rng: &mut StdRng) -> String {
    ApiKey::generate("live", rng).expect("a good word").text.expose().to_owned()
}

fn keys(pepper: &Pepper, rng: &mut StdRng) -> (Vec<String>, Vec<KeyRecord>) {
    let keys: Vec<_> = (0..KEYS).map(|_| generate(rng)).collect();
    let records = keys.iter().enumerate().map(|(number, key)| {
        let id = ApiKey::parse(key).expect("a good key").id();
        let mut record =
            KeyRecord::new(id, pepper.hash(key), format!("tenant-{}", number % TENANTS));
        // Every tenth key narrows what its tenant may do.
        if number % 10 == 0 {
            record.rights = RightsSettings {
                chains: Some(vec!["ethereum".to_owned()]),
                effects: Some(vec!["read".to_owned()]),
                ..RightsSettings::default()
            };
        }
        record
    });
    let records = records.collect();
    (keys, records)
}

/// The table where each tenant has a rate of calls and one of credits, and some of the keys have their own.
fn limited(pepper: &Pepper, records: &[KeyRecord]) -> AccessTable {
    let mut records = records.to_vec();
    for record in records.iter_mut().step_by(LIMITED_KEYS_EVERY) {
        record.quota = Some("pro".into());
    }
    let limits = 2 * (TENANTS + KEYS / LIMITED_KEYS_EVERY);
    println!("with limits: {limits} rates");
    AccessTable::build(policy_of(pepper, ProxyTrust::default(), Some("pro")), &records).table
}

fn policy(pepper: &Pepper, trust: ProxyTrust) -> Arc<AccessPolicy> {
    policy_of(pepper, trust, None)
}

fn policy_of(pepper: &Pepper, trust: ProxyTrust, quota: Option<&str>) -> Arc<AccessPolicy> {
    let tenants: Vec<_> = (0..TENANTS)
        .map(|number| TenantSettings {
            name: format!("tenant-{number}"),
            quota: quota.map(Into::into),
            ..TenantSettings::default()
        })
        .collect();
    let mut problems = Vec::new();
    // Never reached.
    let rate = Some(QuotaRate::new(1e9, 1e9));
    let bounds = QuotaBounds { calls: rate, credits: rate, ..QuotaBounds::default() };
    let quota = Quota { name: "pro".into(), bounds, ..Quota::default() };
    let tenants = TenantDirectory::new(&tenants, [quota], Arc::default(), &mut problems);
    let settings = AccessSettings {
        tenants: Arc::new(tenants),
        sources: CredentialSources::default(),
        pepper: pepper.clone(),
        tokens: None,
        networks: Vec::new(),
        certificates: Vec::new(),
        anonymous: AnonymousRule::Allow,
        trust,
    };
    AccessPolicy::new(settings, &mut problems).expect("good settings")
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn build(pepper: &Pepper, records: &[KeyRecord], trust: ProxyTrust) -> AccessTable {
    let policy = policy(pepper, trust);
    let lines: Vec<_> = records.iter().map(KeyRecord::to_line).collect();
    let file = lines.join("\n");
    let began = Instant::now();
    let read = KeyRecord::read_file(&file).expect("good lines");
    let read_in = began.elapsed();
    assert_eq!(read.len(), KEYS);
    let mut table = None;
    let began = Instant::now();
    let held = allocation_counter::measure(|| {
        table = Some(AccessTable::build(policy, records).table);
    });
    let took = began.elapsed();
    println!("{KEYS} records: read from JSONL in {read_in:.1?}, built in {took:.1?}");
    println!(
        "{} bytes a key stay, in {} allocations",
        held.bytes_current / KEYS as i64,
        held.count_current
    );
    table.expect("it was built")
}

fn fields(head: &Head) -> impl Iterator<Item = (&str, &[u8])> {
    let fixed: [(&str, &[u8]); 8] = [
        ("Host", b"rpc.example.org"),
        ("User-Agent", b"viem/2.21.0"),
        ("Accept", b"*/*"),
        ("Accept-Encoding", b"gzip, br"),
        ("Connection", b"keep-alive"),
        ("Content-Type", b"application/json"),
        ("Content-Length", b"118"),
        ("X-Forwarded-For", b"203.0.113.9, 10.0.0.7"),
    ];
    let own = head.field.as_ref().map(|(name, value)| (*name, value.as_bytes()));
    fixed.into_iter().chain(own)
}

fn walk(head: &Head) -> bool {
    let mut bytes = head.path.len();
    for (name, value) in fields(head) {
        bytes += black_box(name).len() + black_box(value).len();
    }
    bytes > 0
}

fn identify(table: &AccessTable, head: &Head) -> bool {
    table.identify(&facts(head), fields(head)).is_ok()
}

fn facts(head: &Head) -> ClientFacts<'_> {
    ClientFacts {
        peer: IpAddr::from([10, 0, 0, 1]),
        path: &head.path,
        query: None,
        certificate: &[],
        now: NOW,
        elapsed: NOW,
        keys_are_stale: false,
    }
}

/// As a proxy does for each call: tells what it comes from, and takes it from all limits. `row`: which a proxy has looked
/// up for each call, with limits and without.
fn identify_and_charge(table: &AccessTable, head: &Head, row: &'static MethodRow) -> bool {
    let Ok(client) = table.identify(&facts(head), fields(head)) else { return false };
    let at = MeterTime { elapsed: NOW, unix_seconds: NOW.as_secs() };
    let call = MeteredCall { row, method: "eth_call", credits: 26 };
    CallCharge::take(client.caller.meters().map(|meter| &**meter), call, at).is_ok()
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn measure<T>(what: &str, heads: &[T], ask: impl Fn(&T) -> bool) {
    // Cargo adds `--bench`, which is no name.
    let mut names = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    if names.next().is_some_and(|name| !what.contains(&name)) {
        return;
    }
    let mut rounds: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for round in heads.chunks(ROUND_CALLS) {
        let began = Instant::now();
        for head in round {
            black_box(ask(black_box(head)));
        }
        rounds.push(began.elapsed());
    }
    rounds.sort_unstable();
    let nanos = |round: Duration| round.as_nanos() as f64 / ROUND_CALLS as f64;
    let (median, best) = (nanos(rounds[rounds.len() / 2]), nanos(rounds[0]));
    println!("{what:<28} median {median:>6.1} ns  best {best:>6.1} ns");
}
