//! What methods do, as rights tell them apart.

use wellhead_eth::{Effect, MethodRow};

/// What a method does, as rights tell them apart. Its words stand in settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
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

wellhead_word::words!(EffectClass);

impl EffectClass {
    /// Of a method, whose row is `row`. Needs [`Self::Admin`] beside it where the method is not public.
    pub(crate) fn of(row: &MethodRow) -> Self {
        match row.effect {
            Effect::Read | Effect::Filter | Effect::Sticky | Effect::Local => Self::Read,
            Effect::Subscribe => Self::Subscribe,
            Effect::Broadcast => Self::Broadcast,
            Effect::Write => Self::Write,
        }
    }
}
