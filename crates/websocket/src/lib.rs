//! WebSocket (RFC 6455) as bytes: the opening handshake, and frames and messages of both
//! directions, without a socket.
//!
//! [`handshake`] judges a client's upgrade request. [`MessageDecoder`] reads frames where the
//! caller's read buffer has them, unmasks them in place and returns one [`WsEvent`] at a time;
//! between two messages it holds nothing on the heap. [`encode`] writes frames and
//! headers on the stack, so that the payload need not be copied.
//!
//! What RFC 6455 forbids is refused with a typed [`FrameError`], which knows the close code to
//! answer with. Left to the caller: sockets, when to ping and to give up, how often a client may
//! ping, the closing handshake (the answer to a close, no frame after it), origins, and the memory
//! of unfinished messages in all ([`MessageDecoder::held_bytes`]). There are no extensions: what a
//! client offers is declined. Which of the subprotocols that it offers is selected is for the caller.
//!
//! ```
//! use wellhead_websocket::{
//!     CloseFrame, DecodeStep, MessageDecoder, MessageLimits, WsEvent, WsRole, encode,
//! };
//!
//! const LIMITS: MessageLimits = MessageLimits { message_bytes_max: 1 << 20, fragments_max: 1024 };
//!
//! /// Answers what came with one read; true if the connection goes on. A server that returns each
//! /// message, which a real one would not copy.
//! fn answer(decoder: &mut MessageDecoder, mut read: &mut [u8], out: &mut Vec<u8>) -> bool {
//!     loop {
//!         let DecodeStep { used, event } = match decoder.decode(&LIMITS, read) {
//!             Ok(step) => step,
//!             Err(error) => {
//!                 out.extend_from_slice(&encode::close(&CloseFrame::from(error)));
//!                 return false;
//!             }
//!         };
//!         match event {
//!             None => return true,
//!             Some(WsEvent::Message { kind, payload }) => {
//!                 out.extend_from_slice(&encode::message_header(kind, payload.len()));
//!                 out.extend_from_slice(&payload);
//!             }
//!             Some(WsEvent::Ping(payload)) => out.extend_from_slice(&encode::pong(&payload)),
//!             Some(WsEvent::Pong(_)) => {}
//!             Some(WsEvent::Close(frame)) => {
//!                 out.extend_from_slice(&encode::close(&frame));
//!                 return false;
//!             }
//!         }
//!         read = &mut read[used..];
//!     }
//! }
//!
//! let mut out = Vec::new();
//! let mut decoder = MessageDecoder::new(WsRole::Server);
//! let mut read = *b"\x81\x82\0\0\0\0hi\x89\x80\0\0\0\0";
//! assert!(answer(&mut decoder, &mut read, &mut out));
//! assert_eq!(out, b"\x81\x02hi\x8a\0");
//! ```

mod close;
mod code;
mod control;
mod decode;
pub mod encode;
mod error;
mod frame;
pub mod handshake;
mod mask;
mod stack_bytes;
mod utf8;

pub use close::CloseFrame;
pub use code::CloseCode;
pub use control::ControlPayload;
pub use decode::{DecodeStep, MessageDecoder, MessageKind, MessageLimits, WsEvent};
pub use error::FrameError;
pub use frame::{FrameHeader, HeaderBytes, Opcode, WsRole};
pub use mask::apply_mask;
pub use stack_bytes::StackBytes;
