//! How upstreams go wrong, and for how long an upstream is not called well afterwards.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::words::Dialect;

/// One way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection.
    Crash,
    /// Accepts and never answers.
    Hang,
    /// The connection breaks before an answer: turned away unread, or perhaps executed.
    Reset {
        /// The call was certainly not looked at.
        unread: bool,
    },
    /// The connection breaks inside the answer.
    Truncate,
    /// Every so many exchanges the connection dies with all that it carries, as after a
    /// GOAWAY: what is beyond the last stream was not looked at.
    Die {
        /// Exchanges in the life of a connection.
        after: u32,
    },
    /// Whole HTTP with a body that is no good JSON.
    Garble,
    /// A gateway's error page, which quotes the URL.
    Page(u16),
    /// Errors of its own, which quote the URL.
    Internal,
    /// An unknown error.
    Unknown,
    /// Good answers under an id that was not sent.
    WrongId,
    /// Items of a batch are missing, the others in another order.
    LoseItems,
    /// Tells wrong values where several upstreams have to agree, see
    /// [`QUORUM_METHODS`](crate::scenario::QUORUM_METHODS). Comes only there.
    Mislead,
    /// Tells clients blocks, transactions and receipts with a value changed that their hashes
    /// or blooms commit to. Comes only where answers are looked at closely enough to see it.
    Lie,
    /// Refuses everything as too much.
    Throttle(Dialect),
    /// Refuses what comes while so many exchanges are under way.
    Crowded(u32),
    /// The key is refused.
    Auth,
    /// The bill was not paid.
    Billing,
    /// These methods are gone.
    Unsupported,
    /// Knows no more than the newest blocks.
    Pruned,
    /// So many blocks behind.
    Lag(u64),
    /// Stands at the block where it was.
    Stuck,
    /// Says that it is syncing, and is behind.
    Syncing,
    /// Takes so much longer.
    Slow(Duration),
    /// Knows of no logs and says so, as one that has the blocks and not yet what is in them.
    NoLogs,
    /// Knows of all logs of a block but those of one contract, when subscribers are to be told of them.
    LoseLogs,
    /// Has the newest block and not yet what is in it.
    LateLogs,
    /// This share of its exchanges, in percent, fails in one way or another.
    Flaky(u32),
}

/// Methods that go away while [`Kind::Unsupported`].
pub const UNSUPPORTED: [&str; 3] = ["eth_getLogs", "eth_getBlockByHash", "web3_sha3"];

/// A kind for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spell {
    /// When it begins.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
    /// What goes wrong.
    pub kind: Kind,
}

impl Spell {
    /// Whether it has a hand in what happens between `from` and `until`, or may still
    /// be remembered then. `rest_max` is the longest rest that the settings know.
    pub fn matters(&self, from: Duration, until: Duration, rest_max: Duration) -> bool {
        self.from <= until && self.until + self.kind.settling(rest_max) >= from
    }
}

/// The probe that ends a rest comes so long after it at the latest, its answer included.
const PROBE_AFTER: Duration = Duration::from_secs(6);
/// What is learnt of methods and batches outlasts every scenario.
const FOR_GOOD: Duration = Duration::from_secs(3600);
/// So long an upstream whose key was refused is left alone.
const OUT_OF_SERVICE: Duration = Duration::from_secs(60);

impl Kind {
    /// For how long after it ended the proxy may rightly think of it.
    pub fn settling(self, rest_max: Duration) -> Duration {
        match self {
            Self::Crash
            | Self::Hang
            | Self::Reset { .. }
            | Self::Truncate
            | Self::Die { .. }
            | Self::Garble
            | Self::Page(_)
            | Self::Internal
            | Self::Unknown
            | Self::WrongId
            | Self::LoseItems
            | Self::Mislead
            | Self::Lie
            | Self::Slow(_)
            | Self::Crowded(_)
            | Self::NoLogs
            | Self::LoseLogs
            | Self::LateLogs
            | Self::Flaky(_) => rest_max + PROBE_AFTER,
            Self::Throttle(dialect) => rest_max.max(dialect.pause()) + PROBE_AFTER,
            Self::Auth | Self::Billing => OUT_OF_SERVICE + PROBE_AFTER,
            Self::Unsupported => FOR_GOOD,
            // Asked about it once a minute.
            Self::Syncing => Duration::from_secs(60) + PROBE_AFTER,
            // The next poll tells; polls are no further apart than this.
            Self::Pruned | Self::Lag(_) | Self::Stuck => Duration::from_secs(16) + PROBE_AFTER,
        }
    }

    /// Draws one.
    pub fn draw(rng: &mut SmallRng) -> Self {
        match rng.random_range(0..100) {
            0..=11 => Self::Crash,
            12..=20 => Self::Hang,
            21..=26 => Self::Reset { unread: rng.random() },
            27..=32 => Self::Truncate,
            33..=38 => Self::Die { after: rng.random_range(5..100) },
            39..=43 => Self::Garble,
            44..=48 => Self::Page([500, 502, 503, 504, 404][rng.random_range(0..5)]),
            49..=52 => Self::Internal,
            53..=54 => Self::Unknown,
            55..=57 => Self::WrongId,
            58..=59 => Self::LoseItems,
            60..=68 => Self::Throttle(Dialect::draw(rng)),
            69..=71 => Self::Auth,
            72..=74 => Self::Billing,
            75..=77 => Self::Unsupported,
            78..=80 => Self::Pruned,
            81..=84 => Self::Lag(rng.random_range(1..30)),
            85..=87 => Self::Stuck,
            88..=89 => Self::Syncing,
            90..=94 => Self::Slow(Duration::from_millis(rng.random_range(200..8000))),
            _ => Self::Flaky(rng.random_range(5..80)),
        }
    }
}

/// How a feed tells new blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::VariantArray)]
pub enum FeedHabit {
    /// The newest alone, whatever happened before it.
    #[default]
    Newest,
    /// Each block that is new, those of a branch in their order.
    Every,
    /// Each block twice.
    Doubles,
    /// A block after the one that stands on it.
    Reorders,
    /// One block in a few.
    Skips,
    /// It closes after a few blocks.
    Drops,
    /// It is open and says nothing after a few blocks.
    FallsSilent,
    /// The newest alone, under ids that are numbers.
    NumericIds,
}

wellhead_word::variants!(FeedHabit);

impl FeedHabit {
    /// Whether each new block is told as soon as it is there, and none after a newer one.
    pub fn is_prompt(self) -> bool {
        matches!(self, Self::Newest | Self::Every | Self::Doubles | Self::NumericIds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_matters_until_it_has_settled() {
        let second = Duration::from_secs;
        let spell = Spell { from: second(10), until: second(12), kind: Kind::Crash };
        let rest = second(5);
        let check = |from, until, matters| {
            assert_eq!(spell.matters(second(from), second(until), rest), matters, "{from} {until}");
        };
        check(1, 9, false);
        check(1, 10, true);
        check(11, 11, true);
        check(23, 24, true);
        check(24, 25, false);
    }
}
