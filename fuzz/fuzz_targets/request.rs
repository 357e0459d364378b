//! The head of a client's request: the same reading however it arrives, and nothing
//! that a naive reader would end elsewhere.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wellhead_http1::request::{BadHead, RequestFraming, ParsedRequest, Room, head};

/// As the listeners' default, small enough for the fuzzer to reach.
const BYTES_MAX: usize = 1024;

fuzz_target!(|bytes: &[u8]| {
    let mut room = Room::new();
    let whole = head(bytes, BYTES_MAX, &mut room);
    for cut in 0..bytes.len().min(512) {
        let mut room = Room::new();
        match (head(&bytes[..cut], BYTES_MAX, &mut room), &whole) {
            // A beginning may only be waiting for what decides.
            (Ok(None), _) => {}
            (Ok(Some(early)), Ok(Some(late))) => assert_eq!(told(&early), told(late)),
            (Err(early), Err(late)) => assert_eq!(early, *late),
            (early, late) => panic!("{early:?} at {cut}, {late:?} as a whole"),
        }
    }
    match whole {
        Ok(Some(read)) => check(bytes, &read),
        Ok(None) => assert!(bytes.len() <= BYTES_MAX),
        Err(BadHead::TooLong | BadHead::Malformed(_)) => {}
    }
});

/// What a server acts on.
fn told<'b>(head: &ParsedRequest<'_, 'b>) -> (usize, &'b str, &'b str, RequestFraming, bool) {
    (head.len, head.method, head.target, head.framing, head.keeps_open)
}

fn check(bytes: &[u8], read: &ParsedRequest<'_, '_>) {
    assert!(read.len <= bytes.len() && read.len <= BYTES_MAX);
    let text = &bytes[..read.len];
    assert!(text.ends_with(b"\r\n\r\n"));
    let bare =
        text.iter().enumerate().any(|(n, b)| *b == b'\n' && (n == 0 || text[n - 1] != b'\r'));
    assert!(!bare, "a line ends with LF alone");
    let lines = || text.split(|byte| *byte == b'\n').skip(1);
    let names = |name: &'static str| {
        lines().filter(|line| {
            line.len() > name.len()
                && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
                && line[name.len()] == b':'
        })
    };
    let is_newest = text
        .trim_ascii_start()
        .split(|b| *b == b'\r')
        .next()
        .is_some_and(|line| line.ends_with(b"HTTP/1.1"));
    assert!(names("host").count() <= 1);
    assert!(!is_newest || names("host").count() == 1);
    match read.framing {
        RequestFraming::Chunked => {
            assert_eq!(names("content-length").count(), 0);
            assert_eq!(names("transfer-encoding").count(), 1);
        }
        RequestFraming::Length(length) => {
            assert_eq!(names("transfer-encoding").count(), 0);
            let value = names("content-length").next().map(|line| {
                let value = &line["content-length:".len()..];
                String::from_utf8_lossy(value).trim().parse::<u64>().expect("digits")
            });
            assert_eq!(length, value.unwrap_or(0));
        }
    }
}
