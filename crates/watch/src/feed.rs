//! Listening to newHeads over an upstream's WebSocket.
//!
//! A feed is believed only after it said which chain it is on, each time it is
//! opened: behind a balanced URL the next connection may end elsewhere.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use wellhead_chain::{Heads, Observation, Source};
use wellhead_eth::{Bloom, ChainId, MethodTable};
use wellhead_jsonrpc::{ReplyOutcome, raw, scan};
use wellhead_transport::feed::{Feed, FeedConnector};
use wellhead_upstream::Standing;

use crate::ask::{Asker, now};
use crate::watcher::Watcher;
use crate::word;

/// Connecting and subscribing take no longer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A feed that is silent for so many block times is taken to be dead.
const SILENT_BLOCKS: u32 = 10;
/// But never before so long.
const SILENT_MIN: Duration = Duration::from_secs(30);
/// Nor after so long, however slow the chain.
const SILENT_MAX: Duration = Duration::from_secs(300);
/// Messages of a feed that are answered before our two calls; more is not a feed.
const OPENING_MESSAGES_MAX: usize = 16;

/// How listening ended.
#[derive(Debug)]
pub(crate) enum FeedEnd {
    /// It is on another chain; the upstream was marked.
    WrongChain,
    /// It could not be opened, or it closed, or went silent.
    Broke { heads_seen: u64, detail: String },
}

/// Opens a feed and observes heads until it ends.
pub(crate) async fn listen(connector: &dyn FeedConnector, watcher: &Watcher) -> FeedEnd {
    let (asker, heads) = (&watcher.asker, &*watcher.heads);
    let broke = |heads_seen, detail: &str| {
        let detail = asker.upstream.hidden(detail.to_owned());
        FeedEnd::Broke { heads_seen, detail }
    };
    let (mut feed, chain_id) = match open(connector, asker).await {
        Ok(opened) => opened,
        Err(detail) => return broke(0, &detail),
    };
    if !agrees(chain_id, asker, heads) {
        return FeedEnd::WrongChain;
    }
    let mut heads_seen = 0;
    loop {
        let block_time = heads.view().block_time.unwrap_or(SILENT_MIN);
        let silence = block_time.saturating_mul(SILENT_BLOCKS).clamp(SILENT_MIN, SILENT_MAX);
        match tokio::time::timeout(silence, feed.next()).await {
            Err(_elapsed) => return broke(heads_seen, "the feed went silent"),
            Ok(None) => return broke(heads_seen, "the feed was closed"),
            Ok(Some(Err(error))) => return broke(heads_seen, &error.to_string()),
            Ok(Some(Ok(message))) => {
                // It was pushed, so it is on the bill, whatever it says.
                let paid = asker.pay_for_push(message.len());
                let header = raw::field(&message, "params").and_then(|it| raw::field(it, "result"));
                if let Some(header) = header
                    && let Some(seen) = Observation::of_block(header)
                {
                    heads_seen += 1;
                    watcher.push_bytes.store(message.len(), Ordering::Relaxed);
                    watcher.feed_is_live.store(true, Ordering::Relaxed);
                    heads.observe_bloom(&seen, Bloom::of_block(header).as_ref());
                    word::take(heads, asker, seen, Source::Word);
                    heads.set_idle(asker.upstream.slot(), false, now());
                }
                if let Err(detail) = paid {
                    return broke(heads_seen, &detail);
                }
            }
        }
    }
}

/// Opens a feed only to see whether it is on the right chain by now. One that cannot
/// be opened does not speak against its upstream.
pub(crate) async fn verify(connector: &dyn FeedConnector, asker: &Asker, heads: &Heads) -> bool {
    match open(connector, asker).await {
        Ok((_feed, chain_id)) => agrees(chain_id, asker, heads),
        Err(_detail) => true,
    }
}

/// Whether the feed is on the chain; if not, takes its upstream out of use.
fn agrees(chain_id: ChainId, asker: &Asker, heads: &Heads) -> bool {
    let (upstream, expected) = (&asker.upstream, asker.pulse.agree_chain_id(chain_id));
    if chain_id == expected {
        return true;
    }
    if upstream.set_standing(Standing::WrongChain(chain_id)) {
        tracing::error!(
            upstream = %upstream.identity().id, reported = %chain_id, %expected,
            "the upstream's feed is on another chain; not using the upstream until both agree"
        );
    }
    heads.forget(upstream.slot(), now());
    upstream
        .note_problem(format!("its feed is on chain {chain_id}, expected chain {expected}"), now());
    false
}

/// Connects, asks for the chain id and subscribes, in bounded time.
async fn open(
    connector: &dyn FeedConnector,
    asker: &Asker,
) -> Result<(Box<dyn Feed>, ChainId), String> {
    tokio::time::timeout(OPEN_TIMEOUT, connect(connector, asker))
        .await
        .unwrap_or_else(|_elapsed| Err("the feed did not open in time".to_owned()))
}

async fn connect(
    connector: &dyn FeedConnector,
    asker: &Asker,
) -> Result<(Box<dyn Feed>, ChainId), String> {
    let mut feed = connector.connect().await.map_err(|error| error.to_string())?;
    let calls = [
        ("eth_chainId", r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#),
        (
            "eth_subscribe",
            r#"{"jsonrpc":"2.0","id":2,"method":"eth_subscribe","params":["newHeads"]}"#,
        ),
    ];
    for (method, call) in calls {
        asker.pay_on_feed(MethodTable::standard().row(method))?;
        feed.send(Bytes::from_static(call.as_bytes())).await.map_err(|error| error.to_string())?;
    }
    let (mut chain_id, mut subscribed) = (None, false);
    for _ in 0..OPENING_MESSAGES_MAX {
        let message = match feed.next().await {
            None => return Err("the feed was closed while it was opened".to_owned()),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(message)) => message,
        };
        let Ok(envelope) = scan(&message) else { continue };
        let id = envelope.id.map(|id| id.of(&message));
        match (id, envelope.outcome) {
            (Some(b"1"), ReplyOutcome::Result(result)) => {
                let told = raw::quantity(result.of(&message));
                chain_id = Some(ChainId(told.ok_or("the feed's chain id is not a number")?));
            }
            (Some(b"1"), ReplyOutcome::Error(_)) => {
                return Err("eth_chainId was refused".to_owned());
            }
            (Some(b"2"), ReplyOutcome::Result(_)) => subscribed = true,
            (Some(b"2"), ReplyOutcome::Error(_)) => return Err("newHeads was refused".to_owned()),
            _ => {}
        }
        if let (Some(chain_id), true) = (chain_id, subscribed) {
            return Ok((feed, chain_id));
        }
    }
    Err("the feed did not confirm the subscription".to_owned())
}
