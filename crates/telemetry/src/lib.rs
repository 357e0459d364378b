//! What the house reports about itself: metric parts, log set-up, secrets that
//! cannot print themselves, and the one reader of the wall clock.
//!
//! Families of metrics live beside what they measure and are handed the
//! registry from here; nothing registers itself at a distance.

pub mod clock;
pub mod family;
pub mod histogram;
pub mod log;
mod secret;
pub mod series;

pub use histogram::Histogram;
pub use secret::{BadUrl, Secret, SecretUrl, key_in_host};
