//! How many upstreams must answer a call alike.

use std::time::Duration;

/// What is done when there is no agreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The client gets an error.
    Fail,
    /// The most frequent answer, or the first one if several are equally frequent.
    MostSaid,
}

/// How many must say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    /// So many upstreams; one is as good as none.
    pub agree: usize,
    /// So many are heard at most; never fewer than must agree.
    pub of: usize,
    /// How long the others are waited for once one has spoken.
    pub wait: Duration,
    /// When as many were heard as may be, and too few of them agree.
    pub on_dispute: Otherwise,
    /// When too few upstreams answered to agree, and none of their answers contradict each other.
    pub on_low_participation: Otherwise,
}

impl Default for Quorum {
    fn default() -> Self {
        Self {
            agree: 2,
            of: 3,
            wait: Duration::from_secs(2),
            on_dispute: Otherwise::Fail,
            on_low_participation: Otherwise::Fail,
        }
    }
}

/// A quorum for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ballot {
    /// How many must say the same.
    pub quorum: Quorum,
    /// The block can no longer be replaced: an upstream with another answer is wrong.
    pub is_final: bool,
    /// The largest number wins once enough were heard: each knows a part of what there is,
    /// as pools do.
    pub largest: bool,
}
