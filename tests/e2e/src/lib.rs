//! The harness of the end-to-end tests: the real binary, real sockets, real nodes.
//!
//! It starts wellhead, geth and anvil as processes of their own, puts a proxy
//! that misbehaves on purpose in between, and calls them as a client would.
//! What is right is decided in `tests/`, one file a theme; nothing here asserts
//! anything about wellhead beyond its coming up.
//!
//! Tests that need a part which a machine may lack live in a module named after
//! it (`with_geth`, `with_anvil`, `with_viem` ...), so that `make test` can
//! leave them out, and say so, where the part cannot be had.
//!
//! Keys that tests hand to clients are looked for in all that is seen of wellhead ([`guard_secret`]).
//!
//! Start with [`Wellhead`] and the nodes [`Geth`] and [`Anvil`], then [`ConsensusDriver`] for geths that
//! lag and have reorgs, [`Rpc`], [`FaultProxy`] and [`load()`].

pub mod attack;
mod certificate;
mod collector;
mod consensus;
mod fault;
mod haproxy;
mod key_file;
pub mod load;
mod log_miner;
mod made_up;
mod nginx;
mod node;
mod pebble;
mod process;
mod prometheus;
mod relay;
mod rpc;
mod script;
mod secrets;
mod stepping_clock;
mod tap;
mod webhook;
mod websocket;
mod wellhead;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use certificate::Certificate;
pub use collector::{CollectedSpan, Collector};
pub use consensus::{Block, ConsensusDriver, LOGGER_CODE, Reorg, Transactions};
pub use fault::{Fault, FaultProxy, Rewrite};
pub use haproxy::HaProxy;
pub use key_file::{KeyFile, new_key};
pub use load::load;
pub use log_miner::LogMiner;
pub use made_up::{empty_block, mix, tail, wall_clock};
pub use nginx::{Nginx, NginxLimit};
pub use node::{Anvil, Geth, Node};
pub use pebble::{HttpsReply, Pebble, PebbleSite, https};
pub use process::{FIRST_SOCKET, Process, Signal, binary, cache, tool};
pub use prometheus::{Alertmanager, Prometheus, promtool};
pub use relay::{Relay, RelayMode};
pub use rpc::{HttpReply, Rpc, send_http2};
pub use script::Script;
pub use secrets::{guard_secret, secret_forms};
pub use stepping_clock::SteppingClock;
pub use tap::Tap;
pub use webhook::Webhook;
pub use websocket::WsClient;
pub use wellhead::{Upstream, Wellhead, chain};
pub use wellhead_kit::free_port;

/// How long between two looks of [`until`].
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks again and again until `look` finds something; `None` after `bound`.
///
/// Other processes keep their own time, so the tests cannot pause a clock: they
/// wait for what should become true, and never for a while.
pub async fn until<T, F>(bound: Duration, mut look: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + bound;
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(LOOK_EVERY).await;
    }
}
