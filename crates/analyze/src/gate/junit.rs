//! JUnit XML, as CI systems draw it: a suite for each target, a test case for each condition.

use std::fmt::Write as _;

use super::evaluate::{ConditionOutcome, ConditionResult};
use crate::text::escaped;

/// The file; `results` are in the order of targets. What is worse than a baseline is a suite of its own with one case.
pub fn junit(results: &[ConditionResult], worse: Option<&[String]>) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for own in results.chunk_by(|one, next| one.target == next.target) {
        suite(&mut out, &own[0].target, own);
    }
    if let Some(worse) = worse {
        let failed = usize::from(!worse.is_empty());
        let _ = write!(
            out,
            "  <testsuite name=\"baseline\" tests=\"1\" failures=\"{failed}\" errors=\"0\" \
             skipped=\"0\">\n    <testcase classname=\"baseline\" name=\"not worse\">"
        );
        if !worse.is_empty() {
            let _ = write!(out, "<failure message=\"{}\"/>", escaped(&worse.join("; ")));
        }
        out.push_str("</testcase>\n  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn suite(out: &mut String, target: &str, results: &[ConditionResult]) {
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    let name = escaped(target);
    let _ = writeln!(
        out,
        "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"0\">",
        results.len(),
        count(ConditionOutcome::Failed),
        count(ConditionOutcome::Inconclusive),
    );
    for result in results {
        let condition = escaped(&result.condition);
        let measured = escaped(&result.measured);
        let _ = write!(out, "    <testcase classname=\"{name}\" name=\"{condition}\">");
        let _ = match result.outcome {
            ConditionOutcome::Passed => write!(out, "<system-out>{measured}</system-out>"),
            ConditionOutcome::Failed => write!(out, "<failure message=\"{measured}\"/>"),
            ConditionOutcome::Inconclusive => {
                write!(out, "<error type=\"inconclusive\" message=\"{measured}\"/>")
            }
        };
        out.push_str("</testcase>\n");
    }
    out.push_str("  </testsuite>\n");
}
