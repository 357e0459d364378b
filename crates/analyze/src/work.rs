//! What is asked: calls, drawn from a seed.
//!
//! All of it is public knowledge of any chain, so that nothing has to be configured. What an
//! answer should say is none of this module's business.

use rand::Rng;

use crate::call_list::{CallList, ListedCall};

/// Blocks below the head from which random ones are taken: every node has those.
const RECENT: u64 = 100;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkCall {
    /// The method.
    pub method: &'static str,
    /// Its parameters, as JSON.
    pub params: String,
}

impl WorkCall {
    /// A call without parameters.
    pub fn bare(method: &'static str) -> Self {
        Self { method, params: "[]".to_owned() }
    }

    /// The request's body.
    pub fn body(&self, id: u64) -> String {
        let Self { method, params } = self;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }
}

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// `eth_blockNumber`: as cheap as a call gets.
    Cheap,
    /// Blocks of late, without their transactions.
    SmallBlocks,
    /// Blocks of late with all transactions: some hundred kilobytes each on a busy chain.
    LargeBlocks,
    /// What dapps, wallets and indexers ask, in [`MIX`].
    Mix,
    /// One method of [`METHODS`].
    Only(&'static str),
    /// Calls of a list, drawn from it.
    Listed(&'static CallList),
    /// Calls of a list, in its order.
    Replayed(&'static CallList),
}

/// What a target is asked first: its chain, its head, its client.
pub const GREETING: [&str; 3] = ["eth_chainId", "eth_blockNumber", "web3_clientVersion"];

/// Methods that [`WorkKind::Only`] can ask: of public knowledge, cheap for the target that answers.
pub const METHODS: [&str; 10] = [
    "eth_chainId",
    "eth_blockNumber",
    "eth_gasPrice",
    "eth_getBalance",
    "eth_getTransactionCount",
    "eth_getCode",
    "eth_getBlockByNumber",
    "eth_call",
    "eth_getLogs",
    "eth_feeHistory",
];

/// Whether `null` is an answer to it: a block may not be there yet. A target without a height, a
/// balance or a price answers nothing. Of methods that are not measured with that is not known.
pub(crate) fn may_be_null(method: &str) -> bool {
    method == "eth_getBlockByNumber" || !METHODS.contains(&method)
}

/// Shares of the methods of [`WorkKind::Mix`], in percent. Ours: no provider publishes its own.
pub const MIX: [(&str, u32); 9] = [
    ("eth_call", 25),
    ("eth_getBalance", 15),
    ("eth_blockNumber", 15),
    ("eth_getBlockByNumber", 15),
    ("eth_getTransactionCount", 10),
    ("eth_getLogs", 8),
    ("eth_gasPrice", 5),
    ("eth_getCode", 5),
    ("eth_feeHistory", 2),
];

impl WorkKind {
    /// For people and factors.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::SmallBlocks => "small",
            Self::LargeBlocks => "large",
            Self::Mix => "mix",
            Self::Only(method) => method,
            Self::Listed(_) => "listed",
            Self::Replayed(_) => "replayed",
        }
    }

    /// Methods that it may ask, for a prediction of what it costs.
    pub fn methods(self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Cheap => vec![("eth_blockNumber", 1.0)],
            Self::SmallBlocks | Self::LargeBlocks => vec![("eth_getBlockByNumber", 1.0)],
            Self::Only(method) => vec![(method, 1.0)],
            Self::Listed(list) | Self::Replayed(list) => list.methods(),
            Self::Mix => {
                MIX.iter().map(|(name, share)| (*name, f64::from(*share) / 100.0)).collect()
            }
        }
    }

    /// Call number `n` of a cell, from 0, of a chain that had its head at `head`.
    pub fn next(self, n: u64, head: u64, rng: &mut impl Rng) -> WorkCall {
        match self {
            Self::Cheap => WorkCall::bare("eth_blockNumber"),
            Self::SmallBlocks => block(head, false, rng),
            Self::LargeBlocks => block(head, true, rng),
            Self::Mix => mixed(head, rng),
            Self::Only(method) => only(method, head, rng),
            Self::Listed(list) => {
                let at = rng.random_range(0..list.calls().len());
                list.calls()[at].to_work(head, rng)
            }
            Self::Replayed(list) => {
                let at = usize::try_from(n).unwrap_or(usize::MAX) % list.calls().len();
                list.calls()[at].to_work(head, rng)
            }
        }
    }
}

impl ListedCall {
    fn to_work(&self, head: u64, rng: &mut impl Rng) -> WorkCall {
        match &self.params {
            Some(params) => WorkCall { method: self.method, params: params.clone() },
            None => only(self.method, head, rng),
        }
    }
}

fn recent(head: u64, rng: &mut impl Rng) -> u64 {
    rng.random_range(head.saturating_sub(RECENT)..=head)
}

fn block(head: u64, full: bool, rng: &mut impl Rng) -> WorkCall {
    let params = format!(r#"["0x{:x}",{full}]"#, recent(head, rng));
    WorkCall { method: "eth_getBlockByNumber", params }
}

fn address(rng: &mut impl Rng) -> String {
    format!("0x{:08x}{:016x}{:016x}", rng.random::<u32>(), rng.random::<u64>(), rng.random::<u64>())
}

fn mixed(head: u64, rng: &mut impl Rng) -> WorkCall {
    let mut drawn = rng.random_range(0..100);
    let mut method = MIX[0].0;
    for (name, share) in MIX {
        method = name;
        if drawn < share {
            break;
        }
        drawn -= share;
    }
    only(method, head, rng)
}

fn only(method: &'static str, head: u64, rng: &mut impl Rng) -> WorkCall {
    let params = match method {
        "eth_call" => format!(r#"[{{"to":"{}","data":"0x06fdde03"}},"latest"]"#, address(rng)),
        "eth_getBalance" | "eth_getTransactionCount" | "eth_getCode" => {
            format!(r#"["{}","latest"]"#, address(rng))
        }
        "eth_getBlockByNumber" => return block(head, false, rng),
        "eth_getLogs" => {
            let at = recent(head, rng);
            format!(
                r#"[{{"fromBlock":"0x{at:x}","toBlock":"0x{at:x}","address":"{}"}}]"#,
                address(rng)
            )
        }
        "eth_feeHistory" => r#"["0x5","latest",[50]]"#.to_owned(),
        _ => "[]".to_owned(),
    };
    WorkCall { method, params }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn all() -> Vec<WorkKind> {
        let several =
            [WorkKind::Cheap, WorkKind::SmallBlocks, WorkKind::LargeBlocks, WorkKind::Mix];
        several.into_iter().chain(METHODS.map(WorkKind::Only)).collect()
    }

    #[test]
    fn a_seed_draws_the_same_calls() {
        for work in all() {
            let draw = |seed| {
                let mut rng = SmallRng::seed_from_u64(seed);
                (0..50).map(|_| work.next(0, 1_000, &mut rng)).collect::<Vec<_>>()
            };
            assert_eq!(draw(7), draw(7), "{}", work.word());
        }
    }

    #[test]
    fn bodies_are_calls_and_name_only_methods_that_are_costed() {
        let mut rng = SmallRng::seed_from_u64(1);
        for work in all() {
            let costed: Vec<&str> = work.methods().iter().map(|(name, _)| *name).collect();
            for _ in 0..200 {
                // A head of zero is a chain without a past.
                let ask = work.next(0, 0, &mut rng);
                let body: serde_json::Value =
                    serde_json::from_str(&ask.body(1)).expect("valid JSON");
                assert!(body["params"].is_array(), "{body}");
                assert!(costed.contains(&ask.method), "{}", ask.method);
            }
        }
    }

    #[test]
    fn the_mix_is_whole_and_drawn_by_its_shares() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let mut rng = SmallRng::seed_from_u64(3);
        let drawn: Vec<WorkCall> =
            (0..20_000).map(|_| WorkKind::Mix.next(0, 50, &mut rng)).collect();
        for (name, share) in MIX {
            let seen = drawn.iter().filter(|ask| ask.method == name).count() as f64 / 200.0;
            assert!((seen - f64::from(share)).abs() < 1.5, "{name}: {seen} % for {share} %");
        }
    }
}
