//! Clients that make an upstream say something: refusals of one kind of call, and errors that
//! quote the request with our secrets in it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::ground::{Ground, exchange, head};

/// What an upstream of these tests is given as secrets: a part of the path, one of the query, a
/// header's value, and a password.
pub const SECRETS: [&str; 4] =
    ["pathkeyabcdefg", "Que-ry+Key/9=", "team~Secret$Value", "pass:Word99"];
const USER: &str = "operator";
/// Between two calls of the attack.
const CALL_EVERY: Duration = Duration::from_millis(50);
const ANSWER_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The fields of a config's upstream with [`SECRETS`], below this address.
pub(super) fn secret_fields(url: &str) -> (String, String) {
    let [path, query, header, password] = SECRETS;
    let query = query.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let fields = format!(
        "headers: {{ x-team: \"{header}\" }}, auth: {{ basic: {{ user: {USER}, password: \"{password}\" }} }}"
    );
    (format!("{url}/v2/{path}?key={query}"), fields)
}

/// Calls of a kind that the upstream refuses, beside those of the caller that it serves.
pub(super) async fn refused_kind(ground: &Arc<Ground>) {
    while !ground.is_over() {
        let _refused = ask(ground).await;
        sleep(CALL_EVERY).await;
    }
}

/// Calls whose answers quote their request.
pub(super) async fn echoed_secrets(ground: &Arc<Ground>) {
    let spellings = spellings();
    while !ground.is_over() {
        let answer = ask(ground).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&answer).into_owned();
        for spelling in &spellings {
            if text.contains(spelling) {
                let row = format!("the answer shows `{spelling}`");
                if !ground.violations().contains(&row) {
                    ground.violation(row);
                }
            }
        }
        sleep(CALL_EVERY).await;
    }
    ground.remark(format!(
        "{} answers looked at for {} spellings",
        ground.client_calls(),
        spellings.len()
    ));
}

async fn ask(ground: &Ground) -> Option<Vec<u8>> {
    let number = ground.client_calls();
    let to = format!("0x{:040x}", 0xbbbb_0000_0000_u64 + number);
    let params = json!([{ "to": to, "data": "0x40" }, "latest"]);
    let call = json!({ "jsonrpc": "2.0", "id": number, "method": "eth_call", "params": params });
    let body = call.to_string();
    let mut stream = ground.connect().await.ok()?;
    let more = format!("content-length: {}\r\nconnection: close\r\n", body.len());
    let request = head(&ground.host(), &more) + &body;
    ground.count_calls(1);
    Some(exchange(&mut stream, request.as_bytes(), ANSWER_MAX, ANSWER_BYTES_MAX).await)
}

/// Each secret as it may be quoted.
fn spellings() -> Vec<String> {
    let basic = format!("{USER}:{}", SECRETS[3]);
    let mut all = vec![STANDARD.encode(&basic), URL_SAFE_NO_PAD.encode(&basic)];
    for secret in SECRETS {
        let encoded: String = secret
            .bytes()
            .map(|byte| match byte.is_ascii_alphanumeric() {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect();
        all.extend([
            secret.to_owned(),
            secret.to_ascii_lowercase(),
            secret.to_ascii_uppercase(),
            STANDARD.encode(secret),
            encoded,
        ]);
    }
    all.sort();
    all.dedup();
    all
}
