//! What a reply means: its class, its cause, and the consequences.
//!
//! Only [`Judge`](crate::Judge) makes a [`Verdict`]. `dispatch` reads whether to try
//! another upstream, `health` what to count, `proxy` what to tell the client.
//! Nothing here looks at bytes or at other verdicts: the dispatcher chooses among
//! several.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// What a reply is, in one word. Its words stand in metrics, logs, the trail, rule files and records.
///
/// Every consequence of a class is a column of one table, so that a new class has to define all of
/// them. A `match` over the classes in another module is a separate decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum VerdictClass {
    /// A result.
    Answer,
    /// A `null` result where the method table says that null may only mean
    /// "this upstream does not have it".
    Null,
    /// The call ran and the contract refused it: as final as an answer.
    Reverted,
    /// The request is wrong at any upstream.
    CallerFault,
    /// The pool has this transaction already: a success for its sender.
    TransactionKnown,
    /// The pool or the pre-checks refused the transaction.
    TransactionRejected,
    /// A block, state or transaction that this upstream does not have, or not yet.
    MissingData,
    /// The range, the result or the request is larger than this upstream allows.
    RangeTooLarge,
    /// The filter of a search names more addresses or topics than this upstream allows: fewer
    /// blocks would not help.
    FilterTooLarge,
    /// Too many calls, or too many at once.
    Throttled,
    /// The account behind the upstream has to be paid or upgraded.
    Billing,
    /// The key for the upstream is missing, wrong or lacks permission.
    Auth,
    /// This upstream does not offer the method.
    Unsupported,
    /// The upstream or its gateway is broken, or its reply is not JSON-RPC.
    Fault,
    /// A result that cannot be true or does not answer the call, as a check found.
    Void,
    /// An error that matches no rule.
    Unknown,
}

wellhead_word::words!(VerdictClass);

/// The party that caused a verdict. Its words stand in the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Doing {
    /// Nothing went wrong.
    #[strum(serialize = "–")]
    NoParty,
    /// The author of the request.
    Caller,
    /// The contract that was called.
    Contract,
    /// The upstream or its provider.
    Upstream,
    /// The operator of this proxy: its key, its plan, the rate of its calls.
    Operator,
}

wellhead_word::words!(Doing);

/// Whether another upstream may do better. The method table's `Effect` decides whether
/// the call may be repeated at all. Its words stand in rule files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum TryElsewhere {
    /// The reply is final.
    No,
    /// One other upstream is tried; if it agrees, the reply is final.
    Once,
    /// As long as there are candidates.
    Yes,
}

wellhead_word::words!(TryElsewhere);

/// What a verdict says about the health of the upstream. Its words stand in rule files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum HealthEffect {
    /// It works.
    Good,
    /// No effect.
    Neutral,
    /// It works but must be paused: never a failure.
    Throttled,
    /// Counts as a failure.
    Failed,
    /// One is enough to open the breaker.
    FailedAtOnce,
    /// Take it out of service until a probe succeeds, and log an error.
    OutOfService,
}

wellhead_word::words!(HealthEffect);

/// Everything that follows from a class.
struct ClassFacts {
    class: VerdictClass,
    client_code: i64,
    doing: Doing,
    elsewhere: TryElsewhere,
    health: HealthEffect,
    telling: u8,
    marks: Marks,
    about: &'static str,
}

/// Makes the columns of marks, in their order, and a method of [`VerdictClass`] for each.
macro_rules! marks {
    ($($(#[$doc:meta])+ $vis:vis $name:ident)+) => {
        struct Marks {
            $($name: bool,)+
        }

        const fn marks([$($name),+]: [bool; 11]) -> Marks {
            Marks { $($name),+ }
        }

        impl VerdictClass {
            $(
                $(#[$doc])+
                $vis fn $name(self) -> bool {
                    self.facts().marks.$name
                }
            )+
        }
    };
}

marks! {
    /// Whether the upstream itself read the call, and so works.
    pub(crate) was_read
    /// Whether it shows that the upstream offers the method.
    pub(crate) shows_method
    /// Whether the upstream has the transaction that it was sent.
    pub is_accepted
    /// Whether it may be a statement about the chain, which a quorum compares.
    pub speaks_of_chain
    /// Whether it refuses the call for what it asks, so that the call would fare no better
    /// a little later.
    pub is_about_call
    /// Whether the verdict is about the upstream rather than about the call, and
    /// so may be believed of a reply that cannot be tied to the call.
    pub(crate) is_about_upstream
    /// Whether the upstream refused the call before it was executed, for certain.
    pub is_refused_unread
    /// Whether the upstream may do better in a moment: a failure may be over, a
    /// limit, a refused key, a missing method or a lie is not.
    pub may_pass
    /// Whether two upstreams that say so may both be broken.
    pub may_be_a_fault
    /// Whether the upstream's words may hold a key or an account, and so are
    /// never shown.
    pub(crate) is_private
    /// Whether it may be said of the hash that names a block, so that the height of the block may get
    /// another answer. That the request is wrong says so only of an upstream that never took a hash.
    pub may_be_of_hash
}

macro_rules! mark {
    (+) => {
        true
    };
    (-) => {
        false
    };
}

macro_rules! table {
    ($(
        $class:ident $code:literal $doing:ident $elsewhere:ident $health:ident
        $telling:literal [$($mark:tt)+] $about:literal;
    )+) => {
        [$(ClassFacts {
            class: VerdictClass::$class,
            client_code: $code,
            doing: Doing::$doing,
            elsewhere: TryElsewhere::$elsewhere,
            health: HealthEffect::$health,
            telling: $telling,
            marks: marks([$(mark!($mark)),+]),
            about: $about,
        }),+]
    };
}

/// The marks of a class are in the order of [`Marks`].
#[rustfmt::skip]
static TABLE: [ClassFacts; 16] = table! {
    // class              code whose    elsewhere health telling   rd me ac ch ca up un pa fa pr ha
    Answer                   0 NoParty  No   Good         30   [+ + + + - - - - - - -]
        "a result";
    // A client that polls for a receipt gets null from every upstream: calling all of them each time
    // would multiply its load.
    Null                     0 NoParty  Once Neutral      20   [+ + - + - - - - - - +]
        "null, which may mean that the upstream does not have it";
    Reverted                 3 Contract No   Neutral      29   [+ + - + + - - - - - -]
        "the contract reverted the call";
    CallerFault         -32602 Caller   No   Neutral      16   [+ - - + + - - - - - +]
        "the request is wrong";
    TransactionKnown         0 NoParty  No   Neutral      30   [+ - + - - - - - - - -]
        "the pool already has the transaction";
    TransactionRejected -32003 Caller  No   Neutral      28   [+ - - - + - - - - - -]
        "the transaction was refused";
    MissingData         -32014 Upstream Yes  Neutral      14   [+ - - - + - - - - - +]
        "the upstream does not have the block, state or transaction";
    // A limit is often another one elsewhere, but rarely a third one.
    RangeTooLarge       -32012 Caller   Once Neutral      18   [+ - - - + - - - - - -]
        "more than the upstream allows in one call";
    FilterTooLarge      -32012 Caller   Once Neutral      18   [+ - - - + - - - - - -]
        "more addresses or topics than the upstream allows in one call";
    Throttled           -32005 Operator Yes  Throttled     6   [- - - - - + + - - - -]
        "the upstream limits the rate of calls";
    Billing             -32005 Operator Yes  OutOfService  2   [- - - - - + + - - + -]
        "the account at the provider has used up its plan";
    Auth                -32016 Operator Yes  OutOfService  1   [- - - - - + + - - + -]
        "the upstream refused wellhead's credentials";
    Unsupported         -32601 Upstream Yes  Neutral       8   [- - - - + - + - - - +]
        "the upstream does not offer the method";
    Fault               -32603 Upstream Yes  Failed        4   [- - - - - + - + + - -]
        "the upstream failed";
    Void                -32603 Upstream Yes  Failed        7   [- - - - - - - - - - -]
        "an answer that cannot be true";
    Unknown             -32603 Upstream Once Neutral      12   [- - - - - - - - + - +]
        "an error that matches no rule";
};

// The rows are found by their place.
const _: () = {
    let mut place = 0;
    while place < TABLE.len() {
        assert!(TABLE[place].class as usize == place);
        place += 1;
    }
};

/// From this [`VerdictClass::telling`] on a verdict is about the request and not about the upstream.
const TELLABLE: u8 = 10;

impl VerdictClass {
    fn facts(self) -> &'static ClassFacts {
        &TABLE[self as usize]
    }

    /// What the class is, for the reference page and for error messages that
    /// must not repeat the upstream's own words.
    pub fn about(self) -> &'static str {
        self.facts().about
    }

    /// The JSON-RPC code of an error that the proxy writes itself because there
    /// is no error object to pass on. Zero where there is no error to write.
    pub fn client_code(self) -> i64 {
        self.facts().client_code
    }

    /// The party that caused it.
    pub fn doing(self) -> Doing {
        self.facts().doing
    }

    /// Whether another upstream may do better, unless the rule knows better:
    /// see [`Verdict::elsewhere`].
    pub fn try_elsewhere(self) -> TryElsewhere {
        self.facts().elsewhere
    }

    /// What it says about health, unless the rule knows better: see
    /// [`Verdict::health`].
    pub fn health(self) -> HealthEffect {
        self.facts().health
    }

    /// How specific a verdict is: of several failures, the client gets the most specific one.
    pub fn telling(self) -> u8 {
        self.facts().telling
    }

    /// Whether it is about the request and not about the upstream, so that a client can be told.
    pub fn is_tellable(self) -> bool {
        self.telling() >= TELLABLE
    }

    /// Whether the client gets a `result` out of this verdict as it stands.
    pub fn is_answer(self) -> bool {
        self == Self::Answer
    }

    /// Whether the upstream failed, whatever it was asked.
    pub fn is_failure(self) -> bool {
        !matches!(self.health(), HealthEffect::Good | HealthEffect::Neutral)
    }

    /// Whether it is about the operator's key, plan or rate. Clients then do not see its message, and
    /// an equal message from another upstream would show nothing about the call.
    pub fn is_between_us_and_the_upstream(self) -> bool {
        self.doing() == Doing::Operator
    }
}

/// A fact about the upstream that its message shows.
///
/// Only ever read from text that the upstream wrote itself, never from a
/// contract's. Still a claim: its user decides for how long to rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Learnt {
    /// This block range would have been answered.
    RangeHint {
        /// First block.
        from: u64,
        /// Last block.
        to: u64,
    },
    /// At most this many blocks at once.
    RangeMax {
        /// The number of blocks.
        blocks: u64,
    },
    /// The range was refused for its length alone, by words that name no number.
    RangeRefused,
    /// A filter may name at most this many addresses.
    AddressesMax {
        /// The number of addresses.
        addresses: u64,
    },
    /// Nothing is kept of the blocks below this one.
    PrunedBelow {
        /// The first block that is kept.
        number: u64,
    },
    /// No old state for us, whatever the node keeps: not in the plan.
    NoHistory,
    /// The method is there; what this call asks of it is not offered.
    MethodOffered,
    /// The nonce is used, perhaps by this very transaction: look its hash up
    /// before the client is told.
    MaybeMined,
}

impl fmt::Display for Learnt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RangeHint { from, to } => write!(f, "blocks {from} to {to} would work"),
            Self::RangeMax { blocks } => write!(f, "at most {blocks} blocks at once"),
            Self::RangeRefused => f.write_str("fewer blocks at once"),
            Self::AddressesMax { addresses } => write!(f, "at most {addresses} addresses at once"),
            Self::PrunedBelow { number } => write!(f, "nothing below block {number}"),
            Self::NoHistory => f.write_str("no old state in this plan"),
            Self::MethodOffered => f.write_str("the method is there"),
            Self::MaybeMined => f.write_str("perhaps mined already"),
        }
    }
}

/// What there is to pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The raw JSON of `result`, a range of the reply's body.
    Result(Bytes),
    /// A raw JSON error object, as received wherever it has a code and a message.
    Error(Bytes),
    /// Nothing that may be passed on.
    None {
        /// For a person: what happened. Free of secrets.
        detail: String,
    },
}

/// Our judgement of one reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What the reply is.
    pub class: VerdictClass,
    /// The stable name of the rule that says so, for metrics and the trail.
    pub rule: &'static str,
    /// Whether another upstream may do better. Usually the class's, but a rule
    /// may know better: "nonce too low" is final, "pool is full" is not.
    pub elsewhere: TryElsewhere,
    /// What it says about health. Usually the class's.
    pub health: HealthEffect,
    /// How long the upstream asked us to wait, as it said it; not yet bounded.
    pub retry_after: Option<Duration>,
    /// A fact worth remembering about the upstream.
    pub learnt: Option<Learnt>,
    /// What there is to pass on.
    pub payload: Payload,
}

impl Verdict {
    /// A verdict with everything that follows from its class.
    pub fn new(class: VerdictClass, rule: &'static str, payload: Payload) -> Self {
        Self {
            class,
            rule,
            elsewhere: class.try_elsewhere(),
            health: class.health(),
            retry_after: None,
            learnt: None,
            payload,
        }
    }
}
