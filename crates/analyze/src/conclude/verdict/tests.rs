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
    let bucket = |window_s: f64, refill, retry_after| {
        let way = RefusalWay::Status429;
        let (size, refill_per_second) = (125, 125.0);
        Finding::Bucket { size, refill_per_second, window_s, refill, way, retry_after }.to_string()
    };
    for (told, expected) in [
        (
            bucket(0.98, Refilled::Evenly, RetryAfterWorth::NotGiven),
            "bucket of 125, filled evenly in 1 s; above that HTTP 429, no Retry-After",
        ),
        (
            bucket(10.2, Refilled::Window, RetryAfterWorth::TooShort),
            "125 in each window of 10 s; above that HTTP 429, a Retry-After that is too short",
        ),
        (
            bucket(0.25, Refilled::Sliding, RetryAfterWorth::Holds),
            "125 in a sliding window of 250 ms; above that HTTP 429, a correct Retry-After",
        ),
        (
            bucket(300.0, Refilled::AtOnce, RetryAfterWorth::NotGiven),
            "125 per 5 min, restored all at once; above that HTTP 429, no Retry-After",
        ),
    ] {
        assert_eq!(told, expected);
    }
}

#[test]
fn drifts_for_people() {
    let time = Finding::Drift { what: Drifting::Time, from: 20.0, to: 31.0, minutes: 60 };
    assert_eq!(time.to_string(), "the median time rises from 20 ms to 31 ms in 60 minutes");
    let errors = Finding::Drift { what: Drifting::Errors, from: 4.0, to: 0.0, minutes: 60 };
    assert_eq!(errors.to_string(), "calls that are not served fall from 4 to 0 % in 60 minutes");
}

#[test]
fn a_finding_is_read_as_written() {
    let finding =
        Finding::Reach { what: Extent::Range, up_to: Some(10_000), refused_at: None, whole: false };
    let text = serde_json::to_string(&finding).expect("plain data");
    assert_eq!(text, r#"{"finding":"reach","what":"range","up_to":10000,"refused_at":null}"#);
    assert_eq!(serde_json::from_str::<Finding>(&text).expect("plain data"), finding);
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(verdicts(&RunRecord::default(), &[]), []);
}
