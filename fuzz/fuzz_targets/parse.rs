//! What a client may send: accepted exactly when `serde_json` accepts it, and read alike.
//!
//! The comparison is the property tests' own, so that what is found here can be
//! kept there as a case.

#![no_main]

#[path = "../../crates/jsonrpc/tests/oracle/mod.rs"]
mod oracle;

use libfuzzer_sys::fuzz_target;
use wellhead_jsonrpc::ParseLimits;

/// Small bounds, so that the fuzzer finds its way to them.
const SMALL: ParseLimits = ParseLimits { batch_items_max: 3, depth_max: 4 };

fuzz_target!(|body: &[u8]| {
    oracle::check_parse(body, SMALL);
    oracle::check_parse(body, ParseLimits::default());
});
