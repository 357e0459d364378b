//! The analyser: what a provider really delivers.
//!
//! Everything starts from records. The player of an experiment writes what happened, one line
//! a call ([`record`]); what that means is computed afterwards and can be computed again:
//! figures ([`stat`]), what they say of a provider ([`verdict`]), the settings that follow
//! ([`profile`]), and a report to look at ([`report`]).
//!
//! The half that sends is made of parts that know nothing of each other: what is asked
//! ([`work`], [`call_list`]), when ([`schedule`]), over what ([`way`]), which cell is next ([`plan`]). [`run`]
//! puts them together and is the only one that waits and reads a clock; sockets are `net`'s.

pub mod budget;
pub mod call_list;
pub mod difference;
pub mod ending;
pub mod gate;
pub mod inquiry;
pub mod knock;
pub mod method_list;
pub mod monitor;
pub mod plan;
pub mod profile;
pub mod record;
pub mod report;
pub mod run;
pub mod schedule;
pub mod stat;
pub mod stored;
pub mod summary;
mod text;
pub mod verdict;
pub mod way;
pub mod work;
