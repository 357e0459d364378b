//! How often the codec asks the allocator: never, unless a frame or a message is unfinished.

use allocation_counter::measure;
use wellhead_websocket::handshake::{UpgradeRequest, accept};
use wellhead_websocket::{
    CloseCode, CloseFrame, ControlPayload, FrameHeader, MessageDecoder, MessageKind, MessageLimits,
    Opcode, WsEvent, WsRole, apply_mask, encode,
};

const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 1 << 20, fragments_max: 64 };
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it.
fn masked(is_last: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { is_last, opcode, len: payload.len() as u64, mask: Some(MASK) };
    let mut payload = payload.to_vec();
    apply_mask(MASK, 0, &mut payload);
    [&*header.to_bytes(), &payload].concat()
}

/// The events in `bytes`, and the allocations that they cost.
fn read(decoder: &mut MessageDecoder, bytes: &mut [u8]) -> (usize, u64) {
    let mut events = 0;
    let counted = measure(|| {
        let mut rest = &mut bytes[..];
        while let Ok(step) = decoder.decode(&LIMITS, rest)
            && let Some(event) = step.event
        {
            if let WsEvent::Ping(payload) = event {
                assert_eq!(encode::pong(&payload).len(), 2 + payload.len());
            }
            let used = step.used;
            rest = &mut rest[used..];
            events += 1;
        }
    });
    (events, counted.count_total)
}

#[test]
fn whole_frames_cost_nothing() {
    let text = "{\"id\":1,\"method\":\"eth_blockNumber\"} κόσμε".repeat(100);
    let mut bytes = [
        masked(true, Opcode::Text, text.as_bytes()),
        masked(true, Opcode::Binary, &[0xff; 40_000]),
        masked(true, Opcode::Text, b""),
        masked(true, Opcode::Ping, &[b'x'; 125]),
        masked(true, Opcode::Pong, b""),
        masked(true, Opcode::Close, b"\x03\xe8bye"),
    ]
    .concat();
    let mut decoder = MessageDecoder::new(WsRole::Server);
    assert_eq!(read(&mut decoder, &mut bytes), (6, 0));
}

/// One for what is unfinished and one for the message, as its length is known.
#[test]
fn a_message_in_two_reads_costs_two() {
    let mut bytes = masked(true, Opcode::Text, &[b'x'; 400]);
    let (begin, end) = bytes.split_at_mut(100);
    let mut decoder = MessageDecoder::new(WsRole::Server);
    assert_eq!(read(&mut decoder, begin), (0, 2));
    assert_eq!(read(&mut decoder, end), (1, 0));
    assert_eq!(decoder.held_bytes(), 0);
}

/// What is announced reserves nothing; what came is held once, and by doubling.
#[test]
fn memory_follows_what_came() {
    let mut decoder = MessageDecoder::new(WsRole::Server);
    let header =
        |len| FrameHeader { is_last: false, opcode: Opcode::Binary, len, mask: Some(MASK) };
    let mut announced = header(1 << 20).to_bytes().to_vec();
    assert_eq!(read(&mut decoder, &mut announced), (0, 1));
    assert!(decoder.held_bytes() < 512, "{}", decoder.held_bytes());
    let mut came = 0;
    let mut allocations = 0;
    while came < 1 << 20 {
        let mut piece = [0; 4096];
        allocations += read(&mut decoder, &mut piece).1;
        came += piece.len();
        assert!(decoder.held_bytes() <= (2 * came).min(1 << 20) + 512);
    }
    assert!(allocations <= 10, "{allocations}");
    // The message is as long as it may be, and still a byte would be too much.
    assert!(decoder.decode(&LIMITS, &mut masked(true, Opcode::Continuation, b"x")).is_err());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn handshakes_and_frames_cost_nothing() {
    let fields: [(&str, &[u8]); 4] = [
        ("Upgrade", b"websocket"),
        ("Connection", b"keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", b"13"),
    ];
    let payload = ControlPayload::new(b"hello").unwrap();
    let counted = measure(|| {
        let accepted = accept(UpgradeRequest { method: "GET", newest: true, fields });
        assert_eq!(accepted.unwrap().as_str(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(encode::message_header(MessageKind::Text, 1 << 20).len(), 10);
        assert_eq!(encode::ping(&payload).len(), 7);
        assert_eq!(encode::close(&CloseFrame::new(CloseCode::RESTART, "restart")).len(), 11);
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(size_of::<MessageDecoder>() <= 32, "{}", size_of::<MessageDecoder>());
}
