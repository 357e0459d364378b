//! What a row of the method table says about one method.
//!
//! The rows are in `data/methods.txt`, read by `table`; where the block
//! reference sits, and reading it, is in `param`. Which upstream has the method
//! and what a call costs in a provider's credits is not said here: that differs
//! from one upstream to the next.

use crate::block::BlockRef;
use crate::param::BlockParam;

/// What a call does, and so which way it takes through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: any upstream may answer, another may be asked again.
    Read,
    /// Hands over one signed transaction and answers its hash: may go to
    /// several upstreams, "already known" is a success.
    Broadcast,
    /// Changes one upstream, or uses a key or a relay of its own: goes to
    /// one upstream, never again once it may have been sent.
    Write,
    /// Starts or ends a subscription on a connection.
    Subscribe,
    /// Makes a filter that is kept here, and survives every upstream.
    Filter,
    /// Speaks of a filter that may live in one upstream; see [`StickyRole`].
    Sticky,
    /// Answered from what we know, without an upstream.
    Local,
}

wellhead_word::words!(Effect);

/// What a sticky call does with the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum StickyRole {
    /// Makes a filter: any upstream may, and is remembered.
    Create,
    /// Reads a filter: only the upstream that made it can.
    Use,
    /// Ends a filter: the upstream that made it, then it can be forgotten.
    Drop,
}

wellhead_word::words!(StickyRole);

/// How long an answer stays true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Finality {
    /// For ever, whatever the chain does.
    Fixed,
    /// As long as the block that the call refers to is canonical.
    Block,
    /// Found by hash: as long as the block in which it was found is
    /// canonical; not at all while it is pending.
    Inclusion,
    /// Until the next head.
    Head,
    /// Not at all: depends on the upstream, its pool, or the time.
    Live,
}

wellhead_word::words!(Finality);

/// Roughly what a call costs an upstream: for time limits and for weighing,
/// where nothing better is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum CostClass {
    /// From memory or by one key.
    Light,
    /// Reads the state of a few accounts.
    State,
    /// Reads a block with what belongs to it.
    Block,
    /// Executes code.
    Call,
    /// Searches: grows with the range.
    Logs,
    /// Executes again, with every step recorded.
    Trace,
    /// Changes something.
    Write,
}

wellhead_word::words!(CostClass);

impl CostClass {
    /// Whether calls of this class, searches of logs and traces, differ so much in what they cost
    /// that a slow or failed one says nothing of other calls at its upstream.
    pub const fn is_heavy(self) -> bool {
        match self {
            Self::Logs | Self::Trace => true,
            Self::Light | Self::State | Self::Block | Self::Call | Self::Write => false,
        }
    }
}

/// Which clients a method is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Access {
    /// Every client.
    Public,
    /// The operator of the node: steers or stops it, writes or reads its files, shows its
    /// insides.
    Admin,
    /// The owner of the keys that the node holds: uses, makes or shows them.
    Keys,
    /// For tests on a private chain: manipulates it.
    Dev,
}

wellhead_word::words!(Access);

/// Kinds of data of which an upstream keeps more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::Display, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Data {
    /// Balances, code, storage: what calls are made on.
    State,
    /// Headers and transactions.
    Blocks,
    /// Logs, and the receipts that they are in.
    Logs,
    /// Traces.
    Traces,
}

wellhead_word::words!(Data);

impl Data {
    /// What calls of this class read; `None` where that belongs to no block.
    pub const fn of(class: CostClass) -> Option<Self> {
        match class {
            CostClass::State | CostClass::Call => Some(Self::State),
            CostClass::Block => Some(Self::Blocks),
            CostClass::Logs => Some(Self::Logs),
            CostClass::Trace => Some(Self::Traces),
            CostClass::Light | CostClass::Write => None,
        }
    }
}

/// The place of a row in the table; 0 is the row for unknown methods.
///
/// Small and dense, so that counters per method can be an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MethodIndex(pub(crate) u16);

impl MethodIndex {
    /// The row for methods that the table does not list.
    pub const UNKNOWN: Self = Self(0);

    /// As an index into an array of [`crate::MethodTable::len`] items.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// What we know of one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodRow {
    /// As in the call; `*` for unknown methods.
    pub name: &'static str,
    /// The heading under which the data file and the documentation list it.
    pub family: &'static str,
    /// Its place in the table.
    pub index: MethodIndex,
    /// What a call does.
    pub effect: Effect,
    /// Which part it plays for a filter; `Some` exactly for [`Effect::Sticky`].
    pub sticky: Option<StickyRole>,
    /// Where the block reference sits in the parameters.
    pub block: BlockParam,
    /// How long an answer stays true.
    pub finality: Finality,
    /// Whether the same call may be sent twice without harm. Always `false`
    /// for [`Effect::Write`].
    pub idempotent: bool,
    /// Roughly what a call costs.
    pub class: CostClass,
    /// Whether `null` says something true. Where it is `false`, `null` means
    /// that this upstream lacks what another may have.
    pub null_is_answer: bool,
    /// Which clients it is meant for. Of unknown methods their name says more: see
    /// [`crate::MethodTable::access`].
    pub access: Access,
    /// Its place among the methods that read a state at one block and take that block by its
    /// hash, below [`crate::BY_HASH_METHODS`]; `None` for all others.
    pub by_hash: Option<usize>,
    /// A few words for people.
    pub about: &'static str,
}

impl MethodRow {
    /// Whether this is the row for methods that the table does not list.
    pub fn is_unknown(&self) -> bool {
        self.index == MethodIndex::UNKNOWN
    }

    /// Which block a call with these parameters (raw JSON) speaks of.
    ///
    /// Says [`BlockRef::Unreadable`] rather than guess. Only the part that
    /// matters is looked at: a readable reference does not mean a good call.
    pub fn block_ref(&self, params: Option<&[u8]>) -> BlockRef {
        self.block.read(params)
    }

    /// Whether an answer over a range is that over its first part, followed by that over the
    /// rest: a list of what a filter found, with no bound of its own on how much.
    pub fn is_divisible(&self, params: Option<&[u8]>) -> bool {
        let is_list = self.class.is_heavy() && matches!(self.block, BlockParam::Filter { .. });
        is_list && self.effect == Effect::Read && self.block.counts_nothing(params)
    }
}
