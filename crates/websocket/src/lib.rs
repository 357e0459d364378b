//! WebSocket (RFC 6455) as bytes: the opening handshake, and frames and messages of both
//! directions, without a socket.
//!
//! [`handshake`] judges a client's upgrade request. [`MessageDecoder`] reads frames where the
//! caller's read buffer has them, unmasks them in place and returns one [`WsEvent`] at a time;
//! between two messages it holds nothing but three bytes of state. [`encode`] writes frames and
//! headers on the stack, so that the payload need not be copied.
//!
//! What RFC 6455 forbids is refused with a typed [`FrameError`], which knows the close code to
//! answer with. Left to the caller: sockets, when to ping and to give up, how often a client may
//! ping, the closing handshake (the answer to a close, no frame after it), origins, and the memory
//! of unfinished messages in all ([`MessageDecoder::held_bytes`]). There are no extensions and
//! no subprotocols: what a client offers is declined.

mod close;
mod code;
mod control;
mod decode;
pub mod encode;
mod error;
mod frame;
pub mod handshake;
mod mask;
mod utf8;

pub use close::CloseFrame;
pub use code::CloseCode;
pub use control::ControlPayload;
pub use decode::{DecodeStep, MessageDecoder, MessageKind, MessageLimits, WsEvent};
pub use error::FrameError;
pub use frame::{FrameHeader, HeaderBytes, Opcode, WsRole};
pub use mask::apply_mask;
