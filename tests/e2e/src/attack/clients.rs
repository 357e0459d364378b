//! Clients of HTTP/1.1 that hold, waste and confuse.

use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, sleep};

use super::ground::{Ground, crowd, crowd_again, drain, exchange, head, post};
use super::hostile::{gzip_bomb, zstd_bomb};

/// No attack on one connection waits longer for an answer.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The largest body by default (`limits.body_bytes`).
const BODY_BYTES: usize = 5 * 1024 * 1024;
static FILLER: [u8; 64 * 1024] = [b' '; 64 * 1024];
/// Calls of a large batch: `limits.batch_items`.
const BATCH_ITEMS: usize = 1_000;

/// A call whose answer is as long as asked for; no two numbers make the same one.
fn long_call(number: usize, answer_bytes: usize) -> serde_json::Value {
    let to = format!("0x{:040x}", 0xaaaa_0000_0000_usize + number);
    let params = json!([{ "to": to, "data": format!("0x{answer_bytes:08x}") }, "latest"]);
    json!({ "jsonrpc": "2.0", "id": number, "method": "eth_call", "params": params })
}

/// 20 MB are asked for, and read at 400 B/s.
pub(super) async fn slow_readers(ground: &Arc<Ground>) {
    const ANSWER_BYTES: usize = 20_000_000;
    let count = ground.sized(70, 40);
    crowd_again(ground, count, |ground, index| async move {
        let Ok(mut stream) = ground.connect_small().await else { return };
        let number = usize::try_from(ground.client_calls()).unwrap_or_default() * 100 + index;
        let call = long_call(number, ANSWER_BYTES).to_string();
        if stream.write_all(&post(&ground.host(), call.as_bytes())).await.is_err() {
            return;
        }
        ground.count_calls(1);
        let mut room = [0; 400];
        while stream.read(&mut room).await.is_ok_and(|read| read > 0) {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
}

/// A batch of searches that the upstream refuses for what they would find.
pub(super) async fn amplification(ground: &Arc<Ground>) {
    const BLOCKS_EACH: usize = 100_000;
    const SEARCH_MAX: Duration = Duration::from_secs(40);
    let items = ground.sized(BATCH_ITEMS, 100);
    crowd(ground, 1, move |ground, _| async move {
        let mut round = 0;
        while !ground.is_over() {
            round += 1;
            let searches: Vec<_> = (0..items)
                .map(|item| {
                    let from = 1_000_000 + item * 7 + round * 10_000;
                    let filter = json!({
                        "fromBlock": format!("{from:#x}"),
                        "toBlock": format!("{:#x}", from + BLOCKS_EACH),
                    });
                    json!({
                        "jsonrpc": "2.0", "id": item, "method": "eth_getLogs", "params": [filter],
                    })
                })
                .collect();
            let body = serde_json::Value::Array(searches).to_string();
            let Ok(mut stream) = ground.connect().await else { return };
            ground.count_calls(1);
            let most = 64 * 1024 * 1024;
            let request = post_closing(&ground, body.as_bytes());
            let answer = exchange(&mut stream, &request, SEARCH_MAX, most).await;
            let first = String::from_utf8_lossy(&answer[..answer.len().min(15)]).into_owned();
            ground.remark(format!(
                "{} KB asked, `{first}`, {} KB answered",
                body.len() / 1000,
                answer.len() / 1000
            ));
        }
    })
    .await;
}

fn post_closing(ground: &Ground, body: &[u8]) -> Vec<u8> {
    let more = format!("content-length: {}\r\nconnection: close\r\n", body.len());
    [head(&ground.host(), &more).as_bytes(), body].concat()
}

/// Batches that ask for 105 MB with 85 KB.
pub(super) async fn batch_bytes(ground: &Arc<Ground>) {
    const ANSWER_BYTES: usize = 105_000;
    let items = ground.sized(BATCH_ITEMS, 500);
    crowd_again(ground, 4, move |ground, index| async move {
        let round = usize::try_from(ground.client_calls()).unwrap_or_default();
        let calls: Vec<_> = (0..items)
            .map(|item| long_call((round * 10 + index) * BATCH_ITEMS + item, ANSWER_BYTES))
            .collect();
        let body = serde_json::Value::Array(calls).to_string();
        let Ok(mut stream) = ground.connect().await else { return };
        if stream.write_all(&post_closing(&ground, body.as_bytes())).await.is_ok() {
            ground.count_calls(1);
            drain(&mut stream).await;
        }
    })
    .await;
}

/// As many bodies as `limits.bodies_total_bytes` has room for, each without its last byte.
pub(super) async fn full_bodies(ground: &Arc<Ground>) {
    crowd_again(ground, 52, |ground, _| async move {
        let Ok(mut stream) = ground.connect().await else { return };
        let start = head(&ground.host(), &format!("content-length: {BODY_BYTES}\r\n"));
        if stream.write_all(start.as_bytes()).await.is_err() {
            return;
        }
        let mut left = BODY_BYTES - 1;
        while left > 0 {
            let piece = left.min(FILLER.len());
            if stream.write_all(&FILLER[..piece]).await.is_err() {
                return;
            }
            left -= piece;
        }
        drain(&mut stream).await;
    })
    .await;
}

/// Connections that say nothing, as many as the target takes.
pub(super) async fn idle(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(10_000, 300), |ground, _| async move {
        if let Ok(mut stream) = ground.connect().await {
            drain(&mut stream).await;
        }
    })
    .await;
}

/// Heads of which a byte comes each second.
pub(super) async fn slow_heads(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(2_000, 100), |ground, _| async move {
        let Ok(mut stream) = ground.connect().await else { return };
        let start = format!("POST / HTTP/1.1\r\nhost: {}\r\nx-slow: ", ground.host());
        let mut written = stream.write_all(start.as_bytes()).await;
        while written.is_ok() {
            sleep(Duration::from_secs(1)).await;
            written = stream.write_all(b"a").await;
        }
    })
    .await;
}

/// Bodies of which a byte comes each half second.
pub(super) async fn slow_bodies(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(2_000, 100), |ground, _| async move {
        let Ok(mut stream) = ground.connect().await else { return };
        let start = head(&ground.host(), "content-length: 100000\r\n");
        let mut written = stream.write_all(start.as_bytes()).await;
        while written.is_ok() {
            sleep(Duration::from_millis(500)).await;
            written = stream.write_all(b" ").await;
        }
    })
    .await;
}

/// Connections that are opened and closed as quickly as it goes, half of them after a call.
pub(super) async fn churn(ground: &Arc<Ground>) {
    let count = ground.sized(64, 16);
    crowd_again(ground, count, |ground, index| async move {
        // Local ports stay taken for a minute where a connection ends in an orderly way.
        for round in 0..20 {
            let Ok(mut stream) = ground.connect().await else { return };
            if (round + index) % 2 == 0 {
                let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_chainId" });
                let request = post(&ground.host(), call.to_string().as_bytes());
                exchange(&mut stream, &request, SILENCE_MAX, 1).await;
                ground.count_calls(1);
            }
            let _best_effort = stream.set_zero_linger();
        }
    })
    .await;
}

/// Clients that vanish at every stage of a call.
pub(super) async fn hang_ups(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(64, 16), |ground, index| async move {
        for stage in 0..7 {
            let Ok(mut stream) = ground.connect().await else { return };
            let call = long_call(stage * 1_000 + index, 3_000_000).to_string();
            let request = post(&ground.host(), call.as_bytes());
            let head_bytes = request.len() - call.len();
            let (send, read) = match stage {
                0 => (0, 0),
                1 => (head_bytes / 2, 0),
                2 => (head_bytes, 0),
                3 => (head_bytes + call.len() / 2, 0),
                4 => (request.len(), 0),
                5 => (request.len(), 1),
                _ => (request.len(), 100_000),
            };
            if send == request.len() {
                ground.count_calls(1);
            }
            if read > 0 {
                exchange(&mut stream, &request[..send], SILENCE_MAX, read).await;
            } else {
                let _gone = stream.write_all(&request[..send]).await;
            }
            if index % 2 == 0 {
                let _best_effort = stream.set_zero_linger();
            }
        }
    })
    .await;
}

/// Bodies that are nothing but brackets.
pub(super) async fn nesting(ground: &Arc<Ground>) {
    const DEPTH: usize = 1_000_000;
    let open = "[".repeat(DEPTH);
    let bodies: Arc<Vec<String>> = Arc::new(vec![
        open.clone(),
        format!("{open}{}", "]".repeat(DEPTH)),
        r#"{"a":"#.repeat(DEPTH),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"eth_call","params":{open}{}}}"#,
            "]".repeat(DEPTH)
        ),
        format!(r#"{{"jsonrpc":"2.0","id":{open},"method":"eth_chainId"}}"#),
    ]);
    crowd_again(ground, 8, move |ground, index| {
        let bodies = Arc::clone(&bodies);
        async move {
            let Ok(mut stream) = ground.connect().await else { return };
            let body = &bodies[index % bodies.len()];
            let request = post_closing(&ground, body.as_bytes());
            exchange(&mut stream, &request, SILENCE_MAX, 4096).await;
            ground.count_calls(1);
        }
    })
    .await;
}

/// Small bodies that inflate to half a gigabyte.
pub(super) async fn bombs(ground: &Arc<Ground>) {
    const BYTES: usize = 512 * 1024 * 1024;
    let bombs = Arc::new([("gzip", gzip_bomb(BYTES)), ("zstd", zstd_bomb(BYTES))]);
    crowd_again(ground, 16, move |ground, index| {
        let bombs = Arc::clone(&bombs);
        async move {
            let Ok(mut stream) = ground.connect().await else { return };
            let (encoding, body) = &bombs[index % bombs.len()];
            let more = format!(
                "content-encoding: {encoding}\r\ncontent-length: {}\r\nconnection: close\r\n",
                body.len()
            );
            let request = [head(&ground.host(), &more).as_bytes(), body].concat();
            let answer = exchange(&mut stream, &request, SILENCE_MAX, 4096).await;
            if answer.starts_with(b"HTTP/1.1 200") {
                ground.violation(format!("a bomb of {encoding} was answered 200"));
            }
            ground.count_calls(1);
        }
    })
    .await;
}

/// Bodies and heads that two readers may frame differently. What is behind each of them is a call
/// of a method that only this attack makes, and it must not be read as a request.
pub(super) async fn smuggling(ground: &Arc<Ground>) {
    while !ground.is_over() {
        for (name, first) in smuggling_table(&ground.host()) {
            let before = ground.upstream.smuggled();
            let Ok(mut stream) = ground.connect().await else { continue };
            let number = ground.client_calls() + 1;
            let call = json!({
                "jsonrpc": "2.0", "id": 1, "method": "eth_getUncleCountByBlockNumber",
                "params": [format!("{number:#x}")],
            });
            let hidden = post(&ground.host(), call.to_string().as_bytes());
            let bytes = [first, hidden].concat();
            let answer = exchange(&mut stream, &bytes, Duration::from_millis(300), 64 * 1024).await;
            ground.count_calls(1);
            let text = String::from_utf8_lossy(&answer);
            let status = text.get(9..12).unwrap_or("none").to_owned();
            if ground.upstream.smuggled() > before || text.contains(" 200 OK") {
                let row = format!(
                    "`{name}` was taken: status {status}, and what is behind it may be a request"
                );
                if !ground.violations().contains(&row) {
                    ground.violation(row);
                }
            }
            if ground.is_over() {
                return;
            }
        }
    }
}

/// First requests that have to be refused, with a connection that ends. Bodies are a whole call.
fn smuggling_table(host: &str) -> Vec<(&'static str, Vec<u8>)> {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
    let length = call.len();
    let chunked = format!("{length:x}\r\n{call}\r\n0\r\n\r\n");
    let with = |lines: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n{body}").into_bytes()
    };
    let te = "Transfer-Encoding: chunked\r\n";
    let chunk = |body: &str| with(te, body);
    vec![
        ("length and chunks", with(&format!("{te}Content-Length: {length}\r\n"), &chunked)),
        ("two lengths", with(&format!("Content-Length: {length}\r\nContent-Length: 0\r\n"), call)),
        ("a list of lengths", with(&format!("Content-Length: {length}, 0\r\n"), call)),
        ("length with a sign", with(&format!("Content-Length: +{length}\r\n"), call)),
        ("negative length", with("Content-Length: -1\r\n", call)),
        ("hexadecimal length", with(&format!("Content-Length: 0x{length:x}\r\n"), call)),
        ("length with zeros", with(&format!("Content-Length: 00{length}\r\n"), call)),
        ("length of two words", with(&format!("Content-Length: {length} 0\r\n"), call)),
        ("length too large", with("Content-Length: 18446744073709551676\r\n", call)),
        ("coding that is not chunked", with("Transfer-Encoding: xchunked\r\n", &chunked)),
        ("chunked not last", with("Transfer-Encoding: chunked, identity\r\n", &chunked)),
        ("chunked twice", with(&format!("{te}{te}"), &chunked)),
        ("coding with a vertical tab", with("Transfer-Encoding: \u{b}chunked\r\n", &chunked)),
        ("space before the colon", with("Transfer-Encoding : chunked\r\n", &chunked)),
        ("folded line", with("Transfer-Encoding:\r\n chunked\r\n", &chunked)),
        ("space before a name", with(&format!(" {te}"), &chunked)),
        (
            "bare LF in the head",
            format!("POST / HTTP/1.1\nHost: {host}\nContent-Length: {length}\n\n{call}")
                .into_bytes(),
        ),
        ("one bare LF", with(&format!("X-One: a\nContent-Length: {length}\r\n"), call)),
        ("bare CR in a value", with(&format!("X: a\rb\r\nContent-Length: {length}\r\n"), call)),
        ("NUL in a value", with(&format!("X: a\0b\r\nContent-Length: {length}\r\n"), call)),
        (
            "no Host",
            format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{call}").into_bytes(),
        ),
        ("two Hosts", with(&format!("Host: {host}\r\nContent-Length: {length}\r\n"), call)),
        (
            "chunks in HTTP/1.0",
            format!("POST / HTTP/1.0\r\nHost: {host}\r\n{te}\r\n{chunked}").into_bytes(),
        ),
        (
            "another version",
            format!("POST / HTTP/1.2\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{call}")
                .into_bytes(),
        ),
        ("spaces after a chunk's size", chunk(&format!("{length:x} \r\n{call}\r\n0\r\n\r\n"))),
        ("chunk's size with a sign", chunk(&format!("+{length:x}\r\n{call}\r\n0\r\n\r\n"))),
        ("chunk's size with 0x", chunk(&format!("0x{length:x}\r\n{call}\r\n0\r\n\r\n"))),
        ("chunk's size too large", chunk(&format!("1000000000000003b\r\n{call}\r\n0\r\n\r\n"))),
        ("chunk's size ends in LF", chunk(&format!("{length:x}\n{call}\r\n0\r\n\r\n"))),
        ("chunk's extension with LF", chunk(&format!("{length:x};a\nb\r\n{call}\r\n0\r\n\r\n"))),
        ("chunk longer than it says", chunk(&format!("{:x}\r\n{call}\r\n0\r\n\r\n", length - 1))),
        ("no size at all", chunk(&format!("\r\n{call}\r\n0\r\n\r\n"))),
    ]
}
