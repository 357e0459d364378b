//! From the duration of a call to its trace, as Prometheus keeps it.

use std::time::Duration;

use serde_json::json;
use wellhead_e2e::{Alertmanager, Anvil, Prometheus, Upstream, Wellhead, until};

const CHAIN: u64 = 31_337;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Far more than a few scrapes take.
const BOUND: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_keeps_the_trace_of_a_call() {
    let node = Anvil::start(CHAIN).await;
    // No collector takes the traces: that they are kept is enough.
    let settings = "traces: { endpoint: \"http://127.0.0.1:1/v1/traces\", sample: 100% }";
    let upstreams = [Upstream::new("a", &format!("http://127.0.0.1:{}", node.port))];
    let wellhead = Wellhead::start_with(settings, CHAIN, &upstreams).await;
    let alertmanager = Alertmanager::before(1).await;
    let prometheus = Prometheus::start(&[wellhead.admin_port], "groups: []", &alertmanager).await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_gasPrice", "params": [] });
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let headers = [("content-type", "application/json"), ("traceparent", &*parent)];
    let sent = wellhead.rpc().send("POST", "/", &headers, call.to_string().into()).await.unwrap();
    assert_eq!(sent.status, 200);
    let found = until(BOUND, || async {
        let all = prometheus.exemplars("wellhead_call_duration_seconds_bucket").await.ok()?;
        let series = all.into_iter().find(|it| it.to_string().contains(TRACE))?;
        Some(series["seriesLabels"].clone())
    });
    let labels = found.await.unwrap_or_else(|| panic!("{}", prometheus.process.log()));
    assert_eq!((&labels["class"], &labels["job"]), (&json!("light"), &json!("wellhead")));
}
