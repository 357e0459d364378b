//! Whether an upstream honours the hash of a block (EIP-1898): whether a state that it is asked
//! for at a hash is that of this block, or none.
//!
//! Two kinds of nodes do not. Some answer for a block that does not exist, with their newest: they
//! are found out by a hash that no block has. Others look up the height of the hash and then answer
//! for that height, which around a reorg is another block: nothing that they answer shows it, so
//! they are known by the name that they give themselves. The name is asked for again every ten
//! minutes, and the hash when the name has changed or is not told.
//!
//! Not promised: that a node of the second kind with another name is found out.

use std::time::{Duration, Instant};

use wellhead_jsonrpc::raw;
use wellhead_upstream::{Payload, VerdictClass};

use crate::ask::{Asker, CallReason, now};
use crate::checks::{CheckKind, Mode};
use crate::watcher::Watcher;

/// A node may be another version after this long.
const VERSION_EVERY: Duration = Duration::from_secs(600);
/// An upstream that could not say is asked again after this long, and then after twice as long each
/// time, up to [`VERSION_EVERY`].
const AGAIN_AFTER: Duration = Duration::from_secs(15);
/// The ASCII codes of "wellhead: no block has this hash".
const NO_BLOCK: &str = "0x77656c6c686561643a206e6f20626c6f636b2068617320746869732068617368";
/// Names of nodes that answer for the height of a hash, in lower case.
const ANSWER_BY_HEIGHT: [&str; 3] = ["anvil", "hardhat", "ganache"];

impl Watcher {
    /// Finds out whether it honours hashes, while clients' calls could be asked by one.
    pub(crate) async fn look_at_block_hashes(&self) {
        let may_ask = self.is_busy() && self.checks.asks(CheckKind::Head);
        if !may_ask || !self.pulse().wants_block_hashes(now()) {
            return;
        }
        let (before, was_known) = {
            let mut state = self.state.lock();
            let probe = &mut state.block_hash;
            if probe.due.is_some_and(|due| now() < due) {
                return;
            }
            // One that is asked nothing while it is well is asked once.
            let every = if self.checks.mode == Mode::On { VERSION_EVERY } else { Duration::MAX };
            probe.due = Some(now().checked_add(every).unwrap_or_else(far));
            (probe.version.clone(), probe.is_known)
        };
        let version = self.asker.version().await;
        if was_known && version.as_ref().is_some_and(|it| it.is_some() && *it == before) {
            return;
        }
        let honours = match version.as_ref().map(Option::as_deref) {
            Some(Some(version)) if answers_by_height(version) => Some(false),
            Some(_) => self.asker.refuses_unknown_hashes().await,
            // It has some trouble.
            None => None,
        };
        {
            let mut state = self.state.lock();
            let probe = &mut state.block_hash;
            probe.is_known = honours.is_some();
            probe.version = version.flatten();
            if honours.is_none() {
                probe.pause = (probe.pause * 2).clamp(AGAIN_AFTER, VERSION_EVERY);
                probe.due = Some(now() + probe.pause);
            }
        }
        let honours = honours.unwrap_or(false);
        if self.pulse().tell_honours_hashes(self.upstream().slot(), honours) {
            let id = &self.upstream().identity().id;
            tracing::debug!(upstream = %id, honours, "whether the upstream honours block hashes");
        }
    }
}

/// Later than any process runs.
fn far() -> Instant {
    now() + Duration::from_secs(100 * 365 * 86_400)
}

fn answers_by_height(version: &str) -> bool {
    let version = version.to_ascii_lowercase();
    ANSWER_BY_HEIGHT.iter().any(|name| version.contains(name))
}

impl Asker {
    /// What it calls itself, if it has a name; `None` when it said nothing of that.
    async fn version(&self) -> Option<Option<String>> {
        let verdict = self.judged(CallReason::BlockHash, "web3_clientVersion", "[]").await.ok()?;
        match (verdict.class, verdict.payload) {
            (VerdictClass::Answer, Payload::Result(version)) => {
                let version = raw::string(&version)?.into_owned();
                // Clients are told it, and this is asked more often than a verification comes.
                self.upstream.note_client_version(Some(&version));
                Some(Some(version))
            }
            (VerdictClass::Unsupported, _) => Some(None),
            (..) => None,
        }
    }

    /// Whether it refuses to answer for a block that does not exist; `None` when it said nothing
    /// of that.
    async fn refuses_unknown_hashes(&self) -> Option<bool> {
        let params = format!(
            r#"["0x0000000000000000000000000000000000000000",{{"blockHash":"{NO_BLOCK}"}}]"#
        );
        let verdict = self.judged(CallReason::BlockHash, "eth_getBalance", &params).await.ok()?;
        match verdict.class {
            VerdictClass::MissingData => Some(true),
            // It answers for a block that is not there, or does not understand a hash at all.
            VerdictClass::Answer
            | VerdictClass::Null
            | VerdictClass::CallerFault
            | VerdictClass::Unsupported => Some(false),
            VerdictClass::Reverted
            | VerdictClass::TransactionKnown
            | VerdictClass::TransactionRejected
            | VerdictClass::RangeTooLarge
            | VerdictClass::FilterTooLarge
            | VerdictClass::Throttled
            | VerdictClass::Billing
            | VerdictClass::Auth
            | VerdictClass::Fault
            | VerdictClass::Void
            | VerdictClass::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_answer_by_height_are_known_by_their_names() {
        for (version, is_known) in [
            ("anvil/v1.2.3", true),
            ("HardhatNetwork/2.22.17/@nomicfoundation/edr/0.6.5", true),
            ("Ganache/v7.9.1/EthereumJS TestRPC/v7.9.1/ethereum-js", true),
            ("Geth/v1.14.12-stable/linux-amd64/go1.23", false),
            ("reth/v1.1.4/x86_64-unknown-linux-gnu", false),
            ("", false),
        ] {
            assert_eq!(answers_by_height(version), is_known, "{version}");
        }
    }

    #[test]
    fn the_hash_is_one() {
        assert_eq!(NO_BLOCK.len(), 66);
    }
}
