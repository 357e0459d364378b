//! How the healthy upstreams of one tier share the calls.
//!
//! Weighted rendezvous hashing (Thaler and Ravishankar 1998; the weights as in Schindelhauer and Schomaker
//! 2005): each caller has a distance to each upstream, `-ln(u) / weight` with `u` in (0, 1] hashed from both,
//! and its calls go to the nearest one that is fit. The distance depends on no other upstream, so where one
//! leaves only its own callers move, and where one comes it takes its share from all. It is one over all
//! replicas, too, as it depends on nothing but the names.

/// How an upstream is chosen among those that are as fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// The one with the lowest cost: its latency times the calls in flight, over its weight.
    #[default]
    Cost,
    /// Each caller has its own, so that the caches and filters of an upstream see the same callers.
    Rendezvous,
}

/// How far an upstream, by the hash of its name, is from a caller.
pub(crate) fn distance(caller: u64, upstream: u64, weight: u32) -> f64 {
    // 53 bits fit the mantissa; never zero, whose logarithm is not a number.
    let unit = ((mixed(caller ^ upstream) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(weight.max(1))
}

/// FNV-1a, which is one on all machines.
pub(crate) fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): each bit depends on all.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLERS: u64 = 20_000;

    /// Which of these each caller is nearest to.
    fn homes(upstreams: &[(&str, u32)]) -> Vec<usize> {
        let home = |caller: u64| {
            let far =
                |(name, weight): &(&str, u32)| distance(mixed(caller), name_hash(name), *weight);
            let all = upstreams.iter().map(far).enumerate();
            all.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(place, _)| place)
        };
        (1..=CALLERS).map(home).collect()
    }

    /// The percentage of callers of each.
    fn check(upstreams: &[(&str, u32)], expected: &[u64]) {
        let homes = homes(upstreams);
        for (place, expected) in expected.iter().enumerate() {
            let share = homes.iter().filter(|home| **home == place).count() as u64 * 100 / CALLERS;
            assert!(share.abs_diff(*expected) <= 1, "{upstreams:?}: {place} has {share} %");
        }
    }

    #[test]
    fn callers_are_shared_by_weight() {
        check(&[("a", 1), ("b", 1)], &[50, 50]);
        check(&[("geth-a", 1), ("geth-b", 1), ("geth-c", 1), ("geth-d", 1)], &[25, 25, 25, 25]);
        check(&[("a", 1), ("b", 3)], &[25, 75]);
        check(&[("a", 10), ("b", 20), ("c", 70)], &[10, 20, 70]);
    }

    #[test]
    fn only_the_callers_of_one_that_leaves_move() {
        let (before, after) =
            (homes(&[("a", 1), ("b", 1), ("c", 1)]), homes(&[("a", 1), ("b", 1)]));
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(before, _)| *before == 2));
        assert_eq!(moved.count(), before.iter().filter(|home| **home == 2).count());
    }

    #[test]
    fn one_that_comes_takes_its_share_and_no_more() {
        let (before, after) =
            (homes(&[("a", 1), ("b", 1)]), homes(&[("a", 1), ("b", 1), ("c", 2)]));
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(_, after)| *after == 2));
        assert!((moved.count() as u64 * 100 / CALLERS).abs_diff(50) <= 1);
    }
}
