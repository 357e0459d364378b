//! Frames of a client or a server: the same events and the same refusal wherever the bytes are
//! cut, and those that a naive reader finds, which has all frames before it begins.
//!
//! The first byte is the role, the second the size of the pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wellhead_websocket::{MessageDecoder, MessageKind, MessageLimits, WsEvent, WsRole};

/// Small enough for the fuzzer to reach.
const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 200, fragments_max: 5 };

/// What arrives: a letter for its kind, and the payload.
type Arrived = (char, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    let [role, size, bytes @ ..] = bytes else { return };
    let role = if role & 1 == 0 { WsRole::Server } else { WsRole::Client };
    let whole = ours(role, bytes, bytes.len().max(1));
    for size in [1, usize::from(*size).max(1)] {
        assert_eq!(ours(role, bytes, size), whole, "in pieces of {size}");
    }
    let (arrived, code) = whole;
    let (naive, naive_code) = naive(role, bytes);
    match (code, naive_code) {
        // A frame that is not whole is refused at its first bad byte, or waits for more.
        (_, None) => assert_eq!(arrived, naive),
        (code, naive_code) => assert_eq!((arrived, code), (naive, naive_code)),
    }
});

/// What the decoder finds, and the code that it closes with.
fn ours(role: WsRole, bytes: &[u8], size: usize) -> (Vec<Arrived>, Option<u16>) {
    let mut decoder = MessageDecoder::new(role);
    let mut bytes = bytes.to_vec();
    let mut arrived = Vec::new();
    for mut rest in bytes.chunks_mut(size) {
        loop {
            let step = match decoder.decode(&LIMITS, rest) {
                Ok(step) => step,
                Err(error) => return (arrived, Some(error.close_code().get())),
            };
            let used = step.used;
            let Some(event) = step.event else {
                assert_eq!(used, rest.len());
                break;
            };
            arrived.push(told(&event));
            rest = &mut rest[used..];
        }
        assert!(decoder.held_bytes() <= LIMITS.message_bytes_max + 512);
        assert_eq!(decoder.held_bytes() == 0, !decoder.is_unfinished());
    }
    (arrived, None)
}

fn told(event: &WsEvent<'_>) -> Arrived {
    match event {
        WsEvent::Message { kind: MessageKind::Text, payload } => ('t', payload.to_vec()),
        WsEvent::Message { kind: MessageKind::Binary, payload } => ('b', payload.to_vec()),
        WsEvent::Ping(payload) => ('i', payload.to_vec()),
        WsEvent::Pong(payload) => ('o', payload.to_vec()),
        WsEvent::Close(frame) => {
            let code = frame.code().map(|code| code.get().to_be_bytes());
            let code = code.as_ref().map_or(&[][..], |code| code);
            ('c', [code, frame.reason().as_bytes()].concat())
        }
    }
}

/// What a reader finds that looks at whole frames alone.
fn naive(role: WsRole, mut bytes: &[u8]) -> (Vec<Arrived>, Option<u16>) {
    let mut arrived = Vec::new();
    let mut message = None;
    while let Some((first, second, payload, rest)) = frame(bytes) {
        bytes = rest;
        let is_masked = second & 0x80 != 0;
        // A control frame has its length in one byte, however short it is.
        let is_long_control = first & 0x08 != 0 && second & 0x7f > 125;
        if is_masked != (role == WsRole::Server) || is_long_control {
            return (arrived, Some(1002));
        }
        match judge(first, payload, &mut message) {
            Ok(Some(event)) if event.0 == 'c' => {
                arrived.push(event);
                break;
            }
            Ok(event) => arrived.extend(event),
            Err(code) => return (arrived, Some(code)),
        }
    }
    (arrived, None)
}

/// What comes of one frame, or the code that it is refused with.
fn judge(
    first: u8,
    payload: Vec<u8>,
    message: &mut Option<(char, Vec<u8>, u32)>,
) -> Result<Option<Arrived>, u16> {
    let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
    if first & 0x70 != 0 || !matches!(opcode, 0..=2 | 8..=10) {
        return Err(1002);
    }
    if opcode >= 8 {
        if !fin {
            return Err(1002);
        }
        if opcode == 8 && !payload.is_empty() {
            let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
            if !matches!(code, Some(1000..=1003 | 1007..=1014 | 3000..=4999)) {
                return Err(1002);
            }
            if std::str::from_utf8(&payload[2..]).is_err() {
                return Err(1007);
            }
        }
        let kind = match opcode {
            8 => 'c',
            9 => 'i',
            _ => 'o',
        };
        return Ok(Some((kind, payload)));
    }
    if (opcode == 0) != message.is_some() {
        return Err(1002);
    }
    let kind = if opcode == 1 { 't' } else { 'b' };
    let (kind, mut joined, fragments) = message.take().unwrap_or((kind, Vec::new(), 0));
    if joined.len() + payload.len() > LIMITS.message_bytes_max {
        return Err(1009);
    }
    if fragments == LIMITS.fragments_max {
        return Err(1008);
    }
    joined.extend_from_slice(&payload);
    if let ('t', Err(error)) = (kind, std::str::from_utf8(&joined)) {
        if fin || error.error_len().is_some() {
            return Err(1007);
        }
    }
    if fin {
        return Ok(Some((kind, joined)));
    }
    *message = Some((kind, joined, fragments + 1));
    Ok(None)
}

/// The first two bytes of the first frame, its payload without the mask, and the rest; nothing if
/// it is not whole.
fn frame(bytes: &[u8]) -> Option<(u8, u8, Vec<u8>, &[u8])> {
    let (first, second) = (*bytes.first()?, *bytes.get(1)?);
    let (len, from) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?), 10),
        len => (u64::from(len), 2),
    };
    let (mask, from): ([u8; 4], usize) = match second & 0x80 {
        0 => ([0; 4], from),
        _ => (bytes.get(from..from + 4)?.try_into().ok()?, from + 4),
    };
    let end = from.checked_add(usize::try_from(len).ok()?)?;
    let payload = bytes.get(from..end)?.iter().zip(mask.iter().cycle());
    Some((first, second, payload.map(|(byte, key)| byte ^ key).collect(), &bytes[end..]))
}
