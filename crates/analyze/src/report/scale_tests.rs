//! What holds for any axis.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn axis(low: f64, high: f64, log: bool) -> Axis {
    let ends = if log { log_ends(low, high) } else { even_ends(low, high) };
    Axis { label: String::new(), log, range: Some(ends) }
}

/// A value just beyond a round number stood beyond the end.
#[test]
fn a_log_axis_holds_what_is_just_beyond_a_round_number() {
    assert_eq!(log_ends(440_749.7, 500_265.1), (200_000.0, 1_000_000.0));
    assert_eq!(log_ends(0.999_5, 5.0), (0.5, 5.0));
}

proptest! {
    #[test]
    fn a_fitted_axis_holds_its_values(a in 1e-3..1e6_f64, b in 1e-3..1e6_f64, log in any::<bool>()) {
        let (low, high) = (a.min(b), a.max(b));
        let scale = Scale::new(&axis(low, high, log), 0.0, 100.0);
        prop_assert!(scale.holds(high));
        // Of a log axis that would be too long, the smallest values stand at its end.
        prop_assert!(scale.holds(low) || low < high / SPAN_MAX);
        prop_assert!(scale.at(high) >= scale.at(low));
    }

    #[test]
    fn places_keep_the_order_and_lie_on_the_axis(
        ends in prop::array::uniform2(1e-3..1e6_f64),
        values in prop::collection::vec(-1e3..1e7_f64, 2..20),
        log in any::<bool>(),
    ) {
        let scale = Scale::new(&axis(ends[0].min(ends[1]), ends[0].max(ends[1]), log), 40.0, 400.0);
        let mut values = values;
        values.sort_by(f64::total_cmp);
        let places: Vec<f64> = values.iter().map(|value| scale.at(*value)).collect();
        prop_assert!(places.is_sorted(), "{places:?}");
        prop_assert!(places.iter().all(|place| (40.0..=400.0).contains(place)), "{places:?}");
    }

    #[test]
    fn an_axis_has_a_few_ticks_that_differ(a in 1e-3..1e6_f64, b in 1e-3..1e6_f64, log in any::<bool>()) {
        let axis = axis(a.min(b), a.max(b), log);
        let scale = Scale::new(&axis, 0.0, 100.0);
        let ticks = scale.ticks();
        prop_assert!((2..=12).contains(&ticks.len()), "{axis:?}: {ticks:?}");
        prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
        let labels: BTreeSet<String> = ticks.iter().map(|tick| tick_label(*tick)).collect();
        prop_assert_eq!(labels.len(), ticks.len(), "{:?}", labels);
    }

    /// Whatever the ends: the first and the last tick are the ends of a fitted axis.
    #[test]
    fn the_ends_of_an_axis_have_ticks(a in 1e-3..1e6_f64, b in 1e-3..1e6_f64, log in any::<bool>()) {
        let axis = axis(a.min(b), a.max(b), log);
        let ticks = Scale::new(&axis, 0.0, 100.0).ticks();
        let (from, to) = axis.range.expect("fitted");
        let near = |tick: Option<&f64>, end: f64| {
            tick.is_some_and(|tick| (tick - end).abs() <= 1e-6 * (to - from))
        };
        prop_assert!(near(ticks.first(), from), "{from}..{to}: {ticks:?}");
        prop_assert!(near(ticks.last(), to), "{from}..{to}: {ticks:?}");
    }
}

#[test]
fn axes_are_as_people_would_draw_them() {
    for (low, high, log, ends, ticks) in [
        (20.0, 160.0, false, (0.0, 200.0), "0 50 100 150 200"),
        (0.0, 100.0, false, (0.0, 100.0), "0 20 40 60 80 100"),
        (-3.0, 4.0, false, (-4.0, 4.0), "-4 -2 0 2 4"),
        (0.0, 0.0, false, (0.0, 0.2), "0 0.05 0.1 0.15 0.2"),
        (21.0, 240.0, true, (20.0, 500.0), "20 50 100 200 500"),
        (7.0, 7.0, true, (5.0, 10.0), "5 10"),
        (0.4, 9_000.0, true, (0.1, 10_000.0), "0.1 1 10 100 1000 10k"),
        (0.0, 0.0, true, (1.0, 10.0), "1 2 5 10"),
    ] {
        let axis = axis(low, high, log);
        assert_eq!(axis.range, Some(ends), "{low} to {high}");
        let told: Vec<String> =
            Scale::new(&axis, 0.0, 1.0).ticks().into_iter().map(tick_label).collect();
        assert_eq!(told.join(" "), ticks, "{low} to {high}");
    }
}
