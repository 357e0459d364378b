//! One chain as the proxy serves it, and finding it by what a client calls it.

use std::collections::HashMap;
use std::sync::Arc;

use wellhead_cache::{Assurance, Scrutiny};
use wellhead_chain::Heads;
use wellhead_dispatch::{Bounds, Inspect, Trail};
use wellhead_eth::{ChainId, MethodRow};
use wellhead_route::{NotServed, Roster, TEST_CHAINS};
use wellhead_upstream::{Slot, UpstreamSet};
use wellhead_watch::{Asked, Pulse};

use crate::by_hash::ByHash;
use crate::hopeless::Hopeless;
use crate::kept::{Cache, Found, Shares};
use crate::metrics::Counts;
use crate::quorum::{QuorumRule, Quorums};
use crate::search::SearchBounds;
use crate::sent::Sent;
use crate::session::Sessions;
use crate::verify::{Aside, Verifier, VerifySettings};
use crate::version::ClientVersion;

/// What a chain is called in a path: its name and its other names.
#[derive(Debug, Clone)]
pub struct ChainName {
    /// The name of the settings.
    pub name: Arc<str>,
    /// Other names that lead here.
    pub aliases: Vec<String>,
}

/// Everything that serving one chain needs. Shared by all workers.
#[derive(Debug)]
pub struct ServedChain {
    /// What it is called.
    pub name: ChainName,
    /// Its upstreams, and who serves what.
    pub roster: Roster,
    /// What is believed of it.
    pub heads: Arc<Heads>,
    /// What the loops and the requests tell each other.
    pub pulse: Arc<Pulse>,
    /// The calls made on our own behalf, by slot.
    pub asked: Vec<Arc<Asked>>,
    /// How long and how often.
    pub bounds: Bounds,
    /// How far searches over many blocks may be divided.
    pub search: SearchBounds,
    /// Whether tags are replaced by the numbers of the agreed blocks, and each client is
    /// answered at what it was shown.
    pub pins: bool,
    /// Whose version clients hear.
    pub(crate) client_version: ClientVersion,
    /// Which methods several upstreams must answer alike.
    pub(crate) quorums: Quorums,
    /// What it keeps and shares, if anything.
    pub(crate) shares: Option<Shares>,
    /// Whether states may be asked for by the hash of their block.
    pub(crate) by_hash: ByHash,
    /// What clients were shown.
    pub(crate) sessions: Sessions,
    /// What they sent.
    pub(crate) sent: Sent,
    /// Looks at answers, if anybody does.
    pub(crate) verifier: Option<Arc<Verifier>>,
    /// Searches that take too many calls.
    pub(crate) hopeless: Hopeless,
    counts: Counts,
}

impl ServedChain {
    /// Puts the parts together.
    pub fn new(
        name: ChainName,
        roster: Roster,
        heads: Arc<Heads>,
        pulse: Arc<Pulse>,
        asked: Vec<Arc<Asked>>,
        bounds: Bounds,
    ) -> Self {
        let counts = Counts::new(roster.upstreams().len());
        let by_hash = ByHash::new(roster.upstreams().len());
        Self {
            name,
            roster,
            heads,
            pulse,
            asked,
            bounds,
            search: SearchBounds::default(),
            pins: false,
            client_version: ClientVersion::default(),
            quorums: Quorums::default(),
            shares: None,
            by_hash,
            sessions: Sessions::default(),
            sent: Sent::default(),
            verifier: None,
            hopeless: Hopeless::default(),
            counts,
        }
    }

    /// With these bounds on how far searches are divided.
    #[must_use]
    pub fn searching(self, search: SearchBounds) -> Self {
        Self { search, ..self }
    }

    /// Whether tags are replaced by the numbers of the agreed blocks; by default they are not.
    #[must_use]
    pub fn pinning(self, pins: bool) -> Self {
        Self { pins, ..self }
    }

    /// With the version that clients hear; by default an upstream's.
    #[must_use]
    pub fn naming(self, client_version: ClientVersion) -> Self {
        Self { client_version, ..self }
    }

    /// With methods that several upstreams must answer alike; by default one is enough.
    #[must_use]
    pub fn agreeing_on(self, rules: &[QuorumRule]) -> Self {
        Self { quorums: Quorums::new(rules), ..self }
    }

    /// With answers kept here, and, where there is a seed for them, identical calls shared; by
    /// default neither is. The seed is a secret, as that of [`Cache::new`].
    #[must_use]
    pub fn sharing(self, cache: Option<Arc<Cache>>, calls: Option<u64>) -> Self {
        Self { shares: Shares::new(cache, calls), ..self }
    }

    /// With answers looked at as these settings say, those that take long `aside`; by default
    /// none are. Its lanes have to be told: [`ServedChain::inspector`].
    #[must_use]
    pub fn verifying(self, settings: &VerifySettings, aside: Arc<Aside>) -> Self {
        let verifier = Verifier::new(settings, Arc::clone(&self.pulse), aside);
        Self { verifier: verifier.map(Arc::new), ..self }
    }

    /// Whoever looks at answers, for the lanes of this chain.
    pub fn inspector(&self) -> Option<Arc<dyn Inspect>> {
        let verifier = self.verifier.as_ref()?;
        Some(Arc::clone(verifier) as Arc<dyn Inspect>)
    }

    /// Where answers are kept.
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.shares.as_ref()?.cache.as_ref()
    }

    /// What has to stand behind an answer to this method that was kept: as much as behind one
    /// that any of the upstreams would give now.
    pub(crate) fn required(&self, row: &MethodRow) -> Assurance {
        let scrutiny = self.verifier.as_ref().map_or(Scrutiny::None, |it| it.required(row));
        let agreed = self.quorums.of(row).map_or(1, |quorum| votes(quorum.agree));
        Assurance { scrutiny, agreed }
    }

    /// What stands behind an answer that came of these attempts.
    pub(crate) fn assurance(&self, row: &MethodRow, trail: &Trail) -> Assurance {
        let scrutiny = self.verifier.as_ref().map_or(Scrutiny::None, |it| it.made(row, trail));
        let agreed = trail.heard.map_or(1, |heard| votes(heard.agreed));
        Assurance { scrutiny, agreed }
    }

    /// What stands behind an answer to a call that this upstream was sent once, judged by this
    /// rule.
    pub(crate) fn assurance_of(
        &self,
        row: &MethodRow,
        slot: Slot,
        rule: &'static str,
    ) -> Assurance {
        let verifier = self.verifier.as_ref();
        let scrutiny = verifier.map_or(Scrutiny::None, |it| it.made_of(row, slot, rule));
        Assurance { scrutiny, ..Assurance::WORD }
    }

    /// Counts what the cache had for a call, and what that saved.
    pub(crate) fn note_found(&self, row: &MethodRow, found: Found) {
        self.counts.found(found);
        match found {
            Found::Hit | Found::Joined => self.counts.saved(self.least_credits(row)),
            Found::Miss => {}
        }
    }

    /// The least that a call of this method costs at any upstream of the chain.
    fn least_credits(&self, row: &MethodRow) -> u64 {
        let prices = self.roster.upstreams().iter().map(|upstream| upstream.price(row));
        prices.min().unwrap_or(0)
    }

    /// Who may be asked for `method` by the settings. What uses keys or cheats is allowed on a
    /// test chain where they say so; while the chain's id is not known it is none.
    pub(crate) fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        let roster = &self.roster;
        match roster.eligible(row, method) {
            Err(NotServed::Dangerous(access))
                if roster.allows_on_test_chains(access)
                    && self.pulse.chain_id().is_some_and(|id| TEST_CHAINS.contains(&id)) =>
            {
                roster.eligible_on_test_chain(method)
            }
            eligible => eligible,
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn votes(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

/// The place of a chain in the proxy's list, and of its lane in a worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChainIndex(pub(crate) usize);

/// Finds chains by name, alias or id.
#[derive(Debug)]
pub(crate) struct Directory {
    by_name: HashMap<String, ChainIndex>,
}

impl Directory {
    pub(crate) fn new(chains: &[Arc<ServedChain>]) -> Self {
        let mut by_name = HashMap::new();
        for (index, chain) in chains.iter().enumerate() {
            let names = chain.name.aliases.iter().cloned().chain([chain.name.name.to_string()]);
            by_name.extend(names.map(|name| (name, ChainIndex(index))));
        }
        Self { by_name }
    }

    /// `None` in the path is the only chain there is. Ids are asked last, since one
    /// may only be found out while running.
    pub(crate) fn find(
        &self,
        chains: &[Arc<ServedChain>],
        named: Option<&str>,
    ) -> Result<ChainIndex, NoSuchChain> {
        let Some(named) = named else {
            return match chains.len() {
                1 => Ok(ChainIndex(0)),
                _ => Err(NoSuchChain::NotNamed),
            };
        };
        if let Some(index) = self.by_name.get(named) {
            return Ok(*index);
        }
        let id = parse_id(named).ok_or(NoSuchChain::Unknown)?;
        let with_id = |chain: &Arc<ServedChain>| chain.pulse.chain_id() == Some(id);
        if let Some(place) = chains.iter().position(with_id) {
            return Ok(ChainIndex(place));
        }
        match chains.iter().all(|chain| chain.pulse.chain_id().is_some()) {
            true => Err(NoSuchChain::Unknown),
            false => Err(NoSuchChain::NotYetKnown),
        }
    }
}

/// A chain id in digits, or in hex after `0x`.
fn parse_id(text: &str) -> Option<ChainId> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    // The library's parser would take a sign too.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok().map(ChainId)
}

/// Why a path leads to no chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSuchChain {
    /// The path names none and there are several.
    NotNamed,
    /// The name is not known.
    Unknown,
    /// It is a chain id, and some chain has not found out its own yet.
    NotYetKnown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_digits_or_hex() {
        let check = |text, id: Option<u64>| assert_eq!(parse_id(text), id.map(ChainId), "{text}");
        check("1", Some(1));
        check("0x1", Some(1));
        check("0xaA36a7", Some(11_155_111));
        check("11155111", Some(11_155_111));
        for text in ["", "0x", "+1", "-1", "0x+1", "1 ", "a", "1_0", "18446744073709551616"] {
            check(text, None);
        }
    }
}
