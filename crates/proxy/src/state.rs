//! What the features of a chain remember between requests, and what the settings say of them.
//!
//! The lowest storey: nothing here knows a request, and each part has one owner, [`chain`].

pub(crate) mod access;
pub(crate) mod by_hash;
pub(crate) mod cache;
pub(crate) mod chain;
pub(crate) mod counts;
pub(crate) mod directory;
pub(crate) mod exemplars;
pub(crate) mod filter_store;
pub(crate) mod hopeless;
pub(crate) mod parts;
pub(crate) mod quorums;
pub(crate) mod relays;
mod replicas;
pub(crate) mod sent;
pub(crate) mod sessions;
pub(crate) mod streams;
pub(crate) mod subscriber;
pub(crate) mod subscriptions;
pub(crate) mod tiers;
pub(crate) mod verify;
pub(crate) mod virtual_filters;
