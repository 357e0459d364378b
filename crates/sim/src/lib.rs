//! Simulated chains and upstreams: for tests, and for the demo.
//!
//! A [`world::World`] is one chain that only advances when told to; a
//! [`node::SimNode`] is the view one upstream has of it, with dials for lag,
//! latency and faults. The same node is reached in process through
//! [`wire::SimTransport`] or over real sockets through [`fake::FakeUpstream`].
//! [`provider::FakeProvider`] is a node as a company sells it: with caps on streams,
//! buckets of credits, silent shaping and bills. [`traffic`] plays the clients,
//! [`fleet`] puts a demo together, [`fast`] is the canned upstream for benchmarks.
//!
//! Requests are parsed with `serde_json` on purpose and not with
//! `wellhead-jsonrpc`: a simulator that shares the parser of the program under
//! test would share its mistakes.

mod envelope;
pub mod fake;
pub mod fast;
pub mod fleet;
mod listen;
pub mod node;
pub mod provider;
pub mod rpc;
pub mod traffic;
pub mod wire;
pub mod world;

pub use fake::FakeUpstream;
pub use node::{Dials, Fault, SimNode};
pub use provider::{FakeProvider, ProviderDials};
pub use wire::SimTransport;
pub use world::{World, WorldConfig};
