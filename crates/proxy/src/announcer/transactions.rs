//! The transactions of each block, while a subscription to `alchemy_minedTransactions` wants them.
//!
//! One call a block, whatever the number of subscriptions.

use std::sync::Arc;

use tokio::time::sleep;
use wellhead_subscribe::{AddedBlock, BlockTransactions, PartState};

use super::{Announcer, PART_BYTES_MAX, may_be_empty, pause_after, until_settled};
use crate::state::subscriptions::{BlockPart, SubscriptionCounters};

impl Announcer {
    /// Finds the transactions of each block in turn, for as long as it is polled; none is skipped.
    pub(super) async fn follow_transactions(&self) {
        let mut publications = self.chain().subscriptions.publications();
        let mut failures = 0;
        loop {
            publications.mark_seen();
            let Some(block) = self.next_without(|block| block.transactions().is_none()) else {
                publications.changed().await;
                continue;
            };
            let found = tokio::select! {
                biased;
                () = until_settled(|| block.transactions().is_some(), &mut publications) => continue,
                found = self.transactions_of(&block, failures) => found,
            };
            match found {
                Ok(transactions) => {
                    failures = 0;
                    let is_told = matches!(transactions, PartState::Known(_));
                    if self.journal.lock().set_transactions(&block, transactions) && is_told {
                        self.chain().subscriptions.tell();
                    }
                }
                Err(why) => {
                    failures += 1;
                    SubscriptionCounters::add(&self.chain().subscriptions.counts().failed, 1);
                    let chain = &self.chain().name.name;
                    tracing::debug!(%chain, block = %block.id(), why, "the transactions of a block cannot be had");
                    sleep(pause_after(failures)).await;
                }
            }
        }
    }

    /// The transactions of a block, if they are wanted.
    async fn transactions_of(
        &self,
        block: &AddedBlock,
        failures: u32,
    ) -> Result<PartState<BlockTransactions>, String> {
        let subscriptions = &self.chain().subscriptions;
        if !subscriptions.wants(BlockPart::Transactions) {
            return Ok(PartState::Unneeded);
        }
        let id = block.id();
        let params = format!(r#"["{}",true]"#, id.hash);
        let body = self.call("eth_getBlockByHash", &params).await;
        let body = body.ok_or_else(|| "no upstream answered".to_owned())?;
        let is_empty = may_be_empty(block, failures);
        let found = BlockTransactions::read(id, &body, is_empty, PART_BYTES_MAX);
        let found = found.map_err(|error| error.to_string())?;
        SubscriptionCounters::add(&subscriptions.counts().transaction_blocks, 1);
        Ok(PartState::Known(Arc::new(found)))
    }
}
