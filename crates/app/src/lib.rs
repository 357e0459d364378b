//! Config file to settings, settings to running parts, and the subcommands.
//!
//! - [`config`]: the file, read and checked; known to this crate alone
//! - `assemble`: settings become chains, upstreams, transports and loops
//! - `serve`: worker threads, the control thread, signals, the drain
//! - `admin`, `metrics`: the pages of the admin listener, which `admin_listener` binds
//! - `series`: families of series, as the metrics of all modules write them
//! - `heartbeat`: whether the worker threads run
//! - `target`: an upstream as the analyser takes it
//! - `study`: rate limits of upstreams, measured by the proxy while it serves
//! - `limits`: the limits of each upstream, and their sources
//! - `admin_client`: how the commands ask a running wellhead
//! - `doctor`: what is wrong on this machine and at the upstreams
//! - `analyze`: what a provider delivers, measured
//! - `usage`: what becomes of usage: memory, files, a store, webhooks
//! - `traces`: what requests leave for OpenTelemetry, encoded and sent
//! - `outlet`, `otlp`: how usage, traces and metrics reach other servers
//! - `log`: the filter of the log, changed for a while
//! - `key`: the keys of clients, made and changed
//! - `demo`: a simulated chain behind the real proxy
//!
//! [`run`] is the whole program; `bin` only maps its outcome to an exit code.

mod access;
mod acme;
mod admin;
mod admin_client;
mod admin_listener;
mod analyze;
mod assemble;
pub mod cli;
mod command;
pub mod config;
mod demo;
mod doctor;
mod explain;
mod handover;
mod heartbeat;
mod key;
mod limits;
mod log;
mod loops;
pub mod metrics;
mod otlp;
mod outlet;
mod reload;
mod renew;
mod runtime;
mod secrets;
mod serve;
mod serve_error;
mod shared;
mod state;
mod study;
mod systemd;
mod target;
mod terminal;
mod token;
mod traces;
mod usage;

pub use command::run;
