//! A WebSocket to a fake upstream: plain calls, and subscriptions to heads and logs.
//!
//! Calls are answered as they become ready, in any order, as geth does.
//! Announcements have no latency of their own.

use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::{B256, keccak256};
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_util::sync::CancellationToken;

use crate::envelope::{WireCall, write_answer};
use crate::node::{Fault, NodeReply, SimNode, WireEnding};
use crate::rpc::logs::Criteria;
use crate::rpc::{RpcError, json as shape};

/// Calls under way on one socket; further messages wait unread.
const IN_FLIGHT_MAX: usize = 256;
/// Subscriptions of one socket.
const SUBSCRIPTIONS_MAX: usize = 128;
/// Largest message either way.
const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Between two looks for waiting transactions, which wake no task.
const POOL_LOOK: Duration = Duration::from_millis(100);

enum Topic {
    Heads,
    Logs(Criteria),
    Pending { seen: Vec<B256> },
}

struct Subscriptions {
    node: Arc<SimNode>,
    made: u64,
    topics: Vec<(String, Topic)>,
    /// The head that was announced last.
    told: B256,
}

/// Serves one socket until either side closes it.
pub(super) async fn serve(stream: Upgraded, node: Arc<SimNode>, open: CancellationToken) {
    let config = WebSocketConfig::default()
        .read_buffer_size(16 * 1024)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let stream = TokioIo::new(stream);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut tips, mut turns) = (node.world().tips(), node.turns());
    let mut pool_look = tokio::time::interval(POOL_LOOK);
    let mut subscriptions = Subscriptions {
        told: node.head().hash,
        node: Arc::clone(&node),
        made: 0,
        topics: Vec::new(),
    };
    let mut calls = FuturesUnordered::new();
    loop {
        let outgoing: Vec<String> = tokio::select! {
            () = open.cancelled() => return,
            message = socket.next(), if calls.len() < IN_FLIGHT_MAX => {
                let text = match message {
                    Some(Ok(Message::Text(text))) => Bytes::from(text),
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                match subscriptions.answer(&text) {
                    Some(answer) => vec![answer],
                    None => {
                        calls.push(ready(Arc::clone(&node), text));
                        continue;
                    }
                }
            }
            Some(reply) = calls.next(), if !calls.is_empty() => match spoken(&reply) {
                Some(text) if text.is_empty() => continue,
                Some(text) => vec![text],
                // There are no HTTP statuses here: the socket ends.
                None => return,
            },
            changed = tips.changed() => match changed {
                Ok(()) => subscriptions.announce(),
                Err(_) => return,
            },
            changed = turns.changed() => match changed {
                Ok(()) => subscriptions.announce(),
                Err(_) => return,
            },
            _ = pool_look.tick() => subscriptions.announce_waiting(),
        };
        for text in outgoing {
            if socket.send(Message::text(text)).await.is_err() {
                return;
            }
        }
    }
}

async fn ready(node: Arc<SimNode>, body: Bytes) -> NodeReply {
    let reply = node.answer(&body);
    if reply.ending == WireEnding::Silence {
        // Ends with the socket.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(reply.delay).await;
    reply
}

fn spoken(reply: &NodeReply) -> Option<String> {
    let whole = reply.ending == WireEnding::Whole && reply.status == 200;
    whole.then(|| String::from_utf8_lossy(&reply.body).trim_end().to_owned())
}

impl Subscriptions {
    /// Answers `eth_subscribe` and `eth_unsubscribe`; `None` for anything else.
    fn answer(&mut self, body: &[u8]) -> Option<String> {
        let call: WireCall<'_> = serde_json::from_slice(body).ok()?;
        let healthy = self.node.dials().fault.is_none();
        let first = || call.params.as_ref().and_then(|params| params.get(0));
        let answer = match call.method() {
            "eth_subscribe" if healthy => self.subscribe(first(), call.params.as_ref()),
            "eth_unsubscribe" if healthy => self.unsubscribe(first()),
            _ => return None,
        };
        self.node.count(1);
        let mut out = Vec::new();
        write_answer(&mut out, call.told_id(), answer);
        String::from_utf8(out).ok()
    }

    fn subscribe(
        &mut self,
        name: Option<&Value>,
        params: Option<&Value>,
    ) -> Result<Value, RpcError> {
        if self.topics.len() >= SUBSCRIPTIONS_MAX {
            return Err(RpcError::server("too many subscriptions"));
        }
        let topic = match name.and_then(Value::as_str) {
            Some("newHeads") => Topic::Heads,
            Some("logs") => {
                let criteria = params.and_then(|params| params.get(1)).cloned();
                Topic::Logs(Criteria::read(&criteria.unwrap_or_else(|| json!({})))?)
            }
            Some("newPendingTransactions") => {
                Topic::Pending { seen: self.node.world().waiting_hashes() }
            }
            Some(other) => {
                let words = format!("no \"{other}\" subscription in eth namespace");
                return Err(RpcError::new(-32601, words));
            }
            None => {
                return Err(RpcError::invalid_params("missing value for required argument 0"));
            }
        };
        if self.topics.is_empty() {
            // Nothing is owed from before the first subscription.
            self.told = self.node.head().hash;
        }
        self.made += 1;
        let hash = keccak256(format!("{}/{}/{}", self.node.id(), self.told, self.made));
        let id = format!("{:#x}", alloy_primitives::U128::from_be_slice(&hash[..16]));
        self.topics.push((id.clone(), topic));
        Ok(json!(id))
    }

    fn unsubscribe(&mut self, id: Option<&Value>) -> Result<Value, RpcError> {
        let id = id.and_then(Value::as_str).unwrap_or_default();
        let before = self.topics.len();
        self.topics.retain(|(known, _)| known != id);
        match self.topics.len() < before {
            true => Ok(json!(true)),
            false => Err(RpcError::server("subscription not found")),
        }
    }

    /// Everything between the head announced last and the head shown now.
    fn announce(&mut self) -> Vec<String> {
        let silent = matches!(self.node.dials().fault, Some(Fault::Hang | Fault::Down));
        if silent || self.topics.is_empty() {
            return Vec::new();
        }
        let head = self.node.head().hash;
        let (gone, fresh) = self.node.moved_since(&self.told);
        self.told = head;
        let mut out = Vec::new();
        for (id, topic) in &self.topics {
            match topic {
                Topic::Heads => out.extend(
                    fresh.iter().map(|block| event(id, &shape::header(&block.header, block.hash))),
                ),
                Topic::Logs(criteria) => {
                    out.extend(criteria.in_move(&gone, &fresh).iter().map(|log| event(id, log)));
                }
                Topic::Pending { .. } => {}
            }
        }
        out
    }

    fn announce_waiting(&mut self) -> Vec<String> {
        let watched = self.topics.iter().any(|(_, topic)| matches!(topic, Topic::Pending { .. }));
        if !watched || self.node.dials().fault.is_some() {
            return Vec::new();
        }
        let now = self.node.world().waiting_hashes();
        let mut out = Vec::new();
        for (id, topic) in &mut self.topics {
            if let Topic::Pending { seen } = topic {
                out.extend(
                    now.iter()
                        .filter(|hash| !seen.contains(hash))
                        .map(|hash| event(id, &json!(hash))),
                );
                seen.clone_from(&now);
            }
        }
        out
    }
}

fn event(id: &str, result: &Value) -> String {
    json!({
        "jsonrpc": "2.0",
        "method": "eth_subscription",
        "params": {"subscription": id, "result": result},
    })
    .to_string()
}
