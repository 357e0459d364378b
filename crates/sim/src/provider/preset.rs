//! Providers as people met them, as dials.
//!
//! The three are modelled on what a public study of commercial providers found in 2024,
//! and on what their pages say of themselves. They are kinds, not portraits: none claims
//! to be what any company sells today.

use std::time::Duration;

use super::dial::{
    CreditBucket, LimitScope, ProviderDials, RefusalForm, Shaping, StreamCap, StreamWay,
};
use crate::node::LatencyDial;

/// A kind of provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Preset {
    /// 2,500 credits a second and 20 for most calls: above 125 calls a second HTTP 429,
    /// with the limit in words and no `Retry-After`. 128 streams, as announced.
    #[strum(serialize = "per-second-125")]
    PerSecond125,
    /// Never refuses a call: above 250 a second, all connections together, answers only
    /// become slow. 128 streams are announced, and the hundredth at once ends the
    /// connection. A connection lasts for 1,000 requests, or 60 s without one.
    #[strum(serialize = "silent-fatal-99")]
    SilentWithFatalCap99,
    /// A bucket of 10 s so far above any demand that it never refuses a call. 128
    /// streams, as announced; one answer in a hundred is 200 ms late, at any load.
    Elastic,
}

wellhead_word::words!(Preset);

impl Preset {
    /// Its dials.
    pub fn dials(self) -> ProviderDials {
        match self {
            Self::PerSecond125 => per_second_125(),
            Self::SilentWithFatalCap99 => silent_with_fatal_cap_99(),
            Self::Elastic => elastic(),
        }
    }
}

fn per_second_125() -> ProviderDials {
    let words =
        "125/second request limit reached - reduce calls per second or upgrade your account";
    let bucket = CreditBucket::steady(
        2500.0,
        Duration::from_secs(1),
        RefusalForm::status(429, -32007, words),
    )
    .priced(20.0, &[("debug_*", 40.0), ("trace_*", 40.0), ("txpool_*", 80.0)]);
    ProviderDials {
        stream_cap: Some(StreamCap { max: 128, way: StreamWay::Announced }),
        latency: LatencyDial::even(Duration::from_millis(20), Duration::from_millis(5)),
        buckets: vec![bucket],
        ..ProviderDials::default()
    }
}

fn silent_with_fatal_cap_99() -> ProviderDials {
    // PROTOCOL_ERROR, as gateways say that count what they did not announce.
    let way = StreamWay::Fatal { goaway: Some(1), announced: Some(128) };
    ProviderDials {
        stream_cap: Some(StreamCap { max: 99, way }),
        recycle_after: Some(1000),
        idle_close: Some(Duration::from_secs(60)),
        latency: LatencyDial::even(Duration::from_millis(30), Duration::from_millis(5)),
        shaping: Some(Shaping { per_second: 250.0, scope: LimitScope::Account }),
        ..ProviderDials::default()
    }
}

fn elastic() -> ProviderDials {
    let words = "Your app has exceeded its compute units per second capacity.";
    let costs = [
        ("eth_chainId", 0.0),
        ("eth_blockNumber", 10.0),
        ("eth_call", 26.0),
        ("eth_getLogs", 60.0),
        ("eth_getBlockReceipts", 500.0),
        ("eth_sendRawTransaction", 250.0),
        ("debug_*", 1000.0),
        ("trace_*", 1000.0),
    ];
    // 100,000 a second: 5,000 calls of 20.
    let bucket = CreditBucket::steady(
        1_000_000.0,
        Duration::from_secs(10),
        RefusalForm::status(429, 429, words),
    )
    .priced(20.0, &costs);
    let (tail_percent, tail) = (1.0, Duration::from_millis(200));
    let latency = LatencyDial::even(Duration::from_millis(15), Duration::from_millis(10));
    ProviderDials {
        stream_cap: Some(StreamCap { max: 128, way: StreamWay::Announced }),
        latency: LatencyDial { tail_percent, tail, ..latency },
        buckets: vec![bucket],
        ..ProviderDials::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for preset in Preset::ALL {
            assert_eq!(Preset::from_word(preset.word()), Some(preset));
        }
        assert_eq!(Preset::from_word("per-second"), None);
    }
    #[test]
    fn the_limit_is_as_its_words_say() {
        let dials = Preset::PerSecond125.dials();
        assert_eq!(dials.buckets[0].calls_at_once("eth_getBlockByNumber"), 125.0);
        assert_eq!(dials.buckets[0].calls_per_second("eth_getBlockByNumber"), 125.0);
    }
    #[test]
    fn the_silent_one_refuses_nothing() {
        let dials = Preset::SilentWithFatalCap99.dials();
        assert_eq!(dials.buckets, []);
        assert_eq!(dials.stream_cap.map(|cap| (cap.max, cap.announced())), Some((99, Some(128))));
    }
    #[test]
    fn the_elastic_one_is_far_above_the_study() {
        // Its steps asked for less than 500 calls in 10 s.
        let dials = Preset::Elastic.dials();
        assert!(dials.buckets[0].calls_at_once("eth_getBlockByNumber") > 20_000.0);
        assert_eq!(dials.buckets[0].window(), Some(Duration::from_secs(10)));
    }
}
