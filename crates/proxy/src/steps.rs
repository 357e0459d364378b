//! The steps of a call's life, one module a step. A step knows the storeys below it,
//! [`crate::state`] and [`crate::request`], and the steps that it is made of; which step follows
//! which is written in [`crate::call`].

pub(crate) mod ask_upstreams;
pub(crate) mod by_hash;
pub(crate) mod cached;
pub(crate) mod catch_up;
pub(crate) mod charge;
pub(crate) mod empty_logs;
pub(crate) mod filters;
pub(crate) mod floor;
pub(crate) mod height;
pub(crate) mod local;
pub(crate) mod lost_block;
pub(crate) mod observe;
pub(crate) mod planning;
pub(crate) mod proven;
pub(crate) mod reasons;
pub(crate) mod recall;
pub(crate) mod search;
pub(crate) mod startup;
pub(crate) mod subscribe;
pub(crate) mod tiers;
pub(crate) mod transactions;
pub(crate) mod version;
pub(crate) mod virtual_filters;
