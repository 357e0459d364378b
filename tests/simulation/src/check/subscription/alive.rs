//! A subscription is never silent while the chain grows: its client is told, or the connection is closed
//! with a code.
//!
//! Judged wherever one upstream is well for long enough, whatever the others do, and of heads alone: logs
//! follow them, see `logs_exact`. Left out: times in which an upstream shows an older block than others, whose
//! word holds the agreed head down, see [`wellhead_chain`].

use std::time::Duration;

use super::Heard;
use super::stream::{Stream, left_at, made};
use crate::check::Finding;
use crate::evidence::At;

/// So long after it was made a block is told at the latest, and so many block times.
const SILENT_MAX: Duration = Duration::from_secs(30);
const SILENT_BLOCKS_MAX: u32 = 2;

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (chain, plan) in heard.evidence.scenario.chains.iter().enumerate() {
        let within = SILENT_MAX + plan.world.block_time * SILENT_BLOCKS_MAX;
        for (at, number, hash) in made(heard.evidence, chain) {
            let by = at + within;
            let stays = left_at(heard.evidence, chain, hash, at).is_none_or(|left| left > by);
            if at.is_zero() || !stays || heard.is_held_down(chain, at, by) {
                continue;
            }
            if !heard.is_one_well(chain, at, by) {
                continue;
            }
            let listening = heard.head_streams(chain).filter(|it| it.listens(at, by));
            let silent = listening.filter(|it| !is_told(it, number, at, by));
            findings.extend(silent.map(|it| (by, format!("{}: silent at {number}", it.name()))));
        }
    }
    findings
}

/// Whether it was told of a block of this height or above.
fn is_told(stream: &Stream<'_>, number: u64, from: At, by: At) -> bool {
    let told = stream.heads().iter().filter(|it| it.at <= by);
    // A subscription that begins when the block is there may stand on it.
    let may_stand_on_it = stream.since + SILENT_MAX > from;
    told.clone().any(|it| it.notice.number >= number) || (may_stand_on_it && told.count() == 0)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{OPENED, block, evidence, heads};
    use super::*;
    use crate::weather::{Kind, Spell};

    /// Block `9a` is made so many seconds after the connection was opened.
    fn check(told: &str, made: u64, spell: Option<Spell>, found: usize) {
        let mut evidence = evidence(vec![heads(told)]);
        let (number, hash) = block("9a");
        evidence.scenario.chains[0].world.block_time = Duration::from_secs(1);
        evidence.scenario.chains[0].upstreams[0].spells.extend(spell);
        evidence.heights[0].push((OPENED + Duration::from_secs(made), number));
        evidence.blocks[0].insert(number, vec![hash]);
        assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{told}, made at {made}");
    }

    #[test]
    fn silence_is_seen() {
        check("7a 8a 9a", 3, None, 0);
        check("7a 8a", 3, None, 1);
        // A reorg took it along.
        check("7a 8a 10b", 3, None, 0);
        let until = OPENED + Duration::from_secs(60);
        let spell = |kind| Some(Spell { from: OPENED, until, kind });
        check("7a 8a", 3, spell(Kind::Stuck), 0);
        check("7a 8a", 3, spell(Kind::Crash), 0);
    }
}
