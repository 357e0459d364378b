//! How many calls at once, learnt from delay.
//!
//! For providers that do not refuse: above some rate they answer later and later. By
//! Little's law calls in flight are rate times latency, so that beyond `B = X·W₀` of them
//! (`X` the provider's rate, `W₀` the unloaded latency) each one more only waits.
//!
//! **Delay.** A call is measured by the ratio of its latency to the base of its own class,
//! the latency when unloaded; classes have nothing else in common. `ρ` is the geometric
//! mean over a window of about as many calls as may be in flight: latencies have long
//! tails, and the mean of logarithms is not led by them. Then, as in the gradient limits
//! of Netflix and Envoy,
//!
//! `L' = L · clamp(T/ρ, ½, 1) + max(1, L/16)`, with `T` = [`TOLERANCE`]
//!
//! With a queue at the provider `ρ = L/B`, so `L` settles at `16/15·T·B` = 1.28 times what
//! is needed: no call too few, and latency 1.28 times the unloaded one. Without a queue
//! `ρ` is 1 and `L` grows by a sixteenth. It moves only while at least half of it is used.
//!
//! **Plateau.** At first `L` doubles, window by window, until `ρ` passes `T`: where the rate
//! of answers no longer grows with `L`, latency does.
//!
//! **Base.** Measured while few are in flight. When load never lets up it is measured
//! anyway: while `ρ` is high, each [`DIP_PAUSE`], `L` is halved for one window. When
//! latency falls with it in proportion there was a queue even so, and the next dip comes
//! soon and goes twice as deep; this finds a base that was taken under load. When latency
//! does not fall at all there was no queue before either, and the base follows. Latencies below [`FLOOR`] count as that:
//! the calls of a quick node of one's own wait for a few milliseconds for reasons that
//! are ours, and no client would notice.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::nanos;

/// `T`: how much longer than unloaded answers may take.
const TOLERANCE: f64 = 1.2;
/// Where `L` begins: what an upstream gets before anything is known of it. `N` calls that
/// come together then are all answered after `⌈log2(N/INITIAL + 1)⌉` times the latency, as
/// `L` doubles with each round of answers. To begin higher is no help: of an upstream that is
/// busy from the start, no latency without a queue would be measured.
const INITIAL: u32 = 32;
/// `L` never falls below.
const LEAST: u32 = 2;
/// Nor rises above.
const MOST: u32 = 8_192;
/// Calls in a window, whatever `L` is.
const SAMPLES: (u32, u32) = (16, 256);
/// No window is shorter.
const WINDOW_MIN: Duration = Duration::from_millis(20);
/// One that is not full by then is dropped: its calls have little to do with each other.
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// Between two dips.
const DIP_PAUSE: Duration = Duration::from_secs(30);
/// The pause after a dip that found a lower base: the next dip may find a still lower one.
const DIP_PAUSE_SHORT: Duration = Duration::from_millis(500);
/// From this `ρ` on a dip is worth its cost.
const DIP_FROM: f64 = 1.1;
/// A dip from which latency falls to no more than this, for the fall of the limit, met a
/// queue still.
const QUEUED: f64 = 1.25;
/// One from which it falls to no less than this met none, nor did the window before.
const FLAT: f64 = 0.9;
/// A dip is no deeper than this power of two.
const DIP_DEPTH_MAX: u32 = 6;
/// Calls in a window while `L` doubles: others wait for what is learnt, and with the first
/// answers of a round `L` is raised before the others of that round come.
const DOUBLING_SAMPLES: u32 = 8;
/// Calls in the window of a dip, which costs throughput.
const SHORT_SAMPLES: (u32, u32) = (8, 64);
/// The weight of a window in the average of a base.
const BASE_WEIGHT: f64 = 0.3;
/// Calls of a class that a window must hold to say anything of its base.
const BASE_SAMPLES: u32 = 4;
/// Shorter latencies count as this one.
const FLOOR: Duration = Duration::from_millis(10);

/// A limit that is learnt, for calls of `CLASSES` kinds.
#[derive(Debug)]
pub struct LearntLimit<const CLASSES: usize> {
    limit: AtomicU32,
    is_settled: AtomicBool,
    /// Never waited for: a sample that finds it taken is left out.
    state: Mutex<State<CLASSES>>,
}

#[derive(Debug)]
struct State<const CLASSES: usize> {
    /// Logarithms of nanoseconds.
    base: [Option<f64>; CLASSES],
    /// Of [`FLOOR`]: what most answers of a quick node count as.
    floor_log: f64,
    window: Window<CLASSES>,
    /// As at first.
    is_doubling: bool,
    /// What was before the dip that this window is.
    dip: Option<Dip>,
    dip_due: Duration,
    /// The limit in a dip is the usual one by this power of two.
    dip_depth: u32,
}

/// What was before a dip.
#[derive(Debug, Clone, Copy)]
struct Dip {
    limit: u32,
    ratio: f64,
}

#[derive(Debug, Clone, Copy)]
struct Window<const CLASSES: usize> {
    began: Duration,
    /// Most calls in flight.
    peak: u32,
    /// Sums of logarithms, and their numbers, of what was sent in this window.
    sums: [f64; CLASSES],
    counts: [u32; CLASSES],
}

impl<const CLASSES: usize> Default for LearntLimit<CLASSES> {
    fn default() -> Self {
        let state = State {
            base: [None; CLASSES],
            floor_log: log(FLOOR),
            window: Window::new(Duration::ZERO),
            is_doubling: true,
            dip: None,
            dip_due: Duration::ZERO,
            dip_depth: 1,
        };
        Self {
            limit: AtomicU32::new(INITIAL),
            is_settled: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }
}

/// The logarithm of so many nanoseconds.
fn log(took: Duration) -> f64 {
    (nanos(took) as f64).ln()
}

impl<const CLASSES: usize> Window<CLASSES> {
    fn new(began: Duration) -> Self {
        Self { began, peak: 0, sums: [0.0; CLASSES], counts: [0; CLASSES] }
    }

    fn len(&self) -> u32 {
        self.counts.iter().sum()
    }

    /// The geometric mean of the ratios to the bases; `None` without any base.
    fn ratio(&self, base: &[Option<f64>; CLASSES]) -> Option<f64> {
        let (mut sum, mut count) = (0.0, 0);
        for class in 0..CLASSES {
            if let Some(base) = base[class] {
                sum += self.sums[class] - base * f64::from(self.counts[class]);
                count += self.counts[class];
            }
        }
        (count > 0).then(|| (sum / f64::from(count)).exp())
    }
}

impl<const CLASSES: usize> LearntLimit<CLASSES> {
    /// How many may be in flight.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether it met a plateau: before that it doubles, and says nothing of how long a line
    /// will take.
    pub fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    /// Learns from an answer to a call of `class` that went out at `began`. `in_flight`
    /// counts it too.
    pub fn answered(&self, class: usize, began: Duration, now: Duration, in_flight: u32) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // What a panic left is numbers, each of them sound.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if class >= CLASSES {
            return;
        }
        let limit = self.limit();
        let floor_log = state.floor_log;
        let window = &mut state.window;
        window.peak = window.peak.max(in_flight);
        // What was sent before belongs to another limit.
        if began >= window.began {
            let took = now.saturating_sub(began);
            window.sums[class] += if took > FLOOR { log(took) } else { floor_log };
            window.counts[class] += 1;
        }
        let lasted = now.saturating_sub(window.began);
        let is_full = window.len() >= state.samples(limit);
        if is_full && lasted >= WINDOW_MIN {
            let next = state.close(limit, now);
            self.limit.store(next, Ordering::Relaxed);
            self.is_settled.store(!state.is_doubling, Ordering::Relaxed);
        } else if lasted >= WINDOW_MAX {
            let next = state.drop_window(limit, now);
            self.limit.store(next, Ordering::Relaxed);
        }
    }
}

impl<const CLASSES: usize> State<CLASSES> {
    /// Calls in a full window.
    fn samples(&self, limit: u32) -> u32 {
        if self.is_doubling {
            return DOUBLING_SAMPLES;
        }
        let (least, most) = if self.dip.is_some() { SHORT_SAMPLES } else { SAMPLES };
        limit.clamp(least, most)
    }

    /// Takes a full window in and says what the limit is from now on.
    fn close(&mut self, limit: u32, now: Duration) -> u32 {
        let window = std::mem::replace(&mut self.window, Window::new(now));
        if let Some(dip) = self.dip.take() {
            self.learn_from_dip(&window, dip, limit, now);
            return dip.limit;
        }
        let is_light = window.peak.saturating_mul(4) <= limit;
        self.learn_base(&window, if is_light { BaseUpdate::Both } else { BaseUpdate::Neither });
        let Some(ratio) = window.ratio(&self.base) else { return limit };
        if window.peak.saturating_mul(2) < limit {
            return limit;
        }
        if self.is_doubling {
            if ratio < TOLERANCE {
                return limit.saturating_mul(2).min(MOST);
            }
            self.is_doubling = false;
            self.dip_due = now;
        }
        if ratio >= DIP_FROM && now >= self.dip_due {
            self.dip = Some(Dip { limit, ratio });
            return (limit >> self.dip_depth).max(1);
        }
        moved(limit, ratio)
    }

    fn learn_from_dip(&mut self, window: &Window<CLASSES>, dip: Dip, limit: u32, now: Duration) {
        let ratio = window.ratio(&self.base).unwrap_or(dip.ratio);
        let in_proportion = dip.ratio * f64::from(limit) / f64::from(dip.limit);
        let is_queued = ratio <= QUEUED * in_proportion && limit > 1;
        let is_flat = ratio >= FLAT * dip.ratio;
        self.learn_base(window, if is_flat { BaseUpdate::Both } else { BaseUpdate::Down });
        if is_queued && !is_flat && self.dip_depth < DIP_DEPTH_MAX {
            self.dip_depth += 1;
            self.dip_due = now + DIP_PAUSE_SHORT;
        } else {
            self.dip_depth = 1;
            self.dip_due = now + DIP_PAUSE;
        }
    }

    /// Ends a window that did not fill in time.
    fn drop_window(&mut self, limit: u32, now: Duration) -> u32 {
        let window = std::mem::replace(&mut self.window, Window::new(now));
        if let Some(dip) = self.dip.take() {
            self.dip_due = now + DIP_PAUSE;
            return dip.limit;
        }
        if window.peak.saturating_mul(4) <= limit {
            self.learn_base(&window, BaseUpdate::Both);
        }
        limit
    }

    fn learn_base(&mut self, window: &Window<CLASSES>, follow: BaseUpdate) {
        for class in 0..CLASSES {
            let count = window.counts[class];
            if count == 0 {
                continue;
            }
            let mean = window.sums[class] / f64::from(count);
            match &mut self.base[class] {
                // Under load too: better than none, and a dip corrects it.
                none @ None => *none = Some(mean),
                Some(_) if count < BASE_SAMPLES => {}
                Some(base) => match follow {
                    BaseUpdate::Neither => {}
                    BaseUpdate::Down => *base = base.min(mean),
                    BaseUpdate::Both => *base += BASE_WEIGHT * (mean - *base),
                },
            }
        }
    }
}

/// How a base takes to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaseUpdate {
    /// Not at all: it was measured under load.
    Neither,
    /// A lower latency only: there may have been load.
    Down,
    /// As an average.
    Both,
}

/// `L · clamp(T/ρ, ½, 1) + max(1, L/16)`, within the bounds.
fn moved(limit: u32, ratio: f64) -> u32 {
    let limit = f64::from(limit);
    let next = limit * (TOLERANCE / ratio).clamp(0.5, 1.0) + (limit / 16.0).max(1.0);
    (next.round() as u32).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Shaper, load};

    #[test]
    fn a_step_is_its_formula() {
        for (limit, ratio, expected) in [
            (64, 1.0, 68),
            (64, 1.2, 68),
            (64, 1.28, 64),
            (64, 2.4, 36),
            (64, 100.0, 36),
            (8, 1.0, 9),
            (2, 100.0, 2),
            (8_192, 1.0, 8_192),
        ] {
            assert_eq!(moved(limit, ratio), expected, "{limit} at {ratio}");
        }
    }

    /// Loads a shaper with more clients than it needs and looks at the last minute.
    fn check(shaper: &Shaper, clients: u32) {
        let told = format!("{shaper:?} with {clients}");
        let limit = LearntLimit::<2>::default();
        let seen = load(shaper, clients, &limit, Duration::from_secs(90));
        println!(
            "{told}: {:.1} % of its rate, latency {:.2} times the unloaded, limit {}",
            seen.used * 100.0,
            seen.latency,
            limit.limit()
        );
        assert!(seen.used >= 0.95, "{told}: {}", seen.used);
        assert!(seen.latency <= 2.0, "{told}: {}", seen.latency);
    }

    #[test]
    fn a_silent_shaper_is_driven_at_its_rate_without_a_queue() {
        for (per_second, unloaded_ms) in
            [(250, 200), (100, 80), (1_000, 40), (50, 100), (4_000, 50)]
        {
            let shaper = Shaper::new(per_second, unloaded_ms);
            for clients in [60, 300, 2_000] {
                // Fewer clients than calls it takes at once are no load.
                if u64::from(clients) * 1_000 > 2 * per_second * unloaded_ms {
                    check(&shaper, clients);
                }
            }
        }
    }

    #[test]
    fn a_mix_of_classes_is_measured_each_by_its_own() {
        // Every fourth call is of a class that takes five times as long.
        check(&Shaper { slow_every: 4, ..Shaper::new(250, 100) }, 400);
    }

    #[test]
    fn latencies_that_scatter_do_not_matter() {
        check(&Shaper { scatter: 0.5, ..Shaper::new(250, 200) }, 400);
    }

    #[test]
    fn an_upstream_that_is_not_shaped_is_not_limited() {
        for scatter in [0.0, 0.5, 1.0] {
            let shaper = Shaper { scatter, ..Shaper::new(1_000_000, 50) };
            let limit = LearntLimit::<2>::default();
            load(&shaper, 500, &limit, Duration::from_secs(60));
            println!("scatter {scatter}: limit {}", limit.limit());
            assert!(limit.limit() >= 500, "{}", limit.limit());
        }
    }

    #[test]
    fn a_quick_node_is_left_alone() {
        // Two hundred clients keep it busy: 4 ms instead of 1, which does no harm.
        let limit = LearntLimit::<2>::default();
        load(&Shaper::new(50_000, 1), 200, &limit, Duration::from_secs(5));
        assert!(limit.limit() >= 200, "{}", limit.limit());
    }

    #[test]
    fn a_provider_that_got_slower_is_believed_in_time() {
        let limit = LearntLimit::<2>::default();
        load(&Shaper::new(1_000_000, 50), 200, &limit, Duration::from_secs(20));
        let shifted = Shaper { begin: Duration::from_secs(20), ..Shaper::new(1_000_000, 200) };
        load(&shifted, 200, &limit, Duration::from_secs(200));
        assert!(limit.limit() >= 200, "{}", limit.limit());
    }

    #[test]
    fn few_calls_teach_a_base_and_move_nothing() {
        let limit = LearntLimit::<2>::default();
        load(&Shaper::new(1_000, 50), 4, &limit, Duration::from_secs(30));
        assert_eq!(limit.limit(), INITIAL);
    }
}
