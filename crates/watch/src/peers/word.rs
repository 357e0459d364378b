//! What replicas say to each other, as JSON. A word that this build does not know is none.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wellhead_chain::Observation;
use wellhead_eth::BlockNumber;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaWord {
    /// This replica is there.
    Here,
    /// It is about to end.
    Leaving,
    /// Something of a chain.
    Chain {
        /// The name of the chain in the settings.
        chain: String,
        /// What is said of it.
        says: ChainWord,
    },
}

/// What is said of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainWord {
    /// What clients of this replica need of it.
    Demand(ChainDemand),
    /// Something of one of its upstreams.
    Upstream {
        /// Its id in the settings.
        upstream: String,
        /// What is said of it.
        says: UpstreamWord,
    },
    /// The newest block that this replica answers with.
    Latest(u64),
    /// A client was shown a block above the newest one that is agreed.
    Shown {
        /// The hash of the client.
        client: u64,
        /// The number of the block.
        number: u64,
    },
    /// An upstream accepted a transaction.
    Sent(SentWord),
}

/// What clients did since the last word, or do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChainDemand {
    /// They called.
    pub called: bool,
    /// They are subscribed.
    pub subscribed: bool,
    /// They called at a safe or final block.
    pub tags: bool,
    /// The final block is needed.
    pub finality: bool,
    /// Calls could be asked by the hash of their block.
    pub block_hashes: bool,
}

/// What is said of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamWord {
    /// How it is, by the replica that probes it.
    State(StateWord),
    /// A block that it showed.
    Head(HeadWord),
    /// Which blocks it holds to be safe and final.
    Marks(MarksWord),
    /// Calls of clients come to it.
    Called,
}

/// How an upstream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateWord {
    /// Its breaker is open: probes fail.
    pub is_resting: bool,
    /// It says that it is syncing, or has no peers.
    pub is_syncing: bool,
    /// Whether it honours the hash of a block, if that is known.
    pub honours_hashes: Option<bool>,
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockWord {
    /// Its number.
    pub number: u64,
    /// Its hash, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The hash of the block before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Its timestamp in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<u64>,
}

/// A block that an upstream showed to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadWord {
    /// Which.
    #[serde(flatten)]
    pub block: BlockWord,
    /// For a poll, the milliseconds that it took; `None` for an answer to a client, which says that the upstream
    /// holds at least this block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polled_ms: Option<u64>,
}

/// Which blocks an upstream holds to be safe and final; what it was not asked for is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MarksWord {
    /// The safe one.
    pub safe: Option<BlockWord>,
    /// The final one.
    pub finalized: Option<BlockWord>,
}

/// A transaction that an upstream accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentWord {
    /// Its hash, in hexadecimal digits.
    pub hash: String,
    /// The upstream's id in the settings.
    pub upstream: String,
    /// The address that signed it, in hexadecimal digits, and its nonce, if they could be read.
    pub sender: Option<(String, u64)>,
}

impl ReplicaWord {
    /// As it is sent.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and names of fields")
    }

    /// What another replica sent; `None` if it is none of these.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl HeadWord {
    /// A block that an answer to a client named.
    pub fn answered(seen: &Observation) -> Self {
        Self { block: BlockWord::of(seen), polled_ms: None }
    }

    /// The block that a poll returned after `took`; zero for a block that was pushed.
    pub(crate) fn polled(seen: &Observation, took: Duration) -> Self {
        let polled_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        Self { block: BlockWord::of(seen), polled_ms }
    }
}

impl BlockWord {
    /// The block that was seen.
    pub(crate) fn of(seen: &Observation) -> Self {
        let text = |hash: &wellhead_eth::BlockHash| hash.to_string();
        Self {
            number: seen.number.0,
            hash: seen.hash.as_ref().map(text),
            parent: seen.parent.as_ref().map(text),
            timestamp: seen.timestamp,
        }
    }

    pub(crate) fn observation(&self) -> Observation {
        let hash = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        Observation {
            number: BlockNumber(self.number),
            hash: hash(&self.hash),
            parent: hash(&self.parent),
            timestamp: self.timestamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_eth::BlockHash;

    use super::*;

    fn check(word: &ReplicaWord, text: &str) {
        assert_eq!(word.write(), text);
        assert_eq!(ReplicaWord::read(text).as_ref(), Some(word), "{text}");
    }

    #[test]
    fn words_are_json() {
        let chain = |says| ReplicaWord::Chain { chain: "ethereum".to_owned(), says };
        check(&ReplicaWord::Here, r#""here""#);
        check(
            &chain(ChainWord::Latest(7)),
            r#"{"chain":{"chain":"ethereum","says":{"latest":7}}}"#,
        );
        let seen = Observation {
            number: BlockNumber(7),
            hash: Some(BlockHash([1; 32])),
            parent: None,
            timestamp: Some(9),
        };
        let head = HeadWord::polled(&seen, Duration::from_millis(3));
        assert_eq!(head.block.observation(), seen);
        let says = UpstreamWord::Head(head);
        let word = chain(ChainWord::Upstream { upstream: "a".to_owned(), says });
        let hash = "01".repeat(32);
        check(
            &word,
            &format!(
                r#"{{"chain":{{"chain":"ethereum","says":{{"upstream":{{"upstream":"a","says":{{"head":{{"number":7,"hash":"0x{hash}","timestamp":9,"polled_ms":3}}}}}}}}}}}}"#
            ),
        );
        let marks = MarksWord { safe: Some(BlockWord::of(&seen)), finalized: None };
        let says = UpstreamWord::Marks(marks);
        check(
            &chain(ChainWord::Upstream { upstream: "a".to_owned(), says }),
            &format!(
                r#"{{"chain":{{"chain":"ethereum","says":{{"upstream":{{"upstream":"a","says":{{"marks":{{"safe":{{"number":7,"hash":"0x{hash}","timestamp":9}},"finalized":null}}}}}}}}}}}}"#
            ),
        );
        let demand = ChainDemand { called: true, ..ChainDemand::default() };
        let read = ReplicaWord::read(
            r#"{"chain":{"chain":"ethereum","says":{"demand":{"called":true}}}}"#,
        );
        assert_eq!(read, Some(chain(ChainWord::Demand(demand))));
    }

    #[test]
    fn what_is_none_of_them_is_none() {
        for text in ["", "1", "\"gone\"", "{}", r#"{"chain":{"chain":"a","says":{"oldest":7}}}"#] {
            assert_eq!(ReplicaWord::read(text), None, "{text}");
        }
    }
}
