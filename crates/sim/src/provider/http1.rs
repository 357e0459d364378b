//! HTTP/1.1 of a fake provider: one request after the other, `content-length` only.

use std::fmt::Write as _;
use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::count::count;
use super::desk::{ConnectionState, Desk, ProviderAnswer};
use super::meter::pieces;
use super::wire::ProviderSocket;
use crate::fast::{Heading, next_request};
use crate::node::reason;

/// Serves until either side closes.
pub(super) async fn serve(mut wire: ProviderSocket, desk: &Desk) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(super::READ_BYTES);
    let mut turns = desk.turns();
    let place = ConnectionState::default();
    let (mut taken, mut quiet_since) = (0u64, Instant::now());
    while let Some(heading) = next(&mut wire, &mut input, desk, &mut turns, quiet_since).await? {
        if desk.has_its_share(taken, true) {
            count(&desk.counters.recycled);
            return wire.shutdown().await;
        }
        let post = input.starts_with(b"POST ");
        let body = &input[heading.head..heading.head + heading.body];
        let (answer, readable) = match (post, body.is_empty()) {
            (true, false) => (desk.answer(&place, body).await, true),
            // Perhaps it comes in chunks, which we would take for the next request.
            (true, true) => (ProviderAnswer::bare(411), false),
            (false, _) => (ProviderAnswer::bare(405), true),
        };
        input.advance(heading.head + heading.body);
        taken += 1;
        let delay = desk.read(|dials| dials.http1_delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let recycles = desk.has_its_share(taken, false);
        if recycles {
            count(&desk.counters.recycled);
        }
        let closes = recycles || heading.close || !readable;
        write(&mut wire, desk, answer, closes).await?;
        if closes {
            break;
        }
        quiet_since = Instant::now();
    }
    wire.shutdown().await
}

/// The next request, or `None` when the connection is to be closed.
async fn next(
    wire: &mut ProviderSocket,
    input: &mut BytesMut,
    desk: &Desk,
    turns: &mut watch::Receiver<u64>,
    quiet_since: Instant,
) -> io::Result<Option<Heading>> {
    loop {
        if let Some(heading) = next_request(input)? {
            return Ok(Some(heading));
        }
        if !super::read_more(wire, input, desk, turns, quiet_since).await? {
            return Ok(None);
        }
    }
}

async fn write(
    wire: &mut ProviderSocket,
    desk: &Desk,
    answer: ProviderAnswer,
    closes: bool,
) -> io::Result<()> {
    let ProviderAnswer { status, retry_after, body } = answer;
    let mut head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        reason(status),
        body.len()
    );
    if let Some(seconds) = retry_after {
        let _ = write!(head, "retry-after: {seconds}\r\n");
    }
    head.push_str(if closes { "connection: close\r\n\r\n" } else { "\r\n" });
    let mut out = head.into_bytes();
    match desk.read(|dials| dials.body_bytes_per_second) {
        None => {
            out.extend_from_slice(&body);
            wire.write_all(&out).await?;
        }
        Some(per_second) => {
            let began = Instant::now();
            wire.write_all(&out).await?;
            for (after, piece) in pieces(&body, per_second) {
                wire.flush().await?;
                tokio::time::sleep_until(began + after).await;
                wire.write_all(&piece).await?;
            }
        }
    }
    wire.flush().await
}
