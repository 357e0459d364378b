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
use super::limits::over;
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
    let compared: Vec<Result<Ratio, String>> =
        pairs.iter().map(|pair| compare(&groups, pair)).collect();
    let mut intervals = family(&compared.iter().flatten().copied().collect::<Vec<_>>()).into_iter();
    let of = intervals.len();
    let found = pairs.iter().zip(compared).filter_map(|(pair, compared)| {
        Some(match compared {
            Err(why) => DraftVerdict::cannot_tell(why),
            Ok(_) => say(&groups, pair, intervals.next()?, of),
        })
    });
    let mut found: Vec<DraftVerdict> = found.collect();
    // Each pair has a verdict.
    let told = pairs.iter().zip(&found).filter(|(pair, it)| {
        matches!(pair.factor, Factor::Protocol) && !matches!(it.finding, Finding::CannotTell { .. })
    });
    let conclusion = conclusion(&told.map(|(_, it)| it).collect::<Vec<_>>());
    found.extend(conclusion);
    found
}

/// Two settings, and in what they differ.
struct ComparedPair {
    a: ComparedSetting,
    b: ComparedSetting,
    factor: Factor,
}

impl ComparedPair {
    /// What both have in common.
    fn held(&self) -> String {
        self.factor.held(&self.a, &self.b)
    }
}

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
            pairs.push(ComparedPair { a: setting.clone(), b: same, factor: Factor::Protocol });
        } else if groups.contains_key(&own) {
            pairs.push(ComparedPair { a: setting.clone(), b: own, factor: Factor::Protocol });
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
            let (a, b) = ((*many).clone(), (*few).clone());
            pairs.push(ComparedPair { a, b, factor: Factor::Connections });
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
    let (mut faster, mut alike) = (Vec::new(), Vec::new());
    for it in compared {
        match &it.finding {
            Finding::Comparison(Found(one)) => faster.push(one),
            Finding::Comparison(NotUpTo(one)) => alike.push(one),
            _ => {}
        }
    }
    let quicker = |protocol: &str| faster.iter().filter(|it| it.what == protocol).count();
    let (h2, h1) = (quicker("h2"), quicker("http/1.1"));
    let held = format!("in all {all} settings");
    let sure = compared.iter().map(|it| it.confidence).min().unwrap_or(Confidence::None);
    let finding = match (h2 == all || h1 == all, alike.len() == all) {
        (true, _) => common_faster(&faster, held)?,
        (false, true) => common_difference(&alike, held),
        (false, false) => {
            let alike = alike.len();
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
fn common_faster(faster: &[&Faster], held: String) -> Option<Finding> {
    let Faster { what, than, .. } = (*faster.first()?).clone();
    let percent = median(&faster.iter().map(|it| it.percent).collect::<Vec<_>>())?;
    let (low, high) = whole(faster.iter().map(|it| (it.low, it.high)));
    Some(Finding::Comparison(Found(Faster { what, than, percent, low, high, held })))
}

/// That neither is, in any.
fn common_difference(alike: &[&NoDifference], held: String) -> Finding {
    // Which of two is told first may be chance.
    let (low, high) = whole(alike.iter().map(|it| match it.what.as_str() {
        "h2" => (it.low, it.high),
        _ => (-it.high, -it.low),
    }));
    let (what, than) = ("h2".to_owned(), "http/1.1".to_owned());
    Finding::Comparison(NotUpTo(NoDifference { what, than, low, high, held }))
}

/// From the lowest end of the intervals to the highest one.
fn whole(intervals: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    intervals.fold(none, |(low, high), it| (low.min(it.0), high.max(it.1)))
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
            Self::Connections => over(setting.connections),
        }
    }

    fn held(self, setting: &ComparedSetting, other: &ComparedSetting) -> String {
        let first = match self {
            Self::Protocol if setting.connections != other.connections => {
                let of =
                    |it: &ComparedSetting| format!("{} over {}", it.protocol, over(it.connections));
                format!("{} and {}", of(setting), of(other))
            }
            Self::Protocol => over(setting.connections),
            Self::Connections => setting.protocol.clone(),
        };
        let body = match setting.body.as_str() {
            "" => String::new(),
            body => format!(", {body} bodies"),
        };
        format!("{first}, {} at a time{body}", setting.concurrency)
    }
}

/// Why nothing is said of the times of two settings, where calls of one fail.
fn failing(groups: &Groups<'_>, pair: &ComparedPair) -> Option<String> {
    [&pair.a, &pair.b].into_iter().find_map(|setting| {
        let cells = &groups[setting];
        let failed = cells.iter().map(|cell| cell.share(|call| !served(call))).fold(0.0, f64::max);
        (failed > FAILED_MAX).then(|| {
            let (name, held) = (pair.factor.name(setting), pair.factor.held(setting, setting));
            let percent = (failed * 100.0).round();
            format!("up to {percent} % of the calls failed with {name}, {held}")
        })
    })
}

/// The medians of both, by repeat.
fn medians(groups: &Groups<'_>, pair: &ComparedPair) -> Vec<(f64, f64)> {
    let medians = |setting: &ComparedSetting| {
        let mut repeats: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for cell in &groups[setting] {
            repeats.entry(cell.cell.repeat).or_default().extend(cell.took(0.5));
        }
        repeats.into_iter().filter_map(|(repeat, medians)| Some((repeat, median(&medians)?)))
    };
    let others: BTreeMap<u32, f64> = medians(&pair.b).collect();
    medians(&pair.a).filter_map(|(repeat, a)| Some((a, *others.get(&repeat)?))).collect()
}

/// The ratio of their times, or why there is none.
fn compare(groups: &Groups<'_>, pair: &ComparedPair) -> Result<Ratio, String> {
    if let Some(why) = failing(groups, pair) {
        return Err(why);
    }
    let (held, medians) = (pair.held(), medians(groups, pair));
    Ratio::of_pairs(&medians).ok_or_else(|| match medians.first() {
        Some((a_ms, b_ms)) => format!(
            "a single repeat cannot show a difference: {} took {a_ms:.1} ms, {} {b_ms:.1} ms, {held}",
            pair.factor.name(&pair.a),
            pair.factor.name(&pair.b)
        ),
        None => format!("too few calls, {held}"),
    })
}

/// What the interval says of a pair, one of this many comparisons; the quicker one is told first.
fn say(groups: &Groups<'_>, pair: &ComparedPair, ratio: Interval, of: usize) -> DraftVerdict {
    let (ratio, order) = match ratio.point > 1.0 {
        true => (ratio.inverted(), [&pair.b, &pair.a]),
        false => (ratio, [&pair.a, &pair.b]),
    };
    let repeats = medians(groups, pair).len();
    let mut evidence = order.map(|setting| told(groups, setting, pair.factor)).to_vec();
    evidence.push(format!(
        "ratios of medians over {repeats} repeats; one of {of} comparisons, corrected together (Holm)"
    ));
    let sure = Confidence::by_count(repeats, 3, 2);
    let ([what, than], held) = (order.map(|setting| pair.factor.name(setting)), pair.held());
    let less = |ratio: f64| (1.0 - ratio) * 100.0;
    let (low, high) = (less(ratio.high), less(ratio.low));
    // "Faster" is said only where the interval excludes no difference.
    let finding = Finding::Comparison(match tells(&ratio) {
        true => Found(Faster { what, than, percent: less(ratio.point), low, high, held }),
        false => NotUpTo(NoDifference { what, than, low, high, held }),
    });
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
