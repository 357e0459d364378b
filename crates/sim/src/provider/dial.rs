//! What can be turned on a fake provider while it runs.
//!
//! Plain data. What a bucket or a queue makes of it in time is [`super::meter`]'s;
//! whole providers are [`super::preset`]'s, drawn ones [`super::draw`]'s.

use std::time::Duration;

use crate::node::LatencyDial;
use crate::rpc::{History, is_named};

/// Everything that a provider adds to a node. By default nothing at all: no limit is
/// ever met, answers are true and come at once.
///
/// A turned dial counts from the next request on, but for what a connection is told when
/// it opens: what SETTINGS announce, and which protocols there are.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderDials {
    /// Chance follows from it: jitter and the tail of slow answers. A turn of it is
    /// heeded by a provider started afterwards, not by one that runs.
    pub seed: u64,
    /// Whether HTTP/2 is spoken: offered by ALPN, and heard without TLS. HTTP/1.1
    /// always is.
    pub http2: bool,
    /// Streams at once on one HTTP/2 connection. [`STREAMS_MAX`] where there is none.
    pub stream_cap: Option<StreamCap>,
    /// Requests (a batch is one) after which a connection is ended in good order, at
    /// least 1: HTTP/1.1 says `connection: close` with the last answer, HTTP/2 sends
    /// GOAWAY with `NO_ERROR` when the last request comes and answers what is on its way.
    pub recycle_after: Option<u64>,
    /// Whether it is ended without a word instead, by the request after those: nothing that
    /// is under way on it is answered.
    pub recycle_abruptly: bool,
    /// A connection with no request for this long is closed, HTTP/2 after a GOAWAY with
    /// `NO_ERROR`. Counted from its opening or from its last answer.
    pub idle_close: Option<Duration>,
    /// Bytes of one answer's body a second: a large answer takes long, and others do not
    /// wait for it.
    pub body_bytes_per_second: Option<u64>,
    /// Whether the bodies of one HTTP/2 connection go out one after the other, small ones
    /// behind large ones. Over HTTP/1.1 they do anyway.
    pub bodies_in_turn: bool,
    /// How long every answer takes, refusals included.
    pub latency: LatencyDial,
    /// And how much longer over HTTP/1.1.
    pub http1_delay: Duration,
    /// And how much longer over HTTP/2.
    pub http2_delay: Duration,
    /// Credits. A call has to find enough of them in each bucket.
    pub buckets: Vec<CreditBucket>,
    /// Calls above this pace wait in a line; no answer tells it.
    pub shaping: Option<Shaping>,
    /// Requests served at once, on all connections together.
    pub at_once: Option<AtOnce>,
    /// What every call gets while the account is barred: no key, no money.
    pub barred: Option<RefusalForm>,
    /// Blocks behind the canonical head.
    pub lag_blocks: u64,
    /// What of the past is kept.
    pub history: History,
    /// Methods answered as unknown: names, or a prefix with `*` at the end.
    pub unsupported: Vec<String>,
    /// Most blocks in one `eth_getLogs`.
    pub log_range_max: Option<u64>,
    /// Most calls in one batch. A larger one is refused as a whole, in the body.
    pub batch_max: Option<usize>,
    /// Answers that are not so.
    pub lie: Option<Falsehood>,
}

/// Streams at once on one connection where no dial says less; more are refused.
pub const STREAMS_MAX: u32 = 16_384;

impl Default for ProviderDials {
    fn default() -> Self {
        Self {
            seed: 1,
            http2: true,
            stream_cap: None,
            recycle_after: None,
            recycle_abruptly: false,
            idle_close: None,
            body_bytes_per_second: None,
            bodies_in_turn: false,
            latency: LatencyDial::NONE,
            http1_delay: Duration::ZERO,
            http2_delay: Duration::ZERO,
            buckets: Vec::new(),
            shaping: None,
            at_once: None,
            barred: None,
            lag_blocks: 0,
            history: History::default(),
            unsupported: Vec::new(),
            log_range_max: None,
            batch_max: None,
            lie: None,
        }
    }
}

/// How many streams one HTTP/2 connection bears, and what happens to one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamCap {
    /// This many at once are fine.
    pub max: u32,
    /// What becomes of the next.
    pub way: StreamWay,
}

/// What becomes of a stream above the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamWay {
    /// SETTINGS announce the cap. A client that opens more all the same is refused by
    /// the HTTP/2 library, which the counters do not see.
    Announced,
    /// It ends with RST_STREAM and REFUSED_STREAM; the others go on.
    Refused {
        /// What SETTINGS announce, if anything: more than the cap, as gateways do that
        /// have a limit of their own behind a proxy's default.
        announced: Option<u32>,
    },
    /// The whole connection ends and every stream with it.
    Fatal {
        /// GOAWAY with this code and the last stream that was seen, or not a word.
        goaway: Option<u32>,
        /// As for `Refused`.
        announced: Option<u32>,
    },
}

impl StreamCap {
    /// What SETTINGS say when a connection opens.
    pub fn announced(&self) -> Option<u32> {
        match self.way {
            StreamWay::Announced => Some(self.max),
            StreamWay::Refused { announced } | StreamWay::Fatal { announced, .. } => announced,
        }
    }
}

/// Credits that calls take and time brings back.
#[derive(Debug, Clone, PartialEq)]
pub struct CreditBucket {
    /// Credits when full. A call dearer than that never passes.
    pub size: f64,
    /// How credits come back.
    pub refill: Refill,
    /// Credits of one call by method, a name or a prefix with `*` at the end: the first
    /// that fits counts.
    pub costs: Vec<(String, f64)>,
    /// Credits of any other call.
    pub cost_otherwise: f64,
    /// What a call gets for which there is not enough. It costs nothing.
    ///
    /// Refused by status, a batch passes or fails as a whole; refused in the body, each
    /// of its calls does.
    pub refusal: RefusalForm,
}

impl CreditBucket {
    /// One credit a call, `size` of them, all back within `window` at an even pace.
    pub fn steady(size: f64, window: Duration, refusal: RefusalForm) -> Self {
        let per_second = size / window.as_secs_f64().max(f64::MIN_POSITIVE);
        Self::of(size, Refill::Steady { per_second }, refusal)
    }

    /// One credit a call, `size` of them in each window.
    pub fn fixed(size: f64, window: Duration, refusal: RefusalForm) -> Self {
        Self::of(size, Refill::Window { length: window }, refusal)
    }

    /// One credit a call, and never more than `size` of them within `window`.
    pub fn sliding(size: f64, window: Duration, refusal: RefusalForm) -> Self {
        Self::of(size, Refill::Sliding { length: window }, refusal)
    }

    /// One credit a call, and none comes back: an account with this many calls left.
    pub fn spent_once(size: f64, refusal: RefusalForm) -> Self {
        Self::of(size, Refill::Steady { per_second: 0.0 }, refusal)
    }

    fn of(size: f64, refill: Refill, refusal: RefusalForm) -> Self {
        Self { size, refill, costs: Vec::new(), cost_otherwise: 1.0, refusal }
    }

    /// With these costs.
    pub fn priced(mut self, otherwise: f64, costs: &[(&str, f64)]) -> Self {
        self.cost_otherwise = otherwise;
        self.costs = costs.iter().map(|(name, cost)| ((*name).to_owned(), *cost)).collect();
        self
    }

    /// Credits of one call.
    pub fn cost(&self, method: &str) -> f64 {
        let priced = self.costs.iter().find(|(name, _)| is_named(name, method));
        priced.map_or(self.cost_otherwise, |(_, cost)| *cost)
    }

    /// Calls of this method that a full bucket pays for; infinite when they are free.
    pub fn calls_at_once(&self, method: &str) -> f64 {
        self.size / self.cost(method)
    }

    /// Calls of this method a second in the long run; infinite when they are free.
    pub fn calls_per_second(&self, method: &str) -> f64 {
        let credits = match self.refill {
            Refill::Steady { per_second } => per_second,
            Refill::Window { length } | Refill::Sliding { length } => {
                self.size / length.as_secs_f64()
            }
        };
        credits / self.cost(method)
    }

    /// The time in which an empty bucket is full again; `None` when it never is.
    pub fn window(&self) -> Option<Duration> {
        match self.refill {
            Refill::Steady { per_second } => {
                Duration::try_from_secs_f64(self.size / per_second).ok()
            }
            Refill::Window { length } | Refill::Sliding { length } => Some(length),
        }
    }
}

/// How credits come back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Refill {
    /// Evenly, up to the size: a token bucket. With zero they never do.
    Steady {
        /// Credits a second.
        per_second: f64,
    },
    /// All at once, at the multiples of `length` since the provider started.
    Window {
        /// Between two refills.
        length: Duration,
    },
    /// Each credit when it has been spent for this long.
    Sliding {
        /// Of the window that slides.
        length: Duration,
    },
}

/// A pace that is kept by letting calls wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shaping {
    /// Calls a second; those of a batch count one by one. Above zero.
    pub per_second: f64,
    /// The connections that share the line.
    pub scope: LimitScope,
}

/// What a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// Each connection has the pace for itself.
    Connection,
    /// All connections share it.
    Account,
}

/// How many requests are served at once.
#[derive(Debug, Clone, PartialEq)]
pub struct AtOnce {
    /// This many, from their arrival until the answer begins.
    pub max: usize,
    /// What one more gets; without it, it waits for its turn.
    pub refusal: Option<RefusalForm>,
}

/// How a call is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalForm {
    /// With an HTTP status, and a JSON-RPC error as the body.
    Status {
        /// The status.
        status: u16,
        /// Of the error in the body.
        code: i64,
        /// Of the error in the body.
        message: String,
        /// The `Retry-After` header, told in whole seconds, rounded up.
        retry_after: Option<Duration>,
    },
    /// With HTTP 200, and an error for each call.
    InBody {
        /// Of the error.
        code: i64,
        /// Of the error.
        message: String,
    },
}

impl RefusalForm {
    /// HTTP 429.
    pub fn too_many(retry_after: Option<Duration>) -> Self {
        let message = "request limit reached - reduce calls per second".to_owned();
        Self::Status { status: 429, code: -32007, message, retry_after }
    }

    /// Too many calls, said in the body alone.
    pub fn too_many_in_body() -> Self {
        Self::in_body(-32005, "rate limit exceeded")
    }

    /// HTTP 401: there is no such key.
    pub fn no_key() -> Self {
        Self::status(401, -32600, "Must be authenticated!")
    }

    /// HTTP 402: the day's credits are spent.
    pub fn payment_required() -> Self {
        Self::status(402, -33000, "Payment Required")
    }

    /// HTTP 403: the month's credits are spent.
    pub fn month_spent() -> Self {
        Self::status(403, -32600, "Monthly capacity limit exceeded.")
    }

    /// With this status and error.
    pub fn status(status: u16, code: i64, message: &str) -> Self {
        Self::Status { status, code, message: message.to_owned(), retry_after: None }
    }

    /// With this error and HTTP 200.
    pub fn in_body(code: i64, message: &str) -> Self {
        Self::InBody { code, message: message.to_owned() }
    }
}

/// Answers in which one value is not what it should be: a digit of a quantity or of a
/// hash, a truth value. An answer without any of these is left alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Falsehood {
    /// About which methods: names, or a prefix with `*` at the end.
    pub methods: Vec<String>,
    /// In this many percent of the calls.
    pub percent: f64,
    /// Which calls these are, and what is wrong, follows from it: the same call gets the
    /// same lie each time, as far as its true answer is the same.
    pub seed: u64,
}
