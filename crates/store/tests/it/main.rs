//! The tiers as a cache uses them: on a real disk, and before a real Redis in
//! `with_redis`. No test sleeps, and none looks at a clock on the wall: threads and
//! processes tell when they are done.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod damage;
mod disk;
mod kill;
mod support;
mod with_redis;
