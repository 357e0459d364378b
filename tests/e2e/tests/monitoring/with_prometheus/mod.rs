//! The rules as promtool judges them, and a whole monitoring in `with_anvil`.

use wellhead_e2e::promtool;

use super::file;

mod with_anvil;

#[test]
fn promtool_finds_no_fault_in_the_rules() {
    let (is_content, printed) =
        promtool(&file("deploy/prometheus"), &["check", "rules", "rules.yaml"]);
    assert!(is_content && printed.contains("rules found"), "{printed}");
}

#[test]
fn every_case_of_the_rules_holds() {
    let (is_content, printed) =
        promtool(&file("deploy/prometheus"), &["test", "rules", "tests.yaml"]);
    assert!(is_content, "{printed}");
}
