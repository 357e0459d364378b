//! Listening to an upstream's WebSocket: to its new heads here, to all else in [`crate::keep`].
//!
//! A feed is believed only after it said which chain it is on, each time it is
//! opened: behind a balanced URL the next connection may end elsewhere.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_chain::{Heads, Observation, Source};
use wellhead_eth::{Bloom, ChainId, MethodTable};
use wellhead_jsonrpc::{Envelope, ReplyOutcome, raw, scan};
use wellhead_transport::feed::{Feed, FeedConnector};
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::{Judge, Standing, VerdictClass};

use crate::ask::{Asker, now};
use crate::watcher::Watcher;
use crate::word;

/// What a feed of heads subscribes to.
const NEW_HEADS: &str = r#"["newHeads"]"#;

/// Connecting and subscribing take no longer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A feed that told no head for this many block times is taken to be dead.
const SILENT_BLOCKS: u32 = 10;
/// But never before this long.
const SILENT_MIN: Duration = Duration::from_secs(30);
/// And at the latest after this long, however slow the chain.
const SILENT_MAX: Duration = Duration::from_secs(300);
/// A feed that brought nothing for this long is asked for something: some providers close a
/// connection without data after a minute, and pings are none.
const KEEP_ALIVE: Duration = Duration::from_secs(50);
/// Messages of a feed that are answered before our two calls; more is not a feed.
const OPENING_MESSAGES_MAX: usize = 16;
/// One message that cannot be read may be a slip of a gateway. This many within [`UNREADABLE_WITHIN`]
/// end the feed.
const UNREADABLE_MAX: usize = 3;
const UNREADABLE_WITHIN: Duration = Duration::from_secs(60);
/// Close codes by which a peer says that it has too many of us: 1008 (policy) and 1013 (try again
/// later).
const LIMIT_CODES: [u16; 2] = [1008, 1013];

/// How listening ended.
#[derive(Debug)]
pub(crate) enum FeedEnd {
    /// It is on another chain; the upstream was marked.
    WrongChain,
    /// It could not be opened, or it closed, or went silent.
    Broke { heads_seen: u64, why: FeedFailure },
}

/// Why a feed is of no more use.
#[derive(Debug)]
pub(crate) struct FeedFailure {
    pub(crate) detail: String,
    /// The peer has a limit of connections, subscriptions or messages, and it was reached.
    pub(crate) is_limit: bool,
    /// The peer does not offer the subscription.
    pub(crate) is_unsupported: bool,
}

impl From<String> for FeedFailure {
    fn from(detail: String) -> Self {
        Self { detail, is_limit: false, is_unsupported: false }
    }
}

impl From<&str> for FeedFailure {
    fn from(detail: &str) -> Self {
        detail.to_owned().into()
    }
}

impl FeedFailure {
    /// The peer closed the connection.
    fn closed(feed: &dyn Feed) -> Self {
        match feed.close_code() {
            None => "the feed was closed".into(),
            Some(code) => Self {
                detail: format!("the feed was closed with {code}"),
                is_limit: LIMIT_CODES.contains(&code),
                is_unsupported: false,
            },
        }
    }

    /// The peer answered one of our calls with an error.
    fn refused(method: &str, message: &Bytes, envelope: &Envelope) -> Self {
        let row = MethodTable::standard().row(method);
        let reply = WireReply::whole(200, message.clone(), Timing::default());
        let class = Judge::standard().item(row, &reply, envelope).class;
        let is_limit = class.is_between_us_and_the_upstream();
        let is_unsupported = matches!(class, VerdictClass::Unsupported | VerdictClass::CallerFault);
        Self { detail: format!("{method} was refused"), is_limit, is_unsupported }
    }
}

/// Opens a feed and observes heads until it ends.
pub(crate) async fn listen(connector: &dyn FeedConnector, watcher: &Watcher) -> FeedEnd {
    let (asker, heads) = (&watcher.asker, &*watcher.heads);
    let broke = |heads_seen, why: FeedFailure| {
        let detail = asker.upstream.hidden(why.detail);
        FeedEnd::Broke { heads_seen, why: FeedFailure { detail, ..why } }
    };
    let (mut feed, chain_id) = match open(connector, asker, NEW_HEADS).await {
        Ok(opened) => opened,
        Err(why) => return broke(0, why),
    };
    if !agrees(chain_id, asker, heads) {
        return FeedEnd::WrongChain;
    }
    let _open = asker.counts.feed_opened();
    let mut heard = FeedListener::new();
    let mut heads_seen = 0;
    loop {
        let message = match heard.next(&mut *feed, asker, Some(heads)).await {
            Ok(message) => message,
            Err(why) => return broke(heads_seen, why),
        };
        if is_reply(&message) {
            // It was paid for when it was asked for.
            continue;
        }
        // It was pushed, so it is on the bill, whatever it says.
        let paid = asker.pay_for_push(message.len());
        let header = raw::field(&message, "params").and_then(|it| raw::field(it, "result"));
        if let Some(header) = header
            && let Some(seen) = Observation::of_block(header)
        {
            (heads_seen, heard.head_at) = (heads_seen + 1, heard.message_at);
            watcher.push_bytes.store(message.len(), Ordering::Relaxed);
            watcher.feed_is_live.store(true, Ordering::Relaxed);
            watcher.pulse().note_header(seen.hash, &message.slice_ref(header));
            watcher.tell_head(&seen, Duration::ZERO).await;
            heads.observe_bloom(&seen, Bloom::of_block(header).as_ref());
            word::take(heads, asker, seen, Source::Word);
            heads.set_idle(asker.upstream.slot(), false, now());
        } else if raw::field(&message, "method").is_none() && heard.note_unreadable() {
            return broke(heads_seen, "the feed sent messages that cannot be read".into());
        }
        if let Err(detail) = paid {
            return broke(heads_seen, detail.into());
        }
    }
}

/// When an open feed told something.
pub(crate) struct FeedListener {
    /// A head, or that it is open.
    head_at: Instant,
    message_at: Instant,
    /// Lately, the oldest first.
    unreadable: Vec<Instant>,
}

impl FeedListener {
    /// Of a feed that was opened just now.
    pub(crate) fn new() -> Self {
        Self { head_at: now(), message_at: now(), unreadable: Vec::new() }
    }

    /// The next message. Asks for one when there was none for a while. A feed of `heads` fails if it tells
    /// none for longer than blocks take to come.
    pub(crate) async fn next(
        &mut self,
        feed: &mut dyn Feed,
        asker: &Asker,
        heads: Option<&Heads>,
    ) -> Result<Bytes, FeedFailure> {
        loop {
            let silent_at = heads.map(|heads| {
                let block_time = heads.view().block_time.unwrap_or(SILENT_MIN);
                let silence = block_time.saturating_mul(SILENT_BLOCKS);
                self.head_at + silence.clamp(SILENT_MIN, SILENT_MAX)
            });
            let idle_at = self.message_at + KEEP_ALIVE;
            let until = silent_at.map_or(idle_at, |silent_at| silent_at.min(idle_at));
            let next = tokio::time::timeout_at(until.into(), feed.next()).await;
            match next {
                Err(_elapsed) if silent_at.is_some_and(|at| now() >= at) => {
                    return Err("the feed went silent".into());
                }
                Err(_elapsed) => {
                    self.message_at = now();
                    call(feed, asker, OwnCall::KeepAlive, "[]").await?;
                }
                Ok(None) => return Err(FeedFailure::closed(feed)),
                Ok(Some(Err(error))) => return Err(error.to_string().into()),
                Ok(Some(Ok(message))) => {
                    self.message_at = now();
                    return Ok(message);
                }
            }
        }
    }

    /// Notes that the last message cannot be read; true when there were too many.
    pub(crate) fn note_unreadable(&mut self) -> bool {
        let now = self.message_at;
        self.unreadable.retain(|at| now.saturating_duration_since(*at) < UNREADABLE_WITHIN);
        self.unreadable.push(now);
        self.unreadable.len() >= UNREADABLE_MAX
    }
}

/// Opens a feed only to see whether it is on the right chain by now. One that cannot
/// be opened does not speak against its upstream.
pub(crate) async fn verify(connector: &dyn FeedConnector, asker: &Asker, heads: &Heads) -> bool {
    match open(connector, asker, NEW_HEADS).await {
        Ok((_feed, chain_id)) => agrees(chain_id, asker, heads),
        Err(_why) => true,
    }
}

/// Whether the feed is on the chain; if not, takes its upstream out of use.
pub(crate) fn agrees(chain_id: ChainId, asker: &Asker, heads: &Heads) -> bool {
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

/// Connects, asks for the chain id and subscribes with these parameters, in bounded time.
pub(crate) async fn open(
    connector: &dyn FeedConnector,
    asker: &Asker,
    subscription: &str,
) -> Result<(Box<dyn Feed>, ChainId), FeedFailure> {
    tokio::time::timeout(OPEN_TIMEOUT, connect(connector, asker, subscription))
        .await
        .unwrap_or_else(|_elapsed| Err("the feed did not open in time".into()))
}

async fn connect(
    connector: &dyn FeedConnector,
    asker: &Asker,
    subscription: &str,
) -> Result<(Box<dyn Feed>, ChainId), FeedFailure> {
    let mut feed = connector.connect().await.map_err(|error| error.to_string())?;
    call(&mut *feed, asker, OwnCall::ChainId, "[]").await?;
    call(&mut *feed, asker, OwnCall::Subscribe, subscription).await?;
    let (mut chain_id, mut subscribed) = (None, false);
    for _ in 0..OPENING_MESSAGES_MAX {
        let message = match feed.next().await {
            None => return Err(FeedFailure::closed(&*feed)),
            Some(Err(error)) => return Err(error.to_string().into()),
            Some(Ok(message)) => message,
        };
        let Ok(envelope) = scan(&message) else { continue };
        let Some(call) = envelope.id.and_then(|id| OwnCall::of_id(id.of(&message))) else {
            continue;
        };
        match (call, &envelope.outcome) {
            (OwnCall::ChainId | OwnCall::Subscribe, ReplyOutcome::Error(_)) => {
                return Err(FeedFailure::refused(call.method(), &message, &envelope));
            }
            (OwnCall::ChainId, ReplyOutcome::Result(result)) => {
                let told = raw::quantity(result.of(&message));
                chain_id = Some(ChainId(told.ok_or("the feed's chain id is not a number")?));
            }
            (OwnCall::Subscribe, ReplyOutcome::Result(_)) => subscribed = true,
            (OwnCall::KeepAlive, _) => {}
        }
        if let (Some(chain_id), true) = (chain_id, subscribed) {
            return Ok((feed, chain_id));
        }
    }
    Err("the feed did not confirm the subscription".into())
}

/// A call that wellhead makes over a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnCall {
    ChainId,
    Subscribe,
    KeepAlive,
}

impl OwnCall {
    fn method(self) -> &'static str {
        match self {
            Self::ChainId => "eth_chainId",
            Self::Subscribe => "eth_subscribe",
            Self::KeepAlive => "net_version",
        }
    }

    fn id(self) -> u8 {
        match self {
            Self::ChainId => 1,
            Self::Subscribe => 2,
            Self::KeepAlive => 3,
        }
    }

    /// The call that was answered under this id. Some nodes write a number as a string, which
    /// must not cost the feed.
    fn of_id(id: &[u8]) -> Option<Self> {
        match id {
            b"1" | b"\"1\"" | b"\"0x1\"" => Some(Self::ChainId),
            b"2" | b"\"2\"" | b"\"0x2\"" => Some(Self::Subscribe),
            b"3" | b"\"3\"" | b"\"0x3\"" => Some(Self::KeepAlive),
            _ => None,
        }
    }
}

/// Pays for a call and sends it.
async fn call(
    feed: &mut dyn Feed,
    asker: &Asker,
    call: OwnCall,
    params: &str,
) -> Result<(), FeedFailure> {
    asker.pay_on_feed(MethodTable::standard().row(call.method()))?;
    let (id, method) = (call.id(), call.method());
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    feed.send(text.into()).await.map_err(|error| error.to_string().into())
}

/// Whether a message answers a call, rather than being pushed.
pub(crate) fn is_reply(message: &[u8]) -> bool {
    raw::field(message, "method").is_none()
        && raw::field(message, "id").is_some_and(|id| OwnCall::of_id(id).is_some())
}
