//! New blocks, or pending transactions, as an upstream tells them by itself, over a connection of its own.
//!
//! What is wrong with the upstream is wrong with its feed: one that is down takes no
//! connection and loses those it has, one that hangs is silent, one that lags tells late.
//! Feeds that tell nonsense are for the tests of `watch`.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_sim::rpc::json as shape;
use wellhead_sim::world::SimBlock;
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::session::PendingForm;
use crate::upstream::SimUpstream;
use crate::weather::{FeedHabit, Kind};

/// A feed looks for a new block so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A feed that drops, or falls silent, does so after this many blocks.
const ENDS_AFTER: usize = 4;
/// A feed that skips blocks tells one in so many.
const TELLS_ONE_IN: u64 = 3;

/// The way to an upstream's feed.
#[derive(Debug)]
pub struct FeedWay {
    /// Whose.
    pub upstream: Arc<SimUpstream>,
}

/// What the weather makes of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Clear,
    Silent,
    Broken,
}

fn line(kind: Option<Kind>) -> Line {
    match kind {
        Some(Kind::Hang) => Line::Silent,
        Some(
            Kind::Crash
            | Kind::Reset { .. }
            | Kind::Truncate
            | Kind::Page(_)
            | Kind::Throttle(_)
            | Kind::Crowded(_)
            | Kind::Auth
            | Kind::Billing,
        ) => Line::Broken,
        // What is wrong with its answers is not wrong with what it says by itself.
        _ => Line::Clear,
    }
}

fn broken(kind: TransportErrorKind) -> TransportError {
    TransportError::new(kind, Sent::Maybe, "simulated")
}

impl FeedConnector for FeedWay {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>> {
        Box::pin(async {
            match line(self.upstream.kind()) {
                Line::Broken => Err(broken(TransportErrorKind::Connect)),
                Line::Silent => std::future::pending().await,
                Line::Clear => {
                    self.upstream.note("its feed opens");
                    let upstream = Arc::clone(&self.upstream);
                    let said = VecDeque::new();
                    let number = upstream.recorder.opened_feed(upstream.place);
                    let feed =
                        OpenFeed { upstream, said, topic: None, seen: 0, held: None, number };
                    Ok(Box::new(feed) as Box<dyn Feed>)
                }
            }
        })
    }
}

/// What a feed tells.
#[derive(Debug)]
enum FeedTopic {
    /// Blocks; with the hash of the newest one that it saw.
    Blocks(B256),
    /// Pending transactions; with those that waited when it last looked.
    Pool(PendingForm, HashSet<B256>),
}

/// A message on its way.
#[derive(Debug)]
struct FeedMessage {
    text: Bytes,
    /// The pending transaction that it tells.
    pending: Option<(PendingForm, B256)>,
}

/// One connection.
#[derive(Debug)]
struct OpenFeed {
    upstream: Arc<SimUpstream>,
    said: VecDeque<FeedMessage>,
    /// `None` before it is asked for anything.
    topic: Option<FeedTopic>,
    /// Blocks that it saw since.
    seen: usize,
    /// A block that is told after the next one.
    held: Option<Arc<SimBlock>>,
    /// Its number among the feeds of the scenario.
    number: usize,
}

impl Drop for OpenFeed {
    fn drop(&mut self) {
        self.upstream.recorder.closed_feed(self.number);
    }
}

impl OpenFeed {
    /// Answers a call.
    fn answer(&mut self, text: &[u8]) {
        let Ok(call) = serde_json::from_slice::<Value>(text) else { return };
        let result = match call["method"].as_str() {
            Some("eth_subscribe") => self.subscribe(&call["params"]),
            Some(method) => self.upstream.node().ask(method, call.get("params")).ok(),
            None => None,
        };
        let reply = match result {
            Some(result) => json!({"jsonrpc": "2.0", "id": call["id"], "result": result}),
            None => {
                let error = json!({"code": -32601, "message": "not served here"});
                json!({"jsonrpc": "2.0", "id": call["id"], "error": error})
            }
        };
        self.say(&reply, None);
    }

    fn say(&mut self, message: &Value, pending: Option<(PendingForm, B256)>) {
        self.said.push_back(FeedMessage { text: message.to_string().into(), pending });
    }

    /// Takes the topic; `None` for one that it does not offer.
    fn subscribe(&mut self, params: &Value) -> Option<Value> {
        let topic = match params[0].as_str() {
            Some("newHeads") => FeedTopic::Blocks(self.upstream.node().head().hash),
            Some("newPendingTransactions") if self.upstream.feed_habit() != FeedHabit::Skips => {
                self.upstream.recorder.feed_is_of_pool(self.number);
                let is_whole = params[1] == json!(true);
                let form = if is_whole { PendingForm::Whole } else { PendingForm::Hashes };
                FeedTopic::Pool(form, self.waiting())
            }
            _ => return None,
        };
        self.topic = Some(topic);
        Some(self.id())
    }

    fn waiting(&self) -> HashSet<B256> {
        self.upstream.node().world().waiting_hashes().into_iter().collect()
    }

    /// The id of its one subscription.
    fn id(&self) -> Value {
        match self.upstream.feed_habit() {
            FeedHabit::NumericIds => json!(1),
            _ => json!("0x1"),
        }
    }

    /// Says what is new, if anything is.
    fn look(&mut self) {
        match self.topic.take() {
            Some(FeedTopic::Blocks(told)) => self.look_for_blocks(told),
            Some(FeedTopic::Pool(form, seen)) => self.look_into_pool(form, &seen),
            None => {}
        }
    }

    fn look_into_pool(&mut self, form: PendingForm, seen: &HashSet<B256>) {
        let waiting = self.waiting();
        // In the order of the pool, not in that of a set.
        for tx in self.upstream.node().world().all_waiting() {
            if !seen.contains(&tx.hash) {
                let times = if self.upstream.feed_habit() == FeedHabit::Doubles { 2 } else { 1 };
                (0..times).for_each(|_| self.tell_pending(form, tx.hash));
            }
        }
        self.topic = Some(FeedTopic::Pool(form, waiting));
    }

    fn tell_pending(&mut self, form: PendingForm, hash: B256) {
        // Some nodes know no whole ones.
        let is_whole =
            form == PendingForm::Whole && self.upstream.feed_habit() != FeedHabit::NumericIds;
        let result = if is_whole { json!({"hash": hash, "blockHash": null}) } else { json!(hash) };
        let params = json!({"subscription": self.id(), "result": result});
        let message = json!({"jsonrpc": "2.0", "method": "eth_subscription", "params": params});
        let told = if is_whole { PendingForm::Whole } else { PendingForm::Hashes };
        self.say(&message, (told == form).then_some((form, hash)));
    }

    fn look_for_blocks(&mut self, told: B256) {
        let head = self.upstream.node().head();
        self.topic = Some(FeedTopic::Blocks(head.hash));
        if told == head.hash {
            return;
        }
        self.seen += 1;
        match self.upstream.feed_habit() {
            FeedHabit::Newest | FeedHabit::NumericIds | FeedHabit::Drops => self.tell(&head),
            FeedHabit::Every => {
                let (_, fresh) = self.upstream.node().moved_since(&told);
                fresh.iter().for_each(|block| self.tell(block));
            }
            FeedHabit::Doubles => {
                self.tell(&head);
                self.tell(&head);
            }
            FeedHabit::Reorders => match self.held.take() {
                None => self.held = Some(head),
                Some(held) => {
                    self.tell(&head);
                    self.tell(&held);
                }
            },
            FeedHabit::Skips if head.number().is_multiple_of(TELLS_ONE_IN) => self.tell(&head),
            FeedHabit::FallsSilent if self.seen <= ENDS_AFTER => self.tell(&head),
            FeedHabit::Skips | FeedHabit::FallsSilent => {}
        }
    }

    fn tell(&mut self, block: &SimBlock) {
        let header = shape::header(&block.header, block.hash);
        let params = json!({"subscription": self.id(), "result": header});
        let message = json!({"jsonrpc": "2.0", "method": "eth_subscription", "params": params});
        let upstream = &self.upstream;
        upstream.recorder.told_head(upstream.place, block.number(), block.hash);
        self.say(&message, None);
    }

    /// Whether it closes now.
    fn drops(&self) -> bool {
        self.upstream.feed_habit() == FeedHabit::Drops && self.seen >= ENDS_AFTER
    }
}

impl Feed for OpenFeed {
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            if line(self.upstream.kind()) == Line::Broken {
                return Err(broken(TransportErrorKind::Closed));
            }
            self.answer(&text);
            Ok(())
        })
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(async move {
            let upstream = Arc::clone(&self.upstream);
            loop {
                match line(upstream.kind()) {
                    Line::Broken => {
                        upstream.note("its feed breaks");
                        return Some(Err(broken(TransportErrorKind::Closed)));
                    }
                    Line::Silent => {}
                    Line::Clear => {
                        self.look();
                        if let Some(FeedMessage { text, pending }) = self.said.pop_front() {
                            if let Some((form, hash)) = pending {
                                upstream.recorder.pushed_pending(upstream.place, form, hash);
                            }
                            return Some(Ok(text));
                        }
                        if self.drops() {
                            upstream.note("its feed closes");
                            return None;
                        }
                    }
                }
                tokio::select! {
                    biased;
                    () = upstream.dies() => {
                        upstream.note("its feed dies");
                        return None;
                    }
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        })
    }
}
