//! The receipts of each block, while a subscription to `transactionReceipts` wants them.
//!
//! One call a block, whatever the number of subscriptions. The logs of the block are read from that
//! answer: they prove by the bloom of the header that no receipt with a log is missing, and save the
//! call for the logs.

use std::sync::Arc;

use wellhead_subscribe::{AddedBlock, BlockLogs, BlockReceipts, LogsReply, LogsState, PartState};

use super::{
    Announcer, PART_BYTES_MAX, PartFailures, PartUnread, RECEIPTS, logs_scope, may_be_empty,
};
use crate::state::subscriptions::{BlockPart, SubscriptionCounters};

impl Announcer {
    /// Finds the receipts of each block.
    pub(super) async fn follow_receipts(&self) {
        let settle = |block: Arc<AddedBlock>, failures| async move {
            let settled = self.settle_receipts(&block, failures).await;
            self.note_receipts(&block, settled.is_err());
            // The loop that waits for logs is told after the logs are there.
            self.receipts_news.notify_waiters();
            settled
        };
        self.follow_part("receipts", |block| block.receipts().is_some(), settle).await;
    }

    fn note_receipts(&self, block: &AddedBlock, are_failing: bool) {
        let oldest = self.chain.subscriptions.reader.load().oldest().sequence();
        let mut failing = self.receipts_failing.lock();
        *failing = failing.split_off(&oldest);
        match are_failing {
            true => drop(failing.insert(block.sequence())),
            false => drop(failing.remove(&block.sequence())),
        }
    }

    /// Resolves when the receipts of a block are known or not needed, or cannot be had now.
    pub(super) async fn receipts_settled(&self, block: &AddedBlock) {
        loop {
            // Made before the check, so that nothing is missed.
            let news = self.receipts_news.notified();
            let are_failing = self.receipts_failing.lock().contains(&block.sequence());
            if block.receipts().is_some() || are_failing {
                return;
            }
            news.await;
        }
    }

    /// Finds the receipts of a block if they are wanted, and with them its logs.
    async fn settle_receipts(
        &self,
        block: &AddedBlock,
        failures: PartFailures,
    ) -> Result<(), PartUnread> {
        let subscriptions = &self.chain.subscriptions;
        if !subscriptions.wants(BlockPart::Receipts) {
            self.journal.lock().set_receipts(block, PartState::Unneeded);
            return Ok(());
        }
        let (receipts, logs) = self.read_receipts(block, failures).await?;
        SubscriptionCounters::add(&subscriptions.counts.receipt_blocks, 1);
        let may_match = subscriptions.may_match(block.id().number, block.telling_bloom());
        let mut logs = Some(logs).filter(|_| may_match && block.logs().is_none());
        if let Some(logs) = &logs {
            subscriptions.note_logs(block, logs);
        }
        {
            let mut journal = self.journal.lock();
            journal.set_receipts(block, PartState::Known(Arc::new(receipts)));
            if let Some(logs) = logs.take() {
                journal.set_logs(block, LogsState::Known(Arc::new(logs)));
            }
        }
        subscriptions.tell();
        Ok(())
    }

    async fn read_receipts(
        &self,
        block: &AddedBlock,
        failures: PartFailures,
    ) -> Result<(BlockReceipts, BlockLogs), PartUnread> {
        let (id, is_empty) = (block.id(), may_be_empty(block, failures));
        let scope = logs_scope(block.telling_bloom(), failures);
        let result = self.call(RECEIPTS, &format!(r#"["{}"]"#, id.hash)).await;
        let result = result.ok_or_else(PartUnread::unanswered)?;
        let receipts = BlockReceipts::read(id, &result, is_empty, PART_BYTES_MAX);
        let receipts = receipts.map_err(|error| PartUnread::because(error.to_string()))?;
        let logs = BlockLogs::read(id, LogsReply::Receipts(&result), scope, PART_BYTES_MAX)?;
        Ok((receipts, logs))
    }
}
