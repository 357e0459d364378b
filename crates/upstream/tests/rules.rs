//! The rules: each is tested by the errors recorded with it.

use std::collections::HashSet;

use bytes::Bytes;
use wellhead_eth::MethodTable;
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::{Judge, Payload, RuleSet, VerdictClass};

/// Fewer means that a file was lost.
const RULES_MIN: usize = 150;

#[test]
fn every_recorded_error_is_judged_by_its_own_rule() {
    let judge = Judge::standard();
    let mut wrong = Vec::new();
    for rule in &judge.rules().rules {
        for recorded in &rule.recorded {
            let row = MethodTable::standard().row(&recorded.method);
            if row.is_unknown() {
                wrong.push(format!("{}: `{}` is no known method", rule.name, recorded.method));
            }
            let body = Bytes::from(recorded.body.clone());
            let reply = WireReply::whole(recorded.status, body, Timing::default());
            let verdict = judge.reply(row, &reply);
            let expected = (rule.name, rule.class, rule.elsewhere, rule.health);
            if (verdict.rule, verdict.class, verdict.elsewhere, verdict.health) != expected {
                wrong.push(format!(
                    "{} is judged by {} as {}: {}",
                    rule.name, verdict.rule, verdict.class, recorded.body
                ));
            }
            if matches!(rule.class, VerdictClass::Auth | VerdictClass::Billing) {
                assert!(matches!(verdict.payload, Payload::None { .. }), "{}", rule.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_is_reached_and_named_once() {
    let rules = Judge::standard().rules();
    assert!(rules.rules.len() >= RULES_MIN, "{}", rules.rules.len());
    let names: HashSet<_> = rules.rules.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), rules.rules.len());
    for rule in &rules.rules {
        assert!(!rule.recorded.is_empty(), "{}", rule.name);
        let name = rule.name;
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{name}"
        );
    }
}

#[test]
fn recorded_errors_hold_no_key() {
    for rule in &Judge::standard().rules().rules {
        for recorded in &rule.recorded {
            for sign in ["/v2/", "/v3/", "api_key=", "apikey=", "quiknode.pro"] {
                assert!(!recorded.body.contains(sign), "{}: {}", rule.name, recorded.body);
            }
        }
    }
}

/// A rule that is good where `when` is.
fn rule_when(when: &str) -> String {
    format!(
        r#"
        [[rule]]
        name = "a"
        class = "fault"
        when = {when}
        source = "s"
        recorded = [{{ message = "x" }}]"#
    )
}

/// Reads a file of these rules and compares the problems, one a line.
fn check_problems(rules: &str, expected: &[&str]) {
    let text = format!("about = \"x\"\n{rules}");
    let problems = RuleSet::read(&[("file", &text)]).err().unwrap_or_default();
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem:?} does not say {expected:?}");
    }
}

#[test]
fn a_rule_has_a_condition_of_known_keys() {
    check_problems(&rule_when(r#"{ any = ["x"] }"#), &[]);
    check_problems(&rule_when("{ not_codes = [1] }"), &["no condition"]);
    check_problems(&rule_when(r#"{ some = ["x"] }"#), &["some"]);
}

#[test]
fn two_rules_of_one_name_are_a_problem() {
    let rule = rule_when(r#"{ any = ["x"] }"#);
    let problem = "rule `a`: there is another rule of this name";
    check_problems(&format!("{rule}{rule}"), &[problem]);
}

#[test]
fn all_problems_are_told_at_once() {
    check_problems(
        r#"
        [[rule]]
        name = "a"
        class = "foult"
        elsewhere = "maybe"
        health = "fine"
        learn = "range_max"
        when = { any = ["Upper"] }
        source = " "
        recorded = [{ body = "x", message = "y" }]"#,
        &[
            "no source",
            "`foult` is no class",
            "`elsewhere` is one of",
            "`health` is no effect",
            "`learn_after` does not fit",
            "`Upper` has to be lower case",
            "a `body`, or a `message`",
            "no recorded error",
        ],
    );
}
