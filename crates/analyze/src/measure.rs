//! The room that sends: experiments are planned, played and recorded.
//!
//! It is made of parts that know nothing of each other: when calls are sent ([`schedule`]), over
//! what ([`client`]), which cell is next ([`plan`], [`inquiry`]). [`run`] puts them together and is the
//! only one that waits and reads a clock; sockets are `net`'s. What the records mean is not decided
//! here: this room imports neither `conclude` nor `report`, and `cargo xtask tidy` keeps it so.

pub mod budget;
pub mod client;
pub mod inquiry;
pub mod knock;
pub mod plan;
pub mod run;
pub mod schedule;
