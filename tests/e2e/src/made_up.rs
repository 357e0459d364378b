//! What upstreams that are no nodes tell, and what tests draw: blocks, balances, a clock and chance.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

/// The time since 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "programs judge keys and blocks by the machine's")]
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// SplitMix64: chance that is the same in each run.
#[must_use]
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The last 16 digits of an address, as a quantity: what a caller expects to get back.
#[must_use]
pub fn tail(address: &str) -> String {
    let digits = address.get(address.len().saturating_sub(16)..).unwrap_or_default();
    format!("{:#x}", u64::from_str_radix(digits, 16).unwrap_or_default())
}

/// A block without transactions.
#[must_use]
pub fn empty_block(number: u64, unix_secs: u64) -> Value {
    let hash = |number: u64| format!("0x{:064x}", mix(number));
    json!({
        "number": format!("{number:#x}"),
        "hash": hash(number),
        "parentHash": hash(number.saturating_sub(1)),
        "timestamp": format!("{unix_secs:#x}"),
        "gasLimit": "0x2255100",
        "gasUsed": "0x112a880",
        "baseFeePerGas": "0x2540be400",
        "logsBloom": format!("0x{:0512}", 0),
        "transactions": [],
        "uncles": [],
    })
}
