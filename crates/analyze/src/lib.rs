//! The analyser: what a provider really delivers.
//!
//! Everything starts from records. Whoever plays an experiment writes what happened, one line
//! a call ([`record`]); what that means is computed afterwards and can be computed again:
//! figures ([`stat`]), and from them what can be said of a provider. Nothing here opens a
//! socket or reads a clock.

pub mod record;
pub mod stat;
