//! New blocks as an upstream tells them by itself, over a connection of its own.
//!
//! What is wrong with the upstream is wrong with its feed: one that is down takes no
//! connection and loses those it has, one that hangs is silent, one that lags tells late.
//! Feeds that tell nonsense are for the tests of `watch`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::upstream::SimUpstream;
use crate::weather::Kind;

/// A feed looks for a new block so often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
        None
        | Some(
            Kind::Die { .. }
            | Kind::Garble
            | Kind::Internal
            | Kind::Unknown
            | Kind::WrongId
            | Kind::LoseItems
            | Kind::Mislead
            | Kind::Lie
            | Kind::Unsupported
            | Kind::Pruned
            | Kind::Lag(_)
            | Kind::Stuck
            | Kind::Syncing
            | Kind::Slow(_)
            | Kind::NoLogs
            | Kind::Flaky(_),
        ) => Line::Clear,
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
                    Ok(Box::new(OpenFeed { upstream, said, told: None }) as Box<dyn Feed>)
                }
            }
        })
    }
}

/// One connection.
#[derive(Debug)]
struct OpenFeed {
    upstream: Arc<SimUpstream>,
    said: VecDeque<Bytes>,
    /// The hash of the block that it told last; `None` before it is asked for them.
    told: Option<B256>,
}

impl OpenFeed {
    /// Answers a call.
    fn answer(&mut self, text: &[u8]) {
        let Ok(call) = serde_json::from_slice::<Value>(text) else { return };
        let result = match call["method"].as_str() {
            Some("eth_subscribe") => {
                self.told = Some(self.upstream.node().head().hash);
                Some(json!("0x1"))
            }
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
        self.said.push_back(reply.to_string().into());
    }

    /// Says that there is a new block, if there is one.
    fn look(&mut self) {
        let head = self.upstream.node().head();
        let newest = head.hash;
        if self.told.is_none_or(|told| told == newest) {
            return;
        }
        self.told = Some(newest);
        let latest = json!(["latest", false]);
        let block = self.upstream.node().ask("eth_getBlockByNumber", Some(&latest));
        let Ok(mut block) = block else { return };
        if let Some(header) = block.as_object_mut() {
            header.remove("transactions");
        }
        let params = json!({"subscription": "0x1", "result": block});
        let message = json!({"jsonrpc": "2.0", "method": "eth_subscription", "params": params});
        self.upstream.tells(head.number(), newest);
        self.said.push_back(message.to_string().into());
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
                        if let Some(message) = self.said.pop_front() {
                            return Some(Ok(message));
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
