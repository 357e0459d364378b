//! The admin listener of the binary: tokens with roles, and what was used to the last call.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_e2e::{
    HttpReply, KeyFile, Process, Rpc, WsClient, attack, binary, free_port, guard_secret, until,
};

use crate::site::{Site, balance_call};

/// Usage is told of whole minutes, some seconds after each.
const MINUTE_TOLD_WITHIN: Duration = Duration::from_secs(100);

/// `wellhead token`: the token, and the settings that accept it, whole.
fn token(name: &str, roles: &[&str]) -> (String, String) {
    let mut command = Command::new(binary());
    command.args(["token", name]);
    for role in roles {
        command.args(["--role", role]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (first, settings) = printed.split_once("\n\n").unwrap();
    let text = first.rsplit(' ').next().unwrap().to_owned();
    guard_secret(&text);
    (text, settings.to_owned())
}

async fn get(admin: &Rpc, path: &str, token: &str) -> HttpReply {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer)];
    let headers = if token.is_empty() { &[][..] } else { &headers[..] };
    admin.send("GET", path, headers, Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn tokens_have_roles() {
    let (view, settings) = token("viewer", &["view"]);
    let (keys, more) = token("keeper", &["keys"]);
    // The second list goes on where the first ends.
    let settings = settings + "\n" + more.split_once("tokens:\n").unwrap().1;
    let site = Site::start(&settings).await;
    let admin = site.wellhead.admin();
    for (path, by_none, by_keys, by_view) in [
        ("/livez", 200, 200, 200),
        ("/readyz", 200, 200, 200),
        ("/metrics", 200, 200, 200),
        ("/status", 401, 403, 200),
        ("/usage", 401, 403, 200),
    ] {
        let stranger = keys.replace("wh_admin", "wh_other");
        for (token, status) in
            [("", by_none), (&*stranger, by_none), (&*keys, by_keys), (&*view, by_view)]
        {
            let reply = get(admin, path, token).await;
            assert_eq!(reply.status, status, "{path} with `{token}`: {reply:?}");
            let challenge = if status == 401 { "Bearer" } else { "" };
            assert!(reply.header("www-authenticate").starts_with(challenge), "{reply:?}");
            assert!(reply.header("www-authenticate").is_empty() == challenge.is_empty());
        }
    }
    let log = site.wellhead.process.printed();
    assert!(!log.contains(&view[9..]) && !log.contains(&keys[9..]), "{log}");
}

/// The rows of `/usage` as far as they are named: by key, method and outcome, with calls.
async fn usage(admin: &Rpc) -> Vec<(String, Value)> {
    let reply = get(admin, "/usage?by=key,method,outcome", "").await;
    let body = reply.json().unwrap();
    let rows = body["rows"].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows
        .map(|row| {
            let [key, method, outcome] =
                ["key", "method", "outcome"].map(|it| row[it].as_str().unwrap());
            (format!("{key} {method} {outcome}"), row["calls"].clone())
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

#[tokio::test]
async fn usage_is_told_to_the_last_call() {
    let mut keys = KeyFile::new();
    let [http, socket] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let bounded = keys.add("acme", |record| record.quota = Some("small".to_owned()));
    let settings = format!(
        "access: {{ keys: {{ file: \"{}\" }}, prices: [ {{ methods: [eth_getBalance], credits: 7 }} ] }}\n\
         tenants: {{ acme: {{}} }}\nquotas: {{ small: {{ credits_per_day: 14 }} }}\n",
        keys.path().display()
    );
    let site = Site::start(&settings).await;
    let client = site.client(&http);
    for number in 0..5 {
        let (call, _) = balance_call(number);
        assert_eq!(client.post(call.to_string()).await.unwrap().status, 200);
    }
    let batch: Value = (10..14).map(|number| balance_call(number).0).collect();
    assert_eq!(client.post(batch.to_string()).await.unwrap().status, 200);
    let connected = WsClient::connect_to(site.port(), &format!("/{socket}"), &[]).await;
    let mut connected = connected.unwrap_or_else(|reply| panic!("{reply:?}"));
    for number in 20..23 {
        connected.call("eth_getBalance", balance_call(number).0["params"].clone()).await.unwrap();
    }
    connected.call("eth_chainId", json!([])).await.unwrap();
    let bounded_client = site.client(&bounded);
    for number in 30..36 {
        bounded_client.post(balance_call(number).0.to_string()).await.unwrap();
    }

    let id = |key: &str| key.split('_').nth(2).unwrap().to_owned();
    let mut expected = vec![
        (format!("{} eth_getBalance answered", id(&http)), json!(9)),
        (format!("{} eth_getBalance answered", id(&socket)), json!(3)),
        (format!("{} eth_chainId answered", id(&socket)), json!(1)),
        (format!("{} eth_getBalance answered", id(&bounded)), json!(2)),
        (format!("{} eth_getBalance limited", id(&bounded)), json!(4)),
    ];
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    let admin = site.wellhead.admin();
    let told = || async { Some(usage(admin).await).filter(|rows| *rows == expected) };
    let told = until(MINUTE_TOLD_WITHIN, told).await;
    assert!(told.is_some(), "{:?}\nexpected {expected:?}", usage(admin).await);
    let csv = get(admin, "/usage?by=tenant&format=csv", "").await;
    let csv = csv.text();
    println!("{csv}");
    // Fourteen calls that were served, of seven credits each but for eth_chainId.
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

async fn answers(client: &Rpc, body: &str, status: u16) -> Option<()> {
    let reply = client.post(body.to_owned()).await.ok()?;
    (reply.status == status).then_some(())
}

/// The three commands of docs/access.md: a key, a server that takes it, a call. Then what an operator does with it.
#[tokio::test]
async fn from_nothing_to_a_key_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.jsonl").display().to_string();
    let run = |words: &[&str]| {
        let output = Command::new(binary()).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let made = run(&["key", "create", "--file", &file, "--tenant", "acme"]);
    let is_key = |word: &&str| word.starts_with("wh_live_");
    let key = made.split_whitespace().find(is_key).unwrap_or_else(|| panic!("{made}"));
    guard_secret(key);
    let id = key.split('_').nth(2).unwrap();

    let node = attack::Upstream::start();
    let [port, admin_port] = [free_port(), free_port()];
    let listen = format!("127.0.0.1:{port}");
    let command = [
        &binary().display().to_string(),
        "serve",
        &node.url(),
        "--keys",
        &file,
        "--listen",
        &listen,
        "--admin",
        &format!("127.0.0.1:{admin_port}"),
    ];
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let process = Process::start(&command, folder.path().join("log"));
    let client = Rpc::new(port, &format!("/{key}"));
    let (call, result) = balance_call(5);
    let soon = Duration::from_secs(30);
    let answered = || async {
        let reply = client.post(call.to_string()).await.ok()?;
        assert_ne!(reply.status, 401, "{reply:?}");
        (reply.status == 200).then_some(reply)
    };
    let reply = until(soon, answered).await.unwrap_or_else(|| panic!("{}", process.log()));
    assert_eq!(reply.json().unwrap()["result"], result);

    let listed =
        run(&["key", "list", "--file", &file]) + &run(&["key", "show", id, "--file", &file]);
    let secret = key.split('_').nth(3).unwrap();
    assert!(listed.contains(id) && listed.contains("acme") && !listed.contains(secret), "{listed}");
    // A new secret beside the old one, and then neither.
    let rotated = run(&["key", "rotate", id, "--overlap", "1h", "--file", &file]);
    let new = rotated.split_whitespace().find(is_key).unwrap_or_else(|| panic!("{rotated}"));
    assert!(new != key && new.contains(id), "{rotated}");
    guard_secret(new);
    let new_client = Rpc::new(port, &format!("/{new}"));
    let body = call.to_string();
    until(soon, || answers(&new_client, &body, 200)).await.expect("the new secret is taken");
    answers(&client, &body, 200).await.expect("the old one is, too");
    run(&["key", "revoke", id, "--file", &file]);
    for client in [&client, &new_client] {
        until(soon, || answers(client, &body, 401)).await.expect("it is refused");
    }
    assert!(!process.printed().contains(secret), "{}", process.log());
}
