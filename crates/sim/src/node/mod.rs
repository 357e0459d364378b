//! One upstream's view of a shared world: envelopes, batches, faults, delays.
//!
//! [`SimNode::answer`] decides everything about one exchange and neither sleeps
//! nor reads a clock: it draws chance from its own seed.
//! [`crate::wire`] or [`crate::fake`] plays the reply out in time.

pub mod dial;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy_primitives::{B256, keccak256};
use bytes::Bytes;
use hyper::StatusCode;
use parking_lot::{Mutex, RwLock};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::sync::watch;

pub use self::dial::{Dials, Fault, LatencyDial};

use crate::envelope::{RequestBody, write_answer};
use crate::rpc::{self, CallContext, Filters, RpcError};
use crate::world::{SimBlock, Standpoint, World};

/// Calls in one batch, as geth's default.
pub const BATCH_ITEMS_MAX: usize = 1000;

/// How an exchange ends on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireEnding {
    /// The whole body arrives.
    Whole,
    /// Half of the body arrives, then the connection breaks.
    Cut,
    /// The connection breaks before an answer.
    Reset,
    /// There was no connection.
    Refused,
    /// No answer, ever.
    Silence,
}

/// What comes back, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReply {
    /// HTTP status.
    pub status: u16,
    /// Header names in lower case, `content-type` among them.
    pub headers: Vec<(&'static str, String)>,
    /// The body; for [`WireEnding::Cut`] the whole of which half arrives.
    pub body: Bytes,
    /// From the request's arrival to the answer's.
    pub delay: Duration,
    /// Whether it arrives.
    pub ending: WireEnding,
}

impl NodeReply {
    fn new(status: u16, kind: &str, body: impl Into<Bytes>, delay: Duration) -> Self {
        let headers = vec![("content-type", kind.to_owned())];
        Self { status, headers, body: body.into(), delay, ending: WireEnding::Whole }
    }

    fn broken(ending: WireEnding, delay: Duration) -> Self {
        Self { status: 0, headers: Vec::new(), body: Bytes::new(), delay, ending }
    }

    /// The `Retry-After` header, when there is one.
    pub fn retry_after(&self) -> Option<Duration> {
        let header = self.headers.iter().find(|(name, _)| *name == "retry-after");
        header.and_then(|(_, value)| value.parse().ok()).map(Duration::from_secs)
    }
}

/// One simulated upstream.
#[derive(Debug)]
pub struct SimNode {
    id: String,
    world: Arc<World>,
    dials: RwLock<Arc<Dials>>,
    /// Counts the turns of a dial, so that sockets notice.
    turned: watch::Sender<u64>,
    inner: Mutex<NodeState>,
    calls: AtomicU64,
}

#[derive(Debug)]
struct NodeState {
    rng: SmallRng,
    filters: Filters,
}

impl SimNode {
    /// A healthy node of `world`. Chance follows from the world's seed and `id`.
    pub fn new(id: impl Into<String>, world: Arc<World>) -> Arc<Self> {
        let dials = Dials::healthy(world.config().chain_id);
        Self::with_dials(id, world, dials)
    }

    /// A node as the dials say.
    pub fn with_dials(id: impl Into<String>, world: Arc<World>, dials: Dials) -> Arc<Self> {
        let id = id.into();
        let seed = keccak256([&world.config().seed.to_be_bytes()[..], id.as_bytes()].concat());
        let mut rng = SmallRng::from_seed(seed.0);
        let filters = Filters::new(rng.random());
        Arc::new(Self {
            id,
            world,
            dials: RwLock::new(Arc::new(dials)),
            turned: watch::Sender::new(0),
            inner: Mutex::new(NodeState { rng, filters }),
            calls: AtomicU64::new(0),
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The world it shows.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The dials as they stand.
    pub fn dials(&self) -> Arc<Dials> {
        Arc::clone(&self.dials.read())
    }

    /// Turns dials.
    pub fn turn(&self, change: impl FnOnce(&mut Dials)) {
        {
            let mut dials = self.dials.write();
            change(Arc::make_mut(&mut dials));
        }
        self.turned.send_modify(|count| *count += 1);
    }

    /// Wakes every task that must notice a turned dial.
    pub fn turns(&self) -> watch::Receiver<u64> {
        self.turned.subscribe()
    }

    /// Stops following the chain at the head it shows now.
    pub fn freeze(&self) {
        let head = self.head().hash;
        self.turn(|dials| dials.stuck_at = Some(head));
    }

    /// Where it stands on the block tree.
    pub fn standpoint(&self) -> Standpoint {
        let dials = self.dials.read();
        match dials.stuck_at {
            Some(hash) => Standpoint::At(hash),
            None => Standpoint::Lag(dials.lag_blocks),
        }
    }

    /// The newest block it shows.
    pub fn head(&self) -> Arc<SimBlock> {
        Arc::clone(self.world.chain().view(self.standpoint()).head())
    }

    /// From the block `since` to its head now: blocks left behind, newest first,
    /// and blocks gained, oldest first.
    pub fn moved_since(&self, since: &B256) -> (Vec<Arc<SimBlock>>, Vec<Arc<SimBlock>>) {
        let chain = self.world.chain();
        rpc::filter::moved(&chain.view(self.standpoint()), since)
    }

    /// Counts calls; also those that a socket answers itself.
    pub(crate) fn count(&self, calls: usize) {
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
    }

    /// Calls that it was asked so far: evidence for checkers.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Answers one HTTP body: a call or a batch.
    pub fn answer(&self, body: &[u8]) -> NodeReply {
        let dials = self.dials();
        let request = RequestBody::read(body);
        self.count(request.items.len());
        let (fault, delay) = {
            let mut inner = self.inner.lock();
            let delay = dials.latency.sample(&mut inner.rng);
            (inner.fault(&dials), delay)
        };
        let item_error = match fault {
            Some(Fault::Down) => return NodeReply::broken(WireEnding::Refused, Duration::ZERO),
            Some(Fault::Hang) => return NodeReply::broken(WireEnding::Silence, delay),
            Some(Fault::Reset) => return NodeReply::broken(WireEnding::Reset, delay),
            Some(Fault::Status(status)) => {
                let words = format!("{}\n", reason(status));
                return NodeReply::new(status, "text/plain; charset=utf-8", words, delay);
            }
            Some(Fault::TooMany { retry_after }) => return too_many(retry_after, delay),
            Some(Fault::Html(status)) => {
                return NodeReply::new(status, "text/html", page(status), delay);
            }
            Some(Fault::TooManyIn200) => Some(RpcError::new(-32005, "rate limit exceeded")),
            Some(Fault::Internal) => Some(RpcError::new(-32603, "internal error")),
            Some(Fault::Truncated) | None => None,
        };
        let mut out = self.answers(&dials, &request, item_error.as_ref());
        if !out.is_empty() {
            // geth's encoder ends every answer so.
            out.push(b'\n');
        }
        let mut reply = NodeReply::new(200, "application/json", out, delay);
        if fault == Some(Fault::Truncated) {
            reply.ending = WireEnding::Cut;
        }
        reply
    }

    /// Answers one call, without envelope, delay or fault: for sockets that keep
    /// subscriptions, and for checkers that want this node's truth.
    pub fn ask(&self, method: &str, params: Option<&Value>) -> Result<Value, RpcError> {
        self.ask_with(&self.dials(), method, params)
    }

    fn ask_with(
        &self,
        dials: &Dials,
        method: &str,
        params: Option<&Value>,
    ) -> Result<Value, RpcError> {
        let standpoint = self.standpoint();
        let mut inner = self.inner.lock();
        let chain = self.world.chain();
        let mut asked = CallContext {
            world: &self.world,
            view: chain.view(standpoint),
            facts: &dials.facts,
            filters: &mut inner.filters,
        };
        rpc::answer(&mut asked, method, params)
    }

    /// The answers to a body; `error` in the place of each, where there is one.
    fn answers(
        &self,
        dials: &Dials,
        request: &RequestBody<'_>,
        error: Option<&RpcError>,
    ) -> Vec<u8> {
        if request.items.len() > BATCH_ITEMS_MAX {
            let mut out = Vec::new();
            write_answer(&mut out, None, Err(RpcError::new(-32600, "batch too large")));
            return out;
        }
        request.answered(|_, call| match error {
            Some(error) => Err(error.clone()),
            None => self.ask_with(dials, call.method(), call.params.as_ref()),
        })
    }
}

impl NodeState {
    /// What goes wrong with this exchange, if anything.
    fn fault(&mut self, dials: &Dials) -> Option<Fault> {
        if dials.fault.is_some() {
            return dials.fault;
        }
        let unlucky = self.rng.random::<f64>() * 100.0 < dials.error_percent;
        (unlucky && !dials.errors.is_empty())
            .then(|| dials.errors[self.rng.random_range(0..dials.errors.len())])
    }
}

fn too_many(retry_after: Option<Duration>, delay: Duration) -> NodeReply {
    let body = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32005,\"message\":\"rate limit exceeded\"}}\n";
    let mut reply = NodeReply::new(429, "application/json", body, delay);
    if let Some(after) = retry_after {
        reply.headers.push(("retry-after", after.as_secs().to_string()));
    }
    reply
}

/// What HTTP calls a status.
pub(crate) fn reason(status: u16) -> &'static str {
    let status = StatusCode::from_u16(status).ok();
    status.and_then(|status| status.canonical_reason()).unwrap_or("Error")
}

fn page(status: u16) -> String {
    let title = format!("{status} {}", reason(status));
    format!(
        "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
    )
}
