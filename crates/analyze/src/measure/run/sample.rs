//! Evenly spaced ones of many values: a long cell needs no more memory the longer it lasts.

use crate::stat::quantile;

/// Values that are kept; of further ones every second, then every fourth.
const KEPT_MAX: usize = 20_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sample {
    kept: Vec<f64>,
    seen: usize,
    halved: u32,
}

impl Sample {
    pub(super) fn add(&mut self, value: f64) {
        if self.seen.is_multiple_of(1 << self.halved) {
            self.kept.push(value);
        }
        self.seen += 1;
        if self.kept.len() >= KEPT_MAX {
            let mut at = 0_usize;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.halved += 1;
        }
    }

    pub(super) fn sorted(mut self) -> Vec<f64> {
        self.kept.sort_by(f64::total_cmp);
        self.kept
    }

    /// `None` without values.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        quantile(&self.kept, q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_quantiles_stay() {
        let mut sample = Sample::default();
        for n in 0..1_000_000_u32 {
            sample.add(f64::from(n % 1_000));
        }
        assert!(sample.kept.len() < KEPT_MAX, "{}", sample.kept.len());
        let middle = sample.quantile(0.5).expect("samples");
        assert!((middle - 500.0).abs() < 25.0, "{middle}");
    }
}
