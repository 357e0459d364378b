//! Looking into values: no bytes make it panic, and valid ones are seen as `serde_json` sees them.
//!
//! The comparison is the property tests' own, so that what is found here can be
//! kept there as a case.

#![no_main]

#[path = "../../crates/jsonrpc/tests/oracle/mod.rs"]
mod oracle;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| oracle::check_raw(bytes));
