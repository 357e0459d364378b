//! Callers pay for their calls, within their limits.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::{Stage, text};
use wellhead_access::usage::{UsageMinute, UsageRow};
use wellhead_access::{
    AccessGrant, Caller, GrantKind, GrantMeters, GrantTerms, MeterBook, MeterTime, Quota,
    QuotaBounds, QuotaGroup, QuotaPlan, QuotaRate, QuotaSharing, QuotaSubject, RightsSettings,
    SubjectMeter, Tenant, TenantDirectory, TenantSettings,
};
use wellhead_kit::result;
use wellhead_limit::Caps;
use wellhead_limit::lease::{LeasedBucket, LeasedCap, LeasedGate, LeasedLimit, WhenAway};
use wellhead_proxy::Answer;

/// A caller whose tenant has this quota.
struct Payer {
    caller: Caller,
    meter: Arc<SubjectMeter>,
}

fn payer(quota: Quota) -> Payer {
    payer_in(&MeterBook::default(), quota)
}

fn payer_in(book: &MeterBook, quota: Quota) -> Payer {
    let tenant = Arc::new(Tenant::new("acme"));
    let plan = Arc::new(QuotaPlan::new(quota));
    let at = MeterTime { elapsed: Duration::ZERO, unix_seconds: 0 };
    let meter = book.named(&QuotaSubject::Tenant(Arc::clone(&tenant.name)), &tenant.name, &plan);
    let meters = GrantMeters { tenant: Some(Arc::clone(&meter)), ..GrantMeters::default() };
    let mut grant = AccessGrant::new(GrantKind::Key, "k1", tenant);
    grant.meters = meters;
    let caller = Caller::new(Arc::new(grant), [127, 0, 0, 1].into(), book, at.elapsed);
    Payer { caller, meter }
}

/// Keeps the limits that it should serve, for the test to play the store.
#[derive(Debug)]
struct StoreOfTest {
    when_away: WhenAway,
    limits: Mutex<Vec<LeasedLimit>>,
}

impl StoreOfTest {
    fn new(when_away: WhenAway) -> Arc<Self> {
        Arc::new(Self { when_away, limits: Mutex::default() })
    }

    fn book(self: &Arc<Self>) -> MeterBook {
        MeterBook::sharing(Arc::clone(self) as Arc<dyn QuotaSharing>)
    }

    fn cap(&self) -> Arc<LeasedCap> {
        let limits = self.limits.lock().expect("no panic");
        let mut caps = limits.iter().filter_map(|limit| match limit {
            LeasedLimit::Cap(cap) => Some(Arc::clone(cap)),
            LeasedLimit::Bucket(_) | LeasedLimit::Gate(_) | LeasedLimit::Window(_) => None,
        });
        caps.next().expect("a cap is shared")
    }

    fn gate(&self) -> Arc<LeasedGate> {
        let limits = self.limits.lock().expect("no panic");
        let mut gates = limits.iter().filter_map(|limit| match limit {
            LeasedLimit::Gate(gate) => Some(Arc::clone(gate)),
            LeasedLimit::Bucket(_) | LeasedLimit::Cap(_) | LeasedLimit::Window(_) => None,
        });
        gates.next().expect("places are shared")
    }

    fn rate(&self) -> Arc<LeasedBucket> {
        let limits = self.limits.lock().expect("no panic");
        let mut rates = limits.iter().filter_map(|limit| match limit {
            LeasedLimit::Bucket(bucket) => Some(Arc::clone(bucket)),
            LeasedLimit::Cap(_) | LeasedLimit::Gate(_) | LeasedLimit::Window(_) => None,
        });
        rates.next().expect("a rate is shared")
    }
}

impl QuotaSharing for StoreOfTest {
    fn when_away(&self) -> WhenAway {
        self.when_away
    }

    fn share(&self, _name: &str, limit: LeasedLimit) {
        self.limits.lock().expect("no panic").push(limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_store_that_replicas_share_but_not_for_long() {
    let (sharing, began) = (StoreOfTest::new(WhenAway::Closed), tokio::time::Instant::now());
    let book = sharing.book();
    let caps = Caps { day: Some(1_000), month: None };
    let (stage, payer) =
        (Stage::upstreams(1), payer_in(&book, Quota { caps, ..quota(QuotaBounds::default()) }));
    let cap = sharing.cap();
    cap.note_back();
    let unix = Duration::from_secs(wellhead_telemetry::clock::unix_seconds());
    let answered = async {
        // The first call of a cold key asks; the store says yes a little later.
        tokio::time::sleep(Duration::from_millis(4)).await;
        let asked = cap.ask(began.elapsed(), unix).expect("a call wants credits");
        cap.grant(asked, 2_000, (998_000, u64::MAX), began.elapsed());
    };
    let body = balance();
    let (answer, ()) = tokio::join!(stage.send_as(&payer.caller, &body), answered);
    assert_eq!(answer.status, 200, "{}", text(&answer));
    assert!(began.elapsed() < Duration::from_millis(20), "{:?}", began.elapsed());
    // The store answers no more: refused, as the settings say for a store that is away.
    let began = tokio::time::Instant::now();
    let answer = stage.send_as(&payer.caller, &call("eth_getBalance", r#"["0xac","0x5"]"#)).await;
    assert_eq!(answer.status, 429);
    assert!(began.elapsed() < Duration::from_millis(40), "{:?}", began.elapsed());
    assert_eq!((stage.peer(0).calls(), spent(&payer)), (1, 2));
}

/// A caller that is far below its limits.
fn calm_payer(sharing: &Arc<StoreOfTest>) -> Payer {
    let caps = Caps { day: Some(1_000_000), month: None };
    payer_in(&sharing.book(), Quota { caps, ..calls(100.0, 10.0) })
}

/// Each limit has its own time to answer, and the cap is asked when the rate has let the call through.
#[tokio::test(start_paused = true)]
async fn limits_of_a_silent_store_go_by_their_share_one_after_the_other() {
    let sharing = StoreOfTest::new(WhenAway::Share);
    let (stage, payer) = (Stage::upstreams(1), calm_payer(&sharing));
    let (rate, cap) = (sharing.rate(), sharing.cap());
    rate.note_back();
    cap.note_back();
    // Beyond the credit.
    rate.charge(6.0, Duration::ZERO);
    let began = tokio::time::Instant::now();
    let answer = stage.send_as(&payer.caller, &balance()).await;
    assert_eq!(answer.status, 200, "{}", text(&answer));
    assert!(began.elapsed() < Duration::from_millis(80), "{:?}", began.elapsed());
    assert!(rate.taken_alone() > 0.0 && cap.taken_alone() > 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_while_a_call_waits_fails_no_call() {
    let sharing = StoreOfTest::new(WhenAway::Share);
    let (stage, payer) = (Stage::upstreams(1), calm_payer(&sharing));
    let (rate, cap) = (sharing.rate(), sharing.cap());
    rate.note_back();
    cap.note_back();
    let comes_back = async {
        // After the first wait, before the end of the second.
        tokio::time::sleep(Duration::from_millis(20)).await;
        cap.note_away(1);
        cap.note_back();
    };
    let body = balance();
    let (answer, ()) = tokio::join!(stage.send_as(&payer.caller, &body), comes_back);
    assert_eq!(answer.status, 200, "{}", text(&answer));
}

/// A caller that may do this, and has no limits.
fn holder(rights: &str) -> Caller {
    let rights: RightsSettings = serde_json::from_str(&rights.replace('\'', "\"")).expect("rights");
    let acme = TenantSettings { name: "acme".to_owned(), rights, ..TenantSettings::default() };
    let mut problems = Vec::new();
    let tenants = TenantDirectory::new(&[acme], [], Arc::default(), &mut problems);
    assert_eq!(problems, [""; 0]);
    let terms = GrantTerms::new(GrantKind::Key, "k1", "acme");
    let grant = tenants.grant(&terms).expect("a grant");
    Caller::new(Arc::new(grant), [127, 0, 0, 1].into(), tenants.book(), Duration::ZERO)
}

fn rate(per_second: f64, burst: f64) -> Option<QuotaRate> {
    Some(QuotaRate::new(per_second, burst))
}

fn quota(bounds: QuotaBounds) -> Quota {
    Quota { name: "pro".into(), bounds, ..Quota::default() }
}

fn credits(per_second: f64, burst: f64) -> Quota {
    quota(QuotaBounds { credits: rate(per_second, burst), ..QuotaBounds::default() })
}

fn calls(per_second: f64, burst: f64) -> Quota {
    quota(QuotaBounds { calls: rate(per_second, burst), ..QuotaBounds::default() })
}

fn call(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#)
}

fn balance() -> String {
    call("eth_getBalance", r#"["0xab","0x5"]"#)
}

/// Credits of the month that the payer has spent. The clock on the wall says which month.
fn spent(payer: &Payer) -> u64 {
    payer.meter.ledger().pages().month_credits
}

fn is_refused(answer: &Answer) -> bool {
    text(answer).contains("limit exceeded")
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_limit_is_refused_with_what_the_limit_is() {
    let (stage, payer) = (Stage::upstreams(1), payer(calls(2.0, 1.0)));
    assert_eq!(stage.send_as(&payer.caller, &balance()).await.status, 200);
    let answer = stage.send_as(&payer.caller, &balance()).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        text(&answer),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32005,"message":"limit exceeded: quota `pro` allows 2 calls_per_second for this tenant; retry in 0.5 s","data":{"limit":"calls_per_second","quota":"pro","subject":"tenant","most":2,"retry_after_s":1}}}"#
    );
    assert_eq!(answer.retry_after, Some(Duration::from_millis(500)));
    let fields = answer.rate_limit.expect("of the limit").rate_limit_fields();
    assert_eq!(fields, [r#""calls_per_second";q=2;w=1"#, r#""calls_per_second";r=0;t=1"#]);
    assert_eq!(stage.peer(0).calls(), 1, "the refused call went nowhere");
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(stage.send_as(&payer.caller, &balance()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn calls_cost_their_price_and_those_that_fail_for_our_reasons_nothing() {
    let (stage, payer) = (Stage::keeping_to_100(1), payer(credits(1.0, 1_000.0)));
    let check = async |body: &str, cost: u64| {
        let before = spent(&payer);
        let answer = stage.send_as(&payer.caller, body).await;
        assert_eq!(spent(&payer) - before, cost, "{body}: {}", text(&answer));
    };
    check(&balance(), 2).await;
    // From the cache, which costs as much unless the settings say otherwise.
    check(&balance(), 2).await;
    check(&call("eth_chainId", "[]"), 1).await;
    check(&call("admin_peers", "[]"), 0).await;
    // An answer, if none that its client hoped for.
    let revert = wellhead_kit::error(3, "execution reverted");
    stage.peer(0).always("eth_call", revert);
    check(&call("eth_call", r#"[{"to":"0xab"},"0x5"]"#), 4).await;
    stage.peer(0).always("eth_getCode", wellhead_kit::status(503, ""));
    check(&call("eth_getCode", r#"["0xab","0x5"]"#), 0).await;
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_batch_is_charged_and_refused_alone() {
    let (stage, payer) = (Stage::upstreams(1), payer(credits(1.0, 5.0)));
    let items =
        [balance(), call("eth_call", r#"[{"to":"0xab"},"0x5"]"#), balance(), "7".to_owned()];
    let answer = stage.send_as(&payer.caller, &format!("[{}]", items.join(","))).await;
    assert_eq!(answer.status, 200);
    let body = text(&answer);
    let replies: Vec<_> = wellhead_jsonrpc::raw::items(body.as_bytes())
        .map(|reply| String::from_utf8_lossy(reply).into_owned())
        .collect();
    let has = |place: usize, words: &str| assert!(replies[place].contains(words), "{body}");
    has(0, r#""result""#);
    has(1, "allows 1 credits_per_second");
    has(2, r#""result""#);
    has(3, "-32600");
    assert_eq!((replies.len(), stage.peer(0).calls(), spent(&payer)), (4, 2, 4));
}

#[tokio::test(start_paused = true)]
async fn requests_and_groups_hold_their_places_while_they_are_under_way() {
    let at_once = |most| QuotaBounds { in_flight: Some(most), ..QuotaBounds::default() };
    let methods = vec!["eth_getLogs".parse().expect("a pattern")];
    let groups = vec![QuotaGroup { methods, bounds: at_once(1) }];
    let payer = payer(Quota { groups, ..quota(at_once(2)) });
    let stage = Stage::upstreams(1);
    stage.peer(0).always("eth_getBalance", result("\"0x1\"").after(Duration::from_millis(100)));
    let balance = balance();
    let send = || stage.send_as(&payer.caller, &balance);
    let (first, second, third) = tokio::join!(send(), send(), send());
    let refused = [&first, &second, &third].map(is_refused);
    assert_eq!(refused.iter().filter(|is_refused| **is_refused).count(), 1, "{refused:?}");
    assert!(is_refused(&send().await), "no answer is sent yet");
    drop((first, second, third));
    assert!(!is_refused(&send().await), "all places are free again");
    // A batch is one request; its calls of a group count each.
    let logs = call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x1"}]"#);
    let batch = format!("[{logs},{logs},{balance}]");
    let body = text(&stage.send_as(&payer.caller, &batch).await);
    assert_eq!(body.matches("allows 1 in_flight").count(), 1, "{body}");
    assert!(!is_refused(&stage.send_as(&payer.caller, &logs).await));
}

/// Whatever its answer is: one that flows, one that is there as a whole, or that of a batch.
#[tokio::test(start_paused = true)]
async fn a_request_holds_its_places_until_its_answer_is_sent() {
    let at_once = |most| QuotaBounds { in_flight: Some(most), ..QuotaBounds::default() };
    let methods = vec!["debug_traceBlockByNumber".parse().expect("a pattern")];
    let groups = vec![QuotaGroup { methods, bounds: at_once(1) }];
    let payer = payer(Quota { groups, ..quota(at_once(2)) });
    let stage = Stage::upstreams(1);
    let long = format!("\"0x{}\"", "ab".repeat(1 << 20));
    stage.peer(0).always("debug_traceBlockByNumber", result(&long));
    stage.peer(0).always("eth_getBalance", result("\"0x1\"").after(Duration::from_millis(100)));
    let (trace, balance) = (call("debug_traceBlockByNumber", r#"["0x1"]"#), balance());
    let first = stage.send_as(&payer.caller, &trace).await;
    assert!(first.rest.is_some(), "{}", text(&first));
    let body = text(&stage.send_as(&payer.caller, &trace).await);
    assert!(body.contains("allows 1 in_flight"), "{body}");
    let (other, refused) = tokio::join!(
        stage.send_as(&payer.caller, &balance),
        stage.send_as(&payer.caller, &balance)
    );
    assert_eq!([&other, &refused].map(is_refused), [false, true]);
    drop((first, other));
    assert!(stage.send_as(&payer.caller, &trace).await.rest.is_some(), "the places are free");
    let batch = format!("[{balance}]");
    let kept =
        [stage.send_as(&payer.caller, &batch).await, stage.send_as(&payer.caller, &balance).await];
    assert!(is_refused(&stage.send_as(&payer.caller, &balance).await));
    drop(kept);
    assert!(!is_refused(&stage.send_as(&payer.caller, &balance).await));
}

/// Half of the places are divided among replicas without a word of the store; those beyond are asked for.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_place_that_replicas_share_but_not_for_long() {
    let (sharing, began) = (StoreOfTest::new(WhenAway::Share), tokio::time::Instant::now());
    let at_once = QuotaBounds { in_flight: Some(4), ..QuotaBounds::default() };
    let (stage, payer) = (Stage::upstreams(1), payer_in(&sharing.book(), quota(at_once)));
    let gate = sharing.gate();
    gate.note_replicas(2);
    gate.note_back();
    let body = balance();
    let own = stage.send_as(&payer.caller, &body).await;
    assert_eq!((own.status, gate.inside(), began.elapsed()), (200, 1, Duration::ZERO));
    let answered = async {
        tokio::time::sleep(Duration::from_millis(4)).await;
        let asked = gate.ask(began.elapsed()).expect("a request wants a place");
        gate.grant(asked, 1, began.elapsed());
    };
    let (second, ()) = tokio::join!(stage.send_as(&payer.caller, &body), answered);
    assert_eq!((second.status, gate.inside()), (200, 2), "{}", text(&second));
    // The store has said that there is one.
    let third = stage.send_as(&payer.caller, &body).await;
    assert!(is_refused(&third) && text(&third).contains("4 in_flight"), "{}", text(&third));
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    drop((own, second));
    assert_eq!(gate.inside(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_month_that_is_spent_refuses_until_its_end() {
    let caps = Caps { day: None, month: Some(3) };
    let (stage, payer) =
        (Stage::upstreams(1), payer(Quota { caps, name: "free".into(), ..Quota::default() }));
    assert_eq!(stage.send_as(&payer.caller, &balance()).await.status, 200);
    let answer = stage.send_as(&payer.caller, &balance()).await;
    assert_eq!(answer.status, 429, "{}", text(&answer));
    assert!(text(&answer).contains("quota `free` allows 3 credits_per_month"), "{}", text(&answer));
    assert!(answer.retry_after <= Some(Duration::from_secs(31 * 86_400)));
    // One that costs less passes.
    assert_eq!(stage.send_as(&payer.caller, &call("eth_chainId", "[]")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_gives_its_place_back() {
    let at_once = QuotaBounds { in_flight: Some(1), ..QuotaBounds::default() };
    let (stage, payer) = (Stage::upstreams(1), payer(quota(at_once)));
    stage.peer(0).next("eth_getBalance", result("\"0x1\"").after(Duration::from_secs(20)));
    let balance = balance();
    let gone = stage.send_as(&payer.caller, &balance);
    assert!(tokio::time::timeout(Duration::from_secs(1), gone).await.is_err());
    assert!(!is_refused(&stage.send_as(&payer.caller, &balance).await));
    let rows: Vec<_> = stage.usage.take_minute(UsageMinute::MAX).iter().map(in_words).collect();
    assert!(rows.iter().any(|row| row.contains("abandoned: 1 calls")), "{rows:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_has_no_right_to_is_refused_and_goes_nowhere() {
    let refused = async |rights: &str, body: &str, code: i64, words: &str| {
        let stage = Stage::keeping_to_100(1);
        let answer = stage.send_as(&holder(rights), body).await;
        let text = text(&answer);
        assert_eq!(answer.status, 403, "{text}");
        assert!(text.contains(&format!(r#""code":{code},"#)) && text.contains(words), "{text}");
        assert!(text.contains(r#""id":7"#) && stage.peer(0).calls() == 0, "{text}");
    };
    let logs = |to: &str| {
        call(
            "eth_getLogs",
            &format!(r#"[{{"fromBlock":"0x5a","toBlock":"{to}","address":"0x{:040x}"}}]"#, 1),
        )
    };
    refused("{'methods':{'deny':['eth_get*']}}", &balance(), -32601, r#""right":"methods""#).await;
    refused("{'effects':['write']}", &balance(), -32601, r#""right":"effects""#).await;
    refused("{'chains':['base']}", &balance(), -32001, "this chain is not allowed").await;
    refused("{'logs_range_max':10}", &logs("0x64"), -32001, "over 11 blocks: at most 10").await;
    refused("{'logs_range_max':10}", &logs("latest"), -32001, "over 11 blocks: at most 10").await;
    refused("{'logs_range_max':10}", &logs("safe"), -32001, "blocks").await;
    refused("{'logs_range_max':10}", &call("ankr_getLogs", "[{}]"), -32001, "blocks").await;
    let contract = format!("0x{:040x}", 2);
    refused(&format!("{{'contracts':['{contract}']}}"), &logs("0x5a"), -32001, "the contract")
        .await;
    refused(
        "{'batch_items_max':1}",
        &format!("[{},{}]", balance(), balance()),
        -32001,
        "a batch of 2",
    )
    .await;
    // And what it has a right to is done.
    let stage = Stage::keeping_to_100(1);
    let narrow = "{'methods':{'allow':['eth_get*']},'chains':['ethereum'],'logs_range_max':11,'batch_items_max':2}";
    let caller = holder(narrow);
    for body in [balance(), logs("0x64"), format!("[{},{}]", balance(), balance())] {
        assert_eq!(stage.send_as(&caller, &body).await.status, 200, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_searches_no_more_than_a_call_may() {
    let stage = Stage::keeping_to_100(1);
    let caller = holder("{'logs_range_max':10}");
    let logs_of_filter = async |from: &str| {
        let params = format!(r#"[{{"fromBlock":"{from}","address":"0x{:040x}"}}]"#, 1);
        let made = text(&stage.send_as(&caller, &call("eth_newFilter", &params)).await);
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        stage.send_as(&caller, &call("eth_getFilterLogs", &format!("[{}]", made["result"]))).await
    };
    let refused = logs_of_filter("0x1").await;
    assert!(text(&refused).contains("at most 10"), "{}", text(&refused));
    let answered = logs_of_filter("0x60").await;
    assert!(text(&answered).contains(r#""result":"#), "{}", text(&answered));
}

#[tokio::test(start_paused = true)]
async fn the_trail_is_for_callers_that_may_see_it() {
    let stage = Stage::upstreams(1);
    assert!(stage.send_as(&holder("{}"), &balance()).await.trail.is_some());
    assert!(stage.send_as(&holder("{'trail':false}"), &balance()).await.trail.is_none());
}

#[tokio::test(start_paused = true)]
async fn all_calls_are_counted_by_what_became_of_them() {
    let (stage, payer) = (Stage::keeping_to_100(1), payer(credits(1.0, 9.0)));
    stage.peer(0).always("eth_getCode", wellhead_kit::status(503, ""));
    let code = call("eth_getCode", r#"["0xab","0x5"]"#);
    let logs = call("eth_getLogs", r#"[{"fromBlock":"0x1","toBlock":"0x1"}]"#);
    for body in [balance(), balance(), call("eth_chainId", "[]"), code, logs] {
        stage.send_as(&payer.caller, &body).await;
    }
    let items = format!("[{},{}]", call("eth_getBalance", r#"["0xcd","0x5"]"#), balance());
    stage.send_as(&payer.caller, &items).await;
    let mut rows: Vec<_> = stage.usage.take_minute(UsageMinute::MAX).iter().map(in_words).collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            "eth_chainId view answered: 1 calls, 1 in, 0 out",
            "eth_getBalance cache answered: 2 calls, 4 in, 0 out",
            "eth_getBalance upstream answered: 2 calls, 4 in, 2 out",
            "eth_getCode upstream failed: 1 calls, 0 in, 3 out",
            "eth_getLogs refused limited: 1 calls, 0 in, 0 out",
        ]
    );
}

fn in_words(row: &UsageRow) -> String {
    let (key, amounts) = (&row.key, &row.amounts);
    assert_eq!((&*key.tenant, &*key.key, &*key.chain), ("acme", "k1", "ethereum"));
    format!(
        "{} {} {}: {} calls, {} in, {} out",
        key.method,
        key.source.word(),
        key.outcome.word(),
        amounts.calls,
        amounts.credits_in,
        amounts.credits_out
    )
}
