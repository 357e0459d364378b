//! Where all parts write down what happens, while it happens.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::evidence::{
    Answered, At, Caller, End, Evidence, Exchange, Head, Item, OpenedFeed, Place,
    PooledTransaction, PushedTransaction, Received, Replaced, Request, Told,
};
use crate::session::{Crossing, Notice, PendingForm, Session, SessionEnd};

/// Longer texts are cut in the lines for people; the checkers see them whole.
const SHOWN_MAX: usize = 160;

/// Writes evidence; shared by all parts of one scenario.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    evidence: Mutex<Evidence>,
}

impl Recorder {
    /// Begins now, by the paused clock.
    pub fn new(evidence: Evidence) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), evidence: Mutex::new(evidence) })
    }

    /// Time since the scenario began.
    pub fn now(&self) -> At {
        self.began.elapsed()
    }

    /// The instant of a time.
    pub fn instant(&self, at: At) -> Instant {
        self.began + at
    }

    /// Looks at, or adds to, what was written.
    pub fn with<T>(&self, look: impl FnOnce(&mut Evidence) -> T) -> T {
        look(&mut self.evidence.lock())
    }

    /// A line for people.
    pub fn note(&self, line: String) {
        let at = self.now();
        self.with(|evidence| evidence.journal.note(at, line));
    }

    /// A line of the proxy's own log.
    pub fn log(&self, line: String) {
        let at = self.now();
        self.with(|evidence| {
            evidence.journal.note(at, format!("log {line}"));
            evidence.pages.push(("log", line));
        });
    }

    /// A block became known.
    pub fn block(&self, chain: usize, number: u64, hash: B256) {
        let at = self.now();
        self.with(|evidence| {
            evidence.blocks[chain].entry(number).or_default().push(hash);
            evidence.heights[chain].push((at, number));
            evidence.journal.note(at, format!("chain {chain}: block {number} {hash}"));
        });
    }

    /// An upstream tells a new block by itself.
    pub fn told_head(&self, place: Place, number: u64, hash: B256) {
        let at = self.now();
        self.with(|evidence| evidence.told_heads.push(Head { place, at, number, hash }));
    }

    /// An upstream opens a feed; returns the feed's number.
    pub fn opened_feed(&self, place: Place) -> usize {
        let at = self.now();
        self.with(|evidence| {
            evidence.feeds.push(OpenedFeed { place, opened: at, closed: None, is_of_pool: false });
            evidence.feeds.len() - 1
        })
    }

    /// A feed is asked for pending transactions.
    pub fn feed_is_of_pool(&self, number: usize) {
        self.with(|evidence| evidence.feeds[number].is_of_pool = true);
    }

    /// A transaction enters the pool of a chain.
    pub fn pooled(&self, chain: usize, hash: B256) {
        let at = self.now();
        self.with(|evidence| evidence.pooled.push(PooledTransaction { chain, at, hash }));
    }

    /// An upstream pushes a pending transaction.
    pub fn pushed_pending(&self, place: Place, form: PendingForm, hash: B256) {
        let at = self.now();
        self.with(|evidence| evidence.pushed.push(PushedTransaction { place, at, form, hash }));
    }

    /// A feed ended.
    pub fn closed_feed(&self, number: usize) {
        let at = self.now();
        self.with(|evidence| {
            // The evidence of a scenario that is over is elsewhere.
            if let Some(feed) = evidence.feeds.get_mut(number) {
                feed.closed = Some(at);
            }
        });
    }

    /// A subscriber opens a connection; returns the connection's number.
    pub fn opened(&self, subscriber: usize, chain: usize) -> usize {
        let at = self.now();
        self.with(|evidence| {
            let number = evidence.sessions.len();
            evidence.journal.note(at, format!("subscriber {subscriber} opens s{number}"));
            let crossed = Vec::new();
            let session = Session { subscriber, chain, opened: at, closed: None, crossed };
            evidence.sessions.push(session);
            number
        })
    }

    /// Something crosses a connection of a subscriber.
    pub fn crossed(&self, session: usize, crossing: Crossing) {
        let at = self.now();
        self.with(|evidence| {
            evidence.journal.note(at, cut(&format!("s{session} {}", shown(&crossing))));
            evidence.sessions[session].crossed.push((at, crossing));
        });
    }

    /// A connection of a subscriber ended.
    pub fn closed(&self, session: usize, end: SessionEnd) {
        let at = self.now();
        self.with(|evidence| {
            evidence.journal.note(at, format!("s{session} ends: {end:?}"));
            evidence.sessions[session].closed = Some((at, end));
        });
    }

    /// The last client has left.
    pub fn all_left(&self) {
        let at = self.now();
        self.with(|evidence| evidence.left_at = Some(at));
    }

    /// Blocks were replaced: the old head, and all that is no longer canonical.
    pub fn reorg(&self, chain: usize, head: (u64, B256), dropped: Vec<B256>) {
        let at = self.now();
        self.with(|evidence| evidence.reorgs[chain].push(Replaced { at, head, dropped }));
    }

    /// A client sends; returns the request's number.
    pub fn sent(&self, client: usize, chain: usize, items: Vec<Item>, is_batch: bool) -> usize {
        let at = self.now();
        self.with(|evidence| {
            let number = evidence.requests.len();
            let shown: Vec<String> =
                items.iter().map(|item| format!("{}={}", id_of(item), item.key())).collect();
            let line = format!("client {client} -> #{number} {}", shown.join(" "));
            evidence.journal.note(at, cut(&line));
            let request =
                Request { client, chain, at, items, is_batch, answered: None, hung_up: None };
            evidence.requests.push(request);
            number
        })
    }

    /// A client has its answer.
    pub fn answered(&self, number: usize, answered: Answered) {
        self.with(|evidence| {
            let Answered { at, status, attempts, flow, .. } = answered;
            let from = answered.upstream.as_deref().unwrap_or("-").to_owned();
            let body = String::from_utf8_lossy(&answered.body).into_owned();
            let line =
                format!("client <- #{number} {status} {from} {attempts} {flow:?} {}", body.trim());
            evidence.journal.note(self.now(), cut(&line));
            debug_assert!(at <= self.now());
            evidence.requests[number].answered = Some(answered);
        });
    }

    /// A client no longer waits.
    pub fn hung_up(&self, number: usize) {
        let at = self.now();
        self.with(|evidence| {
            evidence.journal.note(at, format!("client x #{number} hung up"));
            evidence.requests[number].hung_up = Some(at);
        });
    }

    /// An upstream receives; returns the exchange's number.
    pub fn received(&self, place: Place, caller: Caller, keys: Vec<String>) -> usize {
        let at = self.now();
        self.with(|evidence| {
            let number = evidence.exchanges.len();
            let name = evidence.scenario.chains[place.chain].upstreams[place.slot].name.clone();
            let of = match caller {
                Caller::Client => "",
                Caller::House => " (house)",
                Caller::Announcer => " (announcer)",
            };
            let line = format!("{name} <= e{number}{of} {}", keys.join(" "));
            evidence.journal.note(at, cut(&line));
            evidence.exchanges.push(Exchange {
                place,
                caller,
                began: at,
                ended: None,
                calls: keys.into_iter().map(|key| Received { key, told: None }).collect(),
                may_have_run: false,
                end: End::Open,
            });
            number
        })
    }

    /// The calls of an exchange were executed, or may have been.
    pub fn may_have_run(&self, number: usize) {
        self.with(|evidence| evidence.exchanges[number].may_have_run = true);
    }

    /// An exchange ended; `told` is what was said of each call.
    pub fn ended(&self, number: usize, end: End, told: Vec<Option<Told>>) {
        let at = self.now();
        self.with(|evidence| {
            let exchange = &mut evidence.exchanges[number];
            if exchange.ended.is_some() {
                return;
            }
            (exchange.ended, exchange.end) = (Some(at), end);
            let said: Vec<&str> = told
                .iter()
                .flatten()
                .map(|told| told.outcome.as_ref().map_or_else(|it| &**it, |it| &**it))
                .collect();
            let line = format!("e{number} => {end:?} {}", said.join(" "));
            for (call, told) in exchange.calls.iter_mut().zip(told) {
                call.told = told;
            }
            evidence.journal.note(at, cut(&line));
        });
    }

    /// How many exchanges are open.
    pub fn open(&self) -> usize {
        self.with(|evidence| evidence.exchanges.iter().filter(|it| it.ended.is_none()).count())
    }

    /// Takes the evidence out, leaving none.
    pub fn take(&self) -> Evidence {
        self.with(|evidence| {
            let scenario = evidence.scenario.clone();
            std::mem::replace(evidence, Evidence::new(scenario))
        })
    }
}

fn id_of(item: &Item) -> &str {
    item.id.as_deref().unwrap_or("-")
}

fn shown(crossing: &Crossing) -> String {
    match crossing {
        Crossing::Asked(id, call) => format!("-> {id} {call:?}"),
        Crossing::Answered(id, outcome) => format!("<- {id} {outcome:?}"),
        Crossing::Told(Notice::Head(id, head)) => {
            format!("<- {id} head {} {}", head.number, head.hash)
        }
        Crossing::Told(Notice::Log(id, log)) => {
            let is = if log.is_removed { "removed log" } else { "log" };
            format!("<- {id} {is} {} of {} {}", log.index, log.number, log.hash)
        }
        Crossing::Told(Notice::Pending(id, hash)) => format!("<- {id} pending {hash}"),
        Crossing::Told(Notice::Malformed(text)) => format!("<- malformed {text}"),
        Crossing::Stalled => "stalls".to_owned(),
        Crossing::Resumed => "reads again".to_owned(),
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(SHOWN_MAX) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}... ({} bytes)", &line[..end], line.len()),
    }
}

/// An exchange that is dropped before its end was abandoned.
#[derive(Debug)]
pub struct OpenExchange {
    recorder: Arc<Recorder>,
    /// Its number.
    pub number: usize,
}

impl OpenExchange {
    /// Receives.
    pub fn begin(
        recorder: &Arc<Recorder>,
        place: Place,
        caller: Caller,
        keys: Vec<String>,
    ) -> Self {
        let number = recorder.received(place, caller, keys);
        Self { recorder: Arc::clone(recorder), number }
    }

    /// Ends as it should.
    pub fn end(self, end: End, told: Vec<Option<Told>>) {
        self.recorder.ended(self.number, end, told);
    }
}

impl Drop for OpenExchange {
    fn drop(&mut self) {
        // Does nothing when it ended before.
        self.recorder.ended(self.number, End::Abandoned, Vec::new());
    }
}

/// Between two looks of the task that waits for the end.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
