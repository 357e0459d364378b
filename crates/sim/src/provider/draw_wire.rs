//! Random providers for experiments on connections: how they end, which protocol is quicker,
//! how bodies flow. As in [`super::draw`], all else is without limit; what was drawn is in the dials.

use std::time::Duration;

use rand::Rng;

use super::dial::ProviderDials;

impl ProviderDials {
    /// One whose connections end after 50 to 1,000 requests, in good order or not, after 200 ms to
    /// 5 s of silence, after both or never. Over HTTP/1.1 only, or over both.
    pub fn draw_ends(rng: &mut impl Rng) -> Self {
        let mut dials = Self { http2: rng.random(), ..Self::draw_latency(rng) };
        let after = (50.0 * 20f64.powf(rng.random::<f64>())) as u64;
        let idle = Duration::from_millis(rng.random_range(200..=5000));
        dials.recycle_after = rng.random_bool(0.6).then_some(after);
        dials.recycle_abruptly = rng.random_bool(0.4);
        dials.idle_close = rng.random_bool(0.6).then_some(idle);
        dials
    }

    /// One that takes 10 to 80 ms more over one of the protocols, or over none.
    pub fn draw_protocol(rng: &mut impl Rng) -> Self {
        let mut dials = Self::draw_latency(rng);
        let more = Duration::from_millis(rng.random_range(10..=80));
        match rng.random_range(0..3) {
            0 => dials.http1_delay = more,
            1 => dials.http2_delay = more,
            _ => {}
        }
        dials
    }

    /// One whose bodies go out at 50 to 300 kB/s, each for itself or all of a connection in
    /// turn, or at once.
    pub fn draw_bodies(rng: &mut impl Rng) -> Self {
        let mut dials = Self::draw_latency(rng);
        let pace = (50_000.0 * 6f64.powf(rng.random::<f64>())) as u64;
        dials.body_bytes_per_second = rng.random_bool(0.75).then_some(pace);
        dials.bodies_in_turn = dials.body_bytes_per_second.is_some() && rng.random();
        dials
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    /// How many of two hundred are so.
    fn counted(
        draw: impl Fn(&mut SmallRng) -> ProviderDials,
    ) -> impl Fn(fn(&ProviderDials) -> bool) -> usize {
        let drawn: Vec<_> = (0..200).map(|seed| draw(&mut SmallRng::seed_from_u64(seed))).collect();
        move |is| drawn.iter().filter(|dials| is(dials)).count()
    }

    #[test]
    fn all_kinds_of_ends_are_drawn() {
        let count = counted(ProviderDials::draw_ends);
        assert!(count(|it| it.recycle_after.is_none() && it.idle_close.is_none()) > 20);
        assert!(count(|it| it.recycle_after.is_some() && !it.recycle_abruptly) > 40);
        assert!(count(|it| it.recycle_after.is_some() && it.recycle_abruptly) > 20);
        assert!(count(|it| it.idle_close.is_some()) > 80);
    }

    #[test]
    fn each_protocol_is_quicker_at_times() {
        let count = counted(ProviderDials::draw_protocol);
        assert!(count(|it| it.http1_delay < it.http2_delay) > 40);
        assert!(count(|it| it.http1_delay > it.http2_delay) > 40);
        assert!(count(|it| it.http1_delay == it.http2_delay) > 40);
    }

    #[test]
    fn bodies_flow_in_each_way() {
        let count = counted(ProviderDials::draw_bodies);
        assert!(count(|it| it.body_bytes_per_second.is_none() && !it.bodies_in_turn) > 30);
        assert!(count(|it| it.body_bytes_per_second.is_some() && it.bodies_in_turn) > 40);
        assert!(count(|it| it.body_bytes_per_second.is_some() && !it.bodies_in_turn) > 40);
    }
}
