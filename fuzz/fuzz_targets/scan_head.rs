//! The head of a reply, at every length: never at odds with the whole, never of two minds.
//!
//! The comparison is the property tests' own, so that what is found here can be
//! kept there as a case.

#![no_main]

#[path = "../../crates/jsonrpc/tests/oracle/mod.rs"]
mod oracle;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| oracle::check_head(body, 256));
