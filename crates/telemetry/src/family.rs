//! What is known of a metric family beyond its name, type and help: for `docs/metrics.md`.
//!
//! A crate that exports families keeps a table of these facts beside them. A test of the page
//! fails when a family has no facts, or facts have no family.

/// One family.
#[derive(Debug, Clone, Copy)]
pub struct FamilyFacts {
    /// As it is registered, without the suffix `_total` of a counter.
    pub name: &'static str,
    /// The labels, in their order.
    pub labels: &'static [LabelFacts],
    /// How many series it takes at most: `upstreams × verdicts`.
    pub series: &'static str,
}

/// One label of a family.
#[derive(Debug, Clone, Copy)]
pub struct LabelFacts {
    /// Its name.
    pub name: &'static str,
    /// The values that it has.
    pub values: LabelValues,
}

/// The values of a label.
#[derive(Debug, Clone, Copy)]
pub enum LabelValues {
    /// Where they come from.
    From(&'static str),
    /// All of them.
    Words(fn() -> Vec<&'static str>),
}

/// The chain that a series is of.
pub const CHAIN: LabelFacts = label("chain", "the chains of the config");
/// The upstream that a series is of.
pub const UPSTREAM: LabelFacts = label("upstream", "the ids of the upstreams of the chain");
/// The time that credits are counted for.
pub const PERIOD: LabelFacts = words("period", || vec!["day", "month"]);

/// A family with these labels, and the series that it takes at most.
pub const fn family(
    name: &'static str,
    labels: &'static [LabelFacts],
    series: &'static str,
) -> FamilyFacts {
    FamilyFacts { name, labels, series }
}

/// A family of one series.
pub const fn single(name: &'static str) -> FamilyFacts {
    family(name, &[], "1")
}

/// A label whose values come from somewhere.
pub const fn label(name: &'static str, from: &'static str) -> LabelFacts {
    LabelFacts { name, values: LabelValues::From(from) }
}

/// A label of these values.
pub const fn words(name: &'static str, all: fn() -> Vec<&'static str>) -> LabelFacts {
    LabelFacts { name, values: LabelValues::Words(all) }
}

/// A label of the words of all variants of an enum: [`words`] of its `ALL` and `word`.
#[macro_export]
macro_rules! label_of_words {
    ($label:literal, $type:ty) => {
        $crate::family::words($label, || <$type>::ALL.map(<$type>::word).to_vec())
    };
}
