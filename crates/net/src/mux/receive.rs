//! The reading half of [`Mux`]: frames taken apart and brought to their streams.

use bytes::buf::Limit;
use bytes::{BufMut as _, BytesMut};
use tokio::time::Instant;
use wellhead_transport::TransportErrorKind;

use super::{
    Broken, CONNECTION_WINDOW, DIRECT_BYTES_MIN, DataUnderWay, HEADER_BYTES_MAX, HeaderTable,
    HeadersUnderWay, Mux, OUT_BYTES_MAX, WINDOW_MAX,
};
use crate::caps::{MANY, Manner};
use crate::frame::{self, Flags, FrameHead, H2ErrorCode, Kind};
use crate::hpack::TABLE_BYTES;
use crate::journal::{JournalEvent, debug_text};

/// Parts of one answer's headers.
const CONTINUATIONS_MAX: usize = 32;
/// Frames that carry nothing, between two that do: a peer that sends more wants
/// our time, not our calls.
const IDLE_FRAMES_MAX: usize = 10_000;

const BAD_FRAME: Broken = Broken(H2ErrorCode::PROTOCOL_ERROR, "a frame is not valid");
const BAD_SIZE: Broken =
    Broken(H2ErrorCode::FRAME_SIZE_ERROR, "a frame has a size that it cannot have");
const BAD_WINDOW: Broken = Broken(H2ErrorCode::FLOW_CONTROL_ERROR, "a window was overrun");

impl Mux {
    /// Takes apart what arrived; returns how much of it: the rest is the beginning
    /// of something.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Instant) -> Result<usize, Broken> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if self.data.is_some() {
                if rest.is_empty() {
                    break;
                }
                at += self.receive_data(rest);
                continue;
            }
            let Some(head) = FrameHead::read(rest) else { break };
            if head.len > self.frame_bytes_max {
                return Err(BAD_SIZE);
            }
            if !self.peer.settings && head.kind != Kind::SETTINGS {
                return Err(Broken(H2ErrorCode::PROTOCOL_ERROR, "the peer does not speak HTTP/2"));
            }
            if let Some(under_way) = &self.headers
                && (head.kind != Kind::CONTINUATION || head.stream != under_way.stream)
            {
                return Err(Broken(H2ErrorCode::PROTOCOL_ERROR, "a frame between headers"));
            }
            let payload = &rest[FrameHead::LEN..];
            if head.kind == Kind::DATA {
                let Some(used) = self.begin_data(head, payload)? else { break };
                at += FrameHead::LEN + used;
                continue;
            }
            let Some(payload) = payload.get(..head.len) else { break };
            self.frame(head, payload, now)?;
            at += FrameHead::LEN + head.len;
        }
        if self.out.len() > OUT_BYTES_MAX {
            return Err(Broken(H2ErrorCode::ENHANCE_YOUR_CALM, "the peer asks and does not read"));
        }
        self.tend_abandoned(now);
        Ok(at)
    }

    fn idle_frame(&mut self) -> Result<(), Broken> {
        self.idle_frames += 1;
        if self.idle_frames > IDLE_FRAMES_MAX {
            return Err(Broken(H2ErrorCode::ENHANCE_YOUR_CALM, "too many frames without a use"));
        }
        Ok(())
    }

    /// Accounts for a frame of data; returns how much of its payload was padding's length.
    fn begin_data(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<usize>, Broken> {
        let mut used = 0;
        let mut padding = 0;
        if head.flags.has(Flags::PADDED) {
            let Some(first) = payload.first().filter(|_| head.len > 0) else {
                return if head.len == 0 { Err(BAD_SIZE) } else { Ok(None) };
            };
            (used, padding) = (1, usize::from(*first));
        }
        let left = (head.len - used).checked_sub(padding).ok_or(BAD_FRAME)?;
        self.require_ours(head.stream)?;
        if left == 0 {
            self.idle_frame()?;
        } else {
            self.idle_frames = 0;
        }
        // Given back at once: what waits unread is bounded by the streams' windows.
        self.uncredited += head.len as u32;
        if self.uncredited >= CONNECTION_WINDOW / 2 {
            let credit = std::mem::take(&mut self.uncredited);
            self.append(|out| frame::put_window_update(out, 0, credit));
        }
        let ends = head.flags.has(Flags::END_STREAM);
        if let Some(stream) = self.streams.get_mut(&head.stream)
            && stream.end.is_none()
        {
            stream.receive_window -= head.len as i64;
            if stream.receive_window < 0 {
                return Err(BAD_WINDOW);
            }
            stream.uncredited += head.len as u32;
            let total = stream.received + left as u64;
            if !stream.answered {
                self.fail(head.stream, "data before headers");
            } else if stream.length.is_some_and(|length| total > length) {
                self.overrun(head.stream);
            } else if left > 0 && !stream.abandoned {
                stream.make_room(left);
            }
        }
        self.data = Some(DataUnderWay { stream: head.stream, left, padding, ends });
        if left + padding == 0 {
            self.data_done();
        }
        Ok(Some(used))
    }

    /// Where to put what arrives next, when much of a frame of data is to come: it
    /// need not be copied. Tell [`Mux::received_directly`] how much it was.
    pub(crate) fn room(&mut self) -> Option<Limit<&mut BytesMut>> {
        let data = self.data.as_ref().filter(|data| data.left >= DIRECT_BYTES_MIN)?;
        let stream = self.streams.get_mut(&data.stream)?;
        if stream.end.is_some() || stream.abandoned {
            return None;
        }
        stream.make_room(data.left);
        Some((&mut stream.data).limit(data.left))
    }

    /// `some` bytes were put where [`Mux::room`] said.
    pub(crate) fn received_directly(&mut self, some: usize) {
        let Some(data) = &mut self.data else { return };
        data.left -= some;
        let done = data.left + data.padding == 0;
        if let Some(stream) = self.streams.get_mut(&data.stream) {
            stream.received += some as u64;
            if !done && stream.wanted > 0 && stream.data.len() >= stream.wanted {
                stream.wake();
            }
        }
        if done {
            self.data_done();
        }
    }

    /// Takes what arrived of a frame of data.
    fn receive_data(&mut self, bytes: &[u8]) -> usize {
        let Some(data) = &mut self.data else { return 0 };
        let some = data.left.min(bytes.len());
        if some > 0
            && let Some(stream) = self.streams.get_mut(&data.stream)
            && stream.end.is_none()
        {
            if !stream.abandoned {
                stream.data.extend_from_slice(&bytes[..some]);
            }
            stream.received += some as u64;
        }
        data.left -= some;
        let skipped = data.padding.min(bytes.len() - some);
        data.padding -= skipped;
        if data.left + data.padding == 0 {
            self.data_done();
        }
        some + skipped
    }

    fn data_done(&mut self) {
        let Some(data) = self.data.take() else { return };
        let Some(stream) = self.streams.get_mut(&data.stream) else { return };
        if stream.end.is_some() {
        } else if data.ends {
            stream.end = Some(Ok(()));
            stream.wake();
        } else if stream.data.len() < stream.wanted || stream.abandoned {
            self.credit(data.stream);
        } else if stream.wanted > 0 {
            stream.wake();
        }
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Broken> {
        match head.kind {
            Kind::HEADERS => self.headers(head, payload, now),
            Kind::CONTINUATION => self.continuation(head, payload, now),
            Kind::RST_STREAM => self.was_reset(head, payload),
            Kind::SETTINGS => self.settings(head, payload),
            Kind::PING => {
                let payload: &[u8; 8] = payload.try_into().map_err(|_| BAD_SIZE)?;
                if head.flags.has(Flags::ACK) {
                    self.pong = true;
                    let last = self.pinged.saturating_sub(1);
                    self.proven = Some(self.open_up_to(last));
                    return self.idle_frame();
                }
                self.append(|out| frame::put_ping(out, true, payload));
                self.idle_frame()
            }
            Kind::GOAWAY => self.goodbye(payload),
            Kind::WINDOW_UPDATE => self.window(head, payload),
            Kind::PUSH_PROMISE => {
                Err(Broken(H2ErrorCode::PROTOCOL_ERROR, "a push that was forbidden"))
            }
            // PRIORITY, and whatever is invented later.
            _ => self.idle_frame(),
        }
    }

    /// Fails unless `id` was opened by us, now or before.
    fn require_ours(&self, id: u32) -> Result<(), Broken> {
        let ours = id % 2 == 1 && id < self.next_id;
        if ours {
            Ok(())
        } else {
            Err(Broken(H2ErrorCode::PROTOCOL_ERROR, "a stream that was not opened"))
        }
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8], now: Instant) -> Result<(), Broken> {
        self.require_ours(head.stream)?;
        let mut block = payload;
        let mut padding = 0;
        if head.flags.has(Flags::PADDED) {
            let (first, rest) = block.split_first().ok_or(BAD_SIZE)?;
            (block, padding) = (rest, usize::from(*first));
        }
        if head.flags.has(Flags::PRIORITY) {
            block = block.get(5..).ok_or(BAD_SIZE)?;
        }
        let len = block.len().checked_sub(padding).ok_or(BAD_FRAME)?;
        let (block, ends) = (&block[..len], head.flags.has(Flags::END_STREAM));
        if block.len() > HEADER_BYTES_MAX {
            return Err(Broken(H2ErrorCode::ENHANCE_YOUR_CALM, "the headers are too long"));
        }
        if head.flags.has(Flags::END_HEADERS) {
            return self.answered(head.stream, block, ends, now);
        }
        let block = block.to_vec();
        self.headers = Some(HeadersUnderWay { stream: head.stream, ends, block, parts: 1 });
        Ok(())
    }

    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), Broken> {
        let Some(mut under_way) = self.headers.take() else { return Err(BAD_FRAME) };
        under_way.parts += 1;
        let size = under_way.block.len() + payload.len();
        if under_way.parts > CONTINUATIONS_MAX || size > HEADER_BYTES_MAX {
            return Err(Broken(H2ErrorCode::ENHANCE_YOUR_CALM, "the headers are too long"));
        }
        under_way.block.extend_from_slice(payload);
        if !head.flags.has(Flags::END_HEADERS) {
            self.headers = Some(under_way);
            return Ok(());
        }
        self.answered(under_way.stream, &under_way.block, under_way.ends, now)
    }

    /// A whole block of headers: an answer's, or the trailers behind it.
    fn answered(&mut self, id: u32, block: &[u8], ends: bool, now: Instant) -> Result<(), Broken> {
        // Also for an abandoned stream: all streams share the table.
        let fields = self.decoder.decode(block)?;
        let Some(stream) = self.streams.get_mut(&id) else { return self.idle_frame() };
        if stream.end.is_some() {
            return Ok(());
        }
        if stream.answered {
            if !ends {
                self.fail(id, "a second answer");
                return Ok(());
            }
            stream.end = Some(Ok(()));
            stream.wake();
            return Ok(());
        }
        let wrong = match (fields.malformed, fields.status) {
            (Some(why), _) => Some(why),
            (None, None) => Some("an answer without a status"),
            (None, Some(101)) => Some("an unsolicited interim answer"),
            (None, Some(100..=199)) if ends => Some("an interim answer that is the last"),
            (None, Some(100..=199)) => return self.idle_frame(),
            (None, Some(_)) => None,
        };
        if let Some(why) = wrong {
            self.fail(id, why);
            return Ok(());
        }
        self.idle_frames = 0;
        self.resets_in_a_row = 0;
        stream.answered = true;
        stream.length = fields.length;
        stream.head = Some((fields, now));
        if ends {
            stream.end = Some(Ok(()));
        }
        stream.wake();
        Ok(())
    }

    /// The peer broke HTTP on one stream only.
    fn fail(&mut self, id: u32, why: &'static str) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.fail(TransportErrorKind::Protocol, false, why);
        self.reset(id, H2ErrorCode::PROTOCOL_ERROR);
    }

    /// More data than announced: either of the two may be wrong.
    fn overrun(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.fail(TransportErrorKind::Truncated, false, "the answer does not have its length");
        self.reset(id, H2ErrorCode::PROTOCOL_ERROR);
    }

    fn was_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        let reason = H2ErrorCode(u32::from_be_bytes(payload.try_into().map_err(|_| BAD_SIZE)?));
        self.require_ours(head.stream)?;
        let Some(stream) = self.streams.get_mut(&head.stream) else { return self.idle_frame() };
        if let Some(told) = &mut self.told {
            told.happens(JournalEvent::Reset { stream: head.stream, code: reason.0 });
        }
        if stream.end.is_none() {
            let refused = reason == H2ErrorCode::REFUSED_STREAM;
            let detail = format!("stream reset by the peer: {reason}");
            stream.fail(TransportErrorKind::Closed, refused, &detail);
            // A refusal is no harm: those have a way of their own.
            self.resets_in_a_row = if refused { 0 } else { self.resets_in_a_row + 1 };
        }
        // The peer does not want the rest.
        stream.request.clear();
        if self.resets_in_a_row == MANY {
            let open = MANY + self.open();
            self.note_ending(Manner::Abrupt, open, self.next_id);
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return Err(BAD_FRAME);
        }
        if head.flags.has(Flags::ACK) {
            return if payload.is_empty() && self.peer.settings { Ok(()) } else { Err(BAD_SIZE) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(BAD_SIZE);
        }
        if let Some(told) = &mut self.told {
            told.happens(JournalEvent::Settings(frame::settings(payload).collect()));
        }
        for (id, value) in frame::settings(payload) {
            match id {
                frame::HEADER_TABLE_SIZE if (value as usize) < TABLE_BYTES => {
                    self.table = match self.table {
                        HeaderTable::Empty | HeaderTable::Filled | HeaderTable::Shrinking => {
                            HeaderTable::Shrinking
                        }
                        HeaderTable::Unused => HeaderTable::Unused,
                    };
                }
                frame::MAX_CONCURRENT_STREAMS => self.peer.streams_max = value as usize,
                frame::INITIAL_WINDOW_SIZE => {
                    let window = i64::from(value);
                    if window > WINDOW_MAX {
                        return Err(BAD_WINDOW);
                    }
                    let change = window - self.peer.stream_window;
                    self.peer.stream_window = window;
                    for stream in self.streams.values_mut() {
                        stream.send_window += change;
                    }
                }
                // Otherwise not used: larger frames would only hold up small requests.
                frame::MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(BAD_FRAME);
                }
                _ => {}
            }
        }
        self.peer.settings = true;
        self.append(frame::put_settings_ack);
        self.idle_frame()
    }

    fn goodbye(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let [l0, l1, l2, l3, r0, r1, r2, r3, ..] = *payload else { return Err(BAD_SIZE) };
        let last = u32::from_be_bytes([l0 & 0x7f, l1, l2, l3]);
        if let Some(told) = &mut self.told {
            let code = u32::from_be_bytes([r0, r1, r2, r3]);
            let debug = debug_text(&payload[8..]);
            told.happens(JournalEvent::Goaway { code, last_stream: last, debug });
        }
        // A server may say it twice, the second time with a lower id.
        let said_before = self.goaway.is_some();
        let last = self.goaway.map_or(last, |before| before.min(last));
        self.goaway = Some(last);
        // Its debug data may quote a path: the reason must do.
        let reason = H2ErrorCode(u32::from_be_bytes([r0, r1, r2, r3]));
        if !self.closing && !said_before {
            let orderly = reason == H2ErrorCode::NO_ERROR;
            let manner = if orderly { Manner::Orderly } else { Manner::Abrupt };
            self.farewell = Some(manner);
            // Those that it took in and the first that it did not, if it counts like that.
            let (taken, all) = (self.open_up_to(last), self.open());
            let open = if (MANY..all).contains(&taken) { taken + 1 } else { all };
            self.note_ending(manner, open, last);
        }
        let detail = format!("connection ended by the peer: {reason}");
        if self.told.is_some() {
            let disowned = self.open() - self.open_up_to(last);
            if let Some(told) = &mut self.told {
                told.disowned += disowned;
            }
        }
        for (_, stream) in self.streams.iter_mut().filter(|(id, _)| **id > last) {
            stream.fail(TransportErrorKind::Closed, true, &detail);
        }
        self.idle_frame()
    }

    fn window(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        let payload: [u8; 4] = payload.try_into().map_err(|_| BAD_SIZE)?;
        let more = i64::from(u32::from_be_bytes(payload) & 0x7fff_ffff);
        if more == 0 {
            return Err(BAD_FRAME);
        }
        if head.stream == 0 {
            self.send_window += more;
            if self.send_window > WINDOW_MAX {
                return Err(BAD_WINDOW);
            }
        } else {
            self.require_ours(head.stream)?;
            if let Some(stream) = self.streams.get_mut(&head.stream) {
                stream.send_window += more;
                if stream.send_window > WINDOW_MAX {
                    return Err(BAD_WINDOW);
                }
            }
        }
        self.idle_frame()
    }
}
