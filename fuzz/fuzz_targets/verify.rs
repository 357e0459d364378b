//! Answers, calls and headers from outside: nothing panics, and full finds what cheap finds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wellhead_eth::{ChainId, MethodTable};
use wellhead_verify::{Filter, AnswerFinding, HeaderFacts, KnownFacts, Level, Rules, sender_of_raw, verify};

fuzz_target!(|data: &[u8]| {
    let _ = sender_of_raw(data);
    let Some((&which, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(3, |byte| *byte == b'\n');
    let (Some(params), Some(header), Some(result)) = (parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    let header = HeaderFacts::read(header);
    // Only the methods with checks: few enough for one byte.
    let rows: Vec<_> = MethodTable::standard()
        .rows()
        .iter()
        .filter(|row| wellhead_verify::has_checks(row))
        .collect();
    let row = rows[usize::from(which) % rows.len()];
    let _ = Filter::read(row, Some(params));
    for rules in [Rules::Ethereum, Rules::Unknown] {
        let known = KnownFacts {
            chain_id: Some(ChainId(1)),
            rules,
            header: header.as_ref(),
            ..KnownFacts::default()
        };
        let cheap = verify(Level::Cheap, row, Some(params), result, &known);
        let full = verify(Level::Full, row, Some(params), result, &known);
        if matches!(cheap, AnswerFinding::Void { .. }) {
            assert!(matches!(full, AnswerFinding::Void { .. }), "{cheap:?}, then {full:?}");
        }
    }
});
