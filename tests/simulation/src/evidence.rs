//! What the checkers look at: what clients sent and got, what upstreams received and
//! said, what the proxy wrote, and what was left when all was over.
//!
//! Filled while a scenario plays and read when it is over. Nothing here was told by the
//! proxy about itself, but for its log, its pages and the counts that must be zero.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::B256;
use bytes::Bytes;
use wellhead_sim::World;

use crate::filter::KeptFilter;
use crate::journal::Journal;
use crate::scenario::Scenario;
use crate::session::{PendingForm, Session};

/// Time since the scenario began.
pub type At = Duration;

/// One call of a client, alone or as an item of a batch.
#[derive(Debug, Clone)]
pub struct Item {
    /// The id as it was written; `None` for a notification.
    pub id: Option<String>,
    /// What is asked.
    pub ask: Ask,
    /// The method.
    pub method: String,
    /// The params as they were written.
    pub params: String,
}

impl Item {
    /// By what an upstream's exchange and a client's call are known to be the same.
    pub fn key(&self) -> String {
        key(&self.method, &self.params)
    }

    /// The keys under which upstreams may receive it: the number of any of these blocks may
    /// stand in the place of `latest`, and where a state is asked for its hash, as well.
    pub fn keys(&self, blocks: &BTreeMap<u64, Vec<B256>>) -> Vec<String> {
        const LATEST: &str = "\"latest\"";
        let mut keys = vec![self.key()];
        if self.params.contains(LATEST) {
            let pinned = |number: &u64| self.params.replace(LATEST, &format!("\"{number:#x}\""));
            keys.extend(blocks.keys().map(|number| key(&self.method, &pinned(number))));
        }
        keys.extend(self.keys_by_hash(blocks).map(|(_, _, key)| key));
        keys
    }

    /// Those by the hash of a block, each with its number and hash. None but for states.
    pub fn keys_by_hash(
        &self,
        blocks: &BTreeMap<u64, Vec<B256>>,
    ) -> impl Iterator<Item = (u64, B256, String)> {
        let is_state = matches!(self.method.as_str(), "eth_getBalance" | "eth_call");
        let blocks = blocks.iter().filter(move |_| is_state).flat_map(|(number, hashes)| {
            let height = format!("\"{number:#x}\"]");
            let end =
                ["\"latest\"]", height.as_str()].into_iter().find(|end| self.params.ends_with(end));
            let start = end.map(|end| self.params[..self.params.len() - end.len()].to_owned());
            let of = move |hash: &B256| {
                let params = format!("{}{{\"blockHash\":\"{hash}\"}}]", start.as_ref()?);
                Some((*number, *hash, key(&self.method, &params)))
            };
            hashes.iter().filter_map(of).collect::<Vec<_>>()
        });
        blocks.collect::<Vec<_>>().into_iter()
    }
}

/// Method and params as one word.
pub fn key(method: &str, params: &str) -> String {
    format!("{method}{params}")
}

/// What kind of answer an item must get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A read whose answer some upstream must have given, word for word.
    Read,
    /// A read of the state or the block at this height.
    Pinned(u64),
    /// The newest height.
    Height,
    /// A signed transaction, by its hash.
    Transaction(B256),
    /// A write that must not run twice. Its params occur once in a scenario.
    Write,
    /// A call that has to do with filters; its ids are rewritten on the way.
    Filter,
    /// Answered by the proxy itself, with this.
    Local(String),
    /// Always refused: this code.
    Refused(i64),
    /// Not a call at all; what is read is its item of the batch.
    Malformed,
}

impl Ask {
    /// Whether it is a read that a well upstream always answers.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Read | Self::Pinned(_) | Self::Height | Self::Local(_) => true,
            Self::Transaction(_)
            | Self::Write
            | Self::Filter
            | Self::Refused(_)
            | Self::Malformed => false,
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone)]
pub struct Answered {
    /// When.
    pub at: At,
    /// HTTP status.
    pub status: u16,
    /// The body, all of it that came.
    pub body: Bytes,
    /// What the answer says of its attempts.
    pub attempts: u32,
    /// What the cache had, by the answer's own word.
    pub cache: Option<&'static str>,
    /// The upstream that answered, by the answer's own word.
    pub upstream: Option<String>,
    /// The trail, when it was asked for.
    pub trail: Option<String>,
    /// How a large answer ended.
    pub flow: Flow,
}

/// How the body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It was there at once.
    Whole,
    /// It flowed, to its end.
    Ended,
    /// It flowed and was cut, and the client was told so.
    Cut,
    /// It flowed and the client went away.
    Left,
}

/// A body sent to the proxy.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose.
    pub client: usize,
    /// To which chain.
    pub chain: usize,
    /// When.
    pub at: At,
    /// What is in it.
    pub items: Vec<Item>,
    /// Whether it is a batch.
    pub is_batch: bool,
    /// What came back.
    pub answered: Option<Answered>,
    /// When the client hung up, if it did.
    pub hung_up: Option<At>,
}

/// Where an upstream is: chain and slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The chain.
    pub chain: usize,
    /// The slot.
    pub slot: usize,
}

/// What an upstream made of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// It is its own true word: no fault had a hand in it.
    pub is_honest: bool,
    /// The raw result, or the raw error object.
    pub outcome: Result<String, String>,
}

/// One call in an exchange.
#[derive(Debug, Clone)]
pub struct Received {
    /// Method and params.
    pub key: String,
    /// What was said of it, once it was said.
    pub told: Option<Told>,
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Not yet.
    Open,
    /// With an answer that went out whole.
    Answered,
    /// With a refusal because of too many calls; asks for so long a pause.
    Refused(Option<Duration>),
    /// Otherwise.
    Failed,
    /// The proxy no longer waited.
    Abandoned,
}

/// The part of wellhead that calls an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// The proxy, for a client.
    Client,
    /// The loops that follow upstreams.
    House,
    /// The loop that announces blocks to subscribers.
    Announcer,
}

/// One exchange as the upstream saw it.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The upstream that received it.
    pub place: Place,
    /// The part that made it.
    pub caller: Caller,
    /// When it came.
    pub began: At,
    /// When it ended.
    pub ended: Option<At>,
    /// What was in it.
    pub calls: Vec<Received>,
    /// Whether the calls may have been executed.
    pub may_have_run: bool,
    /// How it ended.
    pub end: End,
}

impl Exchange {
    /// Whether it was made by the loops that follow upstreams.
    pub fn is_house(&self) -> bool {
        self.caller == Caller::House
    }
}

/// A new block as an upstream told it by itself.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The upstream.
    pub place: Place,
    /// When.
    pub at: At,
    /// Its height.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
}

/// A feed of new blocks while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedFeed {
    /// Whose.
    pub place: Place,
    /// When it was opened.
    pub opened: At,
    /// When it ended.
    pub closed: Option<At>,
    /// It tells pending transactions, not blocks.
    pub is_of_pool: bool,
}

/// A transaction that entered the pool of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PooledTransaction {
    /// Of which chain.
    pub chain: usize,
    /// When.
    pub at: At,
    /// Which.
    pub hash: B256,
}

/// A pending transaction that an upstream pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushedTransaction {
    /// Which upstream.
    pub place: Place,
    /// When it arrived.
    pub at: At,
    /// What its feed was asked for.
    pub form: PendingForm,
    /// Which.
    pub hash: B256,
}

/// A read that a subscriber makes because it was told of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptedRead {
    /// The number of its request.
    pub request: usize,
    /// The height of the block.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
}

/// A reorg of a world.
#[derive(Debug, Clone)]
pub struct Replaced {
    /// When.
    pub at: At,
    /// The head until then.
    pub head: (u64, B256),
    /// What was no longer canonical then, oldest first.
    pub dropped: Vec<B256>,
}

/// What there still is when all clients are gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Upstreams that still count calls in flight.
    pub in_flight: Vec<(String, u32)>,
    /// Exchanges that upstreams still hold open.
    pub open: usize,
    /// Tasks that did not end.
    pub tasks: usize,
}

/// All of it.
#[derive(Debug)]
pub struct Evidence {
    /// What was played.
    pub scenario: Scenario,
    /// In the order in which they were sent.
    pub requests: Vec<Request>,
    /// In the order in which they came.
    pub exchanges: Vec<Exchange>,
    /// The connections of subscribers, in the order in which they were opened.
    pub sessions: Vec<Session>,
    /// What subscribers read because they were told of a block.
    pub prompted: Vec<PromptedRead>,
    /// The filters that clients kept, in the order in which they were made.
    pub filters: Vec<KeptFilter>,
    /// The feeds of upstreams, in the order in which they were opened.
    pub feeds: Vec<OpenedFeed>,
    /// What entered pools, in that order.
    pub pooled: Vec<PooledTransaction>,
    /// The pending transactions that upstreams pushed, in that order.
    pub pushed: Vec<PushedTransaction>,
    /// When the last client had left.
    pub left_at: Option<At>,
    /// The proxy's own log, the status pages and the metrics, each with a name.
    pub pages: Vec<(&'static str, String)>,
    /// What was left.
    pub left: Left,
    /// One a chain; none where a checker's own test needs none.
    pub worlds: Vec<Arc<World>>,
    /// By chain and height, every block that there ever was.
    pub blocks: Vec<BTreeMap<u64, Vec<B256>>>,
    /// By chain, the heights of blocks as they were made.
    pub heights: Vec<Vec<(At, u64)>>,
    /// What upstreams told of new blocks by themselves.
    pub told_heads: Vec<Head>,
    /// By chain, what was replaced.
    pub reorgs: Vec<Vec<Replaced>>,
    /// What happened, for people, and its hash.
    pub journal: Journal,
}

impl Evidence {
    /// Whether the item is a search that upstreams take in parts only.
    pub(crate) fn is_in_parts(&self, request: &Request, item: &Item) -> bool {
        let upstreams = &self.scenario.chains[request.chain].upstreams;
        item.method == "eth_getLogs" && upstreams.iter().any(|it| it.log_range_max.is_some())
    }

    /// Whether a request came from the address that takes all it can get.
    pub(crate) fn is_rude(&self, request: &Request) -> bool {
        self.scenario.clients.get(request.client).is_some_and(|client| client.is_rude)
    }

    /// Nothing has happened yet.
    pub fn new(scenario: Scenario) -> Self {
        let chains = scenario.chains.len();
        Self {
            scenario,
            requests: Vec::new(),
            exchanges: Vec::new(),
            sessions: Vec::new(),
            prompted: Vec::new(),
            filters: Vec::new(),
            feeds: Vec::new(),
            pooled: Vec::new(),
            pushed: Vec::new(),
            left_at: None,
            pages: Vec::new(),
            left: Left::default(),
            worlds: Vec::new(),
            blocks: vec![BTreeMap::new(); chains],
            heights: vec![Vec::new(); chains],
            told_heads: Vec::new(),
            reorgs: vec![Vec::new(); chains],
            journal: Journal::default(),
        }
    }

    /// The exchanges with one upstream.
    pub fn exchanges_of(&self, place: Place) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(move |exchange| exchange.place == place)
    }

    /// All upstreams.
    pub fn places(&self) -> Vec<Place> {
        let chains = self.scenario.chains.iter().enumerate();
        chains
            .flat_map(|(chain, plan)| {
                (0..plan.upstreams.len()).map(move |slot| Place { chain, slot })
            })
            .collect()
    }
}
