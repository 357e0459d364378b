//! What a run may send and cost at most, told before anything is sent, and what it has cost.

use std::time::Duration;

use crate::plan::ExperimentPlan;
use crate::record::{CreditPrice, Record, RunRecord};
use crate::way::Goal;
use crate::work::GREETING;

/// Smaller shares and sums are told as smaller than this.
const TOLD_MIN: f64 = 0.001;

impl CreditPrice {
    /// The cost of a number of credits: the credits, the share of a month, and the money.
    pub fn told(&self, credits: f64) -> String {
        let mut parts = vec![format!("{credits:.0} {}", self.unit)];
        if let (Some(plan), Some(month)) = (&self.plan, self.credits_per_month) {
            let percent = small(100.0 * credits / month.max(1) as f64);
            parts.push(format!("{percent} % of a month of the plan `{plan}`"));
        }
        if let Some(usd) = self.usd_per_million {
            parts.push(format!("{} USD", small(credits * usd / 1e6)));
        }
        parts.join(", ")
    }
}

/// Three digits behind the point at most.
fn small(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        _ if number < TOLD_MIN => format!("less than {TOLD_MIN}"),
        _ if number < 10.0 => format!("{number:.3}"),
        _ => format!("{number:.0}"),
    }
}

/// What the calls in the records have cost, a line for each target whose provider is known. Calls
/// that greet a target and open connections are not in the records.
pub fn spent(run: &RunRecord, records: &[Record]) -> Vec<String> {
    let mut credits = vec![0.0; run.targets.len()];
    let mut calls = vec![0_u64; run.targets.len()];
    let mut add = |target: u32, more: u64, cost: Option<f64>| {
        if let Some(all) = calls.get_mut(target as usize) {
            *all += more;
            credits[target as usize] += cost.unwrap_or(0.0);
        }
    };
    for record in records {
        match record {
            Record::Call(call) => add(call.target, 1, call.credits),
            Record::Rollup(rollup) => add(rollup.target, rollup.calls, rollup.credits),
            Record::Cell(_) | Record::Wire(_) => {}
        }
    }
    let line = |(index, price): (usize, &CreditPrice)| {
        let (cost, requests) = (price.told(credits[index]), calls[index]);
        let id = &run.targets[index].id;
        format!("{id}: {requests} recorded requests cost {cost}")
    };
    let prices = run.targets.iter().enumerate();
    prices.filter_map(|(index, it)| Some((index, it.price.as_ref()?))).map(line).collect()
}

/// A method and its share of the calls.
pub type MethodShare = (&'static str, f64);

/// What plans may send to one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// The target's host.
    pub host: String,
    /// Its provider's name, where the catalogue knows the host.
    pub provider: Option<&'static str>,
    /// What the provider calls a credit.
    pub unit: Option<&'static str>,
    /// By experiment: calls at most, and credits by the catalogue.
    pub experiments: Vec<(&'static str, u64, Option<f64>)>,
    /// What credits are there.
    pub price: Option<CreditPrice>,
    /// Credits of the calls that greet it.
    pub greeting: Option<f64>,
    /// Calls beside those of the experiments, for cells that are played again because this machine was too busy to
    /// measure times.
    pub spare: u64,
    /// How long it lasts at least.
    pub lasts: Duration,
}

/// Of the calls of plans, one in so many more may be sent where cells are played again.
const SPARE: u64 = 4;

impl Forecast {
    /// Adds up `plans`, played at `goal`.
    pub fn of(goal: &Goal, plans: &[Box<dyn ExperimentPlan>]) -> Self {
        let one = |plan: &dyn ExperimentPlan| {
            let calls = plan.calls_max();
            let methods = plan.methods();
            let each: Option<f64> = methods
                .iter()
                .map(|(method, share)| goal.credits(method).map(|credits| credits * share))
                .sum();
            (plan.name(), calls, each.map(|each| (each * calls as f64).ceil()))
        };
        let provider = goal.provider();
        Self {
            host: goal.target.host.clone(),
            provider: provider.map(|provider| provider.name.as_str()),
            unit: provider.map(|provider| provider.unit.as_str()),
            experiments: plans.iter().map(|plan| one(&**plan)).collect(),
            price: goal.target.price.clone(),
            greeting: GREETING.iter().map(|method| goal.credits(method)).sum(),
            spare: plans.iter().map(|plan| plan.calls_max()).sum::<u64>() / SPARE,
            lasts: plans.iter().map(|plan| plan.lasts()).sum(),
        }
    }

    /// Of an inquiry: by part its name, the methods that it asks with their shares, and calls at
    /// most.
    pub fn told(
        goal: &Goal,
        parts: &[(&'static str, Vec<MethodShare>, u64)],
        lasts: Duration,
    ) -> Self {
        let one = |(name, methods, calls): &(&'static str, Vec<MethodShare>, u64)| {
            let each: Option<f64> = methods
                .iter()
                .map(|(method, share)| goal.credits(method).map(|credits| credits * share))
                .sum();
            (*name, *calls, each.map(|each| (each * *calls as f64).ceil()))
        };
        let experiments = parts.iter().map(one).collect();
        Self { experiments, lasts, ..Self::of(goal, &[]) }
    }

    /// Calls at most.
    pub fn calls(&self) -> u64 {
        self.experiments.iter().map(|(_, calls, _)| calls).sum()
    }

    /// Credits at most, those of the greeting included.
    fn credits(&self) -> Option<f64> {
        let experiments = self.experiments.iter().map(|(_, _, credits)| *credits);
        experiments.chain([self.greeting]).sum()
    }

    /// A line for each experiment, and one for all of them where the costs are known.
    pub fn lines(&self) -> Vec<String> {
        let known = self.provider.unwrap_or("no provider in the catalogue: costs are unknown");
        let mut lines =
            vec![format!("{} ({known}), {} s or more", self.host, self.lasts.as_secs())];
        for (name, calls, credits) in &self.experiments {
            lines.push(match (credits, self.unit) {
                (Some(credits), Some(unit)) => {
                    format!("  {name}: at most {calls} calls, {credits} {unit}")
                }
                (_, _) => format!("  {name}: at most {calls} calls"),
            });
        }
        if let (Some(credits), Some(price)) = (self.credits(), &self.price) {
            lines.push(format!("  in all, with the first calls: at most {}", price.told(credits)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use wellhead_telemetry::SecretUrl;

    use super::*;
    use crate::plan::{RatePlan, StreamsPlan};

    fn forecast(url: &str) -> Forecast {
        let goal = Goal::new("a".to_owned(), SecretUrl::parse(url).expect("a URL"));
        let second = Duration::from_secs(1);
        let plans: Vec<Box<dyn ExperimentPlan>> = vec![
            Box::new(RatePlan::new(10.0, 20.0, 2.0, second, second)),
            Box::new(StreamsPlan::new(8, 64, second)),
        ];
        Forecast::of(&goal, &plans)
    }

    #[test]
    fn credits_are_those_of_the_catalogue() {
        let forecast = forecast("https://eth-mainnet.g.alchemy.com/v2/PATHKEY");
        let (name, calls, credits) = forecast.experiments[0];
        assert_eq!((name, calls, credits), ("rate", 152, Some(1520.0)));
        let text = forecast.lines().join("\n");
        assert!(text.contains("at most 152 calls, 1520 "), "{text}");
        assert!(text.contains("in all, with the first calls: at most "), "{text}");
        assert!(!text.contains("PATHKEY"), "{text}");
    }

    #[test]
    fn an_inquiry_costs_by_its_methods() {
        let url = SecretUrl::parse("https://eth-mainnet.g.alchemy.com/v2/PATHKEY").expect("a URL");
        let goal = Goal::new("a".to_owned(), url);
        let methods = vec![("eth_blockNumber", 0.5), ("eth_chainId", 0.5)];
        let forecast = Forecast::told(&goal, &[("fresh", methods, 100)], Duration::from_secs(9));
        assert_eq!(forecast.experiments, [("fresh", 100, Some(500.0))]);
        assert_eq!((forecast.calls(), forecast.provider), (100, Some("Alchemy")));
    }

    #[test]
    fn credits_are_a_share_of_a_month_and_money() {
        let price = CreditPrice { unit: "CU".to_owned(), ..CreditPrice::default() };
        assert_eq!(price.told(1_720.4), "1720 CU");
        let month = CreditPrice {
            plan: Some("free".to_owned()),
            credits_per_month: Some(30_000_000),
            usd_per_million: Some(0.45),
            ..price
        };
        for (credits, expected) in [
            (0.0, "0 CU, 0 % of a month of the plan `free`, 0 USD"),
            (10.0, "10 CU, less than 0.001 % of a month of the plan `free`, less than 0.001 USD"),
            (90_000.0, "90000 CU, 0.300 % of a month of the plan `free`, 0.041 USD"),
            (30_000_000.0, "30000000 CU, 100 % of a month of the plan `free`, 14 USD"),
        ] {
            assert_eq!(month.told(credits), expected);
        }
    }

    #[test]
    fn nothing_is_guessed_of_a_stranger() {
        let forecast = forecast("http://127.0.0.1:8545");
        assert!(forecast.experiments.iter().all(|(_, _, credits)| credits.is_none()));
        assert!(forecast.calls() > 152);
    }
}
