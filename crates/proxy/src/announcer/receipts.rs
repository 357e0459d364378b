//! The receipts of each block, while a subscription to `transactionReceipts` wants them.
//!
//! One call a block, whatever the number of subscriptions. The logs of the block are read from that
//! answer: they prove by the bloom of the header that no receipt with a log is missing, and save the
//! call for the logs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::sleep;
use wellhead_subscribe::{
    AddedBlock, BlockLogs, BlockReceipts, LogsError, LogsReply, LogsScope, LogsState, PartState,
};

use super::{
    Announcer, FOREIGN_MAX, PART_BYTES_MAX, RECEIPTS, bloom_of, may_be_empty, pause_after,
    until_settled,
};
use crate::state::subscriptions::{BlockPart, SubscriptionCounters};

/// Why the receipts of a block were not had.
struct ReceiptsUnread {
    why: String,
    /// The bloom of the header excludes some of their logs.
    is_foreign: bool,
}

impl Announcer {
    /// Finds the receipts of each block in turn, for as long as it is polled; none is skipped.
    pub(super) async fn follow_receipts(&self) {
        let subscriptions = &self.chain().subscriptions;
        let mut publications = subscriptions.publications();
        let (mut failures, mut foreign) = (0, 0);
        loop {
            publications.mark_seen();
            let Some(block) = self.next_without(|block| block.receipts().is_none()) else {
                publications.changed().await;
                continue;
            };
            let found = tokio::select! {
                biased;
                () = until_settled(|| block.receipts().is_some(), &mut publications) => continue,
                found = self.settle_receipts(&block, failures, foreign) => found,
            };
            self.receipts_fail.store(found.is_err(), Relaxed);
            // The loop that waits for logs is told after the logs are there.
            self.receipts_news.notify_waiters();
            match found {
                Ok(()) => (failures, foreign) = (0, 0),
                Err(unread) => {
                    failures += 1;
                    foreign += u32::from(unread.is_foreign);
                    sleep(pause_after(failures)).await;
                }
            }
        }
    }

    /// Resolves when the receipts of a block are known or not needed, or cannot be had now.
    pub(super) async fn receipts_settled(&self, block: &AddedBlock) {
        loop {
            // Made before the check, so that nothing is missed.
            let news = self.receipts_news.notified();
            if block.receipts().is_some() || self.receipts_fail.load(Relaxed) {
                return;
            }
            news.await;
        }
    }

    /// Finds the receipts of a block if they are wanted, and with them its logs, which were not of its
    /// header `foreign` times.
    async fn settle_receipts(
        &self,
        block: &AddedBlock,
        failures: u32,
        foreign: u32,
    ) -> Result<(), ReceiptsUnread> {
        let subscriptions = &self.chain().subscriptions;
        if !subscriptions.wants(BlockPart::Receipts) {
            self.journal.lock().set_receipts(block, PartState::Unneeded);
            return Ok(());
        }
        let counts = subscriptions.counts();
        let scope = match bloom_of(block) {
            Some(bloom) if foreign >= FOREIGN_MAX => LogsScope::WithSystemLogs(bloom),
            bloom => LogsScope::Whole(bloom),
        };
        let is_empty = may_be_empty(block, failures);
        let (receipts, logs) = match self.read_receipts(block, is_empty, scope).await {
            Ok(found) => found,
            Err(unread) => {
                SubscriptionCounters::add(&counts.failed, 1);
                let chain = &self.chain().name.name;
                tracing::debug!(%chain, block = %block.id(), why = unread.why, "the receipts of a block cannot be had");
                return Err(unread);
            }
        };
        SubscriptionCounters::add(&counts.receipt_blocks, 1);
        let may_match = subscriptions.may_match(block.id().number, bloom_of(block));
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
        may_be_empty: bool,
        scope: LogsScope<'_>,
    ) -> Result<(BlockReceipts, BlockLogs), ReceiptsUnread> {
        let unread = |why: String| ReceiptsUnread { why, is_foreign: false };
        let id = block.id();
        let result = self.call(RECEIPTS, &format!(r#"["{}"]"#, id.hash)).await;
        let result = result.ok_or_else(|| unread("no upstream answered".to_owned()))?;
        let receipts = BlockReceipts::read(id, &result, may_be_empty, PART_BYTES_MAX);
        let receipts = receipts.map_err(|error| unread(error.to_string()))?;
        let logs = BlockLogs::read(id, LogsReply::Receipts(&result), scope, PART_BYTES_MAX);
        let logs = logs.map_err(|error| ReceiptsUnread {
            is_foreign: error == LogsError::Foreign,
            ..unread(error.to_string())
        })?;
        Ok((receipts, logs))
    }
}
