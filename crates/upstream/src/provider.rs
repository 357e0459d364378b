//! The catalogue of providers: what a method costs, how the rate is metered, what the
//! plans allow.
//!
//! Facts only, from `data/providers.toml`, each with its source and date; read once. Which
//! of them hold for an upstream is said by its [`crate::Budget`]. An upstream whose
//! provider is not listed, or that has none, pays one credit a call.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use wellhead_eth::{MethodGlob, MethodRow, MethodTable};

const CATALOGUE: &str = include_str!("../data/providers.toml");

/// How a provider meters a rate. Its words stand in the reference page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum Meter {
    /// A bucket that fills within the window.
    Bucket,
    /// A window that slides, or whose begin we do not see.
    Window,
    /// A window that opens with its first call.
    #[strum(serialize = "fixed window")]
    Fixed,
}

wellhead_word::words!(Meter);

/// How the rate is metered, whatever it is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metering {
    /// The kind.
    pub meter: Meter,
    window_s: u64,
    /// Where that is written.
    pub source: String,
    /// And when it was read there.
    pub as_of: String,
}

impl Metering {
    /// How long a window is, or how long a bucket takes to fill.
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window_s)
    }
}

/// What some methods cost.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodCost {
    /// On the bill.
    pub credits: u32,
    /// On the rate, where that differs.
    pub throughput: Option<u32>,
    /// Which methods; a name goes before a pattern.
    pub methods: Vec<String>,
    /// Where that is written.
    pub source: String,
    /// And when it was read there.
    pub as_of: String,
}

/// What a plan allows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderPlan {
    /// As `budget.plan` names it.
    pub name: String,
    /// Credits in a window of the provider's metering.
    pub credits: Option<u64>,
    /// Calls in a second, whatever they cost.
    pub calls_per_second: Option<u64>,
    /// Credits in a day.
    pub credits_per_day: Option<u64>,
    /// Credits in a month.
    pub credits_per_month: Option<u64>,
    /// Where that is written.
    pub source: String,
    /// And when it was read there.
    pub as_of: String,
}

/// What a message costs that the provider pushes over a subscription.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Push {
    /// Credits for each message of `newHeads`.
    pub credits: Option<u32>,
    /// Credits for each byte, in thousandths.
    pub byte_thousandths: Option<u32>,
    /// Where that is written.
    pub source: String,
    /// And when it was read there.
    pub as_of: String,
}

/// What is known of one provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// As `provider` names it.
    pub id: String,
    /// As it calls itself.
    pub name: String,
    /// How the hosts of its URLs end; one without a leading dot is a whole host.
    pub hosts: Vec<String>,
    /// What it calls a credit.
    pub unit: String,
    /// What a method costs that no cost names.
    pub default: u32,
    /// Where the costs are written.
    pub source: String,
    /// And when they were read there.
    pub as_of: String,
    /// What the figures leave out.
    pub note: Option<String>,
    /// How its rate is metered.
    pub rate: Option<Metering>,
    /// What it takes for pushed messages.
    pub push: Option<Push>,
    /// Costs by method.
    #[serde(default, rename = "cost")]
    pub costs: Vec<MethodCost>,
    /// What its plans allow.
    #[serde(default, rename = "plan")]
    pub plans: Vec<ProviderPlan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    #[serde(rename = "provider")]
    providers: Vec<Provider>,
}

impl Provider {
    /// All of them, by id.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Provider>> = OnceLock::new();
        ALL.get_or_init(|| {
            let catalogue: Catalogue = toml::from_str(CATALOGUE)
                .expect("the catalogue is compiled in, and a test reads all of it");
            catalogue.providers
        })
    }

    /// The one of this id.
    pub fn named(id: &str) -> Option<&'static Self> {
        Self::all().iter().find(|provider| provider.id == id)
    }

    /// The one that this host belongs to.
    pub fn of_host(host: &str) -> Option<&'static Self> {
        let host = host.to_ascii_lowercase();
        let is_its = |end: &String| match end.strip_prefix('.') {
            Some(_) => host.ends_with(end.as_str()),
            None => host == *end,
        };
        Self::all().iter().find(|provider| provider.hosts.iter().any(is_its))
    }

    /// The plan of this name.
    pub fn plan(&self, name: &str) -> Option<&ProviderPlan> {
        self.plans.iter().find(|plan| plan.name == name)
    }

    fn cost(&self, method: &str) -> (u32, u32) {
        let named = |cost: &&MethodCost| cost.methods.iter().any(|name| name == method);
        let matched = |cost: &&MethodCost| {
            let globs = cost.methods.iter().filter(|name| name.contains('*'));
            globs.flat_map(|glob| glob.parse()).any(|glob: MethodGlob| glob.matches(method))
        };
        let found = self.costs.iter().find(named).or_else(|| self.costs.iter().find(matched));
        found.map_or((self.default, self.default), |cost| {
            (cost.credits, cost.throughput.unwrap_or(cost.credits))
        })
    }
}

/// What a pushed message costs at one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushPrice {
    /// For each message.
    message_thousandths: u64,
    /// For each of its bytes.
    byte_thousandths: u64,
}

impl PushPrice {
    /// The price of `provider`. Where it publishes none a message costs what a method costs
    /// that no cost names: too dear rather than for free.
    pub fn of(provider: &Provider) -> Self {
        let (credits, byte) = match &provider.push {
            Some(push) => {
                (push.credits.unwrap_or_default(), push.byte_thousandths.unwrap_or_default())
            }
            None => (provider.default, 0),
        };
        let message_thousandths = u64::from(credits) * 1_000;
        Self { message_thousandths, byte_thousandths: u64::from(byte) }
    }

    /// What a message of `bytes` costs, in thousandths of a credit.
    pub fn thousandths(self, bytes: usize) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.message_thousandths.saturating_add(self.byte_thousandths.saturating_mul(bytes))
    }
}

/// What each method of the table costs at one provider.
#[derive(Debug, Clone)]
pub struct Tariff {
    /// By row: on the bill and on the rate.
    rows: Arc<[(u32, u32)]>,
}

impl Tariff {
    /// The tariff of `provider`. Methods that the table does not list pay the default.
    pub fn of(provider: &Provider) -> Self {
        let rows = MethodTable::standard().rows().iter();
        let cost = |row: &MethodRow| match row.is_unknown() {
            true => (provider.default, provider.default),
            false => provider.cost(row.name),
        };
        Self { rows: rows.map(cost).collect() }
    }

    /// Credits of one call on the bill.
    pub fn billed(&self, row: &MethodRow) -> u32 {
        self.rows[row.index.get()].0
    }

    /// Credits of one call on the rate.
    pub fn throughput(&self, row: &MethodRow) -> u32 {
        self.rows[row.index.get()].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_source_and_a_date() {
        let mut ids = Vec::new();
        for provider in Provider::all() {
            let mut facts = vec![(&provider.source, &provider.as_of)];
            facts.extend(provider.rate.iter().map(|rate| (&rate.source, &rate.as_of)));
            facts.extend(provider.costs.iter().map(|cost| (&cost.source, &cost.as_of)));
            facts.extend(provider.plans.iter().map(|plan| (&plan.source, &plan.as_of)));
            facts.extend(provider.push.iter().map(|push| (&push.source, &push.as_of)));
            if let Some(push) = &provider.push {
                let prices = [push.credits, push.byte_thousandths];
                assert_eq!(prices.iter().flatten().count(), 1, "{}: one price", provider.id);
            }
            for (source, as_of) in facts {
                assert!(source.len() > 10, "{}: {source}", provider.id);
                assert!(as_of.starts_with("20"), "{}: {as_of}", provider.id);
            }
            for plan in &provider.plans {
                // Credits of a plan are those of a window.
                assert!(plan.credits.is_none() || provider.rate.is_some(), "{}", provider.id);
            }
            for glob in provider.costs.iter().flat_map(|cost| &cost.methods) {
                assert!(glob.parse::<MethodGlob>().is_ok(), "{}: {glob}", provider.id);
            }
            ids.push(provider.id.as_str());
        }
        assert!(ids.len() >= 10);
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "each once: {ids:?}");
    }

    #[test]
    fn hosts_are_recognised_by_their_end() {
        for (host, id) in [
            ("eth-mainnet.g.alchemy.com", Some("alchemy")),
            ("ETH-MAINNET.G.ALCHEMY.COM", Some("alchemy")),
            ("a.b.quiknode.pro", Some("quicknode")),
            ("mainnet.infura.io", Some("infura")),
            ("rpc.ankr.com", Some("ankr")),
            ("notrpc.ankr.com", None),
            ("evil-infura.io", None),
            ("infura.io.example", None),
            ("geth-a", None),
        ] {
            let found = Provider::of_host(host).map(|provider| provider.id.as_str());
            assert_eq!(found, id, "{host}");
        }
    }

    #[test]
    fn methods_have_their_price() {
        for (id, method, billed, throughput) in [
            ("alchemy", "eth_chainId", 0, 0),
            ("alchemy", "eth_blockNumber", 10, 10),
            ("alchemy", "eth_call", 26, 26),
            ("alchemy", "eth_getBalance", 20, 20),
            ("alchemy", "eth_getLogs", 60, 60),
            ("alchemy", "eth_sendRawTransaction", 40, 250),
            ("alchemy", "debug_traceTransaction", 40, 1_000),
            ("alchemy", "nobody_knows", 20, 20),
            ("quicknode", "eth_call", 20, 20),
            ("quicknode", "trace_block", 40, 40),
            ("quicknode", "trace_replayTransaction", 80, 80),
            ("chainstack", "debug_traceTransaction", 2, 2),
            ("infura", "eth_estimateGas", 300, 300),
            ("infura", "eth_getBalance", 80, 80),
            ("ankr", "eth_getLogs", 200, 200),
        ] {
            let tariff = Tariff::of(Provider::named(id).expect("listed"));
            let row = MethodTable::standard().row(method);
            let found = (tariff.billed(row), tariff.throughput(row));
            assert_eq!(found, (billed, throughput), "{id} {method}");
        }
    }
}
