//! Whole runs, made up: what is said of them, what becomes of it, what it looks like.

mod answers;
mod profile;
mod report;
mod synthetic;
mod verdicts;
