//! How likely chance brings something about: Student's t and the binomial distribution, both by
//! the incomplete beta function, and how to ask several questions at once.
//!
//! Exact where the textbooks are: no table, and no normal curve in place of few values.

/// Terms of the continued fraction at most; about the root of the larger parameter are needed.
const TERMS_MAX: u32 = 10_000;

/// The logarithm of the gamma function of `x` above zero: Lanczos (1964) with the coefficients of
/// Godfrey, right to 13 figures.
fn ln_gamma(x: f64) -> f64 {
    const FIRST: f64 = 0.999_999_999_999_809_9;
    const REST: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = REST.iter().zip(1..).map(|(by, at)| by / (x + f64::from(at))).sum::<f64>() + FIRST;
    let base = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * base.ln() - base + sum.ln()
}

/// The regularized incomplete beta function `I_x(a, b)`, by its continued fraction (Abramowitz
/// and Stegun, 26.5.8) with the method of Lentz.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // It converges quickly on this side alone.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(b, a, 1.0 - x);
    }
    let front =
        ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p() - a.ln();
    let tiny = |x: f64| if x.abs() < 1e-300 { 1e-300 } else { x };
    let mut d = 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut whole) = (1.0, d);
    for m in 1..TERMS_MAX {
        let m = f64::from(m);
        let (even, odd) = (
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        );
        let mut step = 1.0;
        for part in [even, odd] {
            d = 1.0 / tiny(1.0 + part * d);
            c = tiny(1.0 + part / c);
            step = c * d;
            whole *= step;
        }
        if (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    (front.exp() * whole).clamp(0.0, 1.0)
}

/// That Student's t with `freedom` degrees is as far from zero as `t`, on either side.
pub fn beyond(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() { 0.0 } else { beta(freedom / 2.0, 0.5, freedom / (freedom + t * t)) }
}

/// The `t` that is exceeded on either side with this chance, by bisection.
pub(crate) fn t_beyond(chance: f64, freedom: f64) -> f64 {
    let mut high = 1.0;
    while beyond(high, freedom) > chance && high < 1e12 {
        high *= 2.0;
    }
    bisected((0.0, high), |t| beyond(t, freedom) > chance).1
}

/// The two sides, as near as numbers go, of where `is_below` ceases to hold.
fn bisected((mut low, mut high): (f64, f64), is_below: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if is_below(middle) { low = middle } else { high = middle }
    }
    (low, high)
}

/// That of `n` things, each of which happens with the chance `share`, `k` or more happen.
pub(crate) fn so_many(k: u64, n: u64, share: f64) -> f64 {
    if k == 0 {
        return 1.0;
    }
    if k > n { 0.0 } else { beta(k as f64, (n - k + 1) as f64, share) }
}

/// The interval of 95 % of a share of which `k` of `n` were seen: Clopper and Pearson (1934), by bisection.
pub(crate) fn share_interval(k: u64, n: u64) -> (f64, f64) {
    const EACH_SIDE: f64 = 0.025;
    let low = || bisected((0.0, 1.0), |share| so_many(k, n, share) < EACH_SIDE).0;
    let high = || bisected((0.0, 1.0), |share| 1.0 - so_many(k + 1, n, share) > EACH_SIDE).0;
    (if k == 0 { 0.0 } else { low() }, if k < n { high() } else { 1.0 })
}

/// The normal deviate above which chance leads as often as a chi-square with `freedom` degrees above `sum`: Wilson and
/// Hilferty, "The Distribution of Chi-Square" (1931), right to 0.1 in the tails from one degree on.
pub(crate) fn chi_square_deviate(sum: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    ((sum / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// The level at which each of several questions is decided, so that all of them together are
/// answered falsely no more often than `level`: Holm, "A Simple Sequentially Rejective Multiple
/// Test Procedure" (1979). A question is decided where its chance is no larger than its level.
pub(crate) fn holm(chances: &[f64], level: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut levels = vec![level; chances.len()];
    let mut stopped = None;
    for (rank, at) in order.into_iter().enumerate() {
        let own = *stopped.get_or_insert(level / (chances.len() - rank) as f64);
        levels[at] = own;
        if chances[at] <= own {
            stopped = None;
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(seen: f64, expected: f64) {
        assert!((seen / expected - 1.0).abs() < 1e-4, "{seen} for {expected}");
    }

    #[test]
    fn the_t_of_the_tables() {
        // Abramowitz and Stegun, table 26.10.
        for (chance, freedom, t) in [
            (0.05, 1.0, 12.706),
            (0.05, 2.0, 4.303),
            (0.01, 4.0, 4.604),
            (0.05, 30.0, 2.042),
            (0.001, 10.0, 4.587),
        ] {
            assert!((t_beyond(chance, freedom) - t).abs() < 6e-4, "{chance} {freedom}");
            assert!((beyond(t, freedom) / chance - 1.0).abs() < 1e-3, "{chance} {freedom}");
        }
        assert_eq!((beyond(0.0, 3.0), beyond(f64::INFINITY, 3.0)), (1.0, 0.0));
    }

    #[test]
    fn the_binomial_tail() {
        near(so_many(1, 500, 0.001), 1.0 - 0.999_f64.powi(500));
        near(so_many(10, 10, 0.5), 0.5_f64.powi(10));
        near(so_many(2, 3, 0.5), 0.5);
        assert_eq!((so_many(0, 9, 0.1), so_many(10, 9, 0.1)), (1.0, 0.0));
        // Far from a table: the mean and more of a large number.
        let half = so_many(1_000, 1_000_000, 0.001);
        assert!((half - 0.5).abs() < 0.01, "{half}");
    }

    #[test]
    fn the_chi_square_of_the_tables() {
        // Abramowitz and Stegun, table 26.8: exceeded once in a hundred times, and 99 times.
        for (sum, freedom, deviate) in [
            (6.635, 1.0, 2.326),
            (13.277, 4.0, 2.326),
            (50.892, 30.0, 2.326),
            (0.297, 4.0, -2.326),
            (14.953, 30.0, -2.326),
        ] {
            let seen = chi_square_deviate(sum, freedom);
            assert!((seen - deviate).abs() < 0.15, "{seen} for {sum} of {freedom}");
        }
    }

    #[test]
    fn the_interval_of_a_share() {
        // The tables of Geigy, for 5 of 100 and 1 of 20.
        let (low, high) = share_interval(5, 100);
        assert!((low - 0.0164).abs() < 1e-4 && (high - 0.1128).abs() < 1e-4, "{low} {high}");
        let (low, high) = share_interval(1, 20);
        assert!((low - 0.0013).abs() < 1e-4 && (high - 0.2487).abs() < 1e-4, "{low} {high}");
        assert_eq!((share_interval(0, 10).0, share_interval(10, 10).1), (0.0, 1.0));
    }

    #[test]
    fn questions_are_decided_one_after_the_other() {
        let levels = holm(&[0.04, 0.001, 0.02, 0.3], 0.05);
        assert_eq!(levels[1], 0.05 / 4.0, "the surest has the hardest level");
        // The next is not sure enough: those after it share its level.
        assert_eq!((levels[2], levels[0], levels[3]), (0.05 / 3.0, 0.05 / 3.0, 0.05 / 3.0));
        assert_eq!(holm(&[0.01, 0.02], 0.05), [0.025, 0.05]);
        assert_eq!(holm(&[], 0.05), Vec::<f64>::new());
    }
}
