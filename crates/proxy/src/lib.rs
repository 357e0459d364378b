//! The journey of a request: from the bytes of a body to the bytes of an answer.
//!
//! parse, understand, plan, dispatch, observe, answer; each step takes a value and
//! returns one. No sockets: `server` reads and writes, `sim` drives this crate
//! on a paused clock.
//!
//! Storeys, each of which imports only from those above it in this table; within a storey no
//! modules import each other in a circle:
//!
//! | storey | what it is |
//! |---|---|
//! | `answer`, `blocks` | words: the one table of failures, codes and HTTP statuses; what a view says of a call's block |
//! | `state` | what the features of a chain remember between requests; knows no request |
//! | `trace` | what a request leaves for its trace, and its spans |
//! | `request` | one request and its calls as values: `RequestContext`, `PinnedCall`, `CallResult` |
//! | `steps` | the steps of a call's life, one module a step |
//! | `call`, `batch`, `journey`, `line`, `line_sampler` | the order of the steps: of one call, of a batch, of a request, and its line in the log, or in none where there are too many |
//! | `metrics`, `status`, `explain`, `sweeper`, `announcer`, `syncing` | what operators see, and what runs beside requests |

mod announcer;
mod answer;
mod batch;
mod blocks;
mod call;
mod explain;
mod journey;
mod line;
mod line_sampler;
mod metrics;
mod request;
mod state;
mod status;
mod steps;
mod sweeper;
mod syncing;
mod trace;

pub use announcer::Announcer;
pub use answer::Answer;
pub use explain::{
    BlockExplained, CacheExplained, Explanation, HeadsExplained, QuorumExplained, Thought,
    UpstreamExplained, VerifyExplained,
};
pub use journey::{Proxy, ProxyWorker, WorkerChain, WorkerChains};
pub use line_sampler::LineRates;
pub use metrics::{FAMILIES, register, with_exemplars};
pub use request::context::{Ctx, Settings, Target};
pub use state::access::AccessTerms;
pub use state::cache::{ByHashMode, Cache, CacheSettings};
pub use state::chain::{ChainName, ClientVersion, SearchBounds, ServedChain};
pub use state::filter_store::{FilterStore, StoreAnswer};
pub use state::quorums::QuorumRule;
pub use state::subscriber::{Subscriber, SubscriberMessage};
pub use state::subscriptions::SubscriberEvent;
pub use state::tiers::Tiers;
pub use state::verify::{VerifyPool, VerifySettings};
pub use status::{
    AnswerStatus, CacheStatus, CallStatus, ChainStatus, ConfigStatus, ConnectionStatus, EndStatus,
    FeedStatus, FoundStatus, IssuerStatus, KindStatus, LimitStatus, PausedMethodStatus, Readiness,
    ReorgStatus, RequestStatus, SharedStatus, Status, StudyStatus, SubscriptionStatus,
    UpstreamStatus, VoidStatus, WebSocketStatus,
};
pub use sweeper::Sweeper;
pub use trace::queue::{FinishedTrace, TRACE_BATCH_SPANS, TraceReceiver};
pub use trace::span::{SpanKind, SpanValue, TraceSpan};
pub use trace::{ParentMode, TraceCounts, TraceLoss, TraceRules, Tracer};
pub use wellhead_verify::{Level, has_checks as is_verifiable};
