//! The clients against servers on real sockets of 127.0.0.1, which misbehave as
//! told. No test sleeps to let something happen: servers and clients tell each
//! other, or a condition is awaited.

mod caps;
mod carrier;
mod detect;
mod fetch;
mod forward_proxy;
mod h1;
mod h2;
mod inspect;
mod journal;
mod memory_budget;
mod names;
mod rest;
mod stress;
mod support;
mod tls;
mod ws;
