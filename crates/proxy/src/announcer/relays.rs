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
/// The pause after an attempt in which no upstream made a filter.
const FAILED_PAUSE: Duration = Duration::from_secs(30);

/// The polling of one pool.
#[derive(Debug)]
struct PoolPoll {
    form: PoolForm,
    /// The parameters that name the filter, once there is one.
    filter: Option<String>,
    next_at: Instant,
}

impl Announcer {
    /// Looks after the relays of the chain for ever.
    pub(super) async fn tend_relays(&self) {
        let relays = self.chain().streams.relays();
        loop {
            while relays.is_empty() {
                relays.opened().await;
            }
            let mut polls =
                PoolForm::ALL.map(|form| PoolPoll { form, filter: None, next_at: now() });
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
        let relays = self.chain().streams.relays();
        if !relays.is_pool_unpushed(poll.form, now()) {
            if let Some(filter) = poll.filter.take() {
                self.call("eth_uninstallFilter", &filter).await;
            }
            return;
        }
        if now() < poll.next_at {
            return;
        }
        let block_time = self.chain().heads.look(|view| view.block_time);
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
        let polled = match list {
            Some(_) => PolledPool::Works,
            // The filter is gone; the next poll makes another one.
            None if poll.filter.take().is_some() => PolledPool::Untried,
            None => {
                poll.next_at = now() + FAILED_PAUSE;
                PolledPool::Fails
            }
        };
        let results = list.into_iter().flat_map(|list: &Bytes| raw::items(list));
        relays.note_polled(poll.form, polled, results);
    }
}
