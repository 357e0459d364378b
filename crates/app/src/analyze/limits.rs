//! Plans of `wellhead analyze limits`, `window`, `cost` and `soak`.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::knock::Knocking;
use wellhead_analyze::measure::plan::{self, ExperimentPlan, FixedPlan, Stage};
use wellhead_analyze::work::{METHODS, WorkKind};

use super::{Plans, REST, rest_between_rates};
use crate::cli::analyze::Measured;
use crate::cli::analyze::limits::{CostArgs, LimitsArgs, SoakArgs, WindowArgs};
use crate::terminal::CommandError;

/// Of `limits`: streams up to here.
const STREAMS_MAX: u64 = 256;
/// Of `limits`: a flood is so many times the highest rate.
const FLOOD: f64 = 4.0;
/// Of `limits`: calls of one flood.
const FLOOD_CALLS: u64 = 2_000;
/// Of `limits`: how long a flood and what follows lasts at most, twice a minute and a little.
const FLOOD_LASTS: Duration = Duration::from_secs(150);
/// Of `limits`: calls at once of `throttle`, and its calls.
const AT_ONCE: [usize; 8] = [1, 5, 10, 20, 40, 80, 100, 120];
const THROTTLE_CALLS: u64 = 300;

/// Rates, streams, shaping and windows: the gentle ones first, for what is flooded may punish.
pub(super) fn limits(it: &Measured<LimitsArgs>, endpoint: &TargetEndpoint) -> Plans {
    let lasting = Duration::from_secs(it.seconds);
    let rest = rest_between_rates(endpoint);
    let mut rng = SmallRng::seed_from_u64(it.common.targets.seed);
    vec![
        Box::new(plan::RatePlan::new(it.to.min(10.0), it.to, 2.0, lasting, rest)),
        Box::new(plan::StreamsPlan::new(8, STREAMS_MAX, REST)),
        Box::new(FixedPlan::throttle(&AT_ONCE, &[2, 4], THROTTLE_CALLS, REST, &mut rng)),
        Box::new(plan::WindowPlan::new(FLOOD * it.to, FLOOD_CALLS, FLOOD_LASTS, rest)),
    ]
}

pub(super) fn window(it: &WindowArgs, endpoint: &TargetEndpoint) -> Box<dyn ExperimentPlan> {
    let rest = it.rest.map_or_else(|| rest_between_rates(endpoint), Duration::from_secs);
    Box::new(plan::WindowPlan::new(it.flood, it.calls, Duration::from_secs(it.seconds), rest))
}

pub(super) fn cost(it: &Measured<CostArgs>) -> Result<Box<dyn ExperimentPlan>, CommandError> {
    let methods: Vec<&'static str> =
        METHODS.into_iter().filter(|known| it.methods.iter().any(|asked| asked == known)).collect();
    if methods.len() < 2 {
        return Err(CommandError::Config(
            "`--methods` needs two or more: they are compared".to_owned(),
        ));
    }
    let terms = Knocking {
        settle: REST,
        per_second: it.flood,
        calls: it.calls,
        within: Duration::from_secs(it.seconds),
    };
    let mut rng = SmallRng::seed_from_u64(it.common.targets.seed);
    Ok(Box::new(FixedPlan::cost(&methods, terms, REST, &mut rng)))
}

pub(super) fn soak(it: &SoakArgs, work: WorkKind) -> Box<dyn ExperimentPlan> {
    let pace = match it.users {
        Some(users) => Stage::Users(users),
        None => Stage::Rate(it.rate),
    };
    let lasting = Duration::from_secs(it.minutes * 60);
    let every = Duration::from_secs(it.every);
    Box::new(plan::SoakPlan::new(pace, lasting, every, work, it.connections.into()))
}
