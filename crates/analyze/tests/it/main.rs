//! Whole runs, made up: what is said of them, what becomes of it, what it looks like.

mod access;
mod answers;
mod beside;
mod gate;
mod hostile;
mod monitor;
mod profile;
mod pushed;
mod reach;
mod readme;
mod report;
mod resume;
mod resume_answers;
mod schema;
mod several;
mod synthetic;
mod target;
mod verdicts;

#[path = "../support/mod.rs"]
mod support;
