//! The kinds of subscriptions that wellhead cannot make itself: they are kept open at an upstream, and
//! what it pushes is told as it is.

/// What it means to a subscriber that something may have been missed: its upstream ended and another one
/// took over, or the client read too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapPolicy {
    /// Nothing: what is told is a preview that blocks confirm or not, and each part stands for itself.
    Silent,
    /// The connection is closed, so that the client begins anew: it folds what it is told.
    Close,
}

/// A kind that is relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayedKind {
    /// As clients write it.
    pub name: &'static str,
    /// What a gap means.
    pub gap: GapPolicy,
}

impl RelayedKind {
    /// All of them. From the pages of Base (flashblocks) and Monad, read in November 2026.
    pub const ALL: [Self; 5] = [
        // Parts of the block that is being built, some each second.
        Self { name: "newFlashblocks", gap: GapPolicy::Silent },
        Self { name: "newFlashblockTransactions", gap: GapPolicy::Silent },
        Self { name: "pendingLogs", gap: GapPolicy::Silent },
        // Each block is told several times, once for each state from proposed to verified.
        Self { name: "monadNewHeads", gap: GapPolicy::Close },
        Self { name: "monadLogs", gap: GapPolicy::Close },
    ];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|kind| kind.name == name)
    }
}
