//! Polls pools for pending transactions where no upstream pushes them, and closes relays that nothing reads.
//!
//! A filter is made at one upstream, as a client would make it, and read twice in a block, but at most once
//! a second. When that upstream is gone, so is the filter, and the next poll makes another one elsewhere.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;
use wellhead_dispatch::now;
use wellhead_jsonrpc::raw;

use super::Announcer;
use crate::state::relays::{PolledPool, PoolForm};

/// The interval at which relays are looked at; a pool is polled no more often.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// While the block time is not known.
const POLL_UNKNOWN: Duration = Duration::from_secs(2);
/// A pool is polled no less often, however slow the chain.
const POLL_MAX: Duration = Duration::from_secs(6);
/// The pause after an attempt in which no upstream made a filter. A client that subscribes meanwhile waits
/// for the next one.
const FAILED_PAUSE: Duration = Duration::from_secs(3);

/// Attempts in a row in which no upstream makes a filter, until clients are told that none offers it: one
/// that fails may be followed by one at another upstream.
const FAILURES_MAX: u32 = 3;

/// The polling of one pool.
#[derive(Debug)]
struct PoolPoll {
    form: PoolForm,
    /// The parameters that name the filter, once there is one.
    filter: Option<String>,
    /// Attempts in a row in which no upstream made one.
    failures: u32,
    next_at: Instant,
}

impl Announcer {
    /// Looks after the relays of the chain for ever.
    pub(super) async fn tend_relays(&self) {
        let relays = &self.chain.streams.relays;
        loop {
            while relays.is_empty() {
                relays.opened().await;
            }
            let begin = |form| PoolPoll { form, filter: None, failures: 0, next_at: now() };
            let mut polls = PoolForm::ALL.map(begin);
            while !relays.is_empty() {
                for poll in &mut polls {
                    self.tend_pool(poll).await;
                }
                relays.close_unread(now());
                sleep(TEND_EVERY).await;
            }
        }
    }

    async fn tend_pool(&self, poll: &mut PoolPoll) {
        let relays = &self.chain.streams.relays;
        if !relays.is_pool_unpushed(poll.form, now()) {
            if let Some(filter) = poll.filter.take() {
                self.call("eth_uninstallFilter", &filter).await;
            }
            return;
        }
        if now() < poll.next_at {
            return;
        }
        let block_time = self.chain.heads.look(|view| view.block_time);
        let pause = block_time.map_or(POLL_UNKNOWN, |time| (time / 2).clamp(TEND_EVERY, POLL_MAX));
        poll.next_at = now() + pause;
        if poll.filter.is_none() {
            let made =
                self.call("eth_newPendingTransactionFilter", poll.form.filter_params()).await;
            poll.filter = made.map(|id| format!("[{}]", String::from_utf8_lossy(&id)));
        }
        let found = match &poll.filter {
            Some(filter) => self.call("eth_getFilterChanges", filter).await,
            None => None,
        };
        let list = found.as_ref().filter(|found| raw::trim(found).first() == Some(&b'['));
        // Without a list the filter is gone; the next poll makes another one.
        let is_lost = list.is_none() && poll.filter.take().is_some();
        poll.failures = if list.is_some() || is_lost { 0 } else { poll.failures + 1 };
        let polled = match poll.failures {
            0 if is_lost => PolledPool::Untried,
            0 => PolledPool::Works,
            FAILURES_MAX.. => {
                poll.next_at = now() + FAILED_PAUSE;
                PolledPool::Fails
            }
            _ => {
                poll.next_at = now() + TEND_EVERY;
                PolledPool::Untried
            }
        };
        let results = list.into_iter().flat_map(|list: &Bytes| raw::items(list));
        relays.note_polled(poll.form, polled, results);
    }
}
