//! Rows and quota events over HTTP, at least once each.
//!
//! One request at a time, in order. An attempt that fails is repeated after a [`pause`]. What waits
//! meanwhile is in the backlog, and bounded there.
//!
//! A body that the peer refuses for what it is (400 or 422 again and again) goes after
//! [`REFUSALS_MAX`] attempts, or it would hold up all behind it for ever; one that is too large (413)
//! is halved. Everything else may be mended by an operator and is repeated for as long as it takes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use wellhead_access::QuotaCrossing;
use wellhead_access::usage::{UsageRow, write_clickhouse, write_jsonl};
use wellhead_transport::Transport;

use super::backlog::OutletBacklog;
use super::counts::UsageCounts;
use crate::outlet::{pause, post, wait};

/// Some minutes, in which a schema may be mended.
const REFUSALS_MAX: u32 = 10;
/// Of an answer this much is read, for the log.
const ANSWER_BYTES: usize = 4_096;
/// And this much is told.
const ANSWER_CHARS_TOLD: usize = 200;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushBody {
    /// JSON lines.
    Jsonl,
    /// `JSONEachRow`.
    ClickHouse,
}

/// How parcels travel.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliverySettings {
    /// For the log.
    pub(super) name: &'static str,
    pub(super) body: PushBody,
    pub(super) batch_rows: usize,
    pub(super) timeout: Duration,
    /// After the first failure.
    pub(super) pause_min: Duration,
}

/// What is sent.
#[derive(Debug, Clone)]
pub(super) enum UsageParcel {
    /// A part of the rows of a take.
    Rows { rows: Arc<[UsageRow]>, range: Range<usize> },
    /// A quota event.
    Crossing(QuotaCrossing),
}

impl UsageParcel {
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Rows { range, .. } => range.len(),
            Self::Crossing(_) => 1,
        }
    }

    /// Its first `rows_max` rows, and the rest if there are more.
    fn split(self, rows_max: usize) -> (Self, Option<Self>) {
        match self {
            Self::Rows { rows, range } if range.len() > rows_max => {
                let middle = range.start + rows_max;
                let rest = Self::Rows { rows: Arc::clone(&rows), range: middle..range.end };
                (Self::Rows { rows, range: range.start..middle }, Some(rest))
            }
            whole @ (Self::Rows { .. } | Self::Crossing(_)) => (whole, None),
        }
    }

    fn body(&self, replica: &str, body: PushBody) -> Bytes {
        match self {
            Self::Rows { rows, range } => {
                let rows = &rows[range.clone()];
                let mut text = Vec::with_capacity(rows.len() * 400);
                match body {
                    PushBody::Jsonl => write_jsonl(&mut text, replica, rows),
                    PushBody::ClickHouse => write_clickhouse(&mut text, replica, rows),
                }
                text.into()
            }
            Self::Crossing(crossing) => crossing.to_json(replica).into(),
        }
    }
}

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
enum Attempted {
    Taken,
    /// It is too large.
    TooLarge,
    /// The peer does not want this body.
    Refused(String),
    /// It may be taken later.
    Failed(String, Option<Duration>),
}

/// The loop that empties a backlog over HTTP.
pub(super) struct Delivery {
    pub(super) backlog: Arc<OutletBacklog<UsageParcel>>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) settings: DeliverySettings,
    pub(super) replica: Arc<str>,
    pub(super) counts: Arc<UsageCounts>,
    pub(super) rng: SmallRng,
}

impl Delivery {
    /// Ends when `closing` says so and nothing is left.
    pub(super) async fn run(mut self, mut closing: watch::Receiver<bool>) {
        while let Some(parcel) = self.backlog.next(&mut closing).await {
            let (parcel, rest) = parcel.split(self.settings.batch_rows);
            self.put_back(rest);
            self.deliver(parcel, &mut closing).await;
        }
    }

    fn put_back(&self, rest: Option<UsageParcel>) {
        if let Some(rest) = rest {
            let weight = rest.weight();
            self.backlog.put_back(rest, weight);
        }
    }

    async fn deliver(&mut self, parcel: UsageParcel, closing: &mut watch::Receiver<bool>) {
        let name = self.settings.name;
        let body = parcel.body(&self.replica, self.settings.body);
        let (mut failures, mut refusals) = (0_u32, 0_u32);
        loop {
            let asked = match self.attempt(body.clone()).await {
                Attempted::Taken => {
                    if failures > 0 {
                        tracing::info!(name, failures, "usage is taken again");
                    }
                    return self.note_taken(&parcel);
                }
                Attempted::TooLarge if parcel.weight() > 1 => {
                    let half = parcel.weight().div_ceil(2);
                    let (first, rest) = parcel.split(half);
                    self.put_back(rest);
                    return self.put_back(Some(first));
                }
                Attempted::TooLarge => {
                    return self.give_up(&parcel, "the peer finds one row too large");
                }
                Attempted::Refused(why) => {
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        return self.give_up(&parcel, &why);
                    }
                    self.tell(failures, &why);
                    None
                }
                Attempted::Failed(why, retry_after) => {
                    self.tell(failures, &why);
                    retry_after
                }
            };
            self.counts.delivery_failed();
            failures = failures.saturating_add(1);
            let pause = pause(self.settings.pause_min, failures, asked, &mut self.rng);
            wait(pause, closing).await;
        }
    }

    async fn attempt(&self, body: Bytes) -> Attempted {
        match post(&*self.transport, body, self.settings.timeout, ANSWER_BYTES).await {
            Err(why) => Attempted::Failed(why, None),
            Ok(reply) => {
                let text = String::from_utf8_lossy(&reply.body);
                let text: String = text.chars().take(ANSWER_CHARS_TOLD).collect();
                judge(reply.status, reply.retry_after, &text)
            }
        }
    }

    fn note_taken(&self, parcel: &UsageParcel) {
        match parcel {
            UsageParcel::Rows { range, .. } => self.counts.delivered(range.len(), 0),
            UsageParcel::Crossing(_) => self.counts.delivered(0, 1),
        }
    }

    fn give_up(&self, parcel: &UsageParcel, why: &str) {
        let (name, rows) = (self.settings.name, parcel.weight());
        tracing::error!(name, rows, why, "usage was refused again and again: it is dropped");
        match parcel {
            UsageParcel::Rows { range, .. } => self.counts.dropped_by_push(range.len()),
            UsageParcel::Crossing(_) => self.counts.dropped_crossings(1),
        }
    }

    /// Once for each time that the peer fails: it is tried again and again.
    fn tell(&self, failures: u32, why: &str) {
        if failures == 0 {
            let name = self.settings.name;
            tracing::warn!(name, why, "usage was not taken: it waits, and is sent again");
        }
    }
}

/// What a status means for the body that was sent.
fn judge(status: u16, retry_after: Option<Duration>, text: &str) -> Attempted {
    match status {
        200..=299 => Attempted::Taken,
        413 => Attempted::TooLarge,
        400 | 406 | 409..=412 | 414..=424 => Attempted::Refused(format!("HTTP {status}: {text}")),
        // Also redirects, which are not followed, and credentials that an operator has to mend.
        _ => Attempted::Failed(format!("HTTP {status}: {text}"), retry_after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_say_whether_to_go_on() {
        let check = |status: u16, expected: Attempted| {
            let asked = Some(Duration::from_secs(7));
            assert_eq!(judge(status, asked, "why"), expected, "{status}");
        };
        let failed = |status: u16| {
            Attempted::Failed(format!("HTTP {status}: why"), Some(Duration::from_secs(7)))
        };
        for status in [200, 202, 204] {
            check(status, Attempted::Taken);
        }
        check(413, Attempted::TooLarge);
        for status in [400, 415, 422] {
            check(status, Attempted::Refused(format!("HTTP {status}: why")));
        }
        for status in [301, 307, 401, 403, 404, 408, 425, 429, 500, 502, 503, 504] {
            check(status, failed(status));
        }
    }
}
