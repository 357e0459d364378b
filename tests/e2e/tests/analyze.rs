//! `wellhead analyze` against endpoints that ask for more than a URL: nginx with an authority of its
//! own, a password and a header, before a real node; and a run from the proxy's config.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use wellhead_e2e::{
    Anvil, Certificate, Nginx, Process, Rpc, Upstream, Wellhead, binary, free_port, until,
};

const BOUND: Duration = Duration::from_secs(30);

/// nginx before a node: over TLS, for users with the password and the header.
async fn guarded(node: u16, certificate: &Certificate, folder: &Path) -> Nginx {
    let users = folder.join("users");
    std::fs::write(&users, "me:{PLAIN}PASSKEY1\n").unwrap();
    let [file, key, _] = certificate.files();
    let server = format!(
        "ssl_certificate {};
         ssl_certificate_key {};
         location / {{
           if ($http_x_team != \"TEAMKEY2\") {{ return 403; }}
           auth_basic node;
           auth_basic_user_file {};
           proxy_pass http://127.0.0.1:{node};
         }}",
        file.display(),
        key.display(),
        users.display()
    );
    Nginx::with("ssl", &server).await
}

/// The exit code, and all that it said.
fn analyze(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary()).arg("analyze").args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// All files of a run as one text.
fn files(dir: &Path) -> String {
    let files = std::fs::read_dir(dir).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_behind_an_authority_a_password_and_a_header() {
    let folder = TempDir::new().unwrap();
    let certificate = Certificate::new();
    let node = Anvil::start(31337).await;
    let nginx = guarded(node.port, &certificate, folder.path()).await;
    let headers = folder.path().join("headers");
    std::fs::write(&headers, "x-team: TEAMKEY2\n").unwrap();
    let header = format!("@{}", headers.display());
    let ca = certificate.files()[0].display().to_string();
    let url = format!("https://me:PASSKEY1@localhost:{}/", nginx.port);
    let resolve = format!("localhost:{}:127.0.0.1", nginx.port);
    let out = folder.path().join("run");
    let out = out.display().to_string();
    let common = ["--resolve", &resolve, "--out", &out, &url];
    let load = ["load", "--rates", "10", "--seconds", "2", "--ca-file", &ca, "--header", &header];

    let (code, said) = analyze(&[&load[..], &common].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("20 calls, 0 throttled, 0 failed"), "{said}");
    let kept = said + &files(Path::new(&out));
    assert!(!kept.contains("PASSKEY1") && !kept.contains("TEAMKEY2"), "{kept}");

    // Each of them is needed, and its absence is told.
    let without_password = url.replace("me:PASSKEY1@", "");
    for (words, url, expected) in [
        (&load[..5], &url, "tls"),
        (&load[..7], &url, "auth (http-403)"),
        (&load[..], &without_password, "auth (http-401)"),
    ] {
        std::fs::remove_dir_all(&out).unwrap();
        let (code, said) = analyze(&[words, &common[..4], &[url]].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "no `{expected}`: {said}");
    }
}

/// nginx before a node, for clients that show this certificate.
async fn demanding(node: u16, server: &Certificate, client: &Certificate) -> Nginx {
    let [file, key, _] = server.files();
    let server = format!(
        "ssl_certificate {};
         ssl_certificate_key {};
         ssl_client_certificate {};
         ssl_verify_client on;
         location / {{ proxy_pass http://127.0.0.1:{node}; }}",
        file.display(),
        key.display(),
        client.files()[0].display()
    );
    Nginx::with("ssl", &server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_asks_for_a_client_certificate() {
    let folder = TempDir::new().unwrap();
    let (certificate, client) = (Certificate::new(), Certificate::new());
    let node = Anvil::start(31337).await;
    let nginx = demanding(node.port, &certificate, &client).await;
    let shown = |file: &Path| file.display().to_string();
    let (ca, [cert, key, _]) =
        (shown(&certificate.files()[0]), client.files().map(|it| shown(&it)));
    let url = format!("https://localhost:{}/", nginx.port);
    let resolve = format!("localhost:{}:127.0.0.1", nginx.port);
    let run = |name: &str, words: &[&str]| {
        let out = folder.path().join(name).display().to_string();
        let load = ["load", "--rates", "10", "--seconds", "2", "--ca-file", &ca, "--out", &out];
        analyze(&[&load[..], &["--resolve", &resolve, &url], words].concat())
    };
    let (code, said) = run("with", &["--client-cert", &cert, "--client-key", &key]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("20 calls, 0 throttled, 0 failed"), "{said}");
    // nginx answers a client without one with a page.
    let (code, said) = run("without", &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("fault (body-html)"), "{said}");

    let stranger = Certificate::new();
    let other = stranger.files().map(|it| shown(&it));
    let (code, said) = run("other", &["--client-cert", &other[0], "--client-key", &other[1]]);
    assert_eq!(code, Some(2), "{said}");

    // The proxy shows it as well.
    let files = format!("ca_file: {ca}, client_cert_file: {cert}, client_key_file: {key}");
    let upstream = Upstream::new("inner", &url).with(&files);
    let wellhead = Wellhead::start(31337, &[upstream]).await;
    let params = json!(["0x0", false]);
    let block = wellhead.rpc().result("eth_getBlockByNumber", params).await.unwrap();
    assert_eq!(block["number"], "0x0", "{block}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_the_config_is_a_target_with_its_settings() {
    let folder = TempDir::new().unwrap();
    let certificate = Certificate::new();
    let node = Anvil::start(31337).await;
    let nginx = guarded(node.port, &certificate, folder.path()).await;
    let config = folder.path().join("wellhead.yaml");
    let text = format!(
        "chains:\n  dev:\n    id: 31337\n    upstreams:\n      - id: inner\n        \
         url: https://localhost:{}/\n        headers: {{ x-team: TEAMKEY2 }}\n        \
         auth: {{ basic: {{ user: me, password: PASSKEY1 }} }}\n        ca_file: {}\n",
        nginx.port,
        certificate.files()[0].display()
    );
    std::fs::write(&config, text).unwrap();
    let (config, out) = (config.display().to_string(), folder.path().join("run"));
    let out = out.display().to_string();
    let words = ["throttle", "--at-once", "1,2,3", "--connections", "1", "--calls", "20"];
    let target = ["--config", &config, "--upstream", "inner", "--out", &out];
    let (code, said) = analyze(&[&words[..], &target].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("inner (localhost"), "{said}");
    let kept = said + &files(Path::new(&out));
    assert!(!kept.contains("PASSKEY1") && !kept.contains("TEAMKEY2"), "{kept}");

    // The order of its cells is drawn from a seed that is another one for each run, and is kept.
    let (code, said) = analyze(&["resume", &out]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 cells were completed before"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_batches_calls_of_ones_own_and_recorded_traffic() {
    let folder = TempDir::new().unwrap();
    let node = Anvil::start(31337).await;
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let run = |name: &str, words: &[&str]| {
        let out = folder.path().join(name).display().to_string();
        let (code, said) = analyze(&[words, &["--out", &out]].concat());
        assert_eq!(code, Some(0), "{name}: {said}");
        (said, std::fs::read_to_string(Path::new(&out).join("records.jsonl")).unwrap())
    };
    let rate = ["--rates", "10", "--seconds", "2"];

    let (said, records) = run("ws", &[&["load", &node.ws_url()], &rate[..]].concat());
    assert!(said.contains(": WebSocket, chain 31337"), "{said}");
    assert!(said.contains("20 calls, 0 throttled, 0 failed"), "{said}");
    assert_eq!(records.matches(r#""protocol":"ws""#).count(), 20, "{records}");

    let (said, records) =
        run("batch", &[&["load", "--batch", "7", &node.url()], &rate[..]].concat());
    assert!(said.contains("at most 152 calls"), "{said}");
    assert!(said.contains("20 calls, 0 throttled, 0 failed"), "{said}");
    assert_eq!(records.matches(r#""rule":"batch-whole""#).count(), 20, "{records}");

    let own = file(
        "own.jsonl",
        "{\"method\":\"eth_getBalance\",\"params\":[\"0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266\",\"latest\"]}\n\
         [{\"id\":1,\"jsonrpc\":\"2.0\",\"method\":\"web3_sha3\",\"params\":[\"0x01\"]}]\n",
    );
    let (said, records) =
        run("own", &[&["load", "--calls-from", &own, &node.url()], &rate[..]].concat());
    assert!(said.contains("work listed: 20 calls, 0 throttled, 0 failed"), "{said}");
    let methods = ["eth_getBalance", "web3_sha3"].map(|name| records.matches(name).count());
    assert!(methods.iter().all(|count| *count > 2) && methods.iter().sum::<usize>() == 20);

    let line = |at: &str, method: &str| {
        format!(
            "{{\"timestamp\":\"2026-11-25T16:42:{at}Z\",\"level\":\"INFO\",\"message\":\"request\",\
             \"method\":\"{method}\",\"status\":200,\"target\":\"wellhead::request\"}}\n"
        )
    };
    let log = [
        line("10.0", "eth_blockNumber"),
        line("12.0", "eth_call"),
        line("13.0", "eth_sendRawTransaction"),
        line("14.0", "eth_getBalance"),
    ];
    let log = file("log.jsonl", &log.concat());
    let (said, records) = run("replay", &["replay", "--from", &log, "--speed", "4", &node.url()]);
    assert!(said.contains("3 calls; 1 lines of the log are left out"), "{said}");
    assert!(said.contains("replay speed 4: 3 calls, 0 throttled, 0 failed"), "{said}");
    let order = ["eth_blockNumber", "eth_call", "eth_getBalance"].map(|name| records.find(name));
    assert!(order.is_sorted() && order[0].is_some(), "{records}");
}

/// 20 batches of 7 calls of 10 CU each; before them 3 calls that greet (30 CU) and up to 12 that open connections. A
/// quarter of 152 calls may be sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_in_credits_money_and_a_share_of_the_month() {
    let folder = TempDir::new().unwrap();
    let node = Anvil::start(31337).await;
    let out = folder.path().join("run").display().to_string();
    let url = node.url();
    let load = ["load", "--work", "cheap", "--batch", "7", "--rates", "10", "--seconds", "2", &url];
    let price = ["--provider", "alchemy", "--plan", "free", "--usd-per-million", "0.45"];
    let words = [&load[..], &price, &["--out", &out]].concat();
    let (code, said) = analyze(&[&words[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let most = "total, with the first calls: at most 1550 CU, 0.005 % of a month of the plan `free`, \
                less than 0.001 USD";
    assert!(said.contains(most), "{said}");
    let more =
        "too busy: at most 380 CU, 0.001 % of a month of the plan `free`, less than 0.001 USD";
    assert!(said.contains(more), "{said}");
    let (code, said) = analyze(&words);
    assert_eq!(code, Some(0), "{said}");
    let spent = "20 recorded requests cost 1400 CU, 0.005 % of a month of the plan `free`, \
                 less than 0.001 USD";
    assert!(said.contains(&format!("target-1: {spent}")), "{said}");
    let report = std::fs::read_to_string(Path::new(&out).join("report.html")).unwrap();
    assert!(report.contains(spent), "the report has no costs");
    let charts = folder.path().join("charts").display().to_string();
    let (code, said) = analyze(&["report", &out, "--svg", &charts]);
    assert_eq!(code, Some(0), "{said}");
    let files = std::fs::read_dir(&charts).unwrap().flatten().map(|file| file.path());
    let is_chart = |file: &std::path::PathBuf| {
        std::fs::read_to_string(file).is_ok_and(|text| text.starts_with("<svg xmlns="))
    };
    // A machine that is too busy costs the report some of them.
    let drawn = report.matches("class=\"chart\"").count();
    assert!(
        drawn > 0 && files.filter(is_chart).count() == drawn,
        "{drawn} in the report: {charts}"
    );
}

/// One node behind two URLs: its heads arrive at about the same time, none is missing and none is double.
#[tokio::test(flavor = "multi_thread")]
async fn heads_are_pushed_by_two_endpoints() {
    let folder = TempDir::new().unwrap();
    let node = Anvil::start(31337).await;
    let out = folder.path().join("run").display().to_string();
    let (one, other) = (format!("one={}", node.url()), format!("other={}", node.ws_url()));
    let words = ["fresh", "--subscribe", "--seconds", "10", "--ws", &node.ws_url(), &one, &other];
    let (code, said) = analyze(&[&words[..], &["--out", &out]].concat());
    assert_eq!(code, Some(0), "{said}");
    let counts = "heads were pushed; none came for 0 heights, 0 came twice, and the connection was lost 0 times";
    assert_eq!(said.matches(counts).count(), 2, "{said}");
    let records = std::fs::read_to_string(Path::new(&out).join("records.jsonl")).unwrap();
    assert_eq!(records.matches("eth_subscribe").count(), 2, "{records}");
    // A block a second.
    assert!(records.matches(r#""block":"#).count() >= 12, "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_the_proxy_is_replayed() {
    let folder = TempDir::new().unwrap();
    let node = Anvil::start(31337).await;
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let command = [&binary().display().to_string(), "serve", &node.url()];
    let command: Vec<String> = command.iter().map(|word| (*word).to_string()).collect();
    let more = ["--listen", &listen, "--admin", "off"].map(str::to_owned);
    let proxy = Process::start(&[&command[..], &more].concat(), folder.path().join("proxy.log"));
    let rpc = Rpc::new(port, "/");
    let height = || async { rpc.result("eth_blockNumber", json!([])).await.ok() };
    assert!(until(BOUND, height).await.is_some(), "{}", proxy.log());
    rpc.result("eth_getBalance", json!([Anvil::RICH_ADDRESS, "latest"])).await.unwrap();
    let is_logged = || async { proxy.log().contains("eth_getBalance").then_some(()) };
    assert!(until(BOUND, is_logged).await.is_some(), "{}", proxy.log());
    let log = folder.path().join("traffic.jsonl");
    std::fs::write(&log, proxy.log()).unwrap();
    let (log, out) = (log.display().to_string(), folder.path().join("run").display().to_string());
    let (code, said) =
        analyze(&["replay", "--from", &log, "--speed", "10", &node.url(), "--out", &out]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("calls, 0 throttled, 0 failed"), "{said}");
    let records = std::fs::read_to_string(Path::new(&out).join("records.jsonl")).unwrap();
    // In their order; which of them ends first is not decided here.
    assert!(records.contains(r#""n":0,"method":"eth_blockNumber""#), "{records}");
    assert_eq!(records.matches(r#""method":"eth_getBalance""#).count(), 1, "{records}");
}
