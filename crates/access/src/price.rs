//! What a call costs a client, in credits.
//!
//! One table for all upstreams, since a client is to know what it pays whichever of them answers: by the cost
//! class of the method, or as the settings say of some methods. A call is charged before it is made. What
//! upstreams charge is counted apart, by their own prices.

use wellhead_eth::{CostClass, MethodGlob, MethodRow, MethodTable};

/// Credits of a call by its class. The proportions follow what a node spends on each, by the tables of
/// providers that charge by method (`crates/upstream/data/providers.toml`): a read of state is 10 to 20 there, a
/// call 20 to 26, a search 60 to 75, a trace 40 to 300.
const fn class_credits(class: CostClass) -> u32 {
    match class {
        CostClass::Light => 1,
        CostClass::State => 2,
        CostClass::Block | CostClass::Call => 4,
        CostClass::Write => 5,
        CostClass::Logs => 12,
        CostClass::Trace => 30,
    }
}

/// Credits of some methods, instead of those of their class.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceRule {
    /// Which methods, in any case of letters.
    pub methods: Vec<MethodGlob>,
    /// What each call costs; 0 is free.
    pub credits: u32,
}

/// The price of each method.
#[derive(Debug)]
pub struct PriceList {
    /// By the place of the method in the table.
    by_row: Box<[u32]>,
    /// For methods that the table does not list.
    rules: Vec<PriceRule>,
}

impl PriceList {
    /// By class, but for what the first rule that names a method says.
    pub fn new(rules: Vec<PriceRule>) -> Self {
        let price =
            |row: &MethodRow| ruled(&rules, row.name).unwrap_or_else(|| class_credits(row.class));
        let by_row = MethodTable::standard().rows().iter().map(price).collect();
        Self { by_row, rules }
    }

    /// What a call costs.
    pub fn credits(&self, row: &MethodRow, method: &str) -> u32 {
        let of_row = self.by_row[row.index.get()];
        if row.is_unknown() { ruled(&self.rules, method).unwrap_or(of_row) } else { of_row }
    }
}

impl Default for PriceList {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

fn ruled(rules: &[PriceRule], method: &str) -> Option<u32> {
    let names = |rule: &&PriceRule| {
        rule.methods.iter().any(|pattern| pattern.matches_ignoring_case(method))
    };
    rules.iter().find(names).map(|rule| rule.credits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prices: &PriceList, method: &str, credits: u32) {
        let row = MethodTable::standard().row(method);
        assert_eq!(prices.credits(row, method), credits, "{method}");
    }

    #[test]
    fn prices_follow_the_class() {
        let prices = PriceList::default();
        for (method, credits) in [
            ("eth_chainId", 1),
            ("eth_getBalance", 2),
            ("eth_call", 4),
            ("eth_getLogs", 12),
            ("debug_traceTransaction", 30),
            ("eth_sendRawTransaction", 5),
            ("acme_unknown", 4),
        ] {
            check(&prices, method, credits);
        }
    }

    #[test]
    fn the_first_rule_that_names_a_method_decides() {
        let rule = |pattern: &str, credits| PriceRule {
            methods: vec![pattern.parse().expect("a pattern")],
            credits,
        };
        let prices =
            PriceList::new(vec![rule("eth_getLogs", 75), rule("eth_get*", 3), rule("acme_*", 0)]);
        for (method, credits) in [
            ("eth_getLogs", 75),
            ("eth_getBalance", 3),
            ("eth_call", 4),
            ("acme_unknown", 0),
            ("ACME_Unknown", 0),
            ("other_unknown", 4),
        ] {
            check(&prices, method, credits);
        }
    }
}
