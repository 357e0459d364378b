//! What a run may send and cost at most, told before anything is sent.

use std::time::Duration;

use crate::measure::client::TargetEndpoint;
use crate::measure::plan::ExperimentPlan;
use crate::record::CreditPrice;
use crate::work::GREETING;

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

/// Cells that are played again add at most one call for each four of the plans.
const SPARE: u64 = 4;

impl Forecast {
    /// Adds up `plans`, played at `endpoint`.
    pub fn of(endpoint: &TargetEndpoint, plans: &[Box<dyn ExperimentPlan>]) -> Self {
        let parts: Vec<_> =
            plans.iter().map(|plan| (plan.name(), plan.methods(), plan.calls_max())).collect();
        let told = Self::told(endpoint, &parts, plans.iter().map(|plan| plan.lasts()).sum());
        Self { spare: told.calls() / SPARE, ..told }
    }

    /// Of an inquiry: by part its name, the methods that it asks with their shares, and calls at
    /// most.
    pub fn told(
        endpoint: &TargetEndpoint,
        parts: &[(&'static str, Vec<MethodShare>, u64)],
        lasts: Duration,
    ) -> Self {
        let one = |(name, methods, calls): &(&'static str, Vec<MethodShare>, u64)| {
            let each: Option<f64> = methods
                .iter()
                .map(|(method, share)| endpoint.credits(method).map(|credits| credits * share))
                .sum();
            (*name, *calls, each.map(|each| (each * *calls as f64).ceil()))
        };
        let provider = endpoint.provider();
        Self {
            host: endpoint.target.host.clone(),
            provider: provider.map(|provider| provider.name.as_str()),
            unit: provider.map(|provider| provider.unit.as_str()),
            experiments: parts.iter().map(one).collect(),
            price: endpoint.target.price.clone(),
            greeting: GREETING.iter().map(|method| endpoint.credits(method)).sum(),
            spare: 0,
            lasts,
        }
    }

    /// Calls at most.
    pub fn calls(&self) -> u64 {
        self.experiments.iter().map(|(_, calls, _)| calls).sum()
    }

    /// Credits at most, those of the greeting included.
    fn credits(&self) -> Option<f64> {
        self.played().map(|credits| credits + self.greeting.unwrap_or(0.0))
    }

    /// Credits of the experiments at most, without the greeting.
    fn played(&self) -> Option<f64> {
        self.greeting?;
        self.experiments.iter().map(|(_, _, credits)| *credits).sum()
    }

    /// Credits of the [spare](Self::spare) calls at most: those of the dearest cells, each of which is measured again
    /// at most once.
    fn spare_credits(&self) -> Option<f64> {
        let each = |&(_, calls, credits): &(&str, u64, Option<f64>)| {
            credits.map(|credits| (credits / calls.max(1) as f64, calls))
        };
        let mut each: Vec<(f64, u64)> = self.experiments.iter().map(each).collect::<Option<_>>()?;
        each.sort_by(|one, other| other.0.total_cmp(&one.0));
        let mut left = self.spare;
        let cost = |(credits, calls): (f64, u64)| {
            let again = calls.min(left);
            left -= again;
            credits * again as f64
        };
        Some(each.into_iter().map(cost).sum::<f64>().ceil())
    }

    /// Credits that the records can come to: those of the experiments and of the spare calls.
    pub fn credits_max(&self) -> Option<f64> {
        self.played().zip(self.spare_credits()).map(|(played, spare)| played + spare)
    }

    /// A line for each experiment, and where the costs are known one for all of them and one for the spare calls.
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
            lines.push(format!("  total, with the first calls: at most {}", price.told(credits)));
        }
        let spare = self.spare_credits().filter(|_| self.spare > 0);
        if let (Some(credits), Some(price)) = (spare, &self.price) {
            let more = price.told(credits);
            lines.push(format!(
                "  more, if cells are measured again because this machine was too busy: at most {more}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use wellhead_telemetry::SecretUrl;

    use super::*;
    use crate::measure::plan::{RatePlan, StreamsPlan};

    fn forecast(url: &str) -> Forecast {
        let endpoint = TargetEndpoint::new("a".to_owned(), SecretUrl::parse(url).expect("a URL"));
        let second = Duration::from_secs(1);
        let plans: Vec<Box<dyn ExperimentPlan>> = vec![
            Box::new(RatePlan::new(10.0, 20.0, 2.0, second, second)),
            Box::new(StreamsPlan::new(8, 64, second)),
        ];
        Forecast::of(&endpoint, &plans)
    }

    #[test]
    fn credits_are_those_of_the_catalogue() {
        let forecast = forecast("https://eth-mainnet.g.alchemy.com/v2/PATHKEY");
        let (name, calls, credits) = forecast.experiments[0];
        assert_eq!((name, calls, credits), ("rate", 152, Some(1520.0)));
        let text = forecast.lines().join("\n");
        assert!(text.contains("at most 152 calls, 1520 "), "{text}");
        assert!(text.contains("total, with the first calls: at most "), "{text}");
        assert!(!text.contains("PATHKEY"), "{text}");
    }

    /// A quarter of all calls, and where these are more than the dearest experiment has, the next one's.
    #[test]
    fn spare_calls_cost_what_the_dearest_cells_do() {
        let mut forecast = forecast("https://eth-mainnet.g.alchemy.com/v2/PATHKEY");
        for (experiments, spare, more, most) in [
            (vec![("rate", 100, Some(1_000.0))], 25, 250.0, 1_250.0),
            (vec![("rate", 100, Some(1_000.0)), ("cost", 20, Some(1_500.0))], 30, 1_600.0, 4_100.0),
            (vec![("rate", 100, Some(1_000.0))], 0, 0.0, 1_000.0),
        ] {
            (forecast.experiments, forecast.spare) = (experiments, spare);
            assert_eq!(forecast.spare_credits(), Some(more), "{:?}", forecast.experiments);
            assert_eq!(forecast.credits_max(), Some(most), "{:?}", forecast.experiments);
            let line = format!("too busy: at most {more} CU");
            let text = forecast.lines().join("\n");
            assert_eq!(text.contains(&line), spare > 0, "{text}");
        }
    }

    #[test]
    fn an_inquiry_costs_by_its_methods() {
        let url = SecretUrl::parse("https://eth-mainnet.g.alchemy.com/v2/PATHKEY").expect("a URL");
        let endpoint = TargetEndpoint::new("a".to_owned(), url);
        let methods = vec![("eth_blockNumber", 0.5), ("eth_chainId", 0.5)];
        let forecast =
            Forecast::told(&endpoint, &[("fresh", methods, 100)], Duration::from_secs(9));
        assert_eq!(forecast.experiments, [("fresh", 100, Some(500.0))]);
        assert_eq!((forecast.calls(), forecast.provider), (100, Some("Alchemy")));
    }

    #[test]
    fn nothing_is_guessed_of_a_stranger() {
        let forecast = forecast("http://127.0.0.1:8545");
        assert!(forecast.experiments.iter().all(|(_, _, credits)| credits.is_none()));
        assert_eq!((forecast.spare_credits(), forecast.credits_max()), (None, None));
        assert!(
            forecast.lines().iter().all(|line| !line.contains("too busy")),
            "no costs are known"
        );
        assert!(forecast.calls() > 152);
    }
}
