//! The HTTP/2 side of the [upstream](super::upstream), with every way to misbehave.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Duration, sleep};

use super::frame::{
    ACK, END_HEADERS, END_STREAM, frame, kind, literal, read, reset, setting, settings,
    window_update,
};
use super::hostile::{Http2Fault, Mode};
use super::upstream::{Body, Shared, take_time};

/// Streams that it allows at once.
const STREAMS_MAX: u32 = 1_000;
/// No flood is longer: wellhead has to leave long before.
const FLOOD_FRAMES_MAX: usize = 10_000_000;
/// Frames of a flood that are written at once.
const FLOOD_TOGETHER: usize = 64;
/// DATA frames are at most this long.
const DATA_BYTES_MAX: usize = 16 * 1024;
const WINDOW: u32 = 16 * 1024 * 1024;

/// What a client allows before it says otherwise (RFC 9113, section 6.9.2).
const WINDOW_AT_FIRST: i64 = 65_535;

/// The side that writes.
struct Writer {
    to: Mutex<OwnedWriteHalf>,
    windows: std::sync::Mutex<Windows>,
    grown: Notify,
}

/// How much the client takes.
struct Windows {
    connection: i64,
    at_first: i64,
    /// Of streams that are open.
    streams: HashMap<u32, i64>,
}

impl Writer {
    async fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.to.lock().await.write_all(bytes).await
    }

    fn change(&self, change: impl FnOnce(&mut Windows)) {
        change(&mut self.windows.lock().expect("no holder of this lock panics"));
        self.grown.notify_waiters();
    }

    /// Waits for room, and takes at most `most` of it; `None` when the stream was reset.
    async fn take_window(&self, stream: u32, most: usize) -> Option<usize> {
        loop {
            let grown = self.grown.notified();
            {
                let mut windows = self.windows.lock().expect("no holder of this lock panics");
                let room = windows.connection.min(*windows.streams.get(&stream)?);
                if let Ok(room) = usize::try_from(room)
                    && room > 0
                {
                    let taken = room.min(most);
                    let bytes = i64::try_from(taken).unwrap_or_default();
                    windows.connection -= bytes;
                    windows.streams.entry(stream).and_modify(|window| *window -= bytes);
                    return Some(taken);
                }
            }
            grown.await;
        }
    }
}

/// Serves a connection whose preface was read.
pub(crate) async fn serve(stream: TcpStream, first: Vec<u8>, shared: Arc<Shared>) {
    let (from, to) = stream.into_split();
    let mut from = tokio::io::AsyncReadExt::chain(std::io::Cursor::new(first), from);
    let windows =
        Windows { connection: WINDOW_AT_FIRST, at_first: WINDOW_AT_FIRST, streams: HashMap::new() };
    let to = Arc::new(Writer {
        to: Mutex::new(to),
        windows: std::sync::Mutex::new(windows),
        grown: Notify::new(),
    });
    let mut hello = settings(&[
        (setting::MAX_CONCURRENT_STREAMS, STREAMS_MAX),
        (setting::INITIAL_WINDOW_SIZE, WINDOW),
    ]);
    hello.extend(window_update(0, WINDOW));
    if to.write(&hello).await.is_err() {
        return;
    }
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut running = tokio::task::JoinSet::new();
    while let Some(read) = read(&mut from).await {
        while running.try_join_next().is_some() {}
        let reply = match read.kind {
            kind::SETTINGS if read.flags & ACK == 0 => {
                to.change(|windows| windows.set_all(&read.payload));
                frame(kind::SETTINGS, ACK, 0, &[])
            }
            kind::PING if read.flags & ACK == 0 => frame(kind::PING, ACK, 0, &read.payload),
            kind::HEADERS => {
                to.change(|windows| windows.open(read.stream));
                Vec::new()
            }
            kind::DATA => {
                bodies.entry(read.stream).or_default().extend_from_slice(&read.payload);
                if read.flags & END_STREAM != 0 {
                    let body = bodies.remove(&read.stream).unwrap_or_default();
                    running.spawn(answer(read.stream, body, Arc::clone(&to), Arc::clone(&shared)));
                }
                match u32::try_from(read.payload.len()) {
                    Ok(0) | Err(_) => Vec::new(),
                    Ok(bytes) => window_update(0, bytes),
                }
            }
            kind::WINDOW_UPDATE => {
                to.change(|windows| windows.grow(read.stream, &read.payload));
                Vec::new()
            }
            kind::RST_STREAM => {
                bodies.remove(&read.stream);
                to.change(|windows| _ = windows.streams.remove(&read.stream));
                Vec::new()
            }
            _ => Vec::new(),
        };
        if !reply.is_empty() && to.write(&reply).await.is_err() {
            return;
        }
    }
}

impl Windows {
    fn open(&mut self, stream: u32) {
        self.streams.insert(stream, self.at_first);
    }

    fn grow(&mut self, stream: u32, payload: &[u8]) {
        let bytes = i64::from(u32_of(payload));
        match self.streams.get_mut(&stream) {
            _ if stream == 0 => self.connection += bytes,
            Some(window) => *window += bytes,
            None => {}
        }
    }

    /// A new first window changes those of streams that are open by the difference.
    fn set_all(&mut self, payload: &[u8]) {
        for one in payload.chunks_exact(6) {
            if one[..2] == setting::INITIAL_WINDOW_SIZE.to_be_bytes() {
                let value = i64::from(u32_of(&one[2..]));
                let difference = value - self.at_first;
                self.at_first = value;
                self.streams.values_mut().for_each(|window| *window += difference);
            }
        }
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_be_bytes)
}

async fn answer(stream: u32, body: Vec<u8>, to: Arc<Writer>, shared: Arc<Shared>) {
    let (answer, takes_time) = shared.answer(&body);
    // A proxy's own checks are answered, so that it comes back again and again.
    if let Mode::Http2(fault) = shared.mode()
        && takes_time
    {
        let _gone = act(fault, stream, answer, &to).await;
        return;
    }
    if takes_time {
        take_time().await;
    }
    let _gone = send(stream, answer, &to).await;
}

async fn send(stream: u32, answer: Body, to: &Writer) -> std::io::Result<()> {
    let mut bytes = frame(kind::HEADERS, END_HEADERS, stream, &response_fields());
    let text = answer.text();
    let mut left = text.as_bytes();
    loop {
        let most = left.len().min(DATA_BYTES_MAX);
        let taken = match most {
            0 => 0,
            // Reset: nothing more is wanted.
            _ => match to.take_window(stream, most).await {
                Some(taken) => taken,
                None => return Ok(()),
            },
        };
        let (piece, rest) = left.split_at(taken);
        left = rest;
        let flags = if left.is_empty() { END_STREAM } else { 0 };
        bytes.extend(frame(kind::DATA, flags, stream, piece));
        to.write(&bytes).await?;
        bytes.clear();
        if left.is_empty() {
            to.change(|windows| _ = windows.streams.remove(&stream));
            return Ok(());
        }
    }
}

/// `:status 200` of the static table and the type.
fn response_fields() -> Vec<u8> {
    [vec![0x88], literal("content-type", "application/json")].concat()
}

/// Writes `piece` again and again.
async fn flood(start: &[u8], piece: &[u8], to: &Writer) -> std::io::Result<()> {
    // Held throughout: no frame of another stream may come between.
    let mut to = to.to.lock().await;
    to.write_all(start).await?;
    let together = piece.repeat(FLOOD_TOGETHER);
    for _ in 0..FLOOD_FRAMES_MAX / FLOOD_TOGETHER {
        to.write_all(&together).await?;
    }
    Ok(())
}

/// `:status 200`, and fields that HTTP/2 forbids.
fn bad_fields() -> Vec<u8> {
    [
        vec![0x88],
        literal("X-UPPER", "case"),
        literal(":late", "pseudo"),
        literal("connection", "close"),
        literal("x-break", "a\r\nb: c"),
    ]
    .concat()
}

async fn act(fault: Http2Fault, stream: u32, answer: Body, to: &Writer) -> std::io::Result<()> {
    let response = |fields: &[u8]| frame(kind::HEADERS, END_HEADERS, stream, fields);
    let headers = response(&response_fields());
    let write = async |bytes: &[u8]| to.write(bytes).await;
    match fault {
        Http2Fault::ResetEach => write(&reset(stream, 2)).await,
        Http2Fault::RefuseEach => write(&reset(stream, 7)).await,
        Http2Fault::GoAwayEach => write(&frame(kind::GOAWAY, 0, 0, &[0; 8])).await,
        Http2Fault::SettingsFlood => {
            flood(&[], &settings(&[(setting::MAX_CONCURRENT_STREAMS, STREAMS_MAX)]), to).await
        }
        Http2Fault::PingFlood => flood(&[], &frame(kind::PING, 0, 0, &[1; 8]), to).await,
        Http2Fault::ContinuationFlood => {
            let start = frame(kind::HEADERS, 0, stream, &response_fields());
            let field = literal("x-endless", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
            flood(&start, &frame(kind::CONTINUATION, 0, stream, &field), to).await
        }
        Http2Fault::HpackBomb => write(&response(&[vec![0x88], bomb_fields()].concat())).await,
        Http2Fault::TableSizes => {
            let sizes = [0, 4096].map(|size| settings(&[(setting::HEADER_TABLE_SIZE, size)]));
            flood(&[], &sizes.concat(), to).await
        }
        Http2Fault::WindowZero => write(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])).await,
        Http2Fault::WindowOverflow => {
            let most = window_update(0, 0x7fff_ffff);
            write(&[most.clone(), most].concat()).await
        }
        Http2Fault::DataBeyondWindow => {
            let piece = frame(kind::DATA, 0, stream, &[b'a'; DATA_BYTES_MAX]);
            flood(&headers, &piece, to).await
        }
        Http2Fault::DataOnClosed => {
            send(stream, answer, to).await?;
            flood(&[], &frame(kind::DATA, 0, stream, b"late"), to).await
        }
        Http2Fault::EmptyData => flood(&headers, &frame(kind::DATA, 0, stream, &[]), to).await,
        Http2Fault::PushPromise => {
            let promise = [&2u32.to_be_bytes()[..], &[0x82, 0x86, 0x84]].concat();
            write(&frame(kind::PUSH_PROMISE, END_HEADERS, stream, &promise)).await
        }
        Http2Fault::NoStreams => write(&settings(&[(setting::MAX_CONCURRENT_STREAMS, 0)])).await,
        Http2Fault::LongFrame => {
            let long = frame(kind::DATA, 0, stream, &[b'a'; 1024 * 1024]);
            write(&[headers, long].concat()).await
        }
        Http2Fault::Garbage => write(&[0xff; 64]).await,
        Http2Fault::Interim => flood(&[], &response(&literal(":status", "103")), to).await,
        Http2Fault::BadFields => {
            write(&response(&bad_fields())).await?;
            send(stream, answer, to).await
        }
        Http2Fault::Silent => {
            sleep(Duration::from_secs(3600)).await;
            Ok(())
        }
    }
}

/// A field of 4 KiB that goes to the table, and then is named by one byte each, 12,000 times.
pub(crate) fn bomb_fields() -> Vec<u8> {
    const VALUE_BYTES: usize = 3900;
    // Literal with indexing, new name `x`; the length of the value needs continuation bytes.
    let mut block = vec![0x40, 1, b'x', 0x7f];
    let mut left = VALUE_BYTES - 127;
    while left >= 128 {
        block.push(0x80 | u8::try_from(left % 128).unwrap_or_default());
        left /= 128;
    }
    block.push(u8::try_from(left).unwrap_or_default());
    block.extend(std::iter::repeat_n(b'a', VALUE_BYTES));
    // Index 62 is the newest of the dynamic table.
    block.extend(std::iter::repeat_n(0x80 | 62, 12_000));
    block
}
