//! Frames in, messages out.
//!
//! A frame that lies whole in the caller's buffer is unmasked there and borrowed from it. Of
//! any other the decoder keeps what came, on the heap and within its bounds, until the rest is
//! there: the caller never has to keep bytes.

use std::borrow::Cow;
use std::str::from_utf8;

use crate::close::CloseFrame;
use crate::control::ControlPayload;
use crate::error::FrameError;
use crate::frame::{FrameHeader, HeaderBytes, Opcode, WsRole};
use crate::mask::apply_mask;
use crate::utf8::Utf8Check;

/// The first room for a message that does not arrive at once; doubled as it fills. A length that
/// is only announced reserves nothing.
const MESSAGE_ROOM_MIN: usize = 512;

/// The bounds of one message. Each call is given them, so that a decoder need not hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// A message of more is refused as soon as a header announces it
    /// ([`FrameError::MessageTooBig`]).
    pub message_bytes_max: usize,
    /// A message in more frames is refused ([`FrameError::TooManyFragments`]); empty ones count,
    /// so a flood of them ends. Control frames in between do not count.
    pub fragments_max: u32,
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// UTF-8, which was checked.
    Text,
    /// Any bytes.
    Binary,
}

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WsEvent<'a> {
    /// A whole message.
    Message {
        /// Text or bytes.
        kind: MessageKind,
        /// Unmasked. Borrowed from the caller's buffer if the message is one frame that lies
        /// there whole; otherwise owned, and no longer held by the decoder.
        payload: Cow<'a, [u8]>,
    },
    /// To be answered by a pong with this payload.
    Ping(ControlPayload),
    /// The answer to a ping, or a sign of life.
    Pong(ControlPayload),
    /// The last event: what follows it is ignored. To be answered by a close, unless one was
    /// sent before.
    Close(CloseFrame),
}

/// What came of the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeStep<'a> {
    /// So many of the bytes were taken: all of them if there is no event.
    pub used: usize,
    /// The first event in the bytes; more may follow in those that were not taken.
    pub event: Option<WsEvent<'a>>,
}

/// Reads one direction of a connection.
#[derive(Debug)]
pub struct MessageDecoder {
    role: WsRole,
    /// A close or a refused frame was the last.
    has_ended: bool,
    /// What came of a frame or a message that is not whole.
    unfinished: Option<Box<Unfinished>>,
}

impl MessageDecoder {
    /// At the first byte behind the handshake. `role` is ours.
    pub fn new(role: WsRole) -> Self {
        Self { role, has_ended: false, unfinished: None }
    }

    /// Takes what `bytes`, which followed those of the calls before, have up to the first event.
    /// Call again with the rest until there is no event.
    ///
    /// Unmasks the bytes that it takes, in place, so they must not be passed twice. After a
    /// close or an error all bytes are taken and nothing comes of them.
    pub fn decode<'a>(
        &mut self,
        limits: &MessageLimits,
        bytes: &'a mut [u8],
    ) -> Result<DecodeStep<'a>, FrameError> {
        if self.has_ended {
            return Ok(DecodeStep { used: bytes.len(), event: None });
        }
        let step = self.advance(limits, bytes);
        if matches!(&step, Err(_) | Ok(DecodeStep { event: Some(WsEvent::Close(_)), .. })) {
            self.has_ended = true;
            self.unfinished = None;
        }
        step
    }

    /// Whether a close was read, or a frame refused: nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a frame or a message began and is not whole.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Bytes on the heap: none unless something [is unfinished](Self::is_unfinished), and at most
    /// a few hundred more than a message may have.
    pub fn held_bytes(&self) -> usize {
        self.unfinished.as_deref().map_or(0, Unfinished::held_bytes)
    }

    fn advance<'a>(
        &mut self,
        limits: &MessageLimits,
        bytes: &'a mut [u8],
    ) -> Result<DecodeStep<'a>, FrameError> {
        let len = bytes.len();
        let mut rest = bytes;
        let event = loop {
            let frame = match self.take_open_frame() {
                Some(frame) => frame,
                None => {
                    let Some((header, used)) = self.read_header(rest)? else { break None };
                    rest = rest.split_at_mut(used).1;
                    self.check_bounds(limits, &header)?;
                    if header.is_alone() && header.len <= rest.len() as u64 {
                        let (payload, after) = OpenFrame { header, taken: 0 }.unmask(rest);
                        rest = after;
                        break Some(whole_event(header.opcode, payload)?);
                    }
                    self.unfinished().begin(header)
                }
            };
            let (piece, after) = frame.unmask(rest);
            rest = after;
            let event = self.unfinished().append(limits, frame, piece)?;
            if event.is_some() || rest.is_empty() {
                break event;
            }
        };
        let used = if event.is_some() { len - rest.len() } else { len };
        if self.unfinished.as_deref().is_some_and(Unfinished::is_empty) {
            self.unfinished = None;
        }
        Ok(DecodeStep { used, event })
    }

    fn take_open_frame(&mut self) -> Option<OpenFrame> {
        self.unfinished.as_mut()?.frame.take()
    }

    fn unfinished(&mut self) -> &mut Unfinished {
        self.unfinished.get_or_insert_default()
    }

    /// Reads the header at the start of `bytes`, of which a part may have come before; returns it
    /// and the number of bytes taken. Keeps them all if they are not enough.
    fn read_header(&mut self, bytes: &[u8]) -> Result<Option<(FrameHeader, usize)>, FrameError> {
        let unfinished = self.unfinished.as_deref_mut();
        let is_inside = unfinished.as_ref().is_some_and(|unfinished| unfinished.message.is_some());
        let begun = unfinished.map(|unfinished| std::mem::take(&mut unfinished.header));
        let mut joined = begun.unwrap_or_default();
        let begun = joined.len();
        if begun == 0 {
            let read = FrameHeader::read(self.role, is_inside, bytes)?;
            if read.is_none() && !bytes.is_empty() {
                self.unfinished().header.append(bytes);
            }
            return Ok(read);
        }
        // What has no room is not of the header.
        joined.append(bytes);
        let read = FrameHeader::read(self.role, is_inside, &joined)?;
        if read.is_none() {
            self.unfinished().header = joined;
        }
        Ok(read.map(|(header, len)| (header, len - begun)))
    }

    fn check_bounds(&self, limits: &MessageLimits, header: &FrameHeader) -> Result<(), FrameError> {
        if header.opcode.is_control() {
            return Ok(());
        }
        let message = self.unfinished.as_ref().and_then(|unfinished| unfinished.message.as_ref());
        let (bytes, fragments) = message.map_or((0, 0), |open| (open.bytes.len(), open.fragments));
        if header.len > limits.message_bytes_max.saturating_sub(bytes) as u64 {
            return Err(FrameError::MessageTooBig);
        }
        if fragments >= limits.fragments_max {
            return Err(FrameError::TooManyFragments);
        }
        Ok(())
    }
}

/// The event of a frame that is alone and lies whole in the buffer.
fn whole_event(opcode: Opcode, payload: &[u8]) -> Result<WsEvent<'_>, FrameError> {
    let Some(kind) = MessageKind::of(opcode) else { return control_event(opcode, payload) };
    if kind == MessageKind::Text && from_utf8(payload).is_err() {
        return Err(FrameError::TextNotUtf8);
    }
    Ok(WsEvent::Message { kind, payload: Cow::Borrowed(payload) })
}

/// The event of a control frame.
fn control_event<'a>(opcode: Opcode, payload: &[u8]) -> Result<WsEvent<'a>, FrameError> {
    if opcode == Opcode::Close {
        return CloseFrame::read(payload).map(WsEvent::Close);
    }
    let payload = ControlPayload::new(payload).ok_or(FrameError::ControlTooLong)?;
    Ok(if opcode == Opcode::Ping { WsEvent::Ping(payload) } else { WsEvent::Pong(payload) })
}

impl MessageKind {
    /// Of a message that begins with such a frame.
    fn of(opcode: Opcode) -> Option<Self> {
        match opcode {
            Opcode::Text => Some(Self::Text),
            Opcode::Binary => Some(Self::Binary),
            Opcode::Continuation | Opcode::Close | Opcode::Ping | Opcode::Pong => None,
        }
    }
}

/// What came of a frame or a message that is not whole.
#[derive(Debug, Default)]
struct Unfinished {
    /// The beginning of a header.
    header: HeaderBytes,
    /// A frame whose payload is not whole.
    frame: Option<OpenFrame>,
    /// What came of that payload, if the frame is a control frame.
    control: ControlPayload,
    /// A message of which more of the frame follows, or more fragments.
    message: Option<OpenMessage>,
}

impl Unfinished {
    fn is_empty(&self) -> bool {
        self.header.is_empty() && self.frame.is_none() && self.message.is_none()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.message.as_ref().map_or(0, |message| message.bytes.capacity())
    }

    /// A frame begins that is not whole in the buffer, or not alone.
    fn begin(&mut self, header: FrameHeader) -> OpenFrame {
        if let Some(kind) = MessageKind::of(header.opcode) {
            // None is open: the header was checked.
            self.message = Some(OpenMessage::new(kind));
        }
        if let (false, Some(message)) = (header.opcode.is_control(), &mut self.message) {
            message.fragments += 1;
        }
        OpenFrame { header, taken: 0 }
    }

    /// Takes the next piece of `frame`; returns what is whole with it.
    fn append(
        &mut self,
        limits: &MessageLimits,
        frame: OpenFrame,
        piece: &[u8],
    ) -> Result<Option<WsEvent<'static>>, FrameError> {
        let OpenFrame { header, taken } = frame;
        let taken = taken + piece.len() as u64;
        if header.opcode.is_control() {
            if !self.control.append(piece) {
                return Err(FrameError::ControlTooLong);
            }
        } else if let Some(message) = &mut self.message {
            message.append(
                piece,
                if header.is_last { header.len - taken } else { u64::MAX },
                limits,
            )?;
        }
        if taken < header.len {
            self.frame = Some(OpenFrame { header, taken });
            return Ok(None);
        }
        if header.opcode.is_control() {
            let payload = std::mem::take(&mut self.control);
            return control_event(header.opcode, &payload).map(Some);
        }
        match self.message.take() {
            Some(message) if header.is_last => message.finish().map(Some),
            message => {
                self.message = message;
                Ok(None)
            }
        }
    }
}

/// A frame of which the header was read.
#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    header: FrameHeader,
    /// Bytes of the payload that were taken.
    taken: u64,
}

impl OpenFrame {
    /// Divides `bytes` into what belongs to the payload, unmasked, and the rest.
    fn unmask<'a>(&self, bytes: &'a mut [u8]) -> (&'a [u8], &'a mut [u8]) {
        let left = self.header.len - self.taken;
        let len = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let (piece, rest) = bytes.split_at_mut(len);
        if let Some(mask) = self.header.mask {
            apply_mask(mask, self.taken, piece);
        }
        (piece, rest)
    }
}

/// A message that is not whole.
#[derive(Debug)]
struct OpenMessage {
    kind: MessageKind,
    bytes: Vec<u8>,
    /// Frames that began.
    fragments: u32,
    utf8: Utf8Check,
}

impl OpenMessage {
    fn new(kind: MessageKind) -> Self {
        Self { kind, bytes: Vec::new(), fragments: 0, utf8: Utf8Check::default() }
    }

    /// Takes the next piece, after which at most `left` bytes can follow.
    fn append(
        &mut self,
        piece: &[u8],
        left: u64,
        limits: &MessageLimits,
    ) -> Result<(), FrameError> {
        if self.kind == MessageKind::Text && self.utf8.push(piece).is_err() {
            return Err(FrameError::TextNotUtf8);
        }
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let whole = needed.saturating_add(left).min(limits.message_bytes_max);
            // The bound may have been lowered since the frame was admitted, so `needed` comes last.
            let room = (2 * self.bytes.capacity()).max(MESSAGE_ROOM_MIN).min(whole).max(needed);
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn finish(self) -> Result<WsEvent<'static>, FrameError> {
        if self.kind == MessageKind::Text && !self.utf8.is_complete() {
            return Err(FrameError::TextNotUtf8);
        }
        Ok(WsEvent::Message { kind: self.kind, payload: Cow::Owned(self.bytes) })
    }
}
