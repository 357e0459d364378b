//! The transactions of each block, while a subscription to `alchemy_minedTransactions` wants them.
//!
//! One call a block, whatever the number of subscriptions.

use std::sync::Arc;

use wellhead_subscribe::{AddedBlock, BlockTransactions, PartState};

use super::{Announcer, PART_BYTES_MAX, PartFailures, PartUnread, may_be_empty};
use crate::state::subscriptions::{BlockPart, SubscriptionCounters};

impl Announcer {
    /// Finds the transactions of each block.
    pub(super) async fn follow_transactions(&self) {
        let settle = |block: Arc<AddedBlock>, failures| async move {
            let found = self.transactions_of(&block, failures).await?;
            let is_told = matches!(found, PartState::Known(_));
            if self.journal.lock().set_transactions(&block, found) && is_told {
                self.chain.subscriptions.tell();
            }
            Ok(())
        };
        self.follow_part("transactions", |block| block.transactions().is_some(), settle).await;
    }

    /// The transactions of a block, if they are wanted.
    async fn transactions_of(
        &self,
        block: &AddedBlock,
        failures: PartFailures,
    ) -> Result<PartState<BlockTransactions>, PartUnread> {
        let subscriptions = &self.chain.subscriptions;
        if !subscriptions.wants(BlockPart::Transactions) {
            return Ok(PartState::Unneeded);
        }
        let id = block.id();
        let params = format!(r#"["{}",true]"#, id.hash);
        let body = self.call("eth_getBlockByHash", &params).await;
        let body = body.ok_or_else(PartUnread::unanswered)?;
        let is_empty = may_be_empty(block, failures);
        let found = BlockTransactions::read(id, &body, is_empty, PART_BYTES_MAX);
        let found = found.map_err(|error| PartUnread::because(error.to_string()))?;
        SubscriptionCounters::add(&subscriptions.counts.transaction_blocks, 1);
        Ok(PartState::Known(Arc::new(found)))
    }
}
