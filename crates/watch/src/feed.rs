//! Listening to an upstream's WebSocket: to its new heads here, to all else in [`crate::keep`].
//!
//! A feed is believed only after it said which chain it is on, each time it is
//! opened: behind a balanced URL the next connection may end elsewhere.

use std::convert::Infallible;
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

/// The first pause before a feed is opened again; doubles.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// And its bound. Polling goes on, so nothing depends on the feed.
const FEED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// The least pause after a peer said that a limit of connections or subscriptions is reached.
const FEED_PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// Pauses are longer by up to this part: many that lost their feeds at one moment, as when a gateway
/// restarts, must not come back at one moment.
const FEED_PAUSE_JITTER: u32 = 4;

/// How listening ended.
#[derive(Debug)]
pub(crate) enum FeedEnd {
    /// It is on another chain; the upstream was marked.
    WrongChain,
    /// It could not be opened, or it closed, or went silent.
    Broke(FeedFailure),
}

impl From<FeedFailure> for FeedEnd {
    fn from(why: FeedFailure) -> Self {
        Self::Broke(why)
    }
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

impl<T: Into<String>> From<T> for FeedFailure {
    fn from(detail: T) -> Self {
        Self { detail: detail.into(), is_limit: false, is_unsupported: false }
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

/// The pauses before a feed is opened again.
#[derive(Debug)]
pub(crate) struct FeedPauses(Duration);

impl Default for FeedPauses {
    fn default() -> Self {
        Self(FEED_PAUSE)
    }
}

impl FeedPauses {
    /// Begins anew, as a feed told what it was opened for, or is no longer wanted.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The pause after a feed that was opened at `began` and ended by itself.
    pub(crate) fn next(&mut self, why: &FeedFailure, began: Instant) -> Duration {
        if why.is_limit {
            self.0 = self.0.max(FEED_PAUSE_LIMIT);
        }
        let pause = self.0;
        self.0 = (pause * 2).min(FEED_PAUSE_MAX);
        let chance = chance(now().saturating_duration_since(began));
        pause + (pause / FEED_PAUSE_JITTER).mul_f64(chance)
    }
}

/// A number from 0 to 1 by chance: the digits below a millisecond of a time that the network took.
/// Zero where time passes in whole milliseconds, as in tests.
fn chance(took: Duration) -> f64 {
    f64::from(took.subsec_nanos() % 1_000_000) / 1e6
}

/// Opens a feed and observes heads until it ends.
pub(crate) async fn listen(
    connector: &dyn FeedConnector,
    watcher: &Watcher,
    pauses: &mut FeedPauses,
) -> Result<Infallible, FeedEnd> {
    let (asker, heads) = (&watcher.asker, &*watcher.heads);
    let mut feed = open(connector, asker, heads, NEW_HEADS).await?;
    let _open = asker.counts.feed_opened();
    let mut heard = FeedListener::new();
    loop {
        let message = heard.next_push(&mut *feed, asker, Some(heads)).await?;
        if let Some(header) = pushed_result(&message)
            && let Some(seen) = Observation::of_block(header)
        {
            heard.head_at = heard.message_at;
            pauses.reset();
            watcher.push_bytes.store(message.len(), Ordering::Relaxed);
            watcher.feed_is_live.store(true, Ordering::Relaxed);
            watcher.pulse().note_header(seen.hash, &message.slice_ref(header));
            watcher.tell_head(&seen, Duration::ZERO).await;
            heads.observe_bloom(&seen, Bloom::of_block(header).as_ref());
            word::take(heads, asker, seen, Source::Word);
            heads.set_idle(asker.upstream.slot(), false, now());
        } else if raw::field(&message, "method").is_none() {
            heard.note_unreadable()?;
        }
    }
}

/// The result (raw JSON) that a message tells a subscription.
pub(crate) fn pushed_result(message: &[u8]) -> Option<&[u8]> {
    raw::field(message, "params").and_then(|it| raw::field(it, "result"))
}

/// When an open feed told something.
pub(crate) struct FeedListener {
    /// A head, or that it is open.
    head_at: Instant,
    message_at: Instant,
    /// Lately, the oldest first.
    unreadable: Vec<Instant>,
    /// Why the last message that was pushed could not be paid for.
    unpaid: Option<String>,
}

impl FeedListener {
    /// Of a feed that was opened just now.
    pub(crate) fn new() -> Self {
        Self { head_at: now(), message_at: now(), unreadable: Vec::new(), unpaid: None }
    }

    /// The next message that was pushed. It is on the bill, whatever it says: once one cannot be paid for, there is
    /// no next one.
    pub(crate) async fn next_push(
        &mut self,
        feed: &mut dyn Feed,
        asker: &Asker,
        heads: Option<&Heads>,
    ) -> Result<Bytes, FeedFailure> {
        if let Some(detail) = self.unpaid.take() {
            return Err(detail.into());
        }
        loop {
            let message = self.next(feed, asker, heads).await?;
            // A reply was paid for when it was asked for.
            if !is_reply(&message) {
                self.unpaid = asker.pay_for_push(message.len()).err();
                return Ok(message);
            }
        }
    }

    /// The next message. Asks for one when there was none for a while. A feed of `heads` fails if it tells
    /// none for longer than blocks take to come.
    async fn next(
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

    /// Notes that the last message cannot be read; an error when there were too many.
    pub(crate) fn note_unreadable(&mut self) -> Result<(), FeedFailure> {
        let now = self.message_at;
        self.unreadable.retain(|at| now.saturating_duration_since(*at) < UNREADABLE_WITHIN);
        self.unreadable.push(now);
        match self.unreadable.len() < UNREADABLE_MAX {
            true => Ok(()),
            false => Err("the feed sent messages that cannot be read".into()),
        }
    }
}

/// Opens a feed only to see whether it is on the right chain by now. One that cannot
/// be opened does not speak against its upstream.
pub(crate) async fn verify(connector: &dyn FeedConnector, asker: &Asker, heads: &Heads) -> bool {
    !matches!(open(connector, asker, heads, NEW_HEADS).await, Err(FeedEnd::WrongChain))
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

/// Connects, subscribes with these parameters and checks the chain id, in bounded time.
pub(crate) async fn open(
    connector: &dyn FeedConnector,
    asker: &Asker,
    heads: &Heads,
    subscription: &str,
) -> Result<Box<dyn Feed>, FeedEnd> {
    let connected = tokio::time::timeout(OPEN_TIMEOUT, connect(connector, asker, subscription));
    let late = |_elapsed| Err("the feed did not open in time".into());
    let (feed, chain_id) = connected.await.unwrap_or_else(late)?;
    agrees(chain_id, asker, heads).then_some(feed).ok_or(FeedEnd::WrongChain)
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
    ChainId = 1,
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

    /// The call that was answered under this id, its number. Some nodes write a number as a string, which
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
    let (id, method) = (call as u8, call.method());
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    feed.send(text.into()).await.map_err(|error| error.to_string().into())
}

/// Whether a message answers a call, rather than being pushed.
fn is_reply(message: &[u8]) -> bool {
    raw::field(message, "method").is_none()
        && raw::field(message, "id").is_some_and(|id| OwnCall::of_id(id).is_some())
}
