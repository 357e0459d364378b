//! `fresh` by subscriptions: each target pushes its new heads (`eth_subscribe`), and the time of a
//! block is when its message arrives.
//!
//! Cells are those of [`fresh`](super::fresh), with the beginning at the end: nothing has to be
//! guessed between two polls. The last one says `{"pushed": n, "missed": n, "doubles": n,
//! "lost": n}`: messages, heights that none came for, heads that came twice, and connections that
//! ended and were opened again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use wellhead_telemetry::SecretUrl;

use super::fresh::{FreshTerms, watched};
use super::{Factors, factors, quantity};
use crate::measure::client::{FinishedCall, TargetEndpoint, WsSession};
use crate::measure::run::{Panel, RunError};
use crate::work::WorkCall;

/// Connections that are opened again to one target.
const REOPENED_MAX: u64 = 10;
/// Before that.
const PAUSE: Duration = Duration::from_secs(1);
/// Heads that wait to be noted; a target that pushes more waits itself.
const WAITING_MAX: usize = 1_024;
/// Heights whose hashes are remembered: a head below that is not told from one that comes twice.
const KEPT: usize = 256;
/// Hashes of one height that are remembered; no chain has as many blocks there.
const HASHES_MAX: usize = 16;
/// A hash is `0x` and 32 bytes in hexadecimal; what is longer is none.
const HASH_BYTES_MAX: usize = 66;

/// Calls to one target at most: a subscription for each connection.
pub fn calls_max() -> u64 {
    1 + REOPENED_MAX
}

/// What a target pushed.
enum PushEvent {
    /// The call that subscribes is over.
    Subscribed(Box<FinishedCall>),
    Head {
        at: Instant,
        number: u64,
        hash: String,
    },
    /// The connection could not be opened, or has ended.
    Lost,
}

/// What a head is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadKind {
    First,
    /// Higher than every head before it.
    New {
        /// Heights in between for which no head came.
        missed: u64,
    },
    Double,
    /// Another one for a height that had one, or a lower one.
    Back,
}

/// The heads of one target.
#[derive(Debug, Default)]
struct HeadLog {
    hashes: BTreeMap<u64, Vec<String>>,
    pushed: u64,
    missed: u64,
    doubles: u64,
    lost: u64,
}

impl HeadLog {
    fn add(&mut self, number: u64, hash: &str) -> HeadKind {
        self.pushed += 1;
        let newest = self.hashes.keys().next_back().copied();
        let known = self.hashes.entry(number).or_default();
        let is_double = known.iter().any(|other| other == hash);
        if !is_double && known.len() < HASHES_MAX {
            known.push(hash.to_owned());
        }
        while self.hashes.len() > KEPT {
            self.hashes.pop_first();
        }
        match newest {
            None => HeadKind::First,
            Some(_) if is_double => {
                self.doubles += 1;
                HeadKind::Double
            }
            Some(newest) if number > newest => {
                let missed = number - newest - 1;
                self.missed += missed;
                HeadKind::New { missed }
            }
            Some(_) => HeadKind::Back,
        }
    }

    fn factors(&self, lasted: Duration) -> Factors {
        factors([
            ("watched_ms", lasted.as_micros().div_ceil(1_000).to_string()),
            ("pushed", self.pushed.to_string()),
            ("missed", self.missed.to_string()),
            ("doubles", self.doubles.to_string()),
            ("lost", self.lost.to_string()),
        ])
    }
}

/// Listens until the time is over, or the run is to end; `sockets` has the URL of a target's
/// WebSocket where it is another than its own.
///
/// # Errors
///
/// Where records cannot be written.
pub async fn play(
    panel: &mut Panel<'_, '_>,
    terms: &FreshTerms,
    sockets: &[Option<SecretUrl>],
) -> Result<(), RunError> {
    let lasting = terms.lasting.saturating_sub(watched(&panel.take_earlier()));
    if lasting.is_zero() || !panel.pay(calls_max() * panel.len() as u64)? {
        return Ok(());
    }
    let (sender, mut events) = channel(WAITING_MAX);
    let mut listeners = JoinSet::new();
    for seat in 0..panel.len() {
        let endpoint = panel.member(seat).endpoint.clone();
        let url = sockets.get(seat).cloned().flatten();
        let sender = sender.clone();
        listeners.spawn(async move { listen(&endpoint, url.as_ref(), &sender, seat).await });
    }
    drop(sender);
    let begun = Instant::now();
    let mut logs: Vec<HeadLog> = (0..panel.len()).map(|_| HeadLog::default()).collect();
    let mut calls: Vec<Vec<FinishedCall>> = (0..panel.len()).map(|_| Vec::new()).collect();
    let mut lasted = None;
    loop {
        let event = tokio::select! {
            biased;
            () = panel.stop().wait() => break,
            event = events.recv() => event,
            () = sleep_until(begun + lasting) => {
                lasted = Some(lasting);
                break;
            }
        };
        let Some((seat, event)) = event else { break };
        match event {
            PushEvent::Subscribed(call) => calls[seat].push(*call),
            PushEvent::Lost => logs[seat].lost += 1,
            PushEvent::Head { at, number, hash } => {
                let kind = logs[seat].add(number, &hash);
                note(panel, seat, kind, number, at, std::mem::take(&mut calls[seat]))?;
            }
        }
    }
    listeners.abort_all();
    let lasted = lasted.unwrap_or_else(|| begun.elapsed().min(lasting));
    for (seat, (log, calls)) in logs.into_iter().zip(calls).enumerate() {
        panel.close(seat, log.factors(lasted), calls, Some((begun, Instant::now())))?;
    }
    Ok(())
}

/// Writes what a head means.
fn note(
    panel: &mut Panel<'_, '_>,
    seat: usize,
    kind: HeadKind,
    number: u64,
    at: Instant,
    calls: Vec<FinishedCall>,
) -> Result<(), RunError> {
    let name = match kind {
        HeadKind::First => "start",
        HeadKind::New { .. } => "block",
        HeadKind::Back => "back_to",
        HeadKind::Double => return Ok(()),
    };
    panel.close(seat, factors([(name, number.to_string())]), calls, Some((at, at)))
}

/// Subscribes, and again where the connection ends.
async fn listen(
    endpoint: &TargetEndpoint,
    url: Option<&SecretUrl>,
    sender: &Sender<(usize, PushEvent)>,
    seat: usize,
) {
    for nth in 0..=REOPENED_MAX {
        if nth > 0 {
            sleep(PAUSE).await;
        }
        if let Some(mut session) = WsSession::open(endpoint, url).await {
            let params = r#"["newHeads"]"#.to_owned();
            let ask = WorkCall { method: "eth_subscribe", params };
            let done = session.ask(&ask).await;
            let is_open = done.result().is_some();
            if sender.send((seat, PushEvent::Subscribed(Box::new(done)))).await.is_err() {
                return;
            }
            while is_open && let Some(message) = session.next_message().await {
                let at = Instant::now();
                let Some((number, hash)) = head(&message) else { continue };
                let event = PushEvent::Head { at, number, hash };
                if sender.send((seat, event)).await.is_err() {
                    return;
                }
            }
        }
        if sender.send((seat, PushEvent::Lost)).await.is_err() {
            return;
        }
    }
}

/// Height and hash of a pushed head.
fn head(message: &[u8]) -> Option<(u64, String)> {
    let message: Value = serde_json::from_slice(message).ok()?;
    let head = message.get("params")?.get("result")?;
    let hash = head.get("hash")?.as_str().filter(|hash| hash.len() <= HASH_BYTES_MAX)?;
    Some((quantity(head.get("number")?)?, hash.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_new_missed_doubled_or_back() {
        let mut log = HeadLog::default();
        let new = |missed| HeadKind::New { missed };
        for (number, hash, expected) in [
            (10, "a", HeadKind::First),
            (11, "b", new(0)),
            (11, "b", HeadKind::Double),
            // A reorg, and the same head once more.
            (11, "c", HeadKind::Back),
            (11, "b", HeadKind::Double),
            (15, "d", new(3)),
            (12, "e", HeadKind::Back),
            (16, "f", new(0)),
        ] {
            assert_eq!(log.add(number, hash), expected, "{number} {hash}");
        }
        assert_eq!((log.pushed, log.missed, log.doubles), (8, 3, 2));
        for number in 17..17 + 2 * KEPT as u64 {
            log.add(number, "x");
        }
        assert_eq!(log.hashes.len(), KEPT);
        let newest = 16 + 2 * KEPT as u64;
        for fork in 0..2 * HASHES_MAX {
            log.add(newest, &format!("{fork}"));
        }
        assert_eq!(log.hashes[&newest].len(), HASHES_MAX);
    }

    #[test]
    fn a_message_is_a_head_or_is_passed_over() {
        let push = br#"{"method":"eth_subscription","params":{"subscription":"0x1","result":{"number":"0x1f","hash":"0xab"}}}"#;
        assert_eq!(head(push), Some((31, "0xab".to_owned())));
        assert_eq!(head(br#"{"id":1,"result":"0x1"}"#), None);
        assert_eq!(head(b"nonsense"), None);
        let text = |hash: String| {
            format!(r#"{{"params":{{"result":{{"number":"0x1","hash":"{hash}"}}}}}}"#)
        };
        let hash = "a".repeat(HASH_BYTES_MAX);
        assert_eq!(head(text(hash.clone()).as_bytes()), Some((1, hash.clone())));
        assert_eq!(head(text(hash + "a").as_bytes()), None);
    }
}
