//! The calls that the house makes on its own behalf, each counted by its reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_chain::Observation;
use wellhead_eth::{BlockHash, BlockNumber, BlockTag, ChainId, MethodRow, MethodTable};
use wellhead_jsonrpc::{raw, write};
use wellhead_transport::{Exchange, Sent, Transport, TransportError, TransportErrorKind};
use wellhead_upstream::{Change, Judge, Payload, Upstream, Verdict};

use crate::budget::{CheckLedger, DailyAllowance, Payment, Turns};
use crate::doubt::ChainDoubt;
use crate::pulse::Pulse;
use crate::state::Falls;

/// A call of our own waits no longer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call of our own was made. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum CallReason {
    /// To see which chain it is on.
    Verify,
    /// To see whether it is still syncing.
    Syncing,
    /// To see whether it has peers.
    Peers,
    /// To follow its head.
    Head,
    /// To see which blocks are safe and final, and from which origin.
    Finality,
    /// To see whether it is back.
    Probe,
    /// To open its feed and to keep it open: the chain id, the subscription, and data in silence.
    Feed,
    /// To see whether it honours the hash of a block.
    BlockHash,
    /// To know which software it runs.
    Version,
    /// To know where its limit is.
    Study,
}

wellhead_word::words!(CallReason);

/// How many calls were made to one upstream for each reason, and what they cost.
#[derive(Debug, Default)]
pub struct CheckCounts {
    calls: [AtomicU64; CallReason::ALL.len()],
    credits: AtomicU64,
    pushed: AtomicU64,
    pushed_bytes: AtomicU64,
    push_credits: AtomicU64,
    feeds_open: AtomicUsize,
    feeds_opened: AtomicU64,
    relays_open: AtomicUsize,
    relays_opened: AtomicU64,
    pub(crate) ledger: CheckLedger,
}

/// An open feed or relay, as the counts show it.
#[derive(Debug)]
pub(crate) struct OpenFeed<'a>(&'a AtomicUsize);

impl<'a> OpenFeed<'a> {
    fn count(open: &'a AtomicUsize, opened: &AtomicU64) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        opened.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for OpenFeed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CheckCounts {
    /// Counts one.
    pub fn count(&self, reason: CallReason, credits: u64) {
        self.calls[reason as usize].fetch_add(1, Ordering::Relaxed);
        self.credits.fetch_add(credits, Ordering::Relaxed);
    }

    /// Counts a pushed message, which is no call.
    fn count_pushed(&self, bytes: usize, credits: u64) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
        self.pushed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.push_credits.fetch_add(credits, Ordering::Relaxed);
        self.credits.fetch_add(credits, Ordering::Relaxed);
    }

    /// Notes that the upstream confirmed a subscription to its new blocks; open until dropped.
    pub(crate) fn feed_opened(&self) -> OpenFeed<'_> {
        OpenFeed::count(&self.feeds_open, &self.feeds_opened)
    }

    /// Notes that the upstream confirmed a subscription that is relayed; open until dropped.
    pub(crate) fn relay_opened(&self) -> OpenFeed<'_> {
        OpenFeed::count(&self.relays_open, &self.relays_opened)
    }

    /// How many subscriptions of clients it tells.
    pub fn relays_open(&self) -> usize {
        self.relays_open.load(Ordering::Relaxed)
    }

    /// How often it was asked for one.
    pub(crate) fn relays_opened(&self) -> u64 {
        self.relays_opened.load(Ordering::Relaxed)
    }

    /// Whether it ever pushed something, or might have.
    pub fn has_been_subscribed(&self) -> bool {
        self.feeds_opened() > 0 || self.relays_opened() > 0
    }

    /// Whether its feed of new blocks is open.
    pub fn feed_is_open(&self) -> bool {
        self.feeds_open.load(Ordering::Relaxed) > 0
    }

    /// How often its feed was opened so far.
    pub fn feeds_opened(&self) -> u64 {
        self.feeds_opened.load(Ordering::Relaxed)
    }

    /// Bytes that a feed pushed so far.
    pub fn pushed_bytes(&self) -> u64 {
        self.pushed_bytes.load(Ordering::Relaxed)
    }

    /// What pushed messages cost so far; a part of [`Self::credits`].
    pub fn push_credits(&self) -> u64 {
        self.push_credits.load(Ordering::Relaxed)
    }

    /// Messages that a feed pushed so far.
    pub fn pushed(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed)
    }

    /// How many so far.
    pub fn get(&self, reason: CallReason) -> u64 {
        self.calls[reason as usize].load(Ordering::Relaxed)
    }

    /// How many so far for any reason.
    pub fn total(&self) -> u64 {
        CallReason::ALL.iter().map(|reason| self.get(*reason)).sum()
    }

    /// What they cost so far.
    pub fn credits(&self) -> u64 {
        self.credits.load(Ordering::Relaxed)
    }
}

/// Asks one upstream on behalf of the house and settles the answer with its health.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) counts: Arc<CheckCounts>,
    pub(crate) falls: Falls,
    pub(crate) doubt: ChainDoubt,
    pub(crate) allowance: DailyAllowance,
    pub(crate) turns: Turns,
    /// Whether calls of clients come to the upstream's tier, or may have to at any moment.
    pub(crate) is_needed: AtomicBool,
}

/// Now, by tokio's clock, which tests pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Asker {
    /// Whether the upstream is followed: clients call the chain, and its tier serves them.
    pub(crate) fn is_busy(&self, now: Instant) -> bool {
        self.is_needed.load(Ordering::Relaxed) && self.pulse.is_busy(now)
    }

    /// Whether the credits of today do not suffice for checks.
    pub(crate) fn has_spent_allowance(&self, now: Instant) -> bool {
        self.allowance.is_spent(&self.counts.ledger, now)
    }

    /// When the next call may be made while no client calls.
    pub(crate) fn turn_is_free_at(&self, now: Instant) -> Instant {
        self.turns.free_at(&self.counts.ledger, now)
    }

    /// Pays for a call and counts it; an error when there is nothing left to pay with.
    pub(crate) fn pay(&self, reason: CallReason, row: &MethodRow) -> Result<(), String> {
        let (now, credits) = (now(), self.upstream.price(row));
        self.take_credits(credits, now)?;
        self.counts.count(reason, credits);
        // What the start costs is made good for, whether clients call meanwhile or not.
        let is_of_the_start = match reason {
            CallReason::Verify | CallReason::Syncing | CallReason::Peers | CallReason::Version => {
                true
            }
            CallReason::Head
            | CallReason::Finality
            | CallReason::Probe
            | CallReason::Feed
            | CallReason::BlockHash
            | CallReason::Study => false,
        };
        self.turns.take(&self.counts.ledger, now, !is_of_the_start && self.is_busy(now));
        Ok(())
    }

    /// Pays for a call that opens a feed, which does not travel as an exchange.
    pub(crate) fn pay_on_feed(&self, row: &MethodRow) -> Result<(), String> {
        self.pay(CallReason::Feed, row)?;
        self.upstream.charge_call(row, now());
        Ok(())
    }

    /// Pays for a message of `bytes` that a feed pushed; an error when the day's credits for
    /// checks are spent by it.
    pub(crate) fn pay_for_push(&self, bytes: usize) -> Result<(), String> {
        let now = now();
        let credits = self.upstream.charge_push(bytes, now);
        self.counts.count_pushed(bytes, credits);
        self.take_credits(credits, now)
    }

    fn take_credits(&self, credits: u64, now: Instant) -> Result<(), String> {
        match self.allowance.spend(&self.counts.ledger, credits, now) {
            Payment::Paid => Ok(()),
            Payment::Refused { is_news } => {
                if is_news {
                    let id = &self.upstream.identity().id;
                    tracing::warn!(upstream = %id, "today's credits for checks are spent; until tomorrow only clients' calls show the health of the upstream");
                }
                Err("today's credits for checks are spent".to_owned())
            }
        }
    }

    async fn ask(&self, reason: CallReason, method: &str, params: &str) -> Result<Bytes, String> {
        // Boxed, as the loop of an upstream waits far longer than it asks: it would hold the room of
        // an exchange all the time.
        let verdict = Box::pin(self.judged(reason, method, params)).await?;
        match verdict.payload {
            Payload::Result(ref result) => Ok(result.clone()),
            Payload::Error(_) | Payload::None { .. } => {
                let detail = format!("{method}: {}", verdict.detail());
                // Many do not offer `eth_syncing` or know these tags, which is no problem of
                // theirs.
                let may_lack = matches!(
                    reason,
                    CallReason::Syncing
                        | CallReason::Peers
                        | CallReason::Finality
                        | CallReason::BlockHash
                        | CallReason::Version
                );
                if !may_lack {
                    self.upstream.note_failure(verdict.class, detail.clone(), now());
                }
                Err(detail)
            }
        }
    }

    /// Makes a call, pays for it and settles it; an error only when there is nothing left to pay
    /// with.
    pub(crate) async fn judged(
        &self,
        reason: CallReason,
        method: &str,
        params: &str,
    ) -> Result<Verdict, String> {
        let row = MethodTable::standard().row(method);
        self.pay(reason, row)?;
        let mut body = Vec::with_capacity(96);
        write::call(&mut body, 1, method, Some(params.as_bytes()));
        let began = now();
        let was_unwell = self.upstream.probe_due(began).is_some();
        let in_flight = self.upstream.begin_call(row, began);
        let deadline = began + ASK_TIMEOUT;
        let exchange = self.transport.exchange(Exchange {
            body: Bytes::from(body),
            deadline,
            whole_max: usize::MAX,
            bulky: false,
            trace: None,
        });
        let reply = tokio::time::timeout_at(deadline.into(), exchange).await.unwrap_or_else(|_| {
            Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, ""))
        });
        let verdict = match &reply {
            Ok(reply) => self.upstream.redacted(Judge::standard().reply(row, reply)),
            Err(error) => self.upstream.redacted(Judge::standard().transport(error)),
        };
        let ended = now();
        let change = self.upstream.settle(row, &verdict, began, ended);
        drop(in_flight);
        self.log(change, &verdict, was_unwell);
        Ok(verdict)
    }

    fn log(&self, change: Change, verdict: &Verdict, was_unwell: bool) {
        let id = &self.upstream.identity().id;
        match change {
            // What we ask is of the cheap classes, which clients use far more.
            Change::None | Change::ClassRests => {}
            Change::Recovered => tracing::info!(upstream = %id, "upstream recovered"),
            // It rested before and goes on: that was said when it began.
            Change::Rests if was_unwell => {
                tracing::debug!(upstream = %id, detail = %verdict.detail(), "upstream failed another probe: its breaker stays open longer");
            }
            Change::Rests => {
                tracing::warn!(upstream = %id, detail = %verdict.detail(), "upstream failed a probe: its breaker is open");
            }
            Change::WentOutOfService => {
                tracing::error!(upstream = %id, detail = %verdict.detail(), "upstream refused the key or account; out of service until a probe succeeds");
            }
        }
    }

    pub(crate) async fn chain_id(&self, reason: CallReason) -> Result<ChainId, String> {
        let result = self.ask(reason, "eth_chainId", "[]").await?;
        raw::quantity(&result)
            .map(ChainId)
            .ok_or_else(|| "eth_chainId: the answer is not a number".to_owned())
    }

    /// What the software calls itself.
    pub(crate) async fn client_version(&self, reason: CallReason) -> Result<String, String> {
        let result = self.ask(reason, "web3_clientVersion", "[]").await?;
        raw::string(&result)
            .map(std::borrow::Cow::into_owned)
            .ok_or_else(|| "web3_clientVersion: the answer is not a string".to_owned())
    }

    /// Asks the upstream whether it is behind. A progress object alone does not mean
    /// that: a fresh dev chain reports one with nothing left to fetch.
    pub(crate) async fn ask_syncing(
        &self,
        reason: CallReason,
        lag_bound: u64,
    ) -> Result<bool, String> {
        let result = self.ask(reason, "eth_syncing", "[]").await?;
        Ok(is_behind(&result, lag_bound))
    }

    /// Asks the upstream whether it has no peers, from which it could hear of new blocks.
    pub(crate) async fn ask_isolated(&self, reason: CallReason) -> Result<bool, String> {
        let result = self.ask(reason, "net_peerCount", "[]").await?;
        Ok(raw::quantity(&result) == Some(0))
    }

    /// The block behind a tag, and what was told of it as raw JSON.
    pub(crate) async fn block(
        &self,
        reason: CallReason,
        tag: BlockTag,
    ) -> Result<(Observation, Bytes), String> {
        let params = format!(r#"["{tag}",false]"#);
        let block = self.ask(reason, "eth_getBlockByNumber", &params).await?;
        match Observation::of_block(&block) {
            Some(seen) => Ok((seen, block)),
            None => Err(format!("the {tag} block has no number")),
        }
    }

    /// What distinguishes its chain from one that was restarted: the hash of block 1, which contains
    /// its time even if each genesis is equal. A chain whose upstream no longer has that block was
    /// not restarted recently, so its genesis suffices.
    pub(crate) async fn origin(&self) -> Result<BlockHash, String> {
        let first =
            self.ask(CallReason::Finality, "eth_getBlockByNumber", r#"["0x1",false]"#).await;
        let (number, block) = match first {
            // Not made yet.
            Ok(block) if raw::is_null(&block) => return Err("there is no block 1".to_owned()),
            Ok(block) => (1, block),
            Err(_) => {
                let params = r#"["0x0",false]"#;
                (0, self.ask(CallReason::Finality, "eth_getBlockByNumber", params).await?)
            }
        };
        let seen = Observation::of_block(&block).filter(|seen| seen.number == BlockNumber(number));
        seen.and_then(|seen| seen.hash).ok_or_else(|| format!("block {number} is another"))
    }
}

/// Whether this result of `eth_syncing` says that more than `lag_bound` blocks are missing.
pub fn is_behind(syncing: &[u8], lag_bound: u64) -> bool {
    let read = |key| raw::field(syncing, key).and_then(raw::quantity);
    match (read("currentBlock"), read("highestBlock")) {
        (Some(current), Some(highest)) => highest.saturating_sub(current) > lag_bound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(syncing: &str, behind: bool) {
        assert_eq!(is_behind(syncing.as_bytes(), 3), behind, "{syncing}");
    }

    #[test]
    fn only_blocks_that_are_missing_count_as_syncing() {
        check("false", false);
        check("true", false);
        check("{}", false);
        check(r#"{"currentBlock":"0x0","highestBlock":"0x0","startingBlock":"0x0"}"#, false);
        check(r#"{"currentBlock":"0x64","highestBlock":"0x66"}"#, false);
        check(r#"{"currentBlock":"0x64","highestBlock":"0x68"}"#, true);
        check(r#"{"highestBlock":"0x68"}"#, false);
    }
}
