//! Which way of calling is quicker (`protocol`).
//!
//! A cell is `{"protocol": "h2", "connections": "1", "concurrency": "100", "body": "large"}`. Two
//! cells are compared where they differ in one factor alone, and each with all its repeats.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::finding::Finding;
use super::trial::{Played, served};
use super::{Confidence, Found};
use crate::stat::bootstrap::median_ratio;

/// A smaller difference is none that anybody would choose by: it is within what our own clock and
/// the order of our own tasks make.
const TELLING: f64 = 0.01;

/// Above this share of failures the times of the others say little.
const FAILED_MAX: f64 = 0.05;

type Groups<'a> = BTreeMap<Setting, Vec<&'a Played<'a>>>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    body: String,
    connections: u64,
    concurrency: u64,
    protocol: String,
}

pub(super) fn protocol(cells: &[&Played<'_>], rng: &mut impl Rng) -> Vec<Found> {
    let mut groups: Groups<'_> = BTreeMap::new();
    for cell in cells {
        if let Some(setting) = setting(cell) {
            groups.entry(setting).or_default().push(cell);
        }
    }
    let mut found = Vec::new();
    let most = groups.keys().map(|setting| setting.concurrency).max();
    let busiest: Vec<&Setting> =
        groups.keys().filter(|setting| Some(setting.concurrency) == most).collect();
    for setting in groups.keys().filter(|setting| setting.protocol == "h2") {
        let other = Setting { protocol: "http/1.1".to_owned(), ..setting.clone() };
        if groups.contains_key(&other) {
            found.push(compare(&groups, setting, &other, Factor::Protocol, rng));
        }
    }
    let ways: BTreeSet<(&str, &str)> =
        busiest.iter().map(|setting| (setting.body.as_str(), setting.protocol.as_str())).collect();
    for (body, protocol) in ways {
        let of_way = || {
            busiest.iter().filter(|setting| setting.body == body && setting.protocol == protocol)
        };
        let few = of_way().min_by_key(|setting| setting.connections);
        let many = of_way().max_by_key(|setting| setting.connections);
        if let (Some(few), Some(many)) = (few, many)
            && few.connections < many.connections
        {
            found.push(compare(&groups, many, few, Factor::Connections, rng));
        }
    }
    if found.is_empty() {
        found.push(Found::cannot_tell("no two cells differ in one factor alone"));
    }
    found
}

fn setting(cell: &Played<'_>) -> Option<Setting> {
    Some(Setting {
        body: cell.factor("body").unwrap_or_default().to_owned(),
        connections: cell.count("connections")?,
        concurrency: cell.count("concurrency")?,
        protocol: cell.factor("protocol")?.to_owned(),
    })
}

#[derive(Debug, Clone, Copy)]
enum Factor {
    Protocol,
    Connections,
}

impl Factor {
    fn name(self, setting: &Setting) -> String {
        match self {
            Self::Protocol => setting.protocol.clone(),
            Self::Connections => connections(setting.connections),
        }
    }

    fn held(self, setting: &Setting) -> String {
        let first = match self {
            Self::Protocol => connections(setting.connections),
            Self::Connections => setting.protocol.clone(),
        };
        let body = match setting.body.as_str() {
            "" => String::new(),
            body => format!(", {body} bodies"),
        };
        format!("{first}, {} at a time{body}", setting.concurrency)
    }
}

fn connections(n: u64) -> String {
    if n == 1 { "1 connection".to_owned() } else { format!("{n} connections") }
}

/// Compares `a` with `b`; the quicker one is told first.
fn compare(
    groups: &Groups<'_>,
    a: &Setting,
    b: &Setting,
    factor: Factor,
    rng: &mut impl Rng,
) -> Found {
    let held = factor.held(a);
    for setting in [a, b] {
        let cells = &groups[setting];
        let failed = cells.iter().map(|cell| cell.share(|call| !served(call))).fold(0.0, f64::max);
        if failed > FAILED_MAX {
            let name = factor.name(setting);
            let percent = (failed * 100.0).round();
            let why = format!("up to {percent} % of the calls failed with {name}, {held}");
            return Found::cannot_tell(why);
        }
    }
    let times =
        |setting: &Setting| groups[setting].iter().map(|cell| cell.times()).collect::<Vec<_>>();
    let (mut first, mut second) = (a, b);
    let Some(mut ratio) = median_ratio(&times(first), &times(second), rng) else {
        return Found::cannot_tell(format!("too few calls, {held}"));
    };
    if ratio.point > 1.0 {
        (first, second) = (b, a);
        ratio = ratio.inverted();
    }
    let repeats = groups[first].len().min(groups[second].len());
    let evidence = [first, second].iter().map(|setting| told(groups, setting, factor)).collect();
    let sure = match repeats {
        3.. => Confidence::High,
        2 => Confidence::Medium,
        _ => Confidence::Low,
    };
    let (what, than) = (factor.name(first), factor.name(second));
    let less = |ratio: f64| (1.0 - ratio) * 100.0;
    // "Faster" is said only where the interval excludes no difference.
    let finding = if ratio.high < 1.0 - TELLING {
        let (percent, low, high) = (less(ratio.point), less(ratio.high), less(ratio.low));
        Finding::Faster { what, than, percent, low, high, held }
    } else {
        let (low, high) = (less(ratio.high), less(ratio.low));
        Finding::NoDifference { what, than, low, high, held }
    };
    Found::new(finding, sure, evidence)
}

fn told(groups: &Groups<'_>, setting: &Setting, factor: Factor) -> String {
    let cells = &groups[setting];
    let took = |q: f64| {
        let times: Vec<f64> = cells.iter().flat_map(|cell| cell.times()).collect();
        crate::stat::quantile(&times, q).unwrap_or(0.0)
    };
    format!(
        "{}: half within {:.1} ms, 95 % within {:.1} ms, 99 % within {:.1} ms; {} repeats",
        factor.name(setting),
        took(0.5),
        took(0.95),
        took(0.99),
        cells.len()
    )
}
