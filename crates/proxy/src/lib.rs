//! The journey of a request: from the bytes of a body to the bytes of an answer.
//!
//! parse, understand, plan, dispatch, teach, answer; each stage takes a value and
//! returns one. No sockets: `server` reads and writes, `sim` drives this crate
//! on a paused clock. Where each stage lives:
//!
//! - [`journey`](Proxy::handle): bodies, batches, one access line a request
//! - `call`: one call, by its effect
//! - `pin`: tags become the numbers of one view
//! - `by_hash`: states asked for by the hash of their block, so that they may be kept
//! - `session`, `sent`: what a client was shown, and what it sent a moment ago
//! - `explain`: what would become of a call
//! - `kept`: answers from memory, and one upstream call for many who ask the same
//! - `verify`: answers are looked at before anybody relies on them
//! - `tiers`: the disk and the Redis behind the memory
//! - `batch`: reads of a batch that go upstream together
//! - `select`: which upstreams a client asks for
//! - `search`, `parts`, `stream`: searches over more blocks than an upstream accepts
//! - `doubt`: empty answers to searches, held against blooms
//! - `line`: the line of the log that each request leaves
//! - `reply`: a result or an error as bytes
//! - `answer`: the one table of failures, codes and HTTP statuses
//! - `sticky`: filter ids that name their upstream
//! - `version`: what clients hear when they ask for the version of the client
//! - `teach`: what an answer tells about its upstream's head
//! - `metrics`, `status`: what operators see

mod answer;
mod batch;
mod by_hash;
mod call;
mod chain;
mod doubt;
mod explain;
mod floor;
mod hopeless;
mod journey;
mod kept;
mod line;
mod metrics;
mod parts;
mod pin;
mod proven;
mod quorum;
mod reply;
mod search;
mod select;
mod sent;
mod session;
mod status;
mod sticky;
mod stream;
mod teach;
mod tiers;
mod verify;
mod version;

pub use answer::Answer;
pub use chain::{ChainName, ServedChain};
pub use explain::{
    BlockExplained, CacheExplained, Explanation, QuorumExplained, Thought, UpstreamExplained,
    VerifyExplained,
};
pub use journey::{Ctx, Lanes, Proxy, Settings, Target};
pub use kept::{ByHashMode, Cache, CacheSettings, Tidier};
pub use metrics::register;
pub use quorum::QuorumRule;
pub use search::SearchBounds;
pub use status::{
    AnswerStatus, CacheStatus, CallStatus, ChainStatus, ConnectionStatus, FoundStatus, LimitStatus,
    PausedMethodStatus, Readiness, ReorgStatus, RequestStatus, Status, UpstreamStatus, VoidStatus,
};
pub use tiers::Tiers;
pub use verify::{Aside, VerifySettings};
pub use version::ClientVersion;
pub use wellhead_verify::{Level, has_checks as is_verifiable};
