//! What the request path pays for a key, a hit, a miss and a flight, in nanoseconds.
//!
//! `cargo bench -p wellhead-cache` prints the best and the median of many rounds; on a
//! busy machine only the best means anything. It asserts nothing: machines differ by more
//! than our changes do, so compare with the yardsticks of the same run.

#[path = "../../jsonrpc/benches/support/rounds.rs"]
mod rounds;

use std::hint::black_box;
use std::time::Duration;

use wellhead_cache::{
    Assurance, CacheRequest, Canon, FlightKey, FlightLimits, Flights, Joined, Key, Memory, Pin,
    Point, ReplyContent, Times, rule,
};
use wellhead_eth::{BlockHash, BlockNumber, ChainId, MethodTable};

use rounds::Rounds;

const ROUNDS: usize = 101;
const ROUND: Duration = Duration::from_millis(4);

/// A view that remembers one block.
struct View;

const HASH: BlockHash = BlockHash([7; 32]);

impl Canon for View {
    fn head(&self) -> Option<BlockNumber> {
        Some(BlockNumber(20_000_000))
    }
    fn finalized(&self) -> Option<BlockNumber> {
        Some(BlockNumber(19_999_900))
    }
    fn hash_at(&self, _: BlockNumber) -> Option<BlockHash> {
        Some(HASH)
    }
    fn number_of(&self, _: &BlockHash) -> Option<BlockNumber> {
        self.head()
    }
}

fn main() {
    let balance = r#"["0xa0B86991c6218b36c1d19D4a2e9Eb0cE3606eB48","latest"]"#;
    let call = r#"[{"to":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","data":"0x70a0823100000000000000000000000028c6c06298d514db089934071355e5743bf21d60"},"latest"]"#;
    let logs = r#"[{"fromBlock":"0x1312d00","toBlock":"0x1312d64","address":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","topics":["0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",null,["0x00000000000000000000000028c6c06298d514db089934071355e5743bf21d60"]]}]"#;
    let multicall = format!(
        r#"[{{"to":"0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48","data":"0x{}"}},"latest"]"#,
        "70a08231".repeat(1250)
    );
    let pin = Pin::Block(Point::Hash(HASH));
    for (name, method, params) in [
        ("key of eth_getBalance", "eth_getBalance", balance),
        ("key of eth_call", "eth_call", call),
        ("key of eth_getLogs", "eth_getLogs", logs),
        ("key of eth_call with 5 KB of data", "eth_call", &multicall),
    ] {
        measure(name, params.len(), || Key::of(&black_box(ask(method, params, pin))));
    }
    let key = Key::of(&ask("eth_call", call, pin)).expect("a good call");
    measure("  digest of it (blake3)", key.as_bytes().len(), || {
        black_box(&key).digest(&BlockHash([7; 32]))
    });
    measure("  its canonical form by serde_json", call.len(), || {
        let value: serde_json::Value = serde_json::from_str(black_box(call)).expect("JSON");
        value.to_string()
    });

    let memory = Memory::new(64 << 20, 42);
    let ruling = rule(
        &ask("eth_call", call, pin),
        ReplyContent::Result(b"\"0x1\""),
        &View,
        Times::default(),
        0,
    );
    for number in 0..50_000 {
        let salt = format!("{number}");
        let key = Key::of(&CacheRequest { salt: salt.as_bytes(), ..ask("eth_call", call, pin) });
        memory.put(&key.expect("a good call"), ruling, b"\"0x1234567890abcdef\"");
    }
    memory.put(&key, ruling, b"\"0x1234567890abcdef\"");
    measure("hit that asks the view", key.as_bytes().len(), || {
        memory.get(black_box(&key), &View, Assurance::WORD, 0)
    });
    let final_pin = Pin::Block(Point::Final(BlockNumber(1)));
    let final_key = Key::of(&ask("eth_call", call, final_pin)).expect("a good call");
    let ruling = rule(
        &ask("eth_call", call, final_pin),
        ReplyContent::Result(b"\"0x1\""),
        &View,
        Times::default(),
        0,
    );
    memory.put(&final_key, ruling, b"\"0x1234567890abcdef\"");
    measure("hit of what is final", final_key.as_bytes().len(), || {
        memory.get(black_box(&final_key), &View, Assurance::WORD, 0)
    });
    let other = Key::of(&ask("eth_getBalance", balance, pin)).expect("a good call");
    measure("miss", other.as_bytes().len(), || {
        memory.get(black_box(&other), &View, Assurance::WORD, 0)
    });
    measure("key and hit together", call.len(), || {
        let key = Key::of(&black_box(ask("eth_call", call, final_pin))).expect("a good call");
        memory.get(&key, &View, Assurance::WORD, 0)
    });
    measure("put 20 B again", 20, || {
        memory.put(&key, black_box(ruling), b"\"0x1234567890abcdef\"")
    });

    let flights: Flights<u64> = Flights::new(FlightLimits::default(), 42);
    let flight_key = FlightKey { key, head: View.head() };
    measure("flight begun and landed", 0, || match flights.join(flight_key.clone()) {
        Joined::Lead(lead) => lead.land(1),
        Joined::Follow(_) | Joined::Alone => unreachable!("no other call is there"),
    });
}

fn ask<'a>(method: &str, params: &'a str, pin: Pin) -> CacheRequest<'a> {
    let row = MethodTable::standard().row(method);
    CacheRequest {
        chain: ChainId(1),
        row,
        params: Some(params.as_bytes()),
        pin,
        head: None,
        salt: b"",
    }
}

#[allow(clippy::print_stdout, reason = "the report of a bench goes to the terminal")]
fn measure<T>(name: &str, bytes: usize, operation: impl FnMut() -> T) {
    let Rounds { best, median } = Rounds::of(ROUNDS, ROUND, operation);
    println!("{name:36} {bytes:>6} B  best {best:>8.1} ns  median {median:>8.1} ns");
}
