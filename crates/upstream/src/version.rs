//! What the software behind an upstream calls itself (`web3_clientVersion`).
//!
//! `watch` asks for it when it verifies the upstream and when the upstream is back after a
//! rest, since another node may answer there then; everything else reads what is remembered.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Upstream;

/// A longer version is cut: it goes to logs, pages and clients.
pub const CLIENT_VERSION_BYTES_MAX: usize = 128;

/// What is known of the version of one upstream.
#[derive(Debug, Default)]
pub(crate) struct VersionCell(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    version: Option<Arc<str>>,
    is_expected: bool,
}

impl Upstream {
    /// The version that the upstream told last: at most [`CLIENT_VERSION_BYTES_MAX`] characters
    /// of printable ASCII. `None` while it told none.
    ///
    /// A node that was replaced without a failed call keeps the version of the old one here
    /// until the next verification.
    pub fn client_version(&self) -> Option<Arc<str>> {
        self.version.0.lock().version.clone()
    }

    /// Whether `watch` is about to learn the version for the first time.
    pub fn expects_client_version(&self) -> bool {
        let known = self.version.0.lock();
        known.is_expected && known.version.is_none()
    }

    /// Notes that the version is going to be asked for.
    pub fn expect_client_version(&self) {
        self.version.0.lock().is_expected = true;
    }

    /// Notes what the upstream said, `None` when it did not say; true when the version is
    /// another one than before. An upstream that does not say keeps the version that it told.
    pub fn note_client_version(&self, said: Option<&str>) -> bool {
        let printable = |said: &str| -> String {
            let chars = said.chars().filter(|c| (' '..='~').contains(c));
            chars.take(CLIENT_VERSION_BYTES_MAX).collect()
        };
        let version = said.map(printable).filter(|version| !version.trim().is_empty());
        let mut known = self.version.0.lock();
        known.is_expected = false;
        match version {
            Some(version) if known.version.as_deref() != Some(&*version) => {
                known.version = Some(version.into());
                true
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;
    use crate::{BreakerBounds, Identity, MethodRules, Slot, Tier, UpstreamId};

    fn upstream() -> Upstream {
        let identity = Identity {
            id: UpstreamId::new("a"),
            tier: Tier::Primary,
            labels: BTreeMap::new(),
            methods: MethodRules::default(),
            provider: None,
            attempt: None,
            lag_blocks_max: None,
        };
        #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
        Upstream::new(identity, Slot(0), BreakerBounds::default(), Instant::now())
    }

    #[track_caller]
    fn check(said: &str, kept: Option<&str>) {
        let upstream = upstream();
        assert_eq!(upstream.note_client_version(Some(said)), kept.is_some(), "{said:?}");
        assert_eq!(upstream.client_version().as_deref(), kept, "{said:?}");
    }

    #[test]
    fn a_version_is_short_and_printable() {
        check(
            "Geth/v1.17.5-stable/linux-amd64/go1.25",
            Some("Geth/v1.17.5-stable/linux-amd64/go1.25"),
        );
        check("a\r\nx: y\u{7f}é", Some("ax: y"));
        check("", None);
        check(" \n", None);
        check(&"x".repeat(500), Some(&"x".repeat(CLIENT_VERSION_BYTES_MAX)));
    }

    #[test]
    fn a_version_is_news_once_and_outlives_a_refusal() {
        let upstream = upstream();
        assert!(!upstream.expects_client_version(), "nobody asks");
        upstream.expect_client_version();
        assert!(upstream.expects_client_version());
        assert!(upstream.note_client_version(Some("a/1")));
        assert!(!upstream.note_client_version(Some("a/1")));
        upstream.expect_client_version();
        assert!(!upstream.expects_client_version(), "the version before serves meanwhile");
        assert!(!upstream.note_client_version(None));
        assert_eq!(upstream.client_version().as_deref(), Some("a/1"));
        assert!(upstream.note_client_version(Some("a/2")));
    }
}
