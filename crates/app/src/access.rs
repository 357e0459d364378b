//! Callers: what the settings say of them, and the sources of their keys.
//!
//! The policy (tenants, quotas, networks, issuers) is made once from the settings (`config::callers`). Keys come from the
//! settings, a file and Redis, and are kept in `wellhead_front::CallerControl`.

pub(crate) mod directory;
pub(crate) mod file;
mod jwks;
#[cfg(test)]
mod secrecy_tests;
mod snapshot_age;

use std::sync::Arc;
use std::time::Instant;

use wellhead_access::usage::UsageTable;
use wellhead_access::{DenialCounts, MeterBook, QuotaSharing};
use wellhead_front::{CallerControl, KeyOrigin};
use wellhead_proxy::AccessTerms;

use crate::config::callers::{self, IssuerKeys};
use crate::config::{Access, Settings};
pub(crate) use directory::RedisKeys;
pub(crate) use file::{begin, watch};
pub(crate) use jwks::{
    ChangedWay, JwksCounts, JwksSource, changed_ways, fetch_first, jwks_sources,
};

/// What the settings say of callers.
#[derive(Debug)]
pub(crate) struct PlannedAccess {
    pub(crate) control: Arc<CallerControl>,
    /// Those whose tokens are accepted.
    pub(crate) tokens: Option<IssuerKeys>,
}

/// What the settings say of callers; `None` where they tell none apart. `Err`: what is wrong with it.
///
/// `sharing`: where limits are shared with other replicas, if they are.
pub(crate) fn plan(
    settings: &Settings,
    sharing: Option<Arc<dyn QuotaSharing>>,
    now: Instant,
) -> Result<Option<PlannedAccess>, Vec<String>> {
    let book = Arc::new(sharing.map_or_else(MeterBook::default, MeterBook::sharing));
    let Some(plan) = callers::plan(settings, book, None)? else { return Ok(None) };
    let control = CallerControl::new(plan.policy, plan.book, now);
    let problems = control.take_keys(KeyOrigin::Settings, plan.listed);
    debug_assert!(problems.is_empty(), "the plan has no keys with a problem");
    if let Some(keys) = &settings.access.keys {
        // Until they are read for the first time.
        control.set_stale(KeyOrigin::File, keys.file.is_some());
        control.set_stale(KeyOrigin::Redis, keys.redis);
    }
    Ok(Some(PlannedAccess { control: Arc::new(control), tokens: plan.tokens }))
}

/// The terms by which callers are charged.
pub(crate) fn terms(
    settings: &Access,
    usage: Option<Arc<UsageTable>>,
    denied: Arc<DenialCounts>,
    epoch: Instant,
) -> AccessTerms {
    AccessTerms {
        prices: callers::prices(settings),
        cached_share: f64::from(settings.cached_percent) / 100.0,
        epoch,
        denied,
        usage,
    }
}
