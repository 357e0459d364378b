//! What an upstream sends over HTTP/2, and what its readers do meanwhile.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| wellhead_net::fuzzing::h2(script));
