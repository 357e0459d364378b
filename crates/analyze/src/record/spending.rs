//! What the recorded calls have cost, where the catalogue knows the provider.

use std::collections::BTreeMap;

use super::{CreditPrice, MeasuredTarget, Record, RunRecord};

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
    let costs = costs(records);
    let line = |(index, target): (u32, &MeasuredTarget)| {
        let (requests, credits) = costs.get(&index).copied().unwrap_or_default();
        let cost = target.price.as_ref()?.told(credits);
        Some(format!("{}: {requests} recorded requests cost {cost}", target.id))
    };
    (0..).zip(&run.targets).filter_map(line).collect()
}

/// Calls in the records by target, and the credits that they have cost.
pub(crate) fn costs(records: &[Record]) -> BTreeMap<u32, (u64, f64)> {
    let mut costs: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for record in records {
        let (target, more, cost) = match record {
            Record::Call(call) => (call.target, 1, call.credits),
            Record::Rollup(rollup) => (rollup.target, rollup.calls, rollup.credits),
            Record::Cell(_) | Record::Wire(_) => continue,
        };
        let (calls, credits) = costs.entry(target).or_default();
        *calls += more;
        *credits += cost.unwrap_or(0.0);
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
