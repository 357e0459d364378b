//! wellhead before upstreams that fail in all the ways that an alert is about, watched by Prometheus and Alertmanager.

mod exemplars;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::interval;
use wellhead_e2e::{
    Alertmanager, Anvil, Fault, FaultProxy, KeyFile, Node, Prometheus, Rewrite, Rpc, Upstream,
    Webhook, Wellhead, free_port, until,
};

use crate::{alerts, dashboard_queries, documented, listed_values, page_queries, text, unknown};

const BOUND: Duration = Duration::from_secs(120);
/// More than the agreed head may be older than that of an upstream before it lags by a minute.
const LAG_BLOCKS: u64 = 100;
/// Calls that wait for the slow upstream at one time.
const SLOW_CALLS_MAX: usize = 200;

/// The alerts that the faults below mean.
const EXPECTED: [&str; 17] = [
    "WellheadCacheTierDown",
    "WellheadChainStalled",
    "WellheadChainUnserved",
    "WellheadErrorRatioFast",
    "WellheadErrorRatioSlow",
    "WellheadLatencyHigh",
    "WellheadQuotaRefusals",
    "WellheadRateHeld",
    "WellheadSharedStoreAway",
    "WellheadSpendForecast",
    "WellheadTenantQuotaNearlySpent",
    "WellheadUpstreamDown",
    "WellheadUpstreamKeyRefused",
    "WellheadUpstreamLagging",
    "WellheadUpstreamSpent",
    "WellheadUpstreamWrongChain",
    "WellheadVoidAnswers",
];

/// Those of which there is no trace here.
const NOT_EXPECTED: [&str; 7] = [
    "WellheadAnswersRefused",
    "WellheadFileDescriptors",
    "WellheadKeysReturned",
    "WellheadKeysStale",
    "WellheadStateNotWritten",
    "WellheadUpstreamDissents",
    "WellheadWorkerStuck",
];

/// Alerts as Alertmanager delivered them last, by name.
fn arrived(webhook: &Webhook) -> BTreeMap<String, Value> {
    let messages = webhook.bodies();
    let alerts = messages.iter().flat_map(|it| it["alerts"].as_array().into_iter().flatten());
    let name = |alert: &Value| alert["labels"]["alertname"].as_str().unwrap_or_default().to_owned();
    alerts.map(|alert| (name(alert), alert.clone())).collect()
}

fn names(webhook: &Webhook) -> BTreeSet<String> {
    arrived(webhook).into_keys().collect()
}

/// Nodes, faults before them, and wellhead.
struct Site {
    wellhead: Wellhead,
    /// One that does not reach the store that it shares limits through.
    lonely: Wellhead,
    proxies: BTreeMap<&'static str, FaultProxy>,
    /// Callers whose tenant has no quota, and one whose tenant has a small one.
    free: String,
    busy: String,
    _nodes: Vec<Node>,
    _keys: KeyFile,
    _folder: TempDir,
}

/// Name and id of a chain, and its upstreams with what else they have in the config.
type ChainRow = (&'static str, u64, &'static [(&'static str, &'static str)]);

const CHAINS: [ChainRow; 6] = [
    (
        "main",
        31_337,
        &[
            ("good", ""),
            ("down", ""),
            ("lagging", ""),
            ("refused", ""),
            ("wrong", ""),
            ("capped", ", weight: 10, budget: { credits_per_day: 50 }"),
        ],
    ),
    ("dead", 31_338, &[("gone", "")]),
    ("busy", 31_339, &[("slow", ", budget: { calls_per_second: 5, in_flight: 50 }")]),
    ("still", 31_340, &[("frozen", "")]),
    ("limited", 31_341, &[("throttled", "")]),
    ("lies", 31_342, &[("lying", "")]),
];

impl Site {
    async fn start() -> Self {
        let (mut nodes, mut proxies, mut chains) = (Vec::new(), BTreeMap::new(), String::new());
        for (chain, id, upstreams) in CHAINS {
            let node = match chain {
                "still" => Anvil::by_hand(id, 1_700_000_000).await,
                _ => Anvil::start(id).await,
            };
            let rpc = Rpc::new(node.port, "/");
            rpc.result("anvil_mine", json!([format!("{:#x}", 2 * LAG_BLOCKS)])).await.unwrap();
            chains.push_str(&format!(
                "  {chain}:\n    id: {id}\n    block_time: 1s\n    verify: {{ level: cheap }}\n    upstreams:\n"
            ));
            for (upstream, more) in upstreams {
                let proxy = FaultProxy::start(node.port).await;
                let url = proxy.url();
                chains.push_str(&format!("      - {{ id: {upstream}, url: \"{url}\"{more} }}\n"));
                proxies.insert(*upstream, proxy);
            }
            nodes.push(node);
        }
        let (mut keys, folder) = (KeyFile::new(), tempfile::tempdir().unwrap());
        let (free, busy) = (keys.add("free", |_| ()), keys.add("busy", |_| ()));
        let more = format!(
            "state: \"{}\"\naccess: {{ keys: {{ file: \"{}\" }} }}\n\
             tenants: {{ free: {{}}, busy: {{ quota: small }} }}\n\
             quotas: {{ small: {{ calls_per_second: 10, credits_per_day: 300 }} }}\n",
            folder.path().join("state").display(),
            keys.path().display(),
        );
        proxies["wrong"].set(Fault::WrongChain(5));
        proxies["lagging"].set(Fault::Lagging(LAG_BLOCKS));
        let wellhead = Wellhead::spawn(&more, &chains).ready().await;
        // Nothing listens there.
        let store = format!("\"redis://127.0.0.1:{}\"", free_port());
        let shared =
            format!("shared: {{ redis: {store} }}\ncache: {{ redis: {{ url: {store} }} }}\n");
        let upstream = Upstream::new("good", &proxies["good"].url());
        let lonely = Wellhead::start_with(&shared, CHAINS[0].1, &[upstream]).await;
        let site = Self {
            wellhead,
            lonely,
            proxies,
            free,
            busy,
            _nodes: nodes,
            _keys: keys,
            _folder: folder,
        };
        site.verified().await;
        site.fail();
        site
    }

    /// Waits until all upstreams but `wrong` were in use.
    async fn verified(&self) {
        let all: usize = CHAINS.iter().map(|(.., upstreams)| upstreams.len()).sum();
        let verified = until(BOUND, || async {
            (self.wellhead.process.lines_with("upstream verified") >= all - 1).then_some(())
        });
        assert!(verified.await.is_some(), "{}", self.wellhead.process.log());
    }

    fn fail(&self) {
        let lie = Rewrite::new(|call, reply| {
            if call["method"] == "eth_getBlockByNumber" && call["params"][0] == "0x1" {
                reply["result"]["number"] = json!("0x2");
            }
        });
        for (upstream, fault) in [
            ("down", Fault::Status(503)),
            ("refused", Fault::Status(401)),
            ("gone", Fault::Status(503)),
            ("slow", Fault::Slow("eth_getBalance", Duration::from_millis(2_200))),
            ("throttled", Fault::TooMany(1)),
            ("lying", Fault::Rewritten(lie)),
        ] {
            self.proxies[upstream].set(fault);
        }
    }

    fn rpc(&self, chain: &str, key: &str) -> Rpc {
        Rpc::new(self.wellhead.port, &format!("/{chain}/{key}"))
    }

    /// Calls that go on until the set is dropped.
    fn traffic(&self) -> JoinSet<()> {
        let mut traffic = JoinSet::new();
        for (chain, pause_ms) in
            [("main", 10), ("dead", 100), ("still", 100), ("limited", 50), ("lies", 100)]
        {
            traffic.spawn(callers(self.rpc(chain, &self.free), Duration::from_millis(pause_ms)));
        }
        traffic.spawn(callers(self.rpc("main", &self.busy), Duration::from_millis(50)));
        traffic.spawn(many_callers(self.rpc("busy", &self.free), Duration::from_millis(50)));
        traffic
    }
}

async fn metrics(wellhead: &Wellhead) -> String {
    wellhead.admin().get("/metrics").await.unwrap().text()
}

fn balance(number: u64) -> Value {
    json!([format!("{:#042x}", number + 0x10_0000), "latest"])
}

/// One call after the other; each fifth is for a block that the cache may have.
async fn callers(rpc: Rpc, pause: Duration) {
    let mut ticks = interval(pause);
    for number in 0.. {
        ticks.tick().await;
        // What becomes of it is told by the metrics.
        let _any = match number % 5 {
            0 => rpc.call("eth_getBlockByNumber", json!(["0x1", false])).await,
            _ => rpc.call("eth_getBalance", balance(number)).await,
        };
    }
}

/// Calls that do not wait for one another.
async fn many_callers(rpc: Rpc, pause: Duration) {
    let (rpc, mut ticks, mut calls) = (Arc::new(rpc), interval(pause), JoinSet::new());
    for number in 0.. {
        ticks.tick().await;
        while calls.try_join_next().is_some() {}
        if calls.len() < SLOW_CALLS_MAX {
            let rpc = Arc::clone(&rpc);
            calls.spawn(async move { rpc.call("eth_getBalance", balance(number)).await.map(drop) });
        }
    }
}

/// The rules as shipped, but that an alert fires at once: without `for`, with rates of seconds, and with a chain
/// that is stalled after 10 block times.
fn impatient_rules() -> String {
    let rules = text("deploy/prometheus/rules.yaml");
    let lines = rules.lines().filter(|line| !line.starts_with("        for: "));
    let rules: String = lines.map(|line| format!("{line}\n")).collect();
    let changed = rules.replace("[5m]", "[15s]").replace("[10m]", "[15s]");
    changed
        .replace("wellhead_chain_block_time_seconds, 180", "wellhead_chain_block_time_seconds, 5")
}

/// Each series has the labels, and their values, that docs/metrics.md promises. Returns the metrics that are there, with
/// their labels.
fn compare_with_the_page(metrics: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (documented, listed) = (documented(), listed_values());
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once(['{', ' ']).unwrap();
        let known = documented.get(name).unwrap_or_else(|| panic!("not documented: {line}"));
        let labels = if line.contains('{') { rest } else { "" };
        let parts: Vec<&str> =
            labels.split(['"', '}']).map(|it| it.trim_matches([',', '='])).collect();
        // What follows the last label is the value of the series.
        let pairs = parts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let pairs: BTreeMap<&str, &str> = pairs.filter(|(label, _)| !label.is_empty()).collect();
        let labels: BTreeSet<String> = pairs.keys().map(|label| (*label).to_owned()).collect();
        assert_eq!(labels, *known, "{line}");
        let family = name.strip_suffix("_total").unwrap_or(name);
        for row in listed.iter().filter(|row| row.families.iter().any(|it| it == family)) {
            let value = pairs.get(row.label.as_str());
            let is_listed = value.is_none_or(|value| row.values.contains(*value));
            assert!(is_listed, "`{}` has another value: {line}", row.label);
        }
    }
    let heads = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exported: BTreeSet<String> = heads
        .flat_map(|(name, kind)| match kind {
            "counter" => vec![format!("{name}_total")],
            "histogram" => ["bucket", "sum", "count"].map(|it| format!("{name}_{it}")).to_vec(),
            _ => vec![name.to_owned()],
        })
        .collect();
    let known: BTreeSet<String> = documented.keys().cloned().collect();
    assert_eq!(exported, known, "what runs, and what is documented");
    documented
}

/// A query as Grafana sends it when all is chosen.
fn chosen(expression: &str) -> String {
    let mut chosen = expression.replace("$__rate_interval", "15s");
    for variable in ["job", "chain", "upstream", "tenant"] {
        chosen = chosen.replace(&format!("\"${variable}\""), "\".*\"");
    }
    assert!(!chosen.contains('$'), "{chosen}");
    chosen
}

/// The queries that give no number.
async fn without_data(prometheus: &Prometheus) -> Vec<String> {
    let mut without = Vec::new();
    for (title, expression) in dashboard_queries().into_iter().chain(page_queries()) {
        let series = prometheus.query(&chosen(&expression)).await.unwrap();
        let has_number = |it: &Value| it["value"][1].as_str().is_some_and(|value| value != "NaN");
        // `study.rs` has a limit to find, and checks the series of these.
        let is_of_studies = expression.contains("wellhead_study_");
        if !is_of_studies && !series.iter().any(has_number) {
            without.push(format!("{title}: {expression}"));
        }
    }
    without
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_arrive_and_dashboards_have_data() {
    let site = Site::start().await;
    let webhook = Webhook::listen().await;
    let alertmanager = Alertmanager::before(webhook.port).await;
    let targets = [site.wellhead.admin_port, site.lonely.admin_port];
    let prometheus = Prometheus::start(&targets, &impatient_rules(), &alertmanager).await;
    let _traffic = site.traffic();
    let expected: BTreeSet<String> = EXPECTED.iter().map(|&name| name.to_owned()).collect();
    let all = until(BOUND, || async { names(&webhook).is_superset(&expected).then_some(()) });
    let all = all.await;
    let names = names(&webhook);
    assert!(
        all.is_some(),
        "missing: {:?}\n{}\n{}",
        expected.difference(&names).collect::<Vec<_>>(),
        prometheus.process.log(),
        alertmanager.process.log(),
    );
    for name in NOT_EXPECTED {
        assert!(!names.contains(name), "{name}");
    }
    for (name, alert) in arrived(&webhook) {
        let annotations = alert["annotations"].to_string();
        assert!(!annotations.contains("<error") && !annotations.contains("<no value>"), "{alert}");
        assert!(annotations.contains(&format!("#{}", name.to_lowercase())), "{alert}");
    }

    // Of a counter that has just appeared there is no rate yet.
    let data = || async { without_data(&prometheus).await.is_empty().then_some(()) };
    if until(BOUND, data).await.is_none() {
        panic!("without data:\n{}", without_data(&prometheus).await.join("\n"));
    }

    let age = "time() - process_start_time_seconds and on (job, instance) wellhead_build_info";
    for process in prometheus.query(age).await.unwrap() {
        let age: f64 = process["value"][1].as_str().unwrap().parse().unwrap();
        assert!((0.0..600.0).contains(&age), "{process}");
    }

    compare_with_the_page(&metrics(&site.lonely).await);
    let metrics = compare_with_the_page(&metrics(&site.wellhead).await);
    let expressions = alerts().into_iter().chain(dashboard_queries());
    let problems: Vec<_> = expressions.flat_map(|(_, it)| unknown(&it, &metrics)).collect();
    assert_eq!(problems, Vec::<String>::new());
}
