//! How figures are told, and what a run without records says. Verdicts on whole runs are in
//! `tests/it`.

use super::*;

#[test]
fn figures_for_people() {
    let told = [0.0, 0.834, 12.49, 99.96, 252.4, 9_999.6, 1_234_567.0, -3.2].map(figure);
    assert_eq!(told, ["0", "0.83", "12.5", "100", "252", "10,000", "1,234,567", "-3.2"]);
    assert_eq!(figure(f64::NAN), "-");
}

#[test]
fn windows_read_as_they_are_meant() {
    let bucket = |window_s: f64| {
        let refill = crate::stat::bucket::Refill::Steady;
        Finding::Bucket { size: 125, refill_per_second: 125.0, window_s, refill }.to_string()
    };
    assert_eq!(bucket(0.98), "bucket of 125 in 1 s");
    assert_eq!(bucket(10.2), "bucket of 125 in 10 s");
    assert_eq!(bucket(0.25), "bucket of 125 in 250 ms");
    assert_eq!(bucket(300.0), "bucket of 125 in 5 min");
}

#[test]
fn a_finding_is_read_as_written() {
    let finding = Finding::Reach { what: Extent::Range, up_to: Some(10_000), refused_at: None };
    let text = serde_json::to_string(&finding).expect("plain data");
    assert_eq!(text, r#"{"finding":"reach","what":"range","up_to":10000,"refused_at":null}"#);
    assert_eq!(serde_json::from_str::<Finding>(&text).expect("plain data"), finding);
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(verdicts(&Run::default(), &[]), []);
}
