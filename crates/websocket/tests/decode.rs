//! Frames of one connection and what comes of them, one line each.

use std::borrow::Cow;

use wellhead_websocket::{FrameError, MessageDecoder, MessageKind, MessageLimits, WsEvent, WsRole};

const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 64, fragments_max: 4 };

/// What comes of frames that a server sent, in pieces of `size`: one word for each event.
fn read(frames: &[u8], size: usize) -> Vec<String> {
    let mut decoder = MessageDecoder::new(WsRole::Client);
    let mut words = Vec::new();
    let mut bytes = frames.to_vec();
    for mut rest in bytes.chunks_mut(size) {
        loop {
            match decoder.decode(&LIMITS, rest) {
                Ok(step) => {
                    let Some(event) = step.event else {
                        assert_eq!(step.used, rest.len(), "all is taken");
                        break;
                    };
                    let used = step.used;
                    words.push(word(&event));
                    rest = &mut rest[used..];
                }
                Err(error) => {
                    words.push(format!("{} {error}", error.close_code()));
                    assert!(decoder.has_ended());
                    return words;
                }
            }
        }
    }
    if decoder.is_unfinished() {
        words.push("…".to_owned());
    }
    assert_eq!(decoder.held_bytes() > 0, decoder.is_unfinished());
    words
}

fn word(event: &WsEvent<'_>) -> String {
    match event {
        WsEvent::Message { kind: MessageKind::Text, payload } => {
            format!("text {}", str::from_utf8(payload).expect("it was checked"))
        }
        WsEvent::Message { kind: MessageKind::Binary, payload } => {
            format!("binary {}", payload.escape_ascii())
        }
        WsEvent::Ping(payload) => format!("ping {}", payload.escape_ascii()),
        WsEvent::Pong(payload) => format!("pong {}", payload.escape_ascii()),
        WsEvent::Close(frame) => {
            let code = frame.code().map_or("-".to_owned(), |code| code.to_string());
            format!("close {code} {}", frame.reason())
        }
    }
}

fn check(frames: &[u8], expected: &[&str]) {
    for size in 1..=frames.len() {
        let words: Vec<String> =
            read(frames, size).iter().map(|word| word.trim_end().to_owned()).collect();
        assert_eq!(words, expected, "{} in pieces of {size}", frames.escape_ascii());
    }
}

#[test]
fn messages() {
    check(b"\x81\x05hello", &["text hello"]);
    check(b"\x82\x03\x00\xff\x80", &["binary \\x00\\xff\\x80"]);
    check(b"\x81\0\x82\0", &["text", "binary"]);
    check(b"\xc1\0", &["1002 a reserved bit is set, but no extension was agreed on"]);
    check(b"\x81\x7e\x00\x03abc\x81\x7f\0\0\0\0\0\0\0\x01d", &["text abc", "text d"]);
    check(b"\x81\x05hel", &["…"]);
}

#[test]
fn fragments_are_joined_and_controls_come_between() {
    check(b"\x01\x02he\x80\x03llo", &["text hello"]);
    check(
        b"\x01\x02he\x89\x01!\x8a\0\0\0\x80\x03llo\x81\x01x",
        &["ping !", "pong", "text hello", "text x"],
    );
    check(b"\x02\0\0\0\x80\0", &["binary"]);
    check(b"\x01\x01\xe2\x80\x01a", &["1007 a text is not UTF-8"]);
    check(b"\x01\x01\xe2\x00\x02\x82\xac\x80\0", &["text €"]);
    check(b"\x01\x01\xe2\x80\0", &["1007 a text is not UTF-8"]);
    check(b"\x01\x02he", &["…"]);
}

#[test]
fn nothing_comes_after_a_close() {
    check(b"\x88\0\x81\x01x", &["close -"]);
    check(b"\x88\x06\x03\xe8done\x83", &["close 1000 done"]);
    check(b"\x01\x01x\x88\x02\x0b\xb8", &["close 3000"]);
}

#[test]
fn messages_are_bounded() {
    let long = |len: u8| [&[0x82, len][..], &vec![b'x'; usize::from(len)]].concat();
    assert_eq!(read(&long(64), 9), [format!("binary {}", "x".repeat(64))]);
    check(&long(65), &["1009 the message is too big"]);
    check(b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", &["1009 the message is too big"]);
    check(b"\x02\x02ab\x00\x3e", &["…"]);
    check(b"\x02\x02ab\x00\x3f", &["1009 the message is too big"]);
    check(b"\x02\0\0\0\0\0\x80\0", &["binary"]);
    check(b"\x02\0\0\0\0\0\0\0\x80\0", &["1008 the message has too many fragments"]);
}

#[test]
fn a_frame_that_is_whole_is_borrowed() {
    let mut decoder = MessageDecoder::new(WsRole::Client);
    let mut bytes = *b"\x81\x02hi\x81\x02hi";
    let (whole, cut) = bytes.split_at_mut(4);
    let step = decoder.decode(&LIMITS, whole).unwrap();
    assert!(matches!(
        step.event,
        Some(WsEvent::Message { kind: MessageKind::Text, payload: Cow::Borrowed(b"hi") })
    ));
    let (begin, end) = cut.split_at_mut(3);
    assert_eq!(decoder.decode(&LIMITS, begin).unwrap().event, None);
    let step = decoder.decode(&LIMITS, end).unwrap();
    assert!(matches!(
        step.event,
        Some(WsEvent::Message { kind: MessageKind::Text, payload: Cow::Owned(_) })
    ));
    assert_eq!((decoder.is_unfinished(), decoder.held_bytes()), (false, 0));
}

/// A reload of the settings may lower a bound while a message is unfinished.
#[test]
fn a_bound_that_falls_holds_from_the_next_frame_on() {
    let mut decoder = MessageDecoder::new(WsRole::Client);
    let lower = MessageLimits { message_bytes_max: 2, fragments_max: 1 };
    let mut begin = *b"\x02\x08abcd";
    assert_eq!(decoder.decode(&LIMITS, &mut begin).unwrap().event, None);
    let mut end = *b"efgh\x80\x01i";
    let (end, next) = end.split_at_mut(4);
    assert_eq!(decoder.decode(&lower, end).unwrap().event, None);
    assert_eq!(decoder.decode(&lower, next), Err(FrameError::MessageTooBig));
}
