//! How the copy of a filter here stands to the one that replicas share.
//!
//! The store keeps the newest state of a filter under a stamp. A replica that finds the stamp of its own copy goes on
//! with that, and with the stored one otherwise. While the store is away, a replica at which the client stays goes on
//! by itself, and is *ahead* of the store then.

/// Names one state of a filter in the store; drawn for each write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterStamp(pub u64);

/// How a copy stands to the stored filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedMark {
    /// What the store had when it was last asked.
    stored: Option<FilterStamp>,
    /// What was written there without an answer: it may or may not have it, and may have it later.
    sent: Option<FilterStamp>,
    /// The copy is newer than what the store is known to have.
    is_ahead: bool,
    /// No other replica has polled the filter lately.
    is_home: bool,
}

impl SharedMark {
    /// Of a filter that was made here.
    pub(crate) fn made() -> Self {
        Self { is_ahead: true, is_home: true, ..Self::default() }
    }

    /// Of a copy of what the store has.
    pub(crate) fn copied(stamp: FilterStamp, is_home: bool) -> Self {
        Self { stored: Some(stamp), sent: None, is_ahead: false, is_home }
    }

    /// What the store has if nothing was written there since: the newer one first.
    pub fn stamps(&self) -> impl Iterator<Item = FilterStamp> + use<> {
        self.sent.into_iter().chain(self.stored)
    }

    /// Whether the copy is newer than what the store is known to have.
    pub fn is_ahead(&self) -> bool {
        self.is_ahead
    }

    /// Whether the store is known to have what is here.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.is_some() && !self.is_ahead
    }

    /// Whether it is not known if the store took what was written last.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// This copy, as one that may not serve without the store.
    pub(crate) fn away_from_home(self) -> Self {
        Self { is_home: false, ..self }
    }

    /// Whether the copy may serve while the store cannot be asked: it is very likely the newest.
    pub fn is_home(&self) -> bool {
        self.is_home
    }

    /// The store has this state, which is one of [`SharedMark::stamps`].
    pub(crate) fn note_stored(&mut self, stamp: FilterStamp, is_home: bool) {
        // A write that was not answered may still be on its way.
        self.sent = self.sent.filter(|sent| *sent != stamp);
        self.stored = Some(stamp);
        self.is_home = is_home;
    }

    /// The store has no such filter: what is here is to be written.
    pub(crate) fn note_missing(&mut self) {
        self.is_ahead = true;
    }

    /// The copy moved on.
    pub(crate) fn note_outcome(&mut self, outcome: StoreOutcome, is_moved: bool) {
        match outcome {
            StoreOutcome::Local => self.is_ahead |= is_moved,
            StoreOutcome::Stored(stamp) => {
                *self = Self { is_home: self.is_home, ..Self::copied(stamp, false) };
            }
            StoreOutcome::Sent(stamp) => (self.sent, self.is_ahead) = (Some(stamp), true),
        }
    }
}

/// What became of a poll in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOutcome {
    /// It was not written there.
    Local,
    /// The store has it, under this stamp.
    Stored(FilterStamp),
    /// It was sent there under this stamp, and not answered.
    Sent(FilterStamp),
}
