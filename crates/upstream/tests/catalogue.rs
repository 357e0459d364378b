//! The catalogue of what upstreams are known to say, line by line: `catalogue.txt`.
//!
//! A rule's own recorded errors are tested in `rules`; this is the other way round, so
//! that a rule which is narrowed, moved or deleted cannot silently lose a dialect.

use wellhead_eth::MethodTable;
use wellhead_jsonrpc::write;
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::{HealthEffect, Judge, TryElsewhere, Verdict, VerdictClass};

/// Fewer means that lines were lost.
const LINES_MIN: usize = 320;

fn judge(method: &str, code: i64, message: &str) -> Verdict {
    let row = MethodTable::standard().row(method);
    assert!(!row.is_unknown(), "{method}");
    let mut body = Vec::new();
    write::error(&mut body, Some(b"1"), code, message, None);
    Judge::standard().reply(row, &WireReply::whole(200, body, Timing::default()))
}

#[test]
fn every_line_is_judged_as_it_says() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let text = include_str!("catalogue.txt");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        count += 1;
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("too short: {line}"));
        let (class, method, code, message) = (word(), word(), word(), word());
        let class = VerdictClass::from_word(class).unwrap_or_else(|| panic!("no class: {line}"));
        let code = code.parse().unwrap_or_else(|_| panic!("no code: {line}"));
        let verdict = judge(method, code, message);
        if verdict.class != class {
            wrong.push(format!("{line}: {} by {}", verdict.class, verdict.rule));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= LINES_MIN, "{count}");
}

#[test]
fn what_no_rule_knows_is_tried_once_elsewhere_and_harms_no_upstream() {
    for code in [-32000, -32099, -32050, 12, 0] {
        let verdict = judge("eth_call", code, "the moon is in the wrong house");
        let expected = (VerdictClass::Unknown, TryElsewhere::Once, HealthEffect::Neutral);
        assert_eq!((verdict.class, verdict.elsewhere, verdict.health), expected, "{code}");
    }
}
