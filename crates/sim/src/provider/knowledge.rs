//! Random providers that know less than others, or something else: for checks that measure
//! blind. What was drawn is in the dials.
//!
//! The limits of providers are drawn in [`super::draw`].

use rand::Rng;

use super::dial::{Falsehood, ProviderDials};
use crate::rpc::History;

/// Which dial is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub enum Matter {
    /// Blocks behind the head.
    Lag,
    /// Answers that are not so.
    Lie,
    /// What of the past is kept.
    History,
    /// Methods that are not served.
    Methods,
    /// Blocks in one search.
    LogRange,
    /// Calls in one batch.
    Batch,
    /// Nothing is missing and nothing wrong.
    Nothing,
}

wellhead_word::variants!(Matter);

/// About which a drawn provider may lie.
const LIED_ABOUT: [&str; 10] = [
    "eth_getBalance",
    "eth_getTransactionCount",
    "eth_getStorageAt",
    "eth_getCode",
    "eth_call",
    "eth_getLogs",
    "eth_getBlockByNumber",
    "eth_getBlockReceipts",
    "eth_getTransactionReceipt",
    "eth_getTransactionByHash",
];

/// What a drawn provider may not serve.
const UNSERVED: [&str; 10] = [
    "eth_createAccessList",
    "eth_getBlockReceipts",
    "eth_feeHistory",
    "eth_getHeaderByNumber",
    "eth_getRawTransactionByHash",
    "eth_getUncleCountByBlockNumber",
    "eth_syncing",
    "net_*",
    "txpool_*",
    "web3_sha3",
];

impl ProviderDials {
    /// A provider with one random dial of what it knows.
    ///
    /// - Lag: 1 to 6 blocks.
    /// - Lie: about one to four methods, in 5 to 40 % of their calls.
    /// - History: states, bodies or both of 4 to 500 blocks, small numbers as likely as large.
    /// - Methods: one to six that are not served, some of them whole namespaces.
    /// - Log range: 2 to 500 blocks.
    /// - Batch: 1 to 100 calls.
    pub fn draw_knowledge(rng: &mut impl Rng, matter: Matter) -> Self {
        let mut dials = Self::draw_latency(rng);
        match matter {
            Matter::Lag => dials.lag_blocks = rng.random_range(1..=6),
            Matter::Lie => {
                let methods = some_of(&LIED_ABOUT, 4, rng);
                let percent = f64::from(rng.random_range(5..=40u32));
                dials.lie = Some(Falsehood { methods, percent, seed: rng.random() });
            }
            Matter::History => {
                let depth =
                    |rng: &mut dyn rand::RngCore| (4.0 * 125f64.powf(rng.random::<f64>())) as u64;
                let (state, body) = (depth(rng), depth(rng));
                let which = rng.random_range(0..3);
                dials.history = History {
                    state_blocks: (which != 0).then_some(state),
                    body_blocks: (which != 1).then_some(body),
                };
            }
            Matter::Methods => dials.unsupported = some_of(&UNSERVED, 6, rng),
            Matter::LogRange => {
                let range = 2.0 * 250f64.powf(rng.random::<f64>());
                dials.log_range_max = Some(range as u64);
            }
            Matter::Batch => dials.batch_max = Some(rng.random_range(1..=100)),
            Matter::Nothing => {}
        }
        dials
    }
}

fn some_of(names: &[&str], most: usize, rng: &mut impl Rng) -> Vec<String> {
    let count = rng.random_range(1..=most);
    let first = rng.random_range(0..names.len());
    // Steps of three reach all of them, for three does not divide their number.
    let nth = |n: usize| names[(first + 3 * n) % names.len()].to_owned();
    (0..count).map(nth).collect()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn drawn(matter: Matter) -> Vec<ProviderDials> {
        let draw = |seed| ProviderDials::draw_knowledge(&mut SmallRng::seed_from_u64(seed), matter);
        (0..200).map(draw).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        for matter in Matter::ALL {
            assert_eq!(drawn(matter), drawn(matter));
        }
    }

    #[test]
    fn one_dial_is_turned_and_no_other() {
        for matter in Matter::ALL {
            for mut dials in drawn(matter) {
                let turned = match matter {
                    Matter::Lag => std::mem::take(&mut dials.lag_blocks) > 0,
                    Matter::Lie => dials.lie.take().is_some_and(|lie| !lie.methods.is_empty()),
                    Matter::History => std::mem::take(&mut dials.history) != History::default(),
                    Matter::Methods => !std::mem::take(&mut dials.unsupported).is_empty(),
                    Matter::LogRange => dials.log_range_max.take() >= Some(2),
                    Matter::Batch => dials.batch_max.take() >= Some(1),
                    Matter::Nothing => true,
                };
                let ProviderDials { seed, latency, .. } = dials;
                let rest = ProviderDials { seed, latency, ..ProviderDials::default() };
                assert!(turned && dials == rest, "{matter:?}: {dials:?}");
            }
        }
    }

    #[test]
    fn names_are_drawn_once() {
        for dials in drawn(Matter::Methods) {
            let mut names = dials.unsupported.clone();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), dials.unsupported.len());
        }
    }
}
