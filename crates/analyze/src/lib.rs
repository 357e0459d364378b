//! The analyser: what a provider really delivers.
//!
//! Three rooms, one way. [`measure`] plays experiments and writes what happened, one line a call;
//! [`conclude`] computes from those lines what they say of a provider, and the settings that follow;
//! [`report`] makes something to look at, and [`gate`], beside it, decides conditions for CI. The
//! rooms are joined by the records alone, so everything but the sending can be done again, at any
//! time and by a newer version.
//!
//! What the rooms share lies beside them and imports none of them: records ([`record`],
//! [`stored`]), figures ([`stat`]), what can be asked ([`work`], [`call_list`], [`method_list`]), and
//! what both sides must see alike ([`ending`], [`difference`], the names of experiments). `cargo xtask tidy` checks the arrows.

pub mod call_list;
pub mod conclude;
pub mod difference;
pub mod ending;
mod experiment;
pub mod gate;
pub mod measure;
pub mod method_list;
pub mod monitor;
pub mod record;
pub mod report;
pub mod stat;
pub mod stored;
mod text;
pub mod work;
