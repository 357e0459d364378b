//! A bench of truths: servers with a known behaviour, what is said of them, and how often that is right.
//!
//! [`kind`] lists the servers, [`play`] measures one, [`grade`] compares what was said with what is true, and
//! [`matrix`] adds up. `scripts/truths` plays all of them; a few are played with the other tests.

pub(crate) mod grade;
pub(crate) mod kind;
pub(crate) mod matrix;
pub(crate) mod own;
pub(crate) mod play;
pub(crate) mod proxy;
