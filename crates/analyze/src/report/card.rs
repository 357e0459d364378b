//! The first screen: a card for each target, which says whether it is fit for use, with which
//! settings, and at what price.
//!
//! The rule of the colours is [`severity`], and nothing else decides them. A finding of low
//! confidence colours nothing: it is told, and a second run may make it sure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::weight::{Weight, weight};
use crate::conclude::profile;
use crate::conclude::verdict::{Confidence, ExperimentVerdict, figure, see};
use crate::record::{CallRecord, PlayedCell, Record, RunRecord, Trial, costs};
use crate::stat::{median, quantile};
use crate::text::escaped;

/// Reasons that a card has room for.
const REASONS_MAX: usize = 4;

/// Calls of which the price is told.
const PRICED_CALLS: f64 = 1e6;

/// Experiments whose findings stand first on a card where nothing limits.
const FIRST_OF_SOUND: [&str; 4] = ["rate", "load", "throttle", "window"];

/// Experiments that show latency at little load, the gentlest first, with what grows in them.
const GENTLE: [(&str, &str); 4] =
    [("latency", ""), ("load", "rate"), ("rate", "rate"), ("throttle", "concurrency")];

/// Whether a target is fit for use. Its word is its class as well: a colour never stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(super) enum TargetSeverity {
    /// Calls fail or are answered wrongly, and no setting helps.
    Unfit,
    /// It can be used within limits: the settings keep to them.
    Limited,
    /// Nothing was found that limits it.
    Sound,
    /// Too little was concluded.
    Inconclusive,
}

wellhead_word::words!(TargetSeverity);

impl TargetSeverity {
    /// A form of its own, for those who do not tell colours apart.
    fn sign(self) -> char {
        match self {
            Self::Sound => '✓',
            Self::Limited => '▲',
            Self::Unfit => '✕',
            Self::Inconclusive => '?',
        }
    }

    /// What it means.
    fn meaning(self) -> &'static str {
        match self {
            Self::Sound => "no limit found up to the load that was offered",
            Self::Limited => "usable within the limits below; the settings respect them",
            Self::Unfit => "calls fail or get wrong answers at any load; no setting helps",
            Self::Inconclusive => "too few findings to judge",
        }
    }
}

/// The severity of what was found at one target, by findings of at least medium confidence:
///
/// 1. *unfit* where more than 1 % of the calls fail for a reason that is no limit, or most other
///    targets have other answers;
/// 2. *limited* where a limit, a cap that costs calls, a drift for the worse, stale heads, answers
///    that differ, or a smaller share of failures was found;
/// 3. *inconclusive* where more experiments concluded nothing than did;
/// 4. *sound* otherwise.
pub(super) fn severity(verdicts: &[&ExperimentVerdict]) -> TargetSeverity {
    let has =
        |wanted: Weight| verdicts.iter().any(|it| is_sure(it) && weight(&it.finding) == wanted);
    let experiments: BTreeSet<&str> = verdicts.iter().map(|it| it.experiment.as_str()).collect();
    let told = verdicts.iter().filter(|it| is_sure(it) && weight(&it.finding) != Weight::Open);
    let concluded = told.map(|it| it.experiment.as_str()).collect::<BTreeSet<_>>().len();
    match () {
        () if has(Weight::Spoils) => TargetSeverity::Unfit,
        () if has(Weight::Limits) => TargetSeverity::Limited,
        () if concluded == 0 || concluded * 2 < experiments.len() => TargetSeverity::Inconclusive,
        () => TargetSeverity::Sound,
    }
}

fn is_sure(verdict: &ExperimentVerdict) -> bool {
    verdict.confidence >= Confidence::Medium
}

/// The cards of all targets, below a line that says which target is which.
pub(super) fn cards(
    out: &mut String,
    run: &RunRecord,
    records: &[Record],
    trials: &[Trial<'_>],
    verdicts: &[ExperimentVerdict],
) {
    if run.targets.is_empty() {
        return;
    }
    let own = |target: usize| -> Vec<&ExperimentVerdict> {
        verdicts.iter().filter(|verdict| verdict.target as usize == target).collect()
    };
    let all: Vec<TargetSeverity> = (0..run.targets.len()).map(|n| severity(&own(n))).collect();
    if run.targets.len() > 1 {
        out.push_str("<p class=\"ranks\">");
        for wanted in TargetSeverity::ALL {
            let those = run.targets.iter().zip(&all).filter(|(_, it)| **it == wanted);
            let names: Vec<String> = those.map(|(target, _)| escaped(&target.id)).collect();
            if !names.is_empty() {
                let _ = write!(out, "<span>{} {}</span> ", badge(wanted), names.join(", "));
            }
        }
        out.push_str("</p>\n");
    }
    let _ = writeln!(out, "<section id=\"targets\" class=\"providers of-{}\">", all.len().min(4));
    for (index, severity) in all.into_iter().enumerate() {
        card(out, &CardSubject { run, records, trials, index, own: own(index), severity });
    }
    out.push_str("</section>\n");
}

fn badge(severity: TargetSeverity) -> String {
    let (word, sign) = (severity.word(), severity.sign());
    format!("<b class=\"badge {word}\"><span aria-hidden=\"true\">{sign}</span> {word}</b>")
}

/// What a card is about.
struct CardSubject<'a> {
    run: &'a RunRecord,
    records: &'a [Record],
    trials: &'a [Trial<'a>],
    index: usize,
    own: Vec<&'a ExperimentVerdict>,
    severity: TargetSeverity,
}

fn card(out: &mut String, it: &CardSubject<'_>) {
    let target = &it.run.targets[it.index];
    let provider = target.provider.as_deref().unwrap_or("provider unknown");
    let chain = target.chain_id.map(|id| format!(" · chain {id}")).unwrap_or_default();
    let host = (target.host != target.id).then(|| format!("{} · ", target.host));
    let _ = write!(
        out,
        "<article class=\"provider {}\">\n<h2>{}{}</h2>\n\
         <p class=\"where\">{}{}{chain}</p>\n<p class=\"meaning\">{}</p>\n<ul class=\"reasons\">",
        it.severity.word(),
        escaped(&target.id),
        badge(it.severity),
        escaped(&host.unwrap_or_default()),
        escaped(provider),
        it.severity.meaning(),
    );
    let reasons = reasons(&it.own, it.severity);
    for verdict in reasons.iter().take(REASONS_MAX) {
        let name = escaped(&verdict.experiment);
        let _ = write!(
            out,
            "<li>{} <small><a href=\"#{name}\">{name}</a></small></li>",
            escaped(&verdict.sentence)
        );
    }
    if reasons.len() > REASONS_MAX {
        let more = reasons.len() - REASONS_MAX;
        let _ = write!(out, "<li><small>and {more} more, see below</small></li>");
    }
    out.push_str("</ul>\n<dl>");
    let mut row = |name: &str, text: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(text));
    };
    let lowest = reasons.iter().map(|verdict| verdict.confidence).min();
    if let Some(lowest) = lowest.filter(|it| *it > Confidence::None) {
        row("Confidence of these findings", lowest.word());
    }
    row("Latency", &latency(it).unwrap_or_else(|| "not measured".to_owned()));
    price(it).iter().for_each(|(name, text)| row(name, text));
    out.push_str("</dl>\n");
    let settings = profile::settings(target, &it.own);
    if settings.is_empty() {
        out.push_str("<p class=\"settings\">Settings: none needed for what was measured.</p>\n");
    } else {
        let _ = write!(
            out,
            "<div class=\"settings\"><span>Settings of the upstream</span>\
             <button type=\"button\" class=\"copy\">copy</button>\n<pre>{}</pre></div>\n",
            escaped(&settings)
        );
    }
    out.push_str("</article>\n");
}

/// The findings that decide a severity, the weightiest first.
fn reasons<'a>(
    own: &[&'a ExperimentVerdict],
    severity: TargetSeverity,
) -> Vec<&'a ExperimentVerdict> {
    let those = |is: &dyn Fn(&ExperimentVerdict) -> bool| -> Vec<&'a ExperimentVerdict> {
        own.iter().copied().filter(|verdict| is(verdict)).collect()
    };
    let weighs = |it: &ExperimentVerdict, wanted: Weight| weight(&it.finding) == wanted;
    match severity {
        TargetSeverity::Unfit | TargetSeverity::Limited => {
            let mut found = those(&|it| is_sure(it) && weighs(it, Weight::Spoils));
            found.extend(those(&|it| is_sure(it) && weighs(it, Weight::Limits)));
            found
        }
        TargetSeverity::Sound => {
            let place = |it: &&ExperimentVerdict| {
                let known = FIRST_OF_SOUND.iter().position(|name| *name == it.experiment);
                known.unwrap_or(FIRST_OF_SOUND.len())
            };
            let mut found = those(&|it| is_sure(it) && weighs(it, Weight::Harmless));
            found.sort_by_key(place);
            // The first finding of an experiment answers its question.
            found.dedup_by_key(|verdict| verdict.experiment.as_str());
            found.truncate(REASONS_MAX);
            found
        }
        TargetSeverity::Inconclusive => those(&|it| !is_sure(it)),
    }
}

/// `p50 21 ms, p95 24 ms, 0 % failed (at 20 calls/s)`: at the lowest load that was measured.
fn latency(it: &CardSubject<'_>) -> Option<String> {
    let of = |name: &str| {
        let own =
            |trial: &&Trial<'_>| trial.experiment == name && trial.target as usize == it.index;
        it.trials.iter().find(own)
    };
    for (name, grows) in GENTLE {
        let Some(trial) = of(name) else { continue };
        let cells = trial.sound().0;
        let size = |cell: &PlayedCell<'_>| cell.number(grows);
        let least = cells.iter().filter_map(|cell| size(cell)).min_by(f64::total_cmp);
        let calls: Vec<&CallRecord> = cells
            .iter()
            .filter(|cell| size(cell) == least)
            .flat_map(|cell| cell.calls.iter().copied())
            .collect();
        let times: Vec<f64> =
            calls.iter().filter(|call| see::served(call)).map(|call| see::took_ms(call)).collect();
        let (Some(p50), Some(p95)) = (quantile(&times, 0.5), quantile(&times, 0.95)) else {
            continue;
        };
        let failed = 100.0 * (calls.len() - times.len()) as f64 / calls.len() as f64;
        let at = match (least, grows) {
            (Some(rate), "rate") => format!("at {} calls/s", figure(rate)),
            (Some(calls), "concurrency") => format!("{} calls at a time", figure(calls)),
            (_, _) => "one call at a time".to_owned(),
        };
        let failed =
            if failed > 0.0 { format!(", {} % failed", figure(failed)) } else { String::new() };
        return Some(format!("p50 {} ms, p95 {} ms{failed} ({at})", figure(p50), figure(p95)));
    }
    let rollups = &of("soak")?.rollups;
    let middle = |of: &dyn Fn(&crate::record::Rollup) -> Option<u64>| {
        let times: Vec<f64> = rollups.iter().filter_map(|it| of(it)).map(|us| us as f64).collect();
        median(&times).map(|us| figure(us / 1_000.0))
    };
    let (p50, p95) = (middle(&|it| it.p50)?, middle(&|it| it.p95)?);
    Some(format!("p50 {p50} ms, p95 {p95} ms (soak)"))
}

/// What calls cost, and what this run has cost.
fn price(it: &CardSubject<'_>) -> Vec<(&'static str, String)> {
    let target = &it.run.targets[it.index];
    let Some(price) = &target.price else {
        let why = match target.provider {
            Some(_) => "unknown: the catalogue has no costs for this provider",
            None => "unknown: no provider was named",
        };
        return vec![("Price", why.to_owned())];
    };
    let own = costs(it.records).into_iter().find(|(target, _)| *target as usize == it.index);
    let (calls, credits) = own.map(|(_, cost)| cost).unwrap_or_default();
    if calls == 0 {
        return vec![("Price", "no call was recorded".to_owned())];
    }
    let million = price.told(credits / calls as f64 * PRICED_CALLS);
    let whole = format!("{calls} recorded requests cost {}", price.told(credits));
    vec![("Price of 1 million such calls", million), ("This run", whole)]
}

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
