//! The room that concludes: what records say of a provider ([`verdict`]), and the settings that
//! follow ([`profile`]).
//!
//! It reads records alone, so that a conclusion can be drawn again, at any time and by a newer
//! version. How it looks is not decided here: this room imports neither `measure` nor `report`, and
//! `cargo xtask tidy` keeps it so.

pub mod profile;
pub mod setting;
pub mod verdict;
