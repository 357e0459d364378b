//! What the request path pays for reading JSON-RPC, in nanoseconds per operation.
//!
//! `cargo bench -p wellhead-jsonrpc` prints the median and the best of many
//! rounds; on a busy machine only the best means anything. It asserts nothing:
//! machines differ by more than our changes do, so compare with the yardsticks
//! of the same run.

#[path = "support/rounds.rs"]
mod rounds;

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use wellhead_jsonrpc::{
    Nesting, ParseLimits, parse, scan, scan_batch, scan_error, scan_head, write,
};

use rounds::Rounds;

const ROUNDS: usize = 101;
const ROUND: Duration = Duration::from_millis(4);

fn main() {
    let call = Bytes::from(call_of_200_bytes(1));
    // As those of a connection: already shared, so that a clone only counts up.
    let _shared = call.clone();
    let batch: Vec<_> = (0..20).map(call_of_200_bytes).collect();
    let batch = Bytes::from(format!("[{}]", batch.join(",")));
    let limits = ParseLimits::default();
    measure("parse 200 B call", call.len(), || parse(black_box(&call), limits).is_ok());
    measure("parse batch of 20 calls", batch.len(), || parse(black_box(&batch), limits).is_ok());

    let small = br#"{"jsonrpc":"2.0","id":12345,"result":"0x1234567890abcdef"}"#.to_vec();
    let logs = reply("id", &logs_of(300_000));
    let logs_id_last = reply("", &logs_of(300_000)).replace("}]}", r#"}],"id":12345}"#);
    let code = reply("id", &format!("\"0x{}\"", "6080604052".repeat(30_000)));
    let accents = reply("id", &format!("\"{}\"", "être ou ne pas être ".repeat(14_000)));
    let replies = format!("[{}]", vec![String::from_utf8_lossy(&small); 20].join(","));
    measure("scan_head, id leads", logs.len(), || scan_head(black_box(&logs.as_bytes()[..4096])));
    measure("scan 58 B reply", small.len(), || scan(black_box(&small)));
    measure("scan batch of 20 replies", replies.len(), || {
        scan_batch(black_box(replies.as_bytes()), 20).is_ok()
    });
    measure("scan 300 KB of logs", logs.len(), || scan(black_box(logs.as_bytes())));
    measure("scan 300 KB of logs, id last", logs_id_last.len(), || {
        scan(black_box(logs_id_last.as_bytes()))
    });
    measure("scan 300 KB of one hex string", code.len(), || scan(black_box(code.as_bytes())));
    measure("scan 300 KB beyond ASCII", accents.len(), || scan(black_box(accents.as_bytes())));

    for (name, text) in [("follow 300 KB of logs", &logs), ("follow 300 KB of one string", &code)] {
        measure(name, text.len(), || {
            let mut nesting = Nesting::in_object();
            nesting.read(black_box(&text.as_bytes()[1..]));
            assert!(nesting.is_whole());
        });
    }

    // The yardstick: on the same machine, in the same minute.
    measure("  serde_json validates the call", call.len(), || {
        serde_json::from_slice::<serde::de::IgnoredAny>(black_box(&call)).is_ok()
    });
    measure("  serde_json validates the logs", logs.len(), || {
        serde_json::from_slice::<serde::de::IgnoredAny>(black_box(logs.as_bytes())).is_ok()
    });
    measure("  UTF-8 check of the logs", logs.len(), || {
        std::str::from_utf8(black_box(logs.as_bytes())).is_ok()
    });

    let error = br#"{"code":3,"message":"execution reverted: not enough","data":"0x08c379a0"}"#;
    measure("scan_error", error.len(), || scan_error(black_box(error)).is_some());
    let mut out = Vec::with_capacity(1024);
    measure("write a call", 0, || {
        out.clear();
        write::call(&mut out, black_box(12345), "eth_call", Some(black_box(&call[52..])));
        out.len()
    });
    measure("write a reply", small.len(), || {
        out.clear();
        write::result(&mut out, Some(black_box(b"12345")), black_box(&small));
        out.len()
    });
}

#[allow(clippy::print_stdout, reason = "the report of a bench goes to the terminal")]
fn measure<T>(name: &str, bytes: usize, operation: impl FnMut() -> T) {
    let Rounds { best, median } = Rounds::of(ROUNDS, ROUND, operation);
    println!(
        "{name:32} {bytes:>7} B  best {best:>9.1} ns  median {median:>9.1} ns  {:>6.2} GB/s",
        bytes as f64 / best
    );
}

fn call_of_200_bytes(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"eth_call","params":[{{"to":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","data":"0x70a0823100000000000000000000000028c6c06298d514db089934071355e5743bf21d60"}},"latest"]}}"#
    )
}

fn reply(id: &str, result: &str) -> String {
    match id {
        "" => format!(r#"{{"jsonrpc":"2.0","result":{result}}}"#),
        _ => format!(r#"{{"jsonrpc":"2.0","{id}":12345,"result":{result}}}"#),
    }
}

fn logs_of(bytes: usize) -> String {
    let log = r#"{"address":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","topics":["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef","0x00000000000000000000000028c6c06298d514db089934071355e5743bf21d60","0x0000000000000000000000005041ed759dd4afc3a72b8192c143f72f4724081a"],"data":"0x000000000000000000000000000000000000000000000000000000001dcd6500","blockNumber":"0x12d4f1a","transactionHash":"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060","transactionIndex":"0x4f","blockHash":"0x1d59ff54b1eb26b013ce3cb5fc9dab3705b415a67127a003c3e61eb445bb8df2","logIndex":"0x9a","removed":false}"#;
    format!("[{}]", vec![log; bytes / log.len()].join(","))
}
