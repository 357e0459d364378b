//! What is refused, with the exact answer: `data/handshakes.txt` and `data/frames.txt`.

use wellhead_websocket::handshake::{HandshakeError, UpgradeRequest, accept, asks_for_websocket};
use wellhead_websocket::{CloseFrame, MessageDecoder, MessageLimits, WsRole, encode};

const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 64, fragments_max: 4 };

/// RFC 6455, section 1.2.
const GOOD: [(&str, &str); 7] = [
    ("Host", "server.example.com"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Origin", "http://example.com"),
    ("Sec-WebSocket-Protocol", "chat, superchat"),
    ("Sec-WebSocket-Version", "13"),
];

/// The lines of a table, each divided in two.
fn rows(table: &str) -> Vec<(&str, &str)> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(" | ").unwrap_or_else(|| panic!("{line}"))).collect()
}

/// What comes of the good request with `changes`.
fn shake(changes: &str) -> Result<String, HandshakeError> {
    let (mut method, mut newest, mut fields) = ("GET", true, GOOD.to_vec());
    for change in changes.split(';').map(str::trim).filter(|change| !change.is_empty()) {
        if let Some(name) = change.strip_prefix('-') {
            let before = fields.len();
            fields.retain(|(field, _)| !field.eq_ignore_ascii_case(name));
            assert_eq!(fields.len(), before - 1, "{changes}");
        } else if let Some((name, value)) = change.split_once(':') {
            fields.push((name, value));
        } else if let Some(other) = change.strip_prefix("method") {
            method = other.trim();
        } else {
            assert_eq!(change, "http 1.0");
            newest = false;
        }
    }
    let fields = || fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    let request = UpgradeRequest { method, newest, fields: fields() };
    let accepted = accept(request).map(|key| key.as_str().to_owned());
    if method == "GET" && newest {
        let asks = accepted != Err(HandshakeError::NoUpgrade);
        assert_eq!(asks_for_websocket(fields()), asks, "{changes}");
    }
    accepted
}

#[test]
fn handshakes() {
    let rows = rows(include_str!("data/handshakes.txt"));
    for (changes, expected) in &rows {
        let error = shake(changes).expect_err(changes);
        assert_eq!(format!("{} {error}", error.status()), *expected, "{changes}");
        let offered = error.fields().iter().find(|(name, _)| *name == "sec-websocket-version");
        assert_eq!(offered.is_some(), error.status() == 426, "{changes}");
    }
    assert!(rows.len() >= 50, "{}", rows.len());
}

#[test]
fn handshakes_that_are_accepted() {
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    for changes in [
        "",
        "-upgrade; UPGRADE: WebSocket",
        "-upgrade; upgrade: h2c , WEBSOCKET,",
        "upgrade: h2c",
        "-connection; connection: keep-alive, Upgrade",
        "-connection; connection: keep-alive; connection: ,upgrade",
        "-sec-websocket-version; Sec-Websocket-Version:  13\t",
        "-sec-websocket-key; SEC-WEBSOCKET-KEY: \tdGhlIHNhbXBsZSBub25jZQ== ",
        "-sec-websocket-protocol; -origin; -host",
        "sec-websocket-extensions: permessage-deflate; client_max_window_bits",
        "content-length: 0",
    ] {
        // A semicolon stands between changes, and an extension may have one, too.
        let changes = changes.replace("; client_max", ", client_max");
        assert_eq!(shake(&changes).as_deref(), Ok(ACCEPT), "{changes}");
    }
    // The digits behind the sixteenth byte are not zero.
    assert!(shake("-sec-websocket-key; sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAB==").is_ok());
}

/// The bytes of a row.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split(' ') {
        if let Some(text) = word.strip_prefix('"') {
            bytes.extend_from_slice(text.strip_suffix('"').expect("a quote").as_bytes());
        } else {
            for at in (0..word.len()).step_by(2) {
                bytes.push(u8::from_str_radix(&word[at..at + 2], 16).expect("hexadecimal"));
            }
        }
    }
    bytes
}

/// The close that comes of `bytes` in pieces of `size`, and how many were read for it.
fn refusal(role: WsRole, bytes: &[u8], size: usize) -> (String, usize) {
    let mut decoder = MessageDecoder::new(role);
    let mut bytes = bytes.to_vec();
    let mut read = 0;
    for mut piece in bytes.chunks_mut(size) {
        read += piece.len();
        loop {
            match decoder.decode(&LIMITS, piece) {
                Ok(step) if step.event.is_none() => break,
                Ok(step) => {
                    let used = step.used;
                    piece = &mut piece[used..];
                }
                Err(error) => {
                    let close = CloseFrame::from(error);
                    assert_eq!(close.reason(), error.reason(), "it is not cut");
                    assert!(encode::close(&close).len() <= 127);
                    let mut more = [0x81, 0x80, 0, 0, 0, 0];
                    let step = decoder.decode(&LIMITS, &mut more).expect("it is ignored");
                    assert_eq!((step.used, step.event), (6, None));
                    assert_eq!(decoder.held_bytes(), 0);
                    return (format!("{} {error}", error.close_code()), read);
                }
            }
        }
    }
    panic!("{bytes:x?} is not refused");
}

#[test]
fn frames() {
    let rows = rows(include_str!("data/frames.txt"));
    for (text, expected) in &rows {
        let (role, text) = match text.strip_prefix("client ") {
            Some(text) => (WsRole::Client, text),
            None => (WsRole::Server, *text),
        };
        let bytes = bytes(text);
        for size in 1..=bytes.len() {
            let (refusal, _) = refusal(role, &bytes, size);
            assert_eq!(refusal, *expected, "{text} in pieces of {size}");
        }
    }
    assert!(rows.len() >= 70, "{}", rows.len());
}

/// A frame is refused at the byte that breaks the rule, not at its end.
#[test]
fn frames_are_refused_at_once() {
    for (text, expected) in [
        ("C1 85", 1),
        ("83 85", 1),
        ("09 85", 1),
        ("80 85", 1),
        ("81 05 00", 2),
        ("89 FE 00", 2),
        ("82 FF 80 00", 3),
        ("82 FF 0000000000000041 00000000 00", 14),
        ("81 85 00000000 61 FF 61 61 61", 8),
        ("81 85 00000000 F4 90 80 80 61", 8),
        ("01 81 00000000 F4 80 82 00000000 90 80", 14),
        ("88 83 00000000 03E8 FF", 9),
    ] {
        let (_, read) = refusal(WsRole::Server, &bytes(text), 1);
        assert_eq!(read, expected, "{text}");
    }
}
