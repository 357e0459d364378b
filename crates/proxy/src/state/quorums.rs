//! Which methods several upstreams must answer alike.

use wellhead_chain::{Tag, View};
use wellhead_dispatch::{Ballot, Quorum};
use wellhead_eth::{BlockRef, Effect, Finality, MethodGlob, MethodRow, MethodTable};

/// The method whose largest answer is the truest while the block is open: each pool knows
/// some of what was sent.
const NONCE: &str = "eth_getTransactionCount";

/// Some methods, and how many upstreams must answer them alike.
#[derive(Debug, Clone)]
pub struct QuorumRule {
    /// Which.
    pub methods: Vec<MethodGlob>,
    /// How many.
    pub quorum: Quorum,
}

impl QuorumRule {
    /// Whether calls of this row can be answered by several: reads that may be asked again and
    /// whose answer is the chain's, not the upstream's own.
    pub fn is_possible(row: &MethodRow) -> bool {
        row.effect == Effect::Read && row.idempotent && row.finality != Finality::Live
    }
}

/// The rules of a chain, by row of the method table.
#[derive(Debug, Default)]
pub(crate) struct Quorums(Box<[Option<Quorum>]>);

impl Quorums {
    /// Of several rules for a method the first counts.
    pub(crate) fn new(rules: &[QuorumRule]) -> Self {
        if rules.is_empty() {
            return Self::default();
        }
        let rule = |row: &MethodRow| {
            let matches = |rule: &&QuorumRule| rule.methods.iter().any(|it| it.matches(row.name));
            rules.iter().find(matches).map(|rule| rule.quorum)
        };
        let rows = MethodTable::standard().rows().iter();
        Self(rows.map(|row| rule(row).filter(|_| QuorumRule::is_possible(row))).collect())
    }

    /// Whether there is any rule.
    pub(crate) fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// How many must answer calls of this row alike; `None`: one is enough.
    pub(crate) fn of(&self, row: &MethodRow) -> Option<Quorum> {
        self.0.get(row.index.get()).copied().flatten()
    }

    /// The quorum for one call about `block`, with how its answers are compared.
    pub(crate) fn ballot(&self, row: &MethodRow, block: &BlockRef, view: &View) -> Option<Ballot> {
        let quorum = self.of(row)?;
        let is_open = matches!(block, BlockRef::Tag(_));
        Some(Ballot {
            quorum,
            is_final: row.finality == Finality::Fixed || is_final(block, view),
            largest: row.name == NONCE && is_open,
        })
    }
}

/// Whether the blocks that a call speaks of can no longer be replaced.
fn is_final(block: &BlockRef, view: &View) -> bool {
    let newest = match block {
        BlockRef::Number(number) => Some(*number),
        block => block.heights().map(|(_, to)| to),
    };
    newest.zip(view.mark(Tag::Finalized)).is_some_and(|(newest, mark)| newest <= mark.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(methods: &[&str], agree: usize) -> QuorumRule {
        let methods = methods.iter().map(|it| it.parse().expect("a pattern")).collect();
        QuorumRule { methods, quorum: Quorum { agree, ..Quorum::default() } }
    }

    #[test]
    fn the_first_rule_counts_and_only_where_several_can_answer() {
        let rules = [rule(&["eth_getBalance"], 2), rule(&["eth_*", "net_*"], 3)];
        let quorums = Quorums::new(&rules);
        let agree = |name| quorums.of(MethodTable::standard().row(name)).map(|it| it.agree);
        assert_eq!(agree("eth_getBalance"), Some(2));
        assert_eq!(agree("eth_call"), Some(3));
        assert_eq!(agree("debug_traceCall"), None);
        // Its own, sent once, made here, or not known.
        for name in ["eth_accounts", "net_peerCount", "eth_sendRawTransaction", "eth_chainId"] {
            assert_eq!(agree(name), None, "{name}");
        }
        assert_eq!(agree("eth_newFilter"), None);
        assert_eq!(agree("eth_somethingNew"), None);
        assert_eq!(Quorums::default().of(MethodTable::standard().row("eth_call")), None);
    }

    #[test]
    fn the_largest_nonce_wins_while_the_block_is_open() {
        let quorums = Quorums::new(&[rule(&["*"], 2)]);
        let view = View::unknown(2, None, None);
        let row = MethodTable::standard().row(NONCE);
        let ballot = |params: &[u8]| {
            quorums.ballot(row, &row.block_ref(Some(params)), &view).expect("a rule")
        };
        assert!(ballot(br#"["0x1","pending"]"#).largest);
        assert!(!ballot(br#"["0x1","0x10"]"#).largest);
        assert!(!ballot(br#"["0x1","0x10"]"#).is_final);
    }
}
