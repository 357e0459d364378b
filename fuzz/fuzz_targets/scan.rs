//! What an upstream may answer: accepted exactly when `serde_json` accepts it, and read alike.
//!
//! The comparison is the property tests' own, so that what is found here can be
//! kept there as a case.

#![no_main]

#[path = "../../crates/jsonrpc/tests/oracle/mod.rs"]
mod oracle;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| oracle::check_scan(body));
