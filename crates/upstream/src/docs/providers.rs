//! The reference page of providers, written from the catalogue.
//!
//! `docs/providers.md` is this text; a test compares them.

use std::fmt::Write;

use crate::provider::{Provider, ProviderPlan};

const INTRODUCTION: &str = "# Providers

<!-- Generated from crates/upstream/data/providers.toml by `cargo xtask docs`. Do not edit. -->

The prices and limits of providers that wellhead knows, so that it can count credits and stay
within a plan. wellhead recognises a provider by the host of an upstream's URL, or by the setting
`provider`. It assumes no plan: name yours with `budget.plan`, or set its limits in `budget`, which
take precedence over these figures. Prices and plans change; each figure has its source and the date
on which it was read. [limits.md](limits.md) describes how limits are applied.

If a provider lists no price for pushed blocks, wellhead uses the price of \"all others\" for each.
These prices decide whether wellhead subscribes to new blocks or polls ([health.md](health.md)).
";

/// The page `docs/providers.md`. `cargo xtask docs` writes it.
pub fn providers_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for provider in Provider::all() {
        write(&mut page, provider).expect("writing to a String does not fail");
    }
    page
}

fn write(page: &mut String, provider: &Provider) -> std::fmt::Result {
    let Provider { id, name, unit, default, source, as_of, .. } = provider;
    writeln!(page, "\n## {name}\n")?;
    let hosts: Vec<_> = provider.hosts.iter().map(|host| shown(host)).collect();
    let found = match hosts.is_empty() {
        true => "only by this setting".to_owned(),
        false => format!("by {}", hosts.join(", ")),
    };
    writeln!(page, "`provider: {id}`, recognised {found}. Its unit is the {unit}.")?;
    if let Some(rate) = &provider.rate {
        let (meter, window) = (rate.meter.word(), rate.window().as_secs());
        let (source, as_of) = (&rate.source, &rate.as_of);
        writeln!(page, "Rates are metered by a {meter} of {window} s ({source}, {as_of}).")?;
    }
    if let Some(push) = &provider.push {
        let price = match (push.credits, push.byte_thousandths) {
            (Some(credits), _) => format!("{credits} {unit} per message"),
            (None, Some(thousandths)) => {
                format!("{} {unit} per byte", f64::from(thousandths) / 1_000.0)
            }
            (None, None) => "nothing".to_owned(),
        };
        let (source, as_of) = (&push.source, &push.as_of);
        writeln!(page, "Blocks pushed over `ws` cost {price} ({source}, {as_of}).")?;
    }
    if let Some(note) = &provider.note {
        writeln!(page, "{note}")?;
    }
    writeln!(page, "\n| methods | {unit} | of the rate | source | as of |")?;
    writeln!(page, "| --- | --- | --- | --- | --- |")?;
    for cost in &provider.costs {
        let methods: Vec<_> = cost.methods.iter().map(|method| format!("`{method}`")).collect();
        let rate = cost.throughput.map_or(String::new(), |credits| credits.to_string());
        let (credits, source, as_of) = (cost.credits, &cost.source, &cost.as_of);
        writeln!(page, "| {} | {credits} | {rate} | {source} | {as_of} |", methods.join(", "))?;
    }
    writeln!(page, "| all others | {default} | | {source} | {as_of} |")?;
    if provider.plans.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n| plan | rate | per day | per month | source | as of |")?;
    writeln!(page, "| --- | --- | --- | --- | --- | --- |")?;
    for plan in &provider.plans {
        let (day, month) = (number(plan.credits_per_day), number(plan.credits_per_month));
        let ProviderPlan { name, source, as_of, .. } = plan;
        let rate = rate(provider, plan);
        writeln!(page, "| `{name}` | {rate} | {day} | {month} | {source} | {as_of} |")?;
    }
    Ok(())
}

fn shown(host: &str) -> String {
    match host.strip_prefix('.') {
        Some(end) => format!("`*.{end}`"),
        None => format!("`{host}`"),
    }
}

fn rate(provider: &Provider, plan: &ProviderPlan) -> String {
    let window = provider.rate.as_ref().map_or(1, |rate| rate.window().as_secs());
    match (plan.credits, plan.calls_per_second) {
        (Some(credits), _) => format!("{credits} {} in {window} s", provider.unit),
        (None, Some(calls)) => format!("{calls} calls/s"),
        (None, None) => String::new(),
    }
}

fn number(credits: Option<u64>) -> String {
    credits.map_or(String::new(), |credits| match credits {
        millions if millions.is_multiple_of(1_000_000) => format!("{} M", millions / 1_000_000),
        tenths if tenths.is_multiple_of(100_000) => format!("{} M", tenths as f64 / 1e6),
        other => other.to_string(),
    })
}
