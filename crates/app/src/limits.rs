//! The limits of an upstream that `/status` tells, and where each comes from.
//!
//! What the settings say is gathered once ([`KnownLimits`]); what the proxy learns from traffic is
//! read when `/status` asks ([`told`]). Where both bound the same thing the tighter one holds, and
//! that one is told. The words of a limit are those of its setting, with the unit behind it
//! where the setting has one.

use std::time::{Duration, Instant};

use wellhead_eth::{BlockNumber, Data};
use wellhead_net::{ClientSettings, LearntCaps};
use wellhead_proxy::LimitStatus;
use wellhead_upstream::{ReachSettings, Upstream};

use crate::config;

/// Where a limit comes from.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum LimitSource {
    /// Not set and not learnt.
    Default,
    /// The settings, or the plan that they name.
    Given,
    /// A profile, with when it was measured.
    Measured(String),
    /// What the proxy saw.
    Learnt,
}

impl LimitSource {
    fn word(&self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq)]
struct StatedLimit {
    name: &'static str,
    value: f64,
    source: LimitSource,
}

/// What the settings of one upstream bound.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownLimits(Vec<StatedLimit>);

impl KnownLimits {
    /// The bounds that are told, and those that hold by default.
    pub(crate) fn new(upstream: &config::Upstream) -> Self {
        let mut limits = Vec::new();
        let mut add = |name: &'static str, key: &str, value: Option<f64>| {
            let Some(value) = value else { return };
            let measured = upstream.profile.as_ref().and_then(|profile| profile.measured(key));
            let source = match measured {
                Some(moment) => LimitSource::Measured(moment.to_string()),
                None => LimitSource::Given,
            };
            limits.push(StatedLimit { name, value, source });
        };
        let budget = &upstream.budget;
        let plan = upstream
            .known_provider()
            .zip(budget.plan.as_ref())
            .and_then(|(provider, name)| Some((provider, provider.plan(&name.0)?)));
        let planned_credits = plan.and_then(|(provider, plan)| {
            let window = provider.rate.as_ref().map_or(1.0, |rate| rate.window().as_secs_f64());
            Some(plan.credits? as f64 / window)
        });
        let of_plan = |own: Option<u64>, planned: Option<u64>| own.or(planned).map(|it| it as f64);
        let plan = plan.map(|(_, plan)| plan);
        let credits = budget.credits_per_second.map(|it| it as f64).or(planned_credits);
        add("credits_per_second", "budget.credits_per_second", credits);
        let calls = of_plan(budget.calls_per_second, plan.and_then(|plan| plan.calls_per_second));
        add("calls_per_second", "budget.calls_per_second", calls);
        add("calls_window_ms", "budget.calls_window", budget.calls_window.map(millis));
        add("calls_burst", "budget.calls_burst", budget.calls_burst.map(|it| it as f64));
        let day = of_plan(budget.credits_per_day, plan.and_then(|plan| plan.credits_per_day));
        add("credits_per_day", "budget.credits_per_day", day);
        let month = of_plan(budget.credits_per_month, plan.and_then(|plan| plan.credits_per_month));
        add("credits_per_month", "budget.credits_per_month", month);
        add("in_flight", "budget.in_flight", budget.in_flight.map(f64::from));
        let connection = &upstream.connection;
        add("streams_max", "connection.streams_max", connection.streams_max.map(|it| it as f64));
        add("requests_max", "connection.requests_max", connection.requests_max.map(|it| it as f64));
        add("idle_ms", "connection.idle", connection.idle.map(millis));
        let ReachSettings { kept, range_max } = history(&upstream.history);
        for (data, kept) in Data::ALL.into_iter().zip(kept) {
            add(data.word(), &format!("history.{data}"), kept.map(|it| it as f64));
        }
        let range = range_max.map(|it| it as f64);
        add("range_max", "history.range_max", range);
        let usual = ClientSettings::default();
        for (name, value) in
            [("streams_max", usual.h2_streams_max as f64), ("idle_ms", millis(usual.idle))]
        {
            if !limits.iter().any(|limit| limit.name == name) {
                limits.push(StatedLimit { name, value, source: LimitSource::Default });
            }
        }
        Self(limits)
    }
}

/// What an upstream keeps by its settings.
pub(crate) fn history(given: &config::History) -> ReachSettings {
    let config::History { state, blocks, logs, traces, range_max } = *given;
    let kept = Data::ALL.map(|data| match data {
        Data::State => state,
        Data::Blocks => blocks,
        Data::Logs => logs,
        Data::Traces => traces,
    });
    ReachSettings { kept, range_max }
}

/// What holds now. `head` is the upstream's own.
pub(crate) fn told(
    known: &KnownLimits,
    upstream: &Upstream,
    caps: &LearntCaps,
    announced: Option<u64>,
    head: Option<u64>,
    now: Instant,
) -> Vec<LimitStatus> {
    let mut limits = known.0.clone();
    let mut learn = |name: &'static str, value: Option<f64>| {
        let Some(value) = value else { return };
        match limits.iter_mut().find(|limit| limit.name == name) {
            Some(limit) if limit.value <= value => {}
            Some(limit) => (limit.value, limit.source) = (value, LimitSource::Learnt),
            None => limits.push(StatedLimit { name, value, source: LimitSource::Learnt }),
        }
    };
    let spending = upstream.spending(now);
    learn("credits_per_second", spending.learnt_rate);
    learn("in_flight", spending.limit.map(f64::from));
    let streams = caps.streams.map(|it| it as f64);
    learn("streams_max", streams);
    learn("streams_max", announced.map(|it| it as f64));
    learn("requests_max", caps.requests.map(|it| it as f64));
    learn("idle_ms", caps.idle.map(millis));
    for data in Data::ALL {
        let kept = head.and_then(|head| {
            let oldest = upstream.oldest(data, Some(BlockNumber(head)), now)?;
            Some((head + 1).saturating_sub(oldest.0) as f64)
        });
        // Block 0 of a chain that is shorter than what is kept is no limit.
        learn(data.word(), kept.filter(|kept| head.is_some_and(|head| *kept <= head as f64)));
    }
    learn("range_max", upstream.range_max(Data::Logs, now).map(|it| it as f64));
    limits
        .into_iter()
        .map(|StatedLimit { name, value, source }| LimitStatus {
            limit: name,
            value,
            source: source.word(),
            measured: match source {
                LimitSource::Measured(moment) => Some(moment),
                LimitSource::Default | LimitSource::Given | LimitSource::Learnt => None,
            },
        })
        .collect()
}

fn millis(length: Duration) -> f64 {
    length.as_millis() as f64
}

#[cfg(test)]
mod tests;
