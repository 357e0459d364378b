//! What the software behind an upstream calls itself (`web3_clientVersion`).
//!
//! `watch` asks for it when it verifies the upstream and when the upstream is back after a
//! rest, since another node may answer there then; everything else reads what is remembered.

use std::sync::Arc;

use parking_lot::Mutex;

/// A longer version is cut: it goes to logs, pages and clients.
pub(crate) const CLIENT_VERSION_BYTES_MAX: usize = 128;

/// What is known of the version of one upstream.
#[derive(Debug, Default)]
pub(crate) struct VersionCell(Mutex<KnownVersion>);

#[derive(Debug, Default)]
struct KnownVersion {
    version: Option<Arc<str>>,
    is_expected: bool,
}

impl VersionCell {
    pub(crate) fn read(&self) -> Option<Arc<str>> {
        self.0.lock().version.clone()
    }

    pub(crate) fn is_expected(&self) -> bool {
        let known = self.0.lock();
        known.is_expected && known.version.is_none()
    }

    pub(crate) fn expect(&self) {
        self.0.lock().is_expected = true;
    }

    /// True when the version is another one than before.
    pub(crate) fn note(&self, said: Option<&str>) -> bool {
        let printable = |said: &str| -> String {
            let chars = said.chars().filter(|c| (' '..='~').contains(c));
            chars.take(CLIENT_VERSION_BYTES_MAX).collect()
        };
        let version = said.map(printable).filter(|version| !version.trim().is_empty());
        let mut known = self.0.lock();
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
    use super::*;

    #[track_caller]
    fn check(said: &str, kept: Option<&str>) {
        let cell = VersionCell::default();
        assert_eq!(cell.note(Some(said)), kept.is_some(), "{said:?}");
        assert_eq!(cell.read().as_deref(), kept, "{said:?}");
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
        let cell = VersionCell::default();
        assert!(!cell.is_expected(), "no call asks");
        cell.expect();
        assert!(cell.is_expected());
        assert!(cell.note(Some("a/1")));
        assert!(!cell.note(Some("a/1")));
        cell.expect();
        assert!(!cell.is_expected(), "the version before serves meanwhile");
        assert!(!cell.note(None));
        assert_eq!(cell.read().as_deref(), Some("a/1"));
        assert!(cell.note(Some("a/2")));
    }
}
