//! What subscribers hear, judged by a table of checkers that share one reading of their connections.
//!
//! Each row is a promise of `docs/websocket.md`. A checker sees what crossed the connections, the worlds
//! and what upstreams received, and nothing that the proxy said of itself.

mod alive;
mod consistent;
mod filters_exact;
mod fresh;
mod heads_linked;
mod isolation;
mod logs_exact;
mod no_leak;
mod order;
mod pending_once;
mod protocol;
#[cfg(test)]
mod sample;
mod spend;
mod stream;

use std::time::Duration;

use crate::check::wellness::Wellness;
use crate::check::{Finding, Violation};
use crate::evidence::{At, Evidence, Place};
use crate::scenario::UpstreamPlan;
use crate::weather::Kind;
use alloy_primitives::B256;
use stream::Stream;

/// The word of an upstream that shows an older block than others holds the agreed head down for no longer.
const HELD_DOWN_MAX: Duration = Duration::from_secs(30);

/// What the checkers look at.
pub(super) struct Heard<'a> {
    evidence: &'a Evidence,
    wellness: Wellness,
    /// In the order in which they were answered, connection by connection.
    streams: Vec<Stream<'a>>,
}

/// A checker and its name.
type Row = (&'static str, fn(&Heard<'_>) -> Vec<Finding>);

const ROWS: [Row; 12] = [
    ("heads_linked", heads_linked::check),
    ("logs_exact", logs_exact::check),
    ("filters_exact", filters_exact::check),
    ("order", order::check),
    ("consistent", consistent::check),
    ("fresh", fresh::check),
    ("isolation", isolation::check),
    ("spend", spend::check),
    ("no_leak", no_leak::check),
    ("protocol", protocol::check),
    ("alive", alive::check),
    ("pending_once", pending_once::check),
];

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if evidence.sessions.is_empty() {
        return Vec::new();
    }
    let heard = Heard::of(evidence);
    let findings = ROWS.iter().flat_map(|(checker, check)| {
        check(&heard).into_iter().map(|(at, what)| Violation { checker, at, what })
    });
    findings.collect()
}

impl<'a> Heard<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let streams = evidence.sessions.iter().enumerate();
        let streams = streams.flat_map(|(number, session)| Stream::all_of(number, session));
        let streams = streams.collect();
        Self { evidence, wellness: Wellness::of(evidence), streams }
    }

    /// The streams of heads of a chain.
    fn head_streams(&self, chain: usize) -> impl Iterator<Item = &Stream<'a>> {
        self.streams.iter().filter(move |it| it.session.chain == chain && it.is_of_heads())
    }

    /// The streams of logs of a chain.
    fn log_streams(&self, chain: usize) -> impl Iterator<Item = &Stream<'a>> {
        self.streams.iter().filter(move |it| it.session.chain == chain && it.is_of_logs())
    }

    /// How often a block was announced: more than once where upstreams left its branch and came back.
    fn times_announced(&self, chain: usize, hash: B256) -> usize {
        let told = |stream: &Stream<'_>| {
            stream.heads().iter().filter(|head| head.notice.hash == hash).count()
        };
        self.head_streams(chain).map(told).max().unwrap_or(0)
    }

    /// The upstreams of a chain.
    fn places(&self, chain: usize) -> impl Iterator<Item = (Place, &'a UpstreamPlan)> {
        let upstreams = self.evidence.scenario.chains[chain].upstreams.iter().enumerate();
        upstreams.map(move |(slot, plan)| (Place { chain, slot }, plan))
    }

    /// Whether all upstreams of a chain are well between two moments.
    fn are_all_well(&self, chain: usize, from: At, until: At) -> bool {
        self.places(chain).all(|(place, _)| self.wellness.is_well(place, from, until))
    }

    /// Whether one is.
    fn is_one_well(&self, chain: usize, from: At, until: At) -> bool {
        self.places(chain).any(|(place, _)| self.wellness.is_well(place, from, until))
    }

    /// Whether an upstream shows an older block than others for a while.
    fn is_held_down(&self, chain: usize, from: At, until: At) -> bool {
        let since = from.saturating_sub(HELD_DOWN_MAX);
        self.places(chain).any(|(_, plan)| {
            plan.spells.iter().any(|spell| {
                matches!(spell.kind, Kind::Lag(_) | Kind::Stuck | Kind::Syncing)
                    && spell.from <= until
                    && spell.until >= since
            })
        })
    }
}
