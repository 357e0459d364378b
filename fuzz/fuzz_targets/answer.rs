//! An upstream's HTTP/1.1 answer: the same reading however it arrives, and where
//! it is simple enough, the same as a naive one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wellhead_http1::answer::{ResponseFraming, head};
use wellhead_http1::{Chunked, MalformedHttp, ChunkStep};

fuzz_target!(|answer: &[u8]| {
    let whole = head(answer);
    for cut in 0..answer.len().min(512) {
        match (head(&answer[..cut]), whole) {
            // A beginning may only be waiting for what decides.
            (Ok(None), _) => {}
            (Ok(Some(early)), Ok(Some(late))) => assert_eq!(early, late),
            (Err(_), Err(_)) => {}
            (early, late) => panic!("{early:?} at {cut}, {late:?} as a whole"),
        }
    }
    let Ok(Some(head)) = whole else { return };
    assert!(head.len <= answer.len());
    if head.framing == ResponseFraming::UntilClose {
        assert!(!head.keeps_open);
    }
    let body = &answer[head.len..];
    let at_once = read(body, usize::MAX);
    for size in [1, 2, 3, 7] {
        assert_eq!(read(body, size), at_once, "in pieces of {size}");
    }
    if let Some((data, left)) = naive(body) {
        assert_eq!(at_once, Ok((data, Some(left))));
    }
});

/// The data of a chunked body, and how many bytes follow it once it has ended.
type Reading = Result<(Vec<u8>, Option<usize>), MalformedHttp>;

fn read(body: &[u8], size: usize) -> Reading {
    let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
    for piece in body.chunks(size.min(body.len().max(1))) {
        let mut rest = piece;
        loop {
            let (used, next) = chunked.advance(rest)?;
            at += used;
            rest = &rest[used..];
            match next {
                ChunkStep::Data(left) => {
                    let some = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    data.extend_from_slice(&rest[..some]);
                    at += some;
                    rest = &rest[some..];
                    chunked.passed(some as u64);
                    if (some as u64) < left {
                        break;
                    }
                }
                ChunkStep::End => return Ok((data, Some(body.len() - at))),
                ChunkStep::More => break,
            }
        }
    }
    Ok((data, None))
}

/// Reads chunks without extensions and trailers, by splitting lines.
fn naive(mut body: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n")?;
        let digits = std::str::from_utf8(&body[..end]).ok()?;
        if digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let size = usize::from_str_radix(digits, 16).ok()?;
        body = &body[end + 2..];
        if size == 0 {
            return Some((data, body.strip_prefix(b"\r\n")?.len()));
        }
        data.extend_from_slice(body.get(..size)?);
        body = body[size..].strip_prefix(b"\r\n")?;
    }
}
