//! Which way of calling is quicker (`protocol`).
//!
//! A cell is `{"protocol": "h2", "connections": "1", "concurrency": "100", "body": "large"}`. Two
//! cells are compared where they differ in one factor alone; HTTP/1.1 with a connection for each call is compared
//! with HTTP/2 over any number, for so both are used. A repeat plays all settings, so what
//! is compared are the medians of the two cells of one repeat (`stat::ratio`), and all comparisons
//! of a trial are decided together: eight of them find eight times as much by chance as one. What they come to is
//! told last.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{Faster, Finding, NoDifference};
use super::trial::{PlayedCell, served};
use super::{Confidence, DraftVerdict};
use crate::stat::bootstrap::Interval;
use crate::stat::median;
use crate::stat::ratio::{Ratio, family, tells};

/// Above this share of failures the times of the others say little.
const FAILED_MAX: f64 = 0.05;

type Groups<'a> = BTreeMap<ComparedSetting, Vec<&'a PlayedCell<'a>>>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ComparedSetting {
    body: String,
    connections: u64,
    concurrency: u64,
    protocol: String,
}

pub(super) fn protocol(cells: &[&PlayedCell<'_>]) -> Vec<DraftVerdict> {
    let mut groups: Groups<'_> = BTreeMap::new();
    for cell in cells {
        if let Some(setting) = setting(cell) {
            groups.entry(setting).or_default().push(cell);
        }
    }
    let pairs = compared_pairs(&groups);
    if pairs.is_empty() {
        return vec![DraftVerdict::cannot_tell("no two cells differ in exactly one factor")];
    }
    let compared: Vec<ComparisonOutcome> = pairs
        .iter()
        .map(|(a, b, factor)| match failing(&groups, [a, b], *factor) {
            Some(why) => ComparisonOutcome::Not(why),
            None => compare(&groups, a, b, *factor),
        })
        .collect();
    let ratios = compared.iter().filter_map(|compared| match compared {
        ComparisonOutcome::Ratio(ratio) => Some(*ratio),
        ComparisonOutcome::Not(_) => None,
    });
    let mut intervals = family(&ratios.collect::<Vec<_>>()).into_iter();
    let of = intervals.len();
    let found = pairs.iter().zip(compared).filter_map(|((a, b, factor), compared)| {
        Some(match compared {
            ComparisonOutcome::Not(why) => DraftVerdict::cannot_tell(why),
            ComparisonOutcome::Ratio(_) => say(&groups, a, b, *factor, intervals.next()?, of),
        })
    });
    let mut found: Vec<DraftVerdict> = found.collect();
    let of_protocols =
        pairs.iter().filter(|(_, _, factor)| matches!(factor, Factor::Protocol)).count();
    // They come first among the pairs, and each has a verdict.
    let of_protocols = found[..of_protocols.min(found.len())].iter();
    let told: Vec<&DraftVerdict> =
        of_protocols.filter(|it| !matches!(it.finding, Finding::CannotTell { .. })).collect();
    let conclusion = conclusion(&told);
    found.extend(conclusion);
    found
}

/// Two settings, and in what they differ.
type ComparedPair = (ComparedSetting, ComparedSetting, Factor);

/// What is compared: the protocols first, and then few connections with many where most calls are made at a time.
fn compared_pairs(groups: &Groups<'_>) -> Vec<ComparedPair> {
    let mut pairs = Vec::new();
    let most = groups.keys().map(|setting| setting.concurrency).max();
    let busiest: Vec<&ComparedSetting> =
        groups.keys().filter(|setting| Some(setting.concurrency) == most).collect();
    for setting in groups.keys().filter(|setting| setting.protocol == "h2") {
        let same = ComparedSetting { protocol: "http/1.1".to_owned(), ..setting.clone() };
        let own = ComparedSetting { connections: setting.concurrency, ..same.clone() };
        if groups.contains_key(&same) {
            pairs.push((setting.clone(), same, Factor::Protocol));
        } else if groups.contains_key(&own) {
            pairs.push((setting.clone(), own, Factor::Protocol));
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
            pairs.push(((*many).clone(), (*few).clone(), Factor::Connections));
        }
    }
    pairs
}

/// What several comparisons of the protocols come to, with a line for each.
fn conclusion(compared: &[&DraftVerdict]) -> Option<DraftVerdict> {
    let all = compared.len();
    if all < 2 {
        return None;
    }
    let matrix: Vec<String> = compared.iter().map(|it| it.finding.to_string()).collect();
    let quicker = |protocol: &str| {
        let is = |it: &&&DraftVerdict| matches!(&it.finding, Finding::Comparison(Found(Faster { what, .. })) if what == protocol);
        compared.iter().filter(is).count()
    };
    let is_alike = |it: &&&DraftVerdict| matches!(it.finding, Finding::Comparison(NotUpTo(_)));
    let alike = compared.iter().filter(is_alike).count();
    let (h2, h1) = (quicker("h2"), quicker("http/1.1"));
    let held = format!("in all {all} settings");
    let sure = compared.iter().map(|it| it.confidence).min().unwrap_or(Confidence::None);
    let finding = match (h2 == all || h1 == all, alike == all) {
        (true, _) => common_faster(compared, held)?,
        (false, true) => common_difference(compared, held)?,
        (false, false) => {
            let why = format!(
                "it depends on the setting: h2 is faster in {h2} of {all}, http/1.1 in {h1}, and {alike} show no \
                 difference"
            );
            return Some(DraftVerdict { evidence: matrix, ..DraftVerdict::cannot_tell(why) });
        }
    };
    Some(DraftVerdict::new(finding, sure, matrix))
}

/// By how much one protocol is faster in all settings: the median, and the whole of the intervals.
fn common_faster(compared: &[&DraftVerdict], held: String) -> Option<Finding> {
    let mut percents = Vec::new();
    let mut ways = None;
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for it in compared {
        let Finding::Comparison(Found(one)) = &it.finding else { return None };
        ways = Some((one.what.clone(), one.than.clone()));
        percents.push(one.percent);
        (low, high) = (low.min(one.low), high.max(one.high));
    }
    let ((what, than), percent) = (ways?, median(&percents)?);
    Some(Finding::Comparison(Found(Faster { what, than, percent, low, high, held })))
}

/// That neither is, in any.
fn common_difference(compared: &[&DraftVerdict], held: String) -> Option<Finding> {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for it in compared {
        let Finding::Comparison(NotUpTo(one)) = &it.finding else { return None };
        // Which of two is told first may be chance.
        let is_turned = one.what != "h2";
        let (from, to) = if is_turned { (-one.high, -one.low) } else { (one.low, one.high) };
        (low, high) = (low.min(from), high.max(to));
    }
    let (what, than) = ("h2".to_owned(), "http/1.1".to_owned());
    Some(Finding::Comparison(NotUpTo(NoDifference { what, than, low, high, held })))
}

/// What came of one comparison.
enum ComparisonOutcome {
    Ratio(Ratio),
    Not(String),
}

fn setting(cell: &PlayedCell<'_>) -> Option<ComparedSetting> {
    Some(ComparedSetting {
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
    fn name(self, setting: &ComparedSetting) -> String {
        match self {
            Self::Protocol => setting.protocol.clone(),
            Self::Connections => connections(setting.connections),
        }
    }

    fn held(self, setting: &ComparedSetting, other: &ComparedSetting) -> String {
        let first = match self {
            Self::Protocol if setting.connections != other.connections => {
                let of = |it: &ComparedSetting| {
                    format!("{} over {}", it.protocol, connections(it.connections))
                };
                format!("{} and {}", of(setting), of(other))
            }
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

/// Why nothing is said of the times of two settings, where calls of one fail.
fn failing(groups: &Groups<'_>, settings: [&ComparedSetting; 2], factor: Factor) -> Option<String> {
    settings.into_iter().find_map(|setting| {
        let cells = &groups[setting];
        let failed = cells.iter().map(|cell| cell.share(|call| !served(call))).fold(0.0, f64::max);
        (failed > FAILED_MAX).then(|| {
            let (name, held) = (factor.name(setting), factor.held(setting, setting));
            let percent = (failed * 100.0).round();
            format!("up to {percent} % of the calls failed with {name}, {held}")
        })
    })
}

/// The medians of `a` and `b`, by repeat.
fn pairs(groups: &Groups<'_>, a: &ComparedSetting, b: &ComparedSetting) -> Vec<(f64, f64)> {
    let medians = |setting: &ComparedSetting| {
        let mut repeats: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in &groups[setting] {
            repeats.entry(cell.cell.repeat).or_default().extend(cell.took(0.5));
        }
        repeats.into_iter().filter_map(|(repeat, medians)| Some((repeat, median(&medians)?)))
    };
    let others: BTreeMap<u32, f64> = medians(b).collect();
    medians(a).filter_map(|(repeat, a)| Some((a, *others.get(&repeat)?))).collect()
}

fn compare(
    groups: &Groups<'_>,
    a: &ComparedSetting,
    b: &ComparedSetting,
    factor: Factor,
) -> ComparisonOutcome {
    let held = factor.held(a, b);
    let pairs = pairs(groups, a, b);
    match (Ratio::of_pairs(&pairs), pairs.first()) {
        (Some(ratio), _) => ComparisonOutcome::Ratio(ratio),
        (None, Some((a_ms, b_ms))) => ComparisonOutcome::Not(format!(
            "a single repeat cannot show a difference: {} took {a_ms:.1} ms, {} {b_ms:.1} ms, {held}",
            factor.name(a),
            factor.name(b)
        )),
        (None, None) => ComparisonOutcome::Not(format!("too few calls, {held}")),
    }
}

/// What the interval says of `a` over `b`, one of this many comparisons; the quicker one is told
/// first.
fn say(
    groups: &Groups<'_>,
    a: &ComparedSetting,
    b: &ComparedSetting,
    factor: Factor,
    ratio: Interval,
    of: usize,
) -> DraftVerdict {
    let (mut first, mut second, mut ratio) = (a, b, ratio);
    if ratio.point > 1.0 {
        (first, second, ratio) = (b, a, ratio.inverted());
    }
    let repeats = pairs(groups, a, b).len();
    let mut evidence: Vec<String> =
        [first, second].iter().map(|setting| told(groups, setting, factor)).collect();
    evidence.push(format!(
        "ratios of medians over {repeats} repeats; one of {of} comparisons, corrected together (Holm)"
    ));
    let sure = Confidence::by_count(repeats, 3, 2);
    let (what, than, held) = (factor.name(first), factor.name(second), factor.held(a, b));
    let less = |ratio: f64| (1.0 - ratio) * 100.0;
    // "Faster" is said only where the interval excludes no difference.
    let finding = if tells(&ratio) {
        let (percent, low, high) = (less(ratio.point), less(ratio.high), less(ratio.low));
        Finding::Comparison(Found(Faster { what, than, percent, low, high, held }))
    } else {
        let (low, high) = (less(ratio.high), less(ratio.low));
        Finding::Comparison(NotUpTo(NoDifference { what, than, low, high, held }))
    };
    DraftVerdict::new(finding, sure, evidence)
}

fn told(groups: &Groups<'_>, setting: &ComparedSetting, factor: Factor) -> String {
    let cells = &groups[setting];
    let took = |q: f64| {
        let times: Vec<f64> = cells.iter().flat_map(|cell| cell.times()).collect();
        crate::stat::quantile(&times, q).unwrap_or(0.0)
    };
    format!(
        "{}: median {:.1} ms, 95 % within {:.1} ms, 99 % within {:.1} ms; {} repeats",
        factor.name(setting),
        took(0.5),
        took(0.95),
        took(0.99),
        cells.len()
    )
}
