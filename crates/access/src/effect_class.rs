//! What methods do, as rights tell them apart.

use wellhead_eth::{Effect, MethodRow};

/// What a method does, as rights tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EffectClass {
    /// Changes nothing, filters included.
    Read,
    /// Starts or ends a subscription.
    Subscribe,
    /// Hands over a signed transaction.
    Broadcast,
    /// Changes one upstream, or uses a key or a relay of its own.
    Write,
    /// Is meant for the operator of a node, the owner of its keys, or a test chain, whatever else it does.
    Admin,
}

impl EffectClass {
    /// Every class.
    pub const ALL: [Self; 5] =
        [Self::Read, Self::Subscribe, Self::Broadcast, Self::Write, Self::Admin];

    /// Of a method, whose row is `row`. Needs [`Self::Admin`] beside it where the method is not public.
    pub(crate) fn of(row: &MethodRow) -> Self {
        match row.effect {
            Effect::Read | Effect::Filter | Effect::Sticky | Effect::Local => Self::Read,
            Effect::Subscribe => Self::Subscribe,
            Effect::Broadcast => Self::Broadcast,
            Effect::Write => Self::Write,
        }
    }

    /// As it is written in settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Subscribe => "subscribe",
            Self::Broadcast => "broadcast",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// The class of a word; exact, case matters.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.word() == word)
    }
}
