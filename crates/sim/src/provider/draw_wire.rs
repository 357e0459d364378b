//! Random providers for experiments on connections: how they end, which protocol is quicker,
//! how bodies flow. As in [`super::draw`], all else is without limit.

use std::time::Duration;

use rand::Rng;

use super::dial::ProviderDials;

/// How a connection ends, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTruth {
    /// After this many requests.
    pub requests: Option<u64>,
    /// Whether what is under way is then answered, and the end announced.
    pub orderly: bool,
    /// After this long without one.
    pub idle: Option<Duration>,
}

/// Which protocol takes longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProtocolTruth {
    /// The time of a call over HTTP/1.1, in the middle.
    pub http1: Duration,
    /// And over HTTP/2.
    pub http2: Duration,
}

/// How bodies flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyTruth {
    /// Bytes a second.
    pub per_second: Option<u64>,
    /// Of all bodies on a connection together, small ones behind large ones, and not of each.
    pub in_turn: bool,
}

impl ProviderDials {
    /// One whose connections end after 50 to 1,000 requests, in good order or not, after 200 ms to
    /// 5 s of silence, after both or never. Over HTTP/1.1 only, or over both.
    pub fn draw_ends(rng: &mut impl Rng) -> (Self, EndTruth) {
        let mut dials = Self { http2: rng.random(), ..Self::draw_latency(rng) };
        let after = (50.0 * 20f64.powf(rng.random::<f64>())) as u64;
        let idle = Duration::from_millis(rng.random_range(200..=5000));
        dials.recycle_after = rng.random_bool(0.6).then_some(after);
        dials.recycle_abruptly = rng.random_bool(0.4);
        dials.idle_close = rng.random_bool(0.6).then_some(idle);
        let (requests, orderly) = (dials.recycle_after, !dials.recycle_abruptly);
        let truth = EndTruth { requests, orderly, idle: dials.idle_close };
        (dials, truth)
    }

    /// One that takes 10 to 80 ms more over one of the protocols, or over none.
    pub fn draw_protocol(rng: &mut impl Rng) -> (Self, ProtocolTruth) {
        let mut dials = Self::draw_latency(rng);
        let more = Duration::from_millis(rng.random_range(10..=80));
        match rng.random_range(0..3) {
            0 => dials.http1_delay = more,
            1 => dials.http2_delay = more,
            _ => {}
        }
        let each = dials.latency.base + dials.latency.jitter / 2;
        let truth =
            ProtocolTruth { http1: each + dials.http1_delay, http2: each + dials.http2_delay };
        (dials, truth)
    }

    /// One whose bodies go out at 50 to 300 kB/s, each for itself or all of a connection in
    /// turn, or at once.
    pub fn draw_bodies(rng: &mut impl Rng) -> (Self, BodyTruth) {
        let mut dials = Self::draw_latency(rng);
        let pace = (50_000.0 * 6f64.powf(rng.random::<f64>())) as u64;
        dials.body_bytes_per_second = rng.random_bool(0.75).then_some(pace);
        dials.bodies_in_turn = dials.body_bytes_per_second.is_some() && rng.random();
        let truth =
            BodyTruth { per_second: dials.body_bytes_per_second, in_turn: dials.bodies_in_turn };
        (dials, truth)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    fn drawn<T>(draw: impl Fn(&mut SmallRng) -> (ProviderDials, T)) -> Vec<(ProviderDials, T)> {
        (0..200).map(|seed| draw(&mut SmallRng::seed_from_u64(seed))).collect()
    }

    #[test]
    fn all_kinds_of_ends_are_drawn() {
        let ends = drawn(ProviderDials::draw_ends);
        let count = |is: fn(&EndTruth) -> bool| ends.iter().filter(|(_, it)| is(it)).count();
        assert!(count(|it| it.requests.is_none() && it.idle.is_none()) > 20);
        assert!(count(|it| it.requests.is_some() && it.orderly) > 40);
        assert!(count(|it| it.requests.is_some() && !it.orderly) > 20);
        assert!(count(|it| it.idle.is_some()) > 80);
        for (dials, truth) in &ends {
            assert_eq!((dials.recycle_after, dials.idle_close), (truth.requests, truth.idle));
        }
    }

    #[test]
    fn each_protocol_is_quicker_at_times() {
        let drawn = drawn(ProviderDials::draw_protocol);
        let count = |is: fn(&ProtocolTruth) -> bool| drawn.iter().filter(|(_, it)| is(it)).count();
        assert!(count(|it| it.http1 < it.http2) > 40);
        assert!(count(|it| it.http1 > it.http2) > 40);
        assert!(count(|it| it.http1 == it.http2) > 40);
    }

    #[test]
    fn bodies_flow_in_each_way() {
        let bodies = drawn(ProviderDials::draw_bodies);
        let count = |is: fn(&BodyTruth) -> bool| bodies.iter().filter(|(_, it)| is(it)).count();
        assert!(count(|it| it.per_second.is_none() && !it.in_turn) > 30);
        assert!(count(|it| it.per_second.is_some() && it.in_turn) > 40);
        assert!(count(|it| it.per_second.is_some() && !it.in_turn) > 40);
    }
}
