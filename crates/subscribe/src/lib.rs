//! What subscribers and filters of one chain are told, as values: no socket, no clock, no task.
//!
//! [`ChainJournal`] is the ordered record of the blocks that joined and left the agreed chain. One
//! writer appends to it; each subscriber and each filter is a [`Cursor`] into it, and no event is
//! queued for any of them. The fail-over of upstreams, gaps and reorgs are all one path: [`HeadWalk`] says
//! which headers are missing below the agreed head, and what to publish once they are there.
//!
//! The modules in the order in which a block passes through them:
//!
//! - `header`: one body for `newHeads`, whichever node wrote it
//! - `walk`: from the agreed head down to the journal, and which header to fetch
//! - `journal`: blocks added and removed, over `ring`, which readers load without a lock
//! - `criteria`: the filter of a subscription to logs, as geth reads it
//! - `logs`: the logs of one block, checked and rendered once
//! - `receipts`: the receipts of one block, in the same way
//! - `mined`: the transactions of one block, in the same way
//! - `groups`: equal filters once, and which of them a log matches
//! - `filters`, `poll`: `eth_newFilter` and its kin: what changed since the last poll, by the blocks told; `id`
//!   names them, `saved_filter` writes them down, `shared_mark` compares a copy with what replicas share
//! - `pending`, `pending_criteria`: transactions of pools, each once, and which of them are told
//! - `filter_object`: what the filters of receipts and transactions have in common
//! - `relayed`: the kinds that only upstreams know
//! - `syncing`: whether the chain is followed, over `stream`, which holds what belongs to no block
//! - `notification`: the bytes of a notification, of which only the id is a subscriber's own
//!
//! What feeds all this and what writes it to clients is not here: the caller fetches, waits, keeps
//! the time, and holds the sockets.

mod criteria;
mod filter_object;
mod filters;
mod groups;
mod header;
mod id;
mod journal;
mod logs;
mod mined;
mod notification;
mod pending;
mod pending_criteria;
mod poll;
mod receipts;
mod relayed;
mod ring;
mod saved_filter;
mod shared_mark;
mod stream;
mod syncing;
mod walk;

pub use criteria::{LogCriteria, LogCriteriaBits, LogCriteriaError};
pub use filter_object::FilterObjectError;
pub use filters::{CompletePoll, FilterRefusal, FinishError, OpenPoll, VirtualFilters};
pub use groups::{BlockMatches, FilterGroups, GroupId};
pub use header::{Header, HeaderError};
pub use id::{SubscriptionId, VirtualFilterId};
pub use journal::{
    AddedBlock, ChainEvent, ChainJournal, LogsState, PartState, Publication, Unlinked,
};
pub use logs::{BlockLog, BlockLogs, LogsError, LogsReply, LogsScope};
pub use mined::{BlockTransactions, MinedCriteria, TransactionsError};
pub use notification::Notification;
pub use pending::{PendingEvent, PendingJournal};
pub use pending_criteria::PendingCriteria;
pub use poll::{FilterBounds, FilterPoll, FilterQuery, FilterStep, VirtualFilterKind};
pub use receipts::{BlockReceipts, ReceiptCriteria, ReceiptsError};
pub use relayed::{GapPolicy, RelayedKind};
pub use ring::{Cursor, Lagged, RingReader, RingView};
pub use saved_filter::SavedFilter;
pub use shared_mark::{FilterStamp, SharedMark, StoreOutcome};
pub use stream::{EventStream, StreamBounds, StreamEvent};
pub use syncing::{SyncProgress, SyncState, SyncingJournal};
pub use walk::{HeadWalk, WalkStep};
