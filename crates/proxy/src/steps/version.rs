//! What clients hear when they ask for the version of the client (`web3_clientVersion`).
//!
//! Tools recognise nodes by the beginning of that text: Hardhat's helpers and OpenZeppelin's
//! plugins take `HardhatNetwork/...` and `anvil/...` for test chains, load tools label their
//! results with `Geth/...` or `reth/...`. So clients hear what an upstream told when it was
//! verified (`watch`), and our own name after it, as the products of a `User-Agent` are
//! listed: `Geth/v1.17.5-stable/linux-amd64/go1.25 wellhead/v0.1.0`. No call goes upstream
//! for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_dispatch::now;
use wellhead_jsonrpc::write;
use wellhead_upstream::{Condition, Upstream};

use crate::state::chain::{ClientVersion, ServedChain};

/// What this proxy calls itself.
const OWN_VERSION: &str = concat!("wellhead/v", env!("CARGO_PKG_VERSION"));

/// A call that comes with the start waits this long for the first upstream to tell its version.
const TELL_WAIT: Duration = Duration::from_secs(1);

/// The answer, as raw JSON.
pub(crate) async fn client_version(chain: &ServedChain, deadline: Instant) -> String {
    let until = deadline.min(now() + TELL_WAIT);
    loop {
        // Made before the look, so that a version that is told in between is not missed.
        let told = chain.pulse.verified();
        let upstreams = match chain.client_version {
            ClientVersion::Own => &[],
            ClientVersion::Upstream => chain.roster.upstreams(),
        };
        let version = version_of(upstreams, now());
        if version.is_some() || !is_expected(upstreams) || now() >= until {
            return worded(version.as_deref());
        }
        // At the end of the wait the look decides.
        let _ = tokio::time::timeout_at(until.into(), told).await;
    }
}

/// The version of the first upstream that is ready; of the first that told one while none of
/// them is. By the order of the settings, so that it stays while upstreams are as they are.
fn version_of(upstreams: &[Arc<Upstream>], now: Instant) -> Option<Arc<str>> {
    let told = || upstreams.iter().filter(|upstream| upstream.client_version().is_some());
    let ready = told().find(|upstream| upstream.condition(now) == Condition::Ready);
    ready.or_else(|| told().next())?.client_version()
}

/// Whether an upstream that has not failed yet is about to tell its version.
fn is_expected(upstreams: &[Arc<Upstream>]) -> bool {
    upstreams.iter().any(|it| it.expects_client_version() && it.last_problem().is_none())
}

fn worded(upstream: Option<&str>) -> String {
    let text = match upstream {
        // Another wellhead behind this one has said it already.
        Some(version) if version.ends_with(OWN_VERSION) => version.to_owned(),
        Some(version) => format!("{version} {OWN_VERSION}"),
        None => OWN_VERSION.to_owned(),
    };
    let mut json = Vec::with_capacity(text.len() + 2);
    write::string(&mut json, &text);
    String::from_utf8(json).expect("a JSON string of a string is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(upstream: Option<&str>, expected: &str) {
        assert_eq!(worded(upstream), format!("\"{expected}\""));
    }

    #[test]
    fn our_name_comes_last() {
        check(None, OWN_VERSION);
        check(
            Some("Geth/v1.17.5-stable/linux-amd64/go1.25.1"),
            &format!("Geth/v1.17.5-stable/linux-amd64/go1.25.1 {OWN_VERSION}"),
        );
        check(Some(&format!("anvil/v1.5.0 {OWN_VERSION}")), &format!("anvil/v1.5.0 {OWN_VERSION}"));
        check(Some("a\"b"), &format!("a\\\"b {OWN_VERSION}"));
    }

    /// What tools look for; each with where that is written.
    #[test]
    fn tools_recognise_the_upstream() {
        let told = |version| worded(Some(version)).trim_matches('"').to_owned();
        let dev = ["HardhatNetwork/2.26.0/@ethereumjs/vm/5.9.3", "anvil/v1.5.0"];
        for version in dev {
            let told = told(version);
            // OpenZeppelin upgrades-core, `isDevelopmentNetwork`: the name before the first `/`.
            let name = told.split('/').next().unwrap();
            assert!(["HardhatNetwork", "anvil"].contains(&name), "{told}");
            // Hardhat network helpers: how it begins, in lower case.
            let lower = told.to_lowercase();
            assert!(lower.starts_with("hardhatnetwork") || lower.starts_with("anvil"), "{told}");
        }
        for version in ["Geth/v1.17.5-stable-1a2b3c4d/linux-amd64/go1.25.1", "reth/v1.9.0-x/y"] {
            let told = told(version);
            // Load tools and crawlers: name and number are the first two pieces.
            let pieces: Vec<&str> = told.split('/').take(2).collect();
            assert_eq!(pieces, version.split('/').take(2).collect::<Vec<_>>(), "{told}");
        }
    }
}
