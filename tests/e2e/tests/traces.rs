//! Traces, as the OpenTelemetry Collector takes them.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

mod with_collector {
    mod with_anvil {
        use std::time::Duration;

        use serde_json::{Value, json};
        use wellhead_e2e::{
            Anvil, CollectedSpan, Collector, Fault, FaultProxy, Node, Rewrite, Signal, Tap,
            Upstream, Wellhead, WsClient, until,
        };

        const CHAIN: u64 = 31_337;
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        const SPAN: &str = "00f067aa0ba902b7";
        const ADDRESS: &str = Anvil::RICH_ADDRESS;
        /// Far more than any of it takes, for a machine that is busy.
        const BOUND: Duration = Duration::from_secs(60);

        /// Two upstreams of one node. The first fails for one method, and is told of traces.
        struct Site {
            node: Node,
            fault: FaultProxy,
            first: Tap,
            second: Tap,
            collector: Collector,
            to_collector: Tap,
            wellhead: Wellhead,
        }

        impl Site {
            async fn start(traces: &str) -> Self {
                let node = Anvil::start(CHAIN).await;
                let fault = FaultProxy::start(node.port).await;
                let (first, second) =
                    (Tap::before(fault.port()).await, Tap::before(node.port).await);
                let collector = Collector::start().await;
                let to_collector = Tap::before(collector.port()).await;
                let settings = format!(
                    "traces: {{ endpoint: \"{}/v1/traces\", auth: {{ bearer: COLLECTOR-SECRET }}, \
                     service: rpc, instance: rpc-0, {traces} }}",
                    to_collector.url()
                );
                let upstreams = [
                    Upstream::new("first", &format!("{}/v2/URL-SECRET", first.url())).with(
                        "propagate_trace: true, headers: { x-key: HEADER-SECRET }, http: \"1.1\"",
                    ),
                    Upstream::new("second", &second.url()).with("tier: fallback, http: \"1.1\""),
                ];
                let wellhead = Wellhead::start_with(&settings, CHAIN, &upstreams).await;
                Self { node, fault, first, second, collector, to_collector, wellhead }
            }

            /// The first upstream fails calls of this method.
            fn fail(&self, method: &'static str) {
                self.fault.set(Fault::Rewritten(Rewrite::new(move |call, reply| {
                    if call["method"] == method {
                        *reply = json!({ "jsonrpc": "2.0", "id": call["id"],
                            "error": { "code": -32603, "message": "internal error" } });
                    }
                })));
            }

            /// Posts a body as a part of a trace, if one is given.
            async fn post(&self, body: &Value, traceparent: Option<&str>) -> Value {
                let mut headers = vec![("content-type", "application/json")];
                headers.extend(traceparent.map(|it| ("traceparent", it)));
                let body = body.to_string().into();
                let reply = self.wellhead.rpc().send("POST", "/", &headers, body).await.unwrap();
                reply.json().unwrap_or_default()
            }

            /// The value of a series of `/metrics`; 0 without it.
            async fn metric(&self, series: &str) -> u64 {
                let text = self.wellhead.admin().get("/metrics").await.unwrap().text();
                let line =
                    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
                line.map_or(0, |value| value.parse().unwrap())
            }
        }

        fn call(method: &str, params: &Value) -> Value {
            json!({ "jsonrpc": "2.0", "id": "CLIENT-ID", "method": method, "params": params })
        }

        /// Name, kind, and these attributes of each, those below another one under it and to the right.
        fn tree(spans: &[CollectedSpan], attributes: &[&str]) -> Vec<String> {
            let mut lines = Vec::new();
            write_below(&mut lines, spans, &spans[0], attributes, 0);
            assert_eq!(lines.len(), spans.len(), "a span is below none: {spans:?}");
            lines
        }

        fn write_below(
            lines: &mut Vec<String>,
            spans: &[CollectedSpan],
            span: &CollectedSpan,
            attributes: &[&str],
            depth: usize,
        ) {
            let kind = match span.json["kind"].as_u64() {
                Some(2) => "server",
                Some(3) => "client",
                _ => "internal",
            };
            let values = attributes.iter().map(|name| span.attribute(name));
            let values: Vec<_> = values.filter(|value| !value.is_empty()).collect();
            let indent = "  ".repeat(depth);
            lines.push(format!("{indent}{kind} {} {}", span.text("name"), values.join(" ")));
            let id = span.text("spanId");
            let mut below: Vec<_> =
                spans[1..].iter().filter(|it| it.text("parentSpanId") == id).collect();
            below.sort_by_key(|it| {
                (it.text("startTimeUnixNano").to_owned(), it.text("name").to_owned())
            });
            below.iter().for_each(|it| write_below(lines, spans, it, attributes, depth + 1));
        }

        const TOLD: &[&str] = &[
            "rpc.method",
            "http.response.status_code",
            "network.protocol.name",
            "peer.service",
            "wellhead.outcome",
            "wellhead.attempt",
            "wellhead.verdict",
            "wellhead.cache",
        ];

        #[tokio::test]
        async fn a_call_that_fails_over_is_a_tree_that_continues_its_client_s_trace() {
            let site = Site::start("sample: 100%").await;
            site.fail("eth_getBalance");
            let body = call("eth_getBalance", &json!([ADDRESS, "latest"]));
            let answer = site.post(&body, Some(&format!("00-{TRACE}-{SPAN}-01"))).await;
            assert!(answer["result"].is_string(), "{answer}");
            let spans = site.collector.trace(|it| it.text("parentSpanId") == SPAN).await;
            assert_eq!(
                tree(&spans, TOLD),
                [
                    "server eth_getBalance eth_getBalance 200 http answered miss",
                    "  client eth_getBalance eth_getBalance first first fault",
                    "  client eth_getBalance eth_getBalance second retry answer",
                ]
            );
            let root = &spans[0];
            assert_eq!(root.text("traceId"), TRACE);
            for (name, value) in [
                ("service.name", "rpc"),
                ("service.instance.id", "rpc-0"),
                ("service.version", env!("CARGO_PKG_VERSION")),
            ] {
                assert_eq!(root.resource(name), value, "{name}");
            }
            assert_eq!(root.attribute("wellhead.chain"), "main");
            assert_eq!(root.attribute("rpc.system"), "jsonrpc");
            assert_eq!(root.attribute("client.address"), "127.0.0.1");
            let codes: Vec<_> = spans.iter().map(|it| it.json["status"]["code"].as_u64()).collect();
            assert_eq!(codes, [None, Some(2), None], "the first attempt failed");
            // Each lies within the one above it, in this minute.
            let time = |span: &CollectedSpan, field: &str| span.text(field).parse::<u64>().unwrap();
            let (began, ended) = (time(root, "startTimeUnixNano"), time(root, "endTimeUnixNano"));
            // The node makes a block a second by the clock of this machine.
            let latest = json!(["latest", false]);
            let head = site.node.rpc().result("eth_getBlockByNumber", latest).await.unwrap();
            let unix = u64::from_str_radix(&head["timestamp"].as_str().unwrap()[2..], 16).unwrap();
            assert!((ended / 1_000_000_000).abs_diff(unix) < 60, "{ended} at {unix}");
            for span in &spans[1..] {
                let (from, to) = (time(span, "startTimeUnixNano"), time(span, "endTimeUnixNano"));
                assert!(began <= from && from <= to && to <= ended, "{spans:?}");
            }
            // The first upstream was told of the attempt that it was, and the second of nothing.
            let told = format!("traceparent: 00-{TRACE}-{}-01\r\n", spans[1].text("spanId"));
            let sent = |tap: &Tap| String::from_utf8_lossy(&tap.sent()).to_ascii_lowercase();
            assert!(sent(&site.first).contains(&told), "{told} {}", sent(&site.first));
            assert_eq!(sent(&site.first).matches(TRACE).count(), 1);
            assert_eq!(sent(&site.second).matches("traceparent").count(), 0);
        }

        #[tokio::test]
        async fn batches_websocket_and_the_cache_have_their_spans() {
            let site = Site::start("sample: 100%").await;
            let block = json!(["0x0", false]);
            let kept = || async {
                let rpc = site.wellhead.rpc();
                let reply =
                    rpc.call_with_reply("eth_getBlockByNumber", block.clone()).await.ok()?;
                (reply.1.header("x-wellhead-cache") == "hit").then_some(())
            };
            assert!(until(BOUND, kept).await.is_some(), "{}", site.wellhead.process.log());
            let hit = site.collector.trace(|it| it.attribute("wellhead.cache") == "hit").await;
            assert_eq!(
                tree(&hit, TOLD),
                ["server eth_getBlockByNumber eth_getBlockByNumber 200 http answered hit"]
            );

            let calls = [
                call("eth_getCode", &json!([ADDRESS, "latest"])),
                call("eth_getTransactionCount", &json!([ADDRESS, "latest"])),
                call("eth_chainId", &json!([])),
            ];
            site.post(&json!(calls), None).await;
            let batch = site.collector.trace(|it| it.text("name") == "batch").await;
            let mut lines = tree(&batch, TOLD);
            assert_eq!(lines.remove(0), "server batch 200 http");
            lines.sort_unstable();
            assert_eq!(
                lines,
                [
                    "  client batch first",
                    "  internal eth_chainId eth_chainId answered",
                    "  internal eth_getCode eth_getCode answered",
                    "  internal eth_getTransactionCount eth_getTransactionCount answered",
                ]
            );

            let mut socket = WsClient::connect(site.wellhead.port).await;
            socket.call("eth_getStorageAt", json!([ADDRESS, "0x0", "latest"])).await.unwrap();
            let message = site.collector.trace(|it| it.text("name") == "eth_getStorageAt").await;
            assert_eq!(
                tree(&message, TOLD),
                [
                    "server eth_getStorageAt eth_getStorageAt websocket answered miss",
                    "  client eth_getStorageAt eth_getStorageAt first first answer",
                ]
            );
        }

        #[tokio::test]
        async fn no_secret_is_in_a_trace_and_the_collector_is_shown_its_token() {
            let site = Site::start("sample: 100%").await;
            site.fail("eth_getBalance");
            site.post(&call("eth_getBalance", &json!([ADDRESS, "latest"])), None).await;
            site.post(&json!([call("eth_getCode", &json!([ADDRESS, "latest"])), 1]), None).await;
            // A key in the place of a method.
            site.post(&call("wh_live_abcdefgh_0123456789012345678901234567", &json!([])), None)
                .await;
            let of_first = |it: &CollectedSpan| it.text("name") == "eth_getBalance";
            site.collector.trace(of_first).await;
            let spans = until(BOUND, || async {
                let roots = site.collector.spans().into_iter().filter(|it| it.json["kind"] == 2);
                (roots.count() >= 3).then_some(())
            });
            assert!(spans.await.is_some(), "{}", site.collector.written());
            let written = site.collector.written().to_lowercase();
            for secret in [
                "URL-SECRET",
                "HEADER-SECRET",
                "COLLECTOR-SECRET",
                "CLIENT-ID",
                ADDRESS,
                &ADDRESS[2..],
                "internal error",
                "0123456789012345678901234567",
            ] {
                assert!(!written.contains(&secret.to_lowercase()), "{secret} is in {written}");
            }
            let sent = site.to_collector.sent();
            let sent = String::from_utf8_lossy(&sent);
            assert!(sent.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{sent}");
            assert!(sent.contains("authorization: Bearer COLLECTOR-SECRET\r\n"), "{sent}");
            assert!(sent.contains("content-type: application/x-protobuf\r\n"), "{sent}");
            assert!(!site.wellhead.process.printed().contains("SECRET"));
        }

        #[tokio::test]
        async fn what_fails_has_its_trace_without_a_sample() {
            let site = Site::start("sample: 0%").await;
            let asked = call("eth_getBalance", &json!([ADDRESS, "latest"]));
            // A client alone cannot have it sampled.
            site.post(&asked, Some(&format!("00-{TRACE}-{SPAN}-01"))).await;
            site.node.process.signal(Signal::Kill);
            let answer = site.post(&call("eth_getCode", &json!([ADDRESS, "latest"])), None).await;
            assert!(answer["error"].is_object(), "{answer}");
            let spans = site.collector.trace(|it| it.text("name") == "eth_getCode").await;
            assert_eq!(spans[0].attribute("wellhead.trace.cause"), "error");
            assert_eq!(spans[0].json["status"]["code"], 2, "{:?}", spans[0]);
            assert_eq!(site.collector.spans().iter().filter(|it| it.json["kind"] == 2).count(), 1);
        }

        #[tokio::test]
        async fn another_sample_needs_no_restart() {
            let site = Site::start("sample: 0%").await;
            let silent = call("eth_getCode", &json!([ADDRESS, "latest"]));
            site.post(&silent, None).await;
            site.wellhead.rewrite(|config| config.replace("sample: 0%", "sample: 100%"));
            let reload = async || {
                let headers = [("x-wellhead-admin", "1")];
                let admin = site.wellhead.admin();
                admin.send("POST", "/reload", &headers, Vec::new().into()).await.unwrap()
            };
            let reply = reload().await;
            let told = reply.json().unwrap();
            assert_eq!(told["needs_restart"], json!([]), "{told}");
            site.post(&call("net_version", &json!([])), None).await;
            site.collector.trace(|it| it.text("name") == "net_version").await;
            assert!(site.collector.spans().iter().all(|it| it.text("name") != "eth_getCode"));
            site.wellhead.rewrite(|config| config.replace("service: rpc", "service: other"));
            let told = reload().await.json().unwrap();
            assert_eq!(told["needs_restart"][0]["setting"], "traces.service", "{told}");
        }

        #[tokio::test]
        async fn a_collector_that_is_killed_holds_up_nothing_and_is_used_when_it_is_back() {
            let mut site = Site::start("sample: 100%, queue: 64").await;
            let asked = call("eth_chainId", &json!([]));
            site.post(&asked, None).await;
            site.collector.trace(|it| it.text("name") == "eth_chainId").await;
            site.collector.kill().await;
            // More than the queue and the batch in hand take: they hold 64 and 512 spans.
            for _ in 0..700 {
                let began = tokio::time::Instant::now();
                assert_eq!(site.post(&asked, None).await["result"], "0x7a69");
                assert!(began.elapsed() < Duration::from_secs(5), "it waits for the collector");
            }
            let dropped = "wellhead_traces_dropped_total{reason=\"queue_full\"}";
            let dropped = site.metric(dropped).await;
            assert!((1..=700 - 64).contains(&dropped), "{dropped}");
            let failed = || async {
                let log = &site.wellhead.process;
                (log.lines_with("traces were not taken") > 0).then_some(())
            };
            assert!(until(BOUND, failed).await.is_some(), "{}", site.wellhead.process.log());
            let sent = site.metric("wellhead_traces_sent_total{}").await;
            site.collector.start_again().await;
            let again = || async {
                (site.metric("wellhead_traces_sent_total{}").await > sent).then_some(())
            };
            assert!(until(BOUND, again).await.is_some(), "{}", site.wellhead.process.log());
            site.post(&call("net_version", &json!([])), None).await;
            site.collector.trace(|it| it.text("name") == "net_version").await;
            let log = &site.wellhead.process;
            assert_eq!(log.lines_with("traces were not taken"), 1, "{}", log.log());
            assert_eq!(log.lines_with("traces are taken again"), 1, "{}", log.log());
        }

        #[tokio::test]
        async fn the_last_traces_leave_before_the_process_ends() {
            let mut site = Site::start("sample: 100%").await;
            site.post(&call("net_version", &json!([])), None).await;
            site.wellhead.process.signal(Signal::Term);
            assert_eq!(site.wellhead.process.exit_code(BOUND).await, Some(0));
            assert!(site.collector.spans().iter().any(|it| it.text("name") == "net_version"));
        }
    }
}
