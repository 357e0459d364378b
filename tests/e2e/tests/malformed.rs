//! Bad input, each with the exact answer it gets, and a server that lives on.
//!
//! The table is `data/malformed.json`: what is sent, and the status and body
//! that come back. With `BLESS=1` the run writes what it saw into the table
//! instead of comparing; read the difference before committing it.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it does not expect")]

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_e2e::Wellhead;

const AT_LEAST: usize = 100;

fn table() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/malformed.json")
}

/// A body is text, or base64 where it is none, or a short piece many times.
fn body(sent: &Value) -> Bytes {
    if let Some(text) = sent["body"].as_str() {
        return Bytes::copy_from_slice(text.as_bytes());
    }
    if let Some(encoded) = sent["base64"].as_str() {
        return STANDARD.decode(encoded).unwrap().into();
    }
    let part = |name: &str| sent["repeat"][name].as_str().unwrap_or_default().to_owned();
    let times = usize::try_from(sent["repeat"]["times"].as_u64().unwrap()).unwrap();
    let middle = part("piece").repeat(times);
    Bytes::from(format!("{}{middle}{}", part("before"), part("after")))
}

/// What came back, byte for byte: a number type would round large ids.
async fn answer(wellhead: &Wellhead, sent: &Value) -> Value {
    let method = sent["method"].as_str().unwrap_or("POST");
    let path = sent["path"].as_str().unwrap_or("/");
    let mut headers = vec![("content-type", "application/json")];
    for (name, value) in sent["headers"].as_object().into_iter().flatten() {
        headers.retain(|(other, _)| other != name);
        if let Some(value) = value.as_str() {
            headers.push((name, value));
        }
    }
    match wellhead.rpc().send(method, path, &headers, body(sent)).await {
        Ok(reply) => {
            let body = reply.text();
            json!({ "status": reply.status, "body": body })
        }
        Err(why) => json!({ "failed": why }),
    }
}

mod with_anvil {
    use wellhead_e2e::{Anvil, Upstream};

    use super::*;

    #[tokio::test]
    async fn each_gets_its_answer() {
        let node = Anvil::start(31337).await;
        let mut wellhead = Wellhead::start(31337, &[Upstream::new("node", &node.url())]).await;
        let mut cases: Vec<Value> =
            serde_json::from_slice(&std::fs::read(table()).unwrap()).unwrap();
        assert!(cases.len() >= AT_LEAST, "{} cases", cases.len());
        let bless = std::env::var_os("BLESS").is_some();
        let mut wrong = Vec::new();
        for case in &mut cases {
            let seen = answer(&wellhead, &case["send"]).await;
            if bless {
                case["then"] = seen;
            } else if case["then"] != seen {
                wrong.push(format!(
                    "{}:\n  expected {}\n  seen     {seen}",
                    case["case"], case["then"]
                ));
            }
        }
        if bless {
            let mut text = serde_json::to_string_pretty(&cases).unwrap();
            text.push('\n');
            std::fs::write(table(), text).unwrap();
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
        let alive = wellhead.rpc().result("eth_chainId", json!([])).await;
        assert_eq!(alive.unwrap(), "0x7a69");
        assert_eq!(wellhead.process.exit_code(std::time::Duration::ZERO).await, None);
    }
}
