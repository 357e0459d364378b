//! `reach`: what is served, how far, how much. The cells are told at `inquiry::reach`.

use std::collections::BTreeMap;

use super::finding::{Extent, Finding};
use super::trial::{PlayedCell, Trial};
use super::{Confidence, DraftVerdict};
use crate::experiment::TryFate;

fn fate_of(played: &PlayedCell<'_>) -> Option<TryFate> {
    TryFate::from_word(played.factor("fate")?)
}

/// By method: whether a target serves it.
pub(crate) fn methods<'a>(trial: &Trial<'a>) -> BTreeMap<&'a str, TryFate> {
    asked(trial).into_iter().map(|(name, fates)| (name, settled(&fates))).collect()
}

/// What became of each method, each time that it was tried.
fn asked<'a>(trial: &Trial<'a>) -> BTreeMap<&'a str, Vec<TryFate>> {
    let mut asked: BTreeMap<&str, Vec<TryFate>> = BTreeMap::new();
    for played in trial.played.iter().filter(|played| played.factor("probe") == Some("method")) {
        if let (Some(name), Some(fate)) = (played.factor("value"), fate_of(played)) {
            asked.entry(name).or_default().push(fate);
        }
    }
    asked
}

/// A method is missing where it was refused twice: of several nodes behind one URL one may not
/// have it.
fn settled(fates: &[TryFate]) -> TryFate {
    match fates {
        _ if fates.contains(&TryFate::Served) => TryFate::Served,
        [TryFate::Refused, TryFate::Refused, ..] => TryFate::Refused,
        _ => TryFate::Open,
    }
}

/// What was under way when the account was refused, and in which class, where nothing was tried
/// after that.
fn barred<'a>(trial: &'a Trial<'_>) -> Option<(&'a str, &'a str)> {
    let last = trial.played.last()?;
    let class = last.calls.last().map_or("refused", |call| call.class.as_str());
    let is_barred = last.factor("probe") == Some("account");
    last.factor("value").filter(|_| is_barred).map(|probe| (probe, class))
}

pub(super) fn reach(trial: &Trial<'_>) -> Vec<DraftVerdict> {
    let mut sockets: Vec<(&str, TryFate)> = Vec::new();
    let mut sizes: BTreeMap<&str, Vec<SizeTry<'_>>> = BTreeMap::new();
    for played in &trial.played {
        let (probe, value) = (played.factor("probe"), played.factor("value"));
        let (Some(probe), Some(value), Some(fate)) = (probe, value, fate_of(played)) else {
            continue;
        };
        match (probe, value.parse()) {
            ("method" | "account", _) => {}
            ("websocket", _) => sockets.push((value, fate)),
            (probe, Ok(size)) => {
                sizes.entry(probe).or_default().push(SizeTry { size, fate, played });
            }
            (_, Err(_)) => {}
        }
    }
    let barred = barred(trial);
    let is_cut = |what: &str| barred.is_some_and(|(probe, _)| probe == what);
    let mut found: Vec<DraftVerdict> = sizes
        .iter()
        .filter_map(|(probe, tried)| {
            let found = extent(Extent::from_word(probe)?, tried);
            Some(if is_cut(probe) { cut(found) } else { found })
        })
        .collect();
    let asked = asked(trial);
    if !asked.is_empty() {
        let its = served(&asked);
        found.push(if is_cut("method") { cut(its) } else { its });
    }
    found.extend(socket(&sockets));
    if let Some((probe, class)) = barred {
        let why = format!(
            "the account was rejected at `{probe}` ({class}), before everything was tested"
        );
        found.push(DraftVerdict::cannot_tell(why));
    }
    found
}

/// What was found before the account was refused in the middle of it.
fn cut(mut found: DraftVerdict) -> DraftVerdict {
    found.evidence.push("the account was rejected before everything was tested".to_owned());
    found.confidence = found.confidence.min(Confidence::Low);
    found
}

fn served(asked: &BTreeMap<&str, Vec<TryFate>>) -> DraftVerdict {
    let those = |is: &dyn Fn(&[TryFate]) -> bool| -> Vec<String> {
        let those = asked.iter().filter(|(_, fates)| is(fates));
        those.map(|(name, _)| (*name).to_owned()).collect()
    };
    let missing = those(&|fates| settled(fates) == TryFate::Refused);
    let open = those(&|fates| settled(fates) == TryFate::Open);
    let varies =
        |fates: &[TryFate]| fates.contains(&TryFate::Served) && fates.contains(&TryFate::Refused);
    let varying = those(&varies);
    if open.len() == asked.len() {
        return DraftVerdict::cannot_tell(format!(
            "none of the {} tested methods got an answer",
            open.len()
        ));
    }
    let count = (asked.len() - missing.len() - open.len()) as u64;
    let mut evidence = Vec::new();
    let mut sure = Confidence::High;
    if !open.is_empty() {
        let why = "calls failed, or were rejected only once";
        evidence.push(format!("unknown for {}: {why}", open.join(", ")));
        sure = Confidence::Medium;
    }
    if !varying.is_empty() {
        evidence.push(format!("rejected once and served once: {}", varying.join(", ")));
    }
    DraftVerdict::new(Finding::Methods { served: count, missing }, sure, evidence)
}

fn socket(sockets: &[(&str, TryFate)]) -> Option<DraftVerdict> {
    let fate = |what: &str| sockets.iter().find(|(tried, _)| *tried == what).map(|(_, fate)| *fate);
    let evidence = match (fate("calls")?, fate("subscriptions")) {
        (TryFate::Open, _) => {
            return Some(DraftVerdict::cannot_tell(
                "a call over WebSocket failed for another reason",
            ));
        }
        (TryFate::Served, Some(TryFate::Served)) => "subscriptions to new blocks work",
        (TryFate::Served, Some(TryFate::Refused)) => "subscriptions to new blocks are rejected",
        (TryFate::Served, Some(TryFate::Open) | None) => {
            "whether subscriptions to new blocks work is unknown"
        }
        (TryFate::Refused, _) => "tested at the target's host, or at the URL given with `--ws`",
    };
    let finding = Finding::WebSocket { served: fate("calls") == Some(TryFate::Served) };
    Some(DraftVerdict::new(finding, Confidence::High, vec![evidence.to_owned()]))
}

/// One try of a size.
struct SizeTry<'a> {
    size: u64,
    fate: TryFate,
    played: &'a PlayedCell<'a>,
}

fn extent(what: Extent, tried: &[SizeTry<'_>]) -> DraftVerdict {
    let of = |fate: TryFate| tried.iter().filter(move |it| it.fate == fate);
    let refused_at = of(TryFate::Refused).map(|it| it.size).min();
    let below = |it: &&SizeTry<'_>| refused_at.is_none_or(|at| it.size < at);
    let largest = of(TryFate::Served).filter(below).max_by_key(|it| it.size);
    let again = of(TryFate::Served).any(|it| refused_at.is_some_and(|at| it.size >= at));
    let whole = largest.is_some_and(|it| it.played.factor("whole").is_some());
    let mut evidence = vec![format!("{} sizes were tested", tried.len())];
    let mut sure = Confidence::High;
    if again {
        evidence.push("a larger size was served as well: results vary".to_owned());
        sure = Confidence::Low;
    }
    if let Some(open) = of(TryFate::Open).next() {
        let class = open.played.calls.last().map_or("no answer", |call| call.class.as_str());
        if largest.is_none() && refused_at.is_none() {
            let about = what.subject();
            return DraftVerdict::cannot_tell(format!("{about}: the first try failed ({class})"));
        }
        evidence.push(format!("{} failed for another reason: {class}", open.size));
        sure = Confidence::Low;
    }
    let up_to = largest.map(|it| it.size);
    DraftVerdict::new(Finding::Reach { what, up_to, refused_at, whole }, sure, evidence)
}
