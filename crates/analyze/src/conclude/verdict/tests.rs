//! How figures are told, and what a run without records says. Verdicts on whole runs are in
//! `tests/it`.

use super::finding::FindingBound::Found;
use super::finding::{Drift, TokenLimit};
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
        Finding::Bucket(Found(TokenLimit {
            size,
            refill_per_second,
            window_s,
            refill,
            way,
            retry_after,
        }))
        .to_string()
    };
    for (told, expected) in [
        (
            bucket(0.98, Refilled::Evenly, RetryAfterWorth::NotGiven),
            "Token bucket: 125 req/s sustained, burst 125; excess gets 429 without Retry-After",
        ),
        (
            bucket(10.2, Refilled::Window, RetryAfterWorth::TooShort),
            "Fixed window: 125 requests per 10 s; excess gets 429 with a Retry-After that is too short",
        ),
        (
            bucket(0.25, Refilled::Sliding, RetryAfterWorth::Holds),
            "Sliding window: 125 requests per 250 ms; excess gets 429 with a correct Retry-After",
        ),
        (
            bucket(300.0, Refilled::AtOnce, RetryAfterWorth::NotGiven),
            "Window, fixed or sliding: 125 requests per 5 min; excess gets 429 without Retry-After",
        ),
    ] {
        assert_eq!(told, expected);
    }
}

#[test]
fn drifts_for_people() {
    let time =
        Finding::Drift(Found(Drift { what: Drifting::Time, from: 20.0, to: 31.0, minutes: 60 }));
    assert_eq!(time.to_string(), "p50 rises from 20 ms to 31 ms in 60 minutes");
    let errors =
        Finding::Drift(Found(Drift { what: Drifting::Errors, from: 4.0, to: 0.0, minutes: 60 }));
    assert_eq!(errors.to_string(), "Error rate falls from 4 to 0 % in 60 minutes");
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
