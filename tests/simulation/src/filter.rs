//! Filters that clients keep in the proxy, and what polls of them told, as the clients read it.
//!
//! The client that keeps them is in `keeper`; `filters_exact` judges what they told.

use std::time::Duration;

use alloy_primitives::B256;
use serde_json::value::RawValue;

use crate::session::LogNotice;

/// One filter, from its beginning to its end.
#[derive(Debug, Clone)]
pub struct KeptFilter {
    /// Whose: the number of the subscriber.
    pub keeper: usize,
    /// Of which chain.
    pub chain: usize,
    /// The filter object; `None` for a filter that tells blocks.
    pub criteria: Option<String>,
    /// When its client had its id.
    pub made: Duration,
    /// In the order in which they were made: no two at a time.
    pub polls: Vec<AnsweredPoll>,
    /// How it ended, if it did.
    pub ended: Option<(Duration, FilterEnd)>,
}

/// One `eth_getFilterChanges` and its answer.
#[derive(Debug, Clone)]
pub struct AnsweredPoll {
    /// When it was sent.
    pub asked: Duration,
    /// When the answer came.
    pub answered: Duration,
    /// The raw result or error.
    pub outcome: Result<String, String>,
}

/// How a filter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterEnd {
    /// Its client removed it.
    Removed,
    /// The proxy said that there is no such filter.
    NotFound,
    /// The answer to a poll was lost with its connection: what that one told is not known.
    Lost,
}

/// Something that a poll told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterChange {
    /// A block is there.
    Block(B256),
    /// A log is there, or no longer.
    Log(LogNotice),
    /// Anything else.
    Malformed(String),
}

impl FilterChange {
    /// Reads the result of a poll, as a strict client does.
    pub fn read_all(result: &str) -> Vec<Self> {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(result) else {
            return vec![Self::Malformed(result.to_owned())];
        };
        let change = |item: &&RawValue| {
            let text = item.get();
            let block = serde_json::from_str(text).ok().map(Self::Block);
            let log = || LogNotice::read(text).map(Self::Log);
            block.or_else(log).unwrap_or_else(|| Self::Malformed(text.to_owned()))
        };
        items.iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        let hash = B256::repeat_byte(1);
        let log = format!(
            r#"{{"blockNumber":"0x1f","blockHash":"{hash}","logIndex":"0x2","removed":true}}"#
        );
        let changes = FilterChange::read_all(&format!(r#"["{hash}",{log},7]"#));
        let [block, FilterChange::Log(told), other] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(*block, FilterChange::Block(hash));
        assert_eq!((told.number, told.index, told.is_removed), (31, 2, true));
        assert_eq!(*other, FilterChange::Malformed("7".to_owned()));
        assert_eq!(FilterChange::read_all("[]"), []);
        assert_eq!(FilterChange::read_all("{}"), [FilterChange::Malformed("{}".to_owned())]);
    }
}
